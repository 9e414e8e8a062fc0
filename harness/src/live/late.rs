//! Who is late in call after call: seen by many short looks, in which some members of a group are in a collective and others have not
//! come to it.
//!
//! LATE-1: a look counts where all members were seen, the first were in the call a millisecond before the first board was read, and the
//! others are exactly one collective behind. Who is itself in a call of another group is not late: it waits there, or is held up there.
//! LATE-2: a rank is named where the others have waited for it in so many different calls that this would hardly be so if it were late
//! in every second one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use muster_comm::sync::Clock;
use muster_comm::watch::report::{GroupState, Report};
use serde::Serialize;

use super::source::Raw;

/// How far looks reach back, in nanoseconds.
const WINDOW_NS: u64 = 30_000_000_000;
/// Fewest calls in which somebody was waited for, of which anything is said.
const CALLS_MIN: usize = 10;
/// How probable at most it is that who is late in every second call is late in so many.
const CHANCE: f64 = 0.001;
/// Least part of its time that a group waits.
const WAITING_MIN: f64 = 0.1;
/// Least part of that in which it waits for the rank.
const SHARE_MIN: f64 = 0.5;

/// A rank that others wait for in call after call.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Late {
    /// Its world rank.
    pub rank: u32,
    /// The name of the communicator.
    pub group: String,
    /// The key of the communicator, in hexadecimal digits.
    pub key: String,
    /// Different calls in which others were seen to wait for it.
    pub calls: usize,
    /// Different calls in which anybody was seen to wait.
    pub of_calls: usize,
    /// Part of the time in which members wait for others, 0 to 1.
    pub waiting: f64,
    /// Part of that for which they wait for this rank, 0 to 1.
    pub share: f64,
}

impl Late {
    /// In words.
    #[must_use]
    pub fn line(&self) -> String {
        format!(
            "LATE rank {}: the others of {} waited for it in {} of {} calls, which is {:.0} % of their waiting; they wait {:.0} % of the time",
            self.rank,
            self.group,
            self.calls,
            self.of_calls,
            self.share * 100.0,
            self.waiting * 100.0
        )
    }
}

/// Members of a group that wait in a call, for members that are late.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wait {
    pub(super) key: u64,
    pub(super) seq: u64,
    pub(super) late: Vec<u32>,
    /// How much it counts: a look, or the time that the wait took.
    pub(super) weight: f64,
}

/// One look at a job.
#[derive(Clone, Debug)]
struct Look {
    at_ns: u64,
    waits: Vec<Wait>,
}

/// The looks at all jobs.
#[derive(Debug, Default)]
pub(super) struct Lateness {
    jobs: BTreeMap<u64, VecDeque<Look>>,
}

impl Lateness {
    /// Takes note of a look.
    pub(super) fn see(&mut self, raw: &Raw) {
        if raw.round != 0 {
            // Ranks of other hosts did not answer at one moment.
            return;
        }
        let at_ns = Clock::nanos();
        let living = raw.ranks.iter().filter(|seen| !seen.has_ended);
        let reports: Vec<&Report> = living.map(|seen| &seen.report).collect();
        let waits = waits(&reports, raw.took_ms + 1);
        let looks = self.jobs.entry(raw.job).or_default();
        looks.push_back(Look { at_ns, waits });
        while looks
            .front()
            .is_some_and(|look| at_ns.saturating_sub(look.at_ns) > WINDOW_NS)
        {
            looks.pop_front();
        }
    }

    /// Forgets jobs that are gone.
    pub(super) fn forget(&mut self, living: &[Raw]) {
        self.jobs
            .retain(|job, _| living.iter().any(|raw| raw.job == *job));
    }

    /// Who is late in a job.
    pub(super) fn late(&self, raw: &Raw) -> Vec<Late> {
        let Some(looks) = self.jobs.get(&raw.job) else {
            return Vec::new();
        };
        let groups = raw.ranks.iter().flat_map(|seen| &seen.report.groups);
        let names: BTreeMap<u64, &str> = groups
            .map(|group| (group.key, group.name.as_str()))
            .collect();
        let all = names
            .iter()
            .flat_map(|(key, name)| of_group(looks, *key, name));
        all.collect()
    }
}

/// The groups in which somebody waits for members that have not come.
fn waits(reports: &[&Report], least_ms: u64) -> Vec<Wait> {
    let mut groups: BTreeMap<u64, Vec<(&Report, &GroupState)>> = BTreeMap::new();
    for report in reports {
        for group in &report.groups {
            groups.entry(group.key).or_default().push((report, group));
        }
    }
    groups
        .into_iter()
        .filter_map(|(key, members)| {
            let is_whole = |size: u32| size as usize == members.len();
            if !members
                .first()
                .is_some_and(|(_, group)| is_whole(group.size))
            {
                return None;
            }
            let collective = |group: &GroupState| {
                let call = group.call.as_ref()?;
                let needs = call
                    .call
                    .collective()
                    .is_some_and(|one| one.needs_everybody_with(call.call.count));
                (needs && call.age_ms >= least_ms).then_some(call.seq)
            };
            let seq = members
                .iter()
                .filter_map(|(_, group)| collective(group))
                .max()?;
            let not_come: Vec<_> = members
                .iter()
                .filter(|(_, group)| group.entered < seq)
                .collect();
            let is_one_behind = not_come.iter().all(|(_, group)| group.entered + 1 == seq);
            if not_come.is_empty() || !is_one_behind {
                return None;
            }
            let is_outside = |report: &Report| report.groups.iter().all(|one| one.call.is_none());
            let late = not_come
                .iter()
                .filter(|(report, _)| is_outside(report))
                .map(|(report, _)| report.rank);
            Some(Wait {
                key,
                seq,
                late: late.collect(),
                weight: 1.0,
            })
        })
        .collect()
}

fn of_group(looks: &VecDeque<Look>, key: u64, name: &str) -> Vec<Late> {
    let waits = looks.iter().flat_map(|look| &look.waits);
    let waits: Vec<&Wait> = waits.filter(|wait| wait.key == key).collect();
    let waiting = waits.len() as f64 / looks.len().max(1) as f64;
    named(&waits, waiting, key, name)
}

/// The ranks that all this waiting of a group, which is this part of its time, was for.
pub(super) fn named(waits: &[&Wait], waiting: f64, key: u64, name: &str) -> Vec<Late> {
    let waits = || waits.iter().copied();
    let total: f64 = waits().map(|wait| wait.weight).sum();
    let calls: BTreeSet<u64> = waits().map(|wait| wait.seq).collect();
    if calls.len() < CALLS_MIN || waiting < WAITING_MIN {
        return Vec::new();
    }
    let ranks: BTreeSet<u32> = waits().flat_map(|wait| wait.late.iter().copied()).collect();
    let of_rank = |rank: u32| {
        let of = || waits().filter(move |wait| wait.late.contains(&rank));
        let own: BTreeSet<u64> = of().map(|wait| wait.seq).collect();
        let parts = of().map(|wait| wait.weight / wait.late.len() as f64);
        let share = parts.sum::<f64>() / total;
        let is_late = share >= SHARE_MIN && at_least(own.len(), calls.len()) <= CHANCE;
        is_late.then(|| Late {
            rank,
            group: name.to_owned(),
            key: format!("{key:016x}"),
            calls: own.len(),
            of_calls: calls.len(),
            waiting,
            share,
        })
    };
    ranks.into_iter().filter_map(of_rank).collect()
}

/// How probable it is that of so many tosses of a coin at least `heads` show heads.
fn at_least(heads: usize, tosses: usize) -> f64 {
    let mut exactly = 0.5_f64.powi(i32::try_from(tosses).unwrap_or(i32::MAX));
    let mut sum = 0.0;
    // From all tosses downwards, each from the one before.
    for count in (heads..=tosses).rev() {
        sum += exactly;
        exactly *= count as f64 / (tosses - count + 1) as f64;
    }
    sum
}

#[cfg(test)]
mod tests {
    use muster_comm::types::Collective;
    use muster_comm::watch::Seen;
    use muster_comm::watch::report::{CallCode, InFlight};

    use super::*;

    fn raw(ranks: &[(u64, Option<u64>)]) -> Raw {
        let word = Collective::Barrier as u64;
        let size = u32::try_from(ranks.len()).expect("few");
        let one = |(rank, (entered, call)): (u32, &(u64, Option<u64>))| Seen {
            report: Report {
                rank,
                groups: vec![GroupState {
                    key: 7,
                    name: "world".to_owned(),
                    size,
                    entered: *entered,
                    call: call.map(|age_ms| InFlight {
                        seq: *entered,
                        call: CallCode { word, count: 0 },
                        age_ms,
                        ..InFlight::default()
                    }),
                    ..GroupState::default()
                }],
                ..Report::default()
            },
            ..Seen::default()
        };
        Raw {
            ranks: (0..).zip(ranks).map(one).collect(),
            ..Raw::default()
        }
    }

    #[test]
    fn who_is_late_in_call_after_call_is_named() {
        let mut lateness = Lateness::default();
        for seq in 1..=20 {
            lateness.see(&raw(&[(seq, Some(5)), (seq - 1, None), (seq, Some(2))]));
            lateness.see(&raw(&[(seq, None), (seq, None), (seq, None)]));
        }
        let late = lateness.late(&raw(&[(20, None), (20, None), (20, None)]));
        assert_eq!(late.len(), 1);
        assert_eq!((late[0].rank, late[0].calls, late[0].of_calls), (1, 20, 20));
        assert!((late[0].waiting - 0.5).abs() < 0.01 && (late[0].share - 1.0).abs() < 0.01);
    }

    #[test]
    fn turns_short_waits_few_calls_and_one_long_wait_name_nobody() {
        let nobody = |looks: &dyn Fn(u64) -> Raw| {
            let mut lateness = Lateness::default();
            (1..=40).for_each(|look| lateness.see(&looks(look)));
            assert_eq!(lateness.late(&looks(40)), []);
        };
        // They are late in turns.
        nobody(&|look| match look % 2 {
            0 => raw(&[(look, Some(5)), (look - 1, None)]),
            _ => raw(&[(look - 1, None), (look, Some(5))]),
        });
        // The wait has only begun.
        nobody(&|look| raw(&[(look, Some(0)), (look - 1, None)]));
        // A look at one after the other is not at one moment.
        nobody(&|look| raw(&[(look + 3, Some(5)), (look, None)]));
        nobody(&|_| raw(&[(9, Some(5)), (8, None)]));
    }

    #[test]
    fn coins_fall_as_they_do() {
        assert!((at_least(0, 10) - 1.0).abs() < 1e-9);
        assert!((at_least(10, 10) - 1.0 / 1024.0).abs() < 1e-12);
        assert!((at_least(9, 10) - 11.0 / 1024.0).abs() < 1e-12);
    }
}
