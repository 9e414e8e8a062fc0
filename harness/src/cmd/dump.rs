//! `muster dump` and `muster explain`: what ranks are doing, and what that means.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use muster_comm::watch::report::Report;
use muster_comm::watch::{dump, of_process};

use crate::cmd::saving::FormArgs;
use crate::exit::Exit;
use crate::fail::Failure;
use crate::out;

/// Largest dump that is read from a file, in bytes: a thousand calls of some hundred bytes a rank, for
/// some thousand ranks.
const DUMP_BYTES_MAX: u64 = 1 << 30;

/// How the names of dumps end that are for readers of PyTorch's flight recorder.
const PYTORCH_END: &str = ".pytorch.json";

/// Shape of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DumpFormat {
    /// muster's JSON, which `muster explain` reads
    Json,
    /// The keys of PyTorch's flight recorder
    Pytorch,
}

/// Options of `muster dump`.
#[derive(Debug, Args)]
pub struct DumpArgs {
    /// Process id of a rank
    #[arg(required = true)]
    pid: Vec<u32>,
    /// Format of the dump
    #[arg(long, value_enum, default_value = "json")]
    format: DumpFormat,
}

/// Options of `muster explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// Files that `muster dump` or a verdict wrote, or folders of them
    #[arg(required = true)]
    dumps: Vec<PathBuf>,
    #[command(flatten)]
    form: FormArgs,
}

/// Prints what stands on the boards of these processes. They need not do anything for it, and may be
/// stuck or stopped.
///
/// # Errors
/// If a process cannot be looked at, or is no rank.
pub fn run(args: &DumpArgs) -> Result<Exit, Failure> {
    let mut reports: Vec<Report> = Vec::new();
    for pid in &args.pid {
        let found = of_process(*pid).map_err(|error| {
            Failure::usage(error.to_string())
                .with_help("name a process of yours that is a rank, on this host")
        })?;
        reports.extend(found);
    }
    let value = match (args.format, reports.as_slice()) {
        (DumpFormat::Json, reports) => dump::document(reports, None),
        (DumpFormat::Pytorch, [report]) => dump::pytorch(report),
        (DumpFormat::Pytorch, _) => {
            return Err(Failure::usage(
                "this format holds one rank: name one process",
            ));
        }
    };
    let mut text = serde_json::to_string_pretty(&value)
        .map_err(|error| Failure::internal(format!("the dump cannot be written: {error}")))?;
    text.push('\n');
    out::result(&text)?;
    Ok(Exit::Ok)
}

fn refusal(path: &Path) -> impl Fn(String) -> Failure + '_ {
    move |why| Failure::usage(format!("{}: {why}", path.display()))
}

/// The files that are meant: of folders, the dumps in them.
fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let refuse = refusal(path);
        let entries = std::fs::read_dir(path).map_err(|error| refuse(error.to_string()))?;
        let before = files.len();
        files.extend(entries.flatten().map(|entry| entry.path()).filter(|file| {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("rank-") && name.ends_with(".json")
        }));
        if files.len() == before {
            return Err(refuse(
                "no dump of a rank (rank-N.json) in this folder".to_owned(),
            ));
        }
    }
    files.sort();
    // Patterns of shells bring both forms of each dump.
    let (theirs, ours): (Vec<PathBuf>, Vec<PathBuf>) = files
        .into_iter()
        .partition(|file| file.to_string_lossy().ends_with(PYTORCH_END));
    match theirs.first() {
        Some(file) if ours.is_empty() => Err(refusal(file)(
            "the form of PyTorch's flight recorder; the file beside it without `.pytorch` is ours"
                .to_owned(),
        )),
        _ => Ok(ours),
    }
}

/// Judges dumps of many ranks.
///
/// # Errors
/// If a file cannot be read.
pub fn explain(args: &ExplainArgs) -> Result<Exit, Failure> {
    let mut dumps = Vec::new();
    for path in files(&args.dumps)? {
        let refuse = refusal(&path);
        let size = std::fs::metadata(&path)
            .map_err(|error| refuse(error.to_string()))?
            .len();
        if size > DUMP_BYTES_MAX {
            return Err(refuse(format!(
                "{size} bytes, at most {DUMP_BYTES_MAX} are read"
            )));
        }
        let text = std::fs::read_to_string(&path).map_err(|error| refuse(error.to_string()))?;
        dumps.push(dump::read(&text).map_err(|error| refuse(error.to_string()))?);
    }
    let verdict = dump::explain_all(&dumps);
    let mut text = String::new();
    // Writing to a string cannot fail.
    match (&verdict, args.form.is_json()) {
        (Some(verdict), false) => {
            let _ = writeln!(text, "{}", out::escaped(&verdict.line()));
        }
        (None, false) => {
            let _ = writeln!(text, "nobody waits, as far as {} dumps tell", dumps.len());
        }
        (verdict, true) => {
            let json = serde_json::to_string_pretty(verdict)
                .map_err(|error| Failure::internal(error.to_string()))?;
            let _ = writeln!(text, "{json}");
        }
    }
    out::result(&text)?;
    Ok(verdict.map_or(Exit::Ok, |verdict| verdict.class.into()))
}
