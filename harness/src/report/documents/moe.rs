//! The result of `moe` as a document.

use std::fmt::Write as _;

use maud::Markup;

use crate::bench::table::short;
use crate::fail::Failure;
use crate::moe::report::{MoeReport, Record, Timing};
use crate::report::document::{About, Document, Headline, Metric, Suite, SuiteCase};
use crate::report::documents::measured::{
    Labels, Measured, headline, in_seconds, measured, quantiles, result, samples, whole,
};
use crate::report::html::parts::counted;
use crate::report::{json, markdown};

mod layer;
mod page;

/// The names of the columns, in their order.
const HEADER: &str = "tokens,routing,dispatcher,dtype,\
    dispatch_min_us,dispatch_median_us,dispatch_p90_us,dispatch_p99_us,dispatch_max_us,\
    combine_min_us,combine_median_us,combine_p90_us,combine_p99_us,combine_max_us,\
    round_trip_min_us,round_trip_median_us,round_trip_p90_us,round_trip_p99_us,round_trip_max_us,\
    dispatch_algbw_gbytes_per_s,dispatch_busbw_gbytes_per_s,dispatch_deepep_gbytes_per_s,\
    experts_max_over_mean,ranks_max_over_mean,experts_gini,ranks_gini,dropped,rows,off_rank_bytes,wrong,wrong_text,unsupported";
/// Rows that Markdown shows.
const LISTED_MAX: usize = 200;

impl Document for MoeReport {
    fn about(&self) -> About<'_> {
        About {
            command: "moe",
            tool: &self.tool,
            schema_version: self.schema_version,
            exit: self.exit(),
            partial: self.partial,
            backend: Some(&self.backend),
            emulated: self.emulated,
            seed: Some(self.seed),
            elapsed_us: self.elapsed_us,
            verdict: self.verdict.as_ref(),
            machine: Some(&self.machine),
            origin: self.origin.as_ref(),
        }
    }

    fn headline(&self) -> Headline {
        let passed = || {
            format!(
                "{} of {} measured: every checked row came from its token, every combined token is right",
                counted(self.records.len() as u64, "line", "lines"),
                self.model.name,
            )
        };
        headline(
            self.exit(),
            self.verdict.as_ref(),
            &self.records,
            self.cells_planned,
            self.passed.then(passed),
        )
    }

    fn json(&self) -> Result<String, Failure> {
        json::line(self)
    }

    fn body(&self) -> Markup {
        page::body(self)
    }

    fn suites(&self) -> Vec<Suite> {
        let case = |record: &Record| SuiteCase {
            class: format!("moe.{}.{}", record.dispatcher, record.routing),
            name: name_of(record),
            elapsed_us: whole(record.round_trip.latency_us.median),
            result: result(record),
        };
        vec![Suite {
            name: self.model.name.clone(),
            cases: self.records.iter().map(case).collect(),
        }]
    }

    fn sheet(&self) -> Vec<Vec<String>> {
        let mut rows = vec![HEADER.split(',').map(str::to_owned).collect()];
        rows.extend(self.records.iter().map(row));
        rows
    }

    fn metrics(&self) -> Vec<Metric> {
        let of_record = |record: &Record| {
            parts(record).map(|(part, timing)| {
                let mut labels = record.labels();
                labels.push(("part", part.to_owned()));
                in_seconds(&labels, &timing.latency_us)
            })
        };
        let latency = measured(&self.records).flat_map(of_record).flatten();
        let of = |value: fn(&Record) -> Option<f64>| samples(&self.records, value);
        vec![
            Metric {
                name: "muster_moe_latency_seconds",
                help: "Time of a part of the step on the slowest rank, by quantile",
                samples: latency.collect(),
            },
            Metric {
                name: "muster_moe_dispatch_busbw_bytes_per_second",
                help: "Bus bandwidth of dispatch, as nccl-tests counts it",
                samples: of(|record| Some(record.dispatch.busbw_gbytes_per_s? * 1e9)),
            },
            Metric {
                name: "muster_moe_ranks_max_over_mean",
                help: "Load of the busiest rank over the mean",
                samples: of(|record| Some(record.imbalance.achieved.ranks.max_over_mean)),
            },
            Metric {
                name: "muster_moe_wrong_elements",
                help: "Wrong elements that ranks found",
                samples: of(|record| Some(record.wrong as f64)),
            },
        ]
    }

    fn markdown(&self) -> String {
        let mut text = String::from(
            "| what | dispatch us | combine us | round trip us | busbw GB/s | max/mean of ranks | wrong |\n\
             |---|---:|---:|---:|---:|---:|---:|\n",
        );
        for record in self.records.iter().take(LISTED_MAX) {
            let name = markdown::cell(&name_of(record));
            if let Some(why) = &record.unsupported {
                let _ = writeln!(text, "| {name} | {} | | | | | |", markdown::cell(why));
                continue;
            }
            let rate = record.dispatch.busbw_gbytes_per_s;
            let _ = writeln!(
                text,
                "| {name} | {} | {} | {} | {} | {:.2} | {} |",
                short(record.dispatch.latency_us.median),
                short(record.combine.latency_us.median),
                short(record.round_trip.latency_us.median),
                rate.map_or_else(String::new, short),
                record.imbalance.achieved.ranks.max_over_mean,
                record.wrong,
            );
        }
        if self.records.len() > LISTED_MAX {
            let _ = writeln!(text, "\nand {} more", self.records.len() - LISTED_MAX);
        }
        text
    }
}

/// What a record is about, in words.
fn name_of(record: &Record) -> String {
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

impl Measured for Record {
    fn name(&self) -> String {
        name_of(self)
    }

    fn labels(&self) -> Labels {
        vec![
            ("tokens", self.tokens.to_string()),
            ("routing", self.routing.clone()),
            ("dispatcher", self.dispatcher.clone()),
            ("dtype", self.dtype.clone()),
        ]
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

fn row(record: &Record) -> Vec<String> {
    let labels = record.labels().into_iter();
    let mut fields: Vec<String> = labels.map(|(_, value)| value).collect();
    for (_, timing) in parts(record) {
        fields.extend(quantiles(&timing.latency_us).map(|(_, time)| time.to_string()));
    }
    let rate = |rate: Option<f64>| rate.map_or_else(String::new, |rate| rate.to_string());
    let achieved = &record.imbalance.achieved;
    fields.extend([
        rate(record.dispatch.algbw_gbytes_per_s),
        rate(record.dispatch.busbw_gbytes_per_s),
        rate(record.dispatch.deepep_gbytes_per_s),
        achieved.experts.max_over_mean.to_string(),
        achieved.ranks.max_over_mean.to_string(),
        achieved.experts.gini.to_string(),
        achieved.ranks.gini.to_string(),
        record.imbalance.dropped.to_string(),
        record.volume.rows.to_string(),
        record.volume.off_rank_bytes.to_string(),
        record.wrong.to_string(),
        record.wrong_text.clone().unwrap_or_default(),
        record.unsupported.clone().unwrap_or_default(),
    ]);
    fields
}
