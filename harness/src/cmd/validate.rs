//! `muster validate`: the commands that a new host must pass, one after the other, and one answer.
//!
//! Each stage is a process of its own, so that whatever befalls one leaves the answer standing. After each the files are written anew: what
//! was found so far is there even where this process is killed.

mod expected;
mod stage;

use std::time::Duration;

use clap::Args;
use muster_comm::config::Environment;
use muster_comm::launch::Identity;
use muster_comm::rendezvous::Endpoint;
use muster_comm::sync::Clock;

use crate::bench::machine;
use crate::exit::Exit;
use crate::fail::Failure;
use crate::out;
use crate::progress::Progress;
use crate::report::document::Document;
use crate::run::{joined, micros};
use crate::validation::{self, Outcome, Remark, Validation};
use crate::world::ranks::own_program;
use crate::world::signals::Interrupts;

use super::child::{self, Variable};
use super::saving::{Form, Saving};
use super::values::parse_time;
use expected::{Expected, ExpectedArgs};
use stage::{Run, remarks_of_doctor};

/// Experts of the model of `moe`.
const EP_MAX: u32 = 128;

/// A command that is run.
#[derive(Clone, Copy)]
struct Planned {
    name: &'static str,
    /// Its options.
    usual: &'static str,
    /// Those where time is short.
    quick: &'static str,
}

impl Planned {
    const fn new(name: &'static str, usual: &'static str, quick: &'static str) -> Self {
        Self { name, usual, quick }
    }
}

/// What is run.
const STAGES: [Planned; 5] = [
    Planned::new("doctor", "", ""),
    Planned::new("verify", "", "tp1@1 tp2@2 tp2ep4@8"),
    Planned::new(
        "bench",
        "all_reduce all_gather reduce_scatter all_to_all --rounds 3 --time 100ms",
        "all_reduce all_to_all --rounds 3 --time 20ms",
    ),
    Planned::new(
        "moe",
        "--tokens 1,64,1024 --rounds 3 --time 400ms",
        "--tokens 64 --rounds 3 --time 40ms",
    ),
    Planned::new(
        "drill",
        "--only killed stopped stalled returns-early quiet memory-order",
        "--only killed stopped memory-order --transport shm",
    ),
];

/// Stages that run on a backend; the drill is one of the host's own.
const ON_BACKEND: [&str; 3] = ["verify", "bench", "moe"];

/// Options of `muster validate`.
#[derive(Debug, Args)]
#[command(
    about = "Accept a host or refuse it: doctor, verify, bench, moe and a drill",
    long_about = "Runs doctor, verify, bench, moe and drill, each as a process of its own, and says whether the host is \
        accepted, accepted with remarks, or refused, with what was seen and what to do. Takes about two minutes.",
    after_long_help = "Examples:\n  \
        muster validate                                         about two minutes\n  \
        muster validate --quick                                 20 seconds\n  \
        muster validate --save host.json --report host.html     the answer as files; they are whole after each stage\n  \
        muster validate --against expected.json                 refuse a host that is slower than `muster baseline` learned\n  \
        muster validate --soak 1h                               all stages, then again and again: nothing may differ\n  \
        torchrun --no-python ... muster validate                several hosts: rank 0 gives the answer\n\n\
        Exit code 0 if the host is accepted, with or without remarks; else that of the first stage that failed."
)]
pub struct ValidateArgs {
    /// Fewer matrices, lines and drills: about 20 seconds
    #[arg(long)]
    quick: bool,

    /// Only these stages; may be given more than once
    #[arg(long, value_name = "STAGE", value_delimiter = ',', value_parser = STAGES.map(|stage| stage.name))]
    only: Vec<String>,

    /// Repeat verify, bench, moe and drill until this time has passed since the start: 90s, 10m, 1h
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    soak: Option<Duration>,

    /// What moves the data of verify, bench and moe [default: hccl where there are devices, else host]
    #[arg(long, value_name = "BACKEND", value_parser = ["auto", "hccl", "host"])]
    backend: Option<String>,

    /// Text for people or JSON for programs
    #[arg(long, value_enum, default_value_t)]
    format: Form,

    #[command(flatten)]
    expected: ExpectedArgs,

    #[command(flatten)]
    saving: Saving,
}

/// Runs the stages, and says what came of them.
///
/// # Errors
/// If a stage cannot be started, or the result cannot be written.
pub fn run(args: &ValidateArgs) -> Result<Exit, Failure> {
    args.saving.check()?;
    let stages = args.stages();
    let names: Vec<&str> = stages.iter().map(|stage| stage.name).collect();
    let mut expected = Expected::of(&args.expected, &names)?;
    let again: Vec<&Planned> = stages
        .iter()
        .filter(|stage| stage.name != "doctor")
        .collect();
    if args.soak.is_some() && again.is_empty() {
        return Err(Failure::usage(
            "--soak repeats verify, bench, moe and drill, and --only names none of them",
        ));
    }
    // What is wrong with the environment is for the stages to say.
    let identity = joined::identity(&Environment::capture(), None).unwrap_or_default();
    let interrupts = Interrupts::install()?;
    let mut meeting = None;
    if let Some(identity) = &identity {
        args.refuse_repetition()?;
        meeting = joined::meeting(identity)?;
        if identity.rank.0 != 0 {
            return follow(args, &stages, identity, meeting.as_ref(), &interrupts);
        }
    }
    let started = Clock::now();
    let mut found = Validation::begun();
    let shows = args.format == Form::Table;
    if shows {
        out::result(&validation::head())?;
    }
    let progress = Progress::new();
    let mut written = Ok(());
    let passes = (2..).flat_map(|pass| again.iter().map(move |stage| (pass, *stage)));
    let planned = stages.iter().map(|stage| (1, stage)).chain(passes);
    for (done, (pass, stage)) in planned.enumerate() {
        match pass {
            1 => progress.begin(format!("{} ({}/{})", stage.name, done + 1, stages.len())),
            pass => progress.begin(format!("{}, pass {pass}", stage.name)),
        }
        progress.set(done.min(stages.len()), stages.len());
        let run = Run {
            name: stage.name,
            pass,
            words: args.words(stage, identity.as_ref()),
            variables: variables(stage.name, identity.as_ref(), meeting.as_ref()),
            interrupts: &interrupts,
            saving: &args.saving,
        };
        let (stage, was_stopped) = run.stage(&mut expected, &mut found)?;
        let is_over = was_stopped || stage.outcome == Outcome::Interrupted;
        if shows {
            progress.suspended(|| out::result(&validation::line(&stage)))?;
        }
        let elapsed = Clock::now().duration_since(started);
        let is_last = done + 1 >= stages.len() && args.soak.is_none_or(|time| elapsed >= time);
        found.add(stage, is_last);
        found.elapsed_us = micros(elapsed);
        written = args.saving.write(&found);
        if is_over || is_last {
            break;
        }
    }
    progress.clear();
    out::result(&match args.format {
        Form::Json => found.json()?,
        Form::Table => found.closing(),
    })?;
    Saving::ended(found.exit(), written)
}

impl ValidateArgs {
    /// The stages that were chosen.
    fn stages(&self) -> Vec<Planned> {
        let is_chosen = |stage: &&Planned| {
            self.only.is_empty() || self.only.iter().any(|one| one == stage.name)
        };
        STAGES.iter().filter(is_chosen).copied().collect()
    }

    /// The options of a stage; of the ranks of another launcher all together.
    fn words(&self, stage: &Planned, identity: Option<&Identity>) -> Vec<String> {
        let usual = if self.quick { stage.quick } else { stage.usual };
        let mut words: Vec<String> = usual.split_whitespace().map(str::to_owned).collect();
        // The default matrices have numbers of ranks of their own.
        match (stage.name, identity.map(|identity| identity.world_size)) {
            ("verify", Some(1)) => words = vec!["tp1@1".to_owned()],
            ("verify", Some(ranks)) => {
                words = vec![format!("tp{ranks}@{ranks}"), format!("ep{ranks}@{ranks}")];
            }
            // Experts are a power of two.
            ("moe", Some(ranks)) => words.extend([
                "--ep".to_owned(),
                (1_u32 << ranks.trailing_zeros()).min(EP_MAX).to_string(),
            ]),
            _ => {}
        }
        if let Some(backend) = &self.backend
            && ON_BACKEND.contains(&stage.name)
        {
            words.extend(["--backend".to_owned(), backend.clone()]);
        }
        words
    }

    /// What rank 0 alone would decide, and the others would not know of.
    fn refuse_repetition(&self) -> Result<(), Failure> {
        let refuse = |what: &str| {
            Err(Failure::usage(format!(
                "{what} measures again where it finds a reason to, which the ranks of another launcher do not hear of"
            ))
            .with_help("run `muster validate` without a launcher on each host for that"))
        };
        match (self.soak.is_some(), self.expected.is_given()) {
            (true, _) => refuse("--soak"),
            (false, true) => refuse("a limit"),
            (false, false) => Ok(()),
        }
    }
}

/// What a stage's processes find in the environment besides: a job of their own, so that those of two stages never meet, and the place
/// where the launcher has let the ranks agree to meet.
fn variables(
    stage: &str,
    identity: Option<&Identity>,
    meeting: Option<&Endpoint>,
) -> Vec<Variable> {
    let job = identity.and_then(|one| one.job_id.as_ref());
    let job = job.map(|job| ("MUSTER_JOB_ID", format!("{job}-{stage}")));
    let meeting = meeting.map(|endpoint| ("MUSTER_RENDEZVOUS", format!("tcp://{endpoint}")));
    job.into_iter().chain(meeting).collect()
}

/// The way of every rank of another launcher but the first one: it takes part in what all ranks measure, and the first rank of a host has
/// the doctor look at it. Rank 0 gives the answer.
fn follow(
    args: &ValidateArgs,
    stages: &[Planned],
    identity: &Identity,
    meeting: Option<&Endpoint>,
    interrupts: &Interrupts,
) -> Result<Exit, Failure> {
    let is_first_here = identity.local_rank == Some(0);
    let takes_part = |name: &str| ON_BACKEND.contains(&name) || (name == "doctor" && is_first_here);
    let mut exit = Exit::Ok;
    for stage in stages.iter().filter(|stage| takes_part(stage.name)) {
        let words = args.words(stage, Some(identity));
        let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
        words.insert(0, stage.name);
        words.extend(["--format", "json"]);
        let variables = variables(stage.name, Some(identity), meeting);
        let ended = child::run(&own_program(), &words, &variables, interrupts, |_| ())?;
        if ended.was_stopped {
            return Ok(Exit::Interrupted);
        }
        let class = ended.code.and_then(Exit::from_code);
        let class = class.unwrap_or(Exit::Internal);
        if stage.name == "doctor" && class != Exit::Ok {
            let remarks = remarks_of_doctor(&ended.stdout);
            let host = machine::host();
            for Remark { about, what, .. } in remarks {
                out::note(&format!("host {host} is refused: {about}: {what}"));
            }
        }
        if exit == Exit::Ok {
            exit = class;
        }
    }
    Ok(exit)
}
