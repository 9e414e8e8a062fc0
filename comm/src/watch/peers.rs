//! A verdict without an arbiter: where the process that runs it is stopped, has ended, or cannot be reached.
//!
//! Nobody asks and nobody judges then. Ranks that wait look at the processes and boards of all ranks that they can see, and judge
//! with the same code. The first to come to a verdict writes it onto the board of the lowest rank of the host that lives, under
//! a lock on that board's file: so all ranks of the host say the same. Whoever finds it passes it on before it ends.
//!
//! - PEERS-1: nothing is said of a rank, early, that was not seen stopped for as long as the arbiter would want, or to have ended.
//! - PEERS-2: of ranks that nobody here can look at, only the one that serves the rendezvous is named: it does not answer. The
//!   others may wait, or have ended because of a verdict that is not known here.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, PoisonError};

use super::failure;
use super::judge::{EndCause, FROZEN_AFTER_MS, Fate, Finding, Member, Question, Scene, judge};
use super::probe::{Probe, System};
use super::process::{Inside, Sight, Stop};
use super::wire;
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
    stops: Mutex<BTreeMap<u32, Stop>>,
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

    /// Looks at the process of the arbiter.
    pub(crate) fn arbiter_state(&self, probe: &dyn Probe) -> ArbiterState {
        match probe.look(&self.arbiter) {
            Sight::Ended => ArbiterState::Ended,
            Sight::Seen(facts) if facts.frozen().is_some() => ArbiterState::Stopped,
            Sight::Seen(_) => ArbiterState::Runs,
            Sight::Hidden(_) => ArbiterState::Hidden,
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
        gone: &Departed<'_>,
    ) -> Option<Verdict> {
        let glances = self.glances(probe);
        let is_out = |(rank, (sight, stopped_ms)): (u32, &Glance)| {
            *sight == Sight::Ended || is_long(*stopped_ms) || gone(rank).is_some()
        };
        if !(0..).zip(&glances).any(is_out) {
            // Nobody reads all boards as long as there is nothing to tell (PEERS-1).
            return None;
        }
        let scene = self.scene(probe, glances, gone, 1);
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
        gone: &Departed<'_>,
        quiet_ms: u64,
        patience: Patience,
    ) -> Option<Verdict> {
        let scene = self.scene(probe, self.glances(probe), gone, quiet_ms);
        let mut own = verdict_of(judge(&scene, self.overdue(call)))?;
        let is_unseen = |rank: u32| {
            scene.member(rank).is_some_and(|member| {
                member.fate.is_none() && matches!(member.process, Some(Sight::Hidden(_)))
            })
        };
        if own.blamed.iter().any(|rank| is_unseen(*rank)) {
            let runs = |server: u32| {
                let process = scene.member(server).and_then(|one| one.process.as_ref());
                process.is_some_and(|sight| sight.facts().is_some() && sight.frozen().is_none())
            };
            let server = self.served_by.filter(|server| !runs(*server));
            own = failure::unanswered(&scene, self.me, server, call, quiet_ms);
        }
        own.end(call);
        self.tell(probe, own, call, patience)
    }

    /// The verdict on the rank that ran the arbiter and is gone with it, for a call that ends because of that. As in
    /// `judge_overdue`, somebody else may be about to tell it. `unprovoked` says whether a rank that has ended is known to have
    /// neither left nor heard of a failure; nothing where nobody knows. What was told to this rank comes before it.
    pub(crate) fn judge_gone(
        &self,
        probe: &dyn Probe,
        call: CallId,
        gone: &Departed<'_>,
        unprovoked: &dyn Fn(u32) -> Option<bool>,
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
                return Some(self.cut_off(probe, server, call));
            }
        };
        let fate_of = |rank: u32| {
            if rank == server {
                Some(fate.clone())
            } else {
                gone(rank)
            }
        };
        let mut scene = self.scene(probe, self.glances(probe), &fate_of, 1);
        // Others may have ended a moment before the server: it has told so, or did not live to tell of them.
        let has_died = |fate: &Fate| !fate.orderly && fate.class == Class::PeerDead;
        let mut awaited = scene.awaited();
        awaited.append(&mut scene.bound_to(server));
        let mut is_second = false;
        for (rank, member) in (0..).zip(&mut scene.members) {
            let has_ended = member.process == Some(Sight::Ended);
            let is_told = gone(rank).is_some_and(|fate| has_died(&fate));
            // Who has left while others wait for it has not done so in good order.
            let is_first = || unprovoked(rank).unwrap_or_else(|| awaited.contains(&rank));
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
        self.tell(probe, own, call, patience)
    }

    fn overdue(&self, call: CallId) -> Question {
        Question::Overdue {
            rank: self.me,
            call,
        }
    }

    /// Tells a verdict on this call to the ranks of this host; returns the one that was told first, made to end the call too.
    /// Where somebody else is at it this rank waits for that one, or says its own if it is to wait no longer.
    fn tell(
        &self,
        probe: &dyn Probe,
        own: Verdict,
        call: CallId,
        patience: Patience,
    ) -> Option<Verdict> {
        match self.share(probe, own.clone()) {
            Some(mut told) => {
                told.end(call);
                Some(told)
            }
            None => self
                .told_to(probe, call)
                .or_else(|| (patience == Patience::Spent).then_some(own)),
        }
    }

    /// The connection of this rank to the arbiter is gone, and the arbiter is not.
    fn cut_off(&self, probe: &dyn Probe, server: u32, call: CallId) -> Verdict {
        let lost = DownReason::Disconnected {
            why: "it ended".to_owned(),
        };
        let fate = failure::fate(&lost, 0);
        let me = self.me;
        let fate_of = |rank: u32| (rank == me).then(|| fate.clone());
        let scene = self.scene(probe, self.glances(probe), &fate_of, 1);
        let mut verdict = failure::server_gone(&scene, me, me, call);
        verdict.kind = ErrorKind::PeerClosed {
            peer: Rank(server),
            how: "cannot be reached any more".to_owned(),
            orderly: false,
        };
        verdict
    }

    /// The ranks that can be seen to live.
    fn living(&self, probe: &dyn Probe) -> Vec<(u32, ProcessId)> {
        let mates = (0..).zip(&self.mates);
        mates
            .filter(|(_, mate)| probe.look(&mate.id).facts().is_some())
            .map(|(rank, mate)| (rank, mate.id))
            .collect()
    }

    /// Tells a verdict to the ranks of this host, and returns the one that was told first. `None` where somebody else is at
    /// it.
    pub(crate) fn share(&self, probe: &dyn Probe, own: Verdict) -> Option<Verdict> {
        let living = self.living(probe);
        for (at, lowest) in living.iter().enumerate() {
            match share(probe, lowest, &own) {
                Ok(told) => {
                    if let Some(told) = &told {
                        // The lowest rank may be gone with its board before all others have looked.
                        pass_on(probe, told, &living[at + 1..]);
                    }
                    return told;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                // A rank that has left the world has no board any more, though its process may live on.
                Err(_) => {}
            }
        }
        Some(own)
    }

    /// The verdict that stands on the board of this rank, if one does, made to end this call too.
    pub(crate) fn told_to(&self, probe: &dyn Probe, call: CallId) -> Option<Verdict> {
        let keep = |told: Option<&[u8]>| told.map_or_else(Vec::new, <[u8]>::to_vec);
        let mate = self.mates.get(crate::types::index(self.me.into()))?;
        let bytes = probe.bulletin(&mate.id, self.me, &keep).ok()?;
        let mut told: Verdict = wire::decode(&bytes)?;
        // It was the lowest rank, perhaps, where all others look first, and is about to end.
        pass_on(probe, &told, &self.living(probe));
        told.end(call);
        Some(told)
    }

    /// Looks at a rank.
    fn glance(&self, probe: &dyn Probe, rank: u32, mate: &Mate) -> Glance {
        let (now_ms, sight) = (probe.now_ms(), probe.look(&mate.id));
        let stopped_ms = sight.facts().and_then(|facts| {
            let mut stops = self.stops.lock().unwrap_or_else(PoisonError::into_inner);
            let stop = stops.entry(rank).or_default();
            stop.take(facts, now_ms);
            stop.ms(now_ms)
        });
        (sight, stopped_ms)
    }

    /// Looks at all ranks.
    fn glances(&self, probe: &dyn Probe) -> Vec<Glance> {
        let mates = (0..).zip(&self.mates);
        mates
            .map(|(rank, mate)| self.glance(probe, rank, mate))
            .collect()
    }

    /// The ranks as they can be seen from here. Of those that cannot nothing was heard for so long.
    fn scene(
        &self,
        probe: &dyn Probe,
        glances: Vec<Glance>,
        gone: &Departed<'_>,
        quiet_ms: u64,
    ) -> Scene {
        let member = |((rank, mate), (sight, stopped_ms)): ((u32, &Mate), Glance)| {
            let mut member = Member {
                host: mate.host.clone(),
                pid: mate.id.pid,
                inside: mate.inside.clone(),
                fate: gone(rank),
                stopped_ms,
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

/// How a rank went, as far as this one was told.
pub(crate) type Departed<'a> = dyn Fn(u32) -> Option<Fate> + 'a;

/// What a rank was told of another one that is gone; `None` for a reason where it left in good order.
pub(crate) fn fate_of(reason: Option<&DownReason>) -> Fate {
    match reason {
        Some(reason) => failure::fate(reason, 0),
        None => failure::goodbye(0),
    }
}

/// Writes a verdict onto the board of a rank that cannot be told it otherwise.
pub(super) fn post(process: &ProcessId, rank: Rank, bytes: &[u8]) {
    if let Some(verdict) = wire::decode::<Verdict>(bytes) {
        pass_on(&System, &verdict, &[(rank.0, *process)]);
    }
}

fn verdict_of(finding: Finding) -> Option<Verdict> {
    match finding {
        Finding::Verdict(verdict) => Some(*verdict),
        Finding::Again(_) | Finding::Nothing => None,
    }
}

/// Writes a verdict onto the boards of ranks that have none. Whoever has ended meanwhile needs none.
fn pass_on(probe: &dyn Probe, told: &Verdict, ranks: &[(u32, ProcessId)]) {
    probe.bulletins(ranks, &|before| bulletin(before, told));
}

/// Writes a verdict onto the board of a rank, for all ranks of the host, and returns what stands there then.
fn share(
    probe: &dyn Probe,
    (rank, process): &(u32, ProcessId),
    own: &Verdict,
) -> io::Result<Option<Verdict>> {
    let shared = probe.bulletin(process, *rank, &|before| bulletin(before, own))?;
    Ok(wire::decode(&shared))
}

/// What is to stand on a board where this verdict is told: what was told first stays, and ends more calls.
fn bulletin(before: Option<&[u8]>, own: &Verdict) -> Vec<u8> {
    let Some(mut told) = before.and_then(wire::decode::<Verdict>) else {
        return wire::encode(own);
    };
    told.ends.extend(&own.ends);
    told.ends.sort_unstable();
    told.ends.dedup();
    wire::encode(&told)
}
