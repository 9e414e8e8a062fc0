//! `muster plan table`: the rules that select algorithms.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use muster_comm::algo::select::BUILT_IN;
use muster_comm::config::Environment;
use muster_comm::world::Selection;

use super::Outcome;
use crate::cmd::rules::unusable;
use crate::fail::Failure;
use crate::out::escaped;

const GRAMMAR: &str = "\
# Rules that select algorithms: one on each line, the first that fits decides.
#   COLLECTIVE [links=direct|message] [n<8] [bytes<=64KiB] -> ALGORITHM [segment=256KiB]
# n and bytes (of the largest buffer of a rank) compare with =, <, <=, > and >=; bytes may have a
# unit: KiB, MiB, GiB. ALGORITHM is one that `muster plan show` knows, or entry: the exchange that begins
# every call over shared memory, for up to 16KiB a rank (the default for all calls that fit). segment, after
# an algorithm for shared memory, is how much is staged at once: 16KiB to 1MiB. Rules of your own file
# (MUSTER_ALGO=@FILE, --table FILE) come before the built-in ones.
";

/// Options of `muster plan table`.
#[derive(Debug, Args)]
pub(super) struct TableArgs {
    /// Your own table to check [default: that of MUSTER_ALGO]; its rules are printed before the built-in ones
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

pub(super) fn render(args: &TableArgs) -> Result<Outcome, Failure> {
    let selection = match &args.file {
        Some(path) => Selection::of_file(path),
        None => Selection::of_environment(&Environment::capture()),
    };
    let selection = selection.map_err(|error| unusable(&error))?;
    let mut text = GRAMMAR.to_owned();
    if let Some(own) = &selection.text {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "\n# From {}: {} rules\n{}",
            escaped(&selection.source),
            selection.own_rules(),
            escaped(own.trim_end())
        );
    }
    text.push_str("\n# Built in\n");
    text.push_str(BUILT_IN);
    Ok(Outcome::ok(text))
}
