//! `muster`: proves the parallel groups of a training stack on this machine.

use std::process::ExitCode;

fn main() -> ExitCode {
    muster_harness::cli::run(std::env::args_os()).into()
}
