//! `muster validate`: the commands that a new host must pass, one after the other, and one answer.
//!
//! Each stage is a process of its own, so that whatever befalls one leaves the answer standing. After each the files are written anew: what
//! was found so far is there even where this process is killed.

use std::io::Read;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use clap::Args;
use muster_comm::config::Environment;
use muster_comm::sync::Clock;
use rustix::process::{Pid, Signal, kill_process};

use crate::diagnosis::Diagnosis;
use crate::doctor::Status;
use crate::exit::Exit;
use crate::fail::Failure;
use crate::out;
use crate::progress::Progress;
use crate::report::document::Document;
use crate::report::machine::Machine;
use crate::report::origin::Origin;
use crate::results;
use crate::run::micros;
use crate::validation::{self, Outcome, Remark, SCHEMA_VERSION, Stage, Validation};
use crate::world::signals::Interrupts;

use super::saving::{Form, Saving};

/// Time between two looks at a stage.
const LOOK_EVERY: Duration = Duration::from_millis(20);

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

/// Options of `muster validate`.
#[derive(Debug, Args)]
#[command(
    about = "Accept a host or refuse it: doctor, verify, bench, moe and a drill",
    long_about = "Runs doctor, verify, bench, moe and drill, each as a process of its own, and says whether the host is \
        accepted, accepted with remarks, or refused, with what was seen and what to do. Takes about two minutes.",
    after_long_help = "Examples:\n  \
        muster validate                                         about two minutes\n  \
        muster validate --quick                                 20 seconds\n  \
        muster validate --save host.json --report host.html     the answer as files; they are whole after each stage\n\n\
        Exit code 0 if the host is accepted, with or without remarks; else that of the first stage that failed."
)]
pub struct ValidateArgs {
    /// Fewer matrices, lines and drills: about 20 seconds
    #[arg(long)]
    quick: bool,

    /// Only these stages; may be given more than once
    #[arg(long, value_name = "STAGE", value_delimiter = ',', value_parser = STAGES.map(|(name, ..)| name))]
    only: Vec<String>,

    /// Text for people or JSON for programs
    #[arg(long, value_enum, default_value_t)]
    format: Form,

    #[command(flatten)]
    saving: Saving,
}

/// Runs the stages, and says what came of them.
///
/// # Errors
/// If a stage cannot be started, or the result cannot be written.
pub fn run(args: &ValidateArgs) -> Result<Exit, Failure> {
    args.saving.check()?;
    let interrupts = Interrupts::install()?;
    let started = Clock::now();
    let is_chosen = |name: &str| args.only.is_empty() || args.only.iter().any(|one| one == name);
    let stages: Vec<_> = STAGES.iter().filter(|(name, ..)| is_chosen(name)).collect();
    let mut found = Validation {
        schema_version: SCHEMA_VERSION,
        tool: crate::TOOL.to_owned(),
        command: "validate".to_owned(),
        passed: false,
        partial: true,
        backend: None,
        emulated: false,
        outcome: Outcome::Interrupted,
        elapsed_us: 0,
        stages: Vec::new(),
        machine: Some(Machine::here()),
        origin: Some(Origin::here(&Environment::capture())),
    };
    let shows = args.format == Form::Table;
    if shows {
        out::result(&validation::head())?;
    }
    let progress = Progress::new();
    let mut written = Ok(());
    for (done, (name, usual, quick)) in stages.iter().enumerate() {
        progress.begin(format!("{name} ({}/{})", done + 1, stages.len()));
        progress.set(done, stages.len());
        let words = if args.quick { quick } else { usual };
        let words: Vec<&str> = words.split_whitespace().collect();
        let (stage, was_stopped) = run_stage(name, &words, &interrupts, &mut found)?;
        let is_over = was_stopped || stage.outcome == Outcome::Interrupted;
        if shows {
            progress.suspended(|| out::result(&validation::line(&stage)))?;
        }
        found.add(stage, stages.len() - done - 1);
        found.elapsed_us = micros(Clock::now().duration_since(started));
        written = args.saving.write(&found);
        if is_over {
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

/// What a stage left.
struct Ended {
    code: Option<i32>,
    /// It was asked to stop.
    was_stopped: bool,
    stdout: Vec<u8>,
    stderr: String,
}

fn run_stage(
    name: &str,
    words: &[&str],
    interrupts: &Interrupts,
    found: &mut Validation,
) -> Result<(Stage, bool), Failure> {
    let started = Clock::now();
    let ended = carry_out(name, words, interrupts)?;
    let mut stage = Stage {
        name: name.to_owned(),
        command: [&["muster", name], words].concat().join(" "),
        outcome: Outcome::Refused,
        class: Exit::Internal,
        exit_code: Exit::Internal.code(),
        finding: String::new(),
        remarks: Vec::new(),
        elapsed_us: micros(Clock::now().duration_since(started)),
    };
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
        }
        Err(failure) => without_result(&mut stage, class, &ended, &failure),
    }
    if ended.was_stopped && class != Some(Exit::Ok) {
        // A process that has only begun is ended by the signal itself.
        (stage.outcome, stage.class) = (Outcome::Interrupted, Exit::Interrupted);
    }
    Ok((stage, ended.was_stopped))
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

/// Runs a command of this program to its end, and hands on a request to stop.
fn carry_out(name: &str, words: &[&str], interrupts: &Interrupts) -> Result<Ended, Failure> {
    let failed = |error: std::io::Error| {
        Failure::resource(format!("muster {name} cannot be started: {error}"))
    };
    let program = std::env::current_exe().map_err(failed)?;
    let mut child = Command::new(program)
        .arg(name)
        .args(words)
        .args(["--format", "json"])
        // A terminal sends Ctrl-C to a whole group, and this process hands it on: once is enough.
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    std::thread::scope(|scope| {
        let stdout = scope.spawn(|| read(stdout));
        let stderr = scope.spawn(|| read(stderr));
        let (code, was_stopped) = wait(&mut child, interrupts).map_err(failed)?;
        Ok(Ended {
            code,
            was_stopped,
            stdout: stdout.join().unwrap_or_default(),
            stderr: String::from_utf8_lossy(&stderr.join().unwrap_or_default()).into_owned(),
        })
    })
}

/// The code with which a stage ended, and whether it was asked to stop.
fn wait(child: &mut Child, interrupts: &Interrupts) -> std::io::Result<(Option<i32>, bool)> {
    let mut was_stopped = false;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((status.code(), was_stopped));
        }
        let is_asked = interrupts.take_new() > 0;
        was_stopped |= is_asked;
        if is_asked && let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            // It may have ended by itself meanwhile.
            let _ = kill_process(pid, Signal::TERM);
        }
        Clock::pause(LOOK_EVERY);
    }
}

/// All that a stage prints there.
fn read(stream: Option<impl Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(mut stream) = stream {
        // What came before an error is what there is.
        let _ = stream.read_to_end(&mut bytes);
    }
    bytes
}
