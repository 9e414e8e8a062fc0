//! Result files: read whole, believed only as far as they say what they are.

use std::path::Path;

use serde_json::Value;

use crate::bench::machine::Machine;
use crate::bench::model::{self as bench, BenchReport};
use crate::drill::model as drill;
use crate::fail::Failure;
use crate::moe::report::{self as moe, MoeReport};
use crate::report::compared::{self, CompareReport};
use crate::report::model::{self as verify, Report};

/// Largest file that is read, in bytes: hundreds of times what the longest run writes.
const BYTES_MAX: u64 = 1 << 30;

/// What a result file holds.
#[derive(Debug)]
pub enum Results {
    /// Of `muster bench`.
    Bench(Box<BenchReport>),
    /// Of `muster compare`.
    Compare(Box<CompareReport>),
    /// Of `muster drill`.
    Drill(Box<drill::Report>),
    /// Of `muster moe`.
    Moe(Box<MoeReport>),
    /// Of `muster verify`.
    Verify(Box<Report>),
}

impl Results {
    /// The command that wrote it.
    #[must_use]
    pub const fn command(&self) -> &'static str {
        match self {
            Self::Bench(_) => "bench",
            Self::Compare(_) => "compare",
            Self::Drill(_) => "drill",
            Self::Moe(_) => "moe",
            Self::Verify(_) => "verify",
        }
    }
}

/// Reads a result file.
///
/// # Errors
/// A failure of class USAGE that says what is wrong with the file: not there, cut off, not one of
/// ours, or of another version.
pub fn read(path: &Path) -> Result<Results, Failure> {
    let shown = path.display();
    let unreadable =
        |error: std::io::Error| Failure::usage(format!("{shown} cannot be read: {error}"));
    let length = std::fs::metadata(path).map_err(unreadable)?.len();
    if length > BYTES_MAX {
        return Err(Failure::usage(format!(
            "{shown} is {length} bytes long, result files have at most {BYTES_MAX}"
        )));
    }
    let bytes = std::fs::read(path).map_err(unreadable)?;
    parse(&bytes, &shown.to_string())
}

/// The results that a document holds; `name` is for messages.
///
/// # Errors
/// As [`read`].
pub fn parse(bytes: &[u8], name: &str) -> Result<Results, Failure> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(Failure::usage(format!("{name} is empty"))
            .with_help("write it with `muster bench --save FILE` or `--format json`"));
    }
    let document: Value = serde_json::from_slice(bytes).map_err(|error| {
        if error.is_eof() {
            Failure::usage(format!(
                "{name} is cut off: it ends inside the document, after {} bytes",
                bytes.len()
            ))
            .with_help("`--save FILE` never leaves half a file")
        } else {
            Failure::usage(format!("{name} is no JSON document: {error}"))
        }
    })?;
    let field = |name: &str| document.get(name);
    let command = field("command").and_then(Value::as_str);
    let is_verify = field("cases").is_some() && field("matrices").is_some();
    let is_drill = field("drills").is_some() && field("interrupted").is_some();
    let known = match command {
        Some("bench") => bench::SCHEMA_VERSION,
        Some("compare") => compared::SCHEMA_VERSION,
        Some("moe") => moe::SCHEMA_VERSION,
        _ if is_verify => verify::SCHEMA_VERSION,
        _ if is_drill => drill::SCHEMA_VERSION,
        _ => {
            return Err(Failure::usage(format!(
                "{name} is no result of `muster bench`, `moe`, `verify`, `compare` or `drill`"
            ))
            .with_help("all of them write one with --format json"));
        }
    };
    let version = field("schema_version").and_then(Value::as_u64);
    if version != Some(u64::from(known)) {
        let version = version.map_or_else(|| "none".to_owned(), |version| version.to_string());
        return Err(Failure::usage(format!(
            "{name} has schema_version {version}, this program reads {known}"
        ))
        .with_help("compare files of one version: measure the base again with this program"));
    }
    let broken = |error: serde_json::Error| {
        Failure::usage(format!(
            "{name} lacks something or has something else in it: {error}"
        ))
    };
    Ok(match command {
        Some("bench") => Results::Bench(serde_json::from_value(document).map_err(broken)?),
        Some("compare") => Results::Compare(serde_json::from_value(document).map_err(broken)?),
        Some("moe") => Results::Moe(serde_json::from_value(document).map_err(broken)?),
        _ if is_drill => Results::Drill(serde_json::from_value(document).map_err(broken)?),
        _ => Results::Verify(serde_json::from_value(document).map_err(broken)?),
    })
}

/// What times depend on beside the program: machine and settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conditions(Vec<(&'static str, String)>);

impl Conditions {
    /// Of a benchmark.
    #[must_use]
    pub fn of_bench(report: &BenchReport) -> Self {
        Self::of(
            &report.machine,
            (&report.backend, report.emulated),
            &report.transport,
            report.pinned,
        )
    }

    /// Of a dispatch: with the seed, because it decides who sends what where.
    #[must_use]
    pub fn of_moe(report: &MoeReport) -> Self {
        let mut all = Self::of(
            &report.machine,
            (&report.backend, report.emulated),
            &report.transport,
            report.pinned,
        );
        all.0.push(("seed", report.seed.to_string()));
        all
    }

    fn of(
        machine: &Machine,
        (backend, emulated): (&str, bool),
        transport: &str,
        pinned: bool,
    ) -> Self {
        let pinned = if pinned { "pinned" } else { "free" };
        Self(vec![
            ("processor", machine.cpu.clone()),
            ("processors", machine.cpus.to_string()),
            ("architecture", machine.arch.clone()),
            ("build profile", machine.profile.clone()),
            ("backend", backend.to_owned()),
            ("emulated device", emulated.to_string()),
            ("transport", transport.to_owned()),
            ("ranks", pinned.to_owned()),
        ])
    }

    /// What differs and makes times incomparable.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<String> {
        self.0
            .iter()
            .zip(&other.0)
            .filter(|(base, new)| base != new)
            .map(|((what, base), (_, new))| format!("{what} {base} and {new}"))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_cannot_be_used_are_told_what_is_wrong_with_them() {
        let report = BenchReport::new("host", 1, "auto", 5, 10);
        let text = serde_json::to_string(&report).expect("JSON");
        assert!(matches!(parse(text.as_bytes(), "x"), Ok(Results::Bench(_))));
        let newer = text.replace("\"schema_version\":1", "\"schema_version\":99");
        let lacking = text.replace("\"rounds\":10,", "");
        for (bytes, part) in [
            (&b""[..], "is empty"),
            (&text.as_bytes()[..text.len() / 2], "is cut off"),
            (b"hello", "no JSON document"),
            (b"{\"a\":1}", "no result of"),
            (b"[1,2]", "no result of"),
            (newer.as_bytes(), "schema_version 99"),
            (lacking.as_bytes(), "missing field `rounds`"),
        ] {
            let failure = parse(bytes, "x").expect_err("refused");
            assert_eq!(failure.exit, crate::exit::Exit::Usage);
            assert!(failure.message.contains(part), "{part}: {failure}");
        }
        for cut in 1..text.len() {
            assert!(parse(&text.as_bytes()[..cut], "x").is_err(), "cut at {cut}");
        }
    }
}
