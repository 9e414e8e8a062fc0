//! The index of invariants in ARCHITECTURE.md: which file states which labels at its top.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::{Failure, root};

const PAGE: &str = "ARCHITECTURE.md";
const BEGIN: &str = "<!-- invariants: written by `cargo run -p xtask` -->\n";
const END: &str = "<!-- end of invariants -->\n";

/// ARCHITECTURE.md with its index made anew; the rest of the page stays as it is.
pub(crate) fn page() -> Result<String, Failure> {
    let page = std::fs::read_to_string(root().join(PAGE))?;
    let marked = || Failure(format!("{PAGE} lacks the lines {BEGIN}and {END}"));
    let (before, rest) = page.split_once(BEGIN).ok_or_else(marked)?;
    let (_, after) = rest.split_once(END).ok_or_else(marked)?;
    Ok(format!("{before}{BEGIN}{}{END}{after}", index()?))
}

fn index() -> Result<String, Failure> {
    let mut text = "| labels | file |\n|---|---|\n".to_owned();
    for (path, labels) in stated()? {
        writeln!(text, "| {} | `{path}` |", in_runs(&labels))?;
    }
    Ok(text)
}

/// Every source that states invariants, by path, with their labels in the order of the text.
fn stated() -> Result<Vec<(String, Vec<String>)>, Failure> {
    let root = root();
    let mut sources = Vec::new();
    find_sources(&root, &mut sources)?;
    sources.sort();
    let mut stated = Vec::new();
    for source in sources {
        let labels = labels_of(&std::fs::read_to_string(&source)?);
        if !labels.is_empty() {
            let path = source.strip_prefix(&root)?;
            stated.push((path.display().to_string(), labels));
        }
    }
    Ok(stated)
}

/// Every Rust file below a folder, but what is built or hidden.
pub(crate) fn find_sources(folder: &Path, found: &mut Vec<PathBuf>) -> Result<(), Failure> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        let name = entry.file_name();
        let is_ours = name != "target" && !name.to_string_lossy().starts_with('.');
        if is_ours && entry.file_type()?.is_dir() {
            find_sources(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

/// The labels that the comment at the top of a file states: each is followed by a colon.
fn labels_of(source: &str) -> Vec<String> {
    let header = source.lines().take_while(|line| line.starts_with("//!"));
    let mut labels: Vec<String> = Vec::new();
    for word in header.flat_map(str::split_whitespace) {
        let Some(label) = word.strip_suffix(':').map(|word| word.trim_matches('`')) else {
            continue;
        };
        if is_label(label) && !labels.iter().any(|known| known == label) {
            labels.push(label.to_owned());
        }
    }
    labels
}

/// Whether a word is the label of an invariant: parts of capitals, the last one with or without a number.
fn is_label(word: &str) -> bool {
    let Some((name, last)) = word.rsplit_once('-') else {
        return false;
    };
    let is_name = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_uppercase());
    let digits = last.trim_start_matches(|c: char| c.is_ascii_uppercase());
    name.split('-').all(is_name) && !last.is_empty() && digits.chars().all(|c| c.is_ascii_digit())
}

/// Labels of one name in a row as one range: `SHM-1 to 4`, `RING-1, 2`.
fn in_runs(labels: &[String]) -> String {
    let mut runs: Vec<(&str, u32, u32)> = Vec::new();
    let mut parts: Vec<String> = Vec::new();
    for label in labels {
        match label
            .rsplit_once('-')
            .map(|(name, end)| (name, end.parse::<u32>()))
        {
            Some((name, Ok(number))) => match runs.last_mut() {
                Some(run) if run.0 == name && run.2 + 1 == number => run.2 = number,
                _ => runs.push((name, number, number)),
            },
            _ => parts.push(label.clone()),
        }
    }
    parts.extend(runs.iter().map(|(name, first, last)| match last - first {
        0 => format!("{name}-{first}"),
        1 => format!("{name}-{first}, {last}"),
        _ => format!("{name}-{first} to {last}"),
    }));
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_invariant_is_listed_with_its_file_and_nothing_else_is() {
        let stated = stated().expect("readable sources");
        let count: usize = stated.iter().map(|(_, labels)| labels.len()).sum();
        assert!(count > 200, "only {count} invariants");
        let page = page().expect("made");
        let listed = std::fs::read_to_string(root().join(PAGE)).expect("readable");
        assert_eq!(page, listed, "run cargo run -p xtask");
    }

    #[test]
    fn labels_are_read_from_the_header_only_and_listed_once() {
        let source = "//! - SHM-1: a. `SHM-2`: b, see SHM-9. SHM-1: again; UTF8: no.\n//! STREAM-END: c.\n\n//! X-1: d.\n";
        let labels = labels_of(source);
        assert_eq!(labels, ["SHM-1", "SHM-2", "STREAM-END"]);
        assert_eq!(in_runs(&labels), "STREAM-END, SHM-1, 2");
        let labels = ["A-1", "A-2", "A-3", "B-C-7"].map(str::to_owned);
        assert_eq!(in_runs(&labels), "A-1 to 3, B-C-7");
    }
}
