//! The page of `bench`: curves over sizes for what has sizes, ranges for what has none, all figures
//! below, ranks beside each other, and what the machine itself did meanwhile.

use maud::{Markup, html};

use crate::bench::map::{self, Hosts, Square};
use crate::bench::model::{BenchReport, Record};
use crate::bench::table::algorithm;
use crate::out::escaped;
use crate::report::document::Mood;
use crate::report::html::figures::{Against, Heat, heat};
use crate::report::html::lines::{bands, ends, point, rate, spread, wrong_cell};
use crate::report::html::parts::{
    captioned, counted, digits, fact, micros, number, seconds, size, tag,
};
use crate::report::html::plot::{BANDS_MAX, Chart, Point, SERIES_MAX, Series, Unit, figure};
use crate::report::machine::MachineState;
use crate::stats;

/// Rows of figures that are open from the start.
const OPEN_MAX: usize = 12;
/// A share of the processor below which times are not to be trusted much.
const SHARE_LOW: f64 = 0.9;

/// The sections of the page.
pub(super) fn body(report: &BenchReport) -> Markup {
    let families = families(&report.records);
    let hosts = Hosts::new(&report.settings.hosts);
    html! {
        (facts(report))
        @for map in map::maps(&report.records) {
            section {
                h2 { "Pairs of ranks, " (size(map.bytes)) " each way" }
                (pairs("rank", &numbers(&map.median_us), &map.median_us))
                @if hosts.names.len() > 1 { (pairs("host", &hosts.names, &hosts.between(&map.median_us))) }
            }
        }
        (noisy(&report.machine_states))
        @for (number, family) in families.iter().enumerate() { (section(family, number)) }
        (pulse(&report.machine_states))
    }
}

/// Every pair of ranks, or the middle one between any two hosts.
fn pairs(what: &str, names: &[String], square: &Square) -> Markup {
    let table = Heat {
        corner: what.to_owned(),
        columns: names.to_vec(),
        rows: names.iter().cloned().zip(square.iter().cloned()).collect(),
    };
    let caption = format!(
        "Median time of a pair in microseconds, by {what}. The darker, the longer beside the fastest partner of the {what} (full at twice its time)."
    );
    captioned(&caption, heat(&table, Against::Row))
}

fn numbers(square: &Square) -> Vec<String> {
    (0..square.len()).map(|rank| rank.to_string()).collect()
}

/// Records that share everything but size, algorithm and number of ranks.
struct Family<'a> {
    title: String,
    records: Vec<&'a Record>,
}

fn families(records: &[Record]) -> Vec<Family<'_>> {
    let mut families: Vec<Family<'_>> = Vec::new();
    // Pairs have a picture of their own.
    for record in records
        .iter()
        .filter(|record| map::pair(&record.group).is_none())
    {
        let title = title(record);
        match families.iter_mut().find(|family| family.title == title) {
            Some(family) => family.records.push(record),
            None => families.push(Family {
                title,
                records: vec![record],
            }),
        }
    }
    families
}

fn title(record: &Record) -> String {
    let mut words = vec![record.collective.clone()];
    words.extend(record.dtype.clone());
    words.extend(record.op.clone());
    words.extend(record.root.map(|root| format!("root {root}")));
    words.extend(record.split.as_ref().map(|split| format!("{split} blocks")));
    if record.dtype.is_some() {
        words.push(
            if record.in_place {
                "in place"
            } else {
                "out of place"
            }
            .to_owned(),
        );
        words.push(format!("{} memory", record.memory));
    }
    match (record.group.as_str(), record.groups) {
        ("world", 1) => {}
        (kind, 1) => words.push(format!("{kind} of a world of {}", record.world_size)),
        (kind, groups) => {
            words.push(format!(
                "{groups} {kind} groups of a world of {} at once",
                record.world_size
            ));
        }
    }
    words.join(", ")
}

fn facts(report: &BenchReport) -> Markup {
    let samples: u64 = report.records.iter().map(|record| record.samples).sum();
    let wrong: u64 = report
        .records
        .iter()
        .filter_map(|record| record.wrong)
        .sum();
    let checked = report.records.iter().any(|record| record.wrong.is_some());
    let planned = format!("of {}", number(report.cells_planned));
    let wrong = if checked {
        number(wrong)
    } else {
        "not checked".to_owned()
    };
    let transport = match report.transport.as_str() {
        "tcp" => ("TCP", ""),
        "shm" => ("shared memory", ""),
        _ => ("shared memory", "TCP between hosts"),
    };
    html! {
        dl.facts {
            (fact("lines", &number(report.records.len() as u64), &planned))
            (fact("wrong elements", &wrong, ""))
            (fact("samples", &number(samples), &format!("in {}", counted(u64::from(report.rounds), "round", "rounds"))))
            (fact("between ranks", transport.0, transport.1))
            (fact("time", &seconds(report.elapsed_us), ""))
        }
    }
}

/// Ascending figures of all looks at the machine.
fn figures_of(states: &[MachineState], figure: fn(&MachineState) -> f64) -> Vec<f64> {
    let mut all: Vec<f64> = states.iter().map(figure).collect();
    stats::sort(&mut all);
    all
}

/// The share of a processor that a thread got, in the middle.
fn share(states: &[MachineState]) -> f64 {
    stats::median(&figures_of(states, |state| state.pulse.processor_share))
}

/// A warning where something else used the processors.
fn noisy(states: &[MachineState]) -> Markup {
    html! {
        @if !states.is_empty() && share(states) < SHARE_LOW {
            p.note {
                strong { "The machine was not quiet. " }
                "A thread that wanted to run did so " (percent(share(states)))
                " of the time only: something else used the processors, and times hold its part."
            }
        }
    }
}

/// What the machine itself could do between lines.
fn pulse(states: &[MachineState]) -> Markup {
    html! {
        @if !states.is_empty() {
            section aria-labelledby="quiet" {
                h2 #quiet { "Was the machine quiet?" }
                p {
                    @if share(states) < SHARE_LOW { (tag(Mood::Care, "not quiet")) } @else { (tag(Mood::Good, "quiet")) }
                    " A thread that wanted to run did so " (percent(share(states))) " of the time."
                }
                @let caption = format!("{} at the machine between lines, apart from what was measured", counted(states.len() as u64, "look", "looks"));
                (captioned(&caption, html! {
                    table.list {
                        thead { tr { th scope="col" { "figure" } th.n scope="col" { "least" } th.n scope="col" { "median" } th.n scope="col" { "greatest" } } }
                        tbody {
                            (look("share of a processor that a thread got", &figures_of(states, |s| s.pulse.processor_share), percent))
                            (look("half a round trip of a cache line", &figures_of(states, |s| s.pulse.exchange_ns), |ns| micros(ns / 1e3)))
                            (look("copy of 4 MiB", &figures_of(states, |s| s.pulse.copy_gbytes_per_s), |rate| format!("{} GB/s", digits(rate))))
                        }
                    }
                }))
            }
        }
    }
}

fn percent(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}

fn look(name: &str, ascending: &[f64], shown: fn(f64) -> String) -> Markup {
    html! {
        tr {
            th scope="row" { (name) }
            @for quantile in [0.0, 0.5, 1.0] { td.n { (shown(stats::quantile(ascending, quantile))) } }
        }
    }
}

fn section(family: &Family<'_>, number: usize) -> Markup {
    let measured: Vec<&Record> = family
        .records
        .iter()
        .copied()
        .filter(|r| r.unsupported.is_none())
        .collect();
    let first = measured.first().map(|record| record.bytes);
    let has_sizes = measured
        .iter()
        .any(|record| Some(record.bytes) != first && record.bytes > 0);
    let id = format!("line{number}");
    html! {
        section aria-labelledby=(id) {
            h2 id=(id) { (escaped(&family.title)) }
            @if has_sizes { (curves(&measured, &id)) }
            @if !has_sizes || family.records.len() <= OPEN_MAX {
                (figures(family))
            } @else {
                details { summary { "All figures" } (figures(family)) }
            }
            (ranks(&measured))
        }
    }
}

/// Latency and bandwidth, in pairs of charts of as many lines as can be told apart.
fn curves(records: &[&Record], id: &str) -> Markup {
    let mut worlds: Vec<u32> = records.iter().map(|record| record.ranks).collect();
    worlds.sort_unstable();
    worlds.dedup();
    let lines = names(records, None).len();
    // Bands of many lines hide each other: a chart for each number of ranks.
    let split: Vec<Option<u32>> = if lines > BANDS_MAX && worlds.len() > 1 {
        worlds.into_iter().map(Some).collect()
    } else {
        vec![None]
    };
    html! {
        @for (part, ranks) in split.iter().enumerate() {
            @let names = names(records, *ranks);
            @for (chunk, names) in names.chunks(SERIES_MAX).enumerate() {
                @let title = |what: &str| match ranks {
                    Some(ranks) => format!("{what}, {}", counted(u64::from(*ranks), "rank", "ranks")),
                    None => what.to_owned(),
                };
                @let id = format!("{id}-{part}-{chunk}");
                div.charts {
                    (figure(&Chart {
                        title: &title("Latency of the slowest rank"),
                        more: bands(names.len()),
                        x: (Unit::Bytes, "size"),
                        y: (Unit::Micros, "time of a call"),
                        series: &series(records, names, latency),
                        id: &format!("{id}-l"),
                    }))
                    (figure(&Chart {
                        title: &title("Bus bandwidth"),
                        more: "from the median time",
                        x: (Unit::Bytes, "size"),
                        y: (Unit::GigabytesPerSecond, "GB/s"),
                        series: &series(records, names, bandwidth),
                        id: &format!("{id}-b"),
                    }))
                }
            }
        }
    }
}

/// What tells lines of a family apart: ranks and algorithm.
fn names(records: &[&Record], ranks: Option<u32>) -> Vec<(u32, String)> {
    let mut names: Vec<(u32, String)> = Vec::new();
    for record in records
        .iter()
        .filter(|r| ranks.is_none_or(|ranks| r.ranks == ranks))
    {
        let name = (record.ranks, record.algo.clone());
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn series(
    records: &[&Record],
    names: &[(u32, String)],
    point: fn(&Record) -> Option<Point>,
) -> Vec<Series> {
    let one_world = names.iter().all(|name| name.0 == names[0].0);
    let one_algo = names.iter().all(|name| name.1 == names[0].1);
    let of = |(ranks, algo): &(u32, String)| Series {
        name: match (one_world, one_algo) {
            (true, false) => algo.clone(),
            (_, true) => counted(u64::from(*ranks), "rank", "ranks"),
            (false, false) => format!("{ranks} ranks, {algo}"),
        },
        points: records
            .iter()
            .filter(|record| record.ranks == *ranks && record.algo == *algo)
            .filter_map(|record| point(record))
            .collect(),
    };
    names.iter().map(of).collect()
}

fn latency(record: &Record) -> Option<Point> {
    (record.bytes > 0).then(|| point(record.bytes as f64, &record.latency_us))
}

fn bandwidth(record: &Record) -> Option<Point> {
    Some(Point {
        x: record.bytes as f64,
        y: record.busbw_gbytes_per_s?,
        inner: None,
        outer: None,
    })
}

fn figures(family: &Family<'_>) -> Markup {
    let ends = ends(family.records.iter().map(|record| &record.latency_us));
    captioned(
        "Times are those of the slowest rank, in microseconds; the bar goes from the least to 99 % of the samples, its stroke is the median.",
        html! {
            table.list {
                thead { tr {
                    th.n scope="col" { "ranks" } th.n scope="col" { "size" } th scope="col" { "algorithm" }
                    th scope="col" { "spread" }
                    @for name in ["min", "median", "p90", "p99", "max", "algbw GB/s", "busbw GB/s", "wrong", "samples"] {
                        th.n scope="col" { (name) }
                    }
                } }
                tbody { @for record in &family.records { (row(record, ends)) } }
            }
        },
    )
}

fn row(record: &Record, ends: (f64, f64)) -> Markup {
    let times = &record.latency_us;
    html! {
        tr {
            td.n { (record.ranks) }
            th.n scope="row" { @if record.bytes > 0 { (size(record.bytes)) } @else { "–" } }
            td { (escaped(&algorithm(record))) }
            @if let Some(why) = &record.unsupported {
                td.text colspan="10" { "not measured: " (escaped(why)) }
            } @else {
                td { (spread(times, ends)) }
                @for time in [times.min, times.median, times.p90, times.p99, times.max] { td.n { (digits(time)) } }
                td.n { (rate(record.algbw_gbytes_per_s)) }
                td.n { (rate(record.busbw_gbytes_per_s)) }
                (wrong_cell(record.wrong))
                td.n { (number(record.samples)) }
            }
        }
    }
}

/// Medians of each rank beside each other: who is slow shows here.
fn ranks(records: &[&Record]) -> Markup {
    let columns = records
        .iter()
        .map(|record| record.rank_median_us.len())
        .max()
        .unwrap_or(0);
    let told: Vec<&&Record> = records
        .iter()
        .filter(|record| !record.rank_median_us.is_empty())
        .collect();
    if columns < 2 || told.is_empty() {
        return html! {};
    }
    let name = |record: &Record| {
        let ranks = counted(u64::from(record.ranks), "rank", "ranks");
        let size = if record.bytes > 0 {
            size(record.bytes)
        } else {
            "no size".to_owned()
        };
        format!("{size}, {ranks}, {}", record.algo)
    };
    let table = Heat {
        corner: "median in µs of rank".to_owned(),
        columns: (0..columns).map(|rank| rank.to_string()).collect(),
        rows: told
            .iter()
            .map(|record| (name(record), record.rank_median_us.clone()))
            .collect(),
    };
    html! {
        details {
            summary { "Rank by rank" }
            (captioned("The darker, the longer beside the fastest rank of the row (full at twice its time); the slowest is underlined where it stands out.", heat(&table, Against::Row)))
        }
    }
}
