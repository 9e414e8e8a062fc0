//! `muster verify`: its options, and the order in which matrices run.

use std::time::Duration;

use clap::Args;
use muster_comm::config::Environment;
use muster_comm::launch::Identity;
use muster_comm::layout::{DEFAULT_MATRICES, FrameworkLayout, Matrix, Preset};
use muster_comm::sync::Clock;
use muster_comm::types::DType;

use crate::backend;
use crate::check::inject::Inject;
use crate::cmd::saving::publish;
use crate::cmd::values::{Binding, Common, parse_count, parse_dtype, presets};
use crate::exit::Exit;
use crate::fail::Failure;
use crate::out;
use crate::progress::Progress;
use crate::report::machine::Machine;
use crate::report::origin::Origin;
use crate::run::job::{Forced, Job, MatrixSpec, Sizes};
use crate::run::session::{self, Next, Session};
use crate::run::work::{Checks, Work};
use crate::run::{self, Finished};
use crate::verify::model::{MatrixSummary, Report};
use crate::world::limits::WORLD_SIZE_MAX;

mod ways;

use ways::Ways;

/// Time that each call is given where neither option nor environment says.
const DEADLINE_DEFAULT: Duration = Duration::from_secs(30);

/// Options of `muster verify`.
#[derive(Debug, Args)]
#[command(
    about = "Start the ranks of each matrix and prove every group of it",
    long_about = "Starts the ranks of each matrix as processes of this host, builds every parallel group \
        (TP, EP, DP, CP, PP and their combinations, as Megatron-LM or vLLM lays them out), and proves each one: its \
        members agree on who they are, and every collective gives exactly what a naive reference gives.\n\n\
        Started by torchrun, mpirun or srun it joins the ranks it finds instead of starting its own; rank 0 reports.",
    after_long_help = after_long_help(),
)]
pub struct VerifyArgs {
    /// Matrices such as tp2, tp2ep4, tp2cp2ep2@16 [default: nine matrices, see below]
    ///
    /// A name lists the axes (tp, cp, pp, dp, ep, etp) with their sizes. The world is the smallest
    /// one that is legal, unless @WORLD says otherwise. `vllm0.18:tp4dp4` has the groups of vLLM with
    /// vllm-ascend 0.18 (axes: tp, pp, pcp, dcp, dp), `verl:sp8tp2@16` those of verl's meshes (axes:
    /// fsdp, sp, tp, dp). Default: tp1@1 tp2@2 tp8@8 tp2ep4@8
    /// tp2cp2ep2@8 tp2pp2dp2@8 tp3ep4@12 tp2ep8@16 ep16@16.
    #[arg(value_name = "MATRIX")]
    matrices: Vec<Matrix>,

    /// The layouts of a training stack, such as qwen3-30b-a3b-8; may be given more than once
    ///
    /// `muster groups --preset NAME` shows what is in one.
    #[arg(long, value_name = "NAME", value_parser = presets(), hide_possible_values = true)]
    preset: Vec<&'static Preset>,

    /// Order of the axes, the fastest changing first, as Megatron-LM's initialize_model_parallel takes it
    #[arg(long, value_name = "AXES")]
    order: Option<String>,

    /// Expert tensor parallel size of every matrix that does not name one [default: as tp]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    etp: Option<i64>,

    /// Element types to check, separated by commas [default: all twelve]
    #[arg(long, value_name = "TYPES", value_delimiter = ',', value_parser = parse_dtype)]
    dtypes: Vec<DType>,

    /// Numbers of elements to check, separated by commas [default: 0, 1, odd, 1000 and more than a segment]
    #[arg(long, value_name = "COUNTS", allow_negative_numbers = true, value_delimiter = ',', value_parser = parse_count)]
    sizes: Vec<usize>,

    /// Inject a fault, to see how the report names it: KIND:rank=R[,collective=NAME][,matrix=NAME]
    ///
    /// KIND is bitflip, swap-blocks or drop-contribution. May be given more than once.
    #[arg(long, value_name = "FAULT")]
    inject: Vec<Inject>,

    #[command(flatten)]
    ways: Ways,

    #[command(flatten)]
    binding: Binding,

    #[command(flatten)]
    common: Common,
}

fn after_long_help() -> String {
    format!(
        "Examples:\n  \
         muster verify                                    the default matrices\n  \
         muster verify tp2ep4 tp4@8                       two matrices\n  \
         muster verify --preset mindspeed-rl-12           the layouts of a training stack\n  \
         muster verify tp2ep4@16 --etp 1 --format json    for a program to read\n  \
         muster verify tp8 --transport tcp --deadline 5s  TCP between ranks of this host\n  \
         muster verify tp2 --memory both --algo auto,all --isa all  every path by itself\n  \
         muster verify tp2 --inject bitflip:rank=1        see what wrong data looks like (exit 40)\n  \
         muster verify --report out.html --report out.xml a page for people, JUnit for CI\n  \
         torchrun --nproc-per-node 8 --no-python muster verify tp2ep4\n\n{}",
        Exit::table()
    )
}

/// Runs `muster verify`.
///
/// # Errors
/// If an option is wrong, the host cannot carry the ranks, or the result cannot be written.
pub fn run(args: &VerifyArgs) -> Result<Exit, Failure> {
    let (environment, identity) = args.common.joining.identity()?;
    let jobs = args.jobs(&environment)?;
    let choice = backend::choose(args.common.backend, &environment)?;
    let mut jobs = jobs;
    let mut too_large = Vec::new();
    if choice.backends.has_hccl() {
        args.refuse_host_options()?;
        let first = jobs.first().map(|(job, _)| job.deadline());
        let hccl = backend::hccl_job(first.unwrap_or(DEADLINE_DEFAULT), &environment)?;
        for (job, _) in &mut jobs {
            job.hccl = Some(hccl.clone());
        }
        if identity.is_none() {
            // A rank a device: what needs more ranks than there are devices cannot run here.
            (jobs, too_large) = jobs
                .into_iter()
                .partition(|(job, _)| job.matrix.world_size <= choice.devices);
        }
    }
    args.common
        .prepare(&choice, &environment, identity.as_ref())?;
    let seed = jobs.first().map_or(1, |(job, _)| job.seed);
    let report = Report::new(choice.name(), choice.emulated.is_some(), seed);
    if jobs.is_empty() {
        return Err(Failure::resource(format!(
            "every matrix chosen needs more than the {} devices of this host",
            choice.devices
        ))
        .with_help("choose a smaller matrix, or make more devices visible"));
    }
    let mut run = Run {
        args,
        report: Report {
            machine: Some(Machine::here()),
            origin: Some(Origin::here(&environment)),
            ..report
        },
        jobs: &[],
        others: Vec::new(),
        done: (0, 0),
        whole: 0,
        progress: Progress::new(),
        started: Clock::now(),
    };
    for (job, layout) in &too_large {
        let reason = format!(
            "needs {} devices, this host has {}",
            job.matrix.world_size, choice.devices
        );
        run.report.matrices.push(run::skipped(job, layout, reason));
    }
    let (fitting, others) = args.fitting(jobs, identity.as_ref())?;
    let answers = |(job, layout): &(Job, FrameworkLayout)| run::answers(job, layout);
    run.whole = fitting.iter().map(answers).sum();
    run.jobs = &fitting;
    run.others = others;
    session::run(&mut run, &fitting, &environment, identity.as_ref())
}

/// Jobs with their layouts, and matrices that are skipped.
type Fitting = (Vec<(Job, FrameworkLayout)>, Vec<MatrixSummary>);

/// A run under way.
struct Run<'a> {
    args: &'a VerifyArgs,
    report: Report,
    jobs: &'a [(Job, FrameworkLayout)],
    /// Matrices that do not fit the world in which this process is a rank.
    others: Vec<MatrixSummary>,
    /// Answers of the jobs before, and with those of the one under way.
    done: (usize, usize),
    whole: usize,
    progress: Progress,
    started: std::time::Instant,
}

impl Session for Run<'_> {
    fn begin(&mut self, place: usize) -> Result<(), Failure> {
        let (job, layout) = &self.jobs[place];
        let (name, ranks) = (&job.matrix.name, job.matrix.world_size);
        let (number, of) = (place + 1, self.jobs.len());
        self.progress
            .begin(format!("{name} ({number}/{of}), {ranks} ranks"));
        self.done = (self.done.1, self.done.1 + run::answers(job, layout));
        Ok(())
    }

    fn take(&mut self, _: usize, so_far: run::Progress) -> Result<(), Failure> {
        self.progress.set(self.done.0 + so_far.answers, self.whole);
        Ok(())
    }

    fn end(&mut self, _: usize, _: usize, finished: Finished) -> Result<Next, Failure> {
        let lines = finished.output.iter();
        self.progress
            .suspended(|| lines.for_each(|line| out::note(line)));
        self.report.matrices.push(finished.summary);
        self.report.cases.extend(finished.cases);
        self.report.add_not_applicable(finished.not_applicable);
        self.report.verdict = self.report.verdict.take().or(finished.verdict);
        Ok(Next::after(self.report.verdict.is_some()))
    }

    fn skip(&mut self, place: usize) {
        let (job, layout) = &self.jobs[place];
        let verdict = self.report.verdict.as_ref();
        let is_interrupted = verdict.is_some_and(|one| one.class == Exit::Interrupted);
        let reason = if is_interrupted {
            "not run: interrupted before it"
        } else {
            "not run after the failure before"
        };
        let reason = reason.to_owned();
        self.report.matrices.push(run::skipped(job, layout, reason));
    }

    fn publish(&mut self) -> Result<Exit, Failure> {
        self.progress.clear();
        self.report.matrices.append(&mut self.others);
        self.report.elapsed_us = run::micros(Clock::now().duration_since(self.started));
        self.report.close();
        publish(
            &self.report,
            &self.args.common.saving,
            self.args.common.format,
        )
    }
}

impl VerifyArgs {
    /// One job a matrix, in the order of the command line, each with its layout.
    fn jobs(&self, environment: &Environment) -> Result<Vec<(Job, FrameworkLayout)>, Failure> {
        let (deadline, seed) = self.common.settings(environment, DEADLINE_DEFAULT)?;
        let rules = self.common.rules.of(environment)?.text;
        let bind = self.binding.of(false, environment)?;
        let specs = self.specs()?;
        self.check_injections(&specs)?;
        let ways = self.ways.all(self.common.transport)?;
        let job = |(spec, layout): &(MatrixSpec, FrameworkLayout), forced: &Forced| {
            let mut matrix = spec.clone();
            matrix.name.push_str(&forced.suffix());
            let checks = Checks {
                dtypes: self.dtypes.clone(),
                counts: self.sizes.clone(),
                forced: forced.clone(),
            };
            let job = Job {
                transport: self.common.transport,
                inject: self.inject.clone(),
                seed,
                bind,
                rules: rules.clone(),
                ..Job::new(matrix, Work::Verify(checks), deadline)
            };
            (job, layout.clone())
        };
        let of_spec = |spec| ways.iter().map(move |forced| job(spec, forced));
        Ok(specs.iter().flat_map(of_spec).collect())
    }

    /// The jobs that can run: all of them, or those whose ranks are as many as a launcher started.
    fn fitting(
        &self,
        jobs: Vec<(Job, FrameworkLayout)>,
        identity: Option<&Identity>,
    ) -> Result<Fitting, Failure> {
        let Some(identity) = identity else {
            return Ok((jobs, Vec::new()));
        };
        let ranks = identity.world_size;
        let (fitting, others): (Vec<_>, Vec<_>) = jobs
            .into_iter()
            .partition(|(job, _)| job.matrix.world_size == ranks);
        if fitting.is_empty() {
            let names: Vec<&str> = others.iter().map(|(job, _)| &job.matrix.name[..]).collect();
            return Err(Failure::usage(format!(
                "{} started {ranks} ranks, and none of the matrices has that many: {}",
                identity.source.contract,
                names.join(", ")
            ))
            .with_help(format!("name one with @{ranks}, such as tp1@{ranks}")));
        }
        let skipped = others.iter().map(|(job, layout)| {
            let needed = job.matrix.world_size;
            run::skipped(
                job,
                layout,
                format!("needs {needed} ranks, this job has {ranks}"),
            )
        });
        Ok((fitting, skipped.collect()))
    }

    /// The matrices and presets that were chosen, or the default ones, with the options applied.
    fn specs(&self) -> Result<Vec<(MatrixSpec, FrameworkLayout)>, Failure> {
        let mut layouts: Vec<(String, FrameworkLayout)> = Vec::new();
        for preset in &self.preset {
            let illegal = |error| Failure::internal(format!("preset {}: {error}", preset.name));
            for phase in preset.phases().map_err(illegal)? {
                layouts.push((format!("{}/{}", preset.name, phase.name), phase.layout));
            }
        }
        let defaults: Vec<Matrix> = if self.matrices.is_empty() && self.preset.is_empty() {
            DEFAULT_MATRICES
                .iter()
                .filter_map(|name| name.parse().ok())
                .collect()
        } else {
            Vec::new()
        };
        for matrix in self.matrices.iter().chain(&defaults) {
            let illegal = |error| Failure::usage(format!("matrix {matrix}: {error}"));
            layouts.push((matrix.to_string(), matrix.layout().map_err(illegal)?));
        }
        layouts
            .into_iter()
            .map(|(name, layout)| self.with_options(name, &layout))
            .collect()
    }

    fn with_options(
        &self,
        name: String,
        layout: &FrameworkLayout,
    ) -> Result<(MatrixSpec, FrameworkLayout), Failure> {
        let mut spec = MatrixSpec::of(name, layout);
        if spec.world_size > WORLD_SIZE_MAX {
            return Err(Failure::usage(format!(
                "matrix {} asks for {} ranks, and verify starts a process on this host for each: \
                 at most {WORLD_SIZE_MAX}",
                spec.name, spec.world_size
            ))
            .with_help("`muster groups` shows the groups of any world without starting anything"));
        }
        match &mut spec.sizes {
            Sizes::Megatron { etp, order, .. } => {
                if let (Some(asked), None) = (self.etp, *etp) {
                    *etp = Some(u32::try_from(asked).map_err(|_| {
                        Failure::usage(format!(
                            "--etp is {asked}, allowed are 1 to {WORLD_SIZE_MAX}"
                        ))
                    })?);
                }
                if let Some(asked) = &self.order {
                    order.clone_from(asked);
                }
            }
            Sizes::Other(_) if self.etp.is_some() || self.order.is_some() => {
                let name = &spec.name;
                return Err(Failure::usage(format!(
                    "{name}: --etp and --order are for layouts of Megatron"
                )));
            }
            Sizes::Other(_) => {}
        }
        let layout = spec
            .layout()
            .map_err(|error| Failure::usage(format!("matrix {}: {error}", spec.name)))?;
        Ok((spec, layout))
    }

    /// Options that say something about the host backend only.
    fn refuse_host_options(&self) -> Result<(), Failure> {
        if self.ways.is_any() {
            return Err(Failure::usage(
                "--memory, --algo and --isa say how the host backend carries calls out; on devices HCCL does",
            )
            .with_help("leave them out, or use --backend host"));
        }
        if self.inject.is_empty() {
            return Ok(());
        }
        Err(
            Failure::usage("--inject spoils data of the host backend, and devices have their own")
                .with_help("use --backend host, or MUSTER_EMU_FAULT with an emulated device"),
        )
    }

    /// A fault that can never strike would make a pass look like proof.
    fn check_injections(&self, specs: &[(MatrixSpec, FrameworkLayout)]) -> Result<(), Failure> {
        for inject in &self.inject {
            let strikes = specs.iter().any(|(spec, _)| {
                inject.rank < spec.world_size
                    && inject.matrix.as_ref().is_none_or(|name| *name == spec.name)
            });
            if !strikes {
                let names: Vec<&str> = specs.iter().map(|(spec, _)| spec.name.as_str()).collect();
                return Err(Failure::usage(format!(
                    "the fault {inject} strikes no rank of the matrices chosen: {}",
                    names.join(", ")
                ))
                .with_help("choose a rank below the world size, and a matrix that runs"));
            }
        }
        Ok(())
    }
}
