//! What ranks do: their programs, the way in which they wait (as `backend::wait_context` does with a thread of its
//! own), and how they end.

use std::time::Duration;

use super::net::Event;
use super::rank::Call;
use super::rank::{Life, Linger};
use super::scenario::Fault;
use super::sim_world::Stage;
use crate::backend::call_wait::Turn;
use crate::backend::matching;
use crate::backend::wait_context::NEWS_TIMEOUT;
use crate::error::ErrorKind;
use crate::transport::shm::slot::Entry;
use crate::types::Rank;
use crate::watch::wire::Cause;
use crate::watch::{FIRST_LOOK, NEXT_LOOK};

/// How often a lingering call looks, and what a longer pause counts for.
const LINGER_STEP_US: u64 = 50_000;

/// A duration as the stage counts time.
pub(super) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Stage<'_> {
    /// A rank goes on, as far as it can.
    pub(super) fn go(&mut self, rank: usize) {
        while self.players[rank].life == Life::Working && self.players[rank].runs() {
            let goes_on = match &self.players[rank].call {
                None => self.next_step(rank),
                Some(call) if call.ending.is_some() => self.hear_verdict(rank),
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
                player.judged_by(plan, |peer_status, missing| peer_status.look(missing))
        {
            return !self.lingers(rank, &kind) && self.fail(rank, kind, false);
        }
        if let Some(kind) = self.finds_parted(rank, &missing) {
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
                let since = NEXT_LOOK * number;
                let early = self.inquest(rank, |inquest| inquest.judge_early(since));
                if let Some(verdict) = early.flatten() {
                    self.tell(rank, verdict);
                    self.at_apart(again_us, Event::Go(rank));
                    return true;
                }
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
            calls
                .map(|step| step.word)
                .nth(super::scenario::index(seq - 1))
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
}
