//! A report as one page that needs nothing else: no script, no font, no picture, no network.
//!
//! HTML-1: the page holds no script, and its policy forbids it to load anything.
//! HTML-2: every text goes through the escaping of `maud`, after control characters and marks that
//! turn the direction of text have become visible.
//! HTML-3: nothing is said by colour alone.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::out::escaped;
use crate::report::cause::{Cause, listed};
use crate::report::document::{About, Document, Headline, Mood};

pub mod figures;
pub mod lines;
pub mod parts;
pub mod plot;

use parts::{fact, number, seconds};

const STYLE: &str = include_str!("style.css");
/// Nothing is loaded from anywhere; styles stand in the page.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// Lines of evidence that are open from the start.
const EVIDENCE_OPEN: usize = 3;

/// The page of a result.
#[must_use]
pub fn page(document: &dyn Document) -> String {
    let (about, headline) = (document.about(), document.headline());
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="generator" content=(about.tool);
                title { "muster " (about.command) ": " (escaped(&headline.word)) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                div.wrap {
                    (top(&about))
                    main {
                        (verdict(&about, &headline))
                        (emulated(&about))
                        (document.body())
                        (machine(&about))
                    }
                    (footer(&about))
                }
            }
        }
    };
    markup.into_string()
}

fn top(about: &About<'_>) -> Markup {
    html! {
        header.top {
            h1 { "muster " (about.command) }
            @if let Some(origin) = about.origin {
                span {
                    time datetime=(escaped(&origin.started_at)) { (escaped(&origin.started_at.replace('T', " "))) }
                    " on " (escaped(&origin.host))
                }
            }
        }
    }
}

/// A sign of the outcome: a tick, a cross, an exclamation mark.
fn sign(mood: Mood) -> Markup {
    let path = match mood {
        Mood::Good => "M5 10.5l3.2 3.2L15 6.8",
        Mood::Bad => "M6.5 6.5l7 7m0-7l-7 7",
        Mood::Care => "M10 5v6.2m0 2.6v1.4",
    };
    html! {
        svg viewBox="0 0 20 20" aria-hidden="true" {
            circle cx="10" cy="10" r="9" fill="currentColor" {}
            path d=(path) fill="none" stroke="var(--page)" stroke-width="2.2" stroke-linecap="round" stroke-linejoin="round" {}
        }
    }
}

fn verdict(about: &About<'_>, headline: &Headline) -> Markup {
    html! {
        section class=(format!("verdict {}", headline.mood.class())) aria-labelledby="verdict" {
            div.word {
                (sign(headline.mood))
                span { (escaped(&headline.word)) }
                @if about.partial { span { "· partial" } }
            }
            p #verdict .sentence { (escaped(&headline.sentence)) }
            @if let Some(verdict) = about.verdict { (details(verdict, headline)) }
        }
    }
}

fn details(verdict: &Cause, headline: &Headline) -> Markup {
    html! {
        dl {
            @if !headline.sentence.contains(&verdict.text) { dt { "first" } dd { (escaped(&verdict.text)) } }
            dt { "class" }
            dd { code { (verdict.class.class()) } ", exit code " (verdict.exit_code) ": " (verdict.class.meaning()) }
            @if !verdict.blamed.is_empty() {
                dt { "to blame" }
                dd { @if verdict.blamed.len() == 1 { "rank " } @else { "ranks " } strong { (listed(&verdict.blamed)) } }
            }
            @if let Some(matrix) = &verdict.matrix { dt { "in" } dd { (escaped(matrix)) } }
            @if let Some(next) = &verdict.next { dt { "what to do" } dd { (escaped(next)) } }
            @if !verdict.evidence.is_empty() {
                dt { "evidence" }
                dd {
                    @let (first, rest) = verdict.evidence.split_at(verdict.evidence.len().min(EVIDENCE_OPEN));
                    ul { @for line in first { li { (escaped(line)) } } }
                    @if !rest.is_empty() {
                        details {
                            summary { (rest.len()) " more" }
                            ul { @for line in rest { li { (escaped(line)) } } }
                        }
                    }
                }
            }
        }
    }
}

fn emulated(about: &About<'_>) -> Markup {
    html! {
        @if about.emulated {
            p.note { strong { "Emulated devices. " } "Calls, data and faults are real; times and limits say nothing about hardware." }
        }
    }
}

/// What moved the data, in words, and what that means.
#[must_use]
pub fn backend_in_words(about: &About<'_>) -> Option<(&'static str, &'static str)> {
    Some(match (about.backend?, about.emulated) {
        ("hccl", true) => ("HCCL, emulated", "no NPU took part"),
        ("hccl", false) => ("HCCL", "Ascend NPUs"),
        _ => ("the host", "its processors and memory; no NPU took part"),
    })
}

fn machine(about: &About<'_>) -> Markup {
    if about.machine.is_none() && about.backend.is_none() && about.origin.is_none() {
        return html! {};
    }
    html! {
        section aria-labelledby="machine" {
            h2 #machine { "Where and how" }
            @if about.machine.is_some() || about.backend.is_some() {
                dl.facts {
                    @if let Some(words) = backend_in_words(about) { (fact("data moved by", words.0, words.1)) }
                    @if let Some(machine) = about.machine {
                        (fact("processor", &machine.cpu, &format!("{} usable, {}", machine.cpus, machine.arch)))
                        (fact("kernel", &machine.kernel, ""))
                        (fact("memory", &format!("{:.1} GiB", machine.memory_mib as f64 / 1024.0), ""))
                    }
                    (fact("program", about.tool, &profile(about)))
                    @if about.elapsed_us > 0 { (fact("wall time", &seconds(about.elapsed_us), "")) }
                    @if let Some(seed) = about.seed { (fact("seed", &seed.to_string(), "")) }
                }
            }
            @if let Some(origin) = about.origin {
                h3 { "Command" }
                code.cmd { (escaped(&origin.command())) }
                h3 { "Environment that matters" }
                @if origin.environment.is_empty() {
                    p.soft { "None of the variables that muster, the vendor's libraries or launchers read was set." }
                } @else {
                    (parts::scrolling("Environment", html! {
                        table.list {
                            thead { tr { th scope="col" { "variable" } th scope="col" { "value" } } }
                            tbody {
                                @for (name, value) in &origin.environment {
                                    tr { th scope="row" { code { (escaped(name)) } } td.text { code { (escaped(value)) } } }
                                }
                            }
                        }
                    }))
                }
            }
        }
    }
}

fn profile(about: &About<'_>) -> String {
    let profile = about.machine.map(|machine| machine.profile.as_str());
    match profile {
        Some("debug") => "debug build: slower than a release build".to_owned(),
        Some(profile) => format!("{profile} build"),
        None => String::new(),
    }
}

fn footer(about: &About<'_>) -> Markup {
    html! {
        footer {
            "Written by " (escaped(about.tool)) ", result format " (number(u64::from(about.schema_version)))
            ". This page loads nothing: it can be mailed, stored and printed as it is."
        }
    }
}
