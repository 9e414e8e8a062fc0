//! A comparison for people: the worst first, a sentence each.

use std::fmt::Write as _;

use crate::compare::judge::{Compared, Comparison, Fate};
use crate::exit::Exit;
use crate::out::{BAD, GOOD, STRONG, escaped};
use crate::report::document::text_of;
use crate::report::html::parts::short;
use crate::report::markdown::{Column, cell, table};

/// Rows of one fate that are shown; the JSON document has all of them.
const SHOWN_MAX: usize = 20;

/// Fates worth a line each, worst first, and whether they are bad.
const SHOWN: [(Fate, &str, bool); 10] = [
    (Fate::WrongData, "wrong data", true),
    (Fate::Regressed, "slower", true),
    (Fate::Failed, "failed", true),
    (Fate::Missing, "missing", true),
    (Fate::MachineSlower, "machine slower", false),
    (Fate::Undecided, "undecided", false),
    (Fate::StillWrong, "still wrong", true),
    (Fate::New, "new", false),
    (Fate::Repaired, "repaired", false),
    (Fate::Improved, "faster", false),
];

/// Plain text, with colours; the printer strips them where they do not belong.
#[must_use]
pub fn text(comparison: &Comparison) -> String {
    let mut text = String::new();
    for remark in &comparison.remarks {
        let _ = writeln!(text, "{STRONG}note{STRONG:#}: {}", escaped(remark));
    }
    for (fate, word, is_bad) in SHOWN {
        let rows = of(comparison, fate);
        for row in rows.iter().take(SHOWN_MAX) {
            let (name, sentence) = (escaped(&row.name), escaped(&row.sentence));
            let _ = if is_bad {
                writeln!(text, "{BAD}{word}{BAD:#}: {name}: {sentence}")
            } else {
                writeln!(text, "{word}: {name}: {sentence}")
            };
        }
        if rows.len() > SHOWN_MAX {
            let _ = writeln!(text, "  and {} more: {word}", rows.len() - SHOWN_MAX);
        }
    }
    let style = if comparison.class == Exit::Ok {
        GOOD
    } else {
        BAD
    };
    let _ = writeln!(
        text,
        "{style}{}{style:#}: {}",
        verdict(comparison),
        summary(comparison)
    );
    if let Some(next) = next(comparison) {
        let _ = writeln!(text, "  next: {next}");
    }
    text
}

/// What to do about it, if anything.
pub(super) fn next(comparison: &Comparison) -> Option<&'static str> {
    let known = [
        (
            Exit::Data,
            "run `muster verify` with the new build: it names the ranks and the elements",
        ),
        (
            Exit::Slow,
            "measure both builds in turns, so that the machine is not the reason: \
             `muster compare --run BASE --run NEW -- bench COLLECTIVE -b SIZE -e SIZE`",
        ),
        (
            Exit::FailedCell,
            "run `muster verify` with the new build: it says how the check fails",
        ),
    ];
    let found = known.iter().find(|(class, _)| *class == comparison.class);
    let is_undecided = comparison.class != Exit::Ok && !of(comparison, Fate::Undecided).is_empty();
    let more =
        is_undecided.then_some("measure both sides again with as many `--rounds` as the rows say");
    found.map(|(_, words)| *words).or(more)
}

/// The same for a page that understands Markdown, such as the summary of a CI job.
#[must_use]
pub fn markdown(comparison: &Comparison) -> String {
    let verdict = verdict(comparison);
    format!("### muster compare: {verdict}\n\n{}", tables(comparison))
}

const TABLE: &[Column<Compared>] = &[
    ("", |row| {
        let word = SHOWN.iter().find(|(fate, _, _)| *fate == row.fate);
        word.map_or("", |(_, word, _)| word).to_owned()
    }),
    ("row", |row| row.name.clone()),
    (">base us", |row| text_of(row.base_us.map(short))),
    (">new us", |row| text_of(row.new_us.map(short))),
    (">change", |row| {
        text_of(
            row.ratio
                .map(|ratio| format!("{:+.1} %", (ratio - 1.0) * 100.0)),
        )
    }),
    ("", |row| row.sentence.clone()),
];

/// The same without its heading.
pub(super) fn tables(comparison: &Comparison) -> String {
    let mut text = format!("{}\n", summary(comparison));
    for remark in &comparison.remarks {
        let _ = writeln!(text, "\n> {}", cell(remark));
    }
    let notable: Vec<&Compared> = SHOWN
        .iter()
        .flat_map(|(fate, _, _)| of(comparison, *fate).into_iter().take(SHOWN_MAX))
        .collect();
    if !notable.is_empty() {
        text.push('\n');
        text.push_str(&table(notable, TABLE, usize::MAX));
    }
    if let Some(next) = next(comparison) {
        let _ = writeln!(text, "\nNext: {next}");
    }
    text
}

fn of(comparison: &Comparison, fate: Fate) -> Vec<&Compared> {
    let rows = comparison.rows.iter();
    rows.filter(|row| row.fate == fate).collect()
}

/// The outcome in a word or two.
fn verdict(comparison: &Comparison) -> String {
    let known = [
        (Exit::Ok, "no regression"),
        (Exit::Data, "wrong data"),
        (Exit::Slow, "slower"),
        (Exit::FailedCell, "a check fails that passed before"),
    ];
    let found = known.iter().find(|(class, _)| *class == comparison.class);
    found.map_or("not proved", |(_, words)| words).to_owned()
}

/// How many rows there are of each fate.
fn summary(comparison: &Comparison) -> String {
    let same = of(comparison, Fate::Same).len();
    let mut parts = vec![
        format!("{} rows", comparison.rows.len()),
        format!("{same} the same"),
    ];
    for (fate, word, _) in SHOWN {
        let number = of(comparison, fate).len();
        if number > 0 {
            parts.push(format!("{number} {word}"));
        }
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::judge::{Wishes, judge};
    use crate::report::document::Row;

    #[test]
    fn both_views_name_the_worst_and_break_no_table() {
        let row = |name: &str, times: [f64; 8], wrong| Row {
            name: name.to_owned(),
            rounds_us: times.to_vec(),
            wrong,
            ..Row::default()
        };
        let ascending = [1.0, 1.01, 1.02, 1.03, 1.04, 1.05, 1.06, 1.07];
        let wishes = Wishes {
            threshold: 0.05,
            margin: 0.1,
            allow_missing: false,
            pairs: false,
        };
        let comparison = judge(
            &[row("a|b", ascending, 0), row("c", ascending, 0)],
            &[
                row("a|b", ascending.map(|time| time * 2.0), 0),
                row("c", ascending, 5),
            ],
            &[],
            &[],
            &wishes,
        );
        let text = text(&comparison);
        let wrong = text.find("wrong data").expect("named");
        assert!(wrong < text.find("slower").expect("named"), "{text}");
        assert!(text.contains("+100.0 %"), "{text}");
        let page = markdown(&comparison);
        assert!(page.contains("a\\|b"), "{page}");
        assert!(page.starts_with("### muster compare: wrong data"), "{page}");
    }
}
