//! What the processes of ranks did, where their threads were, and how those to blame were started.

use std::collections::BTreeMap;

use maud::{Markup, html};
use muster_comm::watch::report::Report;

use crate::out::escaped;
use crate::report::cause::listed;
use crate::report::html::parts::scrolling;

/// Most ranks whose processes are listed.
const RANKS_MAX: usize = 64;
/// Most ranks to blame whose variables are listed.
const ENVIRONMENTS_MAX: usize = 4;

/// The kernel's letter for a state, in words.
const fn state(letter: char) -> &'static str {
    match letter {
        'R' => "runs",
        'S' => "sleeps",
        'T' => "stopped",
        't' => "stopped by a debugger",
        'D' => "in the kernel, cannot be interrupted",
        'Z' => "ended",
        _ => "",
    }
}

pub(super) fn section(reports: &[Report], blamed: &[u32]) -> Markup {
    let mut seen: Vec<&Report> = reports
        .iter()
        .filter(|report| report.process.is_some())
        .collect();
    seen.sort_by_key(|report| !blamed.contains(&report.rank));
    html! {
        @if !seen.is_empty() {
            section aria-labelledby="processes" {
                h2 #processes { "Processes" }
                (scrolling("Processes", processes(&seen, blamed)))
            }
        }
        (stacks(reports, blamed))
        (environments(reports, blamed))
    }
}

/// The variables of the ranks to blame, and what most others have in their place.
fn environments(reports: &[Report], blamed: &[u32]) -> Markup {
    let culprits = reports
        .iter()
        .filter(|report| blamed.contains(&report.rank) && !report.environment.is_empty());
    html! {
        @for report in culprits.take(ENVIRONMENTS_MAX) {
            section aria-labelledby={"environment-" (report.rank)} {
                h2 id={"environment-" (report.rank)} { "Environment of rank " (report.rank) }
                (scrolling("Environment", variables(report, reports)))
            }
        }
    }
}

fn variables(report: &Report, reports: &[Report]) -> Markup {
    let odd = odd(report, reports);
    let set = report.environment.iter();
    let unset = odd
        .keys()
        .filter(|name| !report.environment.contains_key(**name));
    let rows = set.map(|(name, value)| (name.as_str(), value.as_str()));
    let rows = rows.chain(unset.map(|name| (*name, "not set")));
    html! {
        table.list {
            thead { tr { th scope="col" { "variable" } th scope="col" { "value" } @if !odd.is_empty() { th scope="col" { "most others" } } } }
            tbody {
                @for (name, value) in rows {
                    tr {
                        th scope="row" { code { (escaped(name)) } }
                        td { code { (escaped(value)) } }
                        @if !odd.is_empty() { td { @if let Some(other) = odd.get(name) { code { (escaped(other)) } } } }
                    }
                }
            }
        }
    }
}

/// Variables that most other ranks have another value of, with that.
fn odd<'a>(report: &'a Report, reports: &'a [Report]) -> BTreeMap<&'a str, &'a str> {
    let others = reports
        .iter()
        .filter(|other| other.rank != report.rank && !other.environment.is_empty());
    let others: Vec<&BTreeMap<String, String>> = others.map(|other| &other.environment).collect();
    let value = |one: &'a BTreeMap<String, String>, name: &str| {
        one.get(name).map_or("not set", String::as_str)
    };
    let mut odd = BTreeMap::new();
    let names = others.iter().flat_map(|other| other.keys());
    for name in names.chain(report.environment.keys()) {
        let own = value(&report.environment, name);
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for other in &others {
            *counts.entry(value(other, name)).or_default() += 1;
        }
        let most = counts.into_iter().max_by_key(|(_, count)| *count);
        // Two at least, and more than half of them: ranks have numbers of their own.
        let most = most.filter(|(_, count)| *count > 1 && 2 * count > others.len());
        if let Some((other, _)) = most.filter(|(other, _)| *other != own) {
            odd.insert(name.as_str(), other);
        }
    }
    odd
}

fn processes(seen: &[&Report], blamed: &[u32]) -> Markup {
    html! {
        table.list {
            thead { tr {
                th scope="col" { "rank" } th.n scope="col" { "process" } th scope="col" { "state" } th scope="col" { "in the kernel" }
                th.n scope="col" { "threads" } th scope="col" { "its host" }
            } }
            tbody {
                @for report in seen.iter().take(RANKS_MAX) {
                    @if let Some(process) = &report.process {
                        tr {
                            th scope="row" { (report.rank) @if blamed.contains(&report.rank) { " – to blame" } }
                            td.n { (report.pid) }
                            td { (process.state) ": " (state(process.state)) @if process.freezer.is_some() { ", frozen" } @if process.is_exiting { ", ending" } }
                            // The kernel says 0 of a process that is in none of its functions.
                            td { @if process.wchan != "0" { code { (escaped(&process.wchan)) } } }
                            td.n { (report.threads) }
                            td { (process.load) }
                        }
                    }
                }
            }
        }
        @if seen.len() > RANKS_MAX { p.soft { (seen.len() - RANKS_MAX) " more" } }
    }
}

/// The stacks that were taken; those that are alike once.
fn stacks(reports: &[Report], blamed: &[u32]) -> Markup {
    let mut alike: Vec<(Vec<u32>, &[String])> = Vec::new();
    for report in reports.iter().filter(|report| !report.stack.is_empty()) {
        match alike
            .iter_mut()
            .find(|(_, stack)| *stack == &report.stack[..])
        {
            Some((ranks, _)) => ranks.push(report.rank),
            None => alike.push((vec![report.rank], &report.stack)),
        }
    }
    html! {
        @if !alike.is_empty() {
            section aria-labelledby="stacks" {
                h2 #stacks { "Where they were" }
                p.soft { "Functions of the thread that others waited for, the innermost first." }
                @for (ranks, stack) in &alike {
                    details open[ranks.iter().any(|rank| blamed.contains(rank))] {
                        summary { @if ranks.len() == 1 { "rank " } @else { "ranks " } (listed(ranks)) }
                        code.cmd { @for line in *stack { (escaped(line)) "\n" } }
                    }
                }
            }
        }
    }
}
