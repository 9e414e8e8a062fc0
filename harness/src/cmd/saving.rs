//! The options that write results to files, the same for all commands that have results.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::exit::Exit;
use crate::fail::Failure;
use crate::out;
use crate::report::csv;
use crate::report::document::Document;
use crate::report::format::{ALLOWED, Format};

/// Where results go beside the terminal.
#[derive(Clone, Debug, Default, Args)]
pub struct Saving {
    /// Write a report too: .html, .xml (JUnit), .md, .csv, .prom or .json; may be given more than once
    ///
    /// The file extension decides: .html is one page that loads nothing, .xml is JUnit, .md is
    /// Markdown, .csv has a row for each case or line, .prom is for Prometheus' textfile collector,
    /// .json is the whole result. Files are written when the run ends or is interrupted, whole or
    /// not at all.
    #[arg(long, value_name = "FILE", value_parser = target)]
    report: Vec<Target>,

    /// Write the JSON document to this file too; an old one is replaced when the run is over
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

/// A file and what is written to it.
#[derive(Clone, Debug)]
pub struct Target {
    path: PathBuf,
    format: Format,
}

/// A file, with what its ending asks for.
pub(super) fn target(text: &str) -> Result<Target, String> {
    let path = PathBuf::from(text);
    let format = Format::of(&path).ok_or_else(|| {
        format!("the ending of the name says what is written, and must be {ALLOWED}")
    })?;
    Ok(Target { path, format })
}

impl Saving {
    /// Reports to these files, and the JSON document to another.
    #[must_use]
    pub const fn of(report: Vec<Target>, save: Option<PathBuf>) -> Self {
        Self { report, save }
    }

    fn targets(&self) -> impl Iterator<Item = (&Path, Format)> {
        let save = self.save.iter().map(|path| (path.as_path(), Format::Json));
        save.chain(
            self.report
                .iter()
                .map(|target| (target.path.as_path(), target.format)),
        )
    }

    /// Makes sure that all files can be written, before hours of work end in an error.
    ///
    /// # Errors
    /// A failure of class USAGE where one cannot, or stands twice.
    pub fn check(&self) -> Result<(), Failure> {
        let mut seen: Vec<&Path> = Vec::new();
        for (path, _) in self.targets() {
            if seen.contains(&path) {
                return Err(Failure::usage(format!(
                    "{} is named twice, and one report would replace the other",
                    path.display()
                )));
            }
            seen.push(path);
            out::can_save(path)?;
        }
        Ok(())
    }

    /// Writes all files, each of them whole or not at all; one that cannot be written keeps no other
    /// from being tried.
    ///
    /// # Errors
    /// The first failure.
    pub fn write(&self, document: &dyn Document) -> Result<(), Failure> {
        let mut failed = Ok(());
        for (path, format) in self.targets() {
            let written = format
                .render(document)
                .and_then(|text| out::save(path, &text));
            if failed.is_ok() {
                failed = written;
            } else if let Err(failure) = written {
                out::failure(&failure);
            }
        }
        failed
    }

    /// Writes the file of `--save` alone, of a result that is not complete. What keeps it from being written is said at the end.
    pub fn write_interim(&self, document: &dyn Document) {
        if let (Some(path), Ok(text)) = (&self.save, document.json()) {
            let _ = out::save(path, &text);
        }
    }

    /// The class of a run whose files were written, or were not: a run that failed keeps its class,
    /// one that passed but left no file has not.
    ///
    /// # Errors
    /// What kept a file from being written, where that is the worst that happened.
    pub fn ended(exit: Exit, written: Result<(), Failure>) -> Result<Exit, Failure> {
        match written {
            Err(failure) if exit == Exit::Ok => Err(failure),
            Err(failure) => {
                out::failure(&failure);
                Ok(exit)
            }
            Ok(()) => Ok(exit),
        }
    }
}

/// How a result is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shown {
    /// Comma-separated values
    Csv,
    /// One JSON document, with all that is known
    Json,
    /// A table for people; what is measured comes line by line
    Table,
}

/// For whom a result is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// One JSON document, for programs
    Json,
    /// Text for people
    #[default]
    Table,
}

impl From<Form> for Shown {
    fn from(form: Form) -> Self {
        match form {
            Form::Json => Self::Json,
            Form::Table => Self::Table,
        }
    }
}

/// The option of [`Form`], for commands whose JSON was asked for with `--json` at first.
#[derive(Clone, Copy, Debug, Args)]
pub struct FormArgs {
    /// Text for people or JSON for programs
    #[arg(long, value_enum, default_value_t)]
    format: Form,
    /// The same as `--format json`
    #[arg(long, hide = true, conflicts_with = "format")]
    json: bool,
}

impl FormArgs {
    /// Whether a program reads the result.
    #[must_use]
    pub fn is_json(self) -> bool {
        self.json || self.format == Form::Json
    }
}

/// Writes a result to its files, and prints it. Its class is that of the run, unless it could not be
/// written.
///
/// # Errors
/// What kept it from being printed, or written where that is the worst that happened.
pub fn publish(document: &dyn Document, saving: &Saving, shown: Shown) -> Result<Exit, Failure> {
    // The files first: a closed terminal must not cost what was measured. And the table in any
    // case: nor must a full disk.
    let written = saving.write(document);
    out::result(&match shown {
        Shown::Csv => csv::render(document),
        Shown::Json => document.json()?,
        Shown::Table => document.text(),
    })?;
    Saving::ended(document.about().exit, written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_run_keeps_its_class_and_a_passed_one_without_its_file_fails() {
        let full = || Err(Failure::resource("full"));
        assert_eq!(Saving::ended(Exit::Data, full()), Ok(Exit::Data));
        assert_eq!(Saving::ended(Exit::Ok, Ok(())), Ok(Exit::Ok));
        assert!(Saving::ended(Exit::Ok, full()).is_err());
    }

    #[test]
    fn one_file_cannot_take_two_reports() {
        let saving = Saving {
            report: vec![target("a.json").expect("a target")],
            save: Some(PathBuf::from("a.json")),
        };
        let failure = saving.check().expect_err("refused");
        assert!(failure.message.contains("named twice"), "{failure}");
        assert!(target("report.pdf").is_err());
    }
}
