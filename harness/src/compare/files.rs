//! Result files: read whole, believed only as far as they say what they are.

use std::path::Path;

use serde_json::Value;

use crate::bench::model::{self as bench, BenchReport};
use crate::fail::Failure;
use crate::report::model::{self as verify, Report};

/// Largest file that is read, in bytes: hundreds of times what the longest run writes.
const BYTES_MAX: u64 = 1 << 30;

/// What a result file holds.
#[derive(Debug)]
pub enum Results {
    /// Of `muster bench`.
    Bench(Box<BenchReport>),
    /// Of `muster verify`.
    Verify(Box<Report>),
}

impl Results {
    /// The command that wrote it.
    #[must_use]
    pub const fn command(&self) -> &'static str {
        match self {
            Self::Bench(_) => "bench",
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
    let is_bench = field("command").and_then(Value::as_str) == Some("bench");
    let is_verify = field("cases").is_some() && field("matrices").is_some();
    if !is_bench && !is_verify {
        return Err(Failure::usage(format!(
            "{name} is no result of `muster bench` or `muster verify`"
        ))
        .with_help("both write one with --format json"));
    }
    let known = if is_bench {
        bench::SCHEMA_VERSION
    } else {
        verify::SCHEMA_VERSION
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
    Ok(if is_bench {
        Results::Bench(serde_json::from_value(document).map_err(broken)?)
    } else {
        Results::Verify(serde_json::from_value(document).map_err(broken)?)
    })
}

/// What of two machines or settings differs and makes times incomparable.
#[must_use]
pub fn differences(base: &BenchReport, new: &BenchReport) -> Vec<String> {
    let pairs = [
        (
            "processor",
            base.machine.cpu.clone(),
            new.machine.cpu.clone(),
        ),
        (
            "processors",
            base.machine.cpus.to_string(),
            new.machine.cpus.to_string(),
        ),
        (
            "architecture",
            base.machine.arch.clone(),
            new.machine.arch.clone(),
        ),
        (
            "build profile",
            base.machine.profile.clone(),
            new.machine.profile.clone(),
        ),
        ("backend", base.backend.clone(), new.backend.clone()),
        (
            "emulated device",
            base.emulated.to_string(),
            new.emulated.to_string(),
        ),
        ("transport", base.transport.clone(), new.transport.clone()),
    ];
    pairs
        .into_iter()
        .filter(|(_, base, new)| base != new)
        .map(|(what, base, new)| format!("{what} {base} and {new}"))
        .collect()
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
