//! A report as Markdown, for comments and summaries of CI systems.

use std::fmt::Write as _;

use crate::out::escaped;
use crate::report::document::Document;
use crate::report::html::backend_in_words;

/// The report.
#[must_use]
pub fn render(document: &dyn Document) -> String {
    let (about, headline) = (document.about(), document.headline());
    let partial = if about.partial { " (partial)" } else { "" };
    let mut text = format!(
        "### {} muster {}: {}{partial}\n\n{}.\n",
        headline.mood.sign(),
        about.command,
        cell(&headline.word),
        cell(&headline.sentence),
    );
    if about.emulated {
        text.push_str("\n> Emulated devices: times and limits say nothing about hardware.\n");
    }
    if let Some(next) = about.verdict.and_then(|verdict| verdict.next.as_ref()) {
        let _ = writeln!(text, "\nNext: {}.", cell(next));
    }
    let _ = writeln!(text, "\n{}", document.markdown().trim_end());
    let mut where_and_how = vec![format!("{} {}", about.tool, about.command)];
    where_and_how.extend(backend_in_words(&about).map(|(name, more)| format!("{name}: {more}")));
    if let Some(machine) = about.machine {
        where_and_how.push(format!(
            "{} ({} usable), {}, {} build",
            machine.cpu, machine.cpus, machine.kernel, machine.profile
        ));
    }
    if let Some(origin) = about.origin {
        where_and_how.push(format!("{} on {}", origin.started_at, origin.host));
    }
    let _ = writeln!(text, "\n<sub>{}</sub>", cell(&where_and_how.join(" · ")));
    text
}

/// A column of a table: its name, and the text of its cell in a row.
pub type Column<R> = (&'static str, fn(&R) -> String);

/// A table of at most `most` rows. The figures of columns whose names begin with `>` stand on the right.
#[must_use]
pub fn table<'a, R: 'a>(
    rows: impl IntoIterator<Item = &'a R>,
    columns: &[Column<R>],
    most: usize,
) -> String {
    let mut text = String::from("|");
    for (name, _) in columns {
        let name = name.trim_start_matches('>');
        let _ = write!(text, " {name}{}|", if name.is_empty() { "" } else { " " });
    }
    text.push_str("\n|");
    for (name, _) in columns {
        text.push_str(if name.starts_with('>') {
            "---:|"
        } else {
            "---|"
        });
    }
    text.push('\n');
    let mut rows = rows.into_iter();
    for row in rows.by_ref().take(most) {
        text.push('|');
        for (_, of) in columns {
            let _ = write!(text, " {} |", cell(&of(row)));
        }
        text.push('\n');
    }
    let left = rows.count();
    if left > 0 {
        let _ = writeln!(text, "\nand {left} more");
    }
    text
}

/// Text that cannot end a cell of a table or begin markup.
#[must_use]
pub fn cell(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for character in escaped(text).chars() {
        match character {
            '|' | '<' | '>' | '`' | '*' | '_' | '[' | ']' | '\\' | '#' => {
                clean.push('\\');
                clean.push(character);
            }
            '\n' | '\t' => clean.push(' '),
            plain => clean.push(plain),
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_end_a_cell_or_begin_markup() {
        assert_eq!(cell("a|b<c>\n`d`"), "a\\|b\\<c\\> \\`d\\`");
    }
}
