//! `muster replay`: recorded calls, made again.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use muster_comm::config::Environment;
use muster_comm::world::World;
use serde::Serialize;

use crate::backend::{Backend, for_measuring};
use crate::cmd::rules::Rules;
use crate::cmd::saving::FormArgs;
use crate::cmd::values::settings;
use crate::exit::Exit;
use crate::fail::Failure;
use crate::out;
use crate::replay::price::{self, Price, WhatIf};
use crate::replay::{self, Outcome, Program, Replay, Target};
use crate::run::job::Hccl;
use crate::run::npu::Npu;
use crate::run::program;

/// How long a call on devices may take, where the environment does not say.
const DEADLINE_DEFAULT: Duration = Duration::from_secs(30);

/// Whether ranks pause between their calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Pauses {
    /// As long as they did when they were recorded
    Recorded,
    /// Not at all
    None,
}

/// Options of `muster replay`.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// Folder that `muster run --record` or MUSTER_RECORD_DIR filled
    folder: PathBuf,
    /// Pauses between calls
    #[arg(long, value_enum, default_value = "recorded")]
    pauses: Pauses,
    /// What carries the calls out. HCCL runs on NPUs or on an emulated toolkit; calls that devices lack are left out
    #[arg(long, value_enum, default_value_t = Backend::Host)]
    backend: Backend,
    /// Price the collectives by the cost model instead of making them: algo=NAME, topology=FILE|PRESET,
    /// ranks-per-host=N, within-us=US, within-gbs=GB/S, between-us=US, between-gbs=GB/S, parted by commas
    #[arg(long, value_name = "ASSUMED", value_parser = WhatIf::parse, conflicts_with = "dry_run")]
    what_if: Option<WhatIf>,
    /// Only read the recording and say what it holds
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    form: FormArgs,
    #[command(flatten)]
    rules: Rules,
}

/// Options of a rank that makes its calls again.
#[derive(Debug, Args)]
pub struct RankArgs {
    folder: PathBuf,
    results: PathBuf,
    #[arg(long)]
    no_pauses: bool,
    /// How the devices are driven, as JSON; on the host where it is missing
    #[arg(long)]
    hccl: Option<String>,
}

/// What was replayed.
#[derive(Debug, Serialize)]
struct Told {
    schema_version: u32,
    ranks: usize,
    /// Calls of all ranks.
    calls: usize,
    /// Recorded calls that have no counterpart and are left out.
    left_out: u64,
    /// Calls that the recorders had no room for.
    lost: u64,
    /// Ranks whose file has no end.
    cut: Vec<u32>,
    /// What carried the calls out; none of a dry run.
    backend: Option<&'static str>,
    /// Whether its devices were emulated.
    emulated: bool,
    /// What the ranks made; none of a dry run.
    outcome: Option<Outcome>,
    /// What the collectives would take by the cost model.
    #[serde(skip_serializing_if = "Option::is_none")]
    price: Option<Price>,
}

/// Reads a recording and makes its calls again.
///
/// # Errors
/// A failure of class USAGE where the recording cannot be used; else as `muster run`.
pub fn run(args: &ReplayArgs) -> Result<Exit, Failure> {
    let program = replay::read(&args.folder).map_err(|problem| {
        Failure::usage(problem.to_string())
            .with_help("name a folder with the files rank-N.calls.jsonl of all ranks")
    })?;
    let mut told = Told::of(&program);
    if let Some(what) = &args.what_if {
        let price = price::price(&program, what);
        told.price = Some(price.map_err(|error| Failure::usage(error.to_string()))?);
        told.print(args.form)?;
        return Ok(Exit::Ok);
    }
    if args.dry_run {
        told.print(args.form)?;
        return Ok(Exit::Ok);
    }
    let environment = Environment::capture();
    let ranks = u32::try_from(program.ranks.len()).unwrap_or(u32::MAX);
    let (deadline, _) = settings(&environment, (None, None), DEADLINE_DEFAULT)?;
    let (choice, hccl) = for_measuring(args.backend, &environment, deadline, Some(ranks))?;
    if let Some(line) = &choice.line {
        out::note(line);
    }
    (told.backend, told.emulated) = (Some(choice.name()), choice.emulated.is_some());
    let results = tempfile::tempdir()
        .map_err(|error| Failure::resource(format!("no folder for results: {error}")))?;
    let exit = start(args, ranks, hccl.as_ref(), results.path())?;
    if exit != Exit::Ok {
        return Ok(exit);
    }
    let mut all = Outcome::default();
    for rank in 0..program.ranks.len() {
        all.add(result_of(results.path(), rank)?);
    }
    let is_wrong = all.wrong > 0;
    told.outcome = Some(all);
    told.print(args.form)?;
    Ok(if is_wrong { Exit::Data } else { Exit::Ok })
}

fn start(
    args: &ReplayArgs,
    ranks: u32,
    hccl: Option<&Hccl>,
    results: &Path,
) -> Result<Exit, Failure> {
    let own = std::env::current_exe()
        .map_err(|error| Failure::resource(format!("this program is not found: {error}")))?;
    let folder = args
        .folder
        .canonicalize()
        .map_err(|error| Failure::usage(format!("{}: {error}", args.folder.display())))?;
    let mut command: Vec<OsString> = vec![own.into(), "__replay".into()];
    command.extend([folder.into_os_string(), results.into()]);
    if args.pauses == Pauses::None {
        command.push("--no-pauses".into());
    }
    if let Some(hccl) = hccl {
        let text = serde_json::to_string(hccl);
        let text = text.map_err(|error| Failure::internal(error.to_string()))?;
        command.extend(["--hccl".into(), text.into()]);
    }
    let rules = args.rules.file()?;
    program::run(&program::Program {
        bind: None,
        rules: rules.as_deref(),
        ranks,
        grace: Duration::from_secs(5),
        json: false,
        dumps: None,
        recording: None,
        command: &command,
    })
}

fn file_of(results: &Path, rank: usize) -> PathBuf {
    results.join(format!("rank-{rank}.json"))
}

fn result_of(results: &Path, rank: usize) -> Result<Outcome, Failure> {
    let missing = |error: &dyn std::fmt::Display| {
        Failure::internal(format!("the result of rank {rank}: {error}"))
    };
    let text = std::fs::read(file_of(results, rank)).map_err(|error| missing(&error))?;
    serde_json::from_slice(&text).map_err(|error| missing(&error))
}

/// Makes the calls of this rank again.
///
/// # Errors
/// As calls have them.
pub fn rank(args: &RankArgs) -> Result<Exit, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::internal(error.to_string());
    let program = replay::read(&args.folder).map_err(|error| failed(&error))?;
    let world = World::from_env().map_err(|error| failed(&error))?;
    let own = program.ranks.get(world.rank().index());
    let own = own.ok_or_else(|| failed(&"a rank that was not recorded"))?;
    let replay = Replay {
        program: own,
        pauses: !args.no_pauses,
    };
    let hccl = args.hccl.as_deref().map(serde_json::from_str);
    let hccl: Option<Hccl> = hccl.transpose().map_err(|error| failed(&error))?;
    let environment = Environment::capture();
    let npu = hccl
        .map(|hccl| Npu::open(&environment, &hccl))
        .transpose()?;
    let outcome = replay.run(&world, |comm| match &npu {
        Some(npu) => npu.on_device(&comm).map(Target::Device),
        None => Ok(Target::Host(comm)),
    });
    let outcome = outcome.map_err(|error| failed(&error))?;
    let text = serde_json::to_string(&outcome).map_err(|error| failed(&error))?;
    std::fs::write(file_of(&args.results, world.rank().index()), text)
        .map_err(|error| failed(&error))?;
    world.leave();
    Ok(Exit::Ok)
}

impl Told {
    fn of(program: &Program) -> Self {
        Self {
            schema_version: 1,
            ranks: program.ranks.len(),
            calls: program.calls(),
            left_out: program.left_out,
            lost: program.lost,
            cut: program.cut.clone(),
            backend: None,
            emulated: false,
            outcome: None,
            price: None,
        }
    }

    fn print(&self, form: FormArgs) -> Result<(), Failure> {
        let text = if form.is_json() {
            serde_json::to_string_pretty(self)
                .map_err(|error| Failure::internal(error.to_string()))?
                + "\n"
        } else {
            self.text()
        };
        out::result(&text)
    }

    fn text(&self) -> String {
        let mut lines = vec![format!("{} calls of {} ranks", self.calls, self.ranks)];
        if !self.cut.is_empty() {
            let ranks = crate::report::cause::listed(&self.cut);
            lines.push(format!(
                "the recording of ranks {ranks} ends without a last line"
            ));
        }
        if self.lost > 0 {
            lines.push(format!(
                "{} calls are missing: the recorders had no room for them",
                self.lost
            ));
        }
        if self.left_out > 0 {
            lines.push(format!(
                "{} calls are left out: not all of their ranks recorded them",
                self.left_out
            ));
        }
        if let Some(outcome) = &self.outcome {
            if outcome.lacking > 0 {
                lines.push(format!(
                    "{} calls are left out: the devices lack them",
                    outcome.lacking
                ));
            }
            let mut times: Vec<_> = outcome.times_ns.iter().collect();
            times.sort_by_key(|(name, (_, ns))| (std::cmp::Reverse(*ns), (*name).clone()));
            for (name, (calls, ns)) in times {
                let mean = *ns as f64 / 1e3 / (*calls).max(1) as f64;
                lines.push(format!(
                    "{name:>20}  {calls:>8} calls  {mean:>10.1} us on average"
                ));
            }
            lines.push(match &outcome.first_wrong {
                Some(first) => format!(
                    "wrong data: {} of {} checked calls, first: {first}",
                    outcome.wrong, outcome.checked
                ),
                None => format!(
                    "replayed{}: {} calls; the results of {} were checked, and all are right",
                    match (self.emulated, self.backend) {
                        (true, _) => " on emulated devices",
                        (false, Some("hccl")) => " on devices",
                        (false, _) => "",
                    },
                    outcome.calls,
                    outcome.checked
                ),
            });
        }
        if let Some(price) = &self.price {
            lines.extend(priced(price));
        }
        lines.join("\n") + "\n"
    }
}

fn priced(price: &Price) -> Vec<String> {
    let mut lines = vec![format!(
        "predicted by the cost model for {}, not measured:",
        price.topology
    )];
    lines.extend(crate::topology::lower_bounds(&price.not_known));
    for row in &price.rows {
        let algorithms: Vec<&str> = row.algorithms.keys().map(String::as_str).collect();
        lines.push(format!(
            "{:>20} x {:<5} {:>8} calls  {:>10.1} us on average  {:>10.3} ms in all  {}",
            row.collective,
            row.ranks,
            row.calls,
            row.predicted_s * 1e6 / row.calls.max(1) as f64,
            row.predicted_s * 1e3,
            algorithms.join(", ")
        ));
    }
    lines.push(format!(
        "rank {} has most: {:.3} ms predicted in collectives; the model does not know {} calls (messages, groups of one)",
        price.busiest,
        price.busiest_s * 1e3,
        price.unknown
    ));
    lines
}
