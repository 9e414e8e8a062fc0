//! One matrix whose ranks are processes of this host, started and watched by this one.
//!
//! LOCAL-1: the loop ends, whatever ranks do: every wait has a deadline, and after each there is a
//! harsher means (a second's grace, SIGKILL, giving up on a process that the kernel holds).
//! LOCAL-2: an end that we caused ourselves is never taken for a cause.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use muster_comm::error::ErrorKind;
use muster_comm::layout::Layout;
use muster_comm::rendezvous::{
    Coordinator, CoordinatorEvent, CoordinatorOptions, DownReason, RendezvousError, Secret,
};
use muster_comm::sync::{Clock, Deadline};
use muster_comm::types::Rank;
use muster_comm::watch::judge::Fate;
use rustix::process::Signal;

use crate::check::collect::Collector;
use crate::exit::Exit;
use crate::fail::Failure;
use crate::run::job::{Job, Transport};
use crate::run::launcher::{Event, contract};
use crate::run::standing::Arrivals;
use crate::run::verdict::{BringUp, Death, Facts};
use crate::run::{Finished, Progress, printed, procstate, pump};
use crate::world::capture::Capture;
use crate::world::guard::Guard;
use crate::world::signals::Interrupts;
use crate::world::{self, Ended, Ranks, Spawn, limits, ranks};

/// Time for ranks to end by themselves once one has failed: they learn of it within milliseconds.
const GRACE: Duration = Duration::from_secs(1);
/// The same after a request to stop.
const GRACE_INTERRUPTED: Duration = Duration::from_millis(500);
/// How often the launcher looks at the time at least.
const SLICE: Duration = Duration::from_secs(1);
/// Time for killed processes to end.
const KILL_BOUND: Duration = Duration::from_secs(3);
/// Time for the last reports of ranks that have ended to come through: the coordinator says when they have.
const DRAIN_BOUND: Duration = Duration::from_secs(30);
/// A wait that ended this much too late shows that this process did not run, or hardly.
const STOPPED: Duration = Duration::from_secs(1);
/// How long it is looked whether ranks of which nothing was heard get a processor.
const STARVED_LOOK: Duration = Duration::from_secs(2);
/// What a case may take besides waiting for its peers: computing what it should receive.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the launcher is doing about its ranks.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Waiting for results; the deadline is renewed with every event.
    Running(Deadline),
    /// Something failed; ranks get time to say what they know.
    Ending(Deadline),
    /// Killed; nothing but their end is of interest.
    Killed(Deadline),
}

impl Phase {
    const fn deadline(self) -> Deadline {
        match self {
            Self::Running(deadline) | Self::Ending(deadline) | Self::Killed(deadline) => deadline,
        }
    }
}

/// Makes sure that the host can carry the ranks of a job, before any rank of any job starts.
///
/// # Errors
/// A failure of class RESOURCE that names what is needed and what there is.
pub fn make_sure_that_it_fits(job: &Job, layout: &Layout) -> Result<(), Failure> {
    let world_size = job.matrix.world_size;
    limits::make_room_for_descriptors(world_size)?;
    let bytes_a_rank = job.work.bytes_a_rank(layout);
    limits::check_memory(world_size, bytes_a_rank)
}

/// Starts the ranks of a job, waits for their answers, and reaps them.
///
/// # Errors
/// If the host cannot carry the ranks, or the meeting point cannot be made.
pub fn run(
    job: &Job,
    layout: &Layout,
    interrupts: &Arc<Interrupts>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Finished, Failure> {
    let world_size = job.matrix.world_size;
    let started = Clock::now();
    let secret = Secret::random().map_err(|error| {
        Failure::resource(format!(
            "no secret for the job: the system's generator failed: {error}"
        ))
    })?;
    let job_id = format!("verify-{}", std::process::id());
    let mut options = CoordinatorOptions::new(secret.clone(), job_id.clone(), world_size);
    options.deadline = job.deadline();
    options.owner_knows_exits = true;
    options.arbiter = Some(muster_comm::watch::arbiter::arbiter);
    let coordinator = Coordinator::start(options)
        .map_err(|error| Failure::of(error.exit_code(), &error, error.help()))?;
    let args = arguments(job)?;
    let env = environment(job, &job_id, &coordinator);
    let program = ranks::own_program();
    let spawn = Spawn {
        program: &program,
        args: &args,
        world_size,
        env: &env,
        secret: secret.expose(),
        printer: None,
        torch: false,
    };
    // Before the ranks, so that it holds nothing of theirs. A host that cannot carry it does without.
    let _guard = Guard::start().ok();
    let ranks = Ranks::start(&spawn, Some(Arc::clone(interrupts)))?;
    pump::start(&coordinator, ranks.sender(), Event::Control)?;
    let patience = job.deadline().saturating_add(PATIENCE);
    let mut driver = Driver {
        collector: Collector::new(job.work.catalogue(layout), world_size),
        facts: Facts::default(),
        phase: Phase::Running(Deadline::after(patience)),
        patience,
        started,
        bring_up: None,
        undrained: BTreeMap::new(),
        arrivals: Arrivals::new(world_size),
        delays: Vec::new(),
        ranks,
        coordinator,
    };
    driver.drive(progress);
    Ok(driver.finish(job, layout))
}

fn arguments(job: &Job) -> Result<Vec<OsString>, Failure> {
    let text = serde_json::to_string(job).map_err(|error| {
        Failure::internal(format!("the job cannot be written as JSON: {error}"))
    })?;
    let launcher = std::process::id().to_string();
    Ok(["__rank", "--launcher", &launcher, "--job", &text]
        .map(OsString::from)
        .to_vec())
}

fn environment(job: &Job, job_id: &str, coordinator: &Coordinator) -> Vec<(String, String)> {
    let mut variables = contract(job_id, coordinator);
    if let Some(limit_ms) = job.hccl.as_ref().and_then(|hccl| hccl.exec_timeout_ms) {
        // For versions of CANN that take the limit from the environment only.
        variables.push((
            "HCCL_EXEC_TIMEOUT".to_owned(),
            (limit_ms / 1000).to_string(),
        ));
    }
    if job.pin {
        variables.push(("MUSTER_PIN".to_owned(), "on".to_owned()));
    }
    if job.transport != Transport::Auto {
        variables.push((
            "MUSTER_TRANSPORT".to_owned(),
            job.transport.name().to_owned(),
        ));
    }
    variables
}

struct Driver {
    collector: Collector,
    facts: Facts,
    phase: Phase,
    patience: Duration,
    started: std::time::Instant,
    /// Time until every rank was through its first barrier.
    bring_up: Option<Duration>,
    /// Ranks whose processes have ended and of which there may be words to come; with how they ended, where that is to
    /// be judged by those.
    undrained: BTreeMap<u32, Option<Ended>>,
    arrivals: Arrivals,
    /// How long ranks of which nothing was heard had waited for a processor when that was looked at.
    delays: Vec<(u32, Duration)>,
    ranks: Ranks<Event>,
    coordinator: Coordinator,
}

impl Driver {
    fn drive(&mut self, progress: &mut dyn FnMut(Progress)) {
        while !self.ranks.all_ended() {
            let looks = self.arrivals.next().into_iter();
            let until = looks
                .chain([self.phase.deadline(), Deadline::after(SLICE)])
                .min_by_key(Deadline::left)
                .unwrap_or_else(|| self.phase.deadline());
            let slice = Deadline::after(until.left());
            let event = self.ranks.next(slice);
            self.forgive(slice);
            let is_late = event.is_none() && self.phase.deadline().passed();
            if let Some(event) = event {
                self.take(event, progress);
            }
            if is_late && !self.escalate() {
                break;
            }
            self.arrivals
                .look(self.ranks.processes(), &self.coordinator);
        }
        let drain = Deadline::after(DRAIN_BOUND);
        while !self.undrained.is_empty() {
            let Some(event) = self.ranks.next(drain) else {
                break;
            };
            self.take(event, progress);
        }
    }

    /// Time in which this process did not run counts against nobody.
    fn forgive(&mut self, slice: Deadline) {
        if let Phase::Running(_) = self.phase
            && slice.elapsed().saturating_sub(slice.budget()) > STOPPED
        {
            self.phase = Phase::Running(Deadline::after(self.patience));
        }
    }

    fn take(&mut self, event: Event, progress: &mut dyn FnMut(Progress)) {
        if let Phase::Running(_) = self.phase {
            self.delays.clear();
            self.phase = Phase::Running(Deadline::after(self.patience));
        }
        match event {
            Event::Process(world::Event::Ended { rank, how }) => self.ended(rank, how),
            Event::Process(world::Event::Interrupted) => self.interrupted(),
            Event::Control(CoordinatorEvent::Report { rank, bytes }) => {
                self.reported(rank.0, &bytes);
                progress(Progress::of(&mut self.collector));
            }
            Event::Control(CoordinatorEvent::Drained { rank }) => self.drained(rank.0),
            Event::Control(CoordinatorEvent::Joined { rank }) => self.arrivals.note(rank.0),
            Event::Control(CoordinatorEvent::Failed(error)) => self.bring_up_failed(&error),
            Event::Control(CoordinatorEvent::Watch { bytes }) => self.facts.hear(&bytes),
            // Aborts come with a report of the rank itself, strangers are no business of ours.
            Event::Control(_) => {}
        }
    }

    fn ended(&mut self, rank: u32, how: Ended) {
        self.ranks.note_end(rank, how);
        let is_ours = matches!(self.phase, Phase::Killed(_)) || self.facts.interrupted;
        let to_judge = match how {
            // By our own hand (LOCAL-2).
            _ if is_ours => None,
            Ended::Exited(_) => Some(how),
            Ended::Lost | Ended::Signaled(_) => {
                self.died(rank, how);
                None
            }
        };
        self.undrained.insert(rank, to_judge);
        self.coordinator.drain(Rank(rank));
        if let Phase::Killed(_) = self.phase {
            // As long as they end they are not held by the kernel.
            self.phase = Phase::Killed(Deadline::after(KILL_BOUND));
        }
    }

    /// Decides about a rank whose process returned, when all is here that it said: reports travel another way than the
    /// news of a process, and may arrive after it.
    fn drained(&mut self, rank: u32) {
        let Some(Some(how)) = self.undrained.remove(&rank) else {
            return;
        };
        let state = self.collector.ranks().get(rank as usize);
        let has_spoken =
            state.is_some_and(|state| state.failed.is_some() || (state.done && how.is_success()));
        if !has_spoken && !self.is_consequence(how) {
            self.died(rank, how);
        }
    }

    /// Whether a rank ended as one does that could not join, after bring-up had failed for all.
    fn is_consequence(&self, how: Ended) -> bool {
        let Ended::Exited(code) = how else {
            return false;
        };
        let told = self.facts.bring_up.as_ref();
        told.is_some_and(|told| i32::from(told.exit.code()) == code)
    }

    fn died(&mut self, rank: u32, how: Ended) {
        let process = self
            .ranks
            .processes()
            .iter()
            .find(|process| process.rank() == rank);
        let output =
            |look: fn(&Capture) -> Option<String>| process.and_then(|process| process.output(look));
        let panic = output(Capture::panic_text);
        let reason = process.map_or(DownReason::HungUp, |process| process.down_reason(how));
        let fate = Fate::from(&reason);
        self.coordinator.rank_down(Rank(rank), reason);
        let exit = match how {
            // The code of a panic is none of ours.
            Ended::Exited(code) => Exit::from_code(code).filter(|exit| *exit != Exit::Ok),
            Ended::Lost | Ended::Signaled(_) => None,
        };
        self.facts.deaths.push(Death {
            rank,
            how: how.to_string(),
            exit,
            said: panic.or_else(|| output(Capture::error_text)),
            fate,
        });
        self.end_within(GRACE);
    }

    fn interrupted(&mut self) {
        if self.facts.interrupted {
            self.kill();
            return;
        }
        self.facts.interrupted = true;
        self.ranks.signal_all(Signal::TERM);
        self.end_within(GRACE_INTERRUPTED);
    }

    fn reported(&mut self, rank: u32, bytes: &[u8]) {
        let failed_before = self.has_failed(rank);
        self.collector.take(rank, bytes);
        if self.bring_up.is_none()
            && self
                .collector
                .ranks()
                .iter()
                .all(|state| state.joined_us.is_some())
        {
            self.bring_up = Some(Clock::now().duration_since(self.started));
        }
        if !failed_before && self.has_failed(rank) {
            self.look_at_the_awaited(rank);
            self.end_within(GRACE);
        }
    }

    fn has_failed(&self, rank: u32) -> bool {
        self.collector
            .ranks()
            .get(rank as usize)
            .is_some_and(|state| state.failed.is_some())
    }

    /// A rank gave up waiting for others: see what their processes do while they are still there.
    fn look_at_the_awaited(&mut self, rank: u32) {
        let state = self.collector.ranks().get(rank as usize);
        let awaited = state.and_then(|state| {
            let kind = state.failed.as_ref()?.kind.as_ref()?;
            if let ErrorKind::Stalled { waiting_for, .. } = kind {
                return Some(waiting_for.clone());
            }
            if let ErrorKind::DeviceStalled { blamed, .. } = kind {
                return Some(blamed.clone());
            }
            None
        });
        for peer in awaited.unwrap_or_default() {
            self.look_at(peer.0);
        }
    }

    fn look_at(&mut self, rank: u32) {
        let process = self
            .ranks
            .processes()
            .iter()
            .find(|process| process.rank() == rank);
        if let Some(state) = process.and_then(|process| procstate::not_running(process.pid()))
            && self.facts.frozen.iter().all(|(known, _)| *known != rank)
        {
            self.facts.frozen.push((rank, state));
        }
    }

    fn bring_up_failed(&mut self, error: &RendezvousError) {
        self.arrivals.end();
        if self.facts.bring_up.is_none() {
            let exit = Exit::from_code(error.exit_code().into()).unwrap_or(Exit::Internal);
            self.facts.bring_up = Some(BringUp {
                exit,
                text: error.to_string(),
                help: error.help().to_owned(),
            });
        }
        self.end_within(GRACE);
    }

    /// Gives ranks this long to end by themselves, unless their time runs already.
    fn end_within(&mut self, grace: Duration) {
        if let Phase::Running(_) = self.phase {
            self.phase = Phase::Ending(Deadline::after(grace));
        }
    }

    /// How long each rank of which nothing was heard has waited for a processor so far.
    fn delays_now(&self) -> Vec<(u32, Duration)> {
        let silent = self.collector.silent();
        let processes = self.ranks.processes().iter();
        processes
            .filter(|one| silent.contains(&one.rank()) && one.ended().is_none())
            .filter_map(|one| Some((one.rank(), procstate::run_delay(one.pid())?)))
            .collect()
    }

    /// Whether a rank of which nothing was heard spent a good part of the last look waiting for a processor: then it is
    /// not silent, but slow.
    fn is_starved(&self) -> bool {
        let now = self.delays_now();
        self.delays.iter().any(|(rank, before)| {
            let now = now.iter().find(|(other, _)| other == rank);
            now.is_some_and(|(_, now)| now.saturating_sub(*before) > STARVED_LOOK / 4)
        })
    }

    fn kill(&mut self) {
        self.ranks.signal_all(Signal::KILL);
        self.phase = Phase::Killed(Deadline::after(KILL_BOUND));
    }

    /// The next harsher means; false where there is none left.
    fn escalate(&mut self) -> bool {
        match self.phase {
            Phase::Running(_) if self.is_starved() => {
                self.delays.clear();
                self.phase = Phase::Running(Deadline::after(self.patience));
                true
            }
            Phase::Running(_) if self.delays.is_empty() => {
                // Whether they get a processor at all is seen over a moment.
                self.delays = self.delays_now();
                self.phase = Phase::Running(Deadline::after(STARVED_LOOK));
                true
            }
            Phase::Running(_) => {
                self.facts.silence_s = Some(self.patience.as_secs());
                for rank in self.collector.silent() {
                    self.look_at(rank);
                }
                self.kill();
                true
            }
            Phase::Ending(_) => {
                self.kill();
                true
            }
            Phase::Killed(_) => false,
        }
    }

    fn finish(self, job: &Job, layout: &Layout) -> Finished {
        let elapsed = Clock::now().duration_since(self.started);
        let mut finished = Finished::new(
            job,
            layout,
            &self.collector,
            &self.facts,
            elapsed,
            self.bring_up,
        );
        // Ranks of a run that passes print nothing; what a library warns of there is worth a look.
        let blamed = finished
            .verdict
            .as_ref()
            .map_or(&[][..], |verdict| &verdict.blamed);
        finished.output = printed::last_lines(self.ranks.processes(), blamed);
        // Ranks first, so that none sees the control plane go before its own end.
        drop(self.ranks);
        self.coordinator.shutdown();
        finished
    }
}
