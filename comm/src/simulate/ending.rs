//! How calls fail, come to their verdicts, and end their ranks.

use std::sync::Arc;
use std::time::Duration;

use super::act::micros;
use super::net::Event;
use super::rank::{Ending, Failed, Life};
use super::scenario::Seat;
use super::sim_world::Stage;
use crate::backend::peer_status::PeerStatus;
use crate::backend::verdict_wait::{Inquest, Next, VerdictWait};
use crate::context::Notice;
use crate::error::ErrorKind;
use crate::error::verdict::Verdict;
use crate::rendezvous::ToCoordinator;
use crate::types::Rank;
use crate::watch::report::Report;
use crate::watch::wire::{self, Cause, FromRank};
use crate::world::Word;

impl Stage<'_> {
    /// A call has failed, as `collective::call::judged` has it.
    pub(super) fn fail(&mut self, rank: usize, kind: ErrorKind, usable: bool) -> bool {
        self.say(|| format!("rank {rank}: fails: {kind}"));
        let (plan, now_us) = (self.plan, self.now_us);
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
            ErrorKind::PeerAborted { .. } | ErrorKind::Orphaned { .. } => None,
            ErrorKind::PeerClosed { .. } | ErrorKind::Stalled { .. } => Some(Cause::InVain),
            kind => Some(Cause::Failed {
                kind: kind.clone(),
                usable,
                culprit: None,
            }),
        };
        let wait = VerdictWait::new(cause.is_some(), player.peers.as_ref());
        if let Some(call) = &mut player.call {
            let started_us = call.started_us;
            call.ending = Some(Ending {
                kind,
                usable,
                cause,
                wait,
                since_us: now_us,
                again_us: 0,
            });
            let members = &plan.groups[call.group];
            if !is_known && missing.iter().any(|rank| members.contains(rank)) {
                player.waits(started_us, &missing, true);
            }
        }
        true
    }

    /// What the call of a rank can learn of the others.
    pub(super) fn inquest<R>(&self, rank: usize, ask: impl FnOnce(&Inquest<'_>) -> R) -> Option<R> {
        let player = &self.players[rank];
        Some(ask(&Inquest {
            status: &player.status,
            peers: player.peers.as_ref(),
            probe: &self.view(Seat::Rank(rank)),
            call: player.call_id()?,
            quiet: Duration::from_micros(self.now_us - player.heard_us),
        }))
    }

    /// A call that has failed goes on to its verdict; says whether its rank makes further calls.
    pub(super) fn hear_verdict(&mut self, rank: usize) -> bool {
        loop {
            let now_us = self.now_us;
            let Some(call) = &mut self.players[rank].call else {
                return false;
            };
            let Some(ending) = &mut call.ending else {
                return false;
            };
            let mut wait = ending.wait;
            let now = Duration::from_micros(now_us - ending.since_us);
            call.lost += wait.overrun(now).unwrap_or_default();
            let (lost, cause) = (call.lost, ending.cause.clone());
            let step = self.inquest(rank, |inquest| wait.step(now, lost, inquest));
            let call = self.players[rank].call.as_mut();
            let Some(ending) = call.and_then(|call| call.ending.as_mut()) else {
                return false;
            };
            ending.wait = wait;
            match step {
                Some(Next::Ask) => self.complain(rank, cause.unwrap_or(Cause::GivenUp)),
                Some(Next::Tell(verdict)) => self.tell(rank, *verdict),
                Some(Next::Rest(time)) => {
                    let again_us = now_us + micros(time);
                    if ending.again_us <= now_us || again_us < ending.again_us {
                        ending.again_us = again_us;
                        self.at_apart(again_us, Event::Go(rank));
                    }
                    return false;
                }
                Some(Next::End(verdict)) => return self.end_failed(rank, verdict),
                None => return false,
            }
        }
    }

    /// A failed call ends, with its verdict if there is one.
    fn end_failed(&mut self, rank: usize, verdict: Option<Arc<Verdict>>) -> bool {
        let (plan, now_us) = (self.plan, self.now_us);
        let Some(id) = self.players[rank].call_id() else {
            return false;
        };
        if verdict.is_some() {
            self.complain(rank, Cause::Told);
        }
        let player = &mut self.players[rank];
        let of_verdict = |peer_status: &PeerStatus<'_>, _: &[usize]| {
            let verdict = verdict.as_ref();
            verdict.and_then(|verdict| peer_status.kind_of(verdict))
        };
        let better = player.judged_by(plan, of_verdict).flatten();
        let Some(Ending { kind, usable, .. }) =
            player.end(now_us, false).and_then(|call| call.ending)
        else {
            return false;
        };
        let is_partial = matches!(
            kind,
            ErrorKind::PeerAborted { .. }
                | ErrorKind::PeerClosed { .. }
                | ErrorKind::Stalled { .. }
                | ErrorKind::Transport { .. }
        );
        let kind = better.filter(|_| is_partial).unwrap_or(kind);
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
                seq: id.seq,
                origin: super::rank::narrow(rank),
                kind,
            };
            if let Ok(bytes) = postcard::to_allocvec(&Word::Notice(notice)) {
                self.tell_desk(rank, &ToCoordinator::Abort { bytes });
            }
        }
        if plan.ends_abruptly {
            self.players[rank].exit_code = Some(1);
            self.die(rank);
            self.sweep();
        } else {
            self.leave(rank);
        }
        false
    }

    pub(super) fn complain(&mut self, rank: usize, cause: Cause) {
        let Some(call) = self.players[rank].call_id() else {
            return;
        };
        self.say(|| {
            format!(
                "rank {rank}: complains of #{} of {}: {cause:?}",
                call.seq, call.key
            )
        });
        let has_report = !matches!(cause, Cause::Waits | Cause::GivenUp);
        let report = has_report.then(|| Box::new(self.report(rank)));
        let bytes = wire::encode(&FromRank::Complaint {
            call,
            cause,
            report,
        });
        self.tell_desk(rank, &ToCoordinator::Watch { bytes });
    }

    /// A rank has come to a verdict by itself: its calls have it, and the arbiter once it runs again.
    pub(super) fn tell(&mut self, rank: usize, verdict: Verdict) {
        let judged = FromRank::Judged(Box::new(verdict.clone()));
        self.take(rank, verdict);
        let bytes = wire::encode(&judged);
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
    pub(super) fn leave(&mut self, rank: usize) {
        self.say(|| format!("rank {rank}: leaves"));
        self.players[rank].life = Life::Left;
        self.players[rank].parted_us = Some(self.now_us);
        self.tell_desk(rank, &ToCoordinator::Bye);
        // Its process ends a moment later, and the launcher sees that too.
        self.reap(rank);
        self.sweep();
    }

    /// The error of a call whose peer has destroyed the group, or ended its world or process, once no news of that peer has
    /// come for a while: in shared memory its side is gone, over a network its link ends (`backend::local`, `backend::links`).
    pub(super) fn finds_parted(&mut self, rank: usize, missing: &[usize]) -> Option<ErrorKind> {
        let (plan, now_us) = (self.plan, self.now_us);
        let call = self.players[rank].call.as_ref()?;
        let (group, seq, started_us) = (call.group, call.seq, call.started_us);
        let is_near = |peer: usize| plan.hosts[peer] == plan.hosts[rank];
        let parted_us = |peer: &usize| {
            let player = &self.players[*peer];
            if player.entered[group] >= seq {
                return None;
            }
            // What a process has in shared memory stays as it was when it is killed.
            let is_dead = player.life == Life::Dead;
            let parted_us = player
                .parted_us
                .filter(|_| plan.has_scene && !(is_dead && is_near(*peer)));
            let destroyed_us = player.destroyed.get(&group).copied();
            Some((*peer, destroyed_us.or(parted_us)?))
        };
        let (peer, parted_us) = missing.iter().find_map(parted_us)?;
        let delay_us = if is_near(peer) { 0 } else { plan.delay_us };
        let until_us = (parted_us + delay_us).max(started_us)
            + micros(crate::backend::wait_context::NEWS_TIMEOUT);
        if now_us < until_us {
            self.at(until_us, Event::Go(rank));
            return None;
        }
        let is_near = is_near(peer);
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
}
