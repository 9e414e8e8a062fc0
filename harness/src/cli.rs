//! The command line: what `--help` teaches, and how outcomes become exit codes. The commands and their
//! options are those of [`crate::cmd`].

use std::ffi::OsString;

use clap::{CommandFactory, Parser};

use crate::cmd::Command;
use crate::exit::Exit;
use crate::out;

/// Proves the parallel groups of a training stack on this machine, and names the failing rank
#[derive(Debug, Parser)]
#[command(
    name = "muster",
    version,
    max_term_width = 100,
    after_help = "Run `muster --help` for examples and the exit codes, `muster verify --help` for the main command.",
    after_long_help = long_help(),
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

fn long_help() -> String {
    format!(
        "Examples:\n  \
         muster verify                        prove the default matrices on this machine\n  \
         muster verify tp2ep4 --format json   one matrix, for a program to read\n  \
         mpirun -n 8 muster verify tp2ep4     join the ranks that a launcher started\n\n{}",
        Exit::table()
    )
}

/// Runs the command line, whose first word is the program's name, and gives back how it ended.
pub fn run(words: impl IntoIterator<Item = OsString>) -> Exit {
    out::be_plain_under_mpirun();
    let cli = match Cli::try_parse_from(words) {
        Ok(cli) => cli,
        Err(error) => {
            // Help goes to stdout, complaints to stderr; a closed pipe is nobody's problem.
            let _ = error.print();
            return if error.exit_code() == 0 {
                Exit::Ok
            } else {
                Exit::Usage
            };
        }
    };
    let outcome = cli.command.run(Cli::command());
    outcome.unwrap_or_else(|failure| out::failure(&failure))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_of_commands_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_long_help_lists_every_exit_code() {
        let help = Cli::command().render_long_help().to_string();
        for exit in Exit::ALL {
            assert!(
                help.contains(exit.class()),
                "{} is missing from\n{help}",
                exit.class()
            );
        }
    }
}
