//! What every report has in common, whichever command wrote it: the seam between results and the
//! formats that show them.
//!
//! A result implements [`Document`]; each format is a file beside this one and knows no command.
//!
//! DOCUMENT-1: formats decide nothing. Whether a run passed is said by [`Document::headline`], which
//! takes it from the result.

use anstyle::Style;
use maud::Markup;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::exit::Exit;
use crate::fail::Failure;
use crate::out::{BAD, GOOD, STRONG};
use crate::report::cause::{Cause, listed};
use crate::report::machine::{Machine, MachineState};
use crate::report::origin::Origin;
use crate::report::schema::Described;

/// A result that can be reported.
pub trait Document: std::fmt::Debug {
    /// What is the same for all commands.
    fn about(&self) -> About<'_>;
    /// The outcome in a sentence.
    fn headline(&self) -> Headline;
    /// The whole of it as JSON, ended by a newline.
    ///
    /// # Errors
    /// A failure of class INTERNAL if it cannot be written as JSON, which none can cause.
    fn json(&self) -> Result<String, Failure>;
    /// The sections of the page between the verdict and the machine.
    fn body(&self) -> Markup;
    /// Its cases, for systems that count tests.
    fn suites(&self) -> Vec<Suite>;
    /// Its rows, with the names of the columns first.
    fn sheet(&self) -> Vec<Vec<String>>;
    /// Its figures.
    fn metrics(&self) -> Vec<Metric>;
    /// Its tables in Markdown.
    fn markdown(&self) -> String;
    /// What a terminal shows at the end, with colours; the printer strips them where they do not belong.
    fn text(&self) -> String;
    /// What `compare` can set beside another result of the same command.
    fn comparable(&self) -> Option<Comparable<'_>> {
        None
    }
    /// The results that it is made of.
    fn parts(&self) -> Vec<&Value> {
        Vec::new()
    }
}

/// A document that is written to files and read again.
pub trait Model: Document + Serialize + DeserializeOwned + Described + Sized + 'static {
    /// The command that writes it.
    const COMMAND: &'static str;
    /// Version of the fields.
    const VERSION: u32;
    /// Fields that tell it from others, where it does not name its command.
    const MARKS: &'static [&'static str] = &[];
    /// Descriptions in the schema, by field; that of the whole has no name.
    const TEXTS: &'static [(&'static str, &'static str)] = &[];
}

/// A sheet: the names of the columns, then a row each. A column is the name of a field, or `name=path`
/// where that is another; `more` has what stands in no field of a row.
#[must_use]
pub fn sheet<R: Serialize>(
    rows: &[R],
    columns: &str,
    more: impl Fn(&R) -> Value,
) -> Vec<Vec<String>> {
    let names = columns.split_whitespace().map(|column| path(column).0);
    let names = names.map(str::to_owned).collect();
    let cells = |row: &R| cells(row, columns, &more(row));
    let rows = rows.iter().map(|row| {
        let texts = cells(row).into_iter().map(|(_, text)| text);
        texts.collect()
    });
    std::iter::once(names).chain(rows).collect()
}

/// Fields of a row as labels of a figure, named as the columns of a sheet.
#[must_use]
pub fn labels<R: Serialize>(row: &R, columns: &'static str) -> Vec<(&'static str, String)> {
    cells(row, columns, &Value::Null)
}

fn cells<'a, R: Serialize>(row: &R, columns: &'a str, more: &Value) -> Vec<(&'a str, String)> {
    // A result is JSON by its making.
    let row = serde_json::to_value(row).unwrap_or_default();
    let cell = |column| {
        let (name, path) = path(column);
        let start = path.split('.').next().unwrap_or_default();
        let from = if more.get(start).is_some() {
            more
        } else {
            &row
        };
        debug_assert!(from.get(start).is_some(), "{path} is no field");
        let pointer = format!("/{}", path.replace('.', "/"));
        (name, from.pointer(&pointer).map_or_else(String::new, cell))
    };
    columns.split_whitespace().map(cell).collect()
}

/// Name and path of a column.
fn path(column: &str) -> (&str, &str) {
    column.split_once('=').unwrap_or((column, column))
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => text_of(number.as_f64()),
        Value::Array(all) => {
            let rank = |value: &Value| value.as_u64()?.try_into().ok();
            let ranks: Option<Vec<u32>> = all.iter().map(rank).collect();
            let texts = || all.iter().map(cell).collect::<Vec<_>>().join("; ");
            ranks.map_or_else(texts, |ranks| listed(&ranks))
        }
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => value.to_string(),
    }
}

/// A value as text, nothing where there is none.
pub fn text_of<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// What can be compared of a result.
#[derive(Debug)]
pub struct Comparable<'a> {
    /// What was measured or checked, by name.
    pub rows: Vec<Row>,
    /// What belongs to times, where rows have times.
    pub timed: Option<Timed<'a>>,
}

/// What times were taken under.
#[derive(Debug)]
pub struct Timed<'a> {
    /// What times depend on beside the program: machine and settings.
    pub conditions: Vec<(&'static str, String)>,
    /// How many rounds there were.
    pub rounds: u32,
    /// Looks at the machine.
    pub states: &'a [MachineState],
}

/// A row of a result that another one may have too.
///
/// Two rows are the same row if everything that was chosen is the same: call, algorithm, ranks,
/// size, element type, reduction, root, place, memory, split and group; for a dispatch model, groups,
/// tokens, routing, dispatcher and type, and which part of the step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// What it is about, in words; tells it from every other row.
    pub name: String,
    /// The median of each round, in microseconds; empty where nothing was timed.
    pub rounds_us: Vec<f64>,
    /// Wrong elements, or 1 for a check that failed with wrong data; 0 where all was right.
    pub wrong: u64,
    /// Why it did not pass, where that was for another reason than wrong data.
    pub failed: Option<String>,
    /// What was wrong, in words.
    pub detail: Option<String>,
}

/// What is the same for all commands.
#[derive(Debug)]
pub struct About<'a> {
    /// The command: `verify`, `bench`, …
    pub command: &'static str,
    /// Program and version.
    pub tool: &'a str,
    /// Version of the fields of the JSON document.
    pub schema_version: u32,
    /// Class of the outcome.
    pub exit: Exit,
    /// Whether something that was asked for is missing from the result.
    pub partial: bool,
    /// What moved the data, where anything moved.
    pub backend: Option<&'a str>,
    /// Whether devices were emulated.
    pub emulated: bool,
    /// Seed of the inputs.
    pub seed: Option<u64>,
    /// Wall time in microseconds.
    pub elapsed_us: u64,
    /// The cause, when it failed.
    pub verdict: Option<&'a Cause>,
    /// Where it ran.
    pub machine: Option<&'a Machine>,
    /// When and how.
    pub origin: Option<&'a Origin>,
}

/// How an outcome is to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    /// Something is wrong.
    Bad,
    /// Nothing is known to be wrong, and not everything was looked at.
    Care,
    /// Everything that was asked for is right.
    Good,
}

impl Mood {
    /// The class in style sheets.
    #[must_use]
    pub const fn class(self) -> &'static str {
        match self {
            Self::Bad => "bad",
            Self::Care => "care",
            Self::Good => "good",
        }
    }

    /// How something in this mood is printed.
    #[must_use]
    pub const fn style(self) -> Style {
        match self {
            Self::Bad => BAD,
            Self::Care => STRONG,
            Self::Good => GOOD,
        }
    }

    /// A sign that does not need colours.
    #[must_use]
    pub const fn sign(self) -> &'static str {
        match self {
            Self::Bad => "✗",
            Self::Care => "!",
            Self::Good => "✓",
        }
    }
}

/// The outcome in a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headline {
    /// How to look at it.
    pub mood: Mood,
    /// A word or two: `passed`, `wrong data`.
    pub word: String,
    /// The sentence, without a final stop.
    pub sentence: String,
}

impl Headline {
    /// A sentence about an outcome of this class, with the word and the mood of the class.
    #[must_use]
    pub fn of(exit: Exit, sentence: String) -> Self {
        Self {
            mood: mood(exit),
            word: word(exit).to_owned(),
            sentence,
        }
    }
}

/// Cases that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct Suite {
    /// What they are about.
    pub name: String,
    /// The cases.
    pub cases: Vec<SuiteCase>,
}

/// One case.
#[derive(Clone, Debug, PartialEq)]
pub struct SuiteCase {
    /// What groups cases across suites: `verify.tp2ep4@8.ep`.
    pub class: String,
    /// What it is about.
    pub name: String,
    /// How long it took, in microseconds.
    pub elapsed_us: u64,
    /// What came out.
    pub result: SuiteResult,
}

/// What came out of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SuiteResult {
    /// It did not get so far as to be right or wrong.
    Error(String),
    /// It is wrong: in a line, and with all that is known.
    Failed(String, String),
    /// It is right.
    Passed,
    /// It did not run, and why.
    Skipped(String),
}

/// A figure with its help.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Name, with its unit: `muster_bench_latency_seconds`.
    pub name: &'static str,
    /// What it is.
    pub help: &'static str,
    /// Values by labels.
    pub samples: Vec<(Vec<(&'static str, String)>, f64)>,
}

impl Metric {
    /// A figure without labels.
    #[must_use]
    pub fn one(name: &'static str, help: &'static str, value: f64) -> Self {
        Self {
            name,
            help,
            samples: vec![(Vec::new(), value)],
        }
    }
}

/// The word for a class of outcome, as headlines use it.
const fn word(exit: Exit) -> &'static str {
    match exit {
        Exit::Ok => "passed",
        Exit::FailedCell => "failed",
        Exit::Usage => "not understood",
        Exit::RdvMissing | Exit::RdvConflict | Exit::RdvUnreachable => "ranks did not meet",
        Exit::PeerDead => "a rank died",
        Exit::PeerFrozen => "a rank froze",
        Exit::NotJoined => "a rank did not come",
        Exit::Link => "a link broke",
        Exit::Deadlock => "deadlock",
        Exit::Mismatch => "calls differ",
        Exit::Data => "wrong data",
        Exit::Slow => "slower",
        Exit::Resource => "the host is not fit",
        Exit::Internal => "not proved",
        Exit::Interrupted => "interrupted",
    }
}

/// The mood of a class of outcome.
const fn mood(exit: Exit) -> Mood {
    match exit {
        Exit::Ok => Mood::Good,
        Exit::Internal | Exit::Interrupted | Exit::Resource | Exit::Usage => Mood::Care,
        Exit::FailedCell
        | Exit::RdvMissing
        | Exit::RdvConflict
        | Exit::RdvUnreachable
        | Exit::PeerDead
        | Exit::PeerFrozen
        | Exit::NotJoined
        | Exit::Link
        | Exit::Deadlock
        | Exit::Mismatch
        | Exit::Data
        | Exit::Slow => Mood::Bad,
    }
}
