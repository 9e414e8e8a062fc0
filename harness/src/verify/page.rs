//! The page of `verify`: what failed, then every matrix as a grid of ranks and groups.

use maud::{Markup, html};

use crate::out::escaped;
use crate::report::cause::listed;
use crate::report::document::Mood;
use crate::report::html::figures;
use crate::report::html::parts::{counted, fact, number, scrolling, seconds, tag};
use crate::verify::model::{Case, MatrixSummary, NotApplicable, Outcome, Report};

use super::document::call_of;

/// Failed cases that the page lists; the JSON document has all of them.
const FAILURES_MAX: usize = 100;

/// Ranks above which a grid takes the width of two.
const WIDE: u32 = 10;

/// The sections of the page.
pub(super) fn body(report: &Report) -> Markup {
    let grids: Vec<Grid<'_>> = report
        .matrices
        .iter()
        .map(|m| Grid::of(report, m))
        .collect();
    html! {
        (facts(report))
        (failures(report))
        section aria-labelledby="matrices" {
            h2 #matrices { "Matrices" }
            p { "A row is a kind of group, a column a rank. Equal letters in a row are one group: its members checked every call together." }
            (key(&grids))
            div.matrices { @for grid in &grids { (card(grid)) } }
        }
        (calls(report))
        section aria-labelledby="kinds" {
            h2 #kinds { "Every kind of group and call" }
            p.soft { "Checks of each call, all groups, element types and counts of a kind together." }
            @for grid in grids.iter().filter(|grid| !grid.kinds.is_empty()) {
                details {
                    summary { (escaped(&grid.matrix.matrix)) }
                    (kinds_and_calls(report, grid.matrix))
                }
            }
        }
        (waits(report))
        (not_applicable(&report.not_applicable))
    }
}

/// Who waited for whom, by matrix.
fn waits(report: &Report) -> Markup {
    let told = || {
        report
            .matrices
            .iter()
            .filter(|matrix| !matrix.waits_us.is_empty())
    };
    let rows = |matrix: &MatrixSummary| -> Vec<(u32, Vec<f64>)> {
        let us = |row: &Vec<u64>| row.iter().map(|us| *us as f64).collect();
        (0..).zip(matrix.waits_us.iter().map(us)).collect()
    };
    html! {
        @if told().next().is_some() {
            section aria-labelledby="waits" {
                h2 #waits { "Who waited for whom" }
                p.soft { "Microseconds in calls that all members leave together: a row waited for the rank of the column, which came last. A dark column is a rank that held the others up." }
                @for matrix in told() {
                    details {
                        summary { (escaped(&matrix.matrix)) }
                        (scrolling(&format!("Waits of {}", matrix.matrix), figures::waits(&rows(matrix))))
                    }
                }
            }
        }
    }
}

/// A group: its members, and what came of its cases.
struct Group<'a> {
    ranks: &'a [u32],
    cases: usize,
    failed: usize,
}

/// The groups of one kind.
struct Kind<'a> {
    name: &'a str,
    groups: Vec<Group<'a>>,
    /// Groups that the layout has.
    planned: usize,
}

/// A matrix with its groups.
struct Grid<'a> {
    matrix: &'a MatrixSummary,
    kinds: Vec<Kind<'a>>,
    blamed: &'a [u32],
}

impl<'a> Grid<'a> {
    fn of(report: &'a Report, matrix: &'a MatrixSummary) -> Self {
        let mut kinds: Vec<Kind<'a>> = matrix
            .groups
            .iter()
            .map(|group| Kind {
                name: &group.kind,
                groups: Vec::new(),
                planned: group.count as usize,
            })
            .collect();
        for case in report.cases_of(matrix) {
            let kind = match kinds.iter().position(|kind| kind.name == case.group) {
                Some(at) => &mut kinds[at],
                None => {
                    kinds.push(Kind {
                        name: &case.group,
                        groups: Vec::new(),
                        planned: 1,
                    });
                    let last = kinds.len() - 1;
                    &mut kinds[last]
                }
            };
            let at = kind
                .groups
                .iter()
                .position(|group| group.ranks == case.ranks);
            let at = at.unwrap_or_else(|| {
                kind.groups.push(Group {
                    ranks: &case.ranks,
                    cases: 0,
                    failed: 0,
                });
                kind.groups.len() - 1
            });
            kind.groups[at].cases += 1;
            kind.groups[at].failed += usize::from(!case.passed);
        }
        if kinds.iter().all(|kind| kind.groups.is_empty()) {
            kinds.clear();
        }
        let verdict = report.verdict.as_ref();
        let of_this = verdict.filter(|verdict| verdict.matrix.as_ref() == Some(&matrix.matrix));
        Self {
            matrix,
            kinds,
            blamed: of_this.map_or(&[], |verdict| &verdict.blamed),
        }
    }

    fn mood(&self) -> Option<Mood> {
        match self.matrix.outcome {
            Outcome::Passed => Some(Mood::Good),
            Outcome::Failed => Some(Mood::Bad),
            Outcome::Aborted => Some(Mood::Care),
            Outcome::Skipped => None,
        }
    }
}

/// The letters of a group: a to z, then aa, ab, …
fn letters(mut number: usize) -> String {
    let mut text = String::new();
    loop {
        let letter = u8::try_from(number % 26).unwrap_or(0);
        text.insert(0, char::from(b'a' + letter));
        number /= 26;
        if number == 0 {
            return text;
        }
        number -= 1;
    }
}

fn facts(report: &Report) -> Markup {
    let passed = report.cases.iter().filter(|case| case.passed).count() as u64;
    let planned: u64 = report.matrices.iter().map(|matrix| matrix.cases).sum();
    let groups: u64 = report
        .matrices
        .iter()
        .filter(|matrix| matrix.outcome != Outcome::Skipped)
        .flat_map(|matrix| &matrix.groups)
        .map(|group| u64::from(group.count))
        .sum();
    let outcomes = |outcome| {
        report
            .matrices
            .iter()
            .filter(|m| m.outcome == outcome)
            .count() as u64
    };
    let ended = format!("of {} passed", report.matrices.len());
    html! {
        dl.facts {
            (fact("checks passed", &number(passed), &format!("of {}", number(planned.max(report.cases.len() as u64)))))
            (fact("matrices", &number(outcomes(Outcome::Passed)), &ended))
            (fact("groups", &number(groups), "made and checked"))
            (fact("time", &seconds(report.elapsed_us), ""))
        }
    }
}

fn failures(report: &Report) -> Markup {
    let failures: Vec<&Case> = report.failures().collect();
    html! {
        @if !failures.is_empty() {
            section aria-labelledby="failures" {
                h2 #failures { "What failed" }
                @if failures.len() > FAILURES_MAX {
                    p.soft { "The first " (FAILURES_MAX) " of " (counted(failures.len() as u64, "check", "checks")) "; the JSON document has all." }
                }
                (scrolling("What failed", html! {
                    table.list {
                        thead { tr {
                            th scope="col" { "matrix" } th scope="col" { "group" } th scope="col" { "call" }
                            th scope="col" { "to blame" } th scope="col" { "seen by" } th scope="col" { "what was wrong" }
                        } }
                        tbody { @for case in failures.iter().take(FAILURES_MAX) { (failure(case)) } }
                    }
                }))
            }
        }
    }
}

fn failure(case: &Case) -> Markup {
    let detail = case.detail.as_ref();
    let ranks = |ranks: Option<&Vec<u32>>| match ranks {
        Some(ranks) if !ranks.is_empty() => listed(ranks),
        Some(_) | None => "–".to_owned(),
    };
    let shape = match (&case.dtype, case.count) {
        (Some(dtype), Some(count)) => format!("{dtype}[{count}]"),
        (Some(dtype), None) => dtype.clone(),
        (None, Some(count)) => format!("[{count}]"),
        (None, None) => String::new(),
    };
    html! {
        tr {
            th scope="row" { (escaped(&case.matrix)) }
            td { (escaped(&case.group)) " [" (listed(&case.ranks)) "]" }
            td { (escaped(call_of(case))) " " code { (escaped(&shape)) } }
            td { strong { (ranks(detail.map(|detail| &detail.blamed))) } }
            td { (ranks(detail.map(|detail| &detail.seen_by_all))) }
            td.text { (escaped(detail.map_or("no answer", |detail| &detail.text))) }
        }
    }
}

fn key(grids: &[Grid<'_>]) -> Markup {
    let any = |of: fn(&Kind<'_>) -> bool| grids.iter().flat_map(|grid| &grid.kinds).any(of);
    html! {
        ul.key {
            li { i.p { "a" } "every check of the group passed" }
            @if any(|kind| kind.groups.iter().any(|group| group.failed > 0)) {
                li { i.f { "✗" } "a check of the group failed" }
            }
            @if any(|kind| kind.groups.len() < kind.planned) {
                li { i.x { "?" } "not checked: the run ended before" }
            }
            li { i.o { "·" } "the rank is in no group of this kind" }
        }
    }
}

fn card(grid: &Grid<'_>) -> Markup {
    let matrix = grid.matrix;
    let groups: u32 = matrix.groups.iter().map(|group| group.count).sum();
    html! {
        article class=(if matrix.world_size > WIDE { "matrix wide" } else { "matrix" }) {
            h3 {
                (escaped(&matrix.matrix))
                @match grid.mood() {
                    Some(mood) => (tag(mood, matrix.outcome.word())),
                    None => span.tag.none { (matrix.outcome.word()) },
                }
            }
            p.soft.small {
                (counted(u64::from(matrix.world_size), "rank", "ranks"))
                @for (name, size) in [("TP", matrix.tp), ("CP", matrix.cp), ("DP", matrix.dp), ("PP", matrix.pp), ("EP", matrix.ep), ("ETP", matrix.etp)] {
                    @if size > 1 { " · " (name) " " (size) }
                }
                " · " (counted(u64::from(groups), "group", "groups"))
                @if matrix.outcome != Outcome::Skipped {
                    " · " (number(matrix.cases_passed)) " of " (counted(matrix.cases, "check", "checks")) " passed in " (seconds(matrix.elapsed_us))
                }
                @if let Some(took) = matrix.bring_up_us { ", the first " (seconds(took)) " to bring ranks up" }
            }
            @if let Some(reason) = &matrix.reason { p.small { (escaped(reason)) } }
            @if !grid.kinds.is_empty() { (scrolling(&format!("Groups of {}", matrix.matrix), table(grid))) }
        }
    }
}

fn table(grid: &Grid<'_>) -> Markup {
    let ranks = grid.matrix.world_size;
    html! {
        table.grid aria-label=(escaped(&format!("Groups of {} by kind and rank", grid.matrix.matrix))) {
            thead { tr {
                th scope="col" { "rank" }
                @for rank in 0..ranks {
                    @if grid.blamed.contains(&rank) { th.blamed scope="col" title="to blame" { (rank) } }
                    @else { th scope="col" { (rank) } }
                }
                th scope="col" {}
            } }
            tbody {
                @for kind in &grid.kinds {
                    tr {
                        th scope="row" { (escaped(kind.name)) }
                        @for rank in 0..ranks { (cell(kind, rank)) }
                        td.sum { (sum(kind)) }
                    }
                }
            }
        }
    }
}

fn cell(kind: &Kind<'_>, rank: u32) -> Markup {
    let found = kind
        .groups
        .iter()
        .position(|group| group.ranks.contains(&rank));
    let Some(at) = found else {
        let is_missing = kind.groups.len() < kind.planned;
        return if is_missing {
            html! { td.x { "?" } }
        } else {
            html! { td.o { "·" } }
        };
    };
    let group = &kind.groups[at];
    let title = format!(
        "{} {} [{}]: {} of {} checks passed",
        kind.name,
        letters(at),
        listed(group.ranks),
        group.cases - group.failed,
        group.cases
    );
    let class = match (group.failed, at % 2) {
        (0, 0) => "p",
        (0, _) => "p alt",
        _ => "f",
    };
    html! {
        td class=(class) title=(escaped(&title)) {
            @if group.failed == 0 { (letters(at)) } @else { "✗" }
        }
    }
}

fn sum(kind: &Kind<'_>) -> String {
    let cases: usize = kind.groups.iter().map(|group| group.cases).sum();
    let failed: usize = kind.groups.iter().map(|group| group.failed).sum();
    match failed {
        0 => format!("{} ✓", number(cases as u64)),
        _ => format!("{} ✗ of {}", number(failed as u64), number(cases as u64)),
    }
}

/// Names in the order in which they come first.
fn in_order<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut known: Vec<&str> = Vec::new();
    for name in names {
        if !known.contains(&name) {
            known.push(name);
        }
    }
    known
}

fn tally<'a>(cases: impl Iterator<Item = &'a Case>) -> (u64, u64) {
    cases.fold((0, 0), |(all, failed), case| {
        (all + 1, failed + u64::from(!case.passed))
    })
}

fn tally_cell((all, failed): (u64, u64)) -> Markup {
    html! {
        @match (all, failed) {
            (0, _) => td.n.soft { "–" },
            (all, 0) => td.n { (number(all)) },
            (all, failed) => td.n { (tag(Mood::Bad, &format!("{} of {}", number(failed), number(all)))) },
        }
    }
}

/// Calls by matrix.
fn calls(report: &Report) -> Markup {
    let calls = in_order(report.cases.iter().map(call_of));
    let ran: Vec<&MatrixSummary> = report
        .matrices
        .iter()
        .filter(|m| m.outcome != Outcome::Skipped)
        .collect();
    let of = |matrix: &str, call: &str| {
        tally(
            report
                .cases
                .iter()
                .filter(|case| case.matrix == matrix && call_of(case) == call),
        )
    };
    html! {
        @if !calls.is_empty() {
            section aria-labelledby="calls" {
                h2 #calls { "Calls" }
                p.soft { "Checks of each call by matrix; a number alone says that all of them passed." }
                (scrolling("Calls by matrix", html! {
                    table.list {
                        thead { tr {
                            th scope="col" { "call" }
                            @for matrix in &ran { th.n scope="col" { (escaped(&matrix.matrix)) } }
                        } }
                        tbody {
                            @for call in calls {
                                tr {
                                    th scope="row" { (escaped(call)) }
                                    @for matrix in &ran { (tally_cell(of(&matrix.matrix, call))) }
                                }
                            }
                        }
                    }
                }))
            }
        }
    }
}

fn kinds_and_calls(report: &Report, matrix: &MatrixSummary) -> Markup {
    let cases: Vec<&Case> = report.cases_of(matrix).collect();
    let kinds = in_order(cases.iter().map(|case| case.group.as_str()));
    let calls = in_order(cases.iter().map(|case| call_of(case)));
    let of = |kind: &str, call: &str| {
        tally(
            cases
                .iter()
                .copied()
                .filter(|case| case.group == kind && call_of(case) == call),
        )
    };
    scrolling(
        &format!("Calls of {} by kind of group", matrix.matrix),
        html! {
            table.list {
                thead { tr {
                    th scope="col" { "call" }
                    @for kind in &kinds { th.n scope="col" { (escaped(kind)) } }
                } }
                tbody {
                    @for call in calls {
                        tr {
                            th scope="row" { (escaped(call)) }
                            @for kind in &kinds { (tally_cell(of(kind, call))) }
                        }
                    }
                }
            }
        },
    )
}

fn not_applicable(rows: &[NotApplicable]) -> Markup {
    let text = |text: &Option<String>| text.as_deref().map_or_else(|| "–".to_owned(), escaped);
    html! {
        @if !rows.is_empty() {
            section aria-labelledby="absent" {
                h2 #absent { "What the devices do not have" }
                p { "Neither passed nor failed, and not among the checks." }
                (scrolling("What the devices do not have", html! {
                    table.list {
                        thead { tr {
                            th scope="col" { "call" } th scope="col" { "type" } th scope="col" { "reduction" }
                            th.n scope="col" { "checks" } th scope="col" { "why" }
                        } }
                        tbody {
                            @for row in rows {
                                tr {
                                    td { (text(&row.collective)) } td { (text(&row.dtype)) } td { (text(&row.op)) }
                                    td.n { (number(row.cases)) } td.text { (escaped(&row.why)) }
                                }
                            }
                        }
                    }
                }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_letters_as_columns_of_a_sheet_do() {
        for (group, text) in [
            (0, "a"),
            (25, "z"),
            (26, "aa"),
            (51, "az"),
            (52, "ba"),
            (701, "zz"),
            (702, "aaa"),
        ] {
            assert_eq!(letters(group), text);
        }
    }
}
