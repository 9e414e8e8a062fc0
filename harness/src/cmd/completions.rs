//! `muster completions`: a completion script for a shell, on stdout.

use clap::{Args, Command};
use clap_complete::Shell;

use crate::exit::Exit;
use crate::fail::Failure;
use crate::out;

/// Options of `muster completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell to write a completion script for
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script.
///
/// # Errors
/// If standard output cannot be written.
pub fn run(args: &CompletionsArgs, mut command: Command) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "muster", &mut script);
    out::raw(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Ok)
}
