//! The tool, as the wheel installs it. It is a program of its own and no Python: it starts ranks by its own path.

use std::process::ExitCode;

fn main() -> ExitCode {
    muster_harness::cli::run(std::env::args_os()).into()
}
