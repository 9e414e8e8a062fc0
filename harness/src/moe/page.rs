//! The page of `moe`: curves over tokens, all lines, and every line from the inside.

use std::fmt::Write as _;

use maud::{Markup, html};

use crate::moe::report::{MoeReport, Record, Timing};
use crate::out::escaped;
use crate::report::html::lines::{bands, ends, point, rate, spread, wrong_cell};
use crate::report::html::parts::{captioned, counted, digits, fact, micros, number, seconds};
use crate::report::html::plot::{Chart, Point, SERIES_MAX, Series, Unit, figure};
use crate::report::measured::measured;

use super::inside;

/// Lines whose inside is open from the start.
const OPEN_MAX: usize = 2;

/// The sections of the page.
pub(super) fn body(report: &MoeReport) -> Markup {
    html! {
        (facts(report))
        @if !report.records.is_empty() {
            (curves(report))
            section aria-labelledby="lines" {
                h2 #lines { "Lines" }
                (lines(&report.records))
            }
            section aria-labelledby="inside" {
                h2 #inside { "Inside the layer" }
                p { "Where the time of a step goes, who carried most, and who waited for whom." }
                @for record in measured(&report.records) {
                    @if report.records.len() <= OPEN_MAX {
                        h3 { (escaped(&super::document::name_of(record))) }
                        (inside::inside(record))
                    } @else {
                        details {
                            summary { (escaped(&super::document::name_of(record))) ": round trip " (micros(record.round_trip.latency_us.median)) }
                            (inside::inside(record))
                        }
                    }
                }
            }
        }
    }
}

fn facts(report: &MoeReport) -> Markup {
    let (model, layout) = (&report.settings.model, &report.settings.layout);
    let wrong: u64 = report.records.iter().map(|record| record.wrong).sum();
    let shape = format!(
        "hidden {}, {} experts, top-{}",
        model.hidden, model.experts, model.top_k
    );
    let sizes = format!("TP {}, EP {}, ETP {}", layout.tp, layout.ep, layout.etp);
    let rounds = counted(u64::from(report.rounds), "round", "rounds");
    html! {
        dl.facts {
            (fact("model", &model.name, &shape))
            (fact("ranks", &number(u64::from(layout.world_size)), &sizes))
            (fact("lines", &number(report.records.len() as u64), &format!("of {}", number(report.cells_planned))))
            (fact("wrong elements", &number(wrong), ""))
            (fact("timed steps", &number(u64::from(report.settings.steps)), &format!("a line, in {rounds}")))
            (fact("time", &seconds(report.elapsed_us), ""))
        }
    }
}

/// What is the same for the lines of one pair of charts, and those lines.
fn families(records: &[Record]) -> Vec<((&str, &str), Vec<&Record>)> {
    let mut families: Vec<((&str, &str), Vec<&Record>)> = Vec::new();
    for record in records {
        let key = (record.dispatcher.as_str(), record.dtype.as_str());
        match families.iter_mut().find(|(known, _)| *known == key) {
            Some((_, records)) => records.push(record),
            None => families.push((key, vec![record])),
        }
    }
    families
}

fn curves(report: &MoeReport) -> Markup {
    let families = families(&report.records);
    let is_sweep = |records: &[&Record]| {
        let first = records.first().map(|record| record.tokens);
        records.iter().any(|record| Some(record.tokens) != first)
    };
    html! {
        @for (number, (key, records)) in families.iter().enumerate().filter(|(_, family)| is_sweep(&family.1)) {
            section {
                h2 { "Dispatcher " (escaped(key.0)) ", " (escaped(key.1)) }
                @let routings = routings(records);
                @for (chunk, routings) in routings.chunks(SERIES_MAX).enumerate() {
                    div.charts {
                        @for (part, title, of) in parts() {
                            (figure(&Chart {
                                title,
                                more: bands(routings.len()),
                                x: (Unit::Count, "tokens of a rank"),
                                y: (Unit::Micros, "time on the slowest rank"),
                                series: &series(records, routings, |record| Some(point(record.tokens as f64, &of(record).latency_us))),
                                id: &format!("{part}{number}-{chunk}"),
                            }))
                        }
                        (figure(&Chart {
                            title: "Bus bandwidth of dispatch",
                            more: "by nccl-tests’ rule, from the median time",
                            x: (Unit::Count, "tokens of a rank"),
                            y: (Unit::GigabytesPerSecond, "GB/s"),
                            series: &series(records, routings, bandwidth),
                            id: &format!("bw{number}-{chunk}"),
                        }))
                    }
                }
            }
        }
    }
}

type Part = (&'static str, &'static str, fn(&Record) -> &Timing);

fn parts() -> [Part; 3] {
    [
        ("d", "Dispatch", |record| &record.dispatch),
        ("c", "Combine", |record| &record.combine),
        ("r", "Round trip", |record| &record.round_trip),
    ]
}

fn routings<'a>(records: &[&'a Record]) -> Vec<&'a str> {
    let mut routings: Vec<&str> = Vec::new();
    for record in records {
        if !routings.contains(&record.routing.as_str()) {
            routings.push(&record.routing);
        }
    }
    routings
}

fn series(
    records: &[&Record],
    routings: &[&str],
    point: impl Fn(&Record) -> Option<Point>,
) -> Vec<Series> {
    let of = |routing: &&str| Series {
        name: (*routing).to_owned(),
        points: records
            .iter()
            .filter(|record| record.routing == **routing)
            .filter_map(|record| point(record))
            .collect(),
    };
    routings.iter().map(of).collect()
}

fn bandwidth(record: &Record) -> Option<Point> {
    Some(Point {
        x: record.tokens as f64,
        y: record.dispatch.busbw_gbytes_per_s?,
        inner: None,
        outer: None,
    })
}

fn lines(records: &[Record]) -> Markup {
    let ends = ends(records.iter().map(|record| &record.round_trip.latency_us));
    let shown = Columns::of(records);
    let caption = format!(
        "Times on the slowest rank, in microseconds{}. The bar is the round trip from its least to 99 % of the steps, \
         its stroke the median. Imbalance is the load of the busiest over the mean.",
        shown.left_out(records)
    );
    captioned(
        &caption,
        html! {
            table.list {
                thead { tr {
                    th.n scope="col" { "tokens" } th scope="col" { "routing" }
                    @if shown.dispatcher { th scope="col" { "dispatcher" } }
                    @if shown.dtype { th scope="col" { "type" } }
                    th.n scope="col" { "dispatch" } th.n scope="col" { "p99" } th.n scope="col" { "combine" } th.n scope="col" { "p99" }
                    th.n scope="col" { "round trip" } th scope="col" { "spread" }
                    th.n scope="col" { "busbw" br; "GB/s" } th.n scope="col" { "DeepEP" br; "GB/s" }
                    th.n scope="col" { "busiest" br; "expert" } th.n scope="col" { "busiest" br; "rank" } th.n scope="col" { "wrong" }
                } }
                tbody { @for record in records { (line(record, shown, ends)) } }
            }
        },
    )
}

/// Which columns tell lines apart; what all lines share stands above.
#[derive(Clone, Copy)]
struct Columns {
    dispatcher: bool,
    dtype: bool,
}

impl Columns {
    fn of(records: &[Record]) -> Self {
        let differs = |of: fn(&Record) -> &str| {
            let first = records.first().map(of);
            records.iter().any(|record| Some(of(record)) != first)
        };
        Self {
            dispatcher: differs(|record| &record.dispatcher),
            dtype: differs(|record| &record.dtype),
        }
    }

    fn left_out(self, records: &[Record]) -> String {
        let Some(first) = records.first() else {
            return String::new();
        };
        let mut text = String::new();
        for (shown, name, value) in [
            (self.dispatcher, "dispatcher", &first.dispatcher),
            (self.dtype, "type", &first.dtype),
        ] {
            if !shown {
                let _ = write!(text, ", {name} {value}");
            }
        }
        text
    }
}

fn line(record: &Record, shown: Columns, ends: (f64, f64)) -> Markup {
    let trip = &record.round_trip.latency_us;
    let achieved = &record.imbalance.achieved;
    html! {
        tr {
            th.n scope="row" { (number(record.tokens)) }
            td.nb { (escaped(&record.routing)) }
            @if shown.dispatcher { td.nb { (escaped(&record.dispatcher)) } }
            @if shown.dtype { td { (escaped(&record.dtype)) } }
            @if let Some(why) = &record.unsupported {
                td.text colspan="11" { "not measured: " (escaped(why)) }
            } @else {
            @for timing in [&record.dispatch, &record.combine] {
                td.n { (digits(timing.latency_us.median)) }
                td.n.soft { (digits(timing.latency_us.p99)) }
            }
            td.n { (digits(trip.median)) }
            td { (spread(trip, ends)) }
            td.n { (rate(record.dispatch.busbw_gbytes_per_s)) }
            td.n { (rate(record.dispatch.deepep_gbytes_per_s)) }
            td.n { (format!("{:.2}", achieved.experts.max_over_mean)) }
            td.n { (format!("{:.2}", achieved.ranks.max_over_mean)) }
            (wrong_cell(Some(record.wrong)))
            }
        }
    }
}
