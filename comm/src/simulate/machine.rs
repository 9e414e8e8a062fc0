//! Processes and processors: who runs when, what the kernel says of it, and what the fault does to it.

use super::net::Event;
use super::rank::Life;
use super::scenario::{Fault, Seat};
use super::sim_world::{Stage, TURN_US};
use crate::types::Rank;
use crate::watch::cpu_time::CpuTime;
use crate::watch::process::Sight;

impl Stage<'_> {
    /// When whoever this happens to gets a processor next, where it has none now.
    pub(super) fn next_turn(&self, event: &Event) -> Option<u64> {
        let host = match event {
            Event::ToDesk(..) | Event::EndAtDesk(_) | Event::Tick | Event::Reaped(_) => {
                self.plan.host(self.plan.seat)
            }
            Event::Go(rank) | Event::ToRank(rank, _) | Event::EndAtRank(rank) => {
                self.plan.hosts[*rank]
            }
            Event::Seen { by, .. } => self.plan.hosts[*by],
            Event::Arrive(_)
            | Event::Strike
            | Event::Relent
            | Event::ServerStops
            | Event::ServerGoesOn => return None,
        };
        let is_starved = self.plan.fault == Fault::Starved
            && self.has_struck
            && host == self.plan.hosts[self.plan.culprit];
        let period_us = self.plan.lasts_us;
        let within_us = self.now_us % period_us;
        (is_starved && within_us >= TURN_US).then(|| self.now_us - within_us + period_us)
    }

    /// Whether nobody is awake to whom this could happen.
    pub(super) fn is_asleep(&self, event: &Event) -> bool {
        match event {
            Event::ToDesk(..) | Event::EndAtDesk(_) | Event::Tick | Event::Reaped(_) => {
                let served_by = match self.plan.seat {
                    Seat::Launcher => None,
                    Seat::Rank(rank) => Some(&self.players[rank]),
                };
                self.desk_is_stopped || served_by.is_some_and(|player| player.is_stopped)
            }
            Event::Go(rank) | Event::ToRank(rank, _) | Event::EndAtRank(rank) => {
                self.players[*rank].is_stopped
            }
            Event::Seen { by, .. } => self.players[*by].is_stopped,
            Event::Arrive(_)
            | Event::Strike
            | Event::Relent
            | Event::ServerStops
            | Event::ServerGoesOn => false,
        }
    }

    /// What the kernel of its host says of the process of a rank.
    pub(super) fn sight(&self, rank: usize) -> Sight {
        let mut sight = self.players[rank].sight();
        if let Sight::Seen(facts) = &mut sight {
            facts.cpu_time = self.cpu_time(rank);
        }
        sight
    }

    /// How long the threads of a rank have run, and were ready without running.
    pub(super) fn cpu_time(&self, rank: usize) -> CpuTime {
        let plan = self.plan;
        if plan.fault != Fault::Starved || plan.hosts[rank] != plan.hosts[plan.culprit] {
            return CpuTime::default();
        }
        let ran_ns = self.now_us / plan.lasts_us * TURN_US * 1000;
        CpuTime {
            ran_ns,
            delayed_ns: self.now_us * 1000 - ran_ns.min(self.now_us * 1000),
        }
    }

    pub(super) fn strike(&mut self) {
        let (plan, rank) = (self.plan, self.plan.culprit);
        let stops = |stage: &mut Self, ranks: &[usize]| {
            for rank in ranks {
                stage.players[*rank].is_stopped = stage.players[*rank].life != Life::Dead;
            }
        };
        match plan.fault {
            Fault::Killed => self.die(rank),
            Fault::Frozen | Fault::Paused => stops(self, &[rank]),
            Fault::Stalled => self.stop_server(true),
            Fault::Suspended => {
                let all: Vec<usize> = (0..plan.ranks).collect();
                stops(self, &all);
                self.desk_is_stopped = true;
            }
            Fault::Clogged => {
                let until_us = self.now_us + plan.lasts_us;
                self.to_rank[rank].clogged_until_us = until_us;
                self.to_desk
                    .entry(rank as u64)
                    .or_default()
                    .clogged_until_us = until_us;
            }
            Fault::None
            | Fault::Absent
            | Fault::Busy
            | Fault::Cut
            | Fault::Destroyed
            | Fault::Duplicate
            | Fault::Exited
            | Fault::Inverted
            | Fault::Left
            | Fault::Mismatched
            | Fault::OtherWorld
            | Fault::Slow
            | Fault::Starved => {}
        }
        self.has_struck = true;
        self.say(|| format!("strikes: {:?} of rank {rank}", plan.fault));
        if matches!(
            plan.fault,
            Fault::Paused | Fault::Stalled | Fault::Suspended
        ) {
            self.at(self.now_us + plan.lasts_us, Event::Relent);
        }
        self.press();
        self.sweep();
    }

    pub(super) fn relent(&mut self) {
        self.say(|| "all go on".to_owned());
        self.desk_is_stopped = false;
        for player in &mut self.players {
            player.is_stopped = false;
        }
        self.wake();
    }

    /// Lets happen what has come meanwhile, in the order in which it came.
    fn wake(&mut self) {
        for (_, event) in std::mem::take(&mut self.deferred) {
            // Before it looks at the time the coordinator reads what is there.
            let lot = u64::from(event == Event::Tick);
            self.future.push(self.now_us + lot, lot, event);
        }
    }

    /// Stops the process that serves, or lets it go on.
    fn stop_server(&mut self, is_stopped: bool) {
        match self.plan.seat {
            Seat::Launcher => self.desk_is_stopped = is_stopped,
            Seat::Rank(rank) => {
                let player = &mut self.players[rank];
                player.is_stopped = is_stopped && player.life != Life::Dead;
            }
        }
    }

    pub(super) fn server_stops(&mut self) {
        let Some(stop) = self.plan.server_stop else {
            return;
        };
        self.say(|| format!("stops: {:?}, which serves, {stop:?}", self.plan.seat));
        self.stop_server(true);
        if let Some(lasts_us) = stop.lasts_us {
            self.at_apart(self.now_us + lasts_us, Event::ServerGoesOn);
        }
        self.sweep();
    }

    pub(super) fn server_goes_on(&mut self) {
        self.say(|| "the process that serves goes on".to_owned());
        self.stop_server(false);
        self.wake();
    }

    /// The process that serves has ended: all connections end, and nobody judges any more.
    pub(super) fn end_desk(&mut self) {
        self.desk_is_gone = true;
        for rank in 0..self.plan.ranks {
            let pipe = &mut self.to_rank[rank];
            let at_us = pipe.arrival(self.now_us, self.plan.delay_us, &mut self.apart);
            self.at_apart(at_us, Event::EndAtRank(rank));
        }
    }

    /// A process ends.
    pub(super) fn die(&mut self, rank: usize) {
        if self.players[rank].life == Life::Dead {
            return;
        }
        self.say(|| format!("rank {rank}: its process ends"));
        let had_left = self.players[rank].life == Life::Left;
        let player = &mut self.players[rank];
        player.life = Life::Dead;
        player.is_stopped = false;
        player.parted_us.get_or_insert(self.now_us);
        if !had_left {
            self.close_to_desk(rank);
            self.reap(rank);
        }
        if self.plan.seat == Seat::Rank(rank) {
            self.end_desk();
        }
    }

    /// A rank that has left serves the others, until only stopped ones are left.
    pub(super) fn serve_on(&mut self) {
        let Seat::Rank(rank) = self.plan.seat else {
            return;
        };
        let player = &self.players[rank];
        if player.life != Life::Left || self.desk_is_gone {
            return;
        }
        let gone = |rank: u32| player.status.gone(Rank(rank)).is_some();
        let view = self.view(self.plan.seat);
        let peers = player.peers.as_ref();
        let stopped = peers.and_then(|peers| peers.only_stopped_left(&view, &gone));
        if let Some(stopped) = stopped {
            self.say(|| stopped);
            self.die(rank);
        }
    }

    /// A launcher sees a process end. What the process had said lies in the coordinator's socket then.
    pub(super) fn reap(&mut self, rank: usize) {
        if self.plan.is_launched {
            let said_us = self.to_desk.entry(rank as u64).or_default().last_us;
            let at_us = (self.now_us + self.draw.up_to(20_000)).max(said_us + 1);
            self.at(at_us, Event::Reaped(rank));
        }
    }
}
