//! Watching: what every rank is doing, and what that means when they wait.
//!
//! Each rank has a *board* (`board`): a line for every communicator with the call under way, and the
//! last calls. When a wait lasts, the waiting thread says so over the control plane; the *arbiter*
//! (`arbiter`), which sits with the coordinator, gathers the boards of all ranks and has them judged
//! (`judge`, pure). Its *verdict* (`error::verdict`) goes to every rank, so all say the same.
//!
//! It must not know how data moves: it sees calls, waits and processes.

pub mod arbiter;
pub(crate) mod autodump;
mod board;
pub(crate) mod bring_up;
mod callsite_history;
pub mod cpu_time;
pub mod dump;
mod failure;
pub mod judge;
mod mismatch;
pub(crate) mod peers;
mod place;
pub(crate) mod probe;
pub mod process;
pub mod record;
pub mod report;
mod runs;
pub mod signal;
mod site;
mod stack;
mod stderr;
mod suspect;
pub mod tap;
pub mod view;
pub(crate) mod wire;

use std::cell::Cell;
use std::collections::HashMap;
use std::io::Write;
use std::panic::Location;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use self::autodump::Keeper;
pub use self::autodump::keep;
use self::board::Board;
pub use self::board::{BoardError, LiveBoards, Seen, of_process};
pub use self::callsite_history::{CallSites, Slip, Step};
pub(crate) use self::callsite_history::{CallsiteHistory, Mark};
use self::cpu_time::CpuTime;
pub(crate) use self::mismatch::fault_of;
pub(crate) use self::place::{Announced, Awaiting, Place, Standing};
use self::probe::System;
use self::record::Recorder;
use self::report::Report;
pub use self::site::ProgramSite;
pub(crate) use self::site::{Start, blamed, is_on_behalf, on_behalf};
pub use self::stack::{functions_of_python, in_words, tell_stacks_by};
pub use self::suspect::STARVED_EVERY;
pub use self::wire::ToOwner;
use self::wire::{FromRank, ToRank};
use crate::error::verdict::Verdict;
use crate::sync::{AtomicU64, Clock, Ordering};
use crate::types::Rank;

/// Last calls that go with an answer to the arbiter.
const CALLS_TOLD: usize = 8;
/// Counts of one call that are told: those of an exchange of splits between the members that a board
/// names.
const ROW_MAX: usize = 128;

/// After this long the first wait of a call goes onto the board and the arbiter hears of it: longer
/// than calls between ranks that are in step take, short enough to tell of ranks that cannot meet
/// within 50 ms.
pub(crate) const FIRST_LOOK: Duration = Duration::from_millis(30);
/// How often it is said again that the wait lasts.
pub(crate) const NEXT_LOOK: Duration = Duration::from_millis(250);

thread_local! {
    /// The number of this thread on the board of each world; a thread works for one world mostly.
    static THREAD: Cell<(u64, u32)> = const { Cell::new((0, 0)) };
}

/// Worlds that this process has had.
static WORLDS: AtomicU64 = AtomicU64::new(0);

/// One rank's part in watching.
#[derive(Debug)]
pub(crate) struct Watch {
    /// `None` where watching is switched off, or the system gave no memory for it.
    board: Option<Board>,
    /// Tells this world from others of the process.
    world: u64,
    /// Whether this process is one rank, so that it prints what it hears.
    prints: bool,
    /// Where dumps go, if anywhere.
    keeper: Option<Keeper>,
    /// Where calls are recorded, if anywhere.
    recorder: Option<Recorder>,
    /// The threads that have a number, by that from 1, as the system knows them.
    threads: Mutex<Vec<i32>>,
    /// What a thread said of itself when it was asked where it is.
    stack: Mutex<Vec<String>>,
    /// The verdict whose dump was written last.
    kept: Mutex<String>,
    /// When the arbiter was heard last, by the monotonic clock; 0 for never.
    heard_ns: AtomicU64,
    /// The counts of calls under way, by group: with the number of the call.
    rows: Mutex<HashMap<u64, (u64, Vec<u64>)>>,
    /// Why groups were cancelled.
    cancels: Mutex<HashMap<u64, String>>,
    /// When waiting threads did not run: the process or the machine was stopped, or starved.
    lost: Mutex<Lost>,
}

/// Time in which waiting threads did not run.
#[derive(Debug, Default)]
struct Lost {
    total_ns: u64,
    /// The end of the last such time, by the monotonic clock.
    until_ns: u64,
}

/// How a world is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Not at all: only to measure what watching costs.
    Off,
    /// Ranks are processes, which others may look at.
    Process,
    /// Ranks are threads of one process.
    Thread,
}

impl Watch {
    pub(crate) fn new(
        rank: Rank,
        world_size: usize,
        job: u64,
        mode: Mode,
        (dumps, recording): (Option<PathBuf>, Option<PathBuf>),
    ) -> Arc<Self> {
        let size = Rank::from_index(world_size).0;
        let board = match mode {
            Mode::Off => None,
            // Without a board the world still works: its failures are told as each rank sees them.
            Mode::Process | Mode::Thread => {
                Board::create(rank.0, size, job, mode == Mode::Process).ok()
            }
        };
        // Relaxed: a count, orders nothing.
        let world = WORLDS.fetch_add(1, Ordering::Relaxed) + 1;
        let keeper = dumps.and_then(|folder| match Keeper::new(folder.clone()) {
            Ok(keeper) => Some(keeper),
            Err(error) => {
                let line = format!("no dumps in {}: {error}", folder.display());
                // Whoever closed stderr does not want to read this.
                let _ = writeln!(std::io::stderr().lock(), "{line}");
                None
            }
        });
        let recorder = recording.and_then(|folder| {
            let recorder = Recorder::new(&folder, rank, size, job);
            let why = |error| {
                let line = format!("no recording in {}: {error}", folder.display());
                // Whoever closed stderr does not want to read this.
                let _ = writeln!(std::io::stderr().lock(), "{line}");
            };
            recorder.map_err(why).ok()
        });
        let watch = Arc::new(Self {
            board,
            keeper,
            recorder,
            kept: Mutex::default(),
            threads: Mutex::default(),
            stack: Mutex::default(),
            heard_ns: AtomicU64::new(0),
            world,
            prints: mode == Mode::Process,
            rows: Mutex::default(),
            cancels: Mutex::default(),
            lost: Mutex::default(),
        });
        if watch.keeper.is_some() {
            autodump::listen(&watch);
        }
        watch
    }

    /// Whether this world is watched.
    pub(crate) fn is_on(&self) -> bool {
        self.board.is_some()
    }

    /// A place on the board for a communicator.
    pub(crate) fn place(self: &Arc<Self>, key: u64, name: &str, members: &[Rank]) -> Place {
        if let Some(recorder) = &self.recorder {
            recorder.group(key, name, members);
        }
        let berth = self.board.as_ref().and_then(|board| {
            let members: Vec<u32> = members.iter().map(|rank| rank.0).collect();
            board.berth(key, name, &members, self.thread(board))
        });
        Place {
            watch: Arc::clone(self),
            key,
            berth,
        }
    }

    /// The rank leaves: nothing more is recorded.
    pub(crate) fn finish_recording(&self) {
        if let Some(recorder) = &self.recorder {
            recorder.finish();
        }
    }

    /// The calling thread's number.
    #[inline]
    fn thread(&self, board: &Board) -> u32 {
        let (known, number) = THREAD.get();
        if known == self.world {
            number
        } else {
            self.new_thread(board)
        }
    }

    #[cold]
    fn new_thread(&self, board: &Board) -> u32 {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let number = board.count_thread();
        threads.push(stack::own_tid());
        THREAD.set((self.world, number));
        number
    }

    /// Where and when a call is started that a worker will make.
    pub(crate) fn start(&self, site: &'static Location<'static>, at: Instant) -> Start {
        let thread = self.board.as_ref().map_or(0, |board| self.thread(board));
        Start { site, at, thread }
    }

    /// What stands on the board, with this many of the last calls.
    pub(crate) fn report(&self, calls: usize) -> Option<Report> {
        let mut report = self.board.as_ref()?.report(calls);
        let (rows, cancels) = (self.rows(), self.cancels());
        for group in &mut report.groups {
            group.cancelled = cancels.get(&group.key).cloned();
            if let (Some(call), Some((seq, row))) = (&mut group.call, rows.get(&group.key))
                && call.seq == *seq
            {
                call.row.clone_from(row);
            }
        }
        drop((rows, cancels));
        Some(report)
    }

    /// What the arbiter is told of this rank.
    pub(crate) fn report_with_process(&self) -> Option<Report> {
        let mut report = self.report(CALLS_TOLD)?;
        report.process = process::look(std::process::id());
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(process) = report.process.as_mut().filter(|_| !threads.is_empty()) {
            process.cpu_time = CpuTime::of_threads(&threads);
        }
        drop(threads);
        Some(report)
    }

    fn cancels(&self) -> MutexGuard<'_, HashMap<u64, String>> {
        self.cancels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rows(&self) -> MutexGuard<'_, HashMap<u64, (u64, Vec<u64>)>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Time in which waiting threads of this process did not run, so far: no wait is charged with it.
    pub(crate) fn lost(&self) -> Duration {
        let lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        Duration::from_nanos(lost.total_ns)
    }

    /// A waiting thread found that it had not run for this long until now.
    pub(crate) fn lose(&self, time: Duration) {
        let now_ns = Clock::nanos();
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        // Several threads may have lost the same time: it counts once.
        let since_ns = now_ns.saturating_sub(ns).max(lost.until_ns);
        lost.total_ns += now_ns.saturating_sub(since_ns);
        lost.until_ns = now_ns;
    }

    /// Takes what the arbiter says; gives the answer, if it wants one. For `learn` see [`Watch::take`].
    pub(crate) fn hear(&self, bytes: &[u8], learn: impl Fn(Verdict, &dyn Fn())) -> Option<Vec<u8>> {
        // Relaxed: a time that orders nothing.
        self.heard_ns.store(Clock::nanos(), Ordering::Relaxed);
        match wire::decode(bytes)? {
            ToRank::Ask { ask, look } => {
                let report = Box::new(self.report_with_process()?);
                let looks = look
                    .iter()
                    .map(|(rank, process)| probe::look_at(&System, *rank, process));
                let looks = looks.collect();
                Some(wire::encode(&FromRank::Answer { ask, report, looks }))
            }
            ToRank::Show { round } => {
                let report = Box::new(self.report_with_process()?);
                let job = self.board.as_ref()?.job();
                Some(wire::encode(&FromRank::Shown { round, job, report }))
            }
            ToRank::Stack { key } => {
                let functions = self.stack_for(key);
                Some(wire::encode(&FromRank::Stack { functions }))
            }
            ToRank::Suspect { line } => {
                self.say(&line);
                None
            }
            ToRank::Suspected => {
                if self.prints {
                    stack::prepare();
                }
                None
            }
            ToRank::Verdict(verdict) => {
                self.take(*verdict, learn);
                None
            }
        }
    }

    /// Takes a verdict. `learn` makes it known to calls, and where it is a new one calls what it is given, which
    /// prints it, before that (STATUS-1), unless whoever reads stands still. Its dump is written first: those who
    /// wait still do, and no program has ended because of it.
    pub(crate) fn take(&self, verdict: Verdict, learn: impl Fn(Verdict, &dyn Fn())) {
        let line = verdict.line();
        if self.keeper.is_some() {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            if *kept != line {
                kept.clone_from(&line);
                self.keep(Some(&verdict));
            }
        }
        let is_unsaid = Cell::new(false);
        learn(verdict, &|| {
            if !self.prints || stderr::has_room(std::io::stderr()) {
                self.say(&line);
            } else {
                is_unsaid.set(true);
            }
        });
        if is_unsaid.get() {
            self.say(&line);
        }
    }

    /// Writes a dump, where there is a folder for them.
    fn keep(&self, verdict: Option<&Verdict>) {
        if let (Some(keeper), Some(mut report)) = (&self.keeper, self.report(usize::MAX)) {
            if verdict.is_some() {
                let stack = self.stack.lock().unwrap_or_else(PoisonError::into_inner);
                report.stack.clone_from(&stack);
            } else {
                report.stack = self.stack_for(0);
            }
            report.environment = process::environment(None);
            self.complain(keeper.keep(&report, verdict));
        }
    }

    /// Where the thread is that uses a group, or the one that has used any.
    fn stack_for(&self, key: u64) -> Vec<String> {
        let report = self.report(0);
        let group = report.as_ref().and_then(|report| report.group(key));
        let number = group.map_or(1, |group| group.thread.max(1));
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let tid = threads
            .get(crate::types::index(u64::from(number) - 1))
            .copied();
        drop(threads);
        // Threads of one process that are ranks would all be taken for one.
        let Some(tid) = tid.filter(|_| self.prints) else {
            return Vec::new();
        };
        let functions = stack::told_by_thread(tid);
        let mut stack = self.stack.lock().unwrap_or_else(PoisonError::into_inner);
        stack.clone_from(&functions);
        functions
    }

    fn complain(&self, kept: Result<(), String>) {
        if let Err(why) = kept {
            self.say(&why);
        }
    }

    /// For how long nothing was heard of the arbiter, in milliseconds.
    pub(crate) fn quiet_ms(&self) -> u64 {
        // Relaxed: see `hear`.
        let heard_ns = self.heard_ns.load(Ordering::Relaxed);
        Clock::nanos().saturating_sub(heard_ns) / 1_000_000
    }

    /// Prints a line for whoever reads this process's output.
    pub(crate) fn say(&self, line: &str) {
        if self.prints {
            stderr::say(line);
        }
    }
}
