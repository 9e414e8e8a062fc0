//! What a seed stands for: the world, its programs, and what is done to it.

use std::collections::BTreeSet;

use crate::transport::sim::draw::Draw;
use crate::types::{Collective, DType};

/// The host that the launcher runs on.
const LAUNCHER_HOST: u64 = 0;
/// Tells what is drawn for the scene from the rest.
const SCENE: u64 = 0x0053_4345_4e45;
/// Most ranks of a world.
const RANKS_MAX: u64 = 8;
/// Milliseconds in which all ranks have come, unless one does not.
pub(super) const ARRIVAL_MS: u64 = 10_000;

/// What is done to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// Nothing.
    None,
    /// A rank never comes.
    Absent,
    /// A rank runs code of its own and never comes to a call.
    Busy,
    /// The control connection of a rank is stuck for a while; harmless.
    Clogged,
    /// The path for data between two ranks is broken.
    Cut,
    /// A rank destroys a group before the last calls on it, and goes on with the others.
    Destroyed,
    /// Two processes say that they are the same rank.
    Duplicate,
    /// A process ends with code 0 in the middle of its work.
    Exited,
    /// A process is stopped and not continued.
    Frozen,
    /// A rank makes two calls on overlapping groups in the other order.
    Inverted,
    /// A process is killed.
    Killed,
    /// A rank leaves the world before its last calls.
    Left,
    /// A rank calls with another element type.
    Mismatched,
    /// A rank comes with another size of the world.
    OtherWorld,
    /// A process is stopped for a moment; harmless.
    Paused,
    /// A rank is slow once; harmless.
    Slow,
    /// The coordinator's process is stopped for a while; harmless.
    Stalled,
    /// All processes of one host get a processor for some moments a second only; harmless, if late.
    Starved,
    /// All processes of all hosts are stopped for a while; harmless.
    Suspended,
}

/// All of them. Those without harm come often enough to be a quarter.
const FAULTS: [Fault; 20] = [
    Fault::None,
    Fault::Absent,
    Fault::Busy,
    Fault::Clogged,
    Fault::Cut,
    Fault::Duplicate,
    Fault::Exited,
    Fault::Frozen,
    Fault::Frozen,
    Fault::Inverted,
    Fault::Inverted,
    Fault::Killed,
    Fault::Killed,
    Fault::Left,
    Fault::Mismatched,
    Fault::OtherWorld,
    Fault::Paused,
    Fault::Slow,
    Fault::Stalled,
    Fault::Suspended,
];

impl Fault {
    /// Whether nobody is to be blamed for it.
    #[must_use]
    pub fn is_harmless(self) -> bool {
        matches!(
            self,
            Self::None
                | Self::Clogged
                | Self::Paused
                | Self::Slow
                | Self::Stalled
                | Self::Starved
                | Self::Suspended
        )
    }

    /// Whether it ends the bring-up.
    #[must_use]
    pub fn ends_bring_up(self) -> bool {
        matches!(self, Self::Absent | Self::Duplicate | Self::OtherWorld)
    }
}

/// A process of the play.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seat {
    /// One that is no rank.
    Launcher,
    Rank(usize),
}

/// In which PID namespaces the processes of a host run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Namespaces {
    /// In one.
    Shared,
    /// Each rank has its own; the launcher sees into all of its host.
    Nested,
    /// Each process has its own, and sees only itself.
    Apart,
}

/// A process that serves the rendezvous is stopped.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerStop {
    /// After the world is complete, in microseconds.
    pub(super) at_us: u64,
    /// How long; `None` for good.
    pub(super) lasts_us: Option<u64>,
}

/// A call of a program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Action {
    /// How long the rank computes before it, in microseconds.
    pub(super) compute_us: u64,
    pub(super) group: usize,
    /// The code of the call, as boards have it.
    pub(super) word: u64,
}

/// One run.
#[derive(Debug)]
pub(super) struct Scenario {
    pub(super) ranks: usize,
    /// The host of each rank.
    pub(super) hosts: Vec<u64>,
    /// World ranks of each group, ascending.
    pub(super) groups: Vec<Vec<usize>>,
    pub(super) programs: Vec<Vec<Action>>,
    /// Whether a launcher sees processes end.
    pub(super) is_launched: bool,
    /// The process that serves the rendezvous.
    pub(super) seat: Seat,
    namespaces: Namespaces,
    /// Whether links end with the worlds of their ranks.
    pub(super) has_scene: bool,
    /// Whether a rank whose call has failed ends without a goodbye.
    pub(super) ends_abruptly: bool,
    /// Whether that process is stopped too.
    pub(super) server_stop: Option<ServerStop>,
    pub(super) deadline_us: u64,
    /// Longest delay of a message.
    pub(super) delay_us: u64,
    pub(super) fault: Fault,
    /// The rank that it is about.
    pub(super) culprit: usize,
    /// The other end of a broken path.
    pub(super) partner: usize,
    /// When it strikes, after the world is complete, in microseconds.
    pub(super) strikes_us: u64,
    /// How long a harmless one lasts; of starvation, the time from one turn on the processor to the next.
    pub(super) lasts_us: u64,
    /// The call of its program that the culprit makes otherwise, or not.
    pub(super) step: usize,
}

impl Scenario {
    pub(super) fn draw(seed: u64) -> Self {
        let mut draw = Draw::new(seed);
        let ranks = index(draw.within(&(2..=RANKS_MAX)));
        let hosts_max = draw.up_to(2);
        let hosts = (0..ranks).map(|_| draw.up_to(hosts_max)).collect();
        let mut groups = vec![(0..ranks).collect::<Vec<_>>()];
        for _ in 0..draw.up_to(3) {
            let members: Vec<usize> = (0..ranks).filter(|_| draw.up_to(1) == 0).collect();
            if members.len() >= 2 {
                groups.push(members);
            }
        }
        let mut programs = vec![Vec::new(); ranks];
        let compute_us = [0, 1000, 20_000, 100_000][index(draw.up_to(3))];
        for _ in 0..draw.within(&(3..=16)) {
            let group = index(draw.up_to(groups.len() as u64 - 1));
            let collective = [
                Collective::AllReduce,
                Collective::AllGather,
                Collective::Barrier,
            ];
            let collective = collective[index(draw.up_to(2))];
            for member in &groups[group] {
                programs[*member].push(Action {
                    compute_us: draw.up_to(compute_us),
                    group,
                    word: collective as u64 | (DType::F32 as u64) << 8,
                });
            }
        }
        // About as long as the programs take, so that most faults strike in the middle.
        let total = |program: &Vec<Action>| program.iter().map(|step| step.compute_us).sum::<u64>();
        let work_us = programs.iter().map(total).max().unwrap_or(0);
        let fault = FAULTS[index(draw.up_to(FAULTS.len() as u64 - 1))];
        let mut plan = Self {
            culprit: index(draw.up_to(ranks as u64 - 1)),
            partner: 0,
            ranks,
            hosts,
            groups,
            is_launched: draw.up_to(1) == 0,
            seat: Seat::Launcher,
            namespaces: Namespaces::Shared,
            has_scene: false,
            ends_abruptly: false,
            server_stop: None,
            deadline_us: draw.within(&(5000..=30_000)) * 1000,
            delay_us: [50, 500, 2000, 5000][index(draw.up_to(3))],
            strikes_us: draw.up_to(work_us + 5000),
            lasts_us: draw.within(&(1000..=2_500_000)),
            step: 0,
            fault,
            programs,
        };
        plan.aim(&mut draw);
        // Drawn apart, so that what seeds showed before these faults were there is what they show now.
        if plan.fault == Fault::None && Draw::new(!seed).up_to(1) == 0 {
            plan.fault = Fault::Starved;
            plan.lasts_us = Draw::new(seed ^ !0xff).within(&(50_000..=900_000));
        }
        if plan.fault == Fault::Left && Draw::new(!seed).up_to(1) == 0 {
            plan.fault = Fault::Destroyed;
        }
        plan.set_scene(&mut Draw::new(seed ^ SCENE), work_us);
        plan
    }

    /// Who serves, who sees whom, and who ends how. Drawn apart, as above.
    fn set_scene(&mut self, draw: &mut Draw, work_us: u64) {
        if draw.up_to(1) == 0 || self.fault.ends_bring_up() {
            return;
        }
        self.has_scene = true;
        if !self.is_launched && draw.up_to(3) > 0 {
            self.seat = Seat::Rank(0);
        }
        self.ends_abruptly = draw.up_to(1) == 0;
        self.namespaces = match draw.up_to(5) {
            0 => Namespaces::Nested,
            1 => Namespaces::Apart,
            _ => Namespaces::Shared,
        };
        if self.fault == Fault::Stalled && self.seat != Seat::Launcher {
            // It stops a rank, which is harmless for a moment only.
            self.lasts_us = self.lasts_us.min(800_000);
        }
        let is_hidden = matches!(self.fault, Fault::Killed | Fault::Exited | Fault::Frozen);
        if is_hidden && self.seat != Seat::Rank(self.culprit) && draw.up_to(1) == 0 {
            let lasts_us = draw.within(&(500_000..=8_000_000));
            self.server_stop = Some(ServerStop {
                at_us: draw.up_to(work_us + 5000),
                lasts_us: (draw.up_to(1) == 0).then_some(lasts_us),
            });
        }
    }

    pub(super) fn has_namespaces(&self) -> bool {
        self.namespaces != Namespaces::Shared
    }

    /// The host of a process.
    pub(super) fn host(&self, seat: Seat) -> u64 {
        match seat {
            Seat::Launcher => LAUNCHER_HOST,
            Seat::Rank(rank) => self.hosts[rank],
        }
    }

    /// Whether a process can look at another one.
    pub(super) fn sees(&self, from: Seat, to: Seat) -> bool {
        let is_shown = match self.namespaces {
            Namespaces::Shared => true,
            Namespaces::Nested => from == Seat::Launcher,
            Namespaces::Apart => false,
        };
        self.host(from) == self.host(to) && (from == to || is_shown)
    }

    /// Chooses what the fault strikes; without a place for it there is none.
    fn aim(&mut self, draw: &mut Draw) {
        let calls = self.programs[self.culprit].len();
        let is_placed = match self.fault {
            Fault::Paused => {
                self.lasts_us = self.lasts_us.min(800_000);
                true
            }
            Fault::Suspended | Fault::Stalled => {
                self.lasts_us *= 2;
                true
            }
            Fault::Busy | Fault::Left | Fault::Exited | Fault::Slow if calls > 0 => {
                self.step = index(draw.up_to(calls as u64 - 1));
                true
            }
            Fault::Busy | Fault::Left | Fault::Exited | Fault::Slow => false,
            Fault::Cut => {
                self.partner =
                    (self.culprit + 1 + index(draw.up_to(self.ranks as u64 - 2))) % self.ranks;
                true
            }
            Fault::Inverted => self.invert(draw),
            Fault::Mismatched => self.differ(draw),
            Fault::None
            | Fault::Absent
            | Fault::Clogged
            | Fault::Destroyed
            | Fault::Duplicate
            | Fault::Frozen
            | Fault::Killed
            | Fault::OtherWorld
            | Fault::Starved => true,
        };
        if !is_placed {
            self.fault = Fault::None;
        }
    }

    /// Swaps two calls of the culprit that follow one another, on groups that share another rank, and in
    /// whose program they follow one another too.
    fn invert(&mut self, draw: &mut Draw) -> bool {
        let program = &self.programs[self.culprit];
        let shares = |at: &usize| {
            let (one, two) = (program[*at].group, program[*at + 1].group);
            let is_in = |group: usize, rank: &usize| self.groups[group].contains(rank);
            one != two
                && (0..self.ranks)
                    .filter(|rank| *rank != self.culprit)
                    .any(|rank| is_in(one, &rank) && is_in(two, &rank))
        };
        let places: Vec<usize> = (0..program.len().saturating_sub(1))
            .filter(shares)
            .collect();
        let Some(last) = places.len().checked_sub(1) else {
            return false;
        };
        self.step = places[index(draw.up_to(last as u64))];
        self.programs[self.culprit].swap(self.step, self.step + 1);
        true
    }

    /// Lets the culprit make a call with another element type. The lowest rank of a pair is never the odd
    /// one: between two nobody can tell.
    fn differ(&mut self, draw: &mut Draw) -> bool {
        let program = &self.programs[self.culprit];
        let is_odd = |at: &usize| {
            let members = &self.groups[program[*at].group];
            members.len() > 2 || members[0] != self.culprit
        };
        let places: Vec<usize> = (0..program.len()).filter(is_odd).collect();
        let Some(last) = places.len().checked_sub(1) else {
            return false;
        };
        self.step = places[index(draw.up_to(last as u64))];
        let step = &mut self.programs[self.culprit][self.step];
        step.word = step.word & 0xff | (DType::I32 as u64) << 8;
        true
    }

    /// The ranks that a verdict must blame, where the fault alone decides it.
    pub(super) fn blamed(&self) -> BTreeSet<usize> {
        match self.fault {
            Fault::Cut => BTreeSet::from([self.culprit, self.partner]),
            _ => BTreeSet::from([self.culprit]),
        }
    }

    pub(super) fn describe(&self) -> String {
        format!(
            "{:?} of rank {} of {}, step {}, strikes {} ms, lasts {} ms, hosts {:?}, groups {:?}, deadline {} ms, \
             delays {} us, {}, {:?} serves, {:?} namespaces, {} end, server stops: {:?}",
            self.fault,
            self.culprit,
            self.ranks,
            self.step,
            self.strikes_us / 1000,
            self.lasts_us / 1000,
            self.hosts,
            self.groups,
            self.deadline_us / 1000,
            self.delay_us,
            if self.is_launched {
                "launched"
            } else {
                "not launched"
            },
            self.seat,
            self.namespaces,
            if self.ends_abruptly {
                "abrupt"
            } else {
                "orderly"
            },
            self.server_stop
        )
    }
}

pub(super) fn index(value: u64) -> usize {
    crate::types::index(value)
}
