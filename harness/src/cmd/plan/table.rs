//! `muster plan table`: the rules that select algorithms.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::Args;
use muster_comm::algo::Table;
use muster_comm::algo::select::BUILT_IN;

use super::Outcome;
use crate::fail::Failure;
use crate::out::escaped;

/// Longest selection table that is read, in bytes: a wrong file is noticed before it fills memory.
const FILE_MAX: u64 = 1 << 20;

const GRAMMAR: &str = "\
# Rules that select algorithms: one a line, the first that fits decides.
#   COLLECTIVE [links=direct|message] [n<8] [bytes<=64KiB] -> ALGORITHM
# n and bytes (of the largest buffer of a rank) compare with =, <, <=, > and >=; bytes may have a
# unit: KiB, MiB, GiB. Rules of a file of one's own stand before these.
";

/// Options of `muster plan table`.
#[derive(Debug, Args)]
pub(super) struct TableArgs {
    /// A table of one's own to check; its rules are printed before the built-in ones
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

pub(super) fn render(args: &TableArgs) -> Result<Outcome, Failure> {
    let mut text = GRAMMAR.to_owned();
    if let Some(path) = &args.file {
        let own = read(path)?;
        Table::with_overrides(&own)
            .map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
        let own = escaped(own.trim_end());
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\n# From {}\n{own}", path.display());
    }
    text.push_str("\n# Built in\n");
    text.push_str(BUILT_IN);
    Ok(Outcome::ok(text))
}

fn read(path: &Path) -> Result<String, Failure> {
    let unreadable = |error: std::io::Error| {
        Failure::usage(format!("{} cannot be read: {error}", path.display()))
    };
    let file = File::open(path).map_err(unreadable)?;
    let mut text = String::new();
    file.take(FILE_MAX + 1)
        .read_to_string(&mut text)
        .map_err(unreadable)?;
    if text.len() as u64 > FILE_MAX {
        return Err(Failure::usage(format!(
            "{} is longer than {FILE_MAX} bytes, which no selection table is",
            path.display()
        )));
    }
    Ok(text)
}
