//! What the doctor found, as one JSON document or as text for people.
//!
//! A view: nothing is decided here. The text holds at any width from 60 columns on, and says the
//! same without colours.

use std::fmt::Write as _;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use crate::doctor::{Group, Judged, Problem, Status};
use crate::fail::Failure;
use crate::out::{BAD, GOOD, STRONG, escaped};

/// Version of the JSON document's fields.
const SCHEMA_VERSION: u32 = 1;
/// Yellow: something that may hurt.
const MAYBE: Style = AnsiColor::Yellow.on_default().bold();
/// Columns of the word of a status.
const WORD: usize = 6;
/// Narrowest text that is made; a narrower terminal wraps by itself.
const WIDTH_MIN: usize = 60;
/// Widest text that is made: longer lines are hard to read.
const WIDTH_MAX: usize = 120;

/// What the doctor has to say.
#[derive(Debug)]
pub(super) struct Diagnosis {
    /// What the checks said.
    pub(super) judged: Vec<Judged>,
    /// The toolkit is the emulator: nothing here speaks of hardware.
    pub(super) emulated: bool,
    /// One line about the host.
    pub(super) host: String,
    /// How long it took.
    pub(super) elapsed: Duration,
}

#[derive(Serialize)]
struct Document<'a> {
    schema_version: u32,
    tool: &'static str,
    host: &'a str,
    emulated: bool,
    passed: bool,
    elapsed_us: u64,
    checks: Vec<CheckJson>,
}

#[derive(Serialize)]
struct CheckJson {
    id: &'static str,
    group: &'static str,
    status: Status,
    finding: String,
    evidence: String,
    remedy: String,
    elapsed_us: u64,
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl Diagnosis {
    /// How many checks have this status.
    #[must_use]
    pub(super) fn count(&self, status: Status) -> usize {
        let is = |judged: &&Judged| judged.finding.status() == status;
        self.judged.iter().filter(is).count()
    }

    /// No check failed.
    #[must_use]
    pub(super) fn passed(&self) -> bool {
        self.count(Status::Fail) == 0
    }

    /// The JSON document, ended by a newline.
    ///
    /// # Errors
    /// A failure of class INTERNAL if it cannot be written as JSON, which nothing can cause.
    pub(super) fn json(&self) -> Result<String, Failure> {
        let check = |judged: &Judged| CheckJson {
            id: judged.check.id,
            group: judged.check.group.name(),
            status: judged.finding.status(),
            finding: judged.finding.what(),
            evidence: judged.finding.evidence(),
            remedy: judged.finding.remedy(),
            elapsed_us: micros(judged.elapsed),
        };
        let document = Document {
            schema_version: SCHEMA_VERSION,
            tool: crate::TOOL,
            host: &self.host,
            emulated: self.emulated,
            passed: self.passed(),
            elapsed_us: micros(self.elapsed),
            checks: self.judged.iter().map(check).collect(),
        };
        let text = serde_json::to_string(&document).map_err(|error| {
            Failure::internal(format!("the findings cannot be written as JSON: {error}"))
        })?;
        Ok(format!("{text}\n"))
    }

    /// The text for people, worst first; with `all` also what is well and what was skipped.
    #[must_use]
    pub(super) fn text(&self, width: usize, all: bool) -> String {
        let width = width.clamp(WIDTH_MIN, WIDTH_MAX);
        let mut text = String::new();
        let mut host = String::new();
        wrap(&mut host, &self.host, 0, width);
        let _ = writeln!(text, "{STRONG}{}{STRONG:#}", host.trim_end());
        if self.emulated {
            let line = "emulated toolkit: nothing below speaks of hardware";
            let _ = writeln!(text, "{STRONG}{line}{STRONG:#}");
        }
        for status in [Status::Fail, Status::Warn] {
            for judged in self.of(status) {
                text.push('\n');
                for (place, problem) in judged.finding.said().iter().enumerate() {
                    problem_text(
                        &mut text,
                        problem,
                        (place == 0).then_some(judged.check.id),
                        width,
                    );
                }
            }
        }
        for status in [Status::Ok, Status::Skip] {
            if all {
                self.lines(&mut text, status, width);
            } else {
                self.names(&mut text, status, width);
            }
        }
        self.closing(&mut text, all);
        text
    }

    fn of(&self, status: Status) -> impl Iterator<Item = &Judged> {
        self.judged
            .iter()
            .filter(move |judged| judged.finding.status() == status)
    }

    /// One line a check: what it found.
    fn lines(&self, text: &mut String, status: Status, width: usize) {
        for group in Group::ALL {
            let of_group: Vec<&Judged> = self
                .of(status)
                .filter(|judged| judged.check.group == group)
                .collect();
            if of_group.is_empty() {
                continue;
            }
            let _ = writeln!(text, "\n{} {}", colored(status), group.name());
            for judged in of_group {
                let line = format!("{}: {}", judged.check.id, escaped(&judged.finding.what()));
                wrap(text, &line, WORD, width);
            }
        }
    }

    /// The names only, a line or two a status.
    fn names(&self, text: &mut String, status: Status, width: usize) {
        let names: Vec<&str> = self.of(status).map(|judged| judged.check.id).collect();
        if names.is_empty() {
            return;
        }
        let mut block = String::new();
        wrap(&mut block, &names.join(" "), WORD, width);
        let _ = write!(
            text,
            "\n{}{}",
            colored(status),
            &block[status_width(status)..]
        );
    }

    fn closing(&self, text: &mut String, all: bool) {
        let counts = format!(
            "{} failed, {} to look at, {} well, {} skipped",
            self.count(Status::Fail),
            self.count(Status::Warn),
            self.count(Status::Ok),
            self.count(Status::Skip)
        );
        let (style, word) = if self.passed() {
            (GOOD, "fit")
        } else {
            (BAD, "not fit")
        };
        let _ = writeln!(
            text,
            "\n{style}{word}{style:#}: {counts}, in {:.1} s",
            self.elapsed.as_secs_f64()
        );
        if !all {
            let _ = writeln!(text, "muster doctor --all shows what each check found");
        }
    }
}

const fn status_width(status: Status) -> usize {
    status.word().len()
}

/// The word of a status, in its colour.
fn colored(status: Status) -> String {
    let word = status.word();
    match status {
        Status::Fail => format!("{BAD}{word}{BAD:#}"),
        Status::Ok => format!("{GOOD}{word}{GOOD:#}"),
        Status::Skip => word.to_owned(),
        Status::Warn => format!("{MAYBE}{word}{MAYBE:#}"),
    }
}

fn problem_text(text: &mut String, problem: &Problem, id: Option<&str>, width: usize) {
    if let Some(id) = id {
        let gap = WORD - problem.status.word().len();
        let _ = writeln!(
            text,
            "{}{:gap$}{STRONG}{id}{STRONG:#}",
            colored(problem.status),
            ""
        );
    } else {
        let _ = writeln!(text, "{}", colored(problem.status));
    }
    wrap(text, &escaped(&problem.what), WORD, width);
    for (word, part) in [("seen:", &problem.evidence), ("do:", &problem.remedy)] {
        if !part.is_empty() {
            wrap(text, &format!("{word:<6}{}", escaped(part)), WORD, width);
        }
    }
}

/// Breaks a line at spaces and indents it; a word that is too long stays whole, so that paths and
/// commands can be copied.
fn wrap(text: &mut String, line: &str, indent: usize, width: usize) {
    // What follows `seen:` and `do:` hangs below its first word.
    let hang = if line.starts_with("seen: ") || line.starts_with("do:   ") {
        6
    } else {
        0
    };
    let (head, line) = line.split_at(hang);
    let mut column = indent + hang;
    let _ = write!(text, "{:indent$}{head}", "");
    let mut first = true;
    for word in line.split_whitespace() {
        let length = word.chars().count();
        if !first && column + 1 + length > width {
            let _ = write!(text, "\n{:1$}", "", indent + hang);
            column = indent + hang;
            first = true;
        }
        if !first {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
        first = false;
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_at_spaces_and_hang_below_their_label() {
        let mut text = String::new();
        wrap(&mut text, "do:   one two three", 2, 14);
        assert_eq!(text, "  do:   one\n        two\n        three\n");
    }
}
