//! `muster run`: starts any program as the ranks of a world and watches it.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use muster_comm::config::{Environment, LOCAL_RANK, LOCAL_WORLD_SIZE};
use muster_comm::processors::{Bind, bind_thread};
use rustix::fs::Access;
use rustix::io::Errno;

use crate::cmd::rules::Rules;
use crate::cmd::saving::FormArgs;
use crate::cmd::values::Binding;
use crate::exit::Exit;
use crate::fail::Failure;
use crate::run::program::{self, Program};
use crate::world::{guard, tether};

/// Most ranks of one host.
const RANKS_MAX: i64 = 4096;

/// Options of `muster run`.
#[derive(Debug, Args)]
#[command(
    after_help = "With --format json the result is one document, and what ranks print is dropped.\n\n\
    Example: muster run -n 8 -- ./train --steps 100"
)]
pub struct RunArgs {
    /// Number of ranks
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=RANKS_MAX))]
    ranks: u32,
    /// Seconds that ranks have to end by themselves after a failure or a request to stop
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    grace: u32,
    #[command(flatten)]
    form: FormArgs,
    /// Folder into which each rank writes its last calls with a verdict and on SIGUSR1, for `muster explain`
    #[arg(long, value_name = "FOLDER")]
    dumps: Option<PathBuf>,
    /// Folder into which each rank records its calls, for `muster replay`
    #[arg(long, value_name = "FOLDER")]
    record: Option<PathBuf>,
    #[command(flatten)]
    rules: Rules,
    #[command(flatten)]
    binding: Binding,
    /// The program of every rank and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Options of the process that becomes a rank.
#[derive(Debug, Args)]
pub struct ExecArgs {
    /// Process id of the launcher
    #[arg(long)]
    launcher: u32,
    #[command(flatten)]
    binding: Binding,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<OsString>,
}

/// Options of the guard.
#[derive(Debug, Args)]
pub struct GuardArgs {
    /// Process id of the launcher
    #[arg(long)]
    launcher: u32,
}

/// Waits for the end of the launcher, and ends what that leaves behind.
///
/// # Errors
/// Never.
pub fn guard(args: &GuardArgs) -> Result<Exit, Failure> {
    guard::watch(args.launcher);
    Ok(Exit::Ok)
}

/// Starts the ranks and watches them to their end.
///
/// # Errors
/// If they cannot be started.
pub fn run(args: &RunArgs) -> Result<Exit, Failure> {
    if let Some(program) = args.command.first() {
        check_program(program)?;
    }
    let dumps = args.dumps.as_deref().map(|path| folder("--dumps", path));
    let dumps = dumps.transpose()?;
    let recording = args.record.as_deref().map(|path| folder("--record", path));
    let recording = recording.transpose()?;
    let rules = args.rules.file()?;
    program::run(&Program {
        rules: rules.as_deref(),
        ranks: args.ranks,
        grace: Duration::from_secs(args.grace.into()),
        json: args.form.is_json(),
        dumps: dumps.as_deref(),
        recording: recording.as_deref(),
        bind: args.binding.bind,
        command: &args.command,
    })
}

/// Refuses a program that no rank could run, before any rank is started.
pub(super) fn check_program(program: &OsStr) -> Result<(), Failure> {
    let access = |path: &Path| rustix::fs::access(path, Access::EXEC_OK);
    let fails = |error: &dyn std::fmt::Display| {
        let program = program.display();
        Err(Failure::usage(format!("{program} cannot be run: {error}")))
    };
    if program.as_encoded_bytes().contains(&b'/') {
        let path = Path::new(program);
        return match access(path) {
            Ok(()) if path.is_dir() => fails(&Errno::ISDIR),
            Ok(()) => Ok(()),
            Err(error) => fails(&error),
        };
    }
    // Without a PATH that can be read, the system knows where to look.
    let Ok(Some(folders)) = Environment::capture()
        .text("PATH")
        .map(|path| path.map(str::to_owned))
    else {
        return Ok(());
    };
    let is_there = |folder: PathBuf| {
        let path = folder.join(program);
        path.is_file() && access(&path).is_ok()
    };
    if std::env::split_paths(&folders).any(is_there) {
        return Ok(());
    }
    fails(&"no folder of PATH has such a program")
}

/// Binds this rank before its program is there, so that all of the program's threads and memory are where they should be.
fn keep_to_place(bind: Bind) -> Result<(), Failure> {
    let environment = Environment::capture();
    let read = |variable| {
        let value = environment.read(variable);
        value.map_err(|error| Failure::usage(error.to_string()))
    };
    let (local, locals) = (read(&LOCAL_RANK)?, read(&LOCAL_WORLD_SIZE)?);
    let (local, locals) = (local.unwrap_or(0) as usize, locals.unwrap_or(1) as usize);
    if bind != Bind::None && !bind_thread(bind, local, locals) {
        let bind = bind.name();
        return Err(Failure::resource(format!(
            "bind {bind}: the system does not let local rank {local} of {locals} keep to its CPUs"
        )));
    }
    Ok(())
}

/// Makes the folder; its absolute path, since ranks may change theirs.
fn folder(option: &str, path: &Path) -> Result<PathBuf, Failure> {
    std::fs::create_dir_all(path)
        .and_then(|()| path.canonicalize())
        .map_err(|error| Failure::usage(format!("{option} {}: {error}", path.display())))
}

/// Becomes the program of a rank, tied to the launcher: the tie outlasts the change of program.
///
/// # Errors
/// If the launcher is gone or the program cannot be run.
pub fn exec(args: &ExecArgs) -> Result<Exit, Failure> {
    tether::tie_to(args.launcher)?;
    keep_to_place(args.binding.bind.unwrap_or_default())?;
    let Some((program, rest)) = args.command.split_first() else {
        return Err(Failure::usage("no program to run"));
    };
    let error = std::process::Command::new(program).args(rest).exec();
    Err(Failure::usage(format!(
        "{} cannot be run: {error}",
        program.display()
    )))
}
