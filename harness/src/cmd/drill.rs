//! `muster drill`: faults on purpose, and whether their verdicts are right.

mod random;

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use muster_comm::config::{self, Environment};
use muster_comm::sync::Clock;
use muster_comm::types::closest;

use crate::TOOL;
use crate::cmd::saving::{FormArgs, Saving};
use crate::drill::actor;
use crate::drill::catalogue::{Drill, drills};
use crate::drill::model::{Report, SCHEMA_VERSION};
use crate::drill::plan::{Setting, Transport};
use crate::drill::random::scenario::Way;
use crate::drill::suite::{self, Turn};
use crate::drill::table;
use crate::exit::Exit;
use crate::fail::Failure;
use crate::out;
use crate::progress::Progress;
use crate::report::machine::Machine;
use crate::report::origin::Origin;
use crate::world::signals::Interrupts;
use crate::world::tether;

/// Most ranks of a drill: all of them are processes of this host.
const RANKS_MAX: i64 = 256;

/// Options of `muster drill`.
#[derive(Debug, Args)]
#[command(after_help = "Example: muster drill --only killed B12 --world 2,4,8 --transport shm")]
pub struct DrillArgs {
    /// Every drill, not only the first wave and its controls
    #[arg(long)]
    all: bool,
    /// Only these drills, by name or by number
    #[arg(long, value_name = "DRILL", num_args = 1.., conflicts_with = "all")]
    only: Vec<String>,
    /// List the drills
    #[arg(long)]
    list: bool,
    /// Numbers of ranks
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(2..=RANKS_MAX))]
    world: Vec<u32>,
    /// What carries bytes between ranks [default: shm,tcp; random drills also net]
    #[arg(long, value_enum, value_delimiter = ',')]
    transport: Vec<Way>,
    /// Seed of the random choices: victims and moments
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
    /// How often to repeat every drill
    #[arg(long, value_name = "TIMES", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    repeat: u32,
    #[command(flatten)]
    form: FormArgs,
    #[command(flatten)]
    random: random::RandomArgs,
    #[command(flatten)]
    saving: Saving,
}

/// Options of a rank of a drill.
#[derive(Debug, Args)]
pub struct ActorArgs {
    /// The folder of the run
    #[arg(long)]
    folder: PathBuf,
    /// The number of the part; that of the own rank by default
    #[arg(long)]
    part: Option<usize>,
    /// End with the process that has started this one
    #[arg(long)]
    tied: bool,
}

/// Plays one rank of a drill.
///
/// # Errors
/// If the part cannot be read.
pub fn play(args: &ActorArgs) -> Result<Exit, Failure> {
    if args.tied {
        tether::tie_to(std::os::unix::process::parent_id())?;
    }
    actor::play(&args.folder, args.part)
}

/// Runs the drills that were asked for.
///
/// # Errors
/// If a name is unknown, or the means of a drill fail.
pub fn run(args: &DrillArgs) -> Result<Exit, Failure> {
    if args.random.is_wanted() {
        return random::run(args, seed(args)?);
    }
    if args.random.is_misplaced() || args.transport.contains(&Way::Net) {
        return Err(Failure::usage(
            "--load, --jobs, --keep and --transport net are for random drills",
        )
        .with_help("add --random N, or --case NAME"));
    }
    let wanted = chosen(args)?;
    if args.list {
        return list(args, &wanted);
    }
    let seed = seed(args)?;
    let turns = turns(args, &wanted, seed);
    if turns.is_empty() {
        return Err(Failure::usage(
            "none of these drills makes sense in such a world over such a transport",
        )
        .with_help("`muster drill --list` shows over what each runs"));
    }
    args.saving.check()?;
    let report = carry_out(args, turns, seed)?;
    // A closed terminal must not cost the files, nor a full disk the table.
    let written = args.saving.write(&report);
    if args.form.is_json() {
        let text = serde_json::to_string_pretty(&report)
            .map_err(|error| Failure::internal(format!("the report cannot be written: {error}")))?;
        out::result(&format!("{text}\n"))?;
    } else {
        out::result(&table::closing(&report))?;
    }
    Saving::ended(report.exit(), written)
}

fn seed(args: &DrillArgs) -> Result<u64, Failure> {
    match args.seed {
        Some(seed) => Ok(seed),
        None => Ok(Environment::capture()
            .read(&config::SEED)
            .map_err(|error| Failure::usage(error.to_string()))?
            .unwrap_or(1)),
    }
}

fn carry_out(args: &DrillArgs, turns: Vec<Turn>, seed: u64) -> Result<Report, Failure> {
    let interrupts = Arc::new(Interrupts::install()?);
    let started = Clock::now();
    let mut report = Report {
        schema_version: SCHEMA_VERSION,
        tool: TOOL.into(),
        passed: false,
        interrupted: false,
        seed,
        elapsed_ms: 0,
        machine: Some(Machine::here()),
        origin: Some(Origin::here(&Environment::capture())),
        drills: Vec::new(),
    };
    if !args.form.is_json() {
        out::result(&table::head())?;
    }
    let progress = Progress::new();
    let whole = turns.len();
    for (done, turn) in turns.into_iter().enumerate() {
        progress.begin(format!("{} ({}/{whole})", turn.drill.name, done + 1));
        progress.set(done, whole);
        let Some(run) = suite::run(&turn, &interrupts)? else {
            report.interrupted = true;
            break;
        };
        if !args.form.is_json() {
            progress.suspended(|| out::result(&table::row(&run)))?;
        }
        report.drills.push(run);
    }
    drop(progress);
    let elapsed = Clock::now().duration_since(started);
    report.elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
    report.passed = report.exit() == Exit::Ok;
    Ok(report)
}

fn turns(args: &DrillArgs, wanted: &[&'static Drill], seed: u64) -> Vec<Turn> {
    let worlds = |drill: &Drill| {
        if args.world.is_empty() {
            vec![drill.ranks]
        } else {
            args.world.clone()
        }
    };
    let is_wanted = |transport: &Transport| {
        args.transport.is_empty()
            || args.transport.contains(match transport {
                Transport::Shm => &Way::Shm,
                Transport::Tcp => &Way::Tcp,
            })
    };
    let transports: Vec<Transport> = Transport::ALL.into_iter().filter(is_wanted).collect();
    let mut turns = Vec::new();
    for repetition in 1..=args.repeat {
        for drill in wanted {
            for transport in &transports {
                for world_size in worlds(drill) {
                    let setting = Setting {
                        world_size,
                        transport: *transport,
                    };
                    if drill.fits(&setting) {
                        turns.push(Turn {
                            drill,
                            setting,
                            repetition,
                            seed,
                            number: turns.len() as u64,
                        });
                    }
                }
            }
        }
    }
    turns
}

fn list(args: &DrillArgs, wanted: &[&'static Drill]) -> Result<Exit, Failure> {
    if !args.form.is_json() {
        out::result(&table::list(wanted))?;
        return Ok(Exit::Ok);
    }
    let rows: Vec<serde_json::Value> = wanted
        .iter()
        .map(|drill| {
            serde_json::json!({
                "id": drill.id,
                "name": drill.name,
                "title": drill.title,
                "first_wave": drill.first_wave,
                "control": drill.is_control,
                "transports": drill.transports,
                "world_size_min": drill.world_min,
            })
        })
        .collect();
    let document = serde_json::json!({
        "schema_version": SCHEMA_VERSION,
        "tool": "muster",
        "drills": rows,
    });
    out::result(&format!("{document:#}\n"))?;
    Ok(Exit::Ok)
}

/// The drills that were asked for; all of them for a list.
fn chosen(args: &DrillArgs) -> Result<Vec<&'static Drill>, Failure> {
    if args.only.is_empty() {
        let everything = args.all || args.list;
        let is_wanted = |drill: &&Drill| everything || drill.is_usual();
        return Ok(drills().filter(is_wanted).collect());
    }
    for name in &args.only {
        if !drills().any(|drill| drill.is_called(name)) {
            return Err(unknown(name));
        }
    }
    let is_wanted = |drill: &&Drill| args.only.iter().any(|name| drill.is_called(name));
    Ok(drills().filter(is_wanted).collect())
}

fn unknown(name: &str) -> Failure {
    let failure = Failure::usage(format!("no drill is called {name:?}"));
    match closest(name, drills().map(|drill| drill.name)) {
        Some(close) => failure.with_help(format!("did you mean {close}?")),
        None => failure.with_help("`muster drill --list` shows all of them"),
    }
}
