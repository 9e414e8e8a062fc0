//! Running jobs of this user on this host, as the boards of their ranks show them: our own programs, Python, and programs under the
//! tap. Nothing is written to a job, and it need not do anything.
//!
//! LIVE-1: a table says what was seen and judges nothing. What boards mean is left to the judge, who is asked only where all ranks
//! of the world were seen living and a wait has lasted.
//! LIVE-2: who is behind was so at one moment: what the farthest member had entered was read before what the others had. Of ranks on
//! other hosts it is read one look earlier.
//! LIVE-3: lateness is a remark, never a verdict.

mod dumped;
mod late;
pub mod metrics;
pub mod screen;
mod source;
#[cfg(test)]
mod tests;
mod view;

use std::collections::{BTreeMap, HashMap};

use muster_comm::error::verdict::Verdict;
use muster_comm::sync::Clock;
use muster_comm::types::{Counting, Extent};
use muster_comm::watch::Seen;
use muster_comm::watch::report::{CallCode, CallOutcome, CallRecord, GroupState, InFlight, Report};
use serde::Serialize;

pub use self::dumped::late_in;
pub use self::late::Late;
use self::late::Lateness;
pub use self::source::{Kind, Raw};
use self::source::{Sources, judged};
pub use self::view::{Order, once};

/// Version of the JSON document's fields.
const SCHEMA_VERSION: u32 = 1;

/// All jobs that were seen.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Jobs {
    /// Version of the fields.
    pub schema_version: u32,
    /// When, in milliseconds since 1970.
    pub wall_ms: u64,
    /// The jobs, those with most ranks first.
    pub jobs: Vec<Job>,
}

/// A job at one moment.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Job {
    /// Its number, in hexadecimal digits.
    pub job: String,
    /// Who writes its boards.
    pub kind: Kind,
    /// Ranks of its world.
    pub world_size: u32,
    /// The hosts of its ranks: this one, or network namespaces of it.
    pub hosts: Vec<String>,
    /// The ranks that were seen.
    pub ranks: Vec<RankRow>,
    /// Its communicators.
    pub groups: Vec<GroupRow>,
    /// Ranks that are late in call after call.
    pub late: Vec<Late>,
    /// What the boards mean, where a wait lasts.
    pub verdict: Option<Verdict>,
}

/// What a rank does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Its process has ended.
    Ended,
    /// Its process does not run: stopped, frozen, or held by a debugger.
    Stopped,
    /// It waits in a call for other ranks.
    Waiting,
    /// It is in a call.
    InCall,
    /// It is in no call.
    #[default]
    Outside,
}

impl State {
    /// The word that tables show.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ended => "ended",
            Self::Stopped => "stopped",
            Self::Waiting => "waiting",
            Self::InCall => "in call",
            Self::Outside => "outside",
        }
    }
}

/// A rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RankRow {
    /// World rank.
    pub rank: u32,
    /// The number of its process here.
    pub pid: u32,
    /// Its host, one of [`Job::hosts`].
    pub host: String,
    /// What it does.
    pub state: State,
    /// The call that it is in, with what the call is of: `all_reduce f32[1024] sum`; of a rank outside of calls its last one.
    pub call: String,
    /// The name of the communicator of that call.
    pub group: String,
    /// The number of that call on its communicator.
    pub seq: u64,
    /// Where the program made it.
    pub site: String,
    /// How long it has waited, been in the call, or been outside, in milliseconds; none where that is not known.
    pub since_ms: Option<u64>,
    /// How many collectives it is behind the rank that is farthest, on the communicator where that is most.
    pub behind: u64,
    /// The world ranks that it waits for.
    pub waits_for: Vec<u32>,
    /// How many more it waits for.
    pub waits_for_more: u32,
}

/// A communicator.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GroupRow {
    /// Its key, in hexadecimal digits.
    pub key: String,
    /// Its name.
    pub name: String,
    /// Members.
    pub size: u32,
    /// Collectives that the farthest member has entered.
    pub seq: u64,
    /// How many of them the last member is behind.
    pub behind: u64,
    /// Members that are behind.
    pub laggards: Vec<u32>,
    /// Members that wait in a call.
    pub waiting: u32,
    /// Since when the oldest call has been under way, in milliseconds.
    pub oldest_ms: u64,
    /// Collectives in a second, by the last two looks.
    pub calls_per_s: Option<f64>,
    /// Algorithm bandwidth in bytes a second: the sizes of those calls as `bench` has them, by the mean of the last ones.
    pub bytes_per_s: Option<f64>,
}

/// Looks at jobs again and again.
#[derive(Debug, Default)]
pub struct Live {
    sources: Sources,
    lateness: Lateness,
    /// By job and key of a group: how far it was.
    before: HashMap<(u64, u64), Before>,
}

/// How far a group was at the last look.
#[derive(Clone, Copy, Debug)]
struct Before {
    seq: u64,
    at_ns: u64,
    /// [`Raw::round`].
    round: u64,
    calls_per_s: Option<f64>,
}

impl Live {
    /// A short look, for what [`Late`] needs: to be done some times between two calls of [`Live::look`].
    pub fn glance(&mut self) {
        for raw in self.sources.glance() {
            self.lateness.see(&raw);
        }
    }

    /// A look at all jobs, or those that are meant: by the first digits of their numbers, or the process of a rank.
    pub fn look(&mut self, meant: Option<&str>) -> (Jobs, Vec<Raw>) {
        let before = self.sources.glance();
        before.iter().for_each(|raw| self.lateness.see(raw));
        let now_ns = Clock::nanos();
        let mut all = self.sources.look();
        self.lateness.forget(&all);
        all.retain(|raw| meant.is_none_or(|meant| raw.is_meant(meant)));
        all.sort_by_key(|raw| (std::cmp::Reverse(raw.ranks.len()), raw.job));
        let farthest = |job: u64| {
            let before = before.iter().find(|raw| raw.job == job);
            before.map_or_else(BTreeMap::new, |raw| farthest(&raw.ranks))
        };
        let jobs = all
            .iter()
            .map(|raw| self.job(raw, &farthest(raw.job), now_ns));
        let jobs = jobs.collect();
        let known = |job: u64| all.iter().any(|raw| raw.job == job);
        self.before.retain(|(job, _), _| known(*job));
        let jobs = Jobs {
            schema_version: SCHEMA_VERSION,
            wall_ms: Clock::wall_ms(),
            jobs,
        };
        (jobs, all)
    }

    fn job(&mut self, raw: &Raw, farthest: &BTreeMap<u64, u64>, now_ns: u64) -> Job {
        let hosts = Hosts::of(&raw.ranks);
        let mut ranks: Vec<RankRow> = raw
            .ranks
            .iter()
            .map(|seen| rank_row(seen, hosts.name(seen.network), farthest, now_ns))
            .collect();
        ranks.sort_by_key(|row| row.rank);
        Job {
            job: format!("{:016x}", raw.job),
            kind: raw.kind,
            world_size: raw.world_size(),
            hosts: hosts.0.into_iter().map(|(_, name)| name).collect(),
            ranks,
            groups: self.groups(raw, farthest, now_ns),
            late: self.lateness.late(raw),
            verdict: judged(raw),
        }
    }

    fn groups(&mut self, raw: &Raw, farthest: &BTreeMap<u64, u64>, now_ns: u64) -> Vec<GroupRow> {
        let mut rows: BTreeMap<u64, GroupRow> = BTreeMap::new();
        for seen in &raw.ranks {
            for group in &seen.report.groups {
                let far = farthest.get(&group.key).copied().unwrap_or(0);
                let row = rows.entry(group.key).or_insert_with(|| GroupRow {
                    key: format!("{:016x}", group.key),
                    name: group.name.clone(),
                    size: group.size,
                    ..GroupRow::default()
                });
                row.seq = row.seq.max(group.entered);
                let behind = far.saturating_sub(group.entered);
                row.behind = row.behind.max(behind);
                if behind > 0 {
                    row.laggards.push(seen.report.rank);
                }
                if let Some(call) = &group.call {
                    row.waiting += u32::from(call.wait.is_some());
                    row.oldest_ms = row.oldest_ms.max(call.age_ms);
                }
            }
        }
        for (key, row) in &mut rows {
            row.laggards.sort_unstable();
            let at = (raw.job, *key);
            row.calls_per_s = match self.before.get(&at) {
                // The same look as the last time.
                Some(before) if raw.round != 0 && before.round == raw.round => before.calls_per_s,
                before => {
                    let rate = before.and_then(|before| before.rate(row.seq, now_ns));
                    let now = Before {
                        seq: row.seq,
                        at_ns: now_ns,
                        round: raw.round,
                        calls_per_s: rate,
                    };
                    self.before.insert(at, now);
                    rate
                }
            };
            if let Some(calls) = row.calls_per_s {
                row.bytes_per_s = mean_bytes(&raw.ranks, *key, row.size).map(|bytes| bytes * calls);
            }
        }
        let mut rows: Vec<GroupRow> = rows.into_values().collect();
        rows.sort_by(|one, other| {
            let rate = |row: &GroupRow| row.calls_per_s.unwrap_or(0.0);
            (other.waiting.cmp(&one.waiting))
                .then(rate(other).total_cmp(&rate(one)))
                .then(other.size.cmp(&one.size))
                .then(one.name.cmp(&other.name))
        });
        rows
    }
}

impl Before {
    /// Calls in a second since then.
    fn rate(&self, seq: u64, now_ns: u64) -> Option<f64> {
        let seconds = now_ns.saturating_sub(self.at_ns) as f64 / 1e9;
        (seconds > 0.0).then(|| seq.saturating_sub(self.seq) as f64 / seconds)
    }
}

/// The names of hosts or network namespaces, in the order of their first ranks.
struct Hosts(Vec<(u64, String)>);

impl Hosts {
    fn of(ranks: &[Seen]) -> Self {
        let own = rustix::system::uname();
        let own = own.nodename().to_string_lossy().into_owned();
        let here = Seen::network_of_caller();
        let mut by_rank: Vec<(u32, u64, &str)> = ranks
            .iter()
            .map(|seen| (seen.report.rank, seen.network, seen.host.as_str()))
            .collect();
        by_rank.sort_unstable();
        let mut hosts: Vec<(u64, String)> = Vec::new();
        for (_, network, told) in by_rank {
            if hosts.iter().any(|(known, _)| *known == network) {
                continue;
            }
            let is_here = network == here || network == 0;
            let name = match told {
                "" if is_here => own.clone(),
                "" => format!("net:{network}"),
                // Containers and namespaces may have one name.
                told if hosts.iter().any(|(_, name)| name == told) => format!("{told}/{network}"),
                told => told.to_owned(),
            };
            hosts.push((network, name));
        }
        Self(hosts)
    }

    fn name(&self, network: u64) -> String {
        let found = self.0.iter().find(|(known, _)| *known == network);
        found.map_or_else(String::new, |(_, name)| name.clone())
    }
}

/// How far the farthest member of each group is.
fn farthest(ranks: &[Seen]) -> BTreeMap<u64, u64> {
    let mut farthest = BTreeMap::new();
    for group in ranks.iter().flat_map(|seen| &seen.report.groups) {
        let most: &mut u64 = farthest.entry(group.key).or_default();
        *most = group.entered.max(*most);
    }
    farthest
}

/// The call that says most of what a rank does: the one in which it has waited longest, or else been longest.
fn main_call(report: &Report) -> Option<(&GroupState, &InFlight)> {
    let calls = report
        .groups
        .iter()
        .filter_map(|group| Some((group, group.call.as_ref()?)));
    calls.max_by_key(|(_, call)| {
        let waited = call.wait.as_ref().map(|wait| wait.age_ms);
        (waited, call.age_ms)
    })
}

fn last_call(report: &Report) -> Option<&CallRecord> {
    let ended = |call: &&CallRecord| call.outcome != CallOutcome::Open;
    report.calls.iter().rev().find(ended)
}

fn rank_row(seen: &Seen, host: String, farthest: &BTreeMap<u64, u64>, now_ns: u64) -> RankRow {
    let report = &seen.report;
    let behind = report.groups.iter().map(|group| {
        let far = farthest.get(&group.key).copied().unwrap_or(0);
        far.saturating_sub(group.entered)
    });
    let mut row = RankRow {
        rank: report.rank,
        pid: seen.pid,
        host,
        behind: behind.max().unwrap_or(0),
        ..RankRow::default()
    };
    if let Some((group, call)) = main_call(report) {
        row.state = State::InCall;
        row.call = format!("{}{}", call.call.name(), call.call.details());
        row.group.clone_from(&group.name);
        row.seq = call.seq;
        row.site.clone_from(&call.site);
        row.since_ms = Some(call.age_ms);
        if let Some(wait) = &call.wait {
            row.state = State::Waiting;
            row.since_ms = Some(wait.age_ms);
            row.waits_for.clone_from(&wait.missing);
            row.waits_for_more = wait.missing_more;
        }
    } else if let Some(last) = last_call(report) {
        row.call = format!("{}{}", last.call.name(), last.call.details());
        row.group.clone_from(&last.group);
        row.seq = last.seq;
        row.site.clone_from(&last.site);
        // Times of other hosts are of other clocks.
        let completed_ns = last.completed_ns.filter(|_| seen.host.is_empty());
        let since = completed_ns.map(|ns| now_ns.saturating_sub(ns));
        row.since_ms = since.map(|ns| ns / 1_000_000);
    }
    let is_stopped = report
        .process
        .as_ref()
        .is_some_and(|process| process.frozen().is_some());
    if seen.has_ended {
        row.state = State::Ended;
        row.waits_for.clear();
        row.waits_for_more = 0;
    } else if is_stopped {
        row.state = State::Stopped;
    }
    row
}

/// Mean bytes of the last calls on a group that have ended, by the rank that remembers most of them.
fn mean_bytes(ranks: &[Seen], key: u64, size: u32) -> Option<f64> {
    let of = |seen: &Seen| -> Vec<f64> {
        let calls = seen.report.calls.iter();
        let ended = calls.filter(|call| call.key == key && call.outcome == CallOutcome::Completed);
        ended.map(|call| bytes(call.call, size)).collect()
    };
    let most = ranks.iter().map(of).max_by_key(Vec::len)?;
    (!most.is_empty()).then(|| most.iter().sum::<f64>() / most.len() as f64)
}

/// The size of a call: bytes of the larger of its buffers, on the rank where it is largest. 0 where its board does not show it.
fn bytes(call: CallCode, size: u32) -> f64 {
    let (Some(collective), Some(dtype)) = (call.collective(), call.dtype()) else {
        return 0.0;
    };
    let has_blocks = collective.pattern().is_some_and(|pattern| {
        [pattern.send(true), pattern.recv(true)].contains(&Extent::AllBlocks)
    });
    let is_of_one = collective.counting() == Counting::Uniform && has_blocks;
    let blocks = if is_of_one { size } else { 1 };
    call.count as f64 * dtype.size() as f64 * f64::from(blocks)
}
