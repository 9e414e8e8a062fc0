//! Any program as the ranks of a world: started, watched, and ended together.
//!
//! Programs that use the library meet at our rendezvous, so their arbiter sits here and its verdict is
//! ours. Of other programs we know how their processes end, and say that in the same grammar.
//!
//! PROGRAM-1: the loop ends: after the first failure or request to stop come the grace, SIGTERM and
//! SIGKILL, each with its time.
//! PROGRAM-2: an end that we caused ourselves is never taken for a cause.

mod last;
mod outcome;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use muster_comm::error::ErrorKind;
use muster_comm::error::verdict::{Class, Confidence, Verdict};
use muster_comm::rendezvous::{
    Coordinator, CoordinatorEvent, CoordinatorOptions, DownReason, Secret,
};
use muster_comm::sync::{Clock, Deadline};
use muster_comm::types::Rank;
use muster_comm::watch::arbiter::arbiter;
use muster_comm::watch::{keep, of_process};
use rustix::process::Signal;

use self::last::Last;
use self::outcome::{Outcome, RankEnd};
use crate::exit::Exit;
use crate::fail::Failure;
use crate::out;
use crate::run::launcher::{Event, contract};
use crate::run::pump;
use crate::run::standing::{Arrivals, tree};
use crate::run::verdict::Facts;
use crate::world::capture::Capture;
use crate::world::echo::Printer;
use crate::world::guard::Guard;
use crate::world::signals::Interrupts;
use crate::world::{self, Ended, Ranks, Spawn, limits, ranks};

/// How long programs may take until all of them have joined: they say themselves how long they wait.
const ARRIVAL: Duration = Duration::from_secs(7 * 24 * 3600);
/// Time between SIGTERM and SIGKILL.
const TERM_GRACE: Duration = Duration::from_secs(1);
/// Time for killed processes to end.
const KILL_BOUND: Duration = Duration::from_secs(3);
/// Time for the last words of ranks, and of the arbiter, to come through the coordinator: it says when they have.
const DRAIN_BOUND: Duration = Duration::from_secs(30);

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
    /// Rules that select algorithms, where ranks are to go by others than those of the environment.
    pub rules: Option<&'a Path>,
    /// The program and its arguments.
    pub command: &'a [OsString],
}

/// What is being done about the ranks.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Nothing: they run.
    Running,
    /// Something failed; they may end by themselves.
    Ending(Deadline),
    /// They were asked to end.
    Asked(Deadline),
    /// They were killed.
    Killed(Deadline),
}

/// Starts the ranks and watches them to their end.
///
/// # Errors
/// If the host cannot carry them, or they cannot be started.
pub fn run(program: &Program<'_>) -> Result<Exit, Failure> {
    limits::make_room_for_descriptors(program.ranks)?;
    let interrupts = Arc::new(Interrupts::install()?);
    let secret = Secret::random()
        .map_err(|error| Failure::resource(format!("no secret for the job: {error}")))?;
    let job_id = format!("run-{}", std::process::id());
    let mut options = CoordinatorOptions::new(secret.clone(), job_id.clone(), program.ranks);
    options.deadline = ARRIVAL;
    options.owner_knows_exits = true;
    options.arbiter = Some(arbiter);
    let coordinator = Coordinator::start(options)
        .map_err(|error| Failure::of(error.exit_code(), &error, error.help()))?;
    let mut env = environment(&job_id, &coordinator)?;
    if let Some(folder) = program.dumps {
        env.push(("MUSTER_DUMP_DIR".to_owned(), folder.display().to_string()));
    }
    if let Some(file) = program.rules {
        env.push(("MUSTER_ALGO".to_owned(), format!("@{}", file.display())));
    }
    let launcher = std::process::id().to_string();
    let mut args: Vec<OsString> = ["__exec", "--launcher", &launcher, "--"]
        .map(OsString::from)
        .to_vec();
    args.extend(program.command.iter().cloned());
    let own = ranks::own_program();
    let printer = if program.json {
        None
    } else {
        Some(Printer::start()?)
    };
    let spawn = Spawn {
        program: &own,
        args: &args,
        world_size: program.ranks,
        env: &env,
        secret: secret.expose(),
        printer: printer.as_ref(),
        torch: true,
    };
    // Before the ranks, so that it holds nothing of theirs. A host that cannot carry it does without.
    let guard = Guard::start().ok();
    let ranks = Ranks::start(&spawn, Some(interrupts))?;
    pump::start(&coordinator, ranks.sender(), Event::Control)?;
    let mut driver = Driver {
        program,
        coordinator: &coordinator,
        facts: Facts::default(),
        phase: Phase::Running,
        first: None,
        ends: vec![None; program.ranks as usize],
        undrained: BTreeSet::new(),
        arrivals: Arrivals::new(program.ranks),
        left: BTreeSet::new(),
        last: Last::default(),
        stopped: None,
        ranks,
        started_ms: Clock::wall_ms(),
        has_dumped: false,
    };
    driver.drive();
    let outcome = driver.outcome();
    // Ranks first, so that none sees the control plane go before its own end.
    drop(driver);
    drop(guard);
    coordinator.shutdown();
    if let Some(printer) = printer {
        printer.finish();
    }
    outcome.tell(program.json)?;
    Ok(outcome.exit)
}

/// The contract: ours, and what programs made for torchrun look at besides.
fn environment(job_id: &str, coordinator: &Coordinator) -> Result<Vec<(String, String)>, Failure> {
    // A port that was free a moment ago, for the program's own rendezvous; ours has its own.
    let port = TcpListener::bind(("127.0.0.1", 0))
        .and_then(|listener| listener.local_addr())
        .map_err(|error| Failure::resource(format!("no free port: {error}")))?
        .port();
    let mut variables = contract(job_id, coordinator);
    variables.extend([
        ("MASTER_ADDR".to_owned(), "127.0.0.1".to_owned()),
        ("MASTER_PORT".to_owned(), port.to_string()),
    ]);
    Ok(variables)
}

struct Driver<'a> {
    program: &'a Program<'a>,
    coordinator: &'a Coordinator,
    facts: Facts,
    phase: Phase,
    /// The first rank that ended badly, by itself.
    first: Option<(u32, Ended)>,
    ends: Vec<Option<Ended>>,
    /// Ranks whose processes have ended, and of which there may be words to come.
    undrained: BTreeSet<u32>,
    arrivals: Arrivals,
    /// Ranks that said goodbye.
    left: BTreeSet<u32>,
    last: Last,
    /// A rank that did not run when the first one ended badly.
    stopped: Option<Verdict>,
    ranks: Ranks<Event>,
    started_ms: u64,
    /// The dumps of culprits were written.
    has_dumped: bool,
}

impl Driver<'_> {
    fn drive(&mut self) {
        while !self.ranks.all_ended() {
            let deadline = match self.phase {
                Phase::Running => Deadline::after(ARRIVAL),
                Phase::Ending(deadline) | Phase::Asked(deadline) | Phase::Killed(deadline) => {
                    deadline
                }
            };
            let looks = [self.arrivals.next(), self.last.next];
            let next = looks.into_iter().flatten().chain([deadline]);
            let next = next.min_by_key(Deadline::left).unwrap_or(deadline);
            match self.ranks.next(next) {
                Some(event) => self.take(event),
                None if deadline.passed() && !self.escalate() => break,
                None => {}
            }
            self.arrivals.look(self.ranks.processes(), self.coordinator);
            self.look_at_the_last();
        }
        let drain = Deadline::after(DRAIN_BOUND);
        while !self.undrained.is_empty() {
            let Some(event) = self.ranks.next(drain) else {
                break;
            };
            self.take(event);
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Process(world::Event::Ended { rank, how }) => self.ended(rank, how),
            Event::Process(world::Event::Interrupted) => self.interrupted(),
            Event::Control(CoordinatorEvent::Watch { bytes }) => {
                self.facts.hear(&bytes);
                self.keep_dumps();
                let found = self.facts.found.as_ref();
                if found.is_some_and(|found| found.is_final()) {
                    self.end_within(self.program.grace);
                }
            }
            Event::Control(CoordinatorEvent::Drained { rank }) => {
                self.undrained.remove(&rank.0);
            }
            Event::Control(CoordinatorEvent::Joined { rank }) => self.arrivals.note(rank.0),
            Event::Control(CoordinatorEvent::Left { rank }) => {
                self.left.insert(rank.0);
            }
            Event::Control(CoordinatorEvent::Failed(_)) => self.arrivals.end(),
            // What else becomes of a rank is known by how its process ends.
            Event::Control(_) => {}
        }
    }

    fn ended(&mut self, rank: u32, how: Ended) {
        self.ranks.note_end(rank, how);
        if let Some(end) = self.ends.get_mut(rank as usize) {
            *end = Some(how);
        }
        let is_ours =
            matches!(self.phase, Phase::Asked(_) | Phase::Killed(_)) || self.facts.interrupted;
        self.undrained.insert(rank);
        if is_ours {
            return self.coordinator.drain(Rank(rank));
        }
        self.coordinator
            .rank_down(Rank(rank), self.reason(rank, how));
        self.coordinator.drain(Rank(rank));
        if !how.is_success() {
            if self.first.is_none() {
                self.stopped = self.look_for_stopped();
            }
            self.first.get_or_insert((rank, how));
            self.end_within(self.program.grace);
        }
    }

    fn reason(&self, rank: u32, how: Ended) -> DownReason {
        let mut processes = self.ranks.processes().iter();
        processes
            .find(|process| process.rank() == rank)
            .map_or(DownReason::HungUp, |process| process.down_reason(how))
    }

    fn panic_of(&self, rank: u32) -> Option<String> {
        let process = self
            .ranks
            .processes()
            .iter()
            .find(|process| process.rank() == rank)?;
        process.output(Capture::panic_text)
    }

    /// Writes the dumps of culprits that do not run, which cannot do it themselves.
    fn keep_dumps(&mut self) {
        let (Some(folder), Some(found)) = (self.program.dumps, self.facts.found.clone()) else {
            return;
        };
        if self.has_dumped || found.class != Class::PeerFrozen {
            return;
        }
        self.has_dumped = true;
        for process in self.ranks.processes() {
            let pid = u32::try_from(process.pid()).unwrap_or(0);
            let reports_of = |pid: u32| of_process(pid).unwrap_or_default();
            if process.ended().is_some() || !found.blamed.contains(&process.rank()) {
                continue;
            }
            let reports: Vec<_> = tree(pid).into_iter().flat_map(reports_of).collect();
            for report in reports
                .iter()
                .filter(|report| report.rank == process.rank())
            {
                if let Err(error) = keep(folder, report, Some(&found)) {
                    out::note(&format!("no dump of rank {}: {error}", report.rank));
                }
            }
        }
    }

    fn interrupted(&mut self) {
        if self.facts.interrupted {
            self.kill();
            return;
        }
        self.facts.interrupted = true;
        self.ranks.signal_all(Signal::TERM);
        self.phase = Phase::Asked(Deadline::after(self.program.grace));
    }

    fn end_within(&mut self, grace: Duration) {
        if let Phase::Running = self.phase {
            self.phase = Phase::Ending(Deadline::after(grace));
        }
    }

    fn kill(&mut self) {
        self.ranks.signal_all(Signal::KILL);
        self.phase = Phase::Killed(Deadline::after(KILL_BOUND));
    }

    /// The next harsher means; false where there is none left.
    fn escalate(&mut self) -> bool {
        match self.phase {
            Phase::Running => true,
            Phase::Ending(_) => {
                self.ranks.signal_all(Signal::TERM);
                self.phase = Phase::Asked(Deadline::after(TERM_GRACE));
                true
            }
            Phase::Asked(_) => {
                self.kill();
                true
            }
            Phase::Killed(_) => false,
        }
    }

    fn outcome(&self) -> Outcome {
        // After a mismatch the group may be usable, and after a failure on devices that on the host is: such a verdict is the
        // cause only where a rank ended because of it.
        let found = self
            .facts
            .found
            .as_deref()
            .filter(|found| found.is_final() || self.first.is_some());
        // One without evidence gives way to what was seen of a process.
        let is_vague = found.is_some_and(|found| found.class == Class::Internal);
        let has_seen =
            matches!(self.first, Some((_, Ended::Signaled(_)))) || self.stopped.is_some();
        let found = found.filter(|_| !(is_vague && has_seen));
        let verdict = match (self.facts.interrupted, found, self.first) {
            (true, _, _) => None,
            (false, Some(found), _) => Some(found.clone()),
            (false, None, first) => self
                .last
                .verdict
                .clone()
                .or_else(|| first.map(|(rank, how)| self.told(rank, how))),
        };
        let exit = match &verdict {
            _ if self.facts.interrupted => Exit::Interrupted,
            Some(verdict) => verdict.class.into(),
            None if self
                .ends
                .iter()
                .all(|end| end.is_some_and(Ended::is_success)) =>
            {
                Exit::Ok
            }
            // A process that the kernel does not give up.
            None => Exit::Internal,
        };
        let rank_ends = (0..).zip(&self.ends).zip(self.ranks.processes());
        Outcome {
            exit,
            interrupted: self.facts.interrupted,
            elapsed_ms: Clock::wall_ms().saturating_sub(self.started_ms),
            verdict,
            ranks: rank_ends
                .map(|((rank, end), process)| RankEnd {
                    rank,
                    pid: process.pid(),
                    ended: end.map_or_else(|| "still there".to_owned(), |how| how.to_string()),
                })
                .collect(),
        }
    }

    /// What a rank that ended badly said of the cause; else how it ended, unless it gave up while another one did not run.
    /// Ranks that the launcher could not tell a verdict, since it was stopped itself, come to one by themselves, or to none.
    fn told(&self, rank: u32, how: Ended) -> Verdict {
        let now_ms = Clock::wall_ms();
        let said = |process: &world::RankProcess| {
            let lines = process.output(Capture::lines);
            lines.iter().find_map(|line| Verdict::parse(line, now_ms))
        };
        let all = || self.ranks.processes().iter();
        let own = all().filter(|one| one.rank() == rank).find_map(said);
        let gave_up = matches!(how, Ended::Exited(_)) && self.arrivals.has_joined(rank);
        own.or_else(|| all().find_map(said))
            .or_else(|| self.stopped.clone().filter(|_| gave_up))
            .unwrap_or_else(|| self.seen(rank, how))
    }

    /// What is known of a rank whose program does not use the library, or had not joined.
    fn seen(&self, rank: u32, how: Ended) -> Verdict {
        let pid = self
            .ranks
            .processes()
            .iter()
            .find(|process| process.rank() == rank)
            .map_or(0, world::RankProcess::pid);
        let others = self.program.ranks - 1;
        Verdict {
            class: Class::PeerDead,
            blamed: vec![rank],
            who: format!("rank {rank} (this host, pid {pid})"),
            what: "no call that is known of".to_owned(),
            place: self.panic_of(rank).unwrap_or_else(|| how.to_string()),
            since_unix_ms: Clock::wall_ms(),
            elapsed_ms: 0,
            confidence: Confidence::Certain,
            evidence: vec!["its process ended".to_owned()],
            others: format!("{others} other ranks, ended by the launcher unless they ended first"),
            next: "read that rank's output".to_owned(),
            cascades: Vec::new(),
            ends: Vec::new(),
            about: None,
            kind: ErrorKind::PeerClosed {
                peer: Rank(rank),
                how: how.to_string(),
                orderly: false,
            },
        }
    }
}
