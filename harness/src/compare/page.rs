//! The page of `compare`: what changed, worst first, with intervals on one axis; then what did not.

use maud::{Markup, html};

use crate::compare::judge::{Compared, Fate};
use crate::compare::report::CompareReport;
use crate::out::escaped;
use crate::report::document::Mood;
use crate::report::html::figures::{Range, range};
use crate::report::html::parts::{counted, digits, fact, number, scrolling, tag};

use super::document::{FATES, fate_word};
use super::view;

/// The axis of changes reaches at least so far to both sides.
const SPAN_MIN: f64 = 1.25;
/// And at most so far: what lies beyond is drawn at its end.
const SPAN_MAX: f64 = 10.0;

/// The sections of the page.
pub(super) fn body(report: &CompareReport) -> Markup {
    let rows = &report.comparison.rows;
    let changed: Vec<&Compared> = rows.iter().filter(|row| row.fate != Fate::Same).collect();
    let same: Vec<&Compared> = rows.iter().filter(|row| row.fate == Fate::Same).collect();
    let ends = ends(rows);
    html! {
        (facts(report))
        @for remark in &report.comparison.remarks { p.note { (escaped(remark)) } }
        @if let Some(next) = view::next(&report.comparison) { p { strong { "Next: " } (next) } }
        section aria-labelledby="changed" {
            h2 #changed { "What changed" }
            @if changed.is_empty() {
                p { "Nothing: no row differs by more than the threshold and chance allow." }
            } @else {
                p.soft { "The worst first. The bar is the 95 % interval of the change, its stroke the change, the dashed line no change." }
                (table("What changed", &changed, ends))
            }
        }
        @if !same.is_empty() {
            section aria-labelledby="same" {
                h2 #same { "What did not" }
                details open[changed.is_empty()] {
                    summary { (counted(same.len() as u64, "row", "rows")) }
                    (table("What did not change", &same, ends))
                }
            }
        }
        (files(report))
    }
}

fn facts(report: &CompareReport) -> Markup {
    let common = (report.comparison.common_ratio - 1.0) * 100.0;
    let machine = (report.comparison.machine_ratio - 1.0) * 100.0;
    html! {
        dl.facts {
            (fact("rows", &number(report.comparison.rows.len() as u64), &format!("of {}", report.compared)))
            @for (fate, word) in FATES {
                @let count = report.of(fate).count();
                @if count > 0 { (fact(word, &number(count as u64), "")) }
            }
            @if report.compared != "verify" {
                (fact("all rows together", &format!("{common:+.1} %"), ""))
                (fact("the machine itself", &format!("{machine:+.1} %"), ""))
            }
        }
    }
}

/// The ends of the axis: as far as the widest interval, the same to both sides.
fn ends(rows: &[Compared]) -> (f64, f64) {
    let far = |row: &Compared| {
        let (low, high) = row
            .ratio_interval
            .or_else(|| row.ratio.map(|ratio| (ratio, ratio)))?;
        Some(high.max(1.0 / low.max(1e-6)))
    };
    let most = rows
        .iter()
        .filter_map(far)
        .fold(SPAN_MIN, f64::max)
        .min(SPAN_MAX);
    (1.0 / most, most)
}

fn table(name: &str, rows: &[&Compared], ends: (f64, f64)) -> Markup {
    let has_times = rows.iter().any(|row| row.ratio.is_some());
    let has_words = rows.iter().any(|row| !is_of_times(row));
    scrolling(
        name,
        html! {
            table.list {
                thead { tr {
                    th scope="col" { "fate" } th scope="col" { "row" }
                    @if has_times {
                        th.n scope="col" { "base µs" } th.n scope="col" { "new µs" } th.n scope="col" { "change" }
                        th scope="col" { "interval, " (percent(ends.0)) " to " (percent(ends.1)) }
                        th.n scope="col" { "p" } th.n scope="col" { "rounds" }
                    }
                    @if has_words { th scope="col" { "in words" } }
                } }
                tbody {
                    @for row in rows {
                        tr {
                            td { (fate(row.fate)) }
                            th.name scope="row" { (escaped(&row.name)) }
                            @if has_times { (times(row, ends)) }
                            @if has_words { td.text { @if !is_of_times(row) { (escaped(&row.sentence)) } } }
                        }
                    }
                }
            }
        },
    )
}

/// Whether the figures of a row say all that its sentence does.
const fn is_of_times(row: &Compared) -> bool {
    row.ratio.is_some() && matches!(row.fate, Fate::Improved | Fate::Regressed | Fate::Same)
}

fn fate(fate: Fate) -> Markup {
    let mood = match fate {
        Fate::WrongData | Fate::Regressed | Fate::Failed | Fate::StillWrong => Some(Mood::Bad),
        Fate::Missing | Fate::MachineSlower | Fate::Undecided => Some(Mood::Care),
        Fate::Repaired | Fate::Improved => Some(Mood::Good),
        Fate::New | Fate::Same => None,
    };
    match mood {
        Some(mood) => tag(mood, fate_word(fate)),
        None => html! { span.tag.none { (fate_word(fate)) } },
    }
}

fn percent(ratio: f64) -> String {
    format!("{:+.1} %", (ratio - 1.0) * 100.0)
}

fn times(row: &Compared, ends: (f64, f64)) -> Markup {
    let figure = |figure: Option<f64>| figure.map_or_else(|| "–".to_owned(), digits);
    let bar = row.ratio.map(|ratio| {
        let (low, high) = row.ratio_interval.unwrap_or((ratio, ratio));
        let words = format!(
            "{} (95 %: {} to {})",
            percent(ratio),
            percent(low),
            percent(high)
        );
        range(
            Range {
                low,
                middle: ratio,
                high,
            },
            ends,
            true,
            &words,
        )
    });
    html! {
        td.n { (figure(row.base_us)) }
        td.n { (figure(row.new_us)) }
        td.n { (row.ratio.map_or_else(|| "–".to_owned(), percent)) }
        td { @if let Some(bar) = bar { (bar) } }
        td.n { @if let Some(p) = row.p { @if p >= 0.001 { (format!("{p:.3}")) } @else { (format!("{p:.0e}")) } } @else { "–" } }
        td.n { (row.rounds.0) " : " (row.rounds.1) }
    }
}

fn files(report: &CompareReport) -> Markup {
    html! {
        section aria-labelledby="files" {
            h2 #files { "Files" }
            dl.facts {
                @for (name, files) in [("base", &report.base), ("new", &report.new)] {
                    (fact(name, &files.join(", "), ""))
                }
            }
        }
    }
}
