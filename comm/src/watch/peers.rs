//! A verdict without an arbiter: where the process that runs it is stopped, has ended, or cannot be reached.
//!
//! Nobody asks and nobody judges then. Ranks that wait look at the processes and boards of all ranks that they can see, and judge
//! with the same code. The first to come to a verdict writes it onto the board of the lowest rank of the host that lives, under
//! a lock on that board's file: so all ranks of the host say the same. Whoever finds it passes it on before it ends.
//!
//! - PEERS-1: nothing is said of a rank, early, that was not seen stopped for as long as the arbiter would want, or to have ended.
//! - PEERS-2: of ranks that nobody here can look at, only the one that serves the rendezvous is named: it does not answer. The
//!   others may wait, or have ended because of a verdict that is not known here.

mod bulletin;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

pub(super) use self::bulletin::post;
use super::failure;
use super::judge::{EndCause, FROZEN_AFTER_MS, Fate, Finding, Member, Question, Scene, judge};
use super::probe::Probe;
use super::process::{Inside, Sight, Stop};
use crate::error::ErrorKind;
use crate::error::verdict::{CallId, Class, Confidence, Verdict};
use crate::rendezvous::{Card, DownReason, ProcessId};
use crate::types::Rank;

/// A rank, as this process can look at it.
#[derive(Debug)]
struct Mate {
    id: ProcessId,
    host: String,
    inside: Option<Inside>,
}

/// How long a rank has waited for the verdict of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Not long: more may be known soon.
    Fresh,
    /// What can be seen is judged; another rank that is telling a verdict is waited for.
    Waits,
    /// Nobody is waited for any more.
    Spent,
}

/// So many ranks, about, look at all others at one time.
const LOOKERS: usize = 16;
/// Every rank looks at one of so many turns.
const STRIDE_MAX: usize = 16;

/// A rank that the looks so far have found stopped, or not.
#[derive(Debug, Default)]
struct Stopped {
    stop: Stop,
    /// The ranks whose processes had ended when it was found stopped for the first time.
    ended_before: Option<Vec<u32>>,
}

/// What a rank knows of others that are gone.
#[derive(Clone, Copy)]
pub(crate) struct Ends<'a> {
    /// How a rank went, as far as this one was told.
    pub(crate) told: &'a dyn Fn(u32) -> Option<Fate>,
    /// Whether a rank that has ended is known to have neither left nor heard of a failure; nothing where nobody knows.
    pub(crate) unprovoked: &'a dyn Fn(u32) -> Option<bool>,
    /// The verdict that this one has heard while it looked at the others.
    pub(crate) heard: &'a dyn Fn() -> Option<Verdict>,
}

/// What a look at the process of a rank showed, and for how long all looks have found it stopped, in milliseconds.
type Glance = (Sight, Option<u64>);

/// Whether the process of the arbiter runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArbiterState {
    Ended,
    /// Nobody can look at it from here.
    Hidden,
    Runs,
    Stopped,
}

/// All ranks, and the process that runs the arbiter, as one rank sees them.
#[derive(Debug)]
pub(crate) struct Peers {
    me: u32,
    mates: Vec<Mate>,
    arbiter: ProcessId,
    /// The rank that runs the arbiter, where one does.
    served_by: Option<u32>,
    stops: Mutex<BTreeMap<u32, Stopped>>,
    arbiter_stop: Mutex<Stop>,
}

impl Peers {
    pub(crate) fn new(
        probe: &dyn Probe,
        me: Rank,
        roster: &[Card],
        arbiter: ProcessId,
        served_by: Option<Rank>,
    ) -> Self {
        let mate = |card: &Card| Mate {
            id: card.process,
            host: card.host.clone(),
            inside: probe.inside(card),
        };
        Self {
            me: me.0,
            mates: roster.iter().map(mate).collect(),
            arbiter,
            served_by: served_by.map(|rank| rank.0),
            stops: Mutex::default(),
            arbiter_stop: Mutex::default(),
        }
    }

    /// Whether a rank runs the arbiter.
    pub(crate) fn is_served_by_rank(&self) -> bool {
        self.served_by.is_some()
    }

    /// Whether anybody judges: a coordinator may run without an arbiter.
    pub(crate) fn has_arbiter(&self) -> bool {
        self.arbiter != ProcessId::default()
    }

    /// Whether it falls to this rank to look at all others at this turn. In a world of many the lowest rank that is seen to run
    /// does at every turn, and each of the others now and then: if all did, they would look n * n times at each turn.
    pub(crate) fn is_turn(&self, probe: &dyn Probe, turn: u128) -> bool {
        let stride = (self.mates.len() / LOOKERS + 1).min(STRIDE_MAX);
        let runs = |mate: &Mate| match probe.look(&mate.id) {
            Sight::Seen(facts) => facts.frozen().is_none(),
            Sight::Ended | Sight::Hidden(_) => false,
        };
        let mut lower = self.mates.iter().take(crate::types::index(self.me.into()));
        (turn + u128::from(self.me)).is_multiple_of(stride as u128) || !lower.any(runs)
    }

    /// Looks at the process of the arbiter. A busy host keeps a process in state D for moments: it runs then.
    pub(crate) fn arbiter_state(&self, probe: &dyn Probe) -> ArbiterState {
        let now_ms = probe.now_ms();
        match probe.look(&self.arbiter) {
            Sight::Ended => ArbiterState::Ended,
            Sight::Hidden(_) => ArbiterState::Hidden,
            Sight::Seen(facts) => {
                let stop = self.arbiter_stop.lock();
                let mut stop = stop.unwrap_or_else(PoisonError::into_inner);
                stop.take(&facts, now_ms);
                match stop.ms(now_ms) {
                    Some(_) => ArbiterState::Stopped,
                    None => ArbiterState::Runs,
                }
            }
        }
    }

    /// Where every rank that has not gone was found stopped for long enough by the looks so far: a line that says so.
    pub(crate) fn only_stopped_left(
        &self,
        probe: &dyn Probe,
        is_gone: &dyn Fn(u32) -> bool,
    ) -> Option<String> {
        let mut stopped = Vec::new();
        for (rank, mate) in (0_u32..).zip(&self.mates) {
            if rank == self.me || is_gone(rank) {
                continue;
            }
            let (sight, stopped_ms) = self.glance(probe, rank, mate);
            // A rank that has left itself is not told any more who has.
            if sight == Sight::Ended {
                continue;
            }
            let how = sight.frozen().filter(|_| is_long(stopped_ms))?;
            stopped.push(format!("rank {rank} is in {how}"));
        }
        let all = stopped.join("; ");
        (!stopped.is_empty()).then(|| {
            format!("{all}: this rank has left the world and serves the rendezvous no longer")
        })
    }

    /// The verdict on ranks that were seen to have ended, or stopped for long enough, where the arbiter is stopped and this
    /// call waits for them. Nobody is told.
    pub(crate) fn judge_early(
        &self,
        probe: &dyn Probe,
        call: CallId,
        ends: Ends<'_>,
    ) -> Option<Verdict> {
        let glances = self.glances(probe);
        let is_out = |(rank, (sight, stopped_ms)): (u32, &Glance)| {
            *sight == Sight::Ended || is_long(*stopped_ms) || (ends.told)(rank).is_some()
        };
        if !(0..).zip(&glances).any(is_out) {
            // Nobody reads all boards as long as there is nothing to tell (PEERS-1).
            return None;
        }
        let scene = self.scene(probe, glances, ends, 1);
        let dead = verdict_of(judge(&scene, self.overdue(call)));
        let dead = dead.filter(|verdict| verdict.class == Class::PeerDead);
        dead.or_else(|| verdict_of(judge(&scene, Question::Waiting)))
    }

    /// The verdict on a call that has ended without what it waited for, where nothing was heard of the arbiter for so long.
    /// `None` where somebody of this host is just about to tell it and this rank waits for that.
    pub(crate) fn judge_overdue(
        &self,
        probe: &dyn Probe,
        call: CallId,
        ends: Ends<'_>,
        quiet_ms: u64,
        patience: Patience,
    ) -> Option<Verdict> {
        let scene = self.scene(probe, self.glances(probe), ends, quiet_ms);
        let mut own = verdict_of(judge(&scene, self.overdue(call)))?;
        let is_unseen = |rank: u32| {
            scene.member(rank).is_some_and(|member| {
                member.fate.is_none() && matches!(member.process, Some(Sight::Hidden(_)))
            })
        };
        if own.blamed.iter().any(|rank| is_unseen(*rank)) {
            let runs = |server: u32| {
                let process = scene.member(server).and_then(|one| one.process.as_ref());
                let facts = process.and_then(Sight::facts);
                facts.is_some_and(|facts| facts.stopped().is_none())
            };
            let server = self.served_by.filter(|server| !runs(*server));
            own = failure::unanswered(&scene, self.me, server, call, quiet_ms);
        }
        own.end(call);
        (ends.heard)().or_else(|| self.tell(probe, own, call, patience))
    }

    /// The verdict on the rank that ran the arbiter and is gone with it, for a call that ends because of that. As in
    /// `judge_overdue`, somebody else may be about to tell it. What was told to this rank comes before it.
    pub(crate) fn judge_gone(
        &self,
        probe: &dyn Probe,
        call: CallId,
        ends: Ends<'_>,
        patience: Patience,
    ) -> Option<Verdict> {
        let server = self.served_by?;
        let fate = match self.arbiter_state(probe) {
            ArbiterState::Ended => Fate {
                how: "ended, and nobody saw how: it served the rendezvous".to_owned(),
                ..failure::fate(&DownReason::Ended, 0)
            },
            // The arbiter says what it sees of this, and writes it onto the board of this rank.
            _ if patience == Patience::Fresh => return None,
            // Whether it has ended is not known here.
            ArbiterState::Hidden => Fate {
                how: "does not serve the rendezvous any more: the connection to it ended"
                    .to_owned(),
                ..failure::fate(&DownReason::HungUp, 0)
            },
            ArbiterState::Runs | ArbiterState::Stopped => {
                let own = || Some(self.cut_off(probe, server, call));
                return (ends.heard)().or_else(own);
            }
        };
        let fate_of = |rank: u32| {
            if rank == server {
                Some(fate.clone())
            } else {
                (ends.told)(rank)
            }
        };
        let told = Ends {
            told: &fate_of,
            ..ends
        };
        let mut scene = self.scene(probe, self.glances(probe), told, 1);
        // Others may have ended a moment before the server: it has told so, or did not live to tell of them.
        let has_died = |fate: &Fate| !fate.orderly && fate.class == Class::PeerDead;
        let mut awaited = scene.awaited();
        awaited.append(&mut scene.bound_to(server));
        let mut is_second = false;
        for (rank, member) in (0..).zip(&mut scene.members) {
            let has_ended = member.process == Some(Sight::Ended);
            let is_told = (ends.told)(rank).is_some_and(|fate| has_died(&fate));
            // Who has left while others wait for it has not done so in good order.
            let is_first = || (ends.unprovoked)(rank).unwrap_or_else(|| awaited.contains(&rank));
            if let Some(fate) = member.fate.as_mut().filter(|fate| has_died(fate)) {
                fate.cause = EndCause::Unknown;
                if rank != server && (is_told || has_ended && is_first()) {
                    fate.cause = EndCause::Unprovoked;
                    // A launcher may have ended it because of another one.
                    fate.confidence = Confidence::Likely;
                    is_second = true;
                }
            }
        }
        let served = scene.members.get_mut(crate::types::index(server.into()));
        if let Some(fate) = served.and_then(|member| member.fate.as_mut()) {
            fate.cause = if is_second {
                EndCause::Unprovoked
            } else {
                EndCause::Unknown
            };
        }
        let mut own = verdict_of(judge(&scene, self.overdue(call)))
            .filter(|verdict| verdict.blamed.contains(&server))
            // The call was not one that the server is needed in; it ends with the world all the same.
            .unwrap_or_else(|| failure::server_gone(&scene, self.me, server, call));
        own.end(call);
        (ends.heard)().or_else(|| self.tell(probe, own, call, patience))
    }

    fn overdue(&self, call: CallId) -> Question {
        Question::Overdue {
            rank: self.me,
            call,
        }
    }

    /// The connection of this rank to the arbiter is gone, and the arbiter is not.
    fn cut_off(&self, probe: &dyn Probe, server: u32, call: CallId) -> Verdict {
        let lost = DownReason::Disconnected {
            why: "it ended".to_owned(),
        };
        let fate = failure::fate(&lost, 0);
        let me = self.me;
        let ends = Ends {
            told: &|rank| (rank == me).then(|| fate.clone()),
            unprovoked: &|_| None,
            heard: &|| None,
        };
        let scene = self.scene(probe, self.glances(probe), ends, 1);
        let mut verdict = failure::server_gone(&scene, me, me, call);
        verdict.kind = ErrorKind::PeerClosed {
            peer: Rank(server),
            how: "cannot be reached any more".to_owned(),
            orderly: false,
        };
        verdict
    }

    /// Looks at a rank.
    fn glance(&self, probe: &dyn Probe, rank: u32, mate: &Mate) -> Glance {
        let (now_ms, sight) = (probe.now_ms(), probe.look(&mate.id));
        let stopped_ms = sight.facts().and_then(|facts| {
            let mut stops = self.stops.lock().unwrap_or_else(PoisonError::into_inner);
            let stop = &mut stops.entry(rank).or_default().stop;
            stop.take(facts, now_ms);
            stop.ms(now_ms)
        });
        (sight, stopped_ms)
    }

    /// Looks at all ranks.
    fn glances(&self, probe: &dyn Probe) -> Vec<Glance> {
        let mates = (0..).zip(&self.mates);
        let glances: Vec<Glance> = mates
            .map(|(rank, mate)| self.glance(probe, rank, mate))
            .collect();
        let has_ended = |(_, (sight, _)): &(u32, &Glance)| *sight == Sight::Ended;
        let ended = (0..).zip(&glances).filter(has_ended);
        let ended: Vec<u32> = ended.map(|(rank, _)| rank).collect();
        let mut stops = self.stops.lock().unwrap_or_else(PoisonError::into_inner);
        for (rank, stopped) in &mut *stops {
            let stopped_ms = glances
                .get(crate::types::index((*rank).into()))
                .and_then(|glance| glance.1);
            match stopped_ms {
                Some(_) => _ = stopped.ended_before.get_or_insert_with(|| ended.clone()),
                None => stopped.ended_before = None,
            }
        }
        drop(stops);
        glances
    }

    /// Ranks that have ended before this one was found stopped for the first time, and not in good order, as far as is known.
    fn died_before(&self, rank: u32, ends: Ends<'_>) -> Vec<u32> {
        let has_died = |rank: &u32| match (ends.told)(*rank) {
            Some(fate) => !fate.orderly && fate.class == Class::PeerDead,
            None => (ends.unprovoked)(*rank) != Some(false),
        };
        let stops = self.stops.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = stops.get(&rank).and_then(|one| one.ended_before.as_ref());
        let ended = ended.into_iter().flatten().copied();
        ended.filter(has_died).collect()
    }

    /// The ranks as they can be seen from here. Of those that cannot nothing was heard for so long.
    fn scene(
        &self,
        probe: &dyn Probe,
        glances: Vec<Glance>,
        ends: Ends<'_>,
        quiet_ms: u64,
    ) -> Scene {
        let member = |((rank, mate), (sight, stopped_ms)): ((u32, &Mate), Glance)| {
            let mut member = Member {
                host: mate.host.clone(),
                pid: mate.id.pid,
                inside: mate.inside.clone(),
                fate: (ends.told)(rank),
                stopped_ms,
                ended_before: self.died_before(rank, ends),
                ..Member::default()
            };
            match &sight {
                Sight::Ended => {
                    let ended = || failure::fate(&DownReason::Ended, u64::from(rank));
                    member.fate.get_or_insert_with(ended);
                }
                Sight::Hidden(_) => member.silent_ms = quiet_ms.max(1),
                Sight::Seen(_) => {
                    member.report = probe.board(&mate.id, rank);
                    let is_silent = stopped_ms.is_some() || member.report.is_none();
                    member.silent_ms = u64::from(is_silent);
                }
            }
            member.process = Some(sight);
            member
        };
        Scene {
            members: (0..).zip(&self.mates).zip(glances).map(member).collect(),
        }
    }
}

/// Whether looks have found a process stopped for long enough.
fn is_long(stopped_ms: Option<u64>) -> bool {
    stopped_ms.is_some_and(|ms| ms >= FROZEN_AFTER_MS)
}

/// What a rank was told of another one that is gone; `None` for a reason where it left in good order.
pub(crate) fn fate_of(reason: Option<&DownReason>) -> Fate {
    match reason {
        Some(reason) => failure::fate(reason, 0),
        None => failure::goodbye(0),
    }
}

fn verdict_of(finding: Finding) -> Option<Verdict> {
    match finding {
        Finding::Verdict(verdict) => Some(*verdict),
        Finding::Again(_) | Finding::Nothing => None,
    }
}
