//! `muster dump` and `muster explain`: what ranks are doing, and what that means.

mod pickle;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use clap::{Args, ValueEnum};
use muster_comm::sync::Clock;
use muster_comm::watch::dump::{self, Dump, recorder};
use muster_comm::watch::of_process;
use muster_comm::watch::report::Report;
use serde_json::Value;

use crate::cmd::saving::{FormArgs, Saving};
use crate::exit::Exit;
use crate::explanation::Explanation;
use crate::fail::Failure;
use crate::out;
use crate::report::document::Document as _;

/// Largest dump that is read from a file, in bytes: a thousand calls of some hundred bytes a rank, for
/// some thousand ranks.
const DUMP_BYTES_MAX: u64 = 1 << 30;

/// The byte with which pickles begin, from protocol 2 on.
const PICKLE_START: u8 = 0x80;

/// How the names of dumps end that are for readers of PyTorch's flight recorder.
const PYTORCH_END: &str = ".pytorch.json";

/// Shape of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DumpFormat {
    /// muster's JSON, which `muster explain` reads
    Json,
    /// The keys of PyTorch's flight recorder
    Pytorch,
    /// The same as a pickle, which torchfrtrace reads
    PytorchPickle,
    /// Trace events, which Perfetto and chrome://tracing show
    Chrome,
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
    /// Files that `muster dump`, a verdict or the flight recorder of PyTorch or torch_npu wrote, or folders of them
    #[arg(required = true)]
    dumps: Vec<PathBuf>,
    #[command(flatten)]
    form: FormArgs,
    #[command(flatten)]
    saving: Saving,
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
    of_one_job(&reports)?;
    let value = match (args.format, reports.as_slice()) {
        (DumpFormat::Json, reports) => dump::document(reports, None),
        (DumpFormat::Chrome, reports) => dump::chrome(reports),
        (DumpFormat::Pytorch, [report]) => dump::pytorch(report, Clock::wall_ahead_ns()),
        (DumpFormat::PytorchPickle, [report]) => {
            out::bytes(&pickle::write(&dump::pytorch(
                report,
                Clock::wall_ahead_ns(),
            )))?;
            return Ok(Exit::Ok);
        }
        (DumpFormat::Pytorch | DumpFormat::PytorchPickle, _) => {
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

/// A rank is one process: two that are the same rank are of two jobs, and their boards say nothing of each other.
fn of_one_job(reports: &[Report]) -> Result<(), Failure> {
    let mut of_rank: BTreeMap<(u32, u32), u32> = BTreeMap::new();
    for report in reports {
        let pid = *of_rank
            .entry((report.world_size, report.rank))
            .or_insert(report.pid);
        if pid != report.pid {
            return Err(Failure::usage(format!(
                "processes {pid} and {} are both rank {} of {}, so they are of two jobs",
                report.pid, report.rank, report.world_size
            ))
            .with_help(
                "name the processes of one job; the key d of `muster top` writes dumps of one job",
            ));
        }
    }
    Ok(())
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
        let all: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        let is_ours = |file: &&PathBuf| {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("rank-") && name.ends_with(".json")
        };
        files.extend(all.iter().filter(is_ours).cloned());
        if files.len() == before {
            let is_numbered =
                |file: &&PathBuf| file.extension().is_none() && rank_of(file).is_some();
            files.extend(all.iter().filter(is_numbered).cloned());
        }
        if files.len() == before {
            return Err(refuse(
                "no dump of a rank (rank-N.json, or a flight recorder's such as trace_N) in this folder"
                    .to_owned(),
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

/// What a file holds.
enum Read {
    /// A dump of muster.
    Ours(Dump),
    /// What the flight recorder of PyTorch or torch_npu wrote of a rank.
    Recorder(Report),
}

fn read(path: &Path) -> Result<Read, Failure> {
    let refuse = refusal(path);
    let about = std::fs::metadata(path).map_err(|error| refuse(error.to_string()))?;
    if about.len() > DUMP_BYTES_MAX {
        let size = about.len();
        return Err(refuse(format!(
            "{size} bytes, at most {DUMP_BYTES_MAX} are read"
        )));
    }
    let bytes = std::fs::read(path).map_err(|error| refuse(error.to_string()))?;
    let recorded = if bytes.first() == Some(&PICKLE_START) {
        let document = pickle::read(&bytes);
        Some(document.map_err(|error| refuse(format!("not a dump: {error}")))?)
    } else {
        let document = serde_json::from_slice::<Value>(&bytes).ok();
        document.filter(|document| document.get("pg_config").is_some())
    };
    let Some(document) = recorded else {
        let text = String::from_utf8_lossy(&bytes);
        let ours = dump::read(&text).map_err(|error| refuse(error.to_string()))?;
        return Ok(Read::Ours(ours));
    };
    let rank = rank_of(path).ok_or_else(|| {
        refuse("the name of a flight recorder's dump ends with its rank, as in trace_0".to_owned())
    })?;
    let written = about
        .modified()
        .ok()
        .and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let taken_ms = written.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    });
    let report = recorder::read(&document, rank, taken_ms);
    report
        .map(Read::Recorder)
        .map_err(|error| refuse(error.to_string()))
}

/// The digits with which the name of a file ends, its extension left out.
fn rank_of(path: &Path) -> Option<u32> {
    let name = path.file_stem()?.to_str()?;
    let start = name
        .trim_end_matches(|one: char| one.is_ascii_digit())
        .len();
    name[start..].parse().ok()
}

/// Judges dumps of many ranks.
///
/// # Errors
/// If a file cannot be read, or a report cannot be written.
pub fn explain(args: &ExplainArgs) -> Result<Exit, Failure> {
    args.saving.check()?;
    let (mut dumps, mut recorded) = (Vec::new(), Vec::new());
    for path in files(&args.dumps)? {
        match read(&path)? {
            Read::Ours(dump) => dumps.push(dump),
            Read::Recorder(report) => recorded.push(report),
        }
    }
    recorder::complete(&mut recorded);
    dumps.push(Dump {
        ranks: recorded,
        verdict: None,
    });
    let mut verdict = dump::explain_all(&dumps);
    let ranks: Vec<Report> = dumps.into_iter().flat_map(|dump| dump.ranks).collect();
    if let Some(verdict) = &mut verdict {
        let sizes = recorder::sizes_in_words(&ranks, verdict);
        verdict.evidence.extend(sizes);
    }
    let explanation = Explanation::new(verdict, ranks);
    let written = args.saving.write(&explanation);
    out::result(&if args.form.is_json() {
        let json = serde_json::to_string_pretty(&explanation.verdict())
            .map_err(|error| Failure::internal(error.to_string()))?;
        json + "\n"
    } else {
        explanation.text()
    })?;
    Saving::ended(explanation.about().exit, written)
}
