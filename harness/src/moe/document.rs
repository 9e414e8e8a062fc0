//! What `moe` brings to its report: columns, sentences, figures, rows.

use maud::Markup;

use crate::moe::report::{MoeReport, Record, Settings, Timing};
use crate::moe::table;
use crate::report::document::{Metric, text_of};
use crate::report::html::parts::{counted, short};
use crate::report::markdown::Column;
use crate::report::measured::{self, Labels, Latency, Measures, in_seconds, measured, metric};

impl Measures for Settings {
    type Record = Record;
    const COMMAND: &'static str = "moe";
    const VERSION: u32 = 1;
    const TEXTS: [&'static str; 2] = ["The outcome of `moe`.", "Seed of routing."];

    const SHEET: &'static str = "tokens routing dispatcher dtype \
        dispatch_min_us=dispatch.latency_us.min dispatch_median_us=dispatch.latency_us.median \
        dispatch_p90_us=dispatch.latency_us.p90 dispatch_p99_us=dispatch.latency_us.p99 dispatch_max_us=dispatch.latency_us.max \
        combine_min_us=combine.latency_us.min combine_median_us=combine.latency_us.median \
        combine_p90_us=combine.latency_us.p90 combine_p99_us=combine.latency_us.p99 combine_max_us=combine.latency_us.max \
        round_trip_min_us=round_trip.latency_us.min round_trip_median_us=round_trip.latency_us.median \
        round_trip_p90_us=round_trip.latency_us.p90 round_trip_p99_us=round_trip.latency_us.p99 round_trip_max_us=round_trip.latency_us.max \
        dispatch_algbw_gbytes_per_s=dispatch.algbw_gbytes_per_s dispatch_busbw_gbytes_per_s=dispatch.busbw_gbytes_per_s \
        dispatch_deepep_gbytes_per_s=dispatch.deepep_gbytes_per_s \
        experts_max_over_mean=imbalance.achieved.experts.max_over_mean \
        ranks_max_over_mean=imbalance.achieved.ranks.max_over_mean experts_gini=imbalance.achieved.experts.gini \
        ranks_gini=imbalance.achieved.ranks.gini dropped=imbalance.dropped rows=volume.rows padding_bytes=volume.padding_bytes \
        off_rank_bytes=volume.off_rank_bytes wrong wrong_text unsupported";

    const TABLE: &'static [Column<Record>] = &[
        ("what", |r| name_of(r)),
        (">dispatch us", |r| match &r.unsupported {
            Some(why) => why.clone(),
            None => short(r.dispatch.latency_us.median),
        }),
        (">combine us", |r| {
            text_of(r.figure().map(|r| short(r.combine.latency_us.median)))
        }),
        (">round trip us", |r| {
            text_of(r.figure().map(|r| short(r.round_trip.latency_us.median)))
        }),
        (">busbw GB/s", |r| {
            text_of(
                r.figure()
                    .and_then(|r| r.dispatch.busbw_gbytes_per_s.map(short)),
            )
        }),
        (">max/mean of ranks", |r| {
            text_of(
                r.figure()
                    .map(|r| format!("{:.2}", r.imbalance.achieved.ranks.max_over_mean)),
            )
        }),
        ("capacity", |r| {
            text_of(r.figure().and_then(table::capacity))
        }),
        (">wrong", |r| text_of(r.figure().map(|r| r.wrong))),
    ];

    fn passed(report: &MoeReport) -> String {
        format!(
            "{} of {} measured: every checked row came from its token, every combined token is right",
            counted(report.records.len() as u64, "line", "lines"),
            report.settings.model.name,
        )
    }

    fn suite_and_class(report: &MoeReport, record: &Record) -> (String, String) {
        let class = format!("moe.{}.{}", record.dispatcher, record.routing);
        (report.settings.model.name.clone(), class)
    }

    fn body(report: &MoeReport) -> Markup {
        super::page::body(report)
    }

    fn metrics(records: &[Record]) -> Vec<Metric> {
        let of_record = |record| {
            parts(record)
                .map(|(part, timing)| in_seconds(record, Some(("part", part)), &timing.latency_us))
        };
        let latency = measured(records).flat_map(of_record).flatten();
        vec![
            Metric {
                name: "muster_moe_latency_seconds",
                help: "Time of a part of the step on the slowest rank, by quantile",
                samples: latency.collect(),
            },
            metric(
                "muster_moe_dispatch_busbw_bytes_per_second",
                "Bus bandwidth of dispatch, as nccl-tests counts it",
                records,
                |record| Some(record.dispatch.busbw_gbytes_per_s? * 1e9),
            ),
            metric(
                "muster_moe_ranks_max_over_mean",
                "Load of the busiest rank over the mean",
                records,
                |record| Some(record.imbalance.achieved.ranks.max_over_mean),
            ),
            metric(
                "muster_moe_wrong_elements",
                "Wrong elements that ranks found",
                records,
                |record| Some(record.wrong as f64),
            ),
        ]
    }

    fn rows<'a>(report: &'a MoeReport, record: &'a Record) -> Vec<(String, &'a [Vec<f64>])> {
        let row = |(part, timing): (&str, &'a Timing)| {
            (row_name(report, record, part), &timing.samples_us[..])
        };
        parts(record).map(row).into()
    }

    /// The seed decides who sends what where.
    fn conditions(report: &MoeReport) -> Labels {
        vec![("seed", report.seed.to_string())]
    }

    fn opening(report: &MoeReport) -> String {
        table::heading(report) + &table::columns()
    }

    fn line(record: &Record) -> String {
        table::line(record)
    }

    fn closing(report: &MoeReport) -> String {
        // Details of one line fit a screen; of many they would hide the lines.
        let details = match &report.records[..] {
            [record] => table::details(record),
            _ => String::new(),
        };
        format!("{details}\n{}", table::closing(report))
    }
}

impl Record {
    /// The record, where it has figures.
    fn figure(&self) -> Option<&Self> {
        self.unsupported.is_none().then_some(self)
    }
}

/// What a record is about, in words.
pub(super) fn name_of(record: &Record) -> String {
    format!(
        "{}, {} a rank, {}, {}",
        record.routing,
        counted(record.tokens, "token", "tokens"),
        record.dispatcher,
        record.dtype
    )
}

/// The parts of a step that are timed apart.
fn parts(record: &Record) -> [(&'static str, &Timing); 3] {
    [
        ("dispatch", &record.dispatch),
        ("combine", &record.combine),
        ("round trip", &record.round_trip),
    ]
}

/// What a part of a dispatch is about, in words.
fn row_name(report: &MoeReport, record: &Record, part: &str) -> String {
    let (model, layout) = (&report.settings.model, &report.settings.layout);
    let shape = match model.name.as_str() {
        "custom" => format!(
            "hidden {}, {} experts, top-{}",
            model.hidden, model.experts, model.top_k
        ),
        name => name.to_owned(),
    };
    format!(
        "{part}, {shape}, tp{} ep{} etp{} on {} ranks, {} tokens, {}, {}, {}",
        layout.tp,
        layout.ep,
        layout.etp,
        layout.world_size,
        record.tokens,
        record.routing,
        record.dispatcher,
        record.dtype
    )
}

impl measured::Record for Record {
    const LABELS: &'static str = "tokens routing dispatcher dtype";

    fn name(&self) -> String {
        name_of(self)
    }

    fn latency(&self) -> &Latency {
        &self.round_trip.latency_us
    }

    fn rounds_us(&self) -> Option<&[Vec<f64>]> {
        Some(&self.round_trip.samples_us)
    }

    fn wrong(&self) -> u64 {
        self.wrong
    }

    fn wrong_text(&self) -> Option<&str> {
        self.wrong_text.as_deref()
    }

    fn unsupported(&self) -> Option<&str> {
        self.unsupported.as_deref()
    }
}
