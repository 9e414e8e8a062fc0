//! `muster tune --model`: measures what predictions of calls need, and writes a topology file with it.

use std::path::Path;

use muster_comm::config::Environment;
use muster_comm::launch::Identity;
use muster_comm::layout::{FrameworkLayout, Matrix};
use muster_comm::types::{Collective, DType, ReduceOp};

use super::{DEADLINE_DEFAULT, TuneArgs};
use crate::TOOL;
use crate::bench::gather::Gather;
use crate::bench::model::Record;
use crate::bench::shape::Split;
use crate::bench::sweep::{Memory, Places, Stop, Sweep, What, sweep};
use crate::check::cases::WORLD_KIND;
use crate::cmd::values::settings;
use crate::exit::Exit;
use crate::fail::Failure;
use crate::out;
use crate::predict::call::Place;
use crate::predict::costs::{Calls, Costs, Measured};
use crate::progress::Progress as Line;
use crate::report::cause::Cause;
use crate::report::machine::Machine;
use crate::report::origin::Origin;
use crate::run::job::{Job, MatrixSpec, Transport};
use crate::run::session::{self, Next, Session};
use crate::run::work::{Measured as Told, Work};
use crate::run::{Finished, Progress};
use crate::topology::File;

/// What is measured: each term of the model stands in some of them.
const CALLS: [Collective; 10] = [
    Collective::Barrier,
    Collective::AllReduce,
    Collective::AllGather,
    Collective::AllToAll,
    Collective::Broadcast,
    Collective::Gather,
    Collective::Reduce,
    Collective::ReduceScatter,
    Collective::Scan,
    Collective::SendRecvBatch,
];

/// Measures and writes the file.
///
/// # Errors
/// If the host cannot carry the ranks, a call fails, or the file cannot be written.
pub(super) fn run(args: &TuneArgs, path: &Path) -> Result<Exit, Failure> {
    let environment = Environment::capture();
    let identity = crate::run::joined::identity(&environment, None)?;
    let is_first = identity
        .as_ref()
        .is_none_or(|identity| identity.rank.0 == 0);
    if is_first {
        out::can_save(path)?;
    }
    let jobs = jobs(args, &environment, identity.as_ref())?;
    let mut measuring = Measuring {
        path,
        jobs: &jobs,
        gather: None,
        records: Vec::new(),
        worlds: Vec::new(),
        measured: Measured {
            at: Origin::here(&environment).started_at,
            cpu: Machine::here().cpu,
            processors: Machine::here().cpus,
            load: [load(), 0.0],
            tool: TOOL.to_owned(),
        },
        one_host: identity.as_ref().is_none_or(Identity::is_on_one_host),
        verdict: None,
        progress: Line::new(),
    };
    session::run(&mut measuring, &jobs, &environment, identity.as_ref())
}

/// Mean load of the last minute.
fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split_whitespace().next();
    first.and_then(|word| word.parse().ok()).unwrap_or(0.0)
}

/// A world for each number of ranks and each transport; among ranks of a launcher, theirs.
fn jobs(
    args: &TuneArgs,
    environment: &Environment,
    identity: Option<&Identity>,
) -> Result<Vec<(Job, FrameworkLayout)>, Failure> {
    let (deadline, seed) = settings(environment, (None, None), DEADLINE_DEFAULT)?;
    let bind = args.binding.of(args.pin, environment)?;
    let worlds: Vec<(u32, Transport)> = match identity {
        Some(identity) => vec![(identity.world_size, Transport::Auto)],
        None => {
            let both = |ranks: &u32| [(*ranks, Transport::Auto), (*ranks, Transport::Tcp)];
            args.ranks.iter().flat_map(both).collect()
        }
    };
    let job = |(ranks, transport): (u32, Transport)| {
        let name = format!("tp1@{ranks}");
        let illegal = |error: &dyn std::fmt::Display| Failure::internal(format!("{name}: {error}"));
        let matrix: Matrix = name.parse().map_err(|error| illegal(&error))?;
        let layout = matrix.layout().map_err(|error| illegal(&error))?;
        let one_host = identity.is_none_or(Identity::is_on_one_host);
        let plan = plan(args, one_host && transport != Transport::Tcp);
        let job = Job {
            transport,
            seed,
            bind,
            rules: Some(String::new()),
            ..Job::new(MatrixSpec::of(name, &layout), Work::Bench(plan), deadline)
        };
        Ok((job, layout))
    };
    worlds.into_iter().map(job).collect()
}

fn plan(args: &TuneArgs, direct: bool) -> Sweep {
    Sweep {
        what: CALLS.into_iter().map(What::Collective).collect(),
        sizes: sweep(args.begin, args.end, args.factor.max(16), None),
        dtypes: vec![DType::F32],
        ops: vec![ReduceOp::Sum],
        root: 0,
        algos: vec!["auto".to_owned(), "all".to_owned()],
        segments: Vec::new(),
        places: Places::Out,
        memories: vec![Memory::Private],
        split: Split::Even,
        groups: vec![WORLD_KIND.to_owned()],
        warm_ups: 3,
        stop: Stop {
            calls: None,
            time_ms: u64::try_from(args.time.as_millis()).unwrap_or(u64::MAX),
            confidence: 0.02,
        },
        rounds: args.rounds,
        round: None,
        checks: 1,
        direct,
    }
}

/// A run under way.
struct Measuring<'a> {
    path: &'a Path,
    jobs: &'a [(Job, FrameworkLayout)],
    gather: Option<Gather>,
    records: Vec<Record>,
    worlds: Vec<Costs>,
    measured: Measured,
    one_host: bool,
    verdict: Option<Cause>,
    progress: Line,
}

impl Session for Measuring<'_> {
    fn begin(&mut self, job: usize) -> Result<(), Failure> {
        let (job, layout) = &self.jobs[job];
        if let Work::Bench(plan) = &job.work {
            self.gather = Some(Gather::new(plan, layout, self.one_host));
        }
        let (ranks, transport) = (job.matrix.world_size, job.transport.name());
        self.progress.begin(format!("{ranks} ranks, {transport}"));
        self.records.clear();
        Ok(())
    }

    fn take(&mut self, _: usize, so_far: Progress) -> Result<(), Failure> {
        for (rank, told) in so_far.measured {
            if let (Told::Bench(told), Some(gather)) = (told, &mut self.gather) {
                self.records.extend(gather.take(rank, told));
            }
        }
        Ok(())
    }

    fn end(&mut self, _: usize, _: usize, finished: Finished) -> Result<Next, Failure> {
        let lines = finished.output.iter();
        self.progress
            .suspended(|| lines.for_each(|line| out::note(line)));
        self.verdict = self.verdict.take().or(finished.verdict);
        Ok(Next::after(self.verdict.is_some()))
    }

    fn close(&mut self, job: usize) -> Result<(), Failure> {
        let wrong = |record: &&Record| record.wrong.is_some_and(|wrong| wrong > 0);
        if let Some(record) = self.records.iter().find(wrong) {
            let detail = record.wrong_text.as_deref().unwrap_or("wrong data");
            let text = format!("{} by {}: {detail}", record.collective, record.algo);
            return Err(Failure::new(Exit::Data, text));
        }
        let (job, _) = &self.jobs[job];
        let names = self.gather.take().map(|gather| gather.hosts().to_vec());
        let place = Place::of(
            &names.unwrap_or_default(),
            job.matrix.world_size,
            self.measured.processors,
            job.transport != Transport::Tcp,
        );
        if !self.records.is_empty() {
            self.worlds.push(Costs::fitted(&self.records, &place));
        }
        Ok(())
    }

    fn publish(&mut self) -> Result<Exit, Failure> {
        self.progress.clear();
        if let Some(verdict) = &self.verdict {
            return Err(Failure::new(verdict.class, verdict.text.clone()));
        }
        self.measured.load[1] = load();
        let calls = Calls {
            measured: self.measured.clone(),
            worlds: std::mem::take(&mut self.worlds),
        };
        let (path, shown) = (self.path, self.path.display());
        // What other runs measured of this machine stays, where it is of other worlds.
        let calls = match File::read_calls(path) {
            Some(before) => calls.beside(before),
            None => calls,
        };
        let worlds: Vec<String> = calls
            .worlds
            .iter()
            .map(|world| {
                format!(
                    "{} ranks on {} hosts{}: {} calls, median error {:.0} %",
                    world.ranks,
                    world.hosts,
                    if world.shares_memory { "" } else { " by TCP" },
                    world.lines,
                    world.fitted_error * 100.0
                )
            })
            .collect();
        out::save(path, &File::measured(calls).text()?)?;
        out::note(&format!(
            "{shown}: {}; predict with muster plan cost --model {shown}",
            worlds.join("; ")
        ));
        Ok(Exit::Ok)
    }
}
