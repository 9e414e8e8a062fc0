//! Watching: what every rank is doing, and what that means when they wait.
//!
//! Each rank has a *board* (`board`): a line for every communicator with the call under way, and the
//! last calls. When a wait lasts, the waiting thread says so over the control plane; the *arbiter*
//! (`arbiter`), which sits with the coordinator, gathers the boards of all ranks and has them judged
//! (`judge`, pure). Its *verdict* (`verdict`) goes to every rank, so all say the same.
//!
//! It must not know how data moves: it sees calls, waits and processes.

pub mod arbiter;
mod board;
pub mod dump;
mod failure;
pub mod judge;
pub mod process;
pub mod report;
mod site;
mod suspect;
pub mod verdict;
pub(crate) mod wire;

use std::cell::Cell;
use std::io::Write;
use std::panic::Location;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::board::{Berth, Board, Entered, Opening};
pub use self::board::{BoardError, of_process};
use self::report::{CallCode, Report};
pub(crate) use self::site::{Start, on_behalf};
use self::verdict::Verdict;
pub use self::wire::ToOwner;
use self::wire::{FromRank, Look, ToRank};
use crate::sync::{AtomicU64, Ordering};
use crate::types::Rank;

/// Last calls that go with an answer to the arbiter.
const CALLS_TOLD: usize = 8;

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
    /// Nanoseconds in which waiting threads did not run: the process, or the machine, was stopped.
    lost_ns: AtomicU64,
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
    pub(crate) fn new(rank: Rank, world_size: usize, job: u64, mode: Mode) -> Arc<Self> {
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
        Arc::new(Self {
            board,
            world,
            prints: mode == Mode::Process,
            lost_ns: AtomicU64::new(0),
        })
    }

    /// Whether this world is watched.
    pub(crate) fn is_on(&self) -> bool {
        self.board.is_some()
    }

    /// A place on the board for a communicator.
    pub(crate) fn place(self: &Arc<Self>, key: u64, name: &str, members: &[Rank]) -> Place {
        let berth = self.board.as_ref().and_then(|board| {
            let members: Vec<u32> = members.iter().map(|rank| rank.0).collect();
            board.berth(key, name, &members, self.thread(board))
        });
        Place {
            watch: Arc::clone(self),
            berth,
        }
    }

    /// The calling thread's number.
    fn thread(&self, board: &Board) -> u32 {
        let (known, number) = THREAD.get();
        if known == self.world {
            return number;
        }
        let number = board.count_thread();
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
        self.board.as_ref().map(|board| board.report(calls))
    }

    /// Time in which this process did not run, so far: no wait is charged with it.
    pub(crate) fn lost(&self) -> Duration {
        // Relaxed: a sum that only grows and orders nothing.
        Duration::from_nanos(self.lost_ns.load(Ordering::Relaxed))
    }

    /// A waiting thread found that it had not run for this long.
    pub(crate) fn lose(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        // Relaxed: see `lost`.
        self.lost_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// Takes what the arbiter says; gives the answer, if it wants one. `learn` takes verdicts and says
    /// whether they are new.
    pub(crate) fn hear(&self, bytes: &[u8], learn: impl Fn(Verdict) -> bool) -> Option<Vec<u8>> {
        match wire::decode(bytes)? {
            ToRank::Ask { ask, look } => {
                let report = Box::new(self.report(CALLS_TOLD)?);
                let looks = look.into_iter().map(look_at).collect();
                Some(wire::encode(&FromRank::Answer { ask, report, looks }))
            }
            ToRank::Suspect { line } => {
                self.say(&line);
                None
            }
            ToRank::Verdict(verdict) => {
                let line = verdict.line();
                if learn(*verdict) {
                    self.say(&line);
                }
                None
            }
        }
    }

    /// Prints a line for whoever reads this process's output.
    fn say(&self, line: &str) {
        if self.prints {
            // Whoever closed stderr does not want to read this.
            let _ = writeln!(std::io::stderr().lock(), "{line}");
        }
    }
}

/// Looks at a neighbour that does not answer.
fn look_at((rank, pid): (u32, u32)) -> Look {
    let reports = of_process(pid).unwrap_or_default();
    let report = reports.into_iter().find(|report| report.rank == rank);
    Look {
        rank,
        process: process::look(pid),
        report: report.map(|mut report| {
            let surplus = report.calls.len().saturating_sub(CALLS_TOLD);
            report.calls.drain(..surplus);
            Box::new(report)
        }),
    }
}

/// A communicator's place on the board of its rank.
#[derive(Debug)]
pub(crate) struct Place {
    watch: Arc<Watch>,
    berth: Option<Berth>,
}

/// A call as it is announced on the board.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Announced {
    pub(crate) code: CallCode,
    pub(crate) seq: u64,
    pub(crate) site: &'static Location<'static>,
    pub(crate) started: Instant,
}

/// A call that stands on the board until it ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing(Option<Entered>);

impl Place {
    /// Announces a call, before it can wait.
    pub(crate) fn begin(&self, call: &Announced) -> Standing {
        let (Some(board), Some(berth)) = (&self.watch.board, self.berth) else {
            return Standing(None);
        };
        let start = site::started();
        // Calls of a worker count for the thread that started them: that is who makes them or not.
        let thread = start.map_or_else(|| self.watch.thread(board), |start| start.thread);
        let queued_ms = start.map_or(0, |start| {
            let queued = call.started.saturating_duration_since(start.at).as_millis();
            u64::try_from(queued).unwrap_or(u64::MAX)
        });
        let opening = Opening {
            call: call.code,
            seq: call.seq,
            site: site::blamed(call.site),
            thread,
            started: call.started,
            queued_ms,
            is_collective: !call.code.is_point_to_point(),
        };
        Standing(Some(board.begin(berth, &opening)))
    }

    /// Ends a call; `entered` is the number of the last collective that was entered.
    pub(crate) fn end(&self, call: Standing, entered: u64, is_ok: bool) {
        if let (Some(board), Standing(Some(call))) = (&self.watch.board, call) {
            board.end(call, entered, is_ok);
        }
    }

    /// The waiting thread has looked in vain.
    pub(crate) fn waits(&self, since: Instant, missing: &[usize], is_first: bool) {
        if let (Some(board), Some(berth)) = (&self.watch.board, self.berth) {
            board.waits(berth, since, missing, is_first);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let (Some(board), Some(berth)) = (&self.watch.board, self.berth) {
            board.release(berth);
        }
    }
}
