//! The result of `bench` as a document.

use std::fmt::Write as _;

use maud::Markup;

use crate::bench::csv;
use crate::bench::model::{BenchReport, Record};
use crate::bench::table::{short, size};
use crate::compare::rows::name_of;
use crate::fail::Failure;
use crate::report::document::{About, Document, Headline, Metric, Suite, SuiteCase};
use crate::report::documents::measured::{
    Labels, Measured, headline, in_seconds, measured, result, samples, whole,
};
use crate::report::html::parts::counted;
use crate::report::{json, markdown};

mod page;

/// Rows that Markdown shows.
const LISTED_MAX: usize = 200;

impl Document for BenchReport {
    fn about(&self) -> About<'_> {
        About {
            command: "bench",
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
        headline(
            self.exit(),
            self.verdict.as_ref(),
            &self.records,
            self.cells_planned,
            self.passed.then(|| self.measured_in_words()),
        )
    }

    fn json(&self) -> Result<String, Failure> {
        json::line(self)
    }

    fn body(&self) -> Markup {
        page::body(self)
    }

    fn suites(&self) -> Vec<Suite> {
        let mut suites: Vec<Suite> = Vec::new();
        for record in &self.records {
            let case = SuiteCase {
                class: format!("bench.{}.{}", record.collective, record.group),
                name: name_of(record),
                elapsed_us: whole(record.latency_us.median),
                result: result(record),
            };
            match suites
                .iter_mut()
                .find(|suite| suite.name == record.collective)
            {
                Some(suite) => suite.cases.push(case),
                None => suites.push(Suite {
                    name: record.collective.clone(),
                    cases: vec![case],
                }),
            }
        }
        suites
    }

    fn sheet(&self) -> Vec<Vec<String>> {
        csv::sheet(self)
    }

    fn metrics(&self) -> Vec<Metric> {
        let latency = measured(&self.records)
            .flat_map(|record| in_seconds(&record.labels(), &record.latency_us))
            .collect();
        let of = |value: fn(&Record) -> Option<f64>| samples(&self.records, value);
        vec![
            Metric {
                name: "muster_bench_latency_seconds",
                help: "Time of a call on the slowest rank, by quantile",
                samples: latency,
            },
            Metric {
                name: "muster_bench_algbw_bytes_per_second",
                help: "Bytes over the median time",
                samples: of(|record| Some(record.algbw_gbytes_per_s? * 1e9)),
            },
            Metric {
                name: "muster_bench_busbw_bytes_per_second",
                help: "Bytes over the median time, with the factor of the collective",
                samples: of(|record| Some(record.busbw_gbytes_per_s? * 1e9)),
            },
            Metric {
                name: "muster_bench_wrong_elements",
                help: "Wrong elements that ranks found",
                samples: of(|record| Some(record.wrong? as f64)),
            },
        ]
    }

    fn markdown(&self) -> String {
        let mut text = String::from(
            "| what | median us | p99 us | algbw GB/s | busbw GB/s | wrong |\n|---|---:|---:|---:|---:|---:|\n",
        );
        let rate = |rate: Option<f64>| rate.map_or_else(String::new, short);
        for record in self.records.iter().take(LISTED_MAX) {
            let name = markdown::cell(&name_of(record));
            let _ = match &record.unsupported {
                Some(why) => writeln!(text, "| {name} | {} | | | | |", markdown::cell(why)),
                None => writeln!(
                    text,
                    "| {name} | {} | {} | {} | {} | {} |",
                    short(record.latency_us.median),
                    short(record.latency_us.p99),
                    rate(record.algbw_gbytes_per_s),
                    rate(record.busbw_gbytes_per_s),
                    record
                        .wrong
                        .map_or_else(String::new, |wrong| wrong.to_string()),
                ),
            };
        }
        if self.records.len() > LISTED_MAX {
            let _ = writeln!(text, "\nand {} more", self.records.len() - LISTED_MAX);
        }
        text
    }
}

impl BenchReport {
    fn measured_in_words(&self) -> String {
        let checked = self
            .records
            .iter()
            .filter(|record| record.wrong == Some(0))
            .count();
        let right = match checked {
            0 => "no data was checked".to_owned(),
            all if all == self.records.len() => "every checked element was right".to_owned(),
            some => format!("every checked element was right, in {some} of them"),
        };
        let best = self
            .records
            .iter()
            .filter_map(|record| Some((record.busbw_gbytes_per_s?, record)));
        let best = best.max_by(|one, other| one.0.total_cmp(&other.0));
        let best = best.map_or_else(String::new, |(rate, record)| {
            format!(
                "; the best bus bandwidth was {} GB/s, {} of {} on {}",
                short(rate),
                record.collective,
                size(record.bytes),
                counted(u64::from(record.ranks), "rank", "ranks"),
            )
        });
        let lines = counted(self.records.len() as u64, "line", "lines");
        format!("{lines} measured, and {right}{best}")
    }
}

impl Measured for Record {
    fn name(&self) -> String {
        name_of(self)
    }

    fn labels(&self) -> Labels {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
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
            (
                "root",
                self.root.map_or_else(String::new, |root| root.to_string()),
            ),
            ("split", text(&self.split)),
        ]
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
