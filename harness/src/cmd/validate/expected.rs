//! What a host is held against: a baseline, limits that a person gave, and its own first pass.
//!
//! EXPECTED-1: a cell is slow only if it was slow in both of two measurements, one after the other.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;

use crate::baseline::Baseline;
use crate::baseline::limits::{Limit, broken};
use crate::bench::model::BenchReport;
use crate::exit::Exit;
use crate::fail::Failure;
use crate::report::document::Document;
use crate::report::html::parts::counted;
use crate::results;
use crate::stats;
use crate::validation::{Drift, Outcome, Remark, Stage};

/// Slow cells that are named, each in a remark.
const NAMED_MAX: usize = 5;
/// Part of its time that a thread which wanted to run did run, below which others are said to have been in its way.
const SHARE_LEAST: f64 = 0.9;

/// Options that say what is normal.
#[derive(Debug, Args)]
pub(super) struct ExpectedArgs {
    /// Refuse the host if a cell of bench or moe is slower than this baseline of `muster baseline` allows
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,

    /// Least bus bandwidth of a cell of bench, in GB/s: all_reduce@16M=12.5; may be given more than once
    #[arg(long, value_name = "COLLECTIVE@SIZE=RATE", value_delimiter = ',', value_parser = Limit::busbw)]
    min_busbw: Vec<Limit>,

    /// Greatest median time of a cell of bench: all_reduce@8=30us; may be given more than once
    #[arg(long, value_name = "COLLECTIVE@SIZE=TIME", value_delimiter = ',', value_parser = Limit::latency)]
    max_latency: Vec<Limit>,
}

impl ExpectedArgs {
    /// Whether there is a limit.
    pub(super) const fn is_given(&self) -> bool {
        self.against.is_some() || !self.min_busbw.is_empty() || !self.max_latency.is_empty()
    }
}

/// What is expected of a host.
#[derive(Debug)]
pub(super) struct Expected {
    baseline: Option<Baseline>,
    limits: Vec<Limit>,
    /// Times of the first pass by cell, of each stage.
    first: BTreeMap<String, BTreeMap<String, f64>>,
}

/// What is slow in one measurement, and what is to be said of it beside that.
#[derive(Debug, Default)]
pub(super) struct Judged {
    /// The cell, and what was measured and expected.
    slow: Vec<(String, String)>,
    /// How many cells were judged.
    judged: usize,
    /// Cells that the baseline does not know.
    unknown: usize,
    /// Least part of its time that a thread which wanted to run did run.
    share: f64,
}

impl Judged {
    /// Whether it is to be measured again.
    pub(super) const fn is_slow(&self) -> bool {
        !self.slow.is_empty()
    }
}

impl Expected {
    /// What the options ask for of these stages.
    ///
    /// # Errors
    /// A failure of class USAGE where the baseline cannot be read, or nothing that is run can be held against what is asked for.
    pub(super) fn of(args: &ExpectedArgs, stages: &[&str]) -> Result<Self, Failure> {
        let baseline: Option<Baseline> =
            args.against.as_deref().map(results::read_as).transpose()?;
        let limits = args.min_busbw.iter().chain(&args.max_latency).cloned();
        let expected = Self {
            baseline,
            limits: limits.collect(),
            first: BTreeMap::new(),
        };
        let is_judged = |stage: &&str| {
            expected
                .baseline
                .as_ref()
                .is_some_and(|one| one.knows(stage))
        };
        if expected.baseline.is_some() && !stages.iter().any(is_judged) {
            return Err(Failure::usage(format!(
                "the baseline has cells of bench or moe that are not run: the stages are {}",
                stages.join(", ")
            )));
        }
        if !expected.limits.is_empty() && !stages.contains(&"bench") {
            return Err(Failure::usage(
                "--min-busbw and --max-latency speak of cells of bench, which is not run",
            ));
        }
        Ok(expected)
    }

    /// Times of a stage as multiples of those of its first pass; none in that pass, and where nothing is timed.
    pub(super) fn drift(&mut self, stage: &str, document: &dyn Document) -> Option<Drift> {
        let rows = document.comparable()?.rows.into_iter();
        let timed = rows.filter(|row| !row.rounds_us.is_empty());
        let cells = timed.map(|row| (row.name, stats::middle(&row.rounds_us)));
        let cells: BTreeMap<String, f64> = cells.collect();
        let Some(first) = self.first.get(stage) else {
            self.first.insert(stage.to_owned(), cells);
            return None;
        };
        let known = cells
            .iter()
            .filter_map(|(name, us)| Some((name.as_str(), us / first.get(name)?)));
        Drift::of(known)
    }

    /// Holds the result of a stage against what is expected; none where nothing is.
    ///
    /// # Errors
    /// A failure of class USAGE where it cannot be judged.
    pub(super) fn judge(
        &self,
        document: &dyn Document,
        text: &[u8],
    ) -> Result<Option<Judged>, Failure> {
        let Some(timed) = document.comparable().and_then(|found| found.timed) else {
            return Ok(None);
        };
        let shares = timed.states.iter().map(|state| state.pulse.processor_share);
        let mut all = Judged {
            share: shares.fold(1.0, f64::min),
            ..Judged::default()
        };
        if let Some(baseline) = &self.baseline {
            let judged = baseline.judge(document)?;
            all.judged += judged.normal + judged.slow.len();
            all.unknown = judged.unknown.len();
            let slow = judged.slow.iter();
            all.slow
                .extend(slow.map(|slow| (slow.name.clone(), slow.in_words())));
        }
        let bench: Option<BenchReport> = (document.about().command == "bench")
            .then(|| serde_json::from_slice(text).ok())
            .flatten();
        if let Some(report) = bench.filter(|_| !self.limits.is_empty()) {
            let broken = broken(&self.limits, &report).map_err(Failure::usage)?;
            all.judged += self.limits.len();
            let broken = broken.into_iter();
            all.slow.extend(broken.map(|one| {
                let words = format!("{}: {}", one.name, one.what);
                (one.name, words)
            }));
        }
        Ok((all.judged + all.unknown > 0).then_some(all))
    }
}

/// Says of a stage what two measurements of it showed; `again` is there only where the first found a slow cell.
pub(super) fn conclude(stage: &mut Stage, first: &Judged, again: Option<&Judged>) {
    let both = first.slow.iter().filter_map(|(name, words)| {
        let mut second = again?.slow.iter();
        let (_, second) = second.find(|(other, _)| other == name)?;
        Some((words, second))
    });
    let both: Vec<_> = both.collect();
    let normal = first.judged.saturating_sub(both.len()) as u64;
    let once = match first.slow.len() - both.len() {
        0 => String::new(),
        once => format!(", {once} of them not in the first measurement"),
    };
    stage.finding = format!(
        "{}; {} as expected{once}",
        stage.finding,
        counted(normal, "cell is", "cells are")
    );
    if first.unknown > 0 {
        stage.remarks.push(Remark {
            about: stage.name.clone(),
            what: format!(
                "{} not in the baseline, and not judged",
                counted(first.unknown as u64, "cell is", "cells are")
            ),
            evidence: String::new(),
            remedy: "make the baseline of results of the same command".to_owned(),
        });
        stage.outcome = stage.outcome.max(Outcome::Remarks);
    }
    if both.is_empty() {
        return;
    }
    let share = again.map_or(first.share, |again| first.share.min(again.share));
    stage.finding = format!(
        "slow: {} of {} cells, twice; {}",
        both.len(),
        first.judged,
        stage.finding
    );
    refuse(stage, &both, first.judged, share);
}

/// Refuses a stage with cells that were slow in both measurements: in each what was measured.
fn refuse(stage: &mut Stage, both: &[(&String, &String)], judged: usize, share: f64) {
    (stage.outcome, stage.class) = (Outcome::Refused, Exit::Slow);
    let is_busy = share < SHARE_LEAST;
    let busy = format!(
        "; other programs took up to {:.0} % of a processor",
        (1.0 - share) * 100.0
    );
    for (words, second) in both.iter().take(NAMED_MAX) {
        let second = second
            .split_once(": ")
            .map_or(&second[..], |(_, figures)| figures);
        stage.remarks.push(Remark {
            about: stage.name.clone(),
            what: format!("slow: {words}"),
            evidence: format!(
                "measured again: {second}{}",
                if is_busy { &busy } else { "" }
            ),
            remedy: if is_busy {
                "measure again while nothing else runs on the host".to_owned()
            } else {
                "look for a quota, a power limit or a slow link: `muster doctor`, `muster bench --map`".to_owned()
            },
        });
    }
    if both.len() > NAMED_MAX {
        let rest = (both.len() - NAMED_MAX) as u64;
        stage.remarks.push(Remark {
            about: stage.name.clone(),
            what: format!("slow: {} more", counted(rest, "cell", "cells")),
            evidence: format!("{} of {} cells", both.len(), judged),
            remedy: String::new(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(slow: &[&str]) -> Judged {
        let of = |name: &&str| ((*name).to_owned(), format!("{name}: 9 us, limit 5 us"));
        Judged {
            slow: slow.iter().map(of).collect(),
            judged: 3,
            unknown: 0,
            share: 1.0,
        }
    }

    fn concluded(first: &Judged, again: Option<&Judged>) -> Stage {
        let mut stage = Stage {
            name: "bench".to_owned(),
            pass: 1,
            command: String::new(),
            outcome: Outcome::Accepted,
            class: Exit::Ok,
            exit_code: 0,
            finding: "measured".to_owned(),
            remarks: Vec::new(),
            elapsed_us: 0,
            result: None,
            drift: None,
        };
        conclude(&mut stage, first, again);
        stage
    }

    #[test]
    fn only_what_was_slow_twice_refuses_a_host() {
        let once = concluded(&judged(&["a", "b"]), Some(&judged(&["c"])));
        assert_eq!((once.outcome, once.remarks.len()), (Outcome::Accepted, 0));
        let twice = concluded(&judged(&["a", "b"]), Some(&judged(&["b", "c"])));
        assert_eq!((twice.outcome, twice.class), (Outcome::Refused, Exit::Slow));
        assert_eq!(twice.remarks.len(), 1);
        assert_eq!(twice.remarks[0].what, "slow: b: 9 us, limit 5 us");
        let unknown = Judged {
            unknown: 2,
            ..judged(&[])
        };
        assert_eq!(concluded(&unknown, None).outcome, Outcome::Remarks);
    }
}
