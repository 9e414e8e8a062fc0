//! What the results of `bench` and `moe` have in common as documents: both are lists of records, each
//! measured and checked, or with the reason why not.

use std::time::Duration;

use crate::bench::model::Latency;
use crate::exit::Exit;
use crate::report::document::{Headline, SuiteResult};
use crate::report::html::parts::counted;
use crate::report::model::Cause;
use crate::run::micros;

/// Labels of a sample, with their values.
pub(super) type Labels = Vec<(&'static str, String)>;

/// One record of such a result.
pub(super) trait Measured {
    /// What it is about, in words.
    fn name(&self) -> String;
    /// The same as labels.
    fn labels(&self) -> Labels;
    /// Wrong elements that ranks found; 0 too where nothing was checked.
    fn wrong(&self) -> u64;
    /// What was wrong first, in words.
    fn wrong_text(&self) -> Option<&str>;
    /// Why it was not measured, if it was not.
    fn unsupported(&self) -> Option<&str>;
}

/// The headline: the verdict where there is one, else the first record that is wrong, else what
/// `passed` says of a result that has passed. `planned` is how many records there should be.
pub(super) fn headline<R: Measured>(
    exit: Exit,
    verdict: Option<&Cause>,
    records: &[R],
    planned: u64,
    passed: Option<String>,
) -> Headline {
    let measured = format!(
        "{} of {} measured",
        records.len(),
        counted(planned, "line", "lines")
    );
    let wrong = records.iter().find(|record| record.wrong() > 0);
    match (verdict, wrong, passed) {
        (Some(verdict), _, _) => Headline::of(exit, format!("{}; {measured}", verdict.text)),
        (None, Some(record), _) => {
            let text = record.wrong_text().unwrap_or("no detail");
            Headline::of(exit, format!("{}: {text}; {measured}", record.name()))
        }
        (None, None, Some(sentence)) => Headline {
            word: "measured".to_owned(),
            ..Headline::of(exit, sentence)
        },
        (None, None, None) => Headline::of(exit, measured),
    }
}

/// What came out of a record, for systems that count tests.
pub(super) fn result(record: &impl Measured) -> SuiteResult {
    if let Some(why) = record.unsupported() {
        return SuiteResult::Skipped(why.to_owned());
    }
    if record.wrong() == 0 {
        return SuiteResult::Passed;
    }
    let text = record.wrong_text().unwrap_or_default().to_owned();
    SuiteResult::Failed(format!("{} wrong elements: {text}", record.wrong()), text)
}

/// The records that have figures.
pub(super) fn measured<R: Measured>(records: &[R]) -> impl Iterator<Item = &R> {
    records
        .iter()
        .filter(|record| record.unsupported().is_none())
}

/// A sample for each record that was measured and has this value.
pub(super) fn samples<R: Measured>(
    records: &[R],
    value: impl Fn(&R) -> Option<f64>,
) -> Vec<(Labels, f64)> {
    measured(records)
        .filter_map(|record| Some((record.labels(), value(record)?)))
        .collect()
}

/// The quantiles that reports give of a time, in microseconds.
pub(super) const fn quantiles(times: &Latency) -> [(&'static str, f64); 5] {
    [
        ("0", times.min),
        ("0.5", times.median),
        ("0.9", times.p90),
        ("0.99", times.p99),
        ("1", times.max),
    ]
}

/// Samples in seconds, one a quantile, with `labels`.
pub(super) fn in_seconds(labels: &[(&'static str, String)], times: &Latency) -> [(Labels, f64); 5] {
    quantiles(times).map(|(quantile, time)| {
        let mut labels = labels.to_vec();
        labels.push(("quantile", quantile.to_owned()));
        (labels, time / 1e6)
    })
}

/// A time of a record in whole microseconds.
pub(super) fn whole(us: f64) -> u64 {
    Duration::try_from_secs_f64(us / 1e6).map_or(0, micros)
}
