//! What `bench` brings to its report: columns, sentences, figures, rows.

use maud::Markup;

use crate::bench::model::{BenchReport, Record, Settings};
use crate::bench::table::{self, short, size};
use crate::report::document::{Column, Metric, text_of};
use crate::report::html::parts::counted;
use crate::report::measured::{self, Labels, Latency, Measures, in_seconds, measured, metric};

impl Measures for Settings {
    type Record = Record;
    const COMMAND: &'static str = "bench";
    const VERSION: u32 = 1;
    const TEXTS: [&'static str; 2] = ["The outcome of `bench`.", "Seed of the inputs."];

    const SHEET: &'static [Column<BenchReport, Record>] = &[
        ("collective", |_, r| r.collective.clone()),
        ("algo", |_, r| r.algo.clone()),
        ("ranks", |_, r| r.ranks.to_string()),
        ("bytes", |_, r| r.bytes.to_string()),
        ("count", |_, r| r.count.to_string()),
        ("dtype", |_, r| text_of(r.dtype.as_ref())),
        ("op", |_, r| text_of(r.op.as_ref())),
        ("root", |_, r| text_of(r.root)),
        ("in_place", |_, r| r.in_place.to_string()),
        ("memory", |_, r| r.memory.clone()),
        ("split", |_, r| text_of(r.split.as_ref())),
        ("group", |_, r| r.group.clone()),
        ("groups", |_, r| r.groups.to_string()),
        ("world_size", |_, r| r.world_size.to_string()),
        ("min_us", |_, r| r.latency_us.min.to_string()),
        ("median_us", |_, r| r.latency_us.median.to_string()),
        ("p90_us", |_, r| r.latency_us.p90.to_string()),
        ("p99_us", |_, r| r.latency_us.p99.to_string()),
        ("p99_9_us", |_, r| r.latency_us.p99_9.to_string()),
        ("max_us", |_, r| r.latency_us.max.to_string()),
        ("mean_us", |_, r| r.latency_us.mean.to_string()),
        ("algbw_gbytes_per_s", |_, r| text_of(r.algbw_gbytes_per_s)),
        ("busbw_gbytes_per_s", |_, r| text_of(r.busbw_gbytes_per_s)),
        ("wrong", |_, r| text_of(r.wrong)),
        ("samples", |_, r| r.samples.to_string()),
        ("start_skew_median_us", |_, r| {
            text_of(r.start_skew_us.map(|skew| skew.median))
        }),
        ("unsupported", |_, r| text_of(r.unsupported.as_ref())),
        ("backend", |report, _| report.backend.clone()),
        ("emulated", |report, _| report.emulated.to_string()),
        ("taken", |_, r| text_of(r.taken.as_ref())),
        ("segment", |_, r| text_of(r.segment)),
    ];

    const TABLE: &'static [Column<BenchReport, Record>] = &[
        ("what", |_, r| name_of(r)),
        (">median us", |_, r| match &r.unsupported {
            Some(why) => why.clone(),
            None => short(r.latency_us.median),
        }),
        (">p99 us", |_, r| {
            text_of(r.figure().map(|r| short(r.latency_us.p99)))
        }),
        (">algbw GB/s", |_, r| {
            text_of(r.algbw_gbytes_per_s.map(short))
        }),
        (">busbw GB/s", |_, r| {
            text_of(r.busbw_gbytes_per_s.map(short))
        }),
        (">wrong", |_, r| text_of(r.wrong)),
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
        let quantiles = |record| {
            in_seconds(
                &measured::Record::labels(record),
                measured::Record::latency(record),
            )
        };
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

    fn heading(record: &Record) -> String {
        format!("{}\n{}\n", table::heading(record), table::columns())
    }

    fn line(record: &Record) -> String {
        table::line(record) + "\n"
    }

    fn closing(report: &BenchReport) -> String {
        format!("\n{}", table::closing(report))
    }
}

impl Record {
    /// The record, where it has figures.
    fn figure(&self) -> Option<&Self> {
        self.unsupported.is_none().then_some(self)
    }
}

impl measured::Record for Record {
    fn name(&self) -> String {
        name_of(self)
    }

    fn labels(&self) -> Labels {
        let text = |text: &Option<String>| text_of(text.as_ref());
        vec![
            ("collective", self.collective.clone()),
            ("algo", self.algo.clone()),
            ("bytes", self.bytes.to_string()),
            ("dtype", text(&self.dtype)),
            ("op", text(&self.op)),
            ("in_place", self.in_place.to_string()),
            ("memory", self.memory.clone()),
            ("group", self.group.clone()),
            ("groups", self.groups.to_string()),
            ("ranks", self.ranks.to_string()),
            ("world_size", self.world_size.to_string()),
            ("root", text_of(self.root)),
            ("split", text(&self.split)),
        ]
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
