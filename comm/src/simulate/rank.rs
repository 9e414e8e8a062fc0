//! A rank: its program, what it knows, and what its board shows.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::scenario::Scenario;
use super::view::{facts, pid};
use crate::backend::call_wait::CallWait;
use crate::backend::peer_status::PeerStatus;
use crate::backend::verdict_wait::VerdictWait;
use crate::context::Status;
use crate::error::ErrorKind;
use crate::error::verdict::{CallId, Verdict};
use crate::types::Rank;
use crate::watch::peers::Peers;
use crate::watch::process::Sight;
use crate::watch::report::{
    CallCode, CallOutcome, CallRecord, Destroyed, GroupState, InFlight, REPORT_VERSION, Report,
    Wait,
};
use crate::watch::wire::Cause;

/// Calls that its reports tell.
const CALLS_TOLD: usize = 8;
/// The wall clock at the beginning of a run.
const WALL_MS: u64 = 1_700_000_000_000;

/// How far a rank is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// It has not come, or waits for the others to come.
    Joining,
    /// It makes its calls.
    Working,
    /// It runs code of its own for ever.
    Busy,
    /// It has said goodbye, or was turned away.
    Left,
    /// Its process has ended.
    Dead,
}

/// A call under way.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) group: usize,
    pub(super) seq: u64,
    pub(super) word: u64,
    pub(super) started_us: u64,
    pub(super) slices: CallWait,
    /// Time in which its process did not run.
    pub(super) lost: Duration,
    pub(super) wait: Option<Wait>,
    /// Since when it waits, for the report.
    pub(super) waits_since_us: u64,
    /// A peer has left in good order, and what it sent may still come.
    pub(super) linger: Option<Linger>,
    /// It has failed, and waits for a verdict.
    pub(super) ending: Option<Ending>,
}

/// A call that has failed and waits for its verdict.
#[derive(Clone, Debug)]
pub(super) struct Ending {
    pub(super) kind: ErrorKind,
    pub(super) usable: bool,
    /// What the arbiter is to be told; `None` where another rank has told it.
    pub(super) cause: Option<Cause>,
    pub(super) wait: VerdictWait,
    pub(super) since_us: u64,
    /// When it looks up next.
    pub(super) again_us: u64,
}

/// How long a call has waited for what a rank sent before it left, while its own process ran.
#[derive(Clone, Copy, Debug)]
pub(super) struct Linger {
    pub(super) waited_us: u64,
    pub(super) looked_us: u64,
    pub(super) again_us: u64,
}

/// A call that failed.
#[derive(Clone, Debug)]
pub(super) struct Failed {
    pub(super) call: CallId,
    pub(super) kind: ErrorKind,
    pub(super) verdict: Option<Arc<Verdict>>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Player {
    pub(super) rank: usize,
    pub(super) life: Life,
    pub(super) is_stopped: bool,
    /// Whether the coordinator has let it in.
    pub(super) has_joined: bool,
    pub(super) status: Status,
    /// The next step of its program, and when it is due.
    pub(super) step: usize,
    pub(super) due_us: u64,
    /// The last call entered, by group.
    pub(super) entered: Vec<u64>,
    versions: Vec<u64>,
    /// What it has seen of others: the last call entered, by group and rank.
    pub(super) seen: Vec<Vec<u64>>,
    pub(super) call: Option<Call>,
    /// Groups that it has destroyed, and when.
    pub(super) destroyed: BTreeMap<usize, u64>,
    records: VecDeque<CallRecord>,
    made: u64,
    /// Verdicts as they were told, and when.
    pub(super) told: Vec<(u64, Verdict)>,
    pub(super) failed: Vec<Failed>,
    /// How often it was told that each rank is gone.
    pub(super) news: BTreeMap<u32, u32>,
    /// Why bring-up failed.
    pub(super) refused: Option<String>,
    /// What it can see of the others by itself, once the world is complete.
    pub(super) peers: Option<Peers>,
    /// When it heard the arbiter last.
    pub(super) heard_us: u64,
    /// What others have written onto its board.
    pub(super) bulletin: RefCell<Vec<u8>>,
    /// When it has left its world, or its process has ended.
    pub(super) parted_us: Option<u64>,
    /// The code that its process ended with because a call had failed.
    pub(super) exit_code: Option<i32>,
}

impl Player {
    pub(super) fn new(rank: usize, plan: &Scenario) -> Self {
        Self {
            rank,
            life: Life::Joining,
            is_stopped: false,
            has_joined: false,
            status: Status::default(),
            step: 0,
            due_us: 0,
            entered: vec![0; plan.groups.len()],
            versions: vec![2; plan.groups.len()],
            seen: vec![vec![0; plan.ranks]; plan.groups.len()],
            call: None,
            destroyed: BTreeMap::new(),
            records: VecDeque::new(),
            made: 0,
            told: Vec::new(),
            failed: Vec::new(),
            news: BTreeMap::new(),
            refused: None,
            peers: None,
            heard_us: 0,
            bulletin: RefCell::default(),
            parted_us: None,
            exit_code: None,
        }
    }

    /// Whether its process runs.
    pub(super) fn runs(&self) -> bool {
        self.life != Life::Dead && !self.is_stopped
    }

    pub(super) fn begin(&mut self, group: usize, word: u64, now_us: u64, plan: &Scenario) {
        let seq = self.entered[group] + 1;
        self.entered[group] = seq;
        self.seen[group][self.rank] = seq;
        self.versions[group] += 2;
        self.made += 1;
        if self.records.len() == CALLS_TOLD {
            self.records.pop_front();
        }
        self.records.push_back(CallRecord {
            id: self.made,
            key: key(group),
            group: name(group),
            seq,
            call: CallCode { word, count: 8 },
            site: format!("play.rs:{}", self.step + 1),
            thread: 1,
            enqueued_ns: now_us * 1000,
            started_ns: now_us * 1000,
            completed_ns: None,
            outcome: CallOutcome::Open,
            is_async: false,
        });
        self.call = Some(Call {
            group,
            seq,
            word,
            started_us: now_us,
            slices: CallWait::new(Duration::from_micros(plan.deadline_us)),
            lost: Duration::ZERO,
            wait: None,
            waits_since_us: 0,
            linger: None,
            ending: None,
        });
    }

    /// The call ends; returns it.
    pub(super) fn end(&mut self, now_us: u64, is_ok: bool) -> Option<Call> {
        let call = self.call.take()?;
        self.versions[call.group] += 2;
        if let Some(record) = self.records.back_mut() {
            record.completed_ns = Some(now_us * 1000);
            record.outcome = if is_ok {
                CallOutcome::Completed
            } else {
                CallOutcome::Failed
            };
        }
        Some(call)
    }

    /// The ranks that its call waits for.
    pub(super) fn missing(&self, plan: &Scenario) -> Vec<usize> {
        let Some(call) = &self.call else {
            return Vec::new();
        };
        let is_missing = |rank: &usize| self.seen[call.group][*rank] < call.seq;
        plan.groups[call.group]
            .iter()
            .copied()
            .filter(is_missing)
            .collect()
    }

    /// Puts the wait onto the board, as `Board::waits`.
    pub(super) fn waits(&mut self, since_us: u64, missing: &[usize], is_first: bool) {
        let Some(call) = &mut self.call else { return };
        let missing: Vec<u32> = missing.iter().map(|rank| narrow(*rank)).collect();
        if let Some(wait) = call
            .wait
            .as_mut()
            .filter(|wait| !is_first && wait.missing == missing)
        {
            wait.checks += 1;
            return;
        }
        self.versions[call.group] += 2;
        call.waits_since_us = since_us;
        call.wait = Some(Wait {
            missing,
            checks: 1,
            ..Wait::default()
        });
    }

    pub(super) fn call_id(&self) -> Option<CallId> {
        self.call.as_ref().map(|call| CallId {
            key: key(call.group),
            seq: call.seq,
        })
    }

    /// What the others' fate means to the call under way.
    pub(super) fn judged_by<R>(
        &self,
        plan: &Scenario,
        ask: impl FnOnce(&PeerStatus<'_>, &[usize]) -> R,
    ) -> Option<R> {
        let call = self.call.as_ref()?;
        let members = &plan.groups[call.group];
        let ranks: Vec<Rank> = members.iter().map(|rank| Rank::from_index(*rank)).collect();
        let missing = self.missing(plan);
        let places: Vec<usize> = (0..members.len())
            .filter(|at| missing.contains(&members[*at]))
            .collect();
        let peer_status = PeerStatus {
            status: &self.status,
            members: &ranks,
            me: Rank::from_index(self.rank),
            call: self.call_id()?,
        };
        Some(ask(&peer_status, &places))
    }

    /// What its board shows.
    pub(super) fn report(&self, plan: &Scenario, now_us: u64) -> Report {
        let age_ms = |since_us: u64| now_us.saturating_sub(since_us) / 1000;
        let group = |group: usize| {
            let members: Vec<u32> = plan.groups[group]
                .iter()
                .map(|rank| narrow(*rank))
                .collect();
            let call = self.call.as_ref().filter(|call| call.group == group);
            GroupState {
                key: key(group),
                name: name(group),
                size: narrow(members.len()),
                members,
                entered: self.entered[group],
                thread: 1,
                version: self.versions[group],
                p99_ms: 0,
                awaited_by: 0,
                pending: 0,
                cancelled: None,
                call: call.map(|call| InFlight {
                    seq: call.seq,
                    call: CallCode {
                        word: call.word,
                        count: 8,
                    },
                    site: format!("play.rs:{}", self.step + 1),
                    age_ms: age_ms(call.started_us),
                    is_async: false,
                    row: Vec::new(),
                    wait: call.wait.clone().map(|wait| Wait {
                        age_ms: age_ms(call.waits_since_us),
                        ..wait
                    }),
                }),
            }
        };
        let is_in =
            |at: &usize| plan.groups[*at].contains(&self.rank) && !self.destroyed.contains_key(at);
        let destroyed = self.destroyed.iter().map(|(group, at_us)| Destroyed {
            key: key(*group),
            name: name(*group),
            entered: self.entered[*group],
            calls: self.entered[*group],
            age_ms: age_ms(*at_us),
        });
        Report {
            version: REPORT_VERSION,
            rank: narrow(self.rank),
            world_size: narrow(plan.ranks),
            pid: pid(self.rank),
            wall_ms: WALL_MS + now_us / 1000,
            threads: 1,
            unwatched: 0,
            process: None,
            stack: Vec::new(),
            environment: BTreeMap::new(),
            destroyed: destroyed.collect(),
            groups: (0..plan.groups.len()).filter(is_in).map(group).collect(),
            calls: self.records.iter().cloned().collect(),
        }
    }

    /// What the kernel says of its process.
    pub(super) fn sight(&self) -> Sight {
        if self.life == Life::Dead {
            return Sight::Ended;
        }
        Sight::Seen(facts(self.is_stopped))
    }
}

pub(super) fn key(group: usize) -> u64 {
    100 + group as u64
}

fn name(group: usize) -> String {
    format!("g{group}")
}

pub(super) fn narrow(rank: usize) -> u32 {
    Rank::from_index(rank).0
}

/// Since when a fault keeps somebody waiting.
#[derive(Clone, Debug)]
pub(super) struct Pressed {
    pub(super) since_us: u64,
    /// Who waits for each other, where the fault is a circle of waits.
    pub(super) circle: BTreeSet<usize>,
}

/// Ranks that wait for each other in a circle, by what is so and not by what boards show.
pub(super) fn circle(players: &[Player], plan: &Scenario) -> BTreeSet<usize> {
    let waits_for = |from: usize| -> Vec<usize> {
        let Some(call) = &players[from].call else {
            return Vec::new();
        };
        let members = plan.groups[call.group].iter().copied();
        members
            .filter(|rank| players[*rank].entered[call.group] < call.seq)
            .collect()
    };
    let reach = |from: usize| {
        let mut seen = BTreeSet::new();
        let mut open = waits_for(from);
        while let Some(rank) = open.pop() {
            if seen.insert(rank) {
                open.extend(waits_for(rank));
            }
        }
        seen
    };
    (0..players.len())
        .filter(|rank| reach(*rank).contains(rank))
        .collect()
}
