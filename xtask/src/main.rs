//! Writes the generated files of the repository: `cargo run -p xtask` writes them,
//! `cargo run -p xtask -- --check` compares them. `lines` counts the code. `performance` prints the
//! recorded measurements as tables. `simulate` runs the control plane in virtual time.

mod invariants;
mod lines;
mod performance;
mod simulate;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use muster_harness::results::{KINDS, Kind};

/// A generated file: where it lies in the repository, and its text.
type Generated = (String, String);

fn files() -> Result<Vec<Generated>, Failure> {
    let page = ("ARCHITECTURE.md".to_owned(), invariants::page()?);
    let schema = |kind: &Kind| (format!("docs/schema/{}.json", kind.command), kind.schema());
    let schemas = KINDS.iter().map(schema);
    Ok(std::iter::once(page).chain(schemas).collect())
}

/// Why a file could not be made, written or compared.
#[derive(Debug)]
struct Failure(String);

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        [] => write_all(),
        ["--check"] => check_all(),
        ["lines"] => lines::table(),
        ["performance"] => performance::tables(),
        ["simulate", options @ ..] => simulate::command(options),
        _ => Err(Failure(
            "allowed are no arguments (write), --check (compare), lines, performance, and simulate"
                .to_owned(),
        )),
    };
    match outcome {
        Ok(text) => {
            // A reader that went away does not want to know.
            let _ = std::io::stdout().lock().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(Failure(text)) => {
            let _ = writeln!(std::io::stderr().lock(), "error: {text}");
            ExitCode::FAILURE
        }
    }
}

/// The root of the repository, which holds this package.
fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package).to_owned()
}

fn write_all() -> Result<String, Failure> {
    let mut report = String::new();
    for (path, text) in files()? {
        std::fs::write(root().join(&path), text)?;
        writeln!(report, "wrote {path}")?;
    }
    Ok(report)
}

/// Compares what lies there with what should.
fn check_all() -> Result<String, Failure> {
    let mut report = String::new();
    for (path, want) in files()? {
        let got = std::fs::read_to_string(root().join(&path))
            .map_err(|error| Failure(format!("{path}: {error}")))?;
        if let Some(line) = first_difference(&got, &want) {
            return Err(Failure(format!(
                "{path} differs from what is generated, first in line {line}; run cargo run -p xtask"
            )));
        }
        writeln!(report, "{path} is as it should be")?;
    }
    Ok(report)
}

/// The number of the first line that differs, counted from 1.
fn first_difference(got: &str, want: &str) -> Option<usize> {
    if got == want {
        return None;
    }
    let same = got
        .split('\n')
        .zip(want.split('\n'))
        .take_while(|(a, b)| a == b);
    Some(same.count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generated_files_are_as_the_code_makes_them() {
        let checked = check_all().expect("up to date");
        assert!(checked.contains("ARCHITECTURE.md"));
    }

    #[test]
    fn a_changed_line_is_found() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(first_difference("a\nb\n", "a\nc\n"), Some(2));
        assert_eq!(first_difference("a\n", "a\nb\n"), Some(2));
    }
}
