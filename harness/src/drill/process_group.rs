//! The processes of one run of a drill: started, heard, ended.
//!
//! STAGE-1: every process of a run carries the run's mark in its environment and dies with the drill.
//! STAGE-2: nothing that a process prints blocks it, and little of it is kept.

mod spawn;

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crossbeam::channel::{Receiver, Sender, unbounded};
use muster_comm::sync::{Clock, Deadline};
use rustix::process::{Pid, Signal, pidfd_send_signal};
use tempfile::TempDir;

use super::cgroup::Group;
use super::network::{Lacking, Network, address_of, free_port};
use super::plan::{Launch, Plan, Setting};
use super::told::{Told, What};
use super::wire::Wires;
use crate::fail::Failure;
use crate::world::Ended;
use crate::world::ranks::own_program;
use crate::world::signals::Interrupts;

/// Lines without a meaning for us that are kept of a run, for people.
const LINES_MAX: usize = 200;
/// Time for a rank that is turned away to end.
const MOMENT: Duration = Duration::from_millis(300);
/// Stands for a file with another secret than the job's, among the claims of a part.
pub const OTHER_SECRET: &str = "@other-secret";
/// How often requests to stop are looked for.
const TURN: Duration = Duration::from_millis(20);

/// Why a drill cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Its own means failed.
    Failed(Failure),
    /// This machine lacks what it takes: the drill is skipped.
    Lacking(String),
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<Lacking> for Trouble {
    fn from(lacking: Lacking) -> Self {
        Self::Lacking(lacking.0)
    }
}

/// Who a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// `muster run`, `muster verify` or an `mpirun`.
    Launcher,
    /// The part of this number.
    Part(usize),
}

/// A line that was printed.
#[derive(Clone, Debug)]
pub struct Line {
    /// By whom: the launcher, or a rank.
    pub rank: Option<u32>,
    /// What.
    pub text: String,
}

#[derive(Debug)]
enum Event {
    /// One of the two streams of a process is at its end.
    Closed,
    Ended {
        child: usize,
        how: Ended,
    },
    Line {
        child: usize,
        text: String,
    },
}

/// A process that the drill has started.
#[derive(Debug)]
pub struct Child {
    /// Who it is.
    pub who: Who,
    /// Its process id, for messages and for looking; signals go through the pidfd.
    pub pid: i32,
    /// How it ended, and when.
    pub ended: Option<(Ended, u64)>,
    /// Its rank, where the drill started it as one.
    pub rank: Option<u32>,
    pidfd: OwnedFd,
}

/// One run of a drill.
#[derive(Debug)]
pub struct Stage<'a> {
    /// Its folder.
    pub folder: TempDir,
    /// Its mark.
    pub mark: String,
    /// The processes.
    pub children: Vec<Child>,
    /// What ranks told.
    pub told: Vec<Told>,
    /// What else was printed.
    pub lines: Vec<Line>,
    /// Lines that were not kept.
    pub dropped: u64,
    /// Whether somebody asked the drill itself to stop.
    pub interrupted: bool,
    /// Where the ranks meet, if no launcher of ours says so.
    pub port: Option<u16>,
    /// Their network, where they have one of their own.
    pub network: Option<Network>,
    /// The wires between them, where these can be spoilt.
    pub wires: Option<Wires>,
    /// Control groups of the run.
    pub groups: Vec<Group>,
    /// Tools that work on its ranks.
    pub tools: Vec<std::process::Child>,
    squatter: Option<TcpListener>,
    /// Whether every line is wanted.
    keeps_all: bool,
    /// Streams that are at their end.
    closed: usize,
    setting: Setting,
    interrupts: Option<&'a Arc<Interrupts>>,
    sender: Sender<Event>,
    events: Receiver<Event>,
}

impl<'a> Stage<'a> {
    /// Makes the folder of a run; nothing runs yet.
    ///
    /// # Errors
    /// A failure of class RESOURCE where there is no room for it.
    pub fn new(
        number: u64,
        setting: Setting,
        interrupts: Option<&'a Arc<Interrupts>>,
    ) -> Result<Self, Failure> {
        let folder = tempfile::Builder::new()
            .prefix("drill-")
            .tempdir()
            .map_err(|error| Failure::resource(format!("no folder for the drill: {error}")))?;
        let (sender, events) = unbounded();
        Ok(Self {
            folder,
            mark: format!("{}-{number}", std::process::id()),
            children: Vec::new(),
            told: Vec::new(),
            lines: Vec::new(),
            dropped: 0,
            interrupted: false,
            port: None,
            network: None,
            wires: None,
            groups: Vec::new(),
            tools: Vec::new(),
            squatter: None,
            keeps_all: false,
            closed: 0,
            setting,
            interrupts,
            sender,
            events,
        })
    }

    /// Starts the processes of a plan.
    ///
    /// # Errors
    /// Where one cannot be started, or the machine lacks what the plan needs.
    pub fn start(&mut self, plan: &Plan) -> Result<(), Trouble> {
        let own = own_program().display().to_string();
        let folder = self.folder.path().display().to_string();
        let n = self.setting.world_size.to_string();
        match &plan.launch {
            Launch::Run { grace_s } | Launch::Wired { grace_s } => {
                if matches!(plan.launch, Launch::Wired { .. }) {
                    self.wires = Some(Wires::open(self.setting.world_size)?);
                }
                self.write_parts(&plan.parts)?;
                let grace = grace_s.to_string();
                let words = [
                    &own, "run", "-n", &n, "--grace", &grace, "--", &own, "__drill", "--folder",
                    &folder,
                ];
                let command = self.command(&words.map(str::to_owned), None, plan);
                self.spawn(Who::Launcher, None, command)?;
            }
            Launch::Mpirun { words } => {
                self.write_parts(&plan.parts)?;
                // Only what the drill starts itself dies with it, so the ranks die with the mpirun.
                let rest = [&n, &own, "__drill", "--tied", "--folder", &folder];
                let rest = rest.map(str::to_owned);
                let secret = self.secret_file("secret")?;
                let mut command = self.command(&[words.as_slice(), &rest].concat(), None, plan);
                command
                    .env("MUSTER_SECRET_FILE", secret)
                    .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
                    .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
                self.spawn(Who::Launcher, None, command)?;
            }
            Launch::Verify { words } => {
                self.keeps_all = true;
                let matrix = format!("tp{n}@{n}");
                let transport = self.setting.transport.name();
                let mut all = [
                    &own,
                    "verify",
                    &matrix,
                    "--transport",
                    transport,
                    "--format",
                    "json",
                ]
                .map(str::to_owned)
                .to_vec();
                all.extend(words.iter().cloned());
                let command = self.command(&all, None, plan);
                self.spawn(Who::Launcher, None, command)?;
            }
            Launch::Apart | Launch::Network => {
                if plan.launch == Launch::Network {
                    self.network = Some(Network::make(&self.mark, self.setting.world_size)?);
                }
                self.write_parts(&plan.parts)?;
                let port = free_port()?;
                if plan.squatter {
                    self.squatter = TcpListener::bind(("127.0.0.1", port)).ok();
                }
                self.port = Some(port);
                for number in 0..plan.parts.len() {
                    self.start_part(plan, number)?;
                }
            }
        }
        Ok(())
    }

    /// Starts the process of one part as a foreign launcher would.
    fn start_part(&mut self, plan: &Plan, number: usize) -> Result<(), Failure> {
        let part = &plan.parts[number];
        let folder = self.folder.path().display().to_string();
        let index = number.to_string();
        let own = own_program().display().to_string();
        let words = [&own, "__drill", "--folder", &folder, "--part", &index].map(str::to_owned);
        let namespace = self
            .network
            .as_ref()
            .map(|network| network.namespace_of(part.rank));
        let mut command = self.command(&words, namespace.as_deref(), plan);
        let world_size = self.setting.world_size.to_string();
        let meeting = match &self.network {
            Some(_) => address_of(0),
            None => "127.0.0.1".to_owned(),
        };
        let port = self.port.unwrap_or(0);
        let secret = self.secret_file("secret")?;
        command
            .env("MUSTER_RANK", part.rank.to_string())
            .env("MUSTER_WORLD_SIZE", &world_size)
            .env("MUSTER_LOCAL_RANK", part.rank.to_string())
            .env("MUSTER_LOCAL_WORLD_SIZE", &world_size)
            .env("MUSTER_RENDEZVOUS", format!("tcp://{meeting}:{port}"))
            .env("MUSTER_JOB_ID", format!("drill-{}", self.mark))
            .env("MUSTER_ATTEMPT", "0")
            .env("MUSTER_SECRET_FILE", secret);
        for (name, value) in &part.claims {
            if value == OTHER_SECRET {
                command.env(name, self.secret_file("other-secret")?);
            } else {
                command.env(name, value);
            }
        }
        self.spawn(Who::Part(number), Some(part.rank), command)
    }

    /// Takes in what happens until something is so, or time is up; says whether it is.
    pub fn until(&mut self, deadline: Deadline, mut is_so: impl FnMut(&Self) -> bool) -> bool {
        loop {
            while let Ok(event) = self.events.try_recv() {
                self.take(event);
            }
            if is_so(self) {
                return true;
            }
            if self
                .interrupts
                .is_some_and(|interrupts| interrupts.count() > 0)
            {
                self.interrupted = true;
            }
            if self.interrupted || deadline.passed() {
                return false;
            }
            if let Ok(event) = self.events.recv_timeout(deadline.left().min(TURN)) {
                self.take(event);
            }
        }
    }

    /// Lets time pass, with open ears.
    pub fn pause(&mut self, time: Duration) {
        let _ = self.until(Deadline::after(time), |_| false);
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Ended { child, how } => {
                self.children[child].ended = Some((how, Clock::nanos()));
            }
            Event::Line { child, text } => self.hear_line(child, &text),
            Event::Closed => self.closed += 1,
        }
    }

    fn hear_line(&mut self, child: usize, text: &str) {
        let (rank, text) = match passed_on(text) {
            Some((rank, rest)) => (Some(rank), rest),
            None => (self.children[child].rank, text),
        };
        if let Some(told) = Told::read(text) {
            if let (Some(wires), What::Joined) = (&self.wires, &told.what) {
                let pid = i32::try_from(told.pid).unwrap_or(0);
                if let Some(port) = super::clean::ports_of(&[pid]).first() {
                    wires.lead(told.rank, *port);
                }
            }
            self.told.push(told);
            return;
        }
        let has_meaning = ["VERDICT ", "SUSPECT ", "INTERRUPTED", "error"]
            .iter()
            .any(|head| text.starts_with(head));
        if has_meaning || self.keeps_all || self.lines.len() < LINES_MAX {
            let text = text.to_owned();
            self.lines.push(Line { rank, text });
        } else {
            self.dropped += 1;
        }
    }

    /// Sends a signal to one of the processes that the drill has started.
    pub fn signal_child(&self, child: usize, signal: Signal) {
        let child = &self.children[child];
        if child.ended.is_none() {
            // One that has just ended needs none.
            let _ = pidfd_send_signal(&child.pidfd, signal);
        }
    }

    /// Sends a signal to a rank, which has told its process id.
    pub fn signal_rank(&self, rank: u32, signal: Signal) -> bool {
        let pid = self.pid_of(rank).and_then(Pid::from_raw);
        pid.is_some_and(|pid| rustix::process::kill_process(pid, signal).is_ok())
    }

    /// The process of a rank, if that has said so.
    #[must_use]
    pub fn pid_of(&self, rank: u32) -> Option<i32> {
        let told = self.told.iter().find(|told| told.rank == rank)?;
        i32::try_from(told.pid).ok()
    }

    /// The ranks that have said something, ascending.
    #[must_use]
    pub fn ranks(&self) -> Vec<u32> {
        let mut ranks: Vec<u32> = self.told.iter().map(|told| told.rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }

    /// Lets go of what the drill holds the ranks with.
    pub fn release(&mut self) {
        for mut tool in self.tools.drain(..) {
            // One that has ended already is only reaped.
            let _ = tool.kill();
            let _ = tool.wait();
        }
        self.squatter = None;
        self.wires = None;
        for group in &self.groups {
            group.thaw();
        }
    }

    /// Removes what was made for the run; says what cannot be removed.
    pub fn remove(&mut self) -> Vec<String> {
        let mut left: Vec<String> = self
            .groups
            .drain(..)
            .filter_map(|one| one.remove())
            .collect();
        left.extend(self.network.take().iter().flat_map(Network::remove));
        left
    }

    /// Whether the launcher, or these ranks where there is none, have ended.
    #[must_use]
    pub fn is_over_for(&self, ranks: &[u32]) -> bool {
        let counts = |child: &&Child| child.rank.is_none_or(|rank| ranks.contains(&rank));
        let mut those = self.children.iter().filter(counts);
        those.all(|child| child.ended.is_some()) && (self.has_launcher() || !ranks.is_empty())
            || self.is_over()
    }

    fn has_launcher(&self) -> bool {
        self.children.iter().any(|child| child.who == Who::Launcher)
    }

    /// Ends the ranks that nobody waits for. Those that are turned away have a moment to end.
    pub fn end_others(&mut self, survivors: &[u32]) {
        if self.is_over() || self.has_launcher() {
            return;
        }
        self.pause(MOMENT);
        for child in 0..self.children.len() {
            let rank = self.children[child].rank;
            if rank.is_some_and(|rank| !survivors.contains(&rank)) {
                self.signal_child(child, Signal::KILL);
            }
        }
    }

    /// Whether all processes have ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.children.iter().all(|child| child.ended.is_some())
    }

    /// Whether everything that they printed has been heard.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        // Two streams each.
        self.closed == 2 * self.children.len()
    }

    /// The folder of the run.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Ends what still runs.
    pub fn end(&mut self) {
        for child in 0..self.children.len() {
            self.signal_child(child, Signal::KILL);
            // A stopped process is killed all the same.
        }
        for pid in super::clean::marked(&self.mark) {
            if let Some(pid) = Pid::from_raw(pid) {
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
        }
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        self.release();
        self.end();
    }
}

/// A line with the rank that a launcher puts in front of what ranks print: `[rank 3] ` of `muster run`,
/// `[1,3]<stdout>:` of Open MPI, `[3] ` of MPICH.
fn passed_on(text: &str) -> Option<(u32, &str)> {
    let (head, rest) = text.strip_prefix('[')?.split_once(']')?;
    let number = head
        .strip_prefix("rank ")
        .or_else(|| head.strip_prefix("1,"));
    let rank = number.unwrap_or(head).parse().ok()?;
    let heads = ["<stdout>:", "<stderr>:", " "];
    let rest = heads.iter().find_map(|head| rest.strip_prefix(head))?;
    Some((rank, rest))
}

#[cfg(test)]
mod tests {
    use super::passed_on;

    #[test]
    fn the_rank_in_front_of_a_line_is_known_for_every_launcher() {
        for head in ["[rank 12] ", "[1,12]<stderr>:", "[12] "] {
            let line = format!("{head}VERDICT [1] x");
            assert_eq!(passed_on(&line), Some((12, "VERDICT [1] x")), "{head}");
        }
        for other in ["[12]", "VERDICT x", "[a] x", "[1,2]x"] {
            assert_eq!(passed_on(other), None, "{other}");
        }
    }
}
