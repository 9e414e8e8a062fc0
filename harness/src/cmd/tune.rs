//! `muster tune`: measures what the selection table decides, and writes a table for this machine.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use muster_comm::algo::{Table, planned};
use muster_comm::config::Environment;
use muster_comm::layout::{FrameworkLayout, Matrix};
use muster_comm::types::{Collective, DType, ReduceOp, closest};

use crate::TOOL;
use crate::bench::gather::Gather;
use crate::bench::model::Record;
use crate::bench::shape::Split;
use crate::bench::sweep::{CELLS_MAX, Memory, Places, Stop, Sweep, What, parse_size, sweep};
use crate::bench::tune::{SCHEMA_VERSION, TuneReport, Tuning, table};
use crate::check::cases::WORLD_KIND;
use crate::cmd::saving::Form;
use crate::cmd::values::{Binding, did_you_mean, parse_time, settings};
use crate::exit::Exit;
use crate::fail::Failure;
use crate::out;
use crate::progress::Progress;
use crate::report::machine::Machine;
use crate::report::origin::Origin;
use crate::run::job::{Job, MatrixSpec, Transport};
use crate::run::work::{Measured, Work};
use crate::run::{joined, local};
use crate::world::signals::Interrupts;

mod model;

/// Segments that are tried beside an algorithm's own, in bytes.
const SEGMENTS: [u32; 3] = [64 << 10, 256 << 10, 0];
/// Ranks of one group at most: more say nothing that a machine with fewer processors could use.
const RANKS_MAX: i64 = 64;
/// Time that each call is given where the environment does not say.
const DEADLINE_DEFAULT: Duration = Duration::from_secs(30);

/// Options of `muster tune`.
#[derive(Debug, Args)]
#[command(
    about = "Measure which algorithms are best on this machine, and write a selection table",
    long_about = "Starts ranks as processes of this host and measures every algorithm of every collective beside what \
        the built-in rules choose: calls that ride in the entry against staging, segments of several sizes, plans \
        over shared memory against messages. Where another choice is surely faster it writes a rule, with what was \
        measured above it. The table is text: read it, change it, and give it to programs with MUSTER_ALGO=@FILE, \
        to verify, bench, moe and run also with --table FILE. Without one the built-in rules hold.\n\n\
        Measure on a machine that does nothing else.",
    after_long_help = after_long_help(),
)]
pub struct TuneArgs {
    /// Collectives [default: all that have algorithms]
    #[arg(value_name = "COLLECTIVE", value_parser = parse_collective)]
    what: Vec<Collective>,

    /// Measure what `muster plan cost --model FILE` predicts from, and write it to this file instead of a table
    ///
    /// Latency, bandwidth and cost of combining, by path: shared memory, TCP on this host and, started by a launcher on
    /// several hosts, between them. Worlds that the file has of other runs stay in it.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["what", "output", "margin", "memory", "transport"])]
    model: Option<PathBuf>,

    /// Numbers of ranks, separated by commas; the table has rules for these only
    #[arg(short = 'g', long, value_name = "N", value_delimiter = ',', default_value = "2,4,8", value_parser = clap::value_parser!(u32).range(2..=RANKS_MAX))]
    ranks: Vec<u32>,

    /// Smallest size in bytes: 8, 64K, 1MiB (powers of 1024)
    #[arg(short = 'b', long = "min-bytes", value_name = "SIZE", default_value = "64", value_parser = parse_size)]
    begin: u64,

    /// Largest size in bytes; larger calls stay with the built-in rules
    #[arg(short = 'e', long = "max-bytes", value_name = "SIZE", default_value = "16M", value_parser = parse_size)]
    end: u64,

    /// Factor from one size to the next
    #[arg(short = 'f', long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(2..=1 << 20))]
    factor: u64,

    /// Memory of the buffers of the programs that will use the table
    #[arg(long, value_enum, default_value_t = MemoryKind::Private)]
    memory: MemoryKind,

    /// Transport to measure: shm gives rules for links=direct, tcp (over this host's loopback) for links=message
    #[arg(long, value_enum, default_value_t = Links::Shm)]
    transport: Links,

    /// By how many percent an algorithm must be faster than the built-in choice to get a rule
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0, value_parser = parse_margin)]
    margin: f64,

    /// Longest time for each algorithm and size, all rounds together
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = parse_time)]
    time: Duration,

    /// How often to measure everything; a rule must hold each time
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=1000))]
    rounds: u32,

    /// Keep each rank to its share of the processors, as `--bind share` does: steadier times
    #[arg(long, conflicts_with = "bind")]
    pin: bool,

    #[command(flatten)]
    binding: Binding,

    /// Write the table to this file [default: standard output]
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// How to show the result
    #[arg(long, value_enum, default_value_t)]
    format: Form,
}

/// Where buffers lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum MemoryKind {
    /// Ordinary memory
    Private,
    /// Memory that local ranks share
    Region,
}

/// What ranks have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Links {
    /// Shared memory
    Shm,
    /// TCP connections
    Tcp,
}

fn after_long_help() -> String {
    format!(
        "Examples:\n  \
         muster tune -o here.rules                    all collectives, 2, 4 and 8 ranks\n  \
         muster tune all_reduce -g 8 -e 64M           one collective, larger sizes\n  \
         muster tune --memory region -o region.rules  for programs with buffers from the world's region\n  \
         muster plan table --file here.rules          print it, before the built-in rules\n  \
         muster bench all_reduce --table here.rules   its effect; the algorithm is in each line\n  \
         MUSTER_ALGO=@here.rules ./train              a program that uses it\n  \
         muster tune --model here.json                what predictions need, instead of a table\n\n{}",
        Exit::table()
    )
}

fn parse_collective(word: &str) -> Result<Collective, String> {
    let names = || planned().map(Collective::name);
    planned().find(|call| call.name() == word).ok_or_else(|| {
        let meant = did_you_mean(closest(word, names()));
        format!("there is {}{meant}", names().collect::<Vec<_>>().join(", "))
    })
}

fn parse_margin(text: &str) -> Result<f64, String> {
    text.trim_end_matches('%')
        .parse()
        .ok()
        .filter(|percent: &f64| (0.0..=90.0).contains(percent))
        .ok_or_else(|| "a number of percent is 0 to 90".to_owned())
}

/// Runs `muster tune`.
///
/// # Errors
/// If an option is wrong, the host cannot carry the ranks, a call fails or comes out wrong, or the table
/// cannot be written.
pub fn run(args: &TuneArgs) -> Result<Exit, Failure> {
    if let Some(path) = &args.model {
        return model::run(args, path);
    }
    let environment = Environment::capture();
    if joined::identity(&environment, None)?.is_some() {
        return Err(Failure::usage(
            "tune starts ranks of its own, and this process is a rank of a launcher already",
        ));
    }
    let jobs = args.jobs(&environment)?;
    if let Some(path) = &args.output {
        out::can_save(path)?;
    }
    let records = args.measure(&jobs)?;
    let tuning = Tuning {
        margin: args.margin / 100.0,
        direct: args.transport == Links::Shm,
    };
    let is_built_in = |record: &&Record| record.algo == "auto";
    let mut report = TuneReport {
        schema_version: SCHEMA_VERSION,
        tool: TOOL.to_owned(),
        command: "tune".to_owned(),
        machine: Machine::here(),
        origin: Origin::here(&environment),
        memory: args.memory().name().to_owned(),
        rounds: args.rounds,
        margin_percent: args.margin,
        cells: records.iter().filter(is_built_in).count() as u64,
        rules: tuning.rules(&records),
        table: String::new(),
    };
    report.table = table(&report);
    // What is written here is read by other programs.
    Table::with_overrides(&report.table)
        .map_err(|error| Failure::internal(format!("the table that was made is wrong: {error}")))?;
    args.publish(&report)
}

impl TuneArgs {
    fn memory(&self) -> Memory {
        match self.memory {
            MemoryKind::Private => Memory::Private,
            MemoryKind::Region => Memory::Region,
        }
    }

    /// One job a number of ranks, each with its layout.
    fn jobs(&self, environment: &Environment) -> Result<Vec<(Job, FrameworkLayout)>, Failure> {
        let sizes = sweep(self.begin, self.end, self.factor, None);
        if sizes.is_empty() {
            return Err(Failure::usage(format!(
                "the smallest size {} is above the largest size {}",
                self.begin, self.end
            )));
        }
        let (deadline, seed) = settings(environment, (None, None), DEADLINE_DEFAULT)?;
        let bind = self.binding.of(self.pin, environment)?;
        let plan = self.plan(sizes);
        let job = |ranks: &u32| {
            let name = format!("tp1@{ranks}");
            let illegal =
                |error: &dyn std::fmt::Display| Failure::internal(format!("{name}: {error}"));
            let matrix: Matrix = name.parse().map_err(|error| illegal(&error))?;
            let layout = matrix.layout().map_err(|error| illegal(&error))?;
            let cells = plan.cells(&layout).len();
            if cells > CELLS_MAX {
                return Err(Failure::usage(format!(
                    "{cells} measurements are asked for, allowed are {CELLS_MAX}"
                ))
                .with_help("choose fewer sizes or collectives"));
            }
            let matrix = MatrixSpec::of(name, &layout);
            let job = Job {
                transport: match self.transport {
                    Links::Shm => Transport::Shm,
                    Links::Tcp => Transport::Tcp,
                },
                seed,
                bind,
                // Beside the built-in rules, whatever the environment says.
                rules: Some(String::new()),
                ..Job::new(matrix, Work::Bench(plan.clone()), deadline)
            };
            Ok((job, layout))
        };
        self.ranks.iter().map(job).collect()
    }

    fn plan(&self, sizes: Vec<u64>) -> Sweep {
        let mut calls = self.what.clone();
        if calls.is_empty() {
            calls = planned().collect();
        }
        Sweep {
            what: calls.into_iter().map(What::Collective).collect(),
            sizes,
            dtypes: vec![DType::F32],
            ops: vec![ReduceOp::Sum],
            root: 0,
            algos: vec!["auto".to_owned(), "all".to_owned()],
            segments: SEGMENTS.to_vec(),
            places: Places::Out,
            memories: vec![self.memory()],
            split: Split::Even,
            groups: vec![WORLD_KIND.to_owned()],
            warm_ups: 3,
            stop: Stop {
                calls: None,
                time_ms: u64::try_from(self.time.as_millis()).unwrap_or(u64::MAX),
                confidence: 0.02,
            },
            rounds: self.rounds,
            round: None,
            checks: 1,
            direct: self.transport == Links::Shm,
        }
    }

    /// Measures one number of ranks after the other; each round in a world of its own.
    fn measure(&self, jobs: &[(Job, FrameworkLayout)]) -> Result<Vec<Record>, Failure> {
        for (job, layout) in jobs {
            local::make_sure_that_it_fits(job, layout)?;
        }
        let interrupts = Arc::new(Interrupts::install()?);
        let progress = Progress::new();
        let work = |(job, layout): &(Job, FrameworkLayout)| {
            job.work.lines(layout) * self.rounds as usize * job.matrix.world_size as usize
        };
        let whole: usize = jobs.iter().map(work).sum();
        let (mut done, mut records) = (0, Vec::new());
        for (job, layout) in jobs {
            let Work::Bench(plan) = &job.work else {
                continue;
            };
            let mut gather = Gather::new(plan, layout, true);
            progress.begin(format!("{} ranks", job.matrix.world_size));
            for work in job.work.worlds(layout) {
                let job = Job {
                    work,
                    ..job.clone()
                };
                let finished = local::run(&job, layout, &interrupts, &mut |so_far| {
                    done += so_far.measured.len();
                    progress.set(done, whole);
                    for (rank, measured) in so_far.measured {
                        if let Measured::Bench(measured) = measured {
                            records.extend(gather.take(rank, measured));
                        }
                    }
                })?;
                progress.suspended(|| finished.output.iter().for_each(|line| out::note(line)));
                if let Some(verdict) = finished.verdict {
                    return Err(Failure::new(verdict.class, verdict.text));
                }
            }
        }
        progress.clear();
        match records
            .iter()
            .find(|record| record.wrong.is_some_and(|wrong| wrong > 0))
        {
            Some(record) => Err(Failure::new(
                Exit::Data,
                format!(
                    "{} by {} on {} ranks: {}",
                    record.collective,
                    record.algo,
                    record.ranks,
                    record.wrong_text.as_deref().unwrap_or("wrong data")
                ),
            )),
            None => Ok(records),
        }
    }

    fn publish(&self, report: &TuneReport) -> Result<Exit, Failure> {
        if let Some(path) = &self.output {
            out::save(path, &report.table)?;
            let path = path.display();
            out::note(&format!(
                "{path}: {} rules; use them with MUSTER_ALGO=@{path}, or --table {path}",
                report.rules.len()
            ));
        }
        match (self.format, &self.output) {
            (Form::Json, _) => {
                let text = serde_json::to_string(report).map_err(|error| {
                    Failure::internal(format!("the result cannot be written as JSON: {error}"))
                })?;
                out::result(&format!("{text}\n"))?;
            }
            (Form::Table, None) => out::result(&report.table)?,
            (Form::Table, Some(_)) => {}
        }
        Ok(Exit::Ok)
    }
}
