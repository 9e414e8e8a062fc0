//! The supervisor of a world of ranks: it waits for what happens to them, ends them where one failed, and keeps the facts
//! of which a verdict is made.
//!
//! It supervises the ranks of jobs and programs that this process started, and ranks that another launcher started, among
//! which this process is a guest: it owns no process of theirs then, and what it hears comes from the control plane. What
//! else differs is in [`Limits`], and in whether there are [`Jobs`]: ranks of jobs report, programs do not.
//!
//! SUPERVISOR-1: the loop ends, whatever ranks do: after the first failure or request to stop every wait has a deadline, and
//! after each comes a harsher means (grace, SIGTERM for programs, SIGKILL, giving up on a process that the kernel holds).
//! Without a failure ranks of jobs may be silent for the patience of the job.
//! SUPERVISOR-2: an end that we caused ourselves is never taken for a cause.

mod last;
mod silence;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use muster_comm::rendezvous::{Coordinator, CoordinatorEvent, DownReason};
use muster_comm::sync::Deadline;
use muster_comm::types::Rank;
use muster_comm::watch::judge::Fate;
use muster_comm::watch::{STARVED_EVERY, ToOwner};
use rustix::process::Signal;

use self::last::Last;
use crate::exit::Exit;
use crate::fail::Failure;
use crate::out;
use crate::run::Finished;
use crate::run::jobs::Jobs;
use crate::run::standing::Arrivals;
use crate::run::verdict::{BringUp, Death, Facts, Remark};
use crate::world::capture::Capture;
use crate::world::{self, Ended, RankProcess, Ranks};

/// How often the supervisor looks at the time at least.
const SLICE: Duration = Duration::from_secs(1);
/// Time for killed processes to end.
const KILL_BOUND: Duration = Duration::from_secs(3);
/// Time for the last words of ranks that have ended, and of the arbiter, to come through: the coordinator says when they have.
const DRAIN_BOUND: Duration = Duration::from_secs(30);
/// A wait that ended this much too late shows that this process did not run, or hardly.
const STOPPED: Duration = Duration::from_secs(1);

/// Time for ranks of jobs to end by themselves once one has failed: they learn of it within milliseconds.
pub(super) const GRACE: Duration = Duration::from_secs(1);
/// What a case may take besides waiting for its peers: computing what it should receive.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Prints a line of the arbiter's. Worlds that follow each other share a host: that it is starved is said once for all of them.
fn say(remark: Remark) {
    static STARVED: out::Again = out::Again::new();
    let (Remark::Suspect(line) | Remark::Starved(line)) = &remark;
    if matches!(remark, Remark::Suspect(_)) || STARVED.is_due(STARVED_EVERY) {
        out::note(&out::escaped(line));
    }
}

/// What reaches the supervisor.
#[derive(Debug)]
pub(super) enum Event {
    /// From the ranks, over the control plane.
    Control(CoordinatorEvent),
    /// From the kernel, about their processes, and from who interrupts us.
    Process(world::Event),
    /// From the rank that is a thread of this process, where one is.
    Thread(ThreadEvent),
}

/// What becomes of a rank that is a thread of this process.
#[derive(Debug)]
pub(super) enum ThreadEvent {
    /// It has said goodbye.
    Left,
    /// It cannot join.
    Refused(Failure),
    /// It has done its jobs, or has failed and said why.
    Worked {
        /// Whether it has done them.
        completely: bool,
    },
}

impl From<world::Event> for Event {
    fn from(event: world::Event) -> Self {
        Self::Process(event)
    }
}

/// The times of a supervision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Ranks of jobs of which nothing was heard for so long are silent.
    pub(super) patience: Duration,
    /// Time for ranks to end by themselves once one has failed.
    pub(super) grace: Duration,
    /// Time between SIGTERM and SIGKILL after the grace; `None`: SIGKILL at once.
    pub(super) asked: Option<Duration>,
    /// Time after a request to stop that came to us.
    pub(super) interrupted: Duration,
}

/// What is being done about the ranks.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Nothing: they run. The deadline is renewed with every event.
    Running(Deadline),
    /// Something failed; they may end by themselves, and say what they know.
    Ending(Deadline),
    /// They were asked to end.
    Asked(Deadline),
    /// They were killed; nothing but their end is of interest.
    Killed(Deadline),
}

impl Phase {
    const fn deadline(self) -> Deadline {
        match self {
            Self::Running(deadline)
            | Self::Ending(deadline)
            | Self::Asked(deadline)
            | Self::Killed(deadline) => deadline,
        }
    }
}

/// A world of ranks under supervision.
pub(super) struct Supervisor<'a> {
    pub(super) facts: Facts,
    pub(super) ranks: Ranks<Event>,
    pub(super) arrivals: Arrivals,
    /// The jobs of the ranks; `None` where they run a program.
    pub(super) jobs: Option<Jobs<'a>>,
    /// Folder for the dumps of programs that do not run.
    dumps: Option<&'a Path>,
    /// The rank that is a thread of this process has done its jobs.
    pub(super) thread_is_done: bool,
    coordinator: &'a Coordinator,
    limits: Limits,
    phase: Phase,
    /// Ranks whose processes have ended and of which there may be words to come; with how they ended, where that is to
    /// be judged by those.
    undrained: BTreeMap<u32, Option<Ended>>,
    /// How long threads that are waited for had waited for a processor when that was looked at, by thread.
    delays: Vec<(u32, Duration)>,
    /// How often ranks got more time to end.
    extensions: u32,
    last: Last,
}

impl<'a> Supervisor<'a> {
    pub(super) fn new(
        coordinator: &'a Coordinator,
        world_size: u32,
        ranks: Ranks<Event>,
        limits: Limits,
    ) -> Self {
        Self {
            facts: Facts::default(),
            ranks,
            arrivals: Arrivals::new(world_size),
            jobs: None,
            dumps: None,
            thread_is_done: false,
            coordinator,
            limits,
            phase: Phase::Running(Deadline::after(limits.patience)),
            undrained: BTreeMap::new(),
            delays: Vec::new(),
            extensions: 0,
            last: Last::default(),
        }
    }

    /// The ranks work on these.
    pub(super) fn with_jobs(mut self, jobs: Jobs<'a>) -> Self {
        self.jobs = Some(jobs);
        self
    }

    /// Dumps of programs that do not run are written there.
    pub(super) fn with_dumps(mut self, folder: Option<&'a Path>) -> Self {
        self.dumps = folder;
        self
    }

    /// Waits for the end of the ranks, of a guest's work, or of its time.
    pub(super) fn supervise(&mut self) {
        while !self.is_over() {
            let deadline = self.phase.deadline();
            let looks = [self.arrivals.next(), self.last.next].into_iter().flatten();
            let until = looks
                .chain([deadline, Deadline::after(SLICE)])
                .min_by_key(Deadline::left)
                .unwrap_or(deadline);
            let slice = Deadline::after(until.left());
            let event = self.ranks.next(slice);
            self.forgive(slice);
            let is_late = event.is_none() && self.phase.deadline().passed();
            if let Some(event) = event {
                self.take(event);
            }
            if is_late && !self.escalate() {
                break;
            }
            self.arrivals.look(self.ranks.processes(), self.coordinator);
            if self.jobs.is_none() {
                self.look_at_the_last();
            }
        }
        let drain = Deadline::after(DRAIN_BOUND);
        while !self.undrained.is_empty() {
            let Some(event) = self.ranks.next(drain) else {
                break;
            };
            self.take(event);
        }
    }

    /// A request to stop that reached a guest may have been the answer of its launcher to a failure of other ranks.
    pub(super) fn take_back_interruption(&mut self) {
        let have_failed = self.jobs.as_ref().is_some_and(Jobs::have_failed);
        if have_failed || !self.facts.deaths.is_empty() {
            self.facts.interrupted = false;
        }
    }

    /// What came of the jobs.
    pub(super) fn finish(&self) -> Vec<Finished> {
        let jobs = self.jobs.iter();
        jobs.flat_map(|jobs| jobs.finish(&self.facts, self.is_guest()))
            .collect()
    }

    /// Whether the ranks are another launcher's.
    fn is_guest(&self) -> bool {
        self.ranks.processes().is_empty()
    }

    fn is_over(&self) -> bool {
        if self.is_guest() {
            return self.thread_is_done && self.jobs.as_ref().is_none_or(Jobs::are_done);
        }
        self.ranks.all_ended()
    }

    /// Time in which this process did not run counts against nobody.
    fn forgive(&mut self, slice: Deadline) {
        if slice.elapsed().saturating_sub(slice.budget()) > STOPPED {
            self.renew();
        }
    }

    /// While nothing has failed, ranks have all their time from now on.
    fn renew(&mut self) {
        if let Phase::Running(_) = self.phase {
            self.delays.clear();
            self.phase = Phase::Running(Deadline::after(self.limits.patience));
        }
    }

    fn take(&mut self, event: Event) {
        self.renew();
        match event {
            Event::Control(event) => self.heard(event),
            Event::Process(world::Event::Ended { rank, how }) => self.ended(rank, how),
            Event::Process(world::Event::Interrupted) => self.interrupted(),
            Event::Thread(ThreadEvent::Left) => {}
            Event::Thread(ThreadEvent::Refused(failure)) => self.bring_up_failed(BringUp {
                exit: failure.exit,
                text: failure.message,
                help: failure.help.unwrap_or_default(),
            }),
            Event::Thread(ThreadEvent::Worked { completely }) => {
                self.thread_is_done = completely;
                if !completely {
                    self.end_ranks();
                }
            }
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the other events are about strangers, or come with others that say more"
    )]
    fn heard(&mut self, event: CoordinatorEvent) {
        match event {
            CoordinatorEvent::Drained { rank } => self.drained(rank.0),
            CoordinatorEvent::Failed(error) => {
                self.arrivals.end();
                // A program hears of it too, and says what it makes of that.
                if self.jobs.is_some() {
                    self.bring_up_failed(BringUp {
                        exit: Exit::from_code(error.exit_code().into()).unwrap_or(Exit::Internal),
                        text: error.to_string(),
                        help: error.help().to_owned(),
                    });
                }
            }
            CoordinatorEvent::Joined { rank } => self.arrivals.note(rank.0),
            CoordinatorEvent::Left { rank } => self.arrivals.note_left(rank.0),
            CoordinatorEvent::Lost { rank, reason } if self.is_guest() => self.lost(rank, &reason),
            CoordinatorEvent::Report { rank, bytes } => self.reported(rank.0, &bytes),
            CoordinatorEvent::Watch { bytes } => {
                let remark = ToOwner::decode(&bytes).and_then(|told| self.facts.hear(told));
                remark.into_iter().for_each(say);
                if self.jobs.is_none() {
                    self.found();
                }
            }
            // Aborts come with a report of the rank itself, what becomes of a process of ours shows in its end, and
            // strangers are no business of ours.
            _ => {}
        }
    }

    fn reported(&mut self, rank: u32, bytes: &[u8]) {
        let jobs = self.jobs.as_mut();
        if let Some(awaited) = jobs.and_then(|jobs| jobs.reported(rank, bytes)) {
            // It gave up waiting for them: see what their processes do while they are still there.
            for peer in awaited {
                self.look_at(peer);
            }
            self.end_ranks();
        }
    }

    /// The arbiter has told something of a program.
    fn found(&mut self) {
        self.keep_dumps();
        let found = self.facts.found.as_ref();
        if found.is_some_and(|found| found.is_final()) {
            self.end_ranks();
        }
    }

    /// A rank of another launcher is gone.
    fn lost(&mut self, rank: Rank, reason: &DownReason) {
        let has_failed = |jobs: &Jobs<'_>| jobs.has_failed(rank.0);
        if !self.jobs.as_ref().is_some_and(has_failed) {
            self.facts.deaths.push(Death {
                rank: rank.0,
                how: reason.to_string(),
                exit: None,
                said: None,
                fate: Fate::from(reason),
            });
        }
        self.end_ranks();
    }

    fn ended(&mut self, rank: u32, how: Ended) {
        self.ranks.note_end(rank, how);
        let is_ours =
            matches!(self.phase, Phase::Asked(_) | Phase::Killed(_)) || self.facts.interrupted;
        let to_judge = match how {
            // By our own hand (SUPERVISOR-2).
            _ if is_ours => None,
            Ended::Exited(_) if self.jobs.is_some() => Some(how),
            Ended::Exited(_) | Ended::Lost | Ended::Signaled(_) => {
                self.went(rank, how);
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

    /// Decides about a rank of a job whose process returned, when all is here that it said: reports travel another way than
    /// the news of a process, and may arrive after it.
    fn drained(&mut self, rank: u32) {
        let Some(Some(how)) = self.undrained.remove(&rank) else {
            return;
        };
        let jobs = self.jobs.as_ref();
        let has_spoken = jobs.is_some_and(|jobs| jobs.explain(rank, how));
        if !has_spoken && !self.is_consequence(how) {
            self.went(rank, how);
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

    /// A rank ended by itself, and nothing that it said explains it.
    fn went(&mut self, rank: u32, how: Ended) {
        let process = self.process(rank);
        let reason = process.map_or(DownReason::HungUp, |process| process.down_reason(how));
        let fate = Fate::from(&reason);
        self.coordinator.rank_down(Rank(rank), reason);
        // A program that returns has done its work; a rank of a job says so before.
        if self.jobs.is_none() && how.is_success() {
            return;
        }
        let output =
            |look: fn(&Capture) -> Option<String>| process.and_then(|process| process.output(look));
        let panic = output(Capture::panic_text);
        let said = panic.or_else(|| output(Capture::error_text));
        if self.jobs.is_none() && self.facts.deaths.is_empty() {
            self.facts.stopped = self.look_for_stopped();
        }
        let exit = match how {
            // The code of a panic is none of ours.
            Ended::Exited(code) => Exit::from_code(code).filter(|exit| *exit != Exit::Ok),
            Ended::Lost | Ended::Signaled(_) => None,
        };
        self.facts.deaths.push(Death {
            rank,
            how: how.to_string(),
            exit,
            said,
            fate,
        });
        self.end_ranks();
    }

    fn bring_up_failed(&mut self, error: BringUp) {
        self.facts.bring_up.get_or_insert(error);
        self.end_ranks();
    }

    fn interrupted(&mut self) {
        if self.facts.interrupted {
            // A guest has nobody to kill, and launchers repeat themselves.
            if !self.is_guest() {
                self.kill();
            }
            return;
        }
        self.facts.interrupted = true;
        self.ranks.signal_all(Signal::TERM);
        let left = match self.phase {
            Phase::Running(_) => Duration::ZERO,
            Phase::Ending(deadline) => deadline.left(),
            Phase::Asked(_) | Phase::Killed(_) => return,
        };
        self.phase = Phase::Asked(Deadline::after(left.max(self.limits.interrupted)));
    }

    /// Gives ranks time to end by themselves, unless it runs already.
    fn end_ranks(&mut self) {
        if let Phase::Running(_) = self.phase {
            self.delays = self.delays_of_ending();
            self.phase = Phase::Ending(self.grace());
        }
    }

    fn kill(&mut self) {
        self.ranks.signal_all(Signal::KILL);
        self.phase = Phase::Killed(Deadline::after(KILL_BOUND));
    }

    /// The next harsher means; false where there is none left.
    fn escalate(&mut self) -> bool {
        if matches!(self.phase, Phase::Running(_)) && !self.is_silent() {
            return true;
        }
        if self.is_guest() {
            return false;
        }
        if matches!(self.phase, Phase::Ending(_)) && self.have_starved() {
            self.phase = Phase::Ending(self.grace());
            return true;
        }
        match (self.phase, self.limits.asked) {
            (Phase::Ending(_), Some(time)) => {
                self.ranks.signal_all(Signal::TERM);
                self.phase = Phase::Asked(Deadline::after(time));
            }
            (Phase::Running(_) | Phase::Ending(_) | Phase::Asked(_), _) => self.kill(),
            (Phase::Killed(_), _) => return false,
        }
        true
    }

    /// A rank's process, where it is one of ours.
    pub(super) fn process(&self, rank: u32) -> Option<&RankProcess> {
        let mut processes = self.ranks.processes().iter();
        processes.find(|process| process.rank() == rank)
    }

    /// The processes that have not ended.
    fn running(&self) -> impl Iterator<Item = &RankProcess> {
        let processes = self.ranks.processes().iter();
        processes.filter(|process| process.ended().is_none())
    }
}
