//! What `bench` brings to its report: columns, sentences, figures, rows.

use maud::Markup;

use crate::bench::map::{self, Hosts};
use crate::bench::model::{BenchReport, Record, Settings};
use crate::bench::table;
use crate::out::terminal_width;
use crate::report::cause::Cause;
use crate::report::document::{Metric, text_of};
use crate::report::html::parts::{counted, short, size};
use crate::report::markdown::Column;
use crate::report::measured::{self, Latency, Measures, in_seconds, measured, metric};

impl Measures for Settings {
    type Record = Record;
    const COMMAND: &'static str = "bench";
    const VERSION: u32 = 1;
    const TEXTS: [&'static str; 2] = ["The outcome of `bench`.", "Seed of the inputs."];

    const SHEET: &'static str = "collective algo ranks bytes count dtype op root in_place memory split group groups world_size \
        min_us=latency_us.min median_us=latency_us.median p90_us=latency_us.p90 p99_us=latency_us.p99 \
        p99_9_us=latency_us.p99_9 max_us=latency_us.max mean_us=latency_us.mean algbw_gbytes_per_s busbw_gbytes_per_s \
        wrong samples start_skew_median_us=start_skew_us.median unsupported backend emulated taken segment";

    const TABLE: &'static [Column<Record>] = &[
        ("what", |r| name_of(r)),
        (">median us", |r| match &r.unsupported {
            Some(why) => why.clone(),
            None => short(r.latency_us.median),
        }),
        (">p99 us", |r| {
            text_of(r.figure().map(|r| short(r.latency_us.p99)))
        }),
        (">algbw GB/s", |r| text_of(r.algbw_gbytes_per_s.map(short))),
        (">busbw GB/s", |r| text_of(r.busbw_gbytes_per_s.map(short))),
        (">wrong", |r| text_of(r.wrong)),
    ];

    fn passed(report: &BenchReport) -> String {
        let records = &report.records;
        let checked = records.iter().filter(|r| r.wrong == Some(0)).count();
        let right = match checked {
            0 => "no data was checked".to_owned(),
            all if all == records.len() => "every checked element was right".to_owned(),
            some => format!("every checked element was right, in {some} of them"),
        };
        let rates = records
            .iter()
            .filter_map(|record| Some((record.busbw_gbytes_per_s?, record)));
        let best = rates.max_by(|one, other| one.0.total_cmp(&other.0));
        let best = best.map_or_else(String::new, |(rate, record)| {
            format!(
                "; the best bus bandwidth was {} GB/s, {} of {} on {}",
                short(rate),
                record.collective,
                size(record.bytes),
                counted(u64::from(record.ranks), "rank", "ranks"),
            )
        });
        let lines = counted(records.len() as u64, "line", "lines");
        format!("{lines} measured, and {right}{best}")
    }

    fn suite_and_class(_: &BenchReport, record: &Record) -> (String, String) {
        let class = format!("bench.{}.{}", record.collective, record.group);
        (record.collective.clone(), class)
    }

    fn body(report: &BenchReport) -> Markup {
        super::page::body(report)
    }

    fn metrics(records: &[Record]) -> Vec<Metric> {
        let quantiles = |record: &Record| in_seconds(record, None, &record.latency_us);
        vec![
            Metric {
                name: "muster_bench_latency_seconds",
                help: "Time of a call on the slowest rank, by quantile",
                samples: measured(records).flat_map(quantiles).collect(),
            },
            metric(
                "muster_bench_algbw_bytes_per_second",
                "Bytes over the median time",
                records,
                |record| Some(record.algbw_gbytes_per_s? * 1e9),
            ),
            metric(
                "muster_bench_busbw_bytes_per_second",
                "Bytes over the median time, with the factor of the collective",
                records,
                |record| Some(record.busbw_gbytes_per_s? * 1e9),
            ),
            metric(
                "muster_bench_wrong_elements",
                "Wrong elements that ranks found",
                records,
                |record| Some(record.wrong? as f64),
            ),
        ]
    }

    fn rows<'a>(_: &'a BenchReport, record: &'a Record) -> Vec<(String, &'a [Vec<f64>])> {
        vec![(name_of(record), &record.samples_us)]
    }

    fn opening(report: &BenchReport) -> String {
        let emulated = report.emulated.then_some(table::EMULATED);
        emulated.unwrap_or_default().to_owned()
    }

    fn slow(report: &BenchReport) -> Option<Cause> {
        map::verdict(&report.records, &Hosts::new(&report.settings.hosts))
    }

    fn heading(record: &Record) -> String {
        if map::pair(&record.group).is_some() {
            // All pairs are one picture, at the end.
            return String::new();
        }
        format!("{}\n{}", table::heading(record), table::columns())
    }

    fn line(record: &Record) -> String {
        if map::pair(&record.group).is_some() {
            return String::new();
        }
        table::line(record)
    }

    fn closing(report: &BenchReport) -> String {
        let maps = map::maps(&report.records);
        let hosts = Hosts::new(&report.settings.hosts);
        let pictures = maps
            .iter()
            .map(|map| map::picture(map, &hosts, terminal_width()) + "\n");
        let pictures: String = pictures.collect();
        format!(
            "{}{pictures}{}",
            if maps.is_empty() { "\n" } else { "" },
            table::closing(report)
        )
    }
}

impl Record {
    /// The record, where it has figures.
    fn figure(&self) -> Option<&Self> {
        self.unsupported.is_none().then_some(self)
    }
}

impl measured::Record for Record {
    const LABELS: &'static str =
        "collective algo bytes dtype op in_place memory group groups ranks world_size root split";

    fn name(&self) -> String {
        name_of(self)
    }

    fn latency(&self) -> &Latency {
        &self.latency_us
    }

    fn rounds_us(&self) -> Option<&[Vec<f64>]> {
        // Every bring-up has a world of its own.
        (self.collective != "bring_up").then_some(&self.samples_us)
    }

    fn wrong(&self) -> u64 {
        self.wrong.unwrap_or(0)
    }

    fn wrong_text(&self) -> Option<&str> {
        self.wrong_text.as_deref()
    }

    fn unsupported(&self) -> Option<&str> {
        self.unsupported.as_deref()
    }
}

/// What a record is about, in words.
fn name_of(record: &Record) -> String {
    let mut words = vec![record.collective.clone()];
    words.extend(record.dtype.clone());
    words.extend(record.op.clone());
    if record.bytes > 0 {
        words.push(size(record.bytes));
    }
    let ranks = match record.groups {
        1 if record.group == "world" => format!("{} ranks", record.ranks),
        1 => format!("{} of {} ranks", record.group, record.ranks),
        groups => format!("{groups} groups {} of {} ranks", record.group, record.ranks),
    };
    let mut parts = vec![words.join(" "), ranks];
    if record.world_size != record.ranks {
        parts.push(format!("world of {}", record.world_size));
    }
    if record.dtype.is_some() {
        let place = if record.in_place {
            "in place"
        } else {
            "out of place"
        };
        parts.push(place.to_owned());
        parts.push(format!("{} memory", record.memory));
    }
    if let Some(root) = record.root.filter(|root| *root > 0) {
        parts.push(format!("root {root}"));
    }
    parts.extend(record.split.as_ref().map(|split| format!("{split} blocks")));
    if record.algo != "auto" {
        parts.push(record.algo.clone());
    }
    parts.extend(
        record
            .segment
            .map(|bytes| format!("segments of {} KiB", bytes >> 10)),
    );
    parts.join(", ")
}
