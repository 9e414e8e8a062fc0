//! Processes and processors: who runs when, what the kernel says of it, and what the fault does to it.

use super::net::Event;
use super::plan::Fault;
use super::rank::Life;
use super::stage::{COORDINATOR_HOST, Stage, TURN_US};
use crate::rendezvous::{Liveness, Seen};
use crate::types::Rank;
use crate::watch::cpu_time::CpuTime;
use crate::watch::process::Sight;
use crate::watch::wire::{self, Look};

impl Stage<'_> {
    /// When whoever this happens to gets a processor next, where it has none now.
    pub(super) fn next_turn(&self, event: &Event) -> Option<u64> {
        let host = match event {
            Event::ToDesk(..) | Event::EndAtDesk(_) | Event::Tick | Event::Reaped(_) => {
                COORDINATOR_HOST
            }
            Event::Go(rank) | Event::ToRank(rank, _) | Event::EndAtRank(rank) => {
                self.plan.hosts[*rank]
            }
            Event::Seen { by, .. } => self.plan.hosts[*by],
            Event::Arrive(_) | Event::Strike | Event::Relent => return None,
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
                self.desk_is_stopped
            }
            Event::Go(rank) | Event::ToRank(rank, _) | Event::EndAtRank(rank) => {
                self.players[*rank].is_stopped
            }
            Event::Seen { by, .. } => self.players[*by].is_stopped,
            Event::Arrive(_) | Event::Strike | Event::Relent => false,
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

    /// The coordinator looks at processes.
    pub(super) fn look(&mut self, ranks: &[Rank]) {
        for rank in ranks {
            let at = rank.index();
            let player = &self.players[at];
            let sight = if self.plan.hosts[at] == COORDINATOR_HOST {
                self.sight(at)
            } else {
                Sight::Hidden("another host".to_owned())
            };
            let report = sight
                .facts()
                .map(|_| Box::new(player.report(self.plan, self.now_us)));
            let seen = Seen {
                liveness: match &sight {
                    Sight::Ended => Liveness::Ended,
                    Sight::Hidden(_) => Liveness::Hidden,
                    Sight::Seen(_) => Liveness::Lives {
                        program: "play".to_owned(),
                    },
                },
                bytes: wire::encode(&Look {
                    rank: rank.0,
                    sight,
                    report,
                }),
            };
            self.desk.looked(*rank, &seen, self.now_ms());
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
            Fault::Stalled => self.desk_is_stopped = true,
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
    }

    pub(super) fn relent(&mut self) {
        self.say(|| "all go on".to_owned());
        self.desk_is_stopped = false;
        for player in &mut self.players {
            player.is_stopped = false;
        }
        // In the order in which it came, and none of it at once.
        for (_, event) in std::mem::take(&mut self.deferred) {
            self.future.push(self.now_us, 0, event);
        }
    }
}
