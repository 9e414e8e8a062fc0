//! `muster bench`: its options, and the order in which worlds are measured.

use std::time::Duration;

use clap::Args;
use muster_comm::layout::{FrameworkLayout, Matrix};
use muster_comm::types::{Collective, DType, ReduceOp};

use crate::backend;
use crate::bench::gather::Gather;
use crate::bench::model::{BenchReport, Record, Settings};
use crate::bench::shape::Split;
use crate::bench::sweep::{Memory, Places, Stop, What};
use crate::check::inject::Inject;
use crate::cmd::measure;
use crate::cmd::values::{Binding, Common, parse_dtype, parse_time, percent};
use crate::exit::Exit;
use crate::fail::Failure;
use crate::report::origin::Origin;
use crate::run::Finished;
use crate::run::job::Job;
use crate::run::work::{Measured, Work};

mod choose;

/// Time that each call is given where neither option nor environment says.
const DEADLINE_DEFAULT: Duration = Duration::from_secs(30);

/// Most rounds of `--detect`.
const DETECT_ROUNDS_MAX: u32 = 60;

/// Options of `muster bench`.
#[derive(Debug, Args)]
#[command(
    about = "Measure collectives: latency on the slowest rank, bandwidth, wrong elements",
    long_about = "Starts ranks as processes of this host and measures collectives over sizes, element types, \
        reductions, algorithms and groups. Every sample begins behind a barrier and counts the slowest rank; \
        every result is checked. Figures are defined in docs/metrics.md.\n\n\
        Started by torchrun, mpirun or srun it joins the ranks it finds; rank 0 reports.",
    after_long_help = after_long_help(),
)]
pub struct BenchArgs {
    /// Collectives, barrier, group_create or bring_up; `all` for every collective [default: all_reduce]
    #[arg(value_name = "COLLECTIVE", value_parser = choose::whats(), hide_possible_values = true)]
    what: Vec<choose::Whats>,

    /// Smallest size in bytes: 8, 64K, 1MiB (powers of 1024)
    #[arg(short = 'b', long = "min-bytes", value_name = "SIZE", default_value = "8", value_parser = choose::size)]
    begin: u64,

    /// Largest size in bytes
    #[arg(short = 'e', long = "max-bytes", value_name = "SIZE", default_value = "16M", value_parser = choose::size)]
    end: u64,

    /// Factor from one size to the next
    #[arg(short = 'f', long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(2..=1 << 20))]
    factor: u64,

    /// Step from one size to the next, instead of a factor
    #[arg(short = 'i', long, value_name = "SIZE", conflicts_with = "factor", value_parser = choose::size)]
    step: Option<u64>,

    /// Timed calls of a line in each round [default: as --time and --confidence say]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    iters: Option<u32>,

    /// Calls before the timed ones, in each round
    #[arg(short = 'w', long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    warmup: u32,

    /// Calls whose every element is checked, in each line; 0 checks nothing
    #[arg(short = 'c', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=1000))]
    check: u32,

    /// Element types, separated by commas
    #[arg(short = 'd', long = "dtypes", value_name = "TYPES", value_delimiter = ',', default_value = "f32", value_parser = parse_dtype)]
    dtypes: Vec<DType>,

    /// Reductions, separated by commas
    #[arg(short = 'o', long = "ops", value_name = "OPS", value_delimiter = ',', default_value = "sum", value_parser = choose::op)]
    ops: Vec<ReduceOp>,

    /// Root of rooted calls, as an index into the group
    #[arg(short = 'r', long, value_name = "INDEX", default_value_t = 0)]
    root: u32,

    /// Numbers of ranks, separated by commas [default: one for each processor, 2 to 8]
    #[arg(short = 'g', long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024))]
    ranks: Vec<u32>,

    /// Kinds of groups, separated by commas: tp, ep, dp, …, as `muster groups` names them; all groups of a kind work at once
    #[arg(long, value_name = "KINDS", value_delimiter = ',', default_value = "world", value_parser = choose::trimmed)]
    group: Vec<String>,

    /// A matrix instead of sizes: tp2ep4@8, or a deployment of vLLM such as vllm0.18:tp4dp4
    #[arg(long, value_name = "MATRIX", conflicts_with_all = ["tp", "cp", "pp", "ep", "etp", "ranks"])]
    matrix: Option<Matrix>,

    /// Tensor parallel size of the layout
    #[arg(long, value_name = "N")]
    tp: Option<u32>,

    /// Context parallel size of the layout
    #[arg(long, value_name = "N")]
    cp: Option<u32>,

    /// Pipeline parallel size of the layout
    #[arg(long, value_name = "N")]
    pp: Option<u32>,

    /// Expert parallel size of the layout
    #[arg(long, value_name = "N")]
    ep: Option<u32>,

    /// Expert tensor parallel size of the layout [default: as tp]
    #[arg(long, value_name = "N")]
    etp: Option<u32>,

    /// Algorithms, separated by commas: auto, all, or names from `muster plan show`
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "auto"
    )]
    algo: Vec<String>,

    /// How much is staged at once, separated by commas: 16K to 1M, for algorithms over shared memory [default: 1M]
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = choose::segment)]
    segment: Vec<u32>,

    /// Out of place, in place or both
    #[arg(long, value_enum, default_value_t = Places::Out)]
    place: Places,

    /// Where buffers lie, separated by commas
    #[arg(long, value_name = "KINDS", value_delimiter = ',', default_value = "private", value_parser = choose::memory)]
    memory: Vec<Memory>,

    /// How the blocks of all_to_all_v and of other calls with uneven blocks differ
    #[arg(long, value_enum, default_value_t = Split::Uneven)]
    split: Split,

    /// Measure every pair of ranks instead, one after the other, and name a rank or a link that is slow [default sizes: 8,1M]
    #[arg(long, value_name = "SIZES", num_args = 0..=1, require_equals = true, value_delimiter = ',', default_missing_value = "8,1M",
        conflicts_with_all = ["what", "group", "begin", "end", "factor", "step", "algo"], value_parser = choose::size)]
    map: Vec<u64>,

    /// Longest time for a line, all rounds together [default: 500ms; 60ms for a pair of --map]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    time: Option<Duration>,

    /// A line ends early once its median is known to this many percent with 95 % confidence; 0: never
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = choose::percent)]
    confidence: f64,

    /// How often all lines are measured; `compare` needs 10 [default: 1; 3 with --map; 60 with --detect]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,

    /// Measure rounds until a change of this many percent would be found in 9 of 10 comparisons; --rounds is the most
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    detect: Option<f64>,

    /// Keep each rank to its share of the processors, as `--bind share` does: steadier times
    #[arg(long, conflicts_with = "bind")]
    pin: bool,

    #[command(flatten)]
    binding: Binding,

    /// Inject a fault, to see that it is found: KIND:rank=R[,collective=NAME], as in `verify`
    #[arg(long, value_name = "FAULT")]
    inject: Vec<Inject>,

    #[command(flatten)]
    common: Common,
}

fn after_long_help() -> String {
    format!(
        "Examples:\n  \
         muster bench                                        all_reduce, 8 B to 16 MiB\n  \
         muster bench all_to_all -b 64K -e 64M -f 4 -g 2,8   other sizes and numbers of ranks\n  \
         muster bench all_reduce --algo all -b 1M -e 1M      compare algorithms\n  \
         muster bench all_to_all_v --group ep --tp 2 --ep 4  all EP groups of a layout at once\n  \
         muster bench all_reduce --group tp,dp --matrix vllm0.18:tp4dp4\n  \
         muster bench barrier bring_up group_create -g 8     what has no size\n  \
         muster bench --map -g 8                             every pair of ranks: which rank or link is slow\n  \
         muster bench --rounds 10 --save base.json           a file for `muster compare`\n  \
         muster bench --report out.html --report out.xml     a page for people, JUnit for CI\n  \
         mpirun -n 8 muster bench all_gather                 in the ranks of a launcher\n\n{}",
        Exit::table()
    )
}

/// Runs `muster bench`.
///
/// # Errors
/// If an option is wrong, the host cannot carry the ranks, or the result cannot be written.
pub fn run(args: &BenchArgs) -> Result<Exit, Failure> {
    let (environment, identity) = args.common.joining.identity()?;
    let mut jobs = args.jobs(&environment, identity.as_ref())?;
    let deadline = args.common.settings(&environment, DEADLINE_DEFAULT)?.0;
    let ranks = jobs.iter().map(|(job, _)| job.matrix.world_size).max();
    let here = ranks.filter(|_| identity.is_none());
    let (choice, hccl) = backend::for_measuring(args.common.backend, &environment, deadline, here)?;
    if let Some(hccl) = hccl {
        args.refuse_host_options()?;
        for (job, _) in &mut jobs {
            job.hccl = Some(hccl.clone());
            if let Work::Bench(plan) = &mut job.work {
                plan.memories = vec![Memory::Device];
            }
        }
    }
    args.common
        .prepare(&choice, &environment, identity.as_ref())?;
    let seed = jobs.first().map_or(1, |(job, _)| job.seed);
    let report = BenchReport {
        backend: choice.name().to_owned(),
        emulated: choice.emulated.is_some(),
        seed,
        origin: Some(Origin::here(&environment)),
        transport: args.common.transport.name().to_owned(),
        pinned: jobs.iter().any(|(job, _)| job.is_bound()),
        rounds: args.rounds(),
        ..BenchReport::new(Settings {
            rules: args.common.rules.of(&environment)?.source,
            warm_ups: args.warmup,
            hosts: Vec::new(),
        })
    };
    if identity.is_some() && args.detect.is_some() {
        return Err(Failure::usage(
            "--detect starts worlds again and again, which a rank of another launcher cannot",
        )
        .with_help("give the number of rounds with --rounds"));
    }
    if identity.is_some() && args.whats().contains(&What::BringUp) {
        return Err(Failure::usage(
            "bring_up starts worlds again and again, which a rank of another launcher cannot",
        ));
    }
    measure::run::<Gather>(
        report,
        (args.common.format, args.common.interim),
        &args.common.saving,
        (&jobs, args.detect.map(|percent| percent / 100.0)),
        &environment,
        identity.as_ref(),
    )
}

impl measure::Gather for Gather {
    type Settings = Settings;

    fn of(job: &Job, layout: &FrameworkLayout, one_host: bool) -> Option<Self> {
        match &job.work {
            Work::Bench(plan) => Some(Self::new(plan, layout, one_host)),
            Work::Moe(_) | Work::Verify(_) => None,
        }
    }

    fn take(&mut self, rank: u32, measured: Measured) -> Option<Record> {
        match measured {
            Measured::Bench(measured) => Self::take(self, rank, measured),
            Measured::Moe(_) => None,
        }
    }

    fn end(&mut self, world: usize, finished: &Finished) -> Option<Record> {
        self.brought_up(world, finished.summary.bring_up_us)
    }

    fn so_far(&self) -> Vec<Record> {
        Self::so_far(self)
    }

    fn close(mut self, report: &mut BenchReport) -> Vec<Record> {
        report.machine_states.extend(self.machine_states());
        if self.hosts().len() > report.settings.hosts.len() {
            report.settings.hosts = self.hosts().to_vec();
        }
        self.rest()
    }
}

impl BenchArgs {
    /// Options that say something about the host backend only.
    fn refuse_host_options(&self) -> Result<(), Failure> {
        let refuse = |what: &str, help: &str| Err(Failure::usage(what).with_help(help));
        if !self.inject.is_empty() {
            return refuse(
                "--inject spoils data of the host backend, and devices have their own",
                "use --backend host, or MUSTER_EMU_FAULT with an emulated device",
            );
        }
        if self.algo.iter().any(|name| name != "auto") {
            return refuse(
                "--algo names algorithms of the host backend; on devices HCCL chooses its own",
                "leave it out, or use --backend host",
            );
        }
        if self.memory.contains(&Memory::Region) {
            return refuse(
                "--memory names memory of the host; with --backend hccl buffers lie on the devices",
                "leave it out, or use --backend host",
            );
        }
        let objects = |what: &What| match what {
            What::Collective(call) => call.is_of_objects(),
            What::BringUp | What::GroupCreate => false,
        };
        if let Some(what) = self.whats().into_iter().find(objects) {
            return refuse(
                &format!("{} goes over the host whatever the backend", what.name()),
                "measure it with --backend host",
            );
        }
        Ok(())
    }

    fn whats(&self) -> Vec<What> {
        let mut all: Vec<What> = Vec::new();
        for what in self.what.iter().flat_map(|whats| &whats.0) {
            if !all.contains(what) {
                all.push(*what);
            }
        }
        if all.is_empty() {
            let usual = if self.is_map() {
                Collective::SendRecvBatch
            } else {
                Collective::AllReduce
            };
            all.push(What::Collective(usual));
        }
        all
    }

    /// Whether every pair is measured.
    const fn is_map(&self) -> bool {
        !self.map.is_empty()
    }

    /// Longest time for a line.
    fn time(&self) -> Duration {
        let usual = Duration::from_millis(if self.is_map() { 60 } else { 500 });
        self.time.unwrap_or(usual)
    }

    fn rounds(&self) -> u32 {
        let usual = match self.detect {
            Some(_) => DETECT_ROUNDS_MAX,
            None if self.is_map() => 3,
            None => 1,
        };
        self.rounds.unwrap_or(usual)
    }

    /// When a line is measured often enough.
    fn stop(&self) -> Stop {
        Stop {
            calls: self.iters,
            time_ms: u64::try_from(self.time().as_millis()).unwrap_or(u64::MAX),
            confidence: self.confidence / 100.0,
        }
    }
}
