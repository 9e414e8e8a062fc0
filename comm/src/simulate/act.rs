//! What ranks do: their programs, the way in which they wait (as `backend::vigil` does with a thread of its
//! own), and how they end.

use std::collections::BTreeSet;
use std::time::Duration;

use super::net::Event;
use super::plan::Fault;
use super::rank::{Call, Failed, Life, Linger, Pressed, circle};
use super::stage::Stage;
use crate::backend::call_wait::Turn;
use crate::backend::matching;
use crate::backend::vigil::{NEWS_TIMEOUT, NOTICE_WAIT, VERDICT_WAIT};
use crate::error::ErrorKind;
use crate::rendezvous::ToCoordinator;
use crate::transport::shm::slot::Entry;
use crate::types::Rank;
use crate::watch::report::Report;
use crate::watch::wire::{self, Cause, FromRank};
use crate::watch::{FIRST_LOOK, NEXT_LOOK};
use crate::world::{Notice, Word};

/// How often a lingering call looks, and what a longer pause counts for.
const LINGER_STEP_US: u64 = 50_000;

/// A duration as the stage counts time.
fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Stage<'_> {
    /// A rank goes on, as far as it can.
    pub(super) fn go(&mut self, rank: usize) {
        while self.players[rank].life == Life::Working && self.players[rank].runs() {
            let goes_on = match &self.players[rank].call {
                None => self.next_step(rank),
                Some(call) if call.failed.is_some() => self.hear_verdict(rank),
                Some(_) => self.wait(rank),
            };
            if !goes_on {
                break;
            }
        }
        self.press();
        self.sweep();
    }

    /// Begins the next call, or ends.
    fn next_step(&mut self, rank: usize) -> bool {
        let (plan, now_us) = (self.plan, self.now_us);
        let player = &mut self.players[rank];
        let Some(step) = plan.programs[rank].get(player.step).copied() else {
            self.leave(rank);
            return false;
        };
        if player.destroyed.contains_key(&step.group) {
            player.step += 1;
            return true;
        }
        let is_struck = rank == plan.culprit && player.step == plan.step;
        if player.due_us == 0 {
            let slow_us = if is_struck && plan.fault == Fault::Slow {
                plan.lasts_us
            } else {
                0
            };
            player.due_us = now_us + step.compute_us + slow_us + 1;
        }
        if now_us < player.due_us {
            let due_us = player.due_us;
            self.at(due_us, Event::Go(rank));
            return false;
        }
        player.due_us = 0;
        if is_struck && plan.fault == Fault::Destroyed {
            self.has_struck = true;
            player.destroyed.insert(step.group, now_us);
            self.say(|| format!("rank {rank}: destroys g{}", step.group));
            self.press();
            return true;
        }
        if is_struck && matches!(plan.fault, Fault::Busy | Fault::Exited | Fault::Left) {
            self.has_struck = true;
            match plan.fault {
                Fault::Busy => player.life = Life::Busy,
                Fault::Exited => self.die(rank),
                _ => self.leave(rank),
            }
            return false;
        }
        player.begin(step.group, step.word, now_us, plan);
        let seq = player.entered[step.group];
        self.say(|| format!("rank {rank}: enters #{seq} of g{}", step.group));
        for other in &plan.groups[step.group] {
            let is_cut = plan.fault == Fault::Cut
                && self.has_struck
                && [(rank, *other), (*other, rank)].contains(&(plan.culprit, plan.partner));
            if is_cut {
                self.lost.push((*other, step.group, seq));
            } else if *other != rank {
                // Who shares memory sees it at once.
                let is_near = plan.hosts[*other] == plan.hosts[rank];
                let delay_us = if is_near {
                    0
                } else {
                    1 + self.draw.up_to(plan.delay_us)
                };
                let at_us = now_us + delay_us;
                let event = Event::Seen {
                    rank,
                    by: *other,
                    group: step.group,
                    seq,
                };
                self.at(at_us, event);
            }
        }
        self.at(now_us + micros(FIRST_LOOK), Event::Go(rank));
        self.press();
        true
    }

    /// Looks whether the call can end; says whether it did.
    fn wait(&mut self, rank: usize) -> bool {
        let (plan, now_us) = (self.plan, self.now_us);
        let missing = self.players[rank].missing(plan);
        if missing.is_empty() {
            return self.exchanged(rank);
        }
        let player = &mut self.players[rank];
        if player.status.epoch() > 0
            && let Some(Err(kind)) =
                player.judged_by(plan, |outlook, missing| outlook.look(missing))
        {
            return !self.lingers(rank, &kind) && self.fail(rank, kind, false);
        }
        if let Some(kind) = self.finds_destroyed(rank, &missing) {
            return self.fail(rank, kind, false);
        }
        let player = &mut self.players[rank];
        let Some(call) = &mut player.call else {
            return false;
        };
        let started_us = call.started_us;
        let since = |us: u64| Duration::from_micros(us - started_us);
        let (now, deadline) = (since(now_us), Duration::from_micros(plan.deadline_us));
        let slice_end_us = |call: &Call| started_us + micros(call.slices.slice_end());
        if now_us < slice_end_us(call) {
            return false;
        }
        if let Some(lost) = call.slices.overrun(now, now) {
            call.lost += lost;
        }
        let turn = call.slices.turn(now, deadline + call.lost);
        let again_us = slice_end_us(call);
        match turn {
            Turn::GiveUp => {
                let waiting_for = missing.iter().map(|rank| Rank::from_index(*rank)).collect();
                let kind = ErrorKind::Stalled {
                    waiting_for,
                    waited_ms: micros(now) / 1000,
                };
                return self.fail(rank, kind, false);
            }
            Turn::Complain(number) => {
                let waited = if number == 0 { FIRST_LOOK } else { NEXT_LOOK };
                player.waits(now_us.saturating_sub(micros(waited)), &missing, number == 0);
                self.complain(rank, Cause::Waits);
            }
            Turn::Rest => {}
        }
        self.at(again_us, Event::Go(rank));
        false
    }

    /// Whether the call waits a moment more: the news that a rank has left can overtake what it sent, where
    /// the two share no memory (`backend::links`).
    fn lingers(&mut self, rank: usize, kind: &ErrorKind) -> bool {
        let ErrorKind::PeerClosed {
            peer,
            orderly: true,
            ..
        } = kind
        else {
            return false;
        };
        let (plan, now_us) = (self.plan, self.now_us);
        let is_near = plan.hosts[peer.index()] == plan.hosts[rank];
        let has_left = self.players[rank].status.gone(*peer).is_some();
        if is_near || !has_left {
            return false;
        }
        let Some(call) = &mut self.players[rank].call else {
            return false;
        };
        let linger = call.linger.get_or_insert(Linger {
            looked_us: now_us,
            waited_us: 0,
            again_us: now_us,
        });
        linger.waited_us += (now_us - linger.looked_us).min(LINGER_STEP_US);
        linger.looked_us = now_us;
        let goes_on = linger.waited_us < micros(NEWS_TIMEOUT);
        if goes_on && now_us >= linger.again_us {
            linger.again_us = now_us + LINGER_STEP_US;
            self.at(now_us + LINGER_STEP_US, Event::Go(rank));
        }
        goes_on
    }

    /// The error of a call whose peer has destroyed the group, once no news of that peer has come for a while:
    /// in shared memory its side is gone, over a network its link ends (`backend::local`, `backend::links`).
    fn finds_destroyed(&mut self, rank: usize, missing: &[usize]) -> Option<ErrorKind> {
        let (plan, now_us) = (self.plan, self.now_us);
        let call = self.players[rank].call.as_ref()?;
        let (group, seq, started_us) = (call.group, call.seq, call.started_us);
        let has_destroyed = |peer: &&usize| {
            let player = &self.players[**peer];
            player.entered[group] < seq && player.destroyed.contains_key(&group)
        };
        let peer = *missing.iter().find(has_destroyed)?;
        let is_near = plan.hosts[peer] == plan.hosts[rank];
        let delay_us = if is_near { 0 } else { plan.delay_us };
        let seen_us = self.players[peer].destroyed.get(&group)? + delay_us;
        let until_us = seen_us.max(started_us) + micros(NEWS_TIMEOUT);
        if now_us < until_us {
            self.at(until_us, Event::Go(rank));
            return None;
        }
        let peer = Rank::from_index(peer);
        Some(if is_near {
            ErrorKind::PeerClosed {
                peer,
                how: "destroyed the group".to_owned(),
                orderly: true,
            }
        } else {
            ErrorKind::Transport {
                peer,
                what: "the peer closed the link".to_owned(),
            }
        })
    }

    /// All members have entered: their calls are compared.
    fn exchanged(&mut self, rank: usize) -> bool {
        let plan = self.plan;
        let Some(call) = &self.players[rank].call else {
            return false;
        };
        let (group, seq) = (call.group, call.seq);
        let members = &plan.groups[group];
        let word = |member: &usize| {
            let calls = plan.programs[*member]
                .iter()
                .filter(|step| step.group == group);
            calls.map(|step| step.word).nth(super::plan::index(seq - 1))
        };
        let entry = |member: &usize| Entry {
            call: word(member).unwrap_or(0),
            count: 8,
            ..Entry::default()
        };
        let entries: Vec<Entry> = members.iter().map(entry).collect();
        if entries.iter().any(|entry| entry.call != entries[0].call) {
            let ranks: Vec<Rank> = members.iter().map(|rank| Rank::from_index(*rank)).collect();
            let kind = matching::mismatch(&ranks, &entries);
            return self.fail(rank, kind, true);
        }
        self.players[rank].end(self.now_us, true);
        self.players[rank].step += 1;
        true
    }

    /// A call has failed: the arbiter is asked, as `collective::call::judged` does.
    fn fail(&mut self, rank: usize, kind: ErrorKind, usable: bool) -> bool {
        self.say(|| format!("rank {rank}: fails: {kind}"));
        let plan = self.plan;
        let player = &mut self.players[rank];
        let Some(id) = player.call_id() else {
            return false;
        };
        let is_known = player.status.verdict(id).is_some();
        let missing: Vec<usize> = match &kind {
            ErrorKind::Stalled { waiting_for, .. } => {
                waiting_for.iter().map(|rank| rank.index()).collect()
            }
            ErrorKind::PeerClosed { peer, .. } | ErrorKind::Transport { peer, .. } => {
                vec![peer.index()]
            }
            _ => Vec::new(),
        };
        let cause = match &kind {
            ErrorKind::PeerAborted { .. } => Some(Cause::GivenUp),
            ErrorKind::PeerClosed { .. } | ErrorKind::Stalled { .. } => Some(Cause::InVain),
            kind => Some(Cause::Failed {
                kind: kind.clone(),
                usable,
                culprit: None,
            }),
        };
        let wait = if cause == Some(Cause::GivenUp) {
            NOTICE_WAIT
        } else {
            VERDICT_WAIT
        };
        let until_us = self.now_us + micros(wait);
        if let Some(call) = &mut player.call {
            let started_us = call.started_us;
            call.failed = Some((kind, usable, until_us));
            let members = &plan.groups[call.group];
            if !is_known && missing.iter().any(|rank| members.contains(rank)) {
                player.waits(started_us, &missing, true);
            }
        }
        if let Some(cause) = cause.filter(|_| !is_known) {
            self.complain(rank, cause);
        }
        self.at(until_us, Event::Go(rank));
        true
    }

    /// A failed call ends once there is a verdict, or without one.
    fn hear_verdict(&mut self, rank: usize) -> bool {
        let (plan, now_us) = (self.plan, self.now_us);
        let player = &self.players[rank];
        let (Some(id), Some(call)) = (player.call_id(), &player.call) else {
            return false;
        };
        let Some((kind, usable, until_us)) = call.failed.clone() else {
            return false;
        };
        let verdict = player.status.verdict(id);
        if verdict.is_none() && now_us < until_us {
            return false;
        }
        let of_verdict = |outlook: &crate::backend::outlook::Outlook<'_>| {
            verdict
                .as_ref()
                .and_then(|verdict| outlook.kind_of(verdict))
        };
        let is_partial = matches!(
            kind,
            ErrorKind::PeerAborted { .. }
                | ErrorKind::PeerClosed { .. }
                | ErrorKind::Stalled { .. }
                | ErrorKind::Transport { .. }
        );
        let better = player
            .judged_by(plan, |outlook, _| of_verdict(outlook))
            .flatten();
        let kind = better.filter(|_| is_partial).unwrap_or(kind);
        let seq = id.seq;
        let player = &mut self.players[rank];
        player.end(now_us, false);
        player.step += 1;
        player.failed.push(Failed {
            call: id,
            kind: kind.clone(),
            verdict,
        });
        if usable {
            return true;
        }
        if !matches!(kind, ErrorKind::PeerAborted { .. }) {
            let notice = Notice {
                key: id.key,
                seq,
                origin: super::rank::narrow(rank),
                kind,
            };
            if let Ok(bytes) = postcard::to_allocvec(&Word::Notice(notice)) {
                self.tell_desk(rank, &ToCoordinator::Abort { bytes });
            }
        }
        self.leave(rank);
        false
    }

    fn complain(&mut self, rank: usize, cause: Cause) {
        let Some(call) = self.players[rank].call_id() else {
            return;
        };
        self.say(|| {
            format!(
                "rank {rank}: complains of #{} of {}: {cause:?}",
                call.seq, call.key
            )
        });
        let report = (cause != Cause::Waits).then(|| Box::new(self.report(rank)));
        let bytes = wire::encode(&FromRank::Complaint {
            call,
            cause,
            report,
        });
        self.tell_desk(rank, &ToCoordinator::Watch { bytes });
    }

    /// What a rank says of itself.
    pub(super) fn report(&self, rank: usize) -> Report {
        Report {
            process: self.sight(rank).facts().cloned(),
            ..self.players[rank].report(self.plan, self.now_us)
        }
    }

    /// Says goodbye.
    fn leave(&mut self, rank: usize) {
        self.say(|| format!("rank {rank}: leaves"));
        self.players[rank].life = Life::Left;
        self.tell_desk(rank, &ToCoordinator::Bye);
        // Its process ends a moment later, and the launcher sees that too.
        self.reap(rank);
        self.sweep();
    }

    /// Notes since when the fault keeps somebody waiting.
    pub(super) fn press(&mut self) {
        let (plan, culprit) = (self.plan, self.plan.culprit);
        if plan.fault == Fault::Inverted {
            return self.press_circle();
        }
        if plan.fault.is_harmless() || self.pressed.is_some() {
            return;
        }
        let waits_for = |by: usize, whom: usize, is_strict: bool| {
            let player = &self.players[by];
            let is_up = player.life == Life::Working && player.runs();
            player.call.as_ref().is_some_and(|call| {
                is_up
                    && call.failed.is_none()
                    && plan.groups[call.group].contains(&whom)
                    && player.seen[call.group][whom] < call.seq
                    && (!is_strict || self.players[whom].entered[call.group] < call.seq)
            })
        };
        let others = || (0..plan.ranks).filter(|rank| *rank != culprit);
        let is_pressed = match plan.fault {
            Fault::Mismatched => others().any(|rank| {
                let call = self.players[rank].call.as_ref();
                call.is_some_and(|call| {
                    matches!(call.failed, Some((ErrorKind::Mismatch { .. }, ..)))
                })
            }),
            Fault::Cut => {
                let is_missed = |(by, group, seq): &(usize, usize, u64)| {
                    let call = self.players[*by].call.as_ref();
                    call.is_some_and(|call| (call.group, call.seq) == (*group, *seq))
                };
                self.lost.iter().any(is_missed)
            }
            Fault::Destroyed => others().any(|by| {
                let group = self.players[by].call.as_ref().map(|call| call.group);
                let gone = &self.players[culprit].destroyed;
                group.is_some_and(|group| gone.contains_key(&group)) && waits_for(by, culprit, true)
            }),
            _ => {
                let is_out = self.has_struck && self.is_out(culprit);
                // What it sent last may be on its way, and nobody waits for the dead.
                self.is_excused |= is_out && others().any(|by| waits_for(by, culprit, false));
                is_out && others().any(|by| waits_for(by, culprit, true))
            }
        };
        if is_pressed {
            self.pressed = Some(Pressed {
                since_us: self.now_us,
                circle: BTreeSet::new(),
            });
        }
    }

    /// A circle of waits keeps its ranks waiting from the moment on when the last of them has come to it.
    fn press_circle(&mut self) {
        if self.circle.is_some() {
            // Its verdict is told.
            return;
        }
        let ranks = circle(&self.players, self.plan);
        let before = self.pressed.as_ref().map(|pressed| &pressed.circle);
        if ranks.contains(&self.plan.culprit) && before != Some(&ranks) {
            self.pressed = Some(Pressed {
                since_us: self.now_us,
                circle: ranks,
            });
        }
    }

    fn is_out(&self, rank: usize) -> bool {
        let player = &self.players[rank];
        player.is_stopped || matches!(player.life, Life::Busy | Life::Dead | Life::Left)
    }
}
