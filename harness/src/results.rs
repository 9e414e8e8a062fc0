//! All results that are written to files, and how they are read: whole, and believed only as far as
//! they say what they are.

use std::path::Path;

use serde_json::Value;

use crate::baseline::Baseline;
use crate::bench::model::BenchReport;
use crate::bench::tune::{self, TuneReport};
use crate::compare::report::CompareReport;
use crate::diagnosis::Diagnosis;
use crate::drill;
use crate::fail::Failure;
use crate::moe::predicted::Prediction;
use crate::moe::report::MoeReport;
use crate::report::document::{Document, Model};
#[cfg(feature = "schema")]
use crate::report::schema;
use crate::report::schema::Described;
use crate::validation::Validation;
use crate::verify;

/// Largest file that is read, in bytes: hundreds of times what the longest run writes.
const BYTES_MAX: u64 = 1 << 30;

/// Every result with a schema.
pub const KINDS: [Kind; 10] = [
    Kind::of::<verify::model::Report>(),
    Kind::of::<BenchReport>(),
    Kind::unread::<TuneReport>("tune", tune::SCHEMA_VERSION),
    Kind::of::<MoeReport>(),
    Kind::of::<Prediction>(),
    Kind::of::<CompareReport>(),
    Kind::of::<drill::model::Report>(),
    Kind::of::<Diagnosis>(),
    Kind::of::<Validation>(),
    Kind::of::<Baseline>(),
];

type Read = fn(&[u8]) -> Result<Box<dyn Document>, serde_json::Error>;

/// A kind of result.
#[derive(Debug)]
pub struct Kind {
    /// The command that writes it.
    pub command: &'static str,
    version: u32,
    /// Fields that tell it from others, where it does not name its command.
    marks: &'static [&'static str],
    #[cfg(feature = "schema")]
    schema: fn(&Self) -> String,
    /// Makes one of a JSON document, where anybody wants to.
    read: Option<Read>,
}

impl Kind {
    const fn of<T: Model>() -> Self {
        Self {
            command: T::COMMAND,
            version: T::VERSION,
            marks: T::MARKS,
            #[cfg(feature = "schema")]
            schema: |kind| schema::of::<T>(kind.command, kind.version, T::TEXTS),
            read: Some(|bytes| Ok(Box::new(serde_json::from_slice::<T>(bytes)?))),
        }
    }

    const fn unread<T: Described>(command: &'static str, version: u32) -> Self {
        Self {
            command,
            version,
            marks: &[],
            #[cfg(feature = "schema")]
            schema: |kind| schema::of::<T>(kind.command, kind.version, &[]),
            read: None,
        }
    }

    /// The schema of its documents.
    #[cfg(feature = "schema")]
    #[must_use]
    pub fn schema(&self) -> String {
        (self.schema)(self)
    }

    /// The kind of a document, and what reads it.
    fn of_document(document: &Value) -> Option<(&'static Self, Read)> {
        let command = document.get("command").and_then(Value::as_str);
        let readable = || KINDS.iter().filter_map(|kind| Some((kind, kind.read?)));
        let named = readable().find(|(kind, _)| Some(kind.command) == command);
        let has = |name: &&str| document.get(*name).is_some();
        let is_marked = |kind: &Self| !kind.marks.is_empty() && kind.marks.iter().all(has);
        named.or_else(|| readable().find(|(kind, _)| is_marked(kind)))
    }
}

/// Reads a result file.
///
/// # Errors
/// A failure of class USAGE that says what is wrong with the file: not there, cut off, not one of
/// ours, or of another version.
pub fn read(path: &Path) -> Result<Box<dyn Document>, Failure> {
    parse(&load(path)?, &path.display().to_string())
}

/// Reads a result file and gives back the results of single commands in it: those of its stages where it is one of `validate`.
///
/// # Errors
/// As [`read`].
pub fn read_all(path: &Path) -> Result<Vec<Box<dyn Document>>, Failure> {
    let whole = read(path)?;
    let parts = whole.parts();
    if parts.is_empty() {
        return Ok(vec![whole]);
    }
    let name = path.display().to_string();
    let read = |part: &&Value| parse(part.to_string().as_bytes(), &name);
    parts.iter().map(read).collect()
}

/// Reads a result file of one kind.
///
/// # Errors
/// As [`read`], and where it is of another kind.
pub fn read_as<T: Model>(path: &Path) -> Result<T, Failure> {
    let (bytes, name) = (load(path)?, path.display());
    let command = parse(&bytes, &name.to_string())?.about().command;
    if command != T::COMMAND {
        return Err(Failure::usage(format!(
            "{name} is a result of {command}, and one of {} is needed",
            T::COMMAND
        )));
    }
    serde_json::from_slice(&bytes).map_err(|error| Failure::usage(format!("{name}: {error}")))
}

/// The bytes of a file.
fn load(path: &Path) -> Result<Vec<u8>, Failure> {
    let shown = path.display();
    let unreadable =
        |error: std::io::Error| Failure::usage(format!("{shown} cannot be read: {error}"));
    let length = std::fs::metadata(path).map_err(unreadable)?.len();
    if length > BYTES_MAX {
        return Err(Failure::usage(format!(
            "{shown} is {length} bytes long, result files have at most {BYTES_MAX}"
        )));
    }
    std::fs::read(path).map_err(unreadable)
}

/// The results that a document holds; `name` is for messages.
///
/// # Errors
/// As [`read`].
pub fn parse(bytes: &[u8], name: &str) -> Result<Box<dyn Document>, Failure> {
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
    let Some((kind, read)) = Kind::of_document(&document) else {
        return Err(Failure::usage(format!(
            "{name} is no result of `muster bench`, `moe`, `verify`, `compare`, `drill`, `doctor`, `validate` or `baseline`"
        ))
        .with_help("all of them write one with --format json"));
    };
    let (version, known) = (
        document.get("schema_version").and_then(Value::as_u64),
        kind.version,
    );
    if version != Some(u64::from(known)) {
        let version = version.map_or_else(|| "none".to_owned(), |version| version.to_string());
        return Err(Failure::usage(format!(
            "{name} has schema_version {version}, this program reads {known}"
        ))
        .with_help("compare files of one version: measure the base again with this program"));
    }
    drop(document);
    read(bytes).map_err(|error| {
        Failure::usage(format!(
            "{name} lacks something or has something else in it: {error}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench;

    #[test]
    fn files_that_cannot_be_used_are_told_what_is_wrong_with_them() {
        let mut report = BenchReport::new(bench::model::Settings::default());
        report.rounds = 10;
        let text = serde_json::to_string(&report).expect("JSON");
        let read = parse(text.as_bytes(), "x").expect("a result");
        assert_eq!(read.about().command, "bench");
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

    #[test]
    fn every_schema_pins_its_version_and_requires_it() {
        for kind in KINDS.iter().filter(|kind| kind.read.is_some()) {
            let text = kind.schema();
            let schema: Value = serde_json::from_str(&text).expect("JSON");
            assert_eq!(schema["properties"]["schema_version"]["const"], 1, "{text}");
            let required = schema["required"].as_array().expect("a list");
            for name in ["schema_version", "tool", "passed"] {
                assert!(required.iter().any(|one| one == name), "{name} in {text}");
            }
        }
    }
}
