//! A verdict without an arbiter: where the process that runs it is stopped, has ended, or cannot be reached.
//!
//! Nobody asks and nobody judges then. Ranks that wait look at the processes and boards of all ranks that they can see, and judge
//! with the same code. The first to come to a verdict writes it onto the board of the lowest rank of the host that lives, under
//! a lock on that board's file: so all ranks of the host say the same. Whoever finds it passes it on before it ends.
//!
//! - PEERS-1: nothing is said of a rank, early, that was not seen stopped for as long as the arbiter would want, or to have ended.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::board;
use super::failure;
use super::judge::{FROZEN_AFTER_MS, Fate, Finding, Member, Question, Scene, judge};
use super::process::{self, Inside, Place, Sight, Stop};
use super::verdict::{CallId, Class, Confidence, Verdict};
use super::wire;
use crate::error::ErrorKind;
use crate::rendezvous::{Card, DownReason, ProcessId};
use crate::sync::{Clock, Deadline};
use crate::types::Rank;

/// How long it is tried to pass a verdict on to ranks whose boards are being read.
const PASS_ON: Duration = Duration::from_millis(50);
const PASS_ON_STEP: Duration = Duration::from_micros(100);

/// A rank, as this process can look at it.
#[derive(Debug)]
struct Mate {
    id: ProcessId,
    host: String,
    inside: Option<Inside>,
}

impl Mate {
    /// Its number in /proc, while it lives.
    fn pid(&self) -> Option<u32> {
        match process::find(&self.id) {
            Place::At(pid) => Some(pid),
            Place::Ended | Place::Hidden(_) => None,
        }
    }
}

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
        me: Rank,
        roster: &[Card],
        arbiter: ProcessId,
        served_by: Option<Rank>,
    ) -> Self {
        let mate = |card: &Card| Mate {
            id: card.process,
            host: card.host.clone(),
            inside: process::inside(card),
        };
        Self {
            me: me.0,
            mates: roster.iter().map(mate).collect(),
            arbiter,
            served_by: served_by.map(|rank| rank.0),
            stops: Mutex::default(),
        }
    }

    /// Whether anybody judges: a coordinator may run without an arbiter.
    pub(crate) fn has_arbiter(&self) -> bool {
        self.arbiter != ProcessId::default()
    }

    /// Looks at the process of the arbiter.
    pub(crate) fn arbiter_state(&self) -> ArbiterState {
        match process::look_at(&self.arbiter) {
            Sight::Ended => ArbiterState::Ended,
            Sight::Seen(facts) if facts.frozen().is_some() => ArbiterState::Stopped,
            Sight::Seen(_) => ArbiterState::Runs,
            Sight::Hidden(_) => ArbiterState::Hidden,
        }
    }

    /// Where every rank that has not gone was found stopped for long enough by the looks so far: a line that says so.
    pub(crate) fn only_stopped_left(&self, is_gone: &dyn Fn(u32) -> bool) -> Option<String> {
        let now_ms = Clock::nanos() / 1_000_000;
        let mut stops = self.stops.lock().unwrap_or_else(PoisonError::into_inner);
        let mut stopped = Vec::new();
        for (rank, mate) in (0_u32..).zip(&self.mates) {
            if rank == self.me || is_gone(rank) {
                continue;
            }
            // Who has ended is told as soon as its connection is known to be over.
            let Sight::Seen(facts) = process::look_at(&mate.id) else {
                return None;
            };
            let stop = stops.entry(rank).or_default();
            stop.take(&facts, now_ms);
            let is_frozen = |ms| ms >= FROZEN_AFTER_MS;
            let how = facts
                .frozen()
                .filter(|_| stop.ms(now_ms).is_some_and(is_frozen))?;
            stopped.push(format!("rank {rank} is in {how}"));
        }
        let all = stopped.join("; ");
        (!stopped.is_empty()).then(|| {
            format!("{all}: this rank has left the world and serves the rendezvous no longer")
        })
    }

    /// The verdict on ranks that were seen to have ended, or stopped for long enough, where the arbiter is stopped and this
    /// call waits for them.
    pub(crate) fn judge_early(&self, call: CallId, gone: &Departed<'_>) -> Option<Verdict> {
        let scene = self.scene(gone, 1);
        let question = Question::Overdue {
            rank: self.me,
            call,
        };
        let dead = verdict_of(judge(&scene, question));
        let dead = dead.filter(|verdict| verdict.class == Class::PeerDead);
        let own = dead.or_else(|| verdict_of(judge(&scene, Question::Waiting)))?;
        self.share(own)
    }

    /// The verdict on a call that has ended without what it waited for, where nothing was heard of the arbiter for so long.
    /// `None` where somebody of this host is just about to tell it; with `at_once` this rank does not wait for that.
    pub(crate) fn judge_overdue(
        &self,
        call: CallId,
        gone: &Departed<'_>,
        quiet_ms: u64,
        at_once: bool,
    ) -> Option<Verdict> {
        let question = Question::Overdue {
            rank: self.me,
            call,
        };
        let mut own = verdict_of(judge(&self.scene(gone, quiet_ms), question))?;
        own.end(call);
        self.tell(own, call, at_once)
    }

    /// The verdict on the rank that ran the arbiter and is gone with it, for a call that ends because of that. As in
    /// `judge_overdue`, somebody else may be about to tell it.
    pub(crate) fn judge_gone(
        &self,
        call: CallId,
        gone: &Departed<'_>,
        at_once: bool,
    ) -> Option<Verdict> {
        let server = self.served_by?;
        if let Some(mut told) = told_to(std::process::id(), self.me) {
            // It was the lowest rank, perhaps, where all others look first, and is about to end.
            pass_on(&told, &self.living());
            told.end(call);
            return Some(told);
        }
        let fate = match self.arbiter_state() {
            ArbiterState::Ended => Fate {
                how: "ended, and nobody saw how: it served the rendezvous".to_owned(),
                ..failure::fate(&DownReason::Ended, 0)
            },
            // The arbiter says what it sees of this, and writes it onto the board of this rank.
            _ if !at_once => return None,
            // Whether it has ended is not known here.
            ArbiterState::Hidden => Fate {
                how: "does not serve the rendezvous any more: the connection to it ended"
                    .to_owned(),
                ..failure::fate(&DownReason::HungUp, 0)
            },
            ArbiterState::Runs | ArbiterState::Stopped => return Some(self.cut_off(server, call)),
        };
        let fate_of = |rank: u32| {
            if rank == server {
                Some(fate.clone())
            } else {
                gone(rank)
            }
        };
        let scene = self.scene(&fate_of, 1);
        let question = Question::Overdue {
            rank: self.me,
            call,
        };
        let mut own = verdict_of(judge(&scene, question))
            .filter(|verdict| verdict.blamed.contains(&server))
            // The call was not one that the server is needed in; it ends with the world all the same.
            .unwrap_or_else(|| failure::server_gone(&scene, self.me, server, call));
        own.end(call);
        self.tell(own, call, at_once)
    }

    /// Tells a verdict on this call to the ranks of this host; returns the one that was told first, made to end the call too.
    fn tell(&self, own: Verdict, call: CallId, at_once: bool) -> Option<Verdict> {
        match self.share(own.clone()) {
            Some(mut told) => {
                told.end(call);
                Some(told)
            }
            None => at_once.then_some(own),
        }
    }

    /// The connection of this rank to the arbiter is gone, and the arbiter is not.
    fn cut_off(&self, server: u32, call: CallId) -> Verdict {
        let lost = DownReason::Disconnected {
            why: "it ended".to_owned(),
        };
        let fate = failure::fate(&lost, 0);
        let me = self.me;
        let fate_of = |rank: u32| (rank == me).then(|| fate.clone());
        let mut verdict = failure::server_gone(&self.scene(&fate_of, 1), me, me, call);
        verdict.kind = ErrorKind::PeerClosed {
            peer: Rank(server),
            how: "cannot be reached any more".to_owned(),
            orderly: false,
        };
        verdict
    }

    /// The ranks of this host that live, and their numbers in /proc.
    fn living(&self) -> Vec<(u32, u32)> {
        let mates = (0..).zip(&self.mates);
        mates
            .filter(|(_, mate)| process::look_at(&mate.id).facts().is_some())
            .filter_map(|(rank, mate)| Some((rank, mate.pid()?)))
            .collect()
    }

    /// Tells a verdict to the ranks of this host, and returns the one that was told first. `None` where somebody else is at
    /// it, or the rank on whose board it belongs is just ending.
    fn share(&self, own: Verdict) -> Option<Verdict> {
        let living = self.living();
        let Some((lowest, others)) = living.split_first() else {
            return Some(own);
        };
        let told = share(lowest.1, lowest.0, &own).ok()??;
        // The lowest rank may be gone with its board before all others have looked.
        pass_on(&told, others);
        Some(told)
    }

    /// The ranks as they can be seen from here. Of those that cannot nothing was heard for so long.
    fn scene(&self, gone: &Departed<'_>, quiet_ms: u64) -> Scene {
        let now_ms = Clock::nanos() / 1_000_000;
        let mut stops = self.stops.lock().unwrap_or_else(PoisonError::into_inner);
        let member = |(rank, mate): (u32, &Mate)| {
            let mut member = Member {
                host: mate.host.clone(),
                pid: mate.id.pid,
                inside: mate.inside.clone(),
                fate: gone(rank),
                ..Member::default()
            };
            let sight = process::look_at(&mate.id);
            match &sight {
                Sight::Ended => {
                    let ended = || failure::fate(&DownReason::Ended, u64::from(rank));
                    member.fate.get_or_insert_with(ended);
                }
                Sight::Hidden(_) => member.silent_ms = quiet_ms.max(1),
                Sight::Seen(facts) => {
                    let stop = stops.entry(rank).or_default();
                    stop.take(facts, now_ms);
                    member.stopped_ms = stop.ms(now_ms);
                    let boards = mate.pid().and_then(|pid| board::of_process(pid).ok());
                    let own = |report: &super::report::Report| report.rank == rank;
                    member.report = boards.and_then(|boards| boards.into_iter().find(own));
                    let is_silent = member.stopped_ms.is_some() || member.report.is_none();
                    member.silent_ms = u64::from(is_silent);
                }
            }
            member.process = Some(sight);
            member
        };
        Scene {
            members: (0..).zip(&self.mates).map(member).collect(),
        }
    }
}

/// How a rank went, as far as this one was told.
pub(crate) type Departed<'a> = dyn Fn(u32) -> Option<Fate> + 'a;

/// What a rank was told of another one that is gone.
pub(crate) fn fate_of(how: &str, orderly: bool) -> Fate {
    if orderly {
        return failure::goodbye(0);
    }
    Fate {
        how: how.to_owned(),
        confidence: Confidence::Certain,
        ..failure::fate(&DownReason::Ended, 0)
    }
}

/// Writes a verdict onto the board of a rank that cannot be told it otherwise.
pub(super) fn post(process: &ProcessId, rank: Rank, bytes: &[u8]) {
    let (Place::At(pid), Some(verdict)) = (process::find(process), wire::decode::<Verdict>(bytes))
    else {
        return;
    };
    pass_on(&verdict, &[(rank.0, pid)]);
}

fn verdict_of(finding: Finding) -> Option<Verdict> {
    match finding {
        Finding::Verdict(verdict) => Some(*verdict),
        Finding::Again(_) | Finding::Nothing => None,
    }
}

/// The verdict that stands on the board of a rank, if one does.
fn told_to(pid: u32, rank: u32) -> Option<Verdict> {
    let keep = |told: Option<&[u8]>| told.map_or_else(Vec::new, <[u8]>::to_vec);
    let bytes = board::bulletin(pid, rank, keep).ok()?;
    wire::decode(&bytes)
}

/// Writes a verdict onto the boards of ranks (rank, process) that have none.
fn pass_on(told: &Verdict, ranks: &[(u32, u32)]) {
    let patience = Deadline::after(PASS_ON);
    for (rank, pid) in ranks {
        // Whoever has ended meanwhile needs none; whose board is being read gets it a moment later.
        while share(*pid, *rank, told).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
            && !patience.passed()
        {
            Clock::pause(PASS_ON_STEP);
        }
    }
}

/// Writes a verdict onto the board of a rank, for all ranks of the host. What was told first stays, and
/// ends more calls.
fn share(pid: u32, rank: u32, own: &Verdict) -> io::Result<Option<Verdict>> {
    let shared = board::bulletin(pid, rank, |told| {
        let Some(mut told) = told.and_then(wire::decode::<Verdict>) else {
            return wire::encode(own);
        };
        told.ends.extend(&own.ends);
        told.ends.sort_unstable();
        told.ends.dedup();
        wire::encode(&told)
    });
    Ok(wire::decode(&shared?))
}
