//! How the processes of other ranks are looked at, and how their boards are reached.
//!
//! Whoever judges knows nothing of the system but this trait, so that the simulator can play it.

use std::io;
use std::time::Duration;

use super::arbiter::echo_ms;
use super::board;
use super::process::{self, Inside, Place, Sight};
use super::report::Report;
use super::wire::{self, Look};
use crate::host_load::HostLoad;
use crate::rendezvous::{Card, Liveness, ProcessId, Seen};
use crate::sync::{Clock, Deadline};
use crate::types::Rank;

/// How long it is tried to write onto boards that other processes are writing onto.
const PATIENCE: Duration = Duration::from_millis(50);
const PATIENCE_STEP: Duration = Duration::from_micros(100);

/// What stands in the bulletin of a board comes in; what is to stand there goes out.
pub(crate) type Change<'a> = &'a dyn Fn(Option<&[u8]>) -> Vec<u8>;

/// What one process can see and reach of others. None of this waits for another process to act.
pub(crate) trait Probe {
    /// Milliseconds of a clock that never goes back.
    fn now_ms(&self) -> u64;
    /// How many threads want each processor of this host.
    fn crowd(&self) -> u64;
    /// Since when verdicts count as causes of what fails now.
    fn causes_since_ms(&self) -> u64 {
        self.now_ms().saturating_sub(echo_ms(self.crowd()))
    }
    /// Looks at a process.
    fn look(&self, process: &ProcessId) -> Sight;
    /// How the lines name the process of a rank in another PID namespace.
    fn inside(&self, card: &Card) -> Option<Inside>;
    /// The board of this rank of a process, where it can be read.
    fn board(&self, process: &ProcessId, rank: u32) -> Option<Report>;
    /// Changes the bulletin on the board of this rank of a process, and returns what it is then.
    ///
    /// # Errors
    /// `WouldBlock` where another process changes it at this moment; others where there is no such board, or it cannot be
    /// written to.
    fn bulletin(&self, process: &ProcessId, rank: u32, change: Change<'_>) -> io::Result<Vec<u8>>;
    /// Changes the bulletins of several ranks. Where another process changes one at this moment it is tried again.
    fn bulletins(&self, ranks: &[(u32, ProcessId)], change: Change<'_>);
}

/// The system that this process runs on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct System;

impl Probe for System {
    fn now_ms(&self) -> u64 {
        Clock::nanos() / 1_000_000
    }

    fn crowd(&self) -> u64 {
        HostLoad::now().crowd()
    }

    fn look(&self, process: &ProcessId) -> Sight {
        process::look_at(process)
    }

    fn inside(&self, card: &Card) -> Option<Inside> {
        process::inside(card)
    }

    fn board(&self, process: &ProcessId, rank: u32) -> Option<Report> {
        let Place::At(pid) = process::find(process) else {
            return None;
        };
        let reports = board::of_process(pid).ok()?;
        reports.into_iter().find(|report| report.rank == rank)
    }

    fn bulletin(&self, process: &ProcessId, rank: u32, change: Change<'_>) -> io::Result<Vec<u8>> {
        match process::find(process) {
            Place::At(pid) => board::bulletin(pid, rank, change),
            Place::Ended | Place::Hidden(_) => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn bulletins(&self, ranks: &[(u32, ProcessId)], change: Change<'_>) {
        let is_busy = |error: io::Error| error.kind() == io::ErrorKind::WouldBlock;
        let patience = Deadline::after(PATIENCE);
        for (rank, process) in ranks {
            while self.bulletin(process, *rank, change).is_err_and(is_busy) && !patience.passed() {
                Clock::pause(PATIENCE_STEP);
            }
        }
    }
}

/// Looks at a rank that does not answer: its process, and its board.
pub(crate) fn look_at(probe: &dyn Probe, rank: u32, process: &ProcessId) -> Look {
    // Before the process: a board that is read then is that of this process, which lives.
    let report = probe.board(process, rank);
    let sight = probe.look(process);
    let report = report.filter(|_| sight.facts().is_some());
    Look {
        rank,
        sight,
        report: report.map(|mut report| {
            report.keep_last_calls(super::CALLS_TOLD);
            Box::new(report)
        }),
    }
}

/// How the coordinator looks at a rank whose card this is. Whoever cannot see the process learns nothing.
pub(super) fn look(rank: Rank, card: &Card) -> Seen {
    seen(look_at(&System, rank.0, &card.process), || program(card))
}

/// A look at a rank, as the coordinator takes it. `program` names what its process runs.
pub(crate) fn seen(look: Look, program: impl FnOnce() -> String) -> Seen {
    let liveness = match &look.sight {
        Sight::Ended => Liveness::Ended,
        Sight::Hidden(_) => Liveness::Hidden,
        Sight::Seen(_) => Liveness::Lives { program: program() },
    };
    Seen {
        liveness,
        bytes: wire::encode(&look),
    }
}

/// The name of the program that a process runs.
fn program(card: &Card) -> String {
    let Place::At(pid) = process::find(&card.process) else {
        return "an unknown program".to_owned();
    };
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}
