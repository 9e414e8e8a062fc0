//! The page of `drill`: what failed, then every run with its assertions and how fast it was found.

use maud::{Markup, html};

use crate::drill::model::{Report, Run, RunOutcome};
use crate::out::escaped;
use crate::report::document::Mood;
use crate::report::html::figures::bar;
use crate::report::html::parts::{captioned, counted, fact, micros, number, seconds, tag};

use super::document::{name_of, outcome_word, said};

/// The sections of the page.
pub(super) fn body(report: &Report) -> Markup {
    let failed: Vec<&Run> = report
        .drills
        .iter()
        .filter(|run| run.outcome == RunOutcome::Failed)
        .collect();
    html! {
        (facts(report))
        @if !failed.is_empty() {
            section aria-labelledby="failed" {
                h2 #failed { "What failed" }
                @for run in failed { (failure(run)) }
            }
        }
        section aria-labelledby="runs" {
            h2 #runs { "Runs" }
            p.soft {
                "Each drill does a fault to real ranks, or nothing at all where it is a control, and asserts what survivors say. "
                "The bar is the time from the fault to the return of the last survivor, as a part of what is allowed."
            }
            (runs(&report.drills))
        }
    }
}

fn facts(report: &Report) -> Markup {
    let [first, others, controls] = report.counts();
    let of = |(passed, all): (usize, usize)| (passed.to_string(), format!("of {all} passed"));
    html! {
        dl.facts {
            @for (name, count) in [("drills of the first wave", first), ("further drills", others), ("further controls", controls)] {
                @if count.1 > 0 { @let (value, more) = of(count); (fact(name, &value, &more)) }
            }
            (fact("runs", &number(report.drills.len() as u64), &format!(
                "{} failed, {} skipped", report.runs(RunOutcome::Failed), report.runs(RunOutcome::Skipped)
            )))
            (fact("time", &seconds(report.elapsed_ms.saturating_mul(1000)), ""))
        }
    }
}

fn failure(run: &Run) -> Markup {
    html! {
        section.verdict.bad {
            p { strong { (escaped(&name_of(run))) } }
            dl {
                dt { "done" } dd { (escaped(&run.injected)) }
                dt { "expected" } dd { code { (run.expected.class) } " " (escaped(&run.expected.blamed)) }
                dt { "said" } dd { (escaped(&said(run))) }
                dt { "because" } dd { ul { @for reason in &run.reasons { li { (escaped(reason)) } } } }
                @if !run.leaks.is_empty() { dt { "left behind" } dd { ul { @for leak in &run.leaks { li { (escaped(leak)) } } } } }
            }
        }
    }
}

fn runs(runs: &[Run]) -> Markup {
    // Runs that were skipped assert nothing.
    let names: Vec<&str> = runs
        .iter()
        .find(|run| !run.assertions.is_empty())
        .map_or_else(Vec::new, |run| {
            run.assertions.iter().map(|one| one.name.as_ref()).collect()
        });
    captioned(
        &counted(runs.len() as u64, "run", "runs"),
        html! {
            table.list {
                thead { tr {
                    th scope="col" { "id" } th scope="col" { "drill" } th scope="col" { "over" } th.n scope="col" { "ranks" }
                    th scope="col" { "result" } th scope="col" { "said" }
                    th.n scope="col" { "found in" } th scope="col" { "of the bound" } th.n scope="col" { "bound" }
                    @for name in &names { th scope="col" { (name) } }
                } }
                tbody { @for run in runs { (line(run, names.len())) } }
            }
        },
    )
}

fn line(run: &Run, assertions: usize) -> Markup {
    let has_bound = run.expected.class != "OK" && run.outcome != RunOutcome::Skipped;
    html! {
        tr {
            td.nb { code { (run.id) } }
            th scope="row" title=(escaped(&run.injected)) { (run.name) @if run.control { " " span.soft { "(control)" } } }
            td { (run.transport.name()) }
            td.n { (run.world_size) }
            td {
                @match run.outcome {
                    RunOutcome::Passed => (tag(Mood::Good, outcome_word(run.outcome))),
                    RunOutcome::Failed => (tag(Mood::Bad, outcome_word(run.outcome))),
                    RunOutcome::Skipped => span.tag.none { "skipped" },
                }
            }
            td.text { (escaped(&said(run))) }
            @match run.detected_ms.filter(|_| has_bound) {
                Some(ms) => {
                    td.n { (micros(ms * 1e3)) }
                    td { (bar(ms, run.bound_ms, &format!("{} of {}", micros(ms * 1e3), micros(run.bound_ms * 1e3)))) }
                    td.n { (micros(run.bound_ms * 1e3)) }
                }
                None => { td.n { "–" } td {} td.n { "–" } }
            }
            @if run.assertions.is_empty() {
                td.soft.text colspan=(assertions) { (escaped(&run.reasons.join("; "))) }
            } @else {
                @for one in &run.assertions {
                    td { @if one.holds { (tag(Mood::Good, "holds")) } @else { (tag(Mood::Bad, "broken")) } }
                }
            }
        }
    }
}
