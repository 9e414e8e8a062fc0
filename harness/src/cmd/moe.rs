//! `muster moe`: its options, and the plan that they make.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use muster_comm::config::Environment;
use muster_comm::launch::Identity;
use muster_comm::layout::{FrameworkLayout, Matrix};

use crate::backend;
use crate::cmd::machine::MachineArgs;
use crate::cmd::measure;
use crate::cmd::values::{Binding, Common, Named, did_you_mean, layout_of, matrix_of, parse_time};
use crate::exit::Exit;
use crate::fail::Failure;
use crate::moe::dispatch::Dispatcher;
use crate::moe::file::{self, Recorded};
use crate::moe::gather::Gather;
use crate::moe::layer::Payload;
use crate::moe::model::{Model, ModelPreset};
use crate::moe::report::{MoeReport, Parallel, Record, Settings};
use crate::moe::routing::Routing;
use crate::moe::sweep::{STEPS_MAX, Source, Sweep};
use crate::out;
use crate::report::origin::Origin;
use crate::run::job::{Job, MatrixSpec};
use crate::run::work::{Measured, Work};

mod predict;

/// Time that each call is given where neither option nor environment says.
const DEADLINE_DEFAULT: Duration = Duration::from_secs(60);
/// Expert parallel size where none is given.
const EP_DEFAULT: u32 = 4;
/// The model where none is named: the one that the verification matrices are about.
const PRESET_DEFAULT: &str = "qwen3-30b-a3b";

/// Options of `muster moe`.
#[derive(Debug, Args)]
#[command(
    about = "Measure dispatch and combine of tokens as in MoE layers",
    long_about = "Starts ranks as processes of this host and does what the dispatcher of a mixture-of-experts \
        layer does: chooses the experts of each token, exchanges counts, permutes, sends tokens and weights to \
        the ranks of their experts, and combines what comes back. The experts are the identity, so every row and \
        every combined token is checked. Figures are defined in docs/moe.md.\n\n\
        Started by torchrun, mpirun or srun it joins the ranks it finds; rank 0 reports.",
    after_long_help = after_long_help(),
)]
pub struct MoeArgs {
    /// The model: qwen3-30b-a3b, deepseek-v3, kimi-k2, … [default: qwen3-30b-a3b]
    #[arg(long, value_name = "NAME", value_parser = models(), hide_possible_values = true, conflicts_with_all = ["hidden", "experts", "top_k"])]
    preset: Option<&'static ModelPreset>,

    /// Elements of a token, instead of a preset
    #[arg(long, value_name = "N", requires_all = ["experts", "top_k"])]
    hidden: Option<usize>,

    /// Routed experts, instead of a preset
    #[arg(long, value_name = "N", requires_all = ["hidden", "top_k"])]
    experts: Option<usize>,

    /// Experts of each token, instead of a preset
    #[arg(long, value_name = "N", requires_all = ["experts", "hidden"])]
    top_k: Option<usize>,

    /// Predict instead of measuring, for the machine of --topology; starts no ranks
    #[arg(long, conflicts_with_all = ["write_routing", "pin"])]
    predict: bool,

    #[command(flatten)]
    machine: MachineArgs,

    /// Expert parallel size; with --predict several, separated by commas [default: 4; with --predict 16 to 384, as the experts allow]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    ep: Vec<u32>,

    /// Tensor parallel size
    #[arg(long, value_name = "N", default_value_t = 1)]
    tp: u32,

    /// Expert tensor parallel size [default: as tp]
    #[arg(long, value_name = "N")]
    etp: Option<u32>,

    /// Number of ranks [default: the smallest that the sizes allow]
    #[arg(short = 'g', long, value_name = "N")]
    ranks: Option<u32>,

    /// A matrix instead of sizes: tp2ep4@8, or a deployment of vLLM such as vllm0.18:tp4dp4
    #[arg(long, value_name = "MATRIX", conflicts_with_all = ["ep", "tp", "etp", "ranks"])]
    matrix: Option<Matrix>,

    /// Tokens of a rank, on average; several separated by commas
    #[arg(short = 't', long, value_name = "N", value_delimiter = ',', default_value = "128", value_parser = parse_tokens)]
    tokens: Vec<usize>,

    /// A range instead: tokens=1..8192 doubles from 1 to 8192
    #[arg(long, value_name = "RANGE", value_parser = parse_sweep, conflicts_with = "tokens")]
    sweep: Option<SweepArgs>,

    /// Workload, or file:PATH; may be given more than once
    ///
    /// balanced, uniform, lognormal:SIGMA, zipf:ALPHA[,by-id], hot-experts:COUNT,FRACTION,
    /// hot-rank:RATIO[,RANK], rotating:RATIO, uneven[:EMPTY], file:PATH (JSON lines or npy).
    #[arg(short = 'r', long, value_name = "ROUTING", default_value = "balanced")]
    routing: Vec<String>,

    /// Dispatchers, separated by commas: all-to-all, all-gather, deduplicated, capacity:FACTOR
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "all-to-all", value_parser = parse_dispatcher)]
    dispatcher: Vec<Dispatcher>,

    /// Element types of the tokens, separated by commas
    #[arg(
        short = 'd',
        long = "dtype",
        value_enum,
        value_delimiter = ',',
        default_value = "bf16"
    )]
    payload: Vec<Payload>,

    /// Timed steps of a line in each round [default: as --time allows, 3 to 100]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(STEPS_MAX)))]
    steps: Option<u32>,

    /// Steps before the timed ones, in each round
    #[arg(short = 'w', long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=1000))]
    warmup: u32,

    /// About how long the steps of a line may take in each round
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time)]
    time: Duration,

    /// How often all lines are measured; `compare` needs 10
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,

    /// Keep each rank to its share of the processors, as `--bind share` does: steadier times
    #[arg(long, conflicts_with = "bind")]
    pin: bool,

    #[command(flatten)]
    binding: Binding,

    /// Write the routing to this file, as JSON lines that `--routing file:` replays
    #[arg(long, value_name = "FILE")]
    write_routing: Option<PathBuf>,

    #[command(flatten)]
    common: Common,
}

/// A list of sizes by its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SweepArgs {
    first: usize,
    last: usize,
}

fn after_long_help() -> String {
    let presets: Vec<String> = ModelPreset::all()
        .iter()
        .map(|preset| {
            format!(
                "  {:<20} hidden {:>5}, {:>3} experts, top-{}",
                preset.name, preset.hidden, preset.experts, preset.top_k
            )
        })
        .collect();
    format!(
        "Models:\n{}\n\nExamples:\n  \
         muster moe --preset qwen3-30b-a3b --ep 4 --tp 2 --tokens 4096 --routing lognormal:1\n  \
         muster moe --preset deepseek-v3 --ep 8 --sweep tokens=1..512 --dtype fp8    decode\n  \
         muster moe --ep 4 --dispatcher all-to-all,deduplicated,all-gather         compare dispatchers\n  \
         muster moe --ep 8 -r balanced -r zipf:1 -r hot-rank:3 -r uneven:2        compare workloads\n  \
         muster moe --ep 4 --routing file:trace.jsonl                            replay a recording\n  \
         muster moe --sweep tokens=1..8192 --report moe.html                     a page with the curves\n  \
         muster moe --predict --topology atlas-a3-superpod --preset kimi-k2       EP=16 to 384 on machines that are not here\n\n{}",
        presets.join("\n"),
        Exit::table()
    )
}

/// Shapes of models by their names.
fn models() -> Named<&'static ModelPreset> {
    Named::new(
        parse_preset,
        ModelPreset::all().iter().map(|preset| preset.name),
    )
}

fn parse_preset(name: &str) -> Result<&'static ModelPreset, String> {
    ModelPreset::find(name).map_err(|error| {
        let meant = did_you_mean(ModelPreset::closest(name));
        format!("{error}{meant}")
    })
}

fn parse_dispatcher(name: &str) -> Result<Dispatcher, String> {
    name.trim()
        .parse()
        .map_err(|error: crate::moe::dispatch::UnknownDispatcher| error.to_string())
}

fn parse_tokens(text: &str) -> Result<usize, String> {
    let allowed = || "a number of tokens is a whole number from 1 on".to_owned();
    let tokens = text.trim().parse().ok();
    tokens.filter(|tokens| *tokens > 0).ok_or_else(allowed)
}

fn parse_sweep(text: &str) -> Result<SweepArgs, String> {
    let allowed = || {
        "a sweep is tokens=FIRST..LAST with 1 <= FIRST <= LAST, such as tokens=1..8192".to_owned()
    };
    let ends = text.trim().strip_prefix("tokens=").ok_or_else(allowed)?;
    let (first, last) = ends.split_once("..").ok_or_else(allowed)?;
    let (first, last) = (
        first.parse().map_err(|_| allowed())?,
        last.parse().map_err(|_| allowed())?,
    );
    if first == 0 || first > last {
        return Err(allowed());
    }
    Ok(SweepArgs { first, last })
}

impl SweepArgs {
    /// The sizes: doubled from the first on, and the last.
    fn sizes(self) -> Vec<usize> {
        let mut sizes: Vec<usize> =
            std::iter::successors(Some(self.first), |size| size.checked_mul(2))
                .take_while(|size| *size < self.last)
                .collect();
        sizes.push(self.last);
        sizes
    }
}

/// Runs `muster moe`.
///
/// # Errors
/// If an option is wrong, the host cannot carry the ranks, or the result cannot be written.
pub fn run(args: &MoeArgs) -> Result<Exit, Failure> {
    if args.predict {
        return predict::run(args);
    }
    args.refuse_predictions()?;
    let (environment, identity) = args.common.joining.identity()?;
    let layout = args.layout(identity.as_ref())?;
    let (mut job, model) = args.job(&environment, &layout)?;
    let here = identity.is_none().then_some(job.matrix.world_size);
    let (choice, hccl) =
        backend::for_measuring(args.common.backend, &environment, job.deadline(), here)?;
    job.hccl = hccl;
    if identity
        .as_ref()
        .is_none_or(|identity| identity.rank.0 == 0)
    {
        args.write_routing(&job, &layout)?;
        if let (FrameworkLayout::Vllm(_), Work::Moe(plan)) = (&layout, &job.work) {
            let beyond = plan.shape(&layout).beyond_mc2(&plan.tokens);
            beyond.iter().for_each(|line| out::note(line));
        }
    }
    args.common
        .prepare(&choice, &environment, identity.as_ref())?;
    let dims = layout.dims();
    let report = MoeReport {
        backend: choice.name().to_owned(),
        emulated: choice.emulated.is_some(),
        seed: job.seed,
        origin: Some(Origin::here(&environment)),
        transport: args.common.transport.name().to_owned(),
        pinned: job.is_bound(),
        rounds: args.rounds,
        ..MoeReport::new(Settings {
            model,
            layout: Parallel {
                world_size: dims.world,
                tp: dims.tp,
                ep: dims.ep,
                etp: dims.etp,
            },
            warm_ups: args.warmup,
            steps: 0,
        })
    };
    measure::run::<Gather>(
        report,
        (args.common.format, args.common.interim),
        &args.common.saving,
        (&[(job, layout)], None),
        &environment,
        identity.as_ref(),
    )
}

impl measure::Gather for Gather {
    type Settings = Settings;

    fn of(job: &Job, layout: &FrameworkLayout, one_host: bool) -> Option<Self> {
        match &job.work {
            Work::Moe(plan) => Some(Self::new(plan, layout, job.seed, one_host)),
            Work::Bench(_) | Work::Verify(_) => None,
        }
    }

    fn take(&mut self, rank: u32, measured: Measured) -> Option<Record> {
        match measured {
            Measured::Moe(measured) => Self::take(self, rank, measured),
            Measured::Bench(_) => None,
        }
    }

    fn so_far(&self) -> Vec<Record> {
        Self::so_far(self)
    }

    fn close(self, report: &mut MoeReport) -> Vec<Record> {
        report.machine_states.extend(self.machine_states());
        let rest = self.rest();
        let first = report.records.first().or_else(|| rest.first());
        let steps = first.and_then(|record| Some(record.round_trip.samples_us.first()?.len()));
        report.settings.steps = u32::try_from(steps.unwrap_or(0)).unwrap_or(u32::MAX);
        rest
    }
}

impl MoeArgs {
    /// Options of predictions, where it measures.
    fn refuse_predictions(&self) -> Result<(), Failure> {
        if self.machine.is_given() {
            return Err(Failure::usage(
                "options of a machine such as --topology are for predictions",
            )
            .with_help("add --predict"));
        }
        if self.ep.len() > 1 {
            return Err(Failure::usage("one run measures one --ep")
                .with_help("several, separated by commas, are for --predict"));
        }
        Ok(())
    }

    fn layout(&self, identity: Option<&Identity>) -> Result<FrameworkLayout, Failure> {
        if let Some(matrix) = &self.matrix {
            return layout_of(matrix, identity, "moe");
        }
        let etp = self.etp.map_or_else(String::new, |etp| format!("etp{etp}"));
        let ranks = match (identity, self.ranks) {
            (Some(identity), Some(ranks)) if ranks != identity.world_size => {
                return Err(Failure::usage(format!(
                    "{} started {} ranks, so --ranks {ranks} cannot be had",
                    identity.source.contract, identity.world_size
                )));
            }
            (Some(identity), _) => Some(identity.world_size),
            (None, ranks) => ranks,
        };
        let world = ranks.map_or_else(String::new, |ranks| format!("@{ranks}"));
        let ep = self.ep.first().copied().unwrap_or(EP_DEFAULT);
        let name = format!("tp{}ep{ep}{etp}{world}", self.tp);
        matrix_of(&name, "moe").map(|(_, layout)| layout)
    }

    /// Writes the routing of every step and rank, if it was asked for.
    fn write_routing(&self, job: &Job, layout: &FrameworkLayout) -> Result<(), Failure> {
        let (Some(path), Work::Moe(plan)) = (&self.write_routing, &job.work) else {
            return Ok(());
        };
        let ([source], [tokens]) = (&plan.sources[..], &plan.tokens[..]) else {
            return Err(Failure::usage(
                "--write-routing writes one routing: give one --routing and one number of --tokens",
            ));
        };
        let (shape, world) = (plan.shape(layout), layout.dims().world as usize);
        let route = |step, rank| source.route(shape, job.seed, step, rank, world, *tokens);
        let of_step = |step| (0..world).map(|rank| route(step, rank)).collect();
        let steps: Vec<Vec<Routing>> = (0..source.routings(shape)).map(of_step).collect();
        out::save(path, &file::to_lines(&steps))
    }

    fn model(&self) -> Result<Model, Failure> {
        if let (Some(hidden), Some(experts), Some(top_k)) = (self.hidden, self.experts, self.top_k)
        {
            return Ok(Model {
                name: "custom".to_owned(),
                hidden,
                experts,
                top_k,
                source: "--hidden, --experts, --top-k".to_owned(),
            });
        }
        let named = self
            .preset
            .map_or_else(|| ModelPreset::find(PRESET_DEFAULT), Ok);
        let named = named.map_err(|error| Failure::internal(error.to_string()))?;
        Ok(named.model())
    }

    fn sources(&self, world: usize) -> Result<Vec<Source>, Failure> {
        let parse = |text: &String| match text.strip_prefix("file:") {
            Some(path) => Recorded::read(path.as_ref())
                .map(|recorded| Source::File(recorded.in_world(world)))
                .map_err(|error| Failure::usage(error.to_string())),
            None => text.trim().parse().map(Source::Made).map_err(
                |error: crate::moe::workload::WorkloadError| {
                    Failure::usage(error.to_string())
                        .with_help("or file:PATH to replay a recording")
                },
            ),
        };
        self.routing.iter().map(parse).collect()
    }

    fn job(
        &self,
        environment: &Environment,
        layout: &FrameworkLayout,
    ) -> Result<(Job, Model), Failure> {
        let (deadline, seed) = self.common.settings(environment, DEADLINE_DEFAULT)?;
        let model = self.model()?;
        let plan = Sweep {
            hidden: model.hidden,
            experts: model.experts,
            top_k: model.top_k,
            tokens: self
                .sweep
                .map_or_else(|| self.tokens.clone(), SweepArgs::sizes),
            sources: self.sources(layout.dims().world as usize)?,
            dispatchers: self.dispatcher.clone(),
            payloads: self.payload.clone(),
            steps: self.steps,
            time_ms: u64::try_from(self.time.as_millis()).unwrap_or(u64::MAX),
            warm_ups: self.warmup,
            rounds: self.rounds,
            round: None,
        };
        plan.check(layout)
            .map_err(|what| Failure::usage(format!("{}: {what}", model.name)))?;
        let dims = layout.dims();
        let sizes = || format!("tp{}ep{}etp{}@{}", dims.tp, dims.ep, dims.etp, dims.world);
        let name = layout.other_form().unwrap_or_else(sizes);
        let job = Job {
            transport: self.common.transport,
            seed,
            bind: self.binding.of(self.pin, environment)?,
            rules: self.common.rules.of(environment)?.text,
            ..Job::new(MatrixSpec::of(name, layout), Work::Moe(plan), deadline)
        };
        Ok((job, model))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweeps_double_and_end_where_they_were_asked_to() {
        let sizes = |text| parse_sweep(text).map(SweepArgs::sizes);
        assert_eq!(sizes("tokens=1..8"), Ok(vec![1, 2, 4, 8]));
        assert_eq!(sizes("tokens=3..20"), Ok(vec![3, 6, 12, 20]));
        assert_eq!(sizes("tokens=5..5"), Ok(vec![5]));
        for wrong in [
            "1..8",
            "tokens=0..8",
            "tokens=9..8",
            "tokens=1",
            "tokens=a..b",
        ] {
            assert!(
                sizes(wrong)
                    .expect_err(wrong)
                    .contains("tokens=FIRST..LAST")
            );
        }
    }

    #[test]
    fn unknown_models_and_dispatchers_are_answered_with_what_there_is() {
        assert!(
            parse_preset("qwen3-30b")
                .expect_err("unknown")
                .contains("did you mean qwen3-30b-a3b?")
        );
        assert!(
            parse_dispatcher("flex")
                .expect_err("unknown")
                .contains("all-to-all")
        );
        assert!(
            parse_dispatcher("capacity:0").is_err() && parse_dispatcher("capacity:1.25").is_ok()
        );
    }
}
