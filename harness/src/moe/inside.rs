//! One line of `moe` from the inside: phases, ranks, waits, imbalance, volume.

use std::fmt::Write as _;

use maud::{Markup, html};

use crate::moe::report::{Loads, PhaseTime, RankRow, Record};
use crate::moe::table::phase_name;
use crate::out::escaped;
use crate::report::html::figures::{self, Against, Heat, bar, heat};
use crate::report::html::parts::{captioned, digits, micros, number, size};

/// What happened within one line.
pub(super) fn inside(record: &Record) -> Markup {
    html! {
        @if let Some(text) = &record.wrong_text { p.note { strong { "Wrong data. " } (escaped(text)) } }
        @if let Some(sentence) = burden(&record.ranks) { p { (sentence) } }
        div.charts {
            div { (phases(&record.phases_us)) }
            div { (loads(record)) }
        }
        (waits(&record.ranks))
        (waits_for(&record.ranks))
        (ranks(&record.ranks))
    }
}

/// Who carried most, and how long the others waited.
fn burden(ranks: &[RankRow]) -> Option<String> {
    let busiest = ranks.iter().max_by_key(|rank| rank.rows_received)?;
    let rows: u64 = ranks.iter().map(|rank| rank.rows_received).sum();
    let mean = rows as f64 / ranks.len() as f64;
    let waits = ranks
        .iter()
        .flat_map(|rank| rank.wait_us.iter().map(move |wait| (rank.rank, wait)));
    let longest = waits.max_by(|one, other| one.1.median.total_cmp(&other.1.median));
    let over = busiest.rows_received as f64 / mean.max(f64::MIN_POSITIVE);
    let mut text = if over < 1.02 {
        "All ranks received about the same number of rows".to_owned()
    } else {
        format!(
            "Rank {} received most: {} rows, {over:.2} times the mean",
            busiest.rank,
            number(busiest.rows_received)
        )
    };
    if let Some((rank, wait)) = longest.filter(|(_, wait)| wait.median > 0.0) {
        let _ = write!(
            text,
            "; the longest wait was that of rank {rank}, {} in “{}”",
            micros(wait.median),
            phase_name(wait.phase)
        );
    }
    Some(text + ".")
}

fn phases(phases: &[PhaseTime]) -> Markup {
    let longest = phases.iter().map(|time| time.median).fold(0.0, f64::max);
    let all: f64 = phases.iter().map(|time| time.median).sum();
    captioned(
        "Phases of a step: the median of the slowest rank",
        html! {
            table.list {
                thead { tr { th scope="col" { "phase" } th scope="col" { "time" } th.n scope="col" { "µs" } th.n scope="col" { "of all" } } }
                tbody {
                    @for time in phases {
                        tr {
                            th scope="row" { (phase_name(time.phase)) }
                            td { (bar(time.median, longest, &micros(time.median))) }
                            td.n { (digits(time.median)) }
                            td.n { (format!("{:.0} %", time.median / all.max(f64::MIN_POSITIVE) * 100.0)) }
                        }
                    }
                }
            }
        },
    )
}

fn loads(record: &Record) -> Markup {
    let (imbalance, volume) = (&record.imbalance, &record.volume);
    let two = |value: f64| format!("{value:.2}");
    let row = |name: &str, of: fn(&Loads) -> f64| {
        html! {
            tr {
                th scope="row" { (name) }
                td.n { @if let Some(asked) = &imbalance.asked { (two(of(asked))) } @else { "–" } }
                td.n { (two(of(&imbalance.achieved))) }
            }
        }
    };
    captioned(
        "Imbalance, as the workload asks for it and as its tokens got it; volume of a dispatch",
        html! {
            table.list {
                thead { tr { th scope="col" { "" } th.n scope="col" { "asked" } th.n scope="col" { "got" } } }
                tbody {
                    (row("busiest expert over the mean", |loads| loads.experts.max_over_mean))
                    (row("busiest rank over the mean", |loads| loads.ranks.max_over_mean))
                    (row("Gini coefficient of experts", |loads| loads.experts.gini))
                    (row("Gini coefficient of ranks", |loads| loads.ranks.gini))
                    @if imbalance.dropped > 0.0 {
                        tr { th scope="row" { "dropped by the capacity" } td.n { "–" } td.n { (format!("{:.2} %", imbalance.dropped * 100.0)) } }
                    }
                    @if volume.padding_bytes > 0 {
                        tr { th scope="row" { "padding, in no other figure" } td.n { "" } td.n { (mebibytes(volume.padding_bytes)) } }
                    }
                    @if imbalance.sources.empty > 0 {
                        tr { th scope="row" { "ranks without tokens" } td.n { "–" } td.n { (imbalance.sources.empty) } }
                    }
                    tr { th scope="row" { "rows" } td.n { "" } td.n { (number(volume.rows)) } }
                    tr { th scope="row" { "bytes of a row" } td.n { "" } td.n { (size(volume.row_bytes)) } }
                    tr { th scope="row" { "all rows" } td.n { "" } td.n { (mebibytes(volume.logical_bytes)) } }
                    tr { th scope="row" { "off their rank" } td.n { "" } td.n { (mebibytes(volume.off_rank_bytes)) } }
                    tr { th scope="row" { "busiest rank" } td.n { "" } td.n { (mebibytes(volume.busiest_bytes)) } }
                }
            }
        },
    )
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", digits(bytes as f64 / f64::from(1 << 20)))
}

/// The wait matrix: ranks by phases.
fn waits(ranks: &[RankRow]) -> Markup {
    let Some(first) = ranks.first().filter(|rank| !rank.wait_us.is_empty()) else {
        return html! {};
    };
    let phases: Vec<_> = first.wait_us.iter().map(|wait| wait.phase).collect();
    let row = |rank: &RankRow| {
        let of = |phase: &crate::moe::dispatch::Phase| {
            let wait = rank.wait_us.iter().find(|wait| wait.phase == *phase);
            wait.map(|wait| wait.median)
        };
        (
            format!("rank {}", rank.rank),
            phases.iter().map(of).collect(),
        )
    };
    let table = Heat {
        corner: String::new(),
        columns: phases
            .iter()
            .map(|phase| phase_name(*phase).to_owned())
            .collect(),
        rows: ranks.iter().map(row).collect(),
    };
    let caption = "Wait matrix in µs: the median time from when a rank came to a phase to when the last of its group did. \
        The rank that the others wait for hardly waits itself.";
    captioned(caption, heat(&table, Against::Table))
}

/// Who waits for whom: ranks by ranks.
fn waits_for(ranks: &[RankRow]) -> Markup {
    if ranks.iter().all(|rank| rank.waits_for_us.is_empty()) {
        return html! {};
    }
    let rows: Vec<(u32, Vec<f64>)> = ranks
        .iter()
        .map(|rank| (rank.rank, rank.waits_for_us.clone()))
        .collect();
    let caption = "Who waits for whom, in µs of a step, all phases together: a row waits for the rank of the column, which came last of the group. \
        A dark column is a rank that holds the others up.";
    captioned(caption, figures::waits(&rows))
}

fn ranks(ranks: &[RankRow]) -> Markup {
    let most = ranks
        .iter()
        .map(|rank| rank.rows_received)
        .max()
        .unwrap_or(0) as f64;
    captioned(
        "Ranks: what they had, sent and received; times are medians in microseconds",
        html! {
            table.list {
                thead { tr {
                    th scope="col" { "rank" } th.n scope="col" { "tokens" } th.n scope="col" { "rows sent" } th.n scope="col" { "rows received" }
                    th scope="col" { "load" } th.n scope="col" { "dispatch" } th.n scope="col" { "combine" }
                } }
                tbody {
                    @for rank in ranks {
                        tr {
                            th scope="row" { (rank.rank) }
                            td.n { (number(rank.tokens)) }
                            td.n { (number(rank.rows_sent)) }
                            td.n { (number(rank.rows_received)) }
                            td { (bar(rank.rows_received as f64, most, &format!("{} rows", number(rank.rows_received)))) }
                            td.n { (digits(rank.dispatch_us)) }
                            td.n { (digits(rank.combine_us)) }
                        }
                    }
                }
            }
        },
    )
}
