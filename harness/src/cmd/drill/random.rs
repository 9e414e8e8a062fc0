//! `muster drill --random N` and `--case NAME`: options, runs, table.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use muster_comm::sync::Clock;

use super::DrillArgs;
use crate::drill::random::cases::{CASES, case};
use crate::drill::random::fault::Fault;
use crate::drill::random::load::Load;
use crate::drill::random::mpi::Mpi;
use crate::drill::random::report::Report;
use crate::drill::random::scenario::{Launcher, Options, Scenario};
use crate::drill::random::suite;
use crate::exit::Exit;
use crate::fail::Failure;
use crate::out;
use crate::progress::Progress;
use crate::world::signals::Interrupts;

/// Most runs at once.
const JOBS_MAX: i64 = 64;
/// Most busy loops.
const LOAD_MAX: i64 = 1024;

/// Options of random drills.
#[derive(Debug, Args)]
#[command(next_help_heading = "Random drills")]
pub(super) struct RandomArgs {
    /// Run this many random drills: the first with the given seed, each further one with the next number
    #[arg(long, value_name = "N", conflicts_with_all = ["all", "only", "list", "repeat", "report", "save"])]
    random: Option<u64>,
    /// A saved program that once got a wrong verdict; `all` runs all of them
    #[arg(long, value_name = "NAME", value_delimiter = ',', conflicts_with_all = ["all", "only", "list", "random", "report", "save", "seed"])]
    case: Vec<String>,
    /// Who starts the ranks
    #[arg(long, value_enum, value_delimiter = ',', requires = "random")]
    launcher: Vec<Launcher>,
    /// Faults to inject; `none` for no fault
    #[arg(long, value_enum, value_delimiter = ',', requires = "random")]
    faults: Vec<Fault>,
    /// Busy loops beside the runs
    #[arg(long, value_name = "LOOPS", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=LOAD_MAX))]
    load: u32,
    /// Runs at once
    #[arg(long, value_name = "RUNS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=JOBS_MAX))]
    jobs: u32,
    /// Keep program and output of runs that were not exact in this folder
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
}

impl RandomArgs {
    pub(super) fn is_wanted(&self) -> bool {
        self.random.is_some() || !self.case.is_empty()
    }

    /// Whether an option is given that only random drills know.
    pub(super) fn is_misplaced(&self) -> bool {
        !self.is_wanted() && (self.load > 0 || self.jobs > 1 || self.keep.is_some())
    }
}

/// Carries random drills out.
pub(super) fn run(args: &DrillArgs, seed: u64) -> Result<Exit, Failure> {
    let random = &args.random;
    let options = options(args)?;
    let (whole, scenarios): (u64, Box<dyn Iterator<Item = Scenario> + Send>) = match random.random {
        Some(count) => {
            let of = move |number| Scenario::of(seed.wrapping_add(number), &options);
            (count, Box::new((0..count).map(of)))
        }
        None => {
            let cases = cases(random)?;
            (cases.len() as u64, Box::new(cases.into_iter()))
        }
    };
    let interrupts = Arc::new(Interrupts::install()?);
    let load = Load::start(random.load)?;
    let started = Clock::now();
    let mut report = Report::new(seed);
    let progress = Progress::new();
    progress.begin("random drills");
    let take = |record: crate::drill::random::run::Record| {
        let miss = report.take(&record);
        let done = usize::try_from(report.runs + report.skipped).unwrap_or(usize::MAX);
        progress.set(done, usize::try_from(whole).unwrap_or(usize::MAX));
        if let Some(why) = &record.skipped {
            progress.suspended(|| out::note(&format!("skipped: {why}")));
        }
        match miss {
            Some(miss) if !args.form.is_json() => progress.suspended(|| out::result(&miss.text())),
            Some(_) | None => Ok(()),
        }
    };
    let jobs = random.jobs as usize;
    let interrupted = suite::carry_out(scenarios, jobs, &interrupts, random.keep.as_deref(), take)?;
    drop(progress);
    drop(load);
    report.interrupted = interrupted;
    let elapsed = Clock::now().duration_since(started);
    report.elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
    if args.form.is_json() {
        let text = serde_json::to_string_pretty(&report)
            .map_err(|error| Failure::internal(format!("the report cannot be written: {error}")))?;
        out::result(&format!("{text}\n"))?;
    } else {
        out::result(&report.table())?;
    }
    Ok(report.exit())
}

/// What runs may be like, as this machine allows.
fn options(args: &DrillArgs) -> Result<Options, Failure> {
    let mut launchers = args.random.launcher.clone();
    let mut mpi = Vec::new();
    if launchers.is_empty() || launchers.contains(&Launcher::Mpirun) {
        let (found, lacking) = Mpi::installed();
        for name in lacking {
            out::note(&format!("skipped: no mpirun of {name} is installed"));
        }
        if found.is_empty() {
            if launchers.is_empty() {
                launchers = vec![Launcher::Run, Launcher::Env];
            }
            launchers.retain(|launcher| *launcher != Launcher::Mpirun);
            if launchers.is_empty() {
                return Err(Failure::resource("no mpirun is installed"));
            }
        }
        mpi = found;
    }
    Ok(Options {
        launchers,
        ways: args.transport.clone(),
        worlds: args.world.clone(),
        faults: args.random.faults.clone(),
        load: args.random.load,
        mpi,
    })
}

fn cases(random: &RandomArgs) -> Result<Vec<Scenario>, Failure> {
    let load = random.load;
    if random.case == ["all"] {
        let all = CASES.iter().map(|case| Scenario {
            load,
            ..case.scenario()
        });
        return Ok(all.collect());
    }
    let named = random.case.iter().map(|name| {
        let names: Vec<&str> = CASES.iter().map(|case| case.name).collect();
        let found = case(name).ok_or_else(|| {
            Failure::usage(format!("no case is called {name:?}"))
                .with_help(format!("there are: {}", names.join(", ")))
        })?;
        Ok(Scenario {
            load,
            ..found.scenario()
        })
    });
    named.collect()
}
