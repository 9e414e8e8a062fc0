//! `muster tap`: watches programs that call HCCL without muster.
//!
//! A library in front of the vendor's records the calls of every process in shared memory. This command reads that, and says
//! why a job hangs. `docs/tap.md` says what it sees.

mod act;
mod exec;
mod install;
mod recording;
mod symbols;
mod watch;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use self::recording::Recording;
use self::watch::Watch;
use crate::exit::Exit;
use crate::fail::Failure;
use crate::out;

/// Watch programs that call HCCL by themselves, and say why they hang
#[derive(Debug, Args)]
pub struct TapArgs {
    #[command(subcommand)]
    command: TapCommand,
}

#[derive(Debug, Subcommand)]
enum TapCommand {
    /// Make a folder that programs find HCCL in: with it in front of LD_LIBRARY_PATH their calls are recorded
    Install(InstallArgs),
    /// Run a command whose processes are watched, and print a verdict if they hang
    Run(RunArgs),
    /// Watch the processes of this user that run with an installed tap
    Watch(WatchArgs),
    /// Become a command in which the tap goes before the vendor's library, even if the command sets LD_LIBRARY_PATH itself
    Exec(ExecArgs),
}

/// Options of `muster tap install`.
#[derive(Debug, Args)]
#[command(after_help = "Example, in a job script:\n  \
        muster tap install /opt/muster-tap\n  \
        export LD_LIBRARY_PATH=/opt/muster-tap:$LD_LIBRARY_PATH")]
struct InstallArgs {
    /// Folder to install into; made if it is missing
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    #[command(flatten)]
    libraries: Libraries,
}

/// Which libraries are used.
#[derive(Debug, Args)]
struct Libraries {
    /// The vendor's libhccl.so [default: where HCCL_SO_PATH, ASCEND_HOME_PATH and the usual folders have it]
    #[arg(long, value_name = "FILE")]
    hccl: Option<PathBuf>,
    /// The tap's library [default: the one that was built with this program]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
}

/// What is run.
#[derive(Debug, Args)]
struct Program {
    /// The command and its arguments
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required = true,
        value_name = "CMD"
    )]
    command: Vec<OsString>,
}

/// When there is a verdict.
#[derive(Debug, Args)]
struct Limits {
    /// Seconds after which a call that does not end gets a verdict. Calls that contradict each other get one at once
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    after: u32,
    /// What to do beside printing it; may be given several times.
    ///
    /// report: nothing else. dump=DIR: write what each rank did last into DIR, for `muster explain`. command=TEXT: run TEXT
    /// in a shell, for at most a minute, with the verdict in MUSTER_VERDICT, the processes of the ranks that it names in
    /// MUSTER_VERDICT_PIDS and all others in MUSTER_OTHER_PIDS. abort: last of all, end the watched processes, and the
    /// command of `tap run`, with SIGTERM
    #[arg(long, value_name = "ACTION", default_value = "report", value_parser = on_verdict)]
    on_verdict: Vec<OnVerdict>,
    /// Folder for a recording of the calls, for `muster replay`; made if it is missing
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
}

/// What is done with a verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
enum OnVerdict {
    Report,
    Dump(PathBuf),
    Command(String),
    Abort,
}

fn on_verdict(text: &str) -> Result<OnVerdict, String> {
    match text.split_once('=') {
        None if text == "report" => Ok(OnVerdict::Report),
        None if text == "abort" => Ok(OnVerdict::Abort),
        Some(("dump", folder)) if !folder.is_empty() => Ok(OnVerdict::Dump(folder.into())),
        Some(("command", command)) if !command.is_empty() => {
            Ok(OnVerdict::Command(command.to_owned()))
        }
        _ => Err("allowed are report, dump=DIR, command=TEXT and abort".to_owned()),
    }
}

/// Options of `muster tap run`.
#[derive(Debug, Args)]
#[command(after_help = "Example: muster tap run -- torchrun --nproc-per-node 8 train.py")]
struct RunArgs {
    #[command(flatten)]
    limits: Limits,
    #[command(flatten)]
    libraries: Libraries,
    #[command(flatten)]
    program: Program,
}

/// Options of `muster tap watch`.
#[derive(Debug, Args)]
struct WatchArgs {
    /// Only processes that have this text in MUSTER_TAP_JOB [default: all of this user]
    #[arg(long, value_name = "NAME")]
    job: Option<String>,
    #[command(flatten)]
    limits: Limits,
}

/// Options of `muster tap exec`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: muster tap run -- torchrun --no-python muster tap exec -- bash rank.sh\n\
        Each program that the command starts loads the vendor's library, too."
)]
struct ExecArgs {
    /// Folder that `muster tap install` made [default: that of the `muster tap run` around it]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    program: Program,
}

impl Limits {
    fn watch(&self, job: Option<u64>) -> Watch {
        Watch::new(
            job,
            Duration::from_secs(self.after.into()),
            self.on_verdict.clone(),
            self.record.clone().map(Recording::new),
        )
    }
}

/// Does what the subcommand says.
///
/// # Errors
/// A failure of class RESOURCE where a library is not found or a file cannot be written, of class USAGE for a folder that is
/// not ours or a command that does not start.
pub fn run(args: &TapArgs) -> Result<Exit, Failure> {
    match &args.command {
        TapCommand::Install(args) => {
            let real = install::install(&args.dir, &args.libraries)?;
            let dir = args.dir.display();
            out::result(&format!(
                "tap in front of {} installed in {dir}\n\
                 use it: export LD_LIBRARY_PATH={dir}:$LD_LIBRARY_PATH\n",
                real.display()
            ))?;
            Ok(Exit::Ok)
        }
        TapCommand::Run(args) => {
            let folder = install::scratch()?;
            install::install(folder.path(), &args.libraries)?;
            watch::run(&args.limits, folder.path(), &args.program.command)
        }
        TapCommand::Watch(args) => watch::attach(&args.limits, args.job.as_deref()),
        TapCommand::Exec(args) => exec::exec(args.dir.as_deref(), &args.program.command),
    }
}
