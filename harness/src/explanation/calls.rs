//! The last calls of each group, number by number and rank by rank, with the first number at which ranks differ.

use std::collections::BTreeMap;

use maud::{Markup, html};
use muster_comm::error::verdict::CallId;
use muster_comm::watch::report::{CallOutcome, CallRecord, Report};

use crate::out::escaped;
use crate::report::cause::listed;
use crate::report::document::Mood;
use crate::report::html::parts::{captioned, counted, seconds, tag};

/// Most groups that are shown.
const GROUPS_MAX: usize = 6;
/// Most calls of a group.
const CALLS_MAX: u64 = 8;
/// Most rows of a group: ranks that made the same calls are one.
const ROWS_MAX: usize = 24;

/// What a rank did under one number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cell {
    call: String,
    site: String,
    how: How,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum How {
    Ended,
    Failed,
    /// Milliseconds that it has lasted.
    Open(u64),
}

/// The last calls of one group.
#[derive(Debug)]
pub(super) struct Group {
    name: String,
    numbers: Vec<u64>,
    /// Ranks that made the same calls, and those calls.
    pub(super) rows: Vec<(Vec<u32>, Vec<Option<Cell>>)>,
    /// The first number at which ranks differ.
    pub(super) differs_at: Option<u64>,
}

impl Group {
    /// The group of this key, if calls of it are known.
    pub(super) fn of(key: u64, reports: &[Report]) -> Option<Self> {
        let members = reports.iter().filter(|report| report.group(key).is_some());
        let calls = |report: &Report| -> BTreeMap<u64, Cell> {
            let own = report.calls.iter().filter(|call| call.key == key);
            let own = own.filter(|call| !call.call.is_point_to_point());
            own.map(|call| (call.seq, cell(call, report))).collect()
        };
        let of: Vec<(u32, BTreeMap<u64, Cell>)> =
            members.map(|report| (report.rank, calls(report))).collect();
        let last = of
            .iter()
            .filter_map(|(_, calls)| calls.keys().last())
            .max()?;
        // Numbers that every rank's board still has.
        let kept = of
            .iter()
            .filter_map(|(_, calls)| calls.keys().next())
            .max()?;
        let first = last.saturating_sub(CALLS_MAX - 1).max(*kept).min(*last);
        let numbers: Vec<u64> = (first..=*last).collect();
        let mut rows: Vec<(Vec<u32>, Vec<Option<Cell>>)> = Vec::new();
        for (rank, calls) in &of {
            let cells: Vec<Option<Cell>> = numbers
                .iter()
                .map(|number| calls.get(number).cloned())
                .collect();
            match rows.iter_mut().find(|(_, known)| *known == cells) {
                Some((ranks, _)) => ranks.push(*rank),
                None => rows.push((vec![*rank], cells)),
            }
        }
        let differs_at = numbers.iter().enumerate().find_map(|(column, number)| {
            let there = rows.iter().filter(|(_, cells)| !is_before(cells, column));
            let mut made = there.map(|(_, cells)| {
                let cell = cells[column].as_ref();
                cell.map(|cell| (&cell.call, &cell.site))
            });
            let first = made.next()?;
            made.any(|other| other != first).then_some(*number)
        });
        let name = reports
            .iter()
            .find_map(|report| report.group(key))?
            .name
            .clone();
        Some(Self {
            name,
            numbers,
            rows,
            differs_at,
        })
    }
}

/// Whether a rank is still in an earlier call than that of this column: it may yet make the same.
fn is_before(cells: &[Option<Cell>], column: usize) -> bool {
    let last = cells[..column].iter().rev().flatten().next();
    cells[column].is_none() && last.is_some_and(|cell| matches!(cell.how, How::Open(_)))
}

fn cell(call: &CallRecord, report: &Report) -> Cell {
    let id = CallId {
        key: call.key,
        seq: call.seq,
    };
    let age_ms = || report.under_way(id).map_or(0, |one| one.age_ms);
    Cell {
        call: format!("{}{}", call.call.name(), call.call.details()),
        site: call.site.clone(),
        how: match call.outcome {
            CallOutcome::Completed => How::Ended,
            CallOutcome::Failed => How::Failed,
            CallOutcome::Open => How::Open(age_ms()),
        },
    }
}

/// The groups with calls under way first, then the others.
fn keys(reports: &[Report]) -> Vec<u64> {
    let groups = || reports.iter().flat_map(|report| &report.groups);
    let waits = groups().filter(|group| group.call.is_some());
    let mut keys: Vec<u64> = Vec::new();
    for group in waits.chain(groups().filter(|group| group.entered > 0)) {
        if !keys.contains(&group.key) {
            keys.push(group.key);
        }
    }
    keys
}

pub(super) fn section(reports: &[Report]) -> Markup {
    let keys = keys(reports);
    let groups: Vec<Group> = keys
        .iter()
        .filter_map(|key| Group::of(*key, reports))
        .take(GROUPS_MAX)
        .collect();
    html! {
        @if !groups.is_empty() {
            section aria-labelledby="calls" {
                h2 #calls { "The last calls, side by side" }
                p.soft { "A column is a number of a group's calls, a row the ranks that made the same ones. All members of a group must make the same call under one number." }
                @for group in &groups { (table(group)) }
                @if keys.len() > groups.len() { p.soft { (counted((keys.len() - groups.len()) as u64, "more group", "more groups")) "; the JSON document has all." } }
            }
        }
    }
}

fn table(group: &Group) -> Markup {
    let is_first = |number: &u64| Some(*number) == group.differs_at;
    let caption = match group.differs_at {
        Some(number) => format!("Group {}: ranks differ from call {number} on", group.name),
        None => format!("Group {}: all ranks made the same calls", group.name),
    };
    captioned(
        &caption,
        html! {
            table.list {
                thead { tr {
                    th scope="col" { "rank" }
                    @for number in &group.numbers {
                        th scope="col" { "#" (number) @if is_first(number) { " " (tag(Mood::Bad, "first difference")) } }
                    }
                } }
                tbody {
                    @for (ranks, cells) in group.rows.iter().take(ROWS_MAX) {
                        tr {
                            th scope="row" { (listed(ranks)) }
                            @for (column, one) in cells.iter().enumerate() { (shown(one.as_ref(), is_before(cells, column))) }
                        }
                    }
                }
            }
            @if group.rows.len() > ROWS_MAX { p.soft { (group.rows.len() - ROWS_MAX) " more rows" } }
        },
    )
}

fn shown(cell: Option<&Cell>, is_before: bool) -> Markup {
    let Some(cell) = cell else {
        return html! { td.soft { @if is_before { "not there yet" } @else { "not seen" } } };
    };
    html! {
        td {
            @match cell.how {
                How::Ended => {}
                How::Failed => { (tag(Mood::Bad, "failed")) " " }
                How::Open(ms) => { (tag(Mood::Care, &format!("for {}", seconds(ms.saturating_mul(1000))))) " " }
            }
            (escaped(&cell.call))
            br;
            code.small.soft { (escaped(&cell.site)) }
        }
    }
}
