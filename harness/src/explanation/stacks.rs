//! What the processes of ranks did, and where their threads were.

use maud::{Markup, html};
use muster_comm::watch::report::Report;

use crate::out::escaped;
use crate::report::cause::listed;
use crate::report::html::parts::scrolling;

/// Most ranks whose processes are listed.
const RANKS_MAX: usize = 64;

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
    }
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
                            td { code { (escaped(&process.wchan)) } }
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
