//! What leads ranks to this process: the coordinator that serves them, the contract under which they are started, and the
//! thread that brings what the coordinator hears to the supervisor.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use crossbeam::channel::Sender;
use muster_comm::rendezvous::{Coordinator, CoordinatorEvent, CoordinatorOptions, Secret};
use muster_comm::sync::Deadline;
use muster_comm::watch::arbiter::arbiter_of_launcher;

use crate::fail::Failure;
use crate::run::supervisor::Event;
use crate::world::echo::Printer;
use crate::world::guard::Guard;
use crate::world::signals::Interrupts;
use crate::world::{Ranks, Spawn, ranks};

/// How long the thread sleeps at most before it looks whether the supervisor is still there.
const TURN: Duration = Duration::from_secs(1);

/// The launcher of ranks that are processes of this host.
pub(super) struct Launcher {
    pub(super) coordinator: Coordinator,
    secret: Secret,
    job_id: String,
    world_size: u32,
}

/// What the ranks of a launcher run.
pub(super) struct Command<'a> {
    /// Arguments of this program, which every rank starts as.
    pub(super) args: Vec<OsString>,
    /// Variables besides the contract.
    pub(super) env: Vec<(String, String)>,
    /// Who prints what ranks print while they run, where somebody does.
    pub(super) printer: Option<&'a Printer>,
    /// Whether the contract has the variables of torchrun too.
    pub(super) torch: bool,
}

impl Launcher {
    /// Serves the rendezvous of a job, which is called this and our process id. Ranks have this long to join.
    ///
    /// # Errors
    /// If the system gives no secret or no port.
    pub(super) fn serve(name: &str, world_size: u32, deadline: Duration) -> Result<Self, Failure> {
        let secret = Secret::random().map_err(|error| {
            Failure::resource(format!(
                "no secret for the job: the system's generator failed: {error}"
            ))
        })?;
        let job_id = format!("{name}-{}", std::process::id());
        let mut options = CoordinatorOptions::new(secret.clone(), job_id.clone(), world_size);
        options.deadline = deadline;
        options.owner_knows_exits = true;
        options.arbiter = Some(arbiter_of_launcher);
        let coordinator = Coordinator::start(options)
            .map_err(|error| Failure::of(error.exit_code(), &error, error.help()))?;
        Ok(Self {
            coordinator,
            secret,
            job_id,
            world_size,
        })
    }

    /// Starts the ranks, and the guard over them. A host that cannot carry a guard does without.
    ///
    /// # Errors
    /// If the host cannot carry the ranks.
    pub(super) fn start(
        &self,
        command: Command<'_>,
        interrupts: Arc<Interrupts>,
    ) -> Result<(Ranks<Event>, Option<Guard>), Failure> {
        let mut env = self.contract();
        env.extend(command.env);
        let program = ranks::own_program();
        let spawn = Spawn {
            program: &program,
            args: &command.args,
            world_size: self.world_size,
            env: &env,
            secret: self.secret.expose(),
            printer: command.printer,
            torch: command.torch,
        };
        // Before the ranks, so that it holds nothing of theirs.
        let guard = Guard::start().ok();
        let ranks = Ranks::start(&spawn, Some(interrupts))?;
        pass_on(&self.coordinator, ranks.sender())?;
        Ok((ranks, guard))
    }

    /// The variables that lead a rank to this coordinator.
    fn contract(&self) -> Vec<(String, String)> {
        let launcher = std::process::id().to_string();
        let address = self.coordinator.address();
        let variables = [
            ("MUSTER_RENDEZVOUS", format!("tcp://{address}")),
            ("MUSTER_JOB_ID", self.job_id.clone()),
            ("MUSTER_ATTEMPT", "0".to_owned()),
            ("MUSTER_LAUNCHER_PID", launcher),
        ];
        variables
            .map(|(name, value)| (name.to_owned(), value))
            .to_vec()
    }
}

/// Starts the thread that moves a coordinator's events into a queue. It ends with the coordinator, or with the reader of the
/// queue.
///
/// # Errors
/// A failure of class RESOURCE where no thread can be started.
pub(super) fn pass_on(coordinator: &Coordinator, queue: Sender<Event>) -> Result<(), Failure> {
    let events = coordinator.events();
    let work = move || {
        loop {
            let turn = Deadline::after(TURN);
            let event: Option<CoordinatorEvent> = events.next(turn);
            // Nothing before its time means that the coordinator has ended.
            let has_ended = event.is_none() && !turn.passed();
            let is_refused = event.is_some_and(|event| queue.send(Event::Control(event)).is_err());
            if has_ended || is_refused {
                return;
            }
        }
    };
    std::thread::Builder::new()
        .name("muster-pump".to_owned())
        .spawn(work)
        .map(drop)
        .map_err(|error| Failure::resource(format!("a thread cannot be started: {error}")))
}
