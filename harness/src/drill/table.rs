//! Drills as a table that grows while they run.

use std::fmt::Write as _;

use super::catalogue::Drill;
use super::model::{Report, Run, RunOutcome};
use crate::out::{BAD, GOOD, STRONG};

/// The first line of the table.
#[must_use]
pub fn head() -> String {
    format!(
        "{STRONG}{:<4} {:<24} {:<4} {:>5}  {:<32} {:>9} {:>9}  result{STRONG:#}\n",
        "id", "drill", "over", "ranks", "said", "found in", "bound"
    )
}

/// The line of a run, and below it why it failed or was skipped, and what was looked at.
#[must_use]
pub fn row(run: &Run) -> String {
    let said = match (&run.verdict, run.outcome) {
        (_, RunOutcome::Skipped) => "-".to_owned(),
        (Some(said), _) => format!(
            "{} {}",
            said.class,
            super::plan::ranks_in_words(&said.blamed)
        ),
        (None, RunOutcome::Passed) if run.control => "nothing, all is well".to_owned(),
        (None, RunOutcome::Passed) => run.expected.class.to_lowercase(),
        (None, RunOutcome::Failed) => "nothing".to_owned(),
    };
    let found = run.detected_ms.map_or_else(|| "-".to_owned(), time);
    let bound = if run.expected.class == "OK" {
        "-".to_owned()
    } else {
        time(run.bound_ms)
    };
    let result = match run.outcome {
        RunOutcome::Passed => format!("{GOOD}ok{GOOD:#}"),
        RunOutcome::Failed => format!("{BAD}FAIL{BAD:#}"),
        RunOutcome::Skipped => format!("{STRONG}SKIP{STRONG:#}"),
    };
    let mut text = format!(
        "{:<4} {:<24} {:<4} {:>5}  {said:<32} {found:>9} {bound:>9}  {result}\n",
        run.id,
        run.name,
        run.transport.name(),
        run.world_size
    );
    for reason in run.reasons.iter().chain(&run.notes) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "     {}", crate::out::escaped(reason));
    }
    if run.outcome == RunOutcome::Failed {
        let _ = writeln!(text, "     done: {}", run.injected);
    }
    text
}

fn time(ms: f64) -> String {
    if ms < 1000.0 {
        format!("{ms:.0} ms")
    } else {
        format!("{:.2} s", ms / 1e3)
    }
}

/// The closing line.
#[must_use]
pub fn closing(report: &Report) -> String {
    let [first, others, controls] = report.counts();
    let mut parts = Vec::new();
    for ((passed, run), what) in [
        (first, "drills of the first wave"),
        (others, "further drills"),
        (controls, "further controls"),
    ] {
        if run > 0 {
            parts.push(format!("{passed}/{run} {what}"));
        }
    }
    if parts.is_empty() {
        parts.push("no drill took place".to_owned());
    }
    let skipped = report.runs(RunOutcome::Skipped);
    let failed = report.runs(RunOutcome::Failed);
    let took = report.drills.len();
    let style = if report.passed { GOOD } else { BAD };
    format!(
        "\n{style}{}{style:#}; {took} runs, {failed} failed, {skipped} skipped, {}; seed {}{}\n",
        parts.join(", "),
        minutes(report.elapsed_ms),
        report.seed,
        if report.interrupted {
            "; stopped before the end"
        } else {
            ""
        }
    )
}

fn minutes(ms: u64) -> String {
    let seconds = ms / 1000;
    if seconds < 60 {
        format!("{seconds} s")
    } else {
        format!("{} min {} s", seconds / 60, seconds % 60)
    }
}

/// All drills, as `--list` shows them.
#[must_use]
pub fn list(drills: &[&Drill]) -> String {
    let mut text = format!(
        "{STRONG}{:<4} {:<24} {:<7} {:<8} what is done{STRONG:#}\n",
        "id", "drill", "over", "wave"
    );
    for drill in drills {
        let _ = writeln!(
            text,
            "{:<4} {:<24} {:<7} {:<8} {}",
            drill.id,
            drill.name,
            over(drill),
            wave(drill),
            drill.title
        );
    }
    text
}

/// What a drill runs over, in words.
#[must_use]
pub fn over(drill: &Drill) -> String {
    let names: Vec<&str> = drill.transports.iter().map(|one| one.name()).collect();
    names.join(",")
}

/// Which wave a drill belongs to, in words.
#[must_use]
pub fn wave(drill: &Drill) -> &'static str {
    match (drill.first_wave, drill.is_control) {
        (true, false) => "first",
        (true, true) => "first*",
        (false, true) => "control",
        (false, false) => "all",
    }
}
