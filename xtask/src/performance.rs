//! `cargo run -p xtask -- performance`: the measurements of `docs/performance/data.json` as tables. Each table names
//! its machine, date, build and conditions.

use std::fmt::Write as _;

use serde::Deserialize;

use crate::{Failure, root};

const DATA: &str = "docs/performance/data.json";

/// The file of measurements.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Data {
    machines: Vec<Machine>,
    tables: Vec<Table>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Machine {
    name: String,
    description: String,
}

/// Figures that were measured together.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    title: String,
    /// The name of one of the machines.
    machine: String,
    date: String,
    /// The build that was measured, where it was recorded.
    build: Option<String>,
    command: Option<String>,
    conditions: String,
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
    /// What else was measured or found, one sentence or two each.
    #[serde(default)]
    notes: Vec<String>,
}

/// The whole file, in Markdown.
pub(crate) fn tables() -> Result<String, Failure> {
    let data = read()?;
    let mut text = "# Measurements\n\n".to_owned();
    for machine in &data.machines {
        writeln!(text, "- **{}**: {}", machine.name, machine.description)?;
    }
    for table in &data.tables {
        table.print(&mut text)?;
    }
    Ok(text)
}

fn read() -> Result<Data, Failure> {
    let data: Data = serde_json::from_str(&std::fs::read_to_string(root().join(DATA))?)?;
    for table in &data.tables {
        let title = &table.title;
        if !data
            .machines
            .iter()
            .any(|known| known.name == table.machine)
        {
            return Err(Failure(format!(
                "{DATA}: {title}: no machine {}",
                table.machine
            )));
        }
        if let Some(row) = table
            .rows
            .iter()
            .find(|row| row.len() != table.columns.len())
        {
            return Err(Failure(format!(
                "{DATA}: {title}: {} cells for {} columns: {row:?}",
                row.len(),
                table.columns.len()
            )));
        }
    }
    Ok(data)
}

impl Table {
    fn print(&self, text: &mut String) -> Result<(), Failure> {
        writeln!(text, "\n## {}\n", self.title)?;
        let build = self.build.as_ref().map(|build| format!(", build {build}"));
        let build = build.unwrap_or_default();
        writeln!(
            text,
            "Machine {}, {}{build}. {}",
            self.machine, self.date, self.conditions
        )?;
        if let Some(command) = &self.command {
            writeln!(text, "\n    {command}")?;
        }
        if !self.rows.is_empty() {
            writeln!(text, "\n| {} |", self.columns.join(" | "))?;
            writeln!(text, "|---|{}", "---:|".repeat(self.columns.len() - 1))?;
        }
        for row in &self.rows {
            writeln!(text, "| {} |", row.join(" | "))?;
        }
        if !self.notes.is_empty() {
            text.push('\n');
        }
        for note in &self.notes {
            writeln!(text, "- {note}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    /// The numbers of a text: digits with their points and thousands commas.
    fn figures(text: &str) -> BTreeSet<&str> {
        text.split(|c: char| !c.is_ascii_digit() && c != '.' && c != ',')
            .map(|word| word.trim_matches(['.', ',']))
            .filter(|word| !word.is_empty())
            .collect()
    }

    /// A page without links' targets and without code, which hold names and not figures.
    fn prose(page: &str) -> String {
        let outside = |fence: &str, text: &str| -> String {
            let parts = text.split(fence).step_by(2);
            parts.collect::<Vec<_>>().join(" ")
        };
        let text = outside("`", &outside("```", page));
        let mut parts = text.split("](");
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |text, part| {
            text + " " + part.split_once(')').map_or("", |(_, rest)| rest)
        })
    }

    #[test]
    fn every_table_can_be_printed_with_where_it_was_measured() {
        let (data, printed) = (read().expect("legal"), tables().expect("printed"));
        assert!(data.tables.len() > 20, "only {} tables", data.tables.len());
        for table in &data.tables {
            assert!(printed.contains(&format!("\n## {}\n", table.title)));
            assert!(!table.date.is_empty() && !table.conditions.is_empty());
            for row in &table.rows {
                assert!(printed.contains(&row.join(" | ")), "{row:?}");
            }
        }
    }

    /// The paragraphs, list items and table rows of a page.
    fn blocks(prose: &str) -> Vec<String> {
        let mut blocks = vec![String::new()];
        for line in prose.lines() {
            if line.is_empty() || line.starts_with("- ") || line.starts_with('|') {
                blocks.push(String::new());
            }
            if let Some(block) = blocks.last_mut() {
                *block += line;
                *block += "\n";
            }
        }
        blocks
    }

    #[test]
    fn the_figures_of_each_paragraph_of_the_page_are_those_of_one_subject_of_the_data() {
        let page = std::fs::read_to_string(root().join("docs/performance.md")).expect("a page");
        let data = read().expect("legal");
        // Tables of one subject have titles that differ behind a comma only.
        let mut subjects: BTreeMap<&str, String> = BTreeMap::new();
        for table in &data.tables {
            let subject = table.title.split(',').next().unwrap_or_default();
            let text = subjects.entry(subject).or_default();
            table.print(text).expect("printed");
        }
        let mut quoted = 0;
        for block in blocks(&prose(&page)) {
            let figures = figures(&block);
            quoted += figures.len();
            let is_recorded = |text: &String| figures.is_subset(&self::figures(text));
            assert!(
                subjects.values().any(is_recorded),
                "no subject of {DATA} has all of {figures:?}:\n{block}"
            );
        }
        assert!(quoted > 60, "only {quoted} figures");
    }

    #[test]
    fn figures_are_read_from_prose_only() {
        let page = "1.5 times, `8x` [of 7](page-9.md), 1,153 us.\n```\n44\n```\n";
        assert_eq!(
            figures(&prose(page)).into_iter().collect::<Vec<_>>(),
            ["1,153", "1.5", "7"]
        );
    }
}
