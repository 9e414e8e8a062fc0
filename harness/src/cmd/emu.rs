//! `muster emu`: puts the emulator where programs look for the vendor's toolkit.
//!
//! What it lays out says *emulated* in every file; `docs/emulator.md` says what runs on it.

mod headers;
mod install;
mod tree;

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use hccl_sys::version::Version;
use muster_comm::config::{Environment, rows};
use muster_emu::options::{CANN_DEFAULT, Options, cann_version};

use crate::cmd::library;
use crate::exit::Exit;
use crate::fail::Failure;
use crate::out;

/// Install and explain the emulator of HCCL
#[derive(Debug, Args)]
pub struct EmuArgs {
    #[command(subcommand)]
    command: EmuCommand,
}

#[derive(Debug, Subcommand)]
enum EmuCommand {
    /// Install an emulated toolkit that programs find by ASCEND_HOME_PATH
    Install(InstallArgs),
    /// Show the variables of the emulator and their current values
    Env,
}

/// Options of `muster emu install`.
#[derive(Debug, Args)]
#[command(
    long_about = "Makes a toolkit tree: the emulator under the names libhccl.so, libhcomm.so, libascendcl.so and \
        libacl_rt.so, the version files of that CANN version, headers, and set_env.sh. Programs that were \
        built against the vendor's headers run on it unchanged. Every file in it says that it is emulated.\n\n\
        A folder that this command made is replaced. Any other folder is refused unless it is empty.",
    after_help = "Examples:\n  \
        muster emu install /opt/emulated\n  \
        ASCEND_HOME_PATH=/opt/emulated/latest muster verify --backend hccl\n  \
        source /opt/emulated/set_env.sh && mpirun -n 8 ./all_reduce_test -b 8K -e 1M -f 2 -p 8"
)]
struct InstallArgs {
    /// Folder to install into; made if it is missing
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// The CANN version to emulate, such as 8.1.RC1 or 9.0.0
    #[arg(long, value_name = "VERSION", default_value = CANN_DEFAULT, value_parser = cann)]
    cann: Version,
    /// The library to install [default: the one that was built with this program]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
}

fn cann(text: &str) -> Result<Version, String> {
    let allowed = || "allowed: a version such as 8.1.RC1, 8.5.0 or 9.1.0-beta.1".to_owned();
    cann_version(text).ok_or_else(allowed)
}

/// Does what the subcommand says.
///
/// # Errors
/// A failure of class USAGE for a folder that is not ours, of class RESOURCE where the library is
/// not found or a file cannot be written.
pub fn run(args: &EmuArgs) -> Result<Exit, Failure> {
    match &args.command {
        EmuCommand::Install(args) => run_install(args),
        EmuCommand::Env => run_env(&Environment::capture()),
    }
}

fn run_install(args: &InstallArgs) -> Result<Exit, Failure> {
    let library = library::find(&library::EMULATOR, args.library.as_deref())?;
    let root = install::install(&args.dir, &args.cann, &library)?;
    let root = root.display();
    out::result(&format!(
        "emulated CANN {} installed in {root}\n\
         use it: source {root}/set_env.sh\n    \
         or: export ASCEND_HOME_PATH={root}/latest\n",
        args.cann.as_str()
    ))?;
    Ok(Exit::Ok)
}

fn run_env(environment: &Environment) -> Result<Exit, Failure> {
    let mut text =
        String::from("Variables of the emulator, read once by each process that uses it:\n");
    for row in rows() {
        if row.name.starts_with("MUSTER_EMU_") {
            let set = environment.text(row.name).ok().flatten();
            let now = set.map_or_else(|| "not set".to_owned(), out::escaped);
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                "\n{} ({now})\n  {}\n  allowed: {}\n  default: {}\n",
                row.name, row.meaning, row.allowed, row.default
            );
        }
    }
    out::result(&text)?;
    match Options::from_environment(environment) {
        Ok(_) => Ok(Exit::Ok),
        Err(error) => Err(Failure::usage(error.to_string())),
    }
}
