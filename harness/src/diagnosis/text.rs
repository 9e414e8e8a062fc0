//! What the doctor found, as text for people. The text holds at any width from 60 columns on, and says the same without colours.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};

use super::{Checked, Diagnosis};
use crate::doctor::{Group, Problem, Status};
use crate::out::{BAD, GOOD, STRONG, escaped};

/// Yellow: something that may hurt.
const MAYBE: Style = AnsiColor::Yellow.on_default().bold();
/// Columns of the word of a status.
const WORD: usize = 6;
/// Narrowest text that is made; a narrower terminal wraps by itself.
const WIDTH_MIN: usize = 60;
/// Widest text that is made: longer lines are hard to read.
const WIDTH_MAX: usize = 120;

/// The text, worst first; with `all` also what is well and what was skipped.
pub(super) fn of(diagnosis: &Diagnosis, width: usize, all: bool) -> String {
    let width = width.clamp(WIDTH_MIN, WIDTH_MAX);
    let mut text = String::new();
    let mut host = String::new();
    wrap(&mut host, &diagnosis.host, 0, width);
    let _ = writeln!(text, "{STRONG}{}{STRONG:#}", host.trim_end());
    if diagnosis.emulated {
        let line = "emulated toolkit: nothing below speaks of hardware";
        let _ = writeln!(text, "{STRONG}{line}{STRONG:#}");
    }
    for check in diagnosis.problems() {
        text.push('\n');
        for (place, problem) in check.problems.iter().enumerate() {
            let id = (place == 0).then_some(check.id.as_str());
            problem_text(&mut text, problem, id, width);
        }
    }
    for status in [Status::Ok, Status::Skip] {
        if all {
            lines(diagnosis, &mut text, status, width);
        } else {
            names(diagnosis, &mut text, status, width);
        }
    }
    closing(diagnosis, &mut text, all);
    text
}

/// One line a check: what it found.
fn lines(diagnosis: &Diagnosis, text: &mut String, status: Status, width: usize) {
    for group in Group::ALL {
        let of_group: Vec<&Checked> = diagnosis
            .of(status)
            .filter(|check| check.group == group.name())
            .collect();
        if of_group.is_empty() {
            continue;
        }
        let _ = writeln!(text, "\n{} {}", colored(status), group.name());
        for check in of_group {
            let line = format!("{}: {}", check.id, escaped(&check.finding));
            wrap(text, &line, WORD, width);
        }
    }
}

/// The names only, a line or two a status.
fn names(diagnosis: &Diagnosis, text: &mut String, status: Status, width: usize) {
    let names: Vec<&str> = diagnosis
        .of(status)
        .map(|check| check.id.as_str())
        .collect();
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

fn closing(diagnosis: &Diagnosis, text: &mut String, all: bool) {
    let (style, word) = if diagnosis.passed {
        (GOOD, "fit")
    } else {
        (BAD, "not fit")
    };
    let _ = writeln!(
        text,
        "\n{style}{word}{style:#}: {}, in {:.1} s",
        diagnosis.counts(),
        diagnosis.elapsed_us as f64 / 1e6
    );
    if !all {
        let _ = writeln!(text, "muster doctor --all shows what each check found");
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
