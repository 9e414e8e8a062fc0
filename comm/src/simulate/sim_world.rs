//! The stage: everything that takes part in one run, and what happens to it next.

use std::collections::{BTreeMap, BTreeSet};

use super::net::{Event, Future, Pipe};
use super::rank::{Life, Player, Pressed, narrow};
use super::scenario::{ARRIVAL_MS, Fault, Scenario, Seat};
use super::view::{pid, process};
use crate::error::verdict::Verdict;
use crate::host_load::HostLoad;
use crate::rendezvous::{
    Body, Card, CoordinatorEvent, DownReason, Introduction, Membership, PROTOCOL, ProcessId, Rules,
    Task, ToCoordinator, encode_introduction,
};
use crate::transport::sim::draw::{Draw, Trace};
use crate::types::Rank;
use crate::watch::arbiter::Arbiter;
use crate::watch::wire::ToOwner;

/// Virtual time in which every run must be over.
const HORIZON_US: u64 = 300_000_000;
/// How often the coordinator looks at the time while it is busy, and otherwise.
const TICK_US: u64 = 10_000;
const REST_US: u64 = 500_000;
/// How long a starved process has a processor when it gets one.
pub(super) const TURN_US: u64 = 3000;
/// A connection that is nobody's: the second of two ranks that are one.
pub(super) const STRANGER: u64 = 100;

/// See the module.
pub(super) struct Stage<'a> {
    pub(super) plan: &'a Scenario,
    pub(super) now_us: u64,
    pub(super) events: u64,
    pub(super) players: Vec<Player>,
    /// What was wrong on the way.
    pub(super) wrong: Option<String>,
    /// Since when the fault keeps somebody waiting.
    pub(super) pressed: Option<Pressed>,
    /// Whether somebody might rightly have found it in the way, without having to wait for it.
    pub(super) is_excused: bool,
    /// Entries that did not get through: who lacks them, group and call.
    pub(super) lost: Vec<(usize, usize, u64)>,
    /// Whether it has struck.
    pub(super) has_struck: bool,
    /// What the owner of the coordinator was told.
    pub(super) owner_failed: Option<String>,
    pub(super) owner_verdicts: Vec<Verdict>,
    pub(super) log: Vec<String>,
    pub(super) draw: Draw,
    pub(super) future: Future,
    pub(super) membership: Membership,
    pub(super) desk_is_stopped: bool,
    /// The process that served it has ended.
    pub(super) desk_is_gone: bool,
    /// Decides what came into the play later, so that seeds show what they showed before.
    pub(super) apart: Draw,
    /// What came for those who are stopped.
    pub(super) deferred: Vec<(u64, Event)>,
    pub(super) to_desk: BTreeMap<u64, Pipe>,
    pub(super) to_rank: Vec<Pipe>,
    next_tick_us: u64,
    gone: BTreeMap<u32, u32>,
    is_armed: bool,
    /// Who waited for each other in a circle when the first verdict was told.
    pub(super) circle: Option<BTreeSet<usize>>,
    logs: bool,
    trace: Trace,
}

impl<'a> Stage<'a> {
    pub(super) fn new(plan: &'a Scenario, seed: u64, logs: bool) -> Self {
        let rules = Rules {
            owner_knows_exits: plan.is_launched,
            arbiter: Some(Box::new(Arbiter::in_process(process(plan, plan.seat)))),
            closes_door: false,
            look: None,
            load: HostLoad::default,
            arrival_ms: ARRIVAL_MS,
            epoch_unix_ms: 0,
        };
        let world_size = narrow(plan.ranks);
        let membership =
            Membership::new(("job".to_owned(), 0), "build".to_owned(), world_size, rules);
        let mut stage = Self {
            plan,
            now_us: 0,
            events: 0,
            players: (0..plan.ranks)
                .map(|rank| Player::new(rank, plan))
                .collect(),
            wrong: None,
            pressed: None,
            is_excused: false,
            lost: Vec::new(),
            has_struck: false,
            owner_failed: None,
            owner_verdicts: Vec::new(),
            log: Vec::new(),
            draw: Draw::new(seed ^ 0x5157_4147_4521),
            future: Future::default(),
            membership,
            desk_is_stopped: false,
            desk_is_gone: false,
            apart: Draw::new(seed ^ 0x0061_7061_7274),
            deferred: Vec::new(),
            to_desk: BTreeMap::new(),
            to_rank: vec![Pipe::default(); plan.ranks],
            next_tick_us: u64::MAX,
            gone: BTreeMap::new(),
            is_armed: false,
            circle: None,
            logs,
            trace: Trace::default(),
        };
        let is_double = plan.fault == Fault::Duplicate;
        for rank in 0..plan.ranks {
            let mut at_us = stage.draw.up_to(200_000);
            if is_double {
                // The double comes before the world is complete: later it would be turned away.
                at_us = if rank == plan.culprit {
                    0
                } else {
                    at_us + 20_000
                };
            }
            if plan.fault == Fault::Absent && rank == plan.culprit {
                stage.players[rank].life = Life::Dead;
            } else {
                stage.at(at_us, Event::Arrive(rank));
            }
        }
        if is_double {
            stage.at(0, Event::Arrive(plan.ranks));
        }
        stage.tick_after(TICK_US);
        stage
    }

    pub(super) fn hash(&self) -> u64 {
        self.trace.hash
    }

    pub(super) fn verdict_line(&self) -> Option<String> {
        let told = self.players.iter().find_map(|player| player.told.first());
        told.map(|(_, verdict)| verdict.line())
    }

    /// Something is to happen.
    pub(super) fn at(&mut self, at_us: u64, event: Event) {
        let lot = self.draw.next();
        self.future.push(at_us.max(self.now_us), lot, event);
    }

    /// As [`Stage::at`], for what came into the play later.
    pub(super) fn at_apart(&mut self, at_us: u64, event: Event) {
        let lot = self.apart.next();
        self.future.push(at_us.max(self.now_us), lot, event);
    }

    pub(super) fn say(&mut self, what: impl FnOnce() -> String) {
        if self.logs {
            let line = format!("{:>12.3} ms  {}", self.now_us as f64 / 1000.0, what());
            self.log.push(line);
        }
    }

    /// Plays until nothing is left to happen.
    pub(super) fn play(&mut self) -> Result<(), String> {
        while let Some((at_us, event)) = self.future.pop() {
            self.now_us = at_us;
            if at_us > HORIZON_US {
                let open = |player: &&Player| !matches!(player.life, Life::Left | Life::Dead);
                let open: Vec<usize> = self.players.iter().filter(open).map(|p| p.rank).collect();
                return Err(format!(
                    "the run does not end: ranks {open:?} are still there"
                ));
            }
            if let Some(wrong) = self.wrong.take() {
                return Err(wrong);
            }
            self.happen(event);
            if self.is_over() {
                return Ok(());
            }
        }
        Err("nothing is left to happen, and ranks are still there".to_owned())
    }

    /// Whether all have gone and the coordinator knows it.
    fn is_over(&self) -> bool {
        let is_done = self.membership.is_empty() && !self.membership.is_busy();
        let is_stopped = self
            .plan
            .server_stop
            .is_some_and(|stop| stop.lasts_us.is_none());
        self.players
            .iter()
            .all(|player| matches!(player.life, Life::Left | Life::Dead))
            && (is_done || self.desk_is_gone || is_stopped)
    }

    fn happen(&mut self, event: Event) {
        let is_of_desk = matches!(
            event,
            Event::ToDesk(..) | Event::EndAtDesk(_) | Event::Tick | Event::Reaped(_)
        );
        if is_of_desk && self.desk_is_gone {
            return;
        }
        if self.is_asleep(&event) {
            self.deferred.push((self.now_us, event));
            return;
        }
        if let Some(turn_us) = self.next_turn(&event) {
            self.at(turn_us, event);
            return;
        }
        self.events += 1;
        self.trace.add(event.code(), self.now_us, event.subject());
        match event {
            Event::Arrive(rank) => self.arrive(rank),
            Event::ToDesk(token, frame) => self.desk_hears(token, &frame),
            Event::EndAtDesk(token) => {
                let rank = Rank::from_index(super::scenario::index(token));
                if self.membership.token(rank) == Some(token) {
                    let now_ms = self.now_ms();
                    self.membership
                        .ended(rank, Some(DownReason::HungUp), now_ms);
                }
                self.carry_out();
            }
            Event::ToRank(rank, frame) => self.rank_hears(rank, &frame),
            Event::EndAtRank(rank) => self.cut_off(rank),
            Event::Reaped(rank) => self.reaped(rank),
            // An earlier one has taken its place.
            Event::Tick if self.plan.has_scene && self.now_us < self.next_tick_us => {}
            Event::Tick => {
                self.next_tick_us = u64::MAX;
                self.membership.tick(self.now_ms());
                self.carry_out();
                self.serve_on();
                self.tick_after(REST_US);
            }
            Event::Go(rank) => self.go(rank),
            Event::Seen {
                rank,
                by,
                group,
                seq,
            } => {
                let seen = &mut self.players[by].seen[group][rank];
                *seen = seq.max(*seen);
                self.go(by);
            }
            Event::Strike => self.strike(),
            Event::Relent => self.relent(),
            Event::ServerStops => self.server_stops(),
            Event::ServerGoesOn => self.server_goes_on(),
        }
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.now_us / 1000
    }

    fn tick_after(&mut self, us: u64) {
        if self.now_us + us < self.next_tick_us {
            self.next_tick_us = self.now_us + us;
            self.at(self.next_tick_us, Event::Tick);
        }
    }

    fn arrive(&mut self, at: usize) {
        let is_double = at == self.plan.ranks;
        let rank = if is_double { self.plan.culprit } else { at };
        let is_liar = self.plan.fault == Fault::OtherWorld && rank == self.plan.culprit;
        let world_size = i64::from(narrow(self.plan.ranks)) + i64::from(is_liar);
        let host = format!("h{}", self.plan.hosts[rank]);
        let introduction = Introduction {
            protocol: PROTOCOL,
            build: "build".to_owned(),
            rank: i64::from(narrow(rank)),
            world_size,
            source: "play".to_owned(),
            host: host.clone(),
            pid: pid(at),
        };
        let card = Card {
            process: ProcessId {
                pid: pid(at),
                ..process(self.plan, Seat::Rank(rank))
            },
            host_identity: host.clone(),
            host,
            ..Card::default()
        };
        let body = encode_introduction(&introduction, &card);
        let token = if is_double { STRANGER } else { rank as u64 };
        self.send_to_desk(token, &body);
    }

    fn desk_hears(&mut self, token: u64, frame: &[u8]) {
        let now_ms = self.now_ms();
        let rank = Rank::from_index(super::scenario::index(token));
        let is_known = self
            .players
            .get(rank.index())
            .is_some_and(|player| player.has_joined);
        if is_known {
            self.membership.hear(token, rank, frame, now_ms);
        } else {
            self.membership.introduce(token, frame, now_ms);
        }
        self.carry_out();
    }

    fn reaped(&mut self, rank: usize) {
        let reason = match self.plan.fault {
            Fault::Exited if rank == self.plan.culprit => DownReason::Exited { code: 0 },
            _ if self.players[rank].life == Life::Left => DownReason::Exited { code: 0 },
            _ if let Some(code) = self.players[rank].exit_code => DownReason::Exited { code },
            _ => DownReason::Killed { signal: 9 },
        };
        self.say(|| format!("launcher: rank {rank} {reason}"));
        let rank = Rank::from_index(rank);
        if self.membership.token(rank).is_some() {
            // As the engine does: the owner knows better than the connection.
            self.membership.ended(rank, None, self.now_ms());
        }
        self.membership.rank_down(rank, reason, self.now_ms());
        self.carry_out();
    }

    /// Does what the membership wants done.
    pub(super) fn carry_out(&mut self) {
        self.membership.tell_left();
        loop {
            let tasks = self.membership.tasks();
            if tasks.is_empty() {
                break;
            }
            self.carry_out_all(tasks);
        }
        if self.membership.is_busy() {
            self.tick_after(TICK_US);
        }
    }

    fn carry_out_all(&mut self, tasks: Vec<Task>) {
        for task in tasks {
            match task {
                Task::Admit(token, _) => {
                    if let Some(player) = self.players.get_mut(super::scenario::index(token)) {
                        player.has_joined = true;
                    }
                }
                Task::Tell(token, body) => self.send_to_rank(token, &body),
                Task::Look(ranks) => self.look(&ranks),
                Task::Dismiss(token, body) => {
                    self.send_to_rank(token, &body);
                    self.close_to_rank(token);
                }
                Task::Drain(token) => self.close_to_rank(token),
                Task::HangUp(token) => self.close_to_desk(super::scenario::index(token)),
                Task::Malformed(token, what) => {
                    self.wrong = Some(format!("connection {token} is called malformed: {what}"));
                }
                Task::Emit(event) => self.owner_hears(event),
                Task::CloseDoor | Task::Post(..) | Task::Refuse(..) | Task::Report(..) => {}
            }
        }
    }

    fn owner_hears(&mut self, event: CoordinatorEvent) {
        match event {
            CoordinatorEvent::Failed(error) => {
                self.say(|| format!("owner: bring-up failed: {error}"));
                self.owner_failed.get_or_insert_with(|| error.to_string());
            }
            CoordinatorEvent::Left { rank } | CoordinatorEvent::Lost { rank, .. } => {
                let times = self.gone.entry(rank.0).or_default();
                *times += 1;
                if *times > 1 {
                    self.wrong = Some(format!("the owner is told twice that {rank} is gone"));
                }
            }
            CoordinatorEvent::Watch { bytes } => match ToOwner::decode(&bytes) {
                Some(ToOwner::Verdict(verdict)) => {
                    self.say(|| format!("owner: {}", verdict.line()));
                    self.owner_verdicts.push(*verdict);
                }
                Some(ToOwner::Suspect(line) | ToOwner::Starved(line)) => {
                    self.say(|| format!("owner: {line}"));
                }
                None => self.wrong = Some("the owner is told what it cannot read".to_owned()),
            },
            _ => {}
        }
    }

    pub(super) fn tell_desk(&mut self, rank: usize, message: &ToCoordinator) {
        self.send_to_desk(rank as u64, &Body::new(message));
    }

    fn send_to_desk(&mut self, token: u64, body: &Body) {
        let pipe = self.to_desk.entry(token).or_default();
        let at_us = pipe.arrival(self.now_us, self.plan.delay_us, &mut self.draw);
        self.at(at_us, Event::ToDesk(token, body.bytes.to_vec()));
    }

    /// The end of a rank's connection comes after all that it said.
    pub(super) fn close_to_desk(&mut self, rank: usize) {
        let token = rank as u64;
        let pipe = self.to_desk.entry(token).or_default();
        let at_us = pipe.arrival(self.now_us, self.plan.delay_us, &mut self.draw);
        self.at(at_us, Event::EndAtDesk(token));
    }

    fn send_to_rank(&mut self, token: u64, body: &Body) {
        let rank = super::scenario::index(token);
        if let Some(pipe) = self.to_rank.get_mut(rank) {
            let at_us = pipe.arrival(self.now_us, self.plan.delay_us, &mut self.draw);
            self.at(at_us, Event::ToRank(rank, body.bytes.to_vec()));
        }
    }

    fn close_to_rank(&mut self, token: u64) {
        let rank = super::scenario::index(token);
        if let Some(pipe) = self.to_rank.get_mut(rank) {
            let at_us = pipe.arrival(self.now_us, self.plan.delay_us, &mut self.draw);
            self.at(at_us, Event::EndAtRank(rank));
        }
    }

    /// The world is complete: the fault has its time.
    pub(super) fn arm(&mut self) {
        if self.is_armed {
            return;
        }
        self.is_armed = true;
        let at_us = self.now_us + self.plan.strikes_us;
        self.at(at_us, Event::Strike);
        if let Some(stop) = self.plan.server_stop {
            self.at_apart(self.now_us + stop.at_us, Event::ServerStops);
        }
    }

    /// All who could end have ended: what stands still is ended from outside.
    pub(super) fn sweep(&mut self) {
        let stop = self.plan.server_stop;
        let goes_on = |player: &Player| {
            let is_server = self.plan.seat == Seat::Rank(player.rank);
            is_server && stop.is_some_and(|stop| stop.lasts_us.is_some())
        };
        let is_stuck =
            |player: &Player| player.is_stopped && !goes_on(player) || player.life == Life::Busy;
        let is_open = |player: &&Player| !matches!(player.life, Life::Left | Life::Dead);
        if self.plan.fault.is_harmless() || !self.players.iter().filter(is_open).all(is_stuck) {
            return;
        }
        for rank in 0..self.plan.ranks {
            if is_stuck(&self.players[rank]) {
                self.die(rank);
            }
        }
    }
}
