//! `muster validate`: the commands that a new host must pass, one after the other, and one answer.
//!
//! Each stage is a process of its own, so that whatever befalls one leaves the answer standing. After each the files are written anew: what
//! was found so far is there even where this process is killed.

mod expected;

use std::time::Duration;

use clap::Args;
use muster_comm::sync::Clock;

use crate::diagnosis::Diagnosis;
use crate::doctor::Status;
use crate::exit::Exit;
use crate::fail::Failure;
use crate::out;
use crate::progress::Progress;
use crate::report::document::Document;
use crate::results;
use crate::run::micros;
use crate::validation::{self, Outcome, Remark, Stage, Validation};
use crate::world::signals::Interrupts;

use super::child::{self, Ended};
use super::saving::{Form, Saving};
use super::values::parse_time;
use expected::{Expected, ExpectedArgs, conclude};

/// What is run: the name of the command, its options, and those where time is short.
const STAGES: [(&str, &str, &str); 5] = [
    ("doctor", "", ""),
    ("verify", "", "tp1@1 tp2@2 tp2ep4@8"),
    (
        "bench",
        "all_reduce all_gather reduce_scatter all_to_all --time 200ms",
        "all_reduce all_to_all --time 50ms",
    ),
    ("moe", "--tokens 1,64,1024", "--tokens 64 --time 100ms"),
    (
        "drill",
        "--only killed stopped stalled returns-early quiet",
        "--only killed stopped --transport shm",
    ),
];

/// Stages that run on a backend; the drill is one of the host's own.
const ON_BACKEND: [&str; 3] = ["verify", "bench", "moe"];
/// Stages whose results are kept.
const MEASURES: [&str; 2] = ["bench", "moe"];

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
        muster validate --soak 1h                               all stages, then again and again: nothing may differ\n\n\
        Exit code 0 if the host is accepted, with or without remarks; else that of the first stage that failed."
)]
pub struct ValidateArgs {
    /// Fewer matrices, lines and drills: about 20 seconds
    #[arg(long)]
    quick: bool,

    /// Only these stages; may be given more than once
    #[arg(long, value_name = "STAGE", value_delimiter = ',', value_parser = STAGES.map(|(name, ..)| name))]
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
    let is_chosen = |name: &str| args.only.is_empty() || args.only.iter().any(|one| one == name);
    let stages: Vec<_> = STAGES.iter().filter(|(name, ..)| is_chosen(name)).collect();
    let names: Vec<&str> = stages.iter().map(|(name, ..)| *name).collect();
    let mut expected = Expected::of(&args.expected, &names)?;
    let again: Vec<_> = stages
        .iter()
        .filter(|(name, ..)| *name != "doctor")
        .collect();
    if args.soak.is_some() && again.is_empty() {
        return Err(Failure::usage(
            "--soak repeats verify, bench, moe and drill, and --only names none of them",
        ));
    }
    let interrupts = Interrupts::install()?;
    let started = Clock::now();
    let mut found = Validation::begun();
    let shows = args.format == Form::Table;
    if shows {
        out::result(&validation::head())?;
    }
    let progress = Progress::new();
    let mut written = Ok(());
    let passes = (2..).flat_map(|pass| again.iter().map(move |stage| (pass, **stage)));
    let planned = stages.iter().map(|stage| (1, *stage)).chain(passes);
    for (done, (pass, (name, usual, quick))) in planned.enumerate() {
        match pass {
            1 => progress.begin(format!("{name} ({}/{})", done + 1, stages.len())),
            pass => progress.begin(format!("{name}, pass {pass}")),
        }
        progress.set(done.min(stages.len()), stages.len());
        let words = if args.quick { quick } else { usual };
        let mut words: Vec<&str> = words.split_whitespace().collect();
        if let Some(backend) = &args.backend
            && ON_BACKEND.contains(name)
        {
            words.extend(["--backend", backend]);
        }
        let run = Run {
            name,
            pass,
            words: &words,
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

/// A stage to be run.
struct Run<'a> {
    name: &'a str,
    pass: u32,
    words: &'a [&'a str],
    interrupts: &'a Interrupts,
    saving: &'a Saving,
}

impl Run<'_> {
    /// The stage, before anything is known of it.
    fn begun(&self) -> Stage {
        Stage {
            name: self.name.to_owned(),
            pass: self.pass,
            command: format!("muster {} {}", self.name, self.words.join(" "))
                .trim_end()
                .to_owned(),
            outcome: Outcome::Refused,
            class: Exit::Internal,
            exit_code: Exit::Internal.code(),
            finding: String::new(),
            remarks: Vec::new(),
            elapsed_us: 0,
            result: None,
            drift: None,
        }
    }

    /// Runs the command to its end. What it has measured so far is written meanwhile, beside what was found before.
    fn carry_out(&self, found: &Validation) -> Result<Ended, Failure> {
        let program = std::env::current_exe().map_err(|error| {
            Failure::resource(format!("muster {} cannot be started: {error}", self.name))
        })?;
        let is_measured = self.pass == 1 && MEASURES.contains(&self.name);
        let interim: &[&str] = if is_measured { &["--interim"] } else { &[] };
        let words = [&[self.name], self.words, &["--format", "json"], interim].concat();
        let so_far = |line: &[u8]| {
            let result = serde_json::from_slice(line).ok().filter(|_| is_measured);
            if let Some(result) = result {
                let mut found = found.clone();
                let stage = Stage {
                    outcome: Outcome::Interrupted,
                    class: Exit::Interrupted,
                    exit_code: Exit::Interrupted.code(),
                    finding: "interrupted: some of its rounds".to_owned(),
                    result: Some(result),
                    ..self.begun()
                };
                found.add(stage, false);
                self.saving.write_interim(&found);
            }
        };
        let mut ended = child::run(&program, &words, self.interrupts, so_far)?;
        if is_measured {
            ended.keep_last_line();
        }
        Ok(ended)
    }

    fn stage(
        &self,
        expected: &mut Expected,
        found: &mut Validation,
    ) -> Result<(Stage, bool), Failure> {
        let started = Clock::now();
        let (name, pass) = (self.name, self.pass);
        let mut ended = self.carry_out(found)?;
        let mut stage = self.begun();
        let code = ended.code.and_then(|code| u8::try_from(code).ok());
        let class = Exit::ALL.into_iter().find(|exit| Some(exit.code()) == code);
        stage.exit_code = code.unwrap_or(stage.exit_code);
        match results::parse(&ended.stdout, &format!("the result of {name}")) {
            Ok(document) => {
                judge(&mut stage, document.as_ref(), class);
                let about = document.about();
                found.emulated |= about.emulated;
                if found.backend.is_none() {
                    found.backend = about.backend.map(str::to_owned);
                }
                if name == "doctor" {
                    stage.remarks = remarks_of_doctor(&ended.stdout);
                    if stage.outcome == Outcome::Accepted && !stage.remarks.is_empty() {
                        stage.outcome = Outcome::Remarks;
                    }
                }
                let comparable = document.comparable();
                if pass == 1 && comparable.is_some_and(|found| found.timed.is_some()) {
                    stage.result = serde_json::from_slice(&ended.stdout).ok();
                }
                if stage.outcome == Outcome::Accepted {
                    let stopped = hold(
                        &mut stage,
                        (document.as_ref(), &ended.stdout),
                        expected,
                        || self.carry_out(found),
                    )?;
                    ended.was_stopped |= stopped;
                }
            }
            Err(failure) => without_result(&mut stage, class, &ended, &failure),
        }
        if ended.was_stopped && class != Some(Exit::Ok) {
            // A process that has only begun is ended by the signal itself.
            (stage.outcome, stage.class) = (Outcome::Interrupted, Exit::Interrupted);
        }
        stage.elapsed_us = micros(Clock::now().duration_since(started));
        Ok((stage, ended.was_stopped))
    }
}

/// Holds the result of a stage against what is expected, and measures `again` where something is slow; gives back whether a request to stop
/// came meanwhile.
fn hold(
    stage: &mut Stage,
    (document, text): (&dyn Document, &[u8]),
    expected: &mut Expected,
    again: impl Fn() -> Result<Ended, Failure>,
) -> Result<bool, Failure> {
    let refuse = |stage: &mut Stage, failure: &Failure| {
        (stage.outcome, stage.class) = (Outcome::Refused, failure.exit);
        stage.finding = format!("not judged: {}", failure.message);
        stage.remarks.push(Remark {
            about: stage.name.clone(),
            what: failure.message.clone(),
            evidence: String::new(),
            remedy: failure.help.clone().unwrap_or_default(),
        });
    };
    stage.drift = expected.drift(&stage.name, document);
    if let Some(drift) = &stage.drift {
        let word = stage.finding.split(':').next().unwrap_or_default();
        stage.finding = format!("{word}: {}", drift.in_words());
    }
    let first = match expected.judge(document, text) {
        Ok(None) => return Ok(false),
        Ok(Some(judged)) => judged,
        Err(failure) => {
            refuse(stage, &failure);
            return Ok(false);
        }
    };
    if !first.is_slow() {
        conclude(stage, &first, None);
        return Ok(false);
    }
    let ended = again()?;
    if ended.was_stopped {
        (stage.outcome, stage.class) = (Outcome::Interrupted, Exit::Interrupted);
        return Ok(true);
    }
    let second = results::parse(
        &ended.stdout,
        &format!("the second result of {}", stage.name),
    );
    match second.and_then(|document| expected.judge(document.as_ref(), &ended.stdout)) {
        Ok(second) => conclude(stage, &first, second.as_ref()),
        Err(failure) => refuse(stage, &failure),
    }
    Ok(false)
}

/// What its own result says of a stage.
fn judge(stage: &mut Stage, document: &dyn Document, class: Option<Exit>) {
    let headline = document.headline();
    stage.finding = format!("{}: {}", headline.word, headline.sentence);
    stage.class = class.unwrap_or(Exit::Internal);
    if stage.class == Exit::Ok {
        stage.outcome = Outcome::Accepted;
    } else if stage.class == Exit::Interrupted {
        stage.outcome = Outcome::Interrupted;
    }
    if let (Outcome::Refused, Some(cause)) = (stage.outcome, document.about().verdict) {
        stage.remarks.push(Remark {
            about: stage.name.clone(),
            what: format!("{} {}", cause.class.class(), cause.text),
            evidence: cause.evidence.join("; "),
            remedy: cause.next.clone().unwrap_or_default(),
        });
    }
}

/// A stage that printed no result: it was refused what it needs, or it broke.
fn without_result(stage: &mut Stage, class: Option<Exit>, ended: &Ended, failure: &Failure) {
    let is_interrupted = class == Some(Exit::Interrupted);
    stage.class = class
        .filter(|class| *class != Exit::Ok)
        .unwrap_or(Exit::Internal);
    if is_interrupted {
        stage.outcome = Outcome::Interrupted;
    }
    let said = |word: &str| {
        let mut lines = ended.stderr.lines();
        lines.find_map(|line| {
            line.strip_prefix(word)?
                .strip_prefix(": ")
                .map(str::to_owned)
        })
    };
    let ended_how = ended.code.map_or_else(
        || "it was ended by a signal".to_owned(),
        |code| format!("it ended with code {code}"),
    );
    stage.finding = said("error").unwrap_or_else(|| failure.message.clone());
    stage.remarks.push(Remark {
        about: stage.name.clone(),
        what: stage.finding.clone(),
        evidence: ended_how,
        remedy: said("help").unwrap_or_default(),
    });
}

/// What the doctor warns of, and what failed.
fn remarks_of_doctor(document: &[u8]) -> Vec<Remark> {
    let diagnosis: Option<Diagnosis> = serde_json::from_slice(document).ok();
    let checks = diagnosis.into_iter().flat_map(|diagnosis| diagnosis.checks);
    let problems = checks.flat_map(|check| {
        let of_check = |id: &str, problem: &crate::doctor::Problem| Remark {
            about: id.to_owned(),
            what: problem.what.clone(),
            evidence: problem.evidence.clone(),
            remedy: problem.remedy.clone(),
        };
        let found = check.problems.iter();
        let found = found.filter(|one| matches!(one.status, Status::Fail | Status::Warn));
        found
            .map(|problem| of_check(&check.id, problem))
            .collect::<Vec<_>>()
    });
    problems.collect()
}
