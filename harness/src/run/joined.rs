//! Matrices on ranks that another launcher started: torchrun, mpirun, srun and their kin.
//!
//! Every process is one rank and runs the same command. Rank 0 serves the rendezvous, collects what
//! ranks report, and prints; the others print nothing unless they fail. At the end all return the
//! same code, after the report is out: launchers end the whole job when one rank fails.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam::channel::{Sender, unbounded};
use muster_comm::algo::Table;
use muster_comm::config::Environment;
use muster_comm::launch::{
    Contract, Detected, ExchangeError, Identity, LaunchError, detect, own_address,
};
use muster_comm::layout::FrameworkLayout;
use muster_comm::rendezvous::Endpoint;
use muster_comm::sync::{Clock, Deadline};
use muster_comm::world::{
    BRING_UP_DEFAULT, BringUpError, FromEnvError, JoinOptions, Transport as Links, World,
};

use crate::exit::Exit;
use crate::fail::Failure;
use crate::out;
use crate::run::job::{Job, Transport};
use crate::run::jobs::Jobs;
use crate::run::launcher::pass_on;
use crate::run::supervisor::{Event, GRACE, Limits, PATIENCE, Supervisor, ThreadEvent};
use crate::run::{Finished, Progress, binding, rank};
use crate::world::Ranks;
use crate::world::signals::Interrupts;

/// Time for the news of a death to arrive after the request to stop that a launcher sends to all
/// ranks because of it.
const NEWS: Duration = Duration::from_millis(300);
/// Time for the end of all ranks after the report is out.
const FAREWELL: Duration = Duration::from_secs(5);

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
    options.bind = job.bind.unwrap_or(options.bind);
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

/// Where ranks agree to meet by the launcher's means, if they do not know it: for processes that each of them starts one after the
/// other, which cannot ask the launcher each for itself.
///
/// # Errors
/// A failure of the class that the launcher's answer is in.
pub fn meeting(identity: &Identity) -> Result<Option<Endpoint>, Failure> {
    let (None, Some(exchange)) = (&identity.endpoint, &identity.exchange) else {
        return Ok(None);
    };
    let failure = |error: ExchangeError| Failure::of(error.exit_code(), &error, error.help());
    let deadline = Deadline::after(BRING_UP_DEFAULT);
    if identity.rank.0 != 0 {
        return exchange
            .ask(identity.rank, deadline)
            .map(Some)
            .map_err(failure);
    }
    let address = own_address().map_err(failure)?;
    // A port that was free a moment ago; the processes will listen there in turn.
    let free = TcpListener::bind((address, 0)).and_then(|listener| listener.local_addr());
    let endpoint = free
        .map(Endpoint::from)
        .map_err(|error| Failure::resource(format!("cannot listen on {address}: {error}")))?;
    exchange
        .tell(&endpoint, deadline)
        .map(|()| Some(endpoint))
        .map_err(failure)
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
    jobs: &[(Job, FrameworkLayout)],
    environment: &Environment,
    identity: &Identity,
    progress: &mut dyn FnMut(usize, Progress),
    publish: &mut dyn FnMut(Vec<Finished>) -> Result<Exit, Failure>,
) -> Result<Exit, Failure> {
    let started = Clock::now();
    let Some((first, _)) = jobs.first() else {
        return Err(Failure::internal("no matrix to run"));
    };
    let mut options = options(environment, identity, first)?;
    if identity.rank.0 != 0 {
        let world = World::join(options).map_err(|error| bring_up_failure(&error))?;
        return follow(&world, jobs, started);
    }
    binding::announce_left_alone(options.bind, identity.source.contract.name());
    // Only here: on the other ranks a signal does what it always does, and ends them at once.
    let interrupts = Arc::new(Interrupts::install()?);
    let coordinator = options
        .serve()
        .map_err(|error| bring_up_failure(&error))?
        .ok_or_else(|| Failure::usage("these ranks report to another launcher of ours"))?;
    let ranks = Ranks::of_others(interrupts)?;
    pass_on(&coordinator, ranks.sender())?;
    let verdict = lead(options, jobs.to_vec(), started, ranks.sender())?;
    let limits = Limits {
        patience: first.deadline().saturating_add(PATIENCE),
        grace: GRACE,
        asked: None,
        interrupted: NEWS,
    };
    let all = jobs.iter().map(|(job, layout)| (job, layout));
    let mut supervisor = Supervisor::new(&coordinator, first.matrix.world_size, ranks, limits)
        .with_jobs(Jobs::new(all, Clock::now(), progress));
    supervisor.supervise();
    supervisor.take_back_interruption();
    let exit = publish(supervisor.finish())?;
    if supervisor.thread_is_done && verdict.send(exit).is_ok() {
        wait_for_farewell(&supervisor.ranks);
    }
    Ok(exit)
}

/// The way of every rank but the first one.
fn follow(
    world: &World,
    jobs: &[(Job, FrameworkLayout)],
    started: Instant,
) -> Result<Exit, Failure> {
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

/// Starts the rank that lives in rank 0's process; it waits for the verdict at the end.
fn lead(
    options: JoinOptions,
    jobs: Vec<(Job, FrameworkLayout)>,
    started: Instant,
    events: Sender<Event>,
) -> Result<Sender<Exit>, Failure> {
    let (verdict, wait_for_verdict) = unbounded::<Exit>();
    let work = move || {
        let world = match World::join(options) {
            Ok(world) => world,
            Err(error) => {
                let refused = ThreadEvent::Refused(bring_up_failure(&error));
                let _ = events.send(Event::Thread(refused));
                return;
            }
        };
        let completely = jobs.iter().all(|(job, layout)| {
            let report = &mut |bytes: &[u8]| world.report(bytes);
            rank::run(&world, job, layout, started, report).is_ok()
        });
        let _ = events.send(Event::Thread(ThreadEvent::Worked { completely }));
        // The supervisor's side drops its end where there is nothing to tell the others.
        if let Ok(exit) = wait_for_verdict.recv() {
            let told = world
                .everyone()
                .and_then(|everyone| everyone.broadcast_object(Some(&exit.code()), 0));
            if told.is_ok() {
                world.leave();
            }
        }
        let _ = events.send(Event::Thread(ThreadEvent::Left));
    };
    std::thread::Builder::new()
        .name("muster-rank-0".to_owned())
        .spawn(work)
        .map_err(|error| Failure::resource(format!("a thread cannot be started: {error}")))?;
    Ok(verdict)
}

fn wait_for_farewell(ranks: &Ranks<Event>) {
    let deadline = Deadline::after(FAREWELL);
    while !deadline.passed() {
        if let Some(Event::Thread(ThreadEvent::Left)) = ranks.next(deadline) {
            return;
        }
    }
}
