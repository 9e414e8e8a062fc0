//! What a process of the play can see of the others, and reach: its host, as far as its PID namespace shows it.

use std::io;

use super::rank::{Life, narrow};
use super::scenario::{Scenario, Seat};
use super::sim_world::Stage;
use crate::rendezvous::{Card, ProcessId, Seen};
use crate::types::Rank;
use crate::watch::probe::{self, Change, Probe};
use crate::watch::process::{Inside, ProcessFacts, Sight};
use crate::watch::report::Report;

/// The process number of a launcher.
const LAUNCHER_PID: u32 = 1;

/// The play, as the process in this seat sees it.
pub(super) struct View<'s> {
    pub(super) stage: &'s Stage<'s>,
    pub(super) from: Seat,
}

impl View<'_> {
    /// The seat of a process, where it can be seen.
    fn find(&self, process: &ProcessId) -> Option<Seat> {
        let seat = match process.pid {
            LAUNCHER_PID => Seat::Launcher,
            pid => Seat::Rank(super::scenario::index(u64::from(pid - self::pid(0)))),
        };
        self.stage.plan.sees(self.from, seat).then_some(seat)
    }

    /// The rank whose board a process shows, where that can be seen.
    fn find_board(&self, process: &ProcessId) -> Option<usize> {
        let Some(Seat::Rank(rank)) = self.find(process) else {
            return None;
        };
        self.stage.has_board(rank).then_some(rank)
    }
}

impl Probe for View<'_> {
    fn now_ms(&self) -> u64 {
        self.stage.now_ms()
    }

    fn crowd(&self) -> u64 {
        1
    }

    fn look(&self, process: &ProcessId) -> Sight {
        match self.find(process) {
            Some(Seat::Rank(rank)) => self.stage.sight(rank),
            Some(Seat::Launcher) => Sight::Seen(facts(self.stage.desk_is_stopped)),
            None => Sight::Hidden("it runs elsewhere".to_owned()),
        }
    }

    fn inside(&self, _card: &Card) -> Option<Inside> {
        None
    }

    fn board(&self, process: &ProcessId, _rank: u32) -> Option<Report> {
        let rank = self.find_board(process)?;
        let stage = self.stage;
        Some(stage.players[rank].report(stage.plan, stage.now_us))
    }

    fn bulletin(&self, process: &ProcessId, _rank: u32, change: Change<'_>) -> io::Result<Vec<u8>> {
        let rank = self.find_board(process).ok_or(io::ErrorKind::NotFound)?;
        let mut bulletin = self.stage.players[rank].bulletin.borrow_mut();
        let before = (!bulletin.is_empty()).then_some(bulletin.as_slice());
        *bulletin = change(before);
        Ok(bulletin.clone())
    }

    fn bulletins(&self, ranks: &[(u32, ProcessId)], change: Change<'_>) {
        for (rank, process) in ranks {
            // Who has no board any more needs none.
            let _ = self.bulletin(process, *rank, change);
        }
    }
}

impl Stage<'_> {
    pub(super) fn view(&self, from: Seat) -> View<'_> {
        View { stage: self, from }
    }

    /// Whether the board of a rank is there: until its world ends, and with it what it serves.
    pub(super) fn has_board(&self, rank: usize) -> bool {
        let serves = self.plan.seat == Seat::Rank(rank) && !self.desk_is_gone;
        match self.players[rank].life {
            Life::Dead => false,
            Life::Left => serves,
            Life::Joining | Life::Working | Life::Busy => true,
        }
    }

    /// The coordinator looks at processes.
    pub(super) fn look(&mut self, ranks: &[Rank]) {
        for rank in ranks {
            let at = rank.index();
            let view = self.view(self.plan.seat);
            let look = probe::look_at(&view, rank.0, &process(self.plan, Seat::Rank(at)));
            let seen: Seen = probe::seen(look, || "play".to_owned());
            let now_ms = self.now_ms();
            self.membership.looked(*rank, &seen, now_ms);
        }
    }
}

/// What the kernel says of a process.
pub(super) fn facts(is_stopped: bool) -> ProcessFacts {
    ProcessFacts {
        state: if is_stopped { 'T' } else { 'S' },
        wchan: "futex_wait_queue".to_owned(),
        ..ProcessFacts::default()
    }
}

/// A process of the play.
pub(super) fn process(plan: &Scenario, seat: Seat) -> ProcessId {
    let own_namespace = |rank: usize| 2 + u64::from(narrow(rank));
    let (pid, namespace) = match seat {
        Seat::Launcher => (LAUNCHER_PID, 1),
        Seat::Rank(rank) if plan.has_namespaces() => (pid(rank), own_namespace(rank)),
        Seat::Rank(rank) => (pid(rank), 1),
    };
    ProcessId {
        boot: 1 + plan.host(seat),
        namespace,
        pid,
        started_ticks: 1,
    }
}

pub(super) fn pid(rank: usize) -> u32 {
    1000 + narrow(rank)
}
