//! The steps of a rank, one after the other.

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use muster_comm::collective::{Communicator, LitmusError, Work};
use muster_comm::error::CommError;
use muster_comm::error::verdict::Class;
use muster_comm::sync::{AtomicBool, Clock, Deadline};
use muster_comm::types::Rank;
use muster_comm::world::World;
use rustix::process::{Signal, getpid, kill_process};

use super::trace::Trace;
use super::{GO, calls, litmus};
use crate::drill::script::{CallKind, CallSpec, Kind, MessageSpec, Part, Place, PrintSpec, Step};
use crate::drill::told::{Failed, Told, What};
use crate::exit::Exit;

/// Calls after which a rank counts as at work.
const CALLS_TO_WORK: u32 = 3;
/// Pause between the calls of a rank that works, as long as a small step of a program.
const BETWEEN: Duration = Duration::from_millis(1);
/// Longest wait for the drill's word; the drill itself gives up earlier.
const GO_BOUND: Duration = Duration::from_secs(60);
/// How often it is looked for.
const GO_EVERY: Duration = Duration::from_millis(2);
/// Bytes that a hoarding rank takes at once.
const HOARD_BYTES: usize = 8 << 20;
/// Bytes that a rank prints in a flood: many times what any queue holds.
const FLOOD_BYTES: usize = 40 << 20;

/// Why a rank does not do its next step.
enum Stop {
    /// A call failed; this is the exit code.
    Code(i32),
}

/// A rank at its steps.
pub(super) struct Player<'a> {
    part: &'a Part,
    world: World,
    groups: HashMap<String, Communicator>,
    /// How many calls were made on each group, and messages sent to and received from each of its members.
    made: HashMap<(String, Option<(usize, bool)>), usize>,
    /// Asynchronous calls under way.
    works: HashMap<u32, Work<bool>>,
    go: PathBuf,
    trace: Option<&'a Trace>,
    tolerates: bool,
    /// The code that a failure which was tolerated leaves behind.
    code: i32,
    children: Vec<std::process::Child>,
}

impl<'a> Player<'a> {
    pub(super) fn new(
        part: &'a Part,
        world: World,
        folder: &Path,
        trace: Option<&'a Trace>,
    ) -> Self {
        Self {
            part,
            world,
            groups: HashMap::new(),
            made: HashMap::new(),
            works: HashMap::new(),
            go: folder.join(GO),
            trace,
            tolerates: false,
            code: 0,
            children: Vec::new(),
        }
    }

    /// Does all steps, or those up to the first that fails; gives back the exit code.
    pub(super) fn run(mut self) -> i32 {
        let everyone = (0..self.world.size()).map(Rank::from_index).collect();
        let made = self.make("world", everyone);
        let steps = self.part.steps.iter().enumerate();
        let done = made.and_then(|()| {
            for (number, step) in steps {
                self.note(number);
                self.play(step)?;
            }
            self.note(self.part.steps.len());
            Ok(())
        });
        match done {
            Err(Stop::Code(code)) => code,
            Ok(()) => {
                self.say(What::Done);
                self.world.leave();
                self.code
            }
        }
    }

    fn say(&self, what: What) {
        Told::say(self.part.rank, what);
    }

    fn note(&self, step: usize) {
        if let Some(trace) = self.trace {
            trace.note(step);
        }
    }

    fn play(&mut self, step: &Step) -> Result<(), Stop> {
        match step {
            Step::Batch { group, messages } => self.batch(group, messages)?,
            Step::Call { group, call, place } => self.call(group, call, *place)?,
            Step::Child => {
                let child = Command::new("sleep")
                    .arg("1000")
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .spawn();
                self.children.extend(child);
            }
            Step::Destroy { group } => drop(self.groups.remove(group)),
            Step::Exit { code } => vanish(*code),
            Step::Hoard => hoard(),
            Step::Leave => self.world.leave(),
            Step::Litmus { group, ms } => self.litmus(group, Duration::from_millis(*ms))?,
            Step::Make { name, members } => {
                self.make(name, members.iter().map(|rank| Rank(*rank)).collect())?;
            }
            Step::Mark => self.say(What::Marked),
            Step::Panic { in_thread } => panic(*in_thread),
            Step::Pause { ms } => Clock::pause(Duration::from_millis(*ms)),
            Step::Print { what } => print(*what),
            Step::Raise { signal } => raise(*signal),
            Step::Resist => resist(),
            Step::Spin { ms } => spin(Duration::from_millis(*ms)),
            Step::Start { group, call, work } => self.start(group, call, *work)?,
            Step::Tolerate => self.tolerates = true,
            Step::Wait { work } => self.wait(*work)?,
            Step::WaitForGo => self.wait_for_go(),
            Step::Work { group, calls } => self.work(group, *calls)?,
        }
        Ok(())
    }

    fn make(&mut self, name: &str, members: Vec<Rank>) -> Result<(), Stop> {
        match self.world.group(name, &members) {
            Ok(group) => {
                group.set_object_bytes_max(calls::OBJECT_MAX);
                self.groups.insert(name.to_owned(), group);
                self.made.retain(|(group, _), _| group != name);
                Ok(())
            }
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Tells of a failure.
    fn failed(&self, error: &CommError) -> Stop {
        self.say(What::Failed(Box::new(Failed::of(error))));
        let class = error
            .verdict()
            .map_or(Class::Internal, |verdict| verdict.class);
        Stop::Code(class.code().into())
    }

    /// A step that names a group which was never made is a mistake of the drill.
    fn nameless(&self, group: &str) -> Stop {
        self.say(What::Wrong {
            call: format!("no group {group}"),
        });
        Stop::Code(Exit::Internal.code().into())
    }

    /// The number of the next call on a group, or of the next message to or from a member.
    fn next(&mut self, group: &str, message: Option<(usize, bool)>) -> usize {
        let made = self.made.entry((group.to_owned(), message)).or_default();
        *made += 1;
        *made - 1
    }

    fn salt(&mut self, group: &str, call: &CallSpec) -> usize {
        let is_sent = call.kind == CallKind::Send;
        let is_message = is_sent || call.kind == CallKind::Recv;
        self.next(group, is_message.then_some((call.peer, is_sent)))
    }

    fn call(&mut self, group: &str, call: &CallSpec, place: Place) -> Result<(), Stop> {
        let salt = self.salt(group, call);
        let Some(communicator) = self.groups.get(group) else {
            return Err(self.nameless(group));
        };
        let outcome = calls::make(communicator, call, place, salt);
        self.judge(outcome, || format!("{:?} on {group}", call.kind))
    }

    fn batch(&mut self, group: &str, messages: &[MessageSpec]) -> Result<(), Stop> {
        let salts: Vec<usize> = messages
            .iter()
            .map(|message| self.next(group, Some((message.peer, message.is_sent))))
            .collect();
        let Some(communicator) = self.groups.get(group) else {
            return Err(self.nameless(group));
        };
        let outcome = calls::batch(communicator, messages, &salts);
        self.judge(outcome, || format!("batch on {group}"))
    }

    fn start(&mut self, group: &str, call: &CallSpec, work: u32) -> Result<(), Stop> {
        let salt = self.salt(group, call);
        let Some(communicator) = self.groups.get(group) else {
            return Err(self.nameless(group));
        };
        let call = call.clone();
        let started =
            communicator.start(move |group| calls::make(group, &call, Place::First, salt));
        self.works.insert(work, started);
        Ok(())
    }

    fn wait(&mut self, work: u32) -> Result<(), Stop> {
        let Some(started) = self.works.remove(&work) else {
            return Err(self.nameless(&format!("with work {work}")));
        };
        self.judge(started.wait(), || format!("asynchronous call {work}"))
    }

    /// What follows from the outcome of a call.
    fn judge(
        &mut self,
        outcome: Result<bool, CommError>,
        call: impl Fn() -> String,
    ) -> Result<(), Stop> {
        match outcome {
            Ok(true) if self.code != 0 => self.say(What::Usable),
            Ok(true) => {}
            Ok(false) => self.say(What::Wrong { call: call() }),
            Err(error) => {
                let Stop::Code(code) = self.failed(&error);
                if !self.tolerates || !error.is_recoverable() {
                    return Err(Stop::Code(code));
                }
                self.code = code;
            }
        }
        Ok(())
    }

    fn work(&mut self, group: &str, calls: u32) -> Result<(), Stop> {
        let call = CallSpec::all_reduce(Kind::F32, 64);
        for done in 1..=calls {
            self.call(group, &call, Place::First)?;
            if done == CALLS_TO_WORK {
                self.say(What::Working);
            }
            Clock::pause(BETWEEN);
        }
        Ok(())
    }

    /// Looks whether memory keeps its order; the first rank of the group tells how much was looked at.
    fn litmus(&self, group: &str, time: Duration) -> Result<(), Stop> {
        let Some(communicator) = self.groups.get(group) else {
            return Err(self.nameless(group));
        };
        match communicator.litmus(time) {
            Ok(counts) if communicator.rank() == 0 => {
                let text = litmus::in_words(&counts);
                self.say(What::Noted { text });
            }
            Ok(_) => {}
            Err(error) => {
                // The other rank has more to say where this one was left alone.
                if !matches!(error, LitmusError::Alone(_)) {
                    self.say(What::Wrong {
                        call: format!("memory: {error}"),
                    });
                }
                return Err(Stop::Code(litmus::exit(&error).code().into()));
            }
        }
        Ok(())
    }

    fn wait_for_go(&self) {
        let deadline = Deadline::after(GO_BOUND);
        while !self.go.exists() && !deadline.passed() {
            Clock::pause(GO_EVERY);
        }
    }
}

/// Ends this process as a program does that is done too early.
fn vanish(code: i32) -> ! {
    #[expect(
        clippy::exit,
        clippy::disallowed_methods,
        reason = "to go without a goodbye is the fault"
    )]
    std::process::exit(code)
}

fn hoard() {
    let mut held = Vec::new();
    loop {
        held.push(std::hint::black_box(vec![1_u8; HOARD_BYTES]));
        // Slowly enough that the kernel has a choice.
        Clock::pause(Duration::from_millis(1));
    }
}

fn panic(in_thread: bool) {
    #[expect(clippy::panic, reason = "to panic is the fault")]
    let broken = || -> () { panic!("this drill breaks an assertion") };
    if in_thread {
        // A program that joins its thread passes its panic on.
        if let Err(payload) = std::thread::spawn(broken).join() {
            std::panic::resume_unwind(payload);
        }
    }
    broken();
}

fn raise(signal: i32) {
    if let Some(signal) = Signal::from_named_raw(signal) {
        // The runtime looks at the first SIGSEGV or SIGBUS, and lets the second one have its way.
        for _ in 0..2 {
            let _ = kill_process(getpid(), signal);
        }
    }
}

/// Catches requests to stop and does nothing about them.
fn resist() {
    let noticed = Arc::new(AtomicBool::new(false));
    // Where that is refused, the rank ends as any other, and the drill says so.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGTERM, noticed);
}

fn spin(time: Duration) {
    let deadline = Deadline::after(time);
    while !deadline.passed() {
        std::hint::spin_loop();
    }
}

fn print(what: PrintSpec) {
    let mut stdout = std::io::stdout().lock();
    // What nobody reads is lost, and that is part of the drill.
    match what {
        PrintSpec::Control => {
            let _ = stdout.write_all(b"\x1b[2J\x1b]0;owned\x07 \xff\xfe \r\xe2\x80\xae txt\n");
        }
        PrintSpec::Flood => {
            let line = [b'y'; 1023];
            for _ in 0..FLOOD_BYTES / 1024 {
                let _ = stdout.write_all(&line);
                let _ = stdout.write_all(b"\n");
            }
        }
    }
    let _ = stdout.flush();
}
