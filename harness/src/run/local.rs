//! One matrix whose ranks are processes of this host, started and watched by this one.
//!
//! LOCAL-1: the loop ends, whatever ranks do: every wait has a deadline, and after each there is a
//! harsher means (a second's grace, SIGKILL, giving up on a process that the kernel holds).
//! LOCAL-2: an end that we caused ourselves is never taken for a cause.

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
use rustix::process::Signal;

use crate::check::collect::Collector;
use crate::check::job::{Job, Transport};
use crate::exit::Exit;
use crate::fail::Failure;
use crate::run::launcher::{Event, contract};
use crate::run::verdict::{BringUp, Death, Facts};
use crate::run::{Finished, Progress, catalogue, printed, procstate, pump};
use crate::world::capture::Capture;
use crate::world::guard::Guard;
use crate::world::signals::Interrupts;
use crate::world::{self, Ended, Ranks, Spawn, limits, ranks};

/// Time for ranks to end by themselves once one has failed: they learn of it within milliseconds.
const GRACE: Duration = Duration::from_secs(1);
/// The same after a request to stop.
const GRACE_INTERRUPTED: Duration = Duration::from_millis(500);
/// Time for killed processes to end.
const KILL_BOUND: Duration = Duration::from_secs(3);
/// Time for the last reports of ranks that have ended to come through.
const DRAIN: Duration = Duration::from_millis(250);
/// Time for a rank's goodbye, after its process has ended, to come through the coordinator.
const GOODBYE: Duration = Duration::from_millis(100);
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
    let bytes_a_rank = match (&job.bench, &job.moe) {
        (Some(plan), _) => plan.bytes_a_rank(layout),
        (None, Some(plan)) => plan.bytes_a_rank(),
        (None, None) => catalogue(job, layout).bytes_a_rank(),
    };
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
        collector: Collector::new(catalogue(job, layout), world_size),
        facts: Facts::default(),
        phase: Phase::Running(Deadline::after(patience)),
        patience,
        started,
        bring_up: None,
        control: vec![Control::Absent; world_size as usize],
        unexplained: Vec::new(),
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

/// A rank on the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Control {
    /// Never came, so far.
    Absent,
    /// Is there.
    Joined,
    /// Said goodbye.
    Left,
    /// Went without a goodbye.
    Lost,
}

struct Driver {
    collector: Collector,
    facts: Facts,
    phase: Phase,
    patience: Duration,
    started: std::time::Instant,
    /// Time until every rank was through its first barrier.
    bring_up: Option<Duration>,
    control: Vec<Control>,
    /// Ranks whose process returned, until it is known whether their work was done.
    unexplained: Vec<(u32, Ended, Deadline)>,
    ranks: Ranks<Event>,
    coordinator: Coordinator,
}

impl Driver {
    fn drive(&mut self, progress: &mut dyn FnMut(Progress)) {
        while !(self.ranks.all_ended() && self.unexplained.is_empty()) {
            let deadline = self
                .unexplained
                .iter()
                .map(|(_, _, deadline)| *deadline)
                .chain([self.phase.deadline()])
                .min_by_key(Deadline::left)
                .unwrap_or_else(|| self.phase.deadline());
            let event = self.ranks.next(deadline);
            let is_late = event.is_none() && self.phase.deadline().passed();
            if let Some(event) = event {
                self.take(event, progress);
            }
            if is_late && !self.escalate() {
                break;
            }
            self.explain();
        }
        self.drain(progress);
    }

    fn take(&mut self, event: Event, progress: &mut dyn FnMut(Progress)) {
        if let Phase::Running(_) = self.phase {
            self.phase = Phase::Running(Deadline::after(self.patience));
        }
        match event {
            Event::Process(world::Event::Ended { rank, how }) => self.ended(rank, how),
            Event::Process(world::Event::Interrupted) => self.interrupted(),
            Event::Control(CoordinatorEvent::Report { rank, bytes }) => {
                self.reported(rank.0, &bytes);
                let (answers, expected) = self.collector.progress();
                progress(Progress {
                    answers,
                    expected,
                    measured: self.collector.take_measured(),
                    dispatched: self.collector.take_dispatched(),
                });
            }
            Event::Control(CoordinatorEvent::Joined { rank }) => self.note(rank, Control::Joined),
            Event::Control(CoordinatorEvent::Left { rank }) => self.note(rank, Control::Left),
            Event::Control(CoordinatorEvent::Lost { rank, .. }) => self.note(rank, Control::Lost),
            Event::Control(CoordinatorEvent::Failed(error)) => self.bring_up_failed(&error),
            Event::Control(CoordinatorEvent::Watch { bytes }) => self.facts.hear(&bytes),
            // Aborts come with a report of the rank itself, strangers are no business of ours.
            Event::Control(_) => {}
        }
    }

    fn note(&mut self, rank: Rank, control: Control) {
        if let Some(known) = self.control.get_mut(rank.index()) {
            *known = control;
        }
    }

    fn ended(&mut self, rank: u32, how: Ended) {
        self.ranks.note_end(rank, how);
        match (self.phase, how) {
            // By our own hand (LOCAL-2).
            (Phase::Killed(_), _) => {}
            _ if self.facts.interrupted => {}
            (_, Ended::Exited(_)) => {
                self.unexplained.push((rank, how, Deadline::after(GOODBYE)));
            }
            (_, Ended::Lost | Ended::Signaled(_)) => self.died(rank, how),
        }
    }

    /// Decides about ranks whose process returned: reports and goodbyes travel another way than
    /// the news of a process, and may arrive after it.
    fn explain(&mut self) {
        for (rank, how, deadline) in std::mem::take(&mut self.unexplained) {
            let index = rank as usize;
            let has_spoken =
                self.collector.ranks().get(index).is_some_and(|state| {
                    state.failed.is_some() || (state.done && how.is_success())
                });
            let is_gone = self.control.get(index) == Some(&Control::Lost);
            if has_spoken {
                continue;
            }
            if is_gone || deadline.passed() {
                self.died(rank, how);
            } else {
                self.unexplained.push((rank, how, deadline));
            }
        }
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
            sigkill: how == Ended::Signaled(9),
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

    fn kill(&mut self) {
        self.ranks.signal_all(Signal::KILL);
        self.phase = Phase::Killed(Deadline::after(KILL_BOUND));
    }

    /// The next harsher means; false where there is none left.
    fn escalate(&mut self) -> bool {
        match self.phase {
            Phase::Running(deadline) => {
                self.facts.silence_s = Some(deadline.budget().as_secs());
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

    /// Takes in what ranks said before they ended and what has not come through yet.
    fn drain(&mut self, progress: &mut dyn FnMut(Progress)) {
        let deadline = Deadline::after(DRAIN);
        while self.control.contains(&Control::Joined) {
            let Some(event) = self.ranks.next(deadline) else {
                return;
            };
            self.take(event, progress);
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
