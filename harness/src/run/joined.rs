//! Matrices on ranks that another launcher started: torchrun, mpirun, srun and their kin.
//!
//! Every process is one rank and runs the same command. Rank 0 serves the rendezvous, collects what
//! ranks report, and prints; the others print nothing unless they fail. At the end all return the
//! same code, after the report is out: launchers end the whole job when one rank fails.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use muster_comm::algo::Table;
use muster_comm::config::Environment;
use muster_comm::launch::{Contract, Detected, Identity, LaunchError, detect};
use muster_comm::layout::Layout;
use muster_comm::rendezvous::CoordinatorEvent;
use muster_comm::sync::{Clock, Deadline};
use muster_comm::watch::judge::Fate;
use muster_comm::world::{BringUpError, FromEnvError, JoinOptions, Transport as Links, World};

use crate::check::collect::Collector;
use crate::exit::Exit;
use crate::fail::Failure;
use crate::out;
use crate::run::job::{Job, Transport};
use crate::run::verdict::{BringUp, Death, Facts};
use crate::run::{Finished, Progress, pump, rank};
use crate::world::signals::Interrupts;

/// Time for ranks to say what they know once one has failed.
const GRACE: Duration = Duration::from_secs(1);
/// Time for the news of a death to arrive after the request to stop that a launcher sends to all
/// ranks because of it.
const NEWS: Duration = Duration::from_millis(300);
/// Time for the end of all ranks after the report is out.
const FAREWELL: Duration = Duration::from_secs(5);
/// What a case may take besides waiting for its peers.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often signals are looked for while nothing else happens.
const TURN: Duration = Duration::from_millis(50);

/// Who this process is, if a launcher started it as a rank.
///
/// # Errors
/// A failure of class USAGE where the environment contradicts itself.
pub fn identity(
    environment: &Environment,
    launcher: Option<Contract>,
) -> Result<Option<Identity>, Failure> {
    if let Err(errors) = environment.check() {
        let all: Vec<String> = errors.iter().map(ToString::to_string).collect();
        return Err(Failure::usage(all.join("; ")));
    }
    let detected = detect(environment, launcher)
        .map_err(|error: LaunchError| Failure::usage(error.to_string()))?;
    match detected {
        Detected::Identity(identity) => Ok(Some(identity)),
        Detected::PerNode(node) => Err(Failure::usage(format!(
            "{} starts one process a node, and verify joins processes that are one rank each",
            node.source.contract
        ))
        .with_help("start the ranks of each node with torchrun, mpirun or srun")),
        Detected::Standalone { notes } => {
            for note in notes {
                out::note(&note);
            }
            Ok(None)
        }
    }
}

/// How a rank joins, with the settings of a job.
///
/// # Errors
/// A failure of class USAGE where the environment lacks or contradicts something, RESOURCE where
/// the job's secret is not to be had.
pub fn options(
    environment: &Environment,
    identity: &Identity,
    job: &Job,
) -> Result<JoinOptions, Failure> {
    let mut options = JoinOptions::from_identity(environment, identity)
        .map_err(|error: FromEnvError| Failure::of(error.exit_code(), &error, error.help()))?;
    options.deadline = job.deadline();
    options.bring_up = job.deadline();
    options.pin |= job.pin;
    if let Some(rules) = &job.rules {
        let table = Table::with_overrides(rules);
        options.algo_table = Some(table.map_err(|error| Failure::usage(error.to_string()))?);
    }
    options.transport = match job.transport {
        Transport::Auto => options.transport,
        Transport::Shm => Links::Shm,
        Transport::Tcp => Links::Tcp,
    };
    Ok(options)
}

/// The failure that an error of bring-up is.
#[must_use]
pub fn bring_up_failure(error: &BringUpError) -> Failure {
    Failure::of(error.exit_code(), error, error.help())
}

/// Runs jobs that all have this world's size as one of its ranks. `publish` is called on rank 0
/// with what came of them; it prints, and says how the whole run ended.
///
/// # Errors
/// If the ranks do not come together, or the report cannot be written.
pub fn run(
    jobs: &[(Job, Layout)],
    environment: &Environment,
    identity: &Identity,
    progress: &mut dyn FnMut(usize, Progress),
    publish: &mut dyn FnMut(Vec<Finished>) -> Result<Exit, Failure>,
) -> Result<Exit, Failure> {
    let started = Clock::now();
    let Some((first, _)) = jobs.first() else {
        return Err(Failure::internal("no matrix to run"));
    };
    let options = options(environment, identity, first)?;
    if identity.rank.0 != 0 {
        let world = World::join(options).map_err(|error| bring_up_failure(&error))?;
        return follow(&world, jobs, started);
    }
    // Only here: on the other ranks a signal does what it always does, and ends them at once.
    let interrupts = Interrupts::install()?;
    let coordinator = options
        .serve()
        .map_err(|error| bring_up_failure(&BringUpError::from(error)))?
        .ok_or_else(|| Failure::usage("these ranks report to another launcher of ours"))?;
    let (sender, events) = channel();
    pump::start(&coordinator, sender.clone(), Event::Control)?;
    let verdict = lead(options, jobs.to_vec(), started, sender)?;
    let mut desk = Desk::new(jobs, &interrupts);
    desk.attend(&events, progress);
    let is_over = desk.worker_done;
    let exit = publish(desk.finish(jobs))?;
    if is_over && verdict.send(exit).is_ok() {
        wait_for_farewell(&events);
    }
    Ok(exit)
}

/// The way of every rank but the first one.
fn follow(world: &World, jobs: &[(Job, Layout)], started: Instant) -> Result<Exit, Failure> {
    for (job, layout) in jobs {
        rank::run(world, job, layout, started, &mut |bytes| {
            world.report(bytes)
        })
        .inspect_err(
            // Rank 0 reports first: a launcher may end all ranks as soon as one of them fails.
            |_| Clock::pause(GRACE),
        )?;
    }
    // The common code comes once the report is out.
    let common = world
        .everyone()
        .and_then(|everyone| everyone.broadcast_object::<u8>(None, 0))
        .map_err(|error| Failure::new(Exit::PeerDead, error.to_string()).with_help(error.help()))?;
    world.leave();
    Ok(Exit::from_code(common.into()).unwrap_or(Exit::Internal))
}

/// What reaches the desk of rank 0.
#[derive(Debug)]
enum Event {
    Control(CoordinatorEvent),
    /// The rank in this process cannot join.
    Refused(Failure),
    /// The rank in this process has done its jobs, or has failed and said why.
    Worked {
        completely: bool,
    },
    /// It has said goodbye.
    Gone,
}

/// Starts the rank that lives in rank 0's process; it waits for the verdict at the end.
fn lead(
    options: JoinOptions,
    jobs: Vec<(Job, Layout)>,
    started: Instant,
    events: Sender<Event>,
) -> Result<Sender<Exit>, Failure> {
    let (verdict, wait_for_verdict) = channel::<Exit>();
    let work = move || {
        let world = match World::join(options) {
            Ok(world) => world,
            Err(error) => {
                let _ = events.send(Event::Refused(bring_up_failure(&error)));
                return;
            }
        };
        let completely = jobs.iter().all(|(job, layout)| {
            let report = &mut |bytes: &[u8]| world.report(bytes);
            rank::run(&world, job, layout, started, report).is_ok()
        });
        let _ = events.send(Event::Worked { completely });
        // The desk drops its end where there is nothing to tell the others.
        if let Ok(exit) = wait_for_verdict.recv() {
            let told = world
                .everyone()
                .and_then(|everyone| everyone.broadcast_object(Some(&exit.code()), 0));
            if told.is_ok() {
                world.leave();
            }
        }
        let _ = events.send(Event::Gone);
    };
    std::thread::Builder::new()
        .name("muster-rank-0".to_owned())
        .spawn(work)
        .map_err(|error| Failure::resource(format!("a thread cannot be started: {error}")))?;
    Ok(verdict)
}

fn wait_for_farewell(events: &Receiver<Event>) {
    let deadline = Deadline::after(FAREWELL);
    while !deadline.passed() {
        match events.recv_timeout(deadline.left()) {
            Ok(Event::Gone) | Err(_) => return,
            Ok(Event::Control(_) | Event::Refused(_) | Event::Worked { .. }) => {}
        }
    }
}

/// Rank 0's second self: takes in what all ranks report.
struct Desk<'a> {
    collectors: Vec<Collector>,
    /// Which job each rank works on.
    at: Vec<usize>,
    facts: Facts,
    interrupts: &'a Interrupts,
    started: Instant,
    /// When the last report on each job came.
    ended: Vec<Option<Instant>>,
    /// When all ranks were through the first barrier.
    joined: Option<Instant>,
    worker_done: bool,
    worker_failed: bool,
    deadline: Deadline,
    patience: Duration,
    ending: bool,
}

impl<'a> Desk<'a> {
    fn new(jobs: &[(Job, Layout)], interrupts: &'a Interrupts) -> Self {
        let world_size = jobs.first().map_or(0, |(job, _)| job.matrix.world_size);
        let patience = jobs
            .first()
            .map_or(PATIENCE, |(job, _)| job.deadline().saturating_add(PATIENCE));
        Self {
            collectors: jobs
                .iter()
                .map(|(job, layout)| Collector::new(job.work.catalogue(layout), world_size))
                .collect(),
            at: vec![0; world_size as usize],
            facts: Facts::default(),
            interrupts,
            started: Clock::now(),
            ended: vec![None; jobs.len()],
            joined: None,
            worker_done: false,
            worker_failed: false,
            deadline: Deadline::after(patience),
            patience,
            ending: false,
        }
    }

    /// Takes in events until every rank has done every job, or one has failed and the others have
    /// had time to say what they know.
    fn attend(&mut self, events: &Receiver<Event>, progress: &mut dyn FnMut(usize, Progress)) {
        while !self.is_complete() && !self.deadline.passed() {
            match events.recv_timeout(self.deadline.left().min(TURN)) {
                Ok(event) => {
                    if !self.ending {
                        self.deadline = Deadline::after(self.patience);
                    }
                    self.take(event, progress);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if self.interrupts.count() > 0 && !self.facts.interrupted {
                // Whether this is the launcher's answer to a death is known in a moment.
                self.facts.interrupted = true;
                self.end_within(NEWS);
            }
        }
        if self.deadline.passed() && !self.ending {
            self.facts.silence_s = Some(self.patience.as_secs());
        }
        if !self.facts.deaths.is_empty() || self.collectors.iter().any(Collector::has_failure) {
            self.facts.interrupted = false;
        }
    }

    fn is_complete(&self) -> bool {
        self.worker_done && self.at.iter().all(|at| *at == self.collectors.len())
    }

    fn take(&mut self, event: Event, progress: &mut dyn FnMut(usize, Progress)) {
        match event {
            Event::Control(CoordinatorEvent::Report { rank, bytes }) => {
                self.reported(rank.index(), &bytes, progress);
            }
            Event::Control(CoordinatorEvent::Lost { rank, reason }) => {
                let failed = self.collectors.iter().any(|collector| {
                    collector
                        .ranks()
                        .get(rank.index())
                        .is_some_and(|state| state.failed.is_some())
                });
                if !failed {
                    self.facts.deaths.push(Death {
                        rank: rank.0,
                        how: reason.to_string(),
                        exit: None,
                        said: None,
                        fate: Fate::from(&reason),
                    });
                }
                self.end_within(GRACE);
            }
            Event::Control(CoordinatorEvent::Failed(error)) => {
                self.not_together(error.exit_code(), error.to_string(), error.help());
            }
            Event::Refused(failure) => {
                let help = failure.help.clone().unwrap_or_default();
                self.not_together(failure.exit.code(), failure.message, &help);
            }
            Event::Worked { completely } => {
                self.worker_done = completely;
                self.worker_failed = !completely;
                if self.worker_failed {
                    self.end_within(GRACE);
                }
            }
            Event::Control(CoordinatorEvent::Watch { bytes }) => self.facts.hear(&bytes),
            Event::Control(_) | Event::Gone => {}
        }
    }

    fn not_together(&mut self, code: u8, text: String, help: &str) {
        let exit = Exit::from_code(code.into()).unwrap_or(Exit::Internal);
        let error = BringUp {
            exit,
            text,
            help: help.to_owned(),
        };
        self.facts.bring_up.get_or_insert(error);
        self.end_within(GRACE);
    }

    fn reported(&mut self, rank: usize, bytes: &[u8], progress: &mut dyn FnMut(usize, Progress)) {
        let Some(at) = self.at.get_mut(rank) else {
            return;
        };
        let Some(collector) = self.collectors.get_mut(*at) else {
            return;
        };
        let job = *at;
        collector.take(u32::try_from(rank).unwrap_or(u32::MAX), bytes);
        let state = collector.ranks().get(rank);
        let failed = state.is_some_and(|state| state.failed.is_some());
        if state.is_some_and(|state| state.done) {
            *at += 1;
        }
        self.ended[job] = Some(Clock::now());
        if self.joined.is_none() && collector.all_joined() {
            self.joined = Some(Clock::now());
        }
        progress(job, Progress::of(collector));
        if failed {
            self.end_within(GRACE);
        }
    }

    fn end_within(&mut self, grace: Duration) {
        if !self.ending {
            self.ending = true;
            self.deadline = Deadline::after(grace);
        }
    }

    /// What came of the jobs that began. One that failed is the last.
    fn finish(&self, jobs: &[(Job, Layout)]) -> Vec<Finished> {
        let mut all = Vec::new();
        let mut begun = self.started;
        for (index, ((job, layout), collector)) in jobs.iter().zip(&self.collectors).enumerate() {
            let ended = self.ended[index].unwrap_or_else(Clock::now);
            let elapsed = ended.saturating_duration_since(begun);
            let bring_up = self
                .joined
                .filter(|_| index == 0)
                .map(|joined| joined.saturating_duration_since(self.started));
            // A cause belongs to the job that it interrupted.
            let facts = if collector.all_done() {
                Facts::default()
            } else {
                self.facts.clone()
            };
            let finished = Finished::new(job, layout, collector, &facts, elapsed, bring_up);
            let is_aborted = finished.verdict.is_some();
            all.push(finished);
            if is_aborted {
                break;
            }
            begun = ended;
        }
        all
    }
}
