//! Writes the generated files of the repository: `cargo run -p xtask` writes them,
//! `cargo run -p xtask -- --check` compares them. `performance` prints the recorded measurements as
//! tables. `simulate` runs the control plane in virtual time.

mod invariants;
mod performance;
mod simulate;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use muster_harness::report::schema;

/// A generated file: where it lies in the repository, and what makes its text.
struct Generated {
    path: &'static str,
    make: fn() -> Result<String, Failure>,
}

const FILES: &[Generated] = &[
    Generated {
        path: "ARCHITECTURE.md",
        make: invariants::page,
    },
    Generated {
        path: "docs/schema/verify.json",
        make: || Ok(schema::of_verify()),
    },
    Generated {
        path: "docs/schema/bench.json",
        make: || Ok(schema::of_bench()),
    },
    Generated {
        path: "docs/schema/tune.json",
        make: || Ok(schema::of_tune()),
    },
    Generated {
        path: "docs/schema/moe.json",
        make: || Ok(schema::of_moe()),
    },
    Generated {
        path: "docs/schema/compare.json",
        make: || Ok(schema::of_compare()),
    },
    Generated {
        path: "docs/schema/drill.json",
        make: || Ok(schema::of_drill()),
    },
];

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
        ["performance"] => performance::tables(),
        ["simulate", options @ ..] => simulate::command(options),
        _ => Err(Failure(
            "allowed are no arguments (write), --check (compare), performance, and simulate"
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
    for file in FILES {
        let text = (file.make)()?;
        std::fs::write(root().join(file.path), text)?;
        writeln!(report, "wrote {}", file.path)?;
    }
    Ok(report)
}

/// Compares what lies there with what should.
fn check_all() -> Result<String, Failure> {
    let mut report = String::new();
    for file in FILES {
        let want = (file.make)()?;
        let got = std::fs::read_to_string(root().join(file.path))
            .map_err(|error| Failure(format!("{}: {error}", file.path)))?;
        if let Some(line) = first_difference(&got, &want) {
            return Err(Failure(format!(
                "{} differs from what is generated, first in line {line}; run cargo run -p xtask",
                file.path
            )));
        }
        writeln!(report, "{} is as it should be", file.path)?;
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
