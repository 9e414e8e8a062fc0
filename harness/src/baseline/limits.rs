//! Limits that a person gave for cells of `bench`.

use muster_comm::types::Collective;

use crate::bench::model::{BenchReport, Record};
use crate::bench::sweep::parse_size;
use crate::report::html::parts::{micros, short, size};

/// What is asked of every row of a collective and a size.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    collective: Collective,
    bytes: u64,
    bound: Bound,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Bound {
    /// Least bus bandwidth, in GB/s.
    Busbw(f64),
    /// Greatest median time, in microseconds.
    Latency(f64),
}

/// A row that breaks a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The row.
    pub name: String,
    /// What was measured, and what was asked for.
    pub what: String,
}

impl Limit {
    /// A least bus bandwidth: `all_reduce@16M=12.5`, in GB/s.
    ///
    /// # Errors
    /// In words: what is allowed.
    pub fn busbw(text: &str) -> Result<Self, String> {
        let read = |value: &str| {
            let figure = value.trim_end_matches("GB/s").trim().parse().ok();
            figure.filter(|rate: &f64| *rate > 0.0 && rate.is_finite())
        };
        Self::parse(text, |value| read(value).map(Bound::Busbw))
            .map_err(|why| format!("{why}; an example is all_reduce@16M=12.5, in GB/s"))
    }

    /// A greatest median time: `all_reduce@8=30us`.
    ///
    /// # Errors
    /// In words: what is allowed.
    pub fn latency(text: &str) -> Result<Self, String> {
        const UNITS: [(&str, f64); 3] = [("us", 1.0), ("ms", 1e3), ("s", 1e6)];
        let read = |value: &str| {
            let mut units = UNITS.iter();
            let (number, unit) =
                units.find_map(|(unit, us)| Some((value.strip_suffix(unit)?, us)))?;
            let number = number.trim().parse::<f64>().ok();
            let number = number.filter(|time| *time > 0.0 && time.is_finite())?;
            Some(number * unit)
        };
        Self::parse(text, |value| read(value).map(Bound::Latency))
            .map_err(|why| format!("{why}; an example is all_reduce@8=30us, in us, ms or s"))
    }

    fn parse(text: &str, bound: impl Fn(&str) -> Option<Bound>) -> Result<Self, String> {
        let form = || "a limit has the form COLLECTIVE@SIZE=VALUE".to_owned();
        let (cell, value) = text.split_once('=').ok_or_else(form)?;
        let (name, bytes) = cell.split_once('@').ok_or_else(form)?;
        let collective = name.trim().parse::<Collective>();
        Ok(Self {
            collective: collective.map_err(|error| error.to_string())?,
            bytes: parse_size(bytes)?,
            bound: bound(value.trim()).ok_or_else(|| format!("{value} is no limit"))?,
        })
    }

    /// The cell as it was given.
    fn cell(&self) -> String {
        format!("{} of {}", self.collective.name(), size(self.bytes))
    }

    /// Why a row is beyond the limit, if it is.
    fn broken(&self, record: &Record) -> Option<Broken> {
        let us = record.latency_us.median;
        let what = match self.bound {
            // A row without a bandwidth has not shown that it has enough.
            Bound::Busbw(least) => {
                let rate = record.busbw_gbytes_per_s.unwrap_or(0.0);
                let is_below = rate < least;
                is_below.then(|| {
                    format!(
                        "{} GB/s, at least {} are asked for",
                        short(rate),
                        short(least)
                    )
                })
            }
            Bound::Latency(most) => (us > most)
                .then(|| format!("{}, at most {} are asked for", micros(us), micros(most))),
        }?;
        Some(Broken {
            name: crate::report::measured::Record::name(record),
            what,
        })
    }
}

/// The rows that break a limit.
///
/// # Errors
/// In words, where no row of the result is one that a limit speaks of: nothing was shown of it.
pub fn broken(limits: &[Limit], report: &BenchReport) -> Result<Vec<Broken>, String> {
    let mut all = Vec::new();
    for limit in limits {
        let is_meant = |record: &&Record| {
            record.collective == limit.collective.name()
                && record.bytes == limit.bytes
                && record.unsupported.is_none()
        };
        let mut rows = report.records.iter().filter(is_meant).peekable();
        if rows.peek().is_none() {
            return Err(format!("{} was not measured", limit.cell()));
        }
        all.extend(rows.filter_map(|record| limit.broken(record)));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::model::Settings;
    use crate::report::measured::Latency;

    fn report() -> BenchReport {
        let mut report = BenchReport::new(Settings::default());
        let record = |bytes: u64, us: f64, rate: f64| Record {
            collective: "all_reduce".to_owned(),
            algo: "auto".to_owned(),
            bytes,
            latency_us: Latency {
                median: us,
                ..Latency::default()
            },
            busbw_gbytes_per_s: Some(rate),
            ..Record::default()
        };
        report.records = vec![record(8, 20.0, 0.1), record(16 << 20, 4000.0, 4.2)];
        report
    }

    #[test]
    fn rows_beyond_a_limit_are_named_with_what_was_measured_and_asked_for() {
        let limits = ["all_reduce@16M=5", "all_reduce@16MiB=4.1GB/s"].map(Limit::busbw);
        let mut limits: Vec<Limit> = limits
            .into_iter()
            .map(|one| one.expect("a limit"))
            .collect();
        limits.push(Limit::latency("all_reduce@8=0.01ms").expect("a limit"));
        limits.push(Limit::latency("all_reduce@8=20us").expect("a limit"));
        let found = broken(&limits, &report()).expect("judged");
        let texts: Vec<&str> = found.iter().map(|one| &one.what[..]).collect();
        assert_eq!(
            texts,
            [
                "4.20 GB/s, at least 5.00 are asked for",
                "20.0 µs, at most 10.0 µs are asked for"
            ]
        );
    }

    #[test]
    fn a_limit_for_what_was_not_measured_is_no_pass() {
        let limits = [Limit::busbw("all_gather@16M=5").expect("a limit")];
        let why = broken(&limits, &report()).expect_err("refused");
        assert_eq!(why, "all_gather of 16 MiB was not measured");
    }

    #[test]
    fn what_is_no_limit_is_told_what_one_looks_like() {
        for (text, part) in [
            ("all_reduce", "COLLECTIVE@SIZE=VALUE"),
            ("all_reduce=3", "COLLECTIVE@SIZE=VALUE"),
            ("allreduce@8=3", "allreduce"),
            ("all_reduce@many=3", "a size is"),
            ("all_reduce@8=fast", "fast is no limit"),
            ("all_reduce@8=0", "0 is no limit"),
        ] {
            let why = Limit::busbw(text).expect_err("refused");
            assert!(why.contains(part) && why.contains("an example is"), "{why}");
        }
        assert!(Limit::latency("all_reduce@8=30").is_err());
    }
}
