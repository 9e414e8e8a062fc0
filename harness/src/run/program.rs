//! Any program as the ranks of a world: started, supervised, and ended together.
//!
//! Programs that use the library meet at our rendezvous, so their arbiter sits here and its verdict is
//! ours. Of other programs we know how their processes end, and say that in the same grammar.

mod outcome;

use std::ffi::OsString;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use muster_comm::error::verdict::Verdict;
use muster_comm::processors::Bind;
use muster_comm::sync::Clock;
use muster_comm::watch::judge::{Observation, observed};

use self::outcome::{Outcome, RankEnd};
use crate::exit::Exit;
use crate::fail::Failure;
use crate::run::binding;
use crate::run::launcher::{Command, Launcher};
use crate::run::supervisor::{Limits, Supervisor};
use crate::run::verdict::{Death, judge_programs};
use crate::world::capture::Capture;
use crate::world::echo::Printer;
use crate::world::signals::Interrupts;
use crate::world::{Ended, RankProcess, limits};

/// How long programs may take until all of them have joined: they say themselves how long they wait.
const ARRIVAL: Duration = Duration::from_secs(7 * 24 * 3600);
/// Time between SIGTERM and SIGKILL.
const TERM_GRACE: Duration = Duration::from_secs(1);

/// What to run.
#[derive(Debug)]
pub struct Program<'a> {
    /// Number of ranks.
    pub ranks: u32,
    /// Time that ranks get to end by themselves.
    pub grace: Duration,
    /// Whether to print one JSON document instead of what ranks print.
    pub json: bool,
    /// Folder for dumps, absolute.
    pub dumps: Option<&'a Path>,
    /// Folder for recordings, absolute.
    pub recording: Option<&'a Path>,
    /// Rules that select algorithms, where ranks are to go by others than those of the environment.
    pub rules: Option<&'a Path>,
    /// Processors that ranks are bound to; `None` as they bind themselves.
    pub bind: Option<Bind>,
    /// The program and its arguments.
    pub command: &'a [OsString],
}

/// Starts the ranks and supervises them to their end.
///
/// # Errors
/// If the host cannot carry them, or they cannot be started.
pub fn run(program: &Program<'_>) -> Result<Exit, Failure> {
    limits::make_room_for_descriptors(program.ranks)?;
    let interrupts = Arc::new(Interrupts::install()?);
    let launcher = Launcher::serve("run", program.ranks, ARRIVAL)?;
    let id = std::process::id().to_string();
    let bind = program.bind.unwrap_or_default();
    let mut args: Vec<OsString> = ["__exec", "--launcher", &id, "--bind", bind.name(), "--"]
        .map(OsString::from)
        .to_vec();
    binding::announce(bind, program.ranks);
    args.extend(program.command.iter().cloned());
    let printer = if program.json {
        None
    } else {
        Some(Printer::start()?)
    };
    let command = Command {
        args,
        env: environment(program)?,
        printer: printer.as_ref(),
        torch: true,
    };
    let (ranks, guard) = launcher.start(command, interrupts)?;
    let limits = Limits {
        patience: ARRIVAL,
        grace: program.grace,
        asked: Some(TERM_GRACE),
        interrupted: program.grace,
    };
    let started_ms = Clock::wall_ms();
    let mut supervisor = Supervisor::new(&launcher.coordinator, program.ranks, ranks, limits)
        .with_dumps(program.dumps);
    supervisor.supervise();
    let outcome = outcome(&supervisor, started_ms);
    // Ranks first, so that none sees the control plane go before its own end.
    drop(supervisor);
    drop(guard);
    launcher.coordinator.shutdown();
    if let Some(printer) = printer {
        printer.finish();
    }
    outcome.tell(program.json)?;
    Ok(outcome.exit)
}

/// What a program gets besides the contract.
fn environment(program: &Program<'_>) -> Result<Vec<(String, String)>, Failure> {
    // A port that was free a moment ago, for the program's own rendezvous; ours has its own.
    let port = TcpListener::bind(("127.0.0.1", 0))
        .and_then(|listener| listener.local_addr())
        .map_err(|error| Failure::resource(format!("no free port: {error}")))?
        .port();
    let mut variables = vec![
        ("MASTER_ADDR".to_owned(), "127.0.0.1".to_owned()),
        ("MASTER_PORT".to_owned(), port.to_string()),
    ];
    if let Some(folder) = program.dumps {
        variables.push(("MUSTER_DUMP_DIR".to_owned(), folder.display().to_string()));
    }
    if let Some(folder) = program.recording {
        variables.push(("MUSTER_RECORD_DIR".to_owned(), folder.display().to_string()));
    }
    if let Some(file) = program.rules {
        variables.push(("MUSTER_ALGO".to_owned(), format!("@{}", file.display())));
    }
    if program.bind == Some(Bind::None) {
        // Ranks that use the library would bind themselves.
        variables.push(("MUSTER_PIN".to_owned(), "off".to_owned()));
    }
    Ok(variables)
}

fn outcome(supervisor: &Supervisor<'_>, started_ms: u64) -> Outcome {
    let (facts, processes) = (&supervisor.facts, supervisor.ranks.processes());
    let ended = |death: &Death| supervisor.process(death.rank)?.ended();
    let first = facts.deaths.first().and_then(ended);
    let verdict = judge_programs(facts, first, |death| told(supervisor, death, first));
    let is_success = |process: &RankProcess| process.ended().is_some_and(Ended::is_success);
    let exit = match &verdict {
        _ if facts.interrupted => Exit::Interrupted,
        Some(verdict) => verdict.class.into(),
        None if processes.iter().all(is_success) => Exit::Ok,
        // A process that the kernel does not give up.
        None => Exit::Internal,
    };
    let ended = |process: &RankProcess| process.ended().map(|how| how.to_string());
    Outcome {
        exit,
        interrupted: facts.interrupted,
        elapsed_ms: Clock::wall_ms().saturating_sub(started_ms),
        verdict,
        ranks: processes
            .iter()
            .map(|process| RankEnd {
                rank: process.rank(),
                pid: process.pid(),
                ended: ended(process).unwrap_or_else(|| "still there".to_owned()),
            })
            .collect(),
    }
}

/// What the first rank that ended badly said of the cause, or any other; else how it ended, unless it gave up while another
/// one did not run. Ranks that the launcher could not tell a verdict, since it was stopped itself, come to one by themselves,
/// or to none.
fn told(supervisor: &Supervisor<'_>, death: &Death, how: Option<Ended>) -> Verdict {
    let (rank, now_ms) = (death.rank, Clock::wall_ms());
    let said = |process: &RankProcess| {
        let lines = process.output(Capture::lines);
        lines.iter().find_map(|line| Verdict::parse(line, now_ms))
    };
    let process = supervisor.process(rank);
    let all = supervisor.ranks.processes();
    let gave_up = matches!(how, Some(Ended::Exited(_))) && supervisor.arrivals.has_joined(rank);
    let stopped = || supervisor.facts.stopped.clone().filter(|_| gave_up);
    let said = process
        .and_then(said)
        .or_else(|| all.iter().find_map(said))
        .or_else(stopped);
    said.unwrap_or_else(|| {
        let seen = Observation::Ended {
            how: death.how.clone(),
            panic: process.and_then(|process| process.output(Capture::panic_text)),
            others: u32::try_from(all.len())
                .unwrap_or(u32::MAX)
                .saturating_sub(1),
        };
        observed(rank, process.map_or(0, RankProcess::pid), seen, now_ms)
    })
}
