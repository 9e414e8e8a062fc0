//! What the coordinator does with those who have proved the secret: who joins, what ranks say, who goes,
//! and who is told. Pure: frames, ends of connections and the time in milliseconds come in, and what is
//! to be done about connections comes out, so the same membership runs under the simulator.
//!
//! Connections are numbers here. Those of ranks are known; what becomes of one is the engine's business.

use std::collections::BTreeMap;

use super::awaited::{LOOK_EVERY_MS, Stopped};
use super::job::{Admission, Job, Phase};
use super::lost::Held;
use super::rounds::{Contribution, Failure, Rounds};
use super::{Absent, CoordinatorEvent, Refusal};
use crate::host_load::HostLoad;
use crate::rendezvous::arbiter::{Act, Arbiter};
use crate::rendezvous::card::{DownReason, ProcessId, millis};
use crate::rendezvous::error::RendezvousError;
use crate::rendezvous::limits::{COORDINATOR_FRAME_BYTES_MAX, MESSAGE_BYTES_MAX, PROGRESS_EVERY};
use crate::rendezvous::wire::{Body, ToCoordinator, ToSession, decode};
use crate::types::Rank;

/// A coordinator that took no note of the time for this long did not run: it does so twice a second at least.
const ASLEEP_MS: u64 = 1000;
/// How long it then takes to read what was sent meanwhile, and to let in who connected. Ranks wait for an answer
/// [`ANSWER_GRACE`](crate::rendezvous::limits::ANSWER_GRACE) beyond their deadlines, which is longer.
pub(super) const SETTLE_MS: u64 = 2000;

/// Something to be done, in order.
pub(crate) enum Task {
    /// The connection belongs to this rank from now on.
    Admit(u64, Rank),
    /// Nobody else is to be let in.
    CloseDoor,
    /// Say one last thing and read no further.
    Dismiss(u64, Body),
    /// Let it read what is queued for it, then close it.
    Drain(u64),
    /// Tell the owner.
    Emit(CoordinatorEvent),
    /// The process of its rank has ended: take in what it said last, and end it.
    HangUp(u64),
    /// Look at the processes of these ranks, and tell the membership what is seen.
    Look(Vec<Rank>),
    /// It does not speak the protocol.
    Malformed(u64, String),
    /// Write this onto the board of a rank, whose process this is.
    Post(ProcessId, Rank, Vec<u8>),
    /// It is turned away, which counts.
    Refuse(u64, Refusal),
    /// Pass on to the owner what a rank reports, if there is room.
    Report(Rank, Vec<u8>),
    /// Say this.
    Tell(u64, Body),
}

/// See the module.
pub(crate) struct Membership {
    pub(super) job: Job,
    pub(super) rounds: Rounds,
    /// The connection of every rank that has one.
    pub(super) ranks: Vec<Option<u64>>,
    /// Ranks whose goodbye the others have not been told of yet, and their connections.
    leaving: Vec<(Rank, u64)>,
    pub(super) held: Vec<Held>,
    pub(super) owner_knows_exits: bool,
    pub(super) arbiter: Option<Box<dyn Arbiter>>,
    closes_door: bool,
    /// How long ranks may take to come.
    pub(super) arrival_ms: u64,
    pub(super) look: Option<fn(&ProcessId) -> Option<String>>,
    pub(super) load: fn() -> HostLoad,
    pub(super) next_look_ms: u64,
    pub(super) stopped: Stopped,
    /// What the owner saw last of the processes of ranks that have not joined.
    pub(super) absent: BTreeMap<Rank, Absent>,
    next_progress_ms: u64,
    /// The time of day at time zero, and the last time that was told.
    epoch_unix_ms: u64,
    pub(super) seen_ms: u64,
    /// Until then nobody is told to be missing: the coordinator did not run a moment ago, and has not read yet what was
    /// sent to it meanwhile.
    pub(super) settled_ms: u64,
    /// When the time of a wait was first seen to be up.
    pub(super) due_ms: Option<u64>,
    /// A rank has waited for the others as long as it wanted to.
    pub(super) has_given_up: bool,
    /// When bring-up failed, if it has.
    failed_unix_ms: Option<u64>,
    /// Ranks that have been told so, or went before.
    told: usize,
    pub(super) tasks: Vec<Task>,
}

/// How a membership works.
pub(crate) struct Rules {
    pub(crate) owner_knows_exits: bool,
    pub(crate) arbiter: Option<Box<dyn Arbiter>>,
    pub(crate) closes_door: bool,
    pub(crate) arrival_ms: u64,
    /// Where it is given, bring-up ends with the first round, and ranks that it waits for are looked at.
    pub(crate) look: Option<fn(&ProcessId) -> Option<String>>,
    /// Reads the load of this host.
    pub(crate) load: fn() -> HostLoad,
    /// The time of day at time zero, in milliseconds since 1970; for people.
    pub(crate) epoch_unix_ms: u64,
}

impl Membership {
    pub(crate) fn new(
        (job_id, attempt): (String, u32),
        build: String,
        world_size: u32,
        rules: Rules,
    ) -> Self {
        let job = Job::new(job_id, attempt, build, world_size);
        Self {
            job,
            rounds: Rounds::new(world_size),
            ranks: vec![None; world_size as usize],
            leaving: Vec::new(),
            held: Vec::new(),
            owner_knows_exits: rules.owner_knows_exits,
            arbiter: rules.arbiter,
            closes_door: rules.closes_door,
            arrival_ms: rules.arrival_ms,
            look: rules.look,
            load: rules.load,
            next_look_ms: 0,
            stopped: Stopped::default(),
            absent: BTreeMap::new(),
            next_progress_ms: millis(PROGRESS_EVERY),
            epoch_unix_ms: rules.epoch_unix_ms,
            seen_ms: 0,
            settled_ms: 0,
            due_ms: None,
            has_given_up: false,
            failed_unix_ms: None,
            told: 0,
            tasks: Vec::new(),
        }
    }

    /// What is to be done now.
    pub(crate) fn tasks(&mut self) -> Vec<Task> {
        std::mem::take(&mut self.tasks)
    }

    /// Whether it wants to see the time pass.
    pub(crate) fn is_busy(&self) -> bool {
        let arbiter = self.arbiter.as_ref();
        !self.held.is_empty()
            || self.rounds.is_any_open()
            || arbiter.is_some_and(|arbiter| arbiter.is_busy())
    }

    /// The connection of a rank.
    pub(crate) fn token(&self, rank: Rank) -> Option<u64> {
        self.ranks.get(rank.index()).copied().flatten()
    }

    /// Whether the arbiter is at work though no rank is left: what it says now is its last word.
    pub(crate) fn is_judging_the_last(&self) -> bool {
        self.is_empty() && self.arbiter.as_ref().is_some_and(|one| one.is_busy())
    }

    /// Whether no rank has a connection.
    pub(crate) fn is_empty(&self) -> bool {
        self.ranks.iter().all(Option::is_none)
    }

    /// Whether no rank has a connection, and where bring-up has failed none is left that has not been told so.
    pub(crate) fn is_deserted(&self) -> bool {
        let is_failed = matches!(self.job.phase(), Phase::Failed(_));
        let are_all_told = !is_failed || self.told >= self.ranks.len();
        are_all_told && self.is_empty()
    }

    /// A joiner's third frame, and the first that is believed.
    pub(crate) fn introduce(&mut self, token: u64, body: &[u8], now_ms: u64) {
        self.notice(now_ms);
        let now_unix_ms = self.epoch_unix_ms + now_ms;
        // Who comes late is told of the failure as those who were there.
        let at_unix_ms = self.failed_unix_ms.unwrap_or(now_unix_ms);
        let failed = |error| Body::new(&ToSession::Failed { error, at_unix_ms });
        let admission = self.job.introduce(body, now_ms);
        if self.ranks.is_empty() {
            // The first rank may have said how large the world is.
            self.ranks = vec![None; self.job.world_size() as usize];
            self.rounds = Rounds::new(self.job.world_size());
        }
        match admission {
            Admission::Joined(rank) => self.joined(token, rank, now_ms),
            Admission::Refused(error) => {
                if matches!(self.job.phase(), Phase::Failed(_)) {
                    self.told += 1;
                } else {
                    self.tasks.push(Task::Refuse(token, Refusal::Job));
                }
                self.tasks.push(Task::Dismiss(token, failed(error)));
            }
            Admission::Fatal(error) => {
                let last = failed(error.clone());
                self.tasks.push(Task::Dismiss(token, last));
                self.fail(error);
            }
        }
    }

    fn joined(&mut self, token: u64, rank: Rank, now_ms: u64) {
        self.tasks.push(Task::Admit(token, rank));
        self.ranks[rank.index()] = Some(token);
        self.emit(CoordinatorEvent::Joined { rank });
        if !self.job.is_complete() {
            let progress = Body::new(&self.job.progress());
            self.tasks.push(Task::Tell(token, progress));
            return;
        }
        let cards = self.job.roster();
        let arbiter = self.arbiter.as_ref();
        let server = arbiter.map(|arbiter| arbiter.process()).unwrap_or_default();
        let roster = Body::new(&ToSession::Roster { cards, server });
        if roster.bytes.len() > COORDINATOR_FRAME_BYTES_MAX {
            self.fail(RendezvousError::TooLarge {
                what: "the roster of all cards".to_owned(),
                bytes: roster.bytes.len() as u64,
                max: COORDINATOR_FRAME_BYTES_MAX as u64,
            });
            return;
        }
        self.job.set_ready(now_ms);
        self.next_look_ms = now_ms + LOOK_EVERY_MS;
        if let Some(arbiter) = &mut self.arbiter {
            arbiter.ready(&self.job.roster());
        }
        self.tell_body(&roster, None);
        if self.closes_door {
            self.tasks.push(Task::CloseDoor);
        }
        self.emit(CoordinatorEvent::Ready);
    }

    /// A rank says something.
    pub(crate) fn hear(&mut self, token: u64, rank: Rank, body: &[u8], now_ms: u64) {
        self.notice(now_ms);
        let message: ToCoordinator = match decode("message of a rank", body) {
            Ok(message) => message,
            Err(error) => return self.malformed(token, &error.to_string()),
        };
        if self.job.is_gone(rank) {
            return;
        }
        match message {
            ToCoordinator::GiveUp => self.give_up(now_ms),
            ToCoordinator::Abort { bytes } if bytes.len() <= MESSAGE_BYTES_MAX => {
                let origin = rank;
                let message = ToSession::Abort {
                    origin,
                    bytes: bytes.clone(),
                };
                self.tell_all(&message, Some(rank));
                self.emit(CoordinatorEvent::Abort { origin, bytes });
            }
            ToCoordinator::Bye => self.bye(token, rank),
            ToCoordinator::Part {
                round,
                budget_ms,
                bytes,
            } if bytes.len() <= MESSAGE_BYTES_MAX => {
                if !matches!(self.job.phase(), Phase::Ready { .. }) {
                    return self.malformed(token, "a round before the world was complete");
                }
                let name = round.clone();
                let part = self
                    .rounds
                    .contribute(rank, round, budget_ms, bytes, now_ms);
                self.contributed(token, name, part);
            }
            ToCoordinator::Report { bytes } if bytes.len() <= MESSAGE_BYTES_MAX => {
                self.tasks.push(Task::Report(rank, bytes));
            }
            ToCoordinator::Watch { bytes } if bytes.len() <= MESSAGE_BYTES_MAX => {
                self.arbitrate(|arbiter| arbiter.heard(rank, &bytes, now_ms));
            }
            ToCoordinator::Abort { .. }
            | ToCoordinator::Part { .. }
            | ToCoordinator::Report { .. }
            | ToCoordinator::Watch { .. } => self.malformed(token, "an overlong message"),
        }
    }

    /// A rank stopped waiting for the others: everybody is told who is missing. If the world became
    /// complete meanwhile, the roster is on its way to that rank, and it is there after all.
    fn give_up(&mut self, now_ms: u64) {
        self.has_given_up = true;
        self.tell_who_is_missing(now_ms);
    }

    fn bye(&mut self, token: u64, rank: Rank) {
        if !matches!(self.job.phase(), Phase::Ready { .. }) {
            return self.malformed(token, "a goodbye before the world was complete");
        }
        self.ranks[rank.index()] = None;
        if self.job.set_gone(rank) {
            self.leaving.push((rank, token));
            if let Some(arbiter) = &mut self.arbiter {
                arbiter.left(rank);
            }
            self.end_rounds(&RendezvousError::RankLeft { rank });
            self.emit(CoordinatorEvent::Left { rank });
        } else {
            self.tasks.push(Task::Drain(token));
        }
    }

    /// Tells those who stay about the goodbyes of this turn, then those who go that all others know (`RDV-5`).
    pub(crate) fn tell_left(&mut self) {
        let leaving = std::mem::take(&mut self.leaving);
        if leaving.is_empty() {
            return;
        }
        let ranks = leaving.iter().map(|(rank, _)| *rank).collect();
        self.tell_all(&ToSession::Left { ranks }, None);
        let answer = |(_, token)| Task::Dismiss(token, Body::new(&ToSession::Goodbye));
        self.tasks.extend(leaving.into_iter().map(answer));
    }

    fn contributed(&mut self, token: u64, round: String, part: Contribution) {
        match part {
            Contribution::Waiting => {}
            Contribution::Complete(parts) => {
                self.tell_all(&ToSession::Round { round, parts }, None);
            }
            Contribution::Failed(failure) => self.tell_failures(vec![failure]),
            Contribution::Broken(what) => self.malformed(token, what),
        }
    }

    /// The owner says how a rank's process ended. What the rank had said before has been heard.
    pub(crate) fn rank_down(&mut self, rank: Rank, reason: DownReason, now_ms: u64) {
        self.held.retain(|held| held.rank != rank);
        self.announce_down(rank, reason, now_ms);
    }

    /// Tells everybody that a rank is down, since `at_ms`; once (`RDV-4`).
    pub(super) fn announce_down(&mut self, rank: Rank, reason: DownReason, at_ms: u64) {
        let error = self.job.down(rank, reason.clone());
        match self.job.phase() {
            Phase::Failed(_) => {}
            Phase::Gathering if self.job.is_gone(rank) => {}
            Phase::Gathering => self.fail(error),
            Phase::Ready { .. } => {
                if self.job.set_gone(rank) {
                    if let Some(arbiter) = &mut self.arbiter {
                        arbiter.down(rank, &reason, at_ms);
                    }
                    self.tell_all(&ToSession::Down { rank, reason }, Some(rank));
                    self.end_rounds(&error);
                }
            }
        }
    }

    /// Ends the bring-up for everybody, for one reason.
    pub(super) fn fail(&mut self, error: RendezvousError) {
        self.job.set_failed(error.clone());
        let at_unix_ms = self.set_failed_at();
        self.arbitrate(|arbiter| arbiter.failed(&error, at_unix_ms));
        let message = ToSession::Failed {
            error: error.clone(),
            at_unix_ms,
        };
        let body = Body::new(&message);
        self.told += usize::from(matches!(error, RendezvousError::RankDown { .. }));
        for token in self.ranks.iter_mut().filter_map(Option::take) {
            self.told += 1;
            self.tasks.push(Task::Dismiss(token, body.clone()));
        }
        self.emit(CoordinatorEvent::Failed(error));
    }

    /// Takes note of the time.
    pub(super) fn notice(&mut self, now_ms: u64) {
        if now_ms.saturating_sub(self.seen_ms) >= ASLEEP_MS {
            self.settled_ms = now_ms + SETTLE_MS;
        }
        self.seen_ms = now_ms;
    }

    /// Time passes.
    pub(crate) fn tick(&mut self, now_ms: u64) {
        self.notice(now_ms);
        self.look_at_held(now_ms);
        self.arbitrate(|arbiter| arbiter.tick(now_ms));
        self.tell_who_is_missing(now_ms);
        self.look_at_awaited(now_ms);
        if matches!(self.job.phase(), Phase::Gathering) && self.next_progress_ms <= now_ms {
            self.next_progress_ms = now_ms + millis(PROGRESS_EVERY);
            self.tell_all(&self.job.progress(), None);
        }
    }

    /// Lets the arbiter act.
    pub(super) fn arbitrate(&mut self, work: impl FnOnce(&mut dyn Arbiter) -> Vec<Act>) {
        let Some(arbiter) = &mut self.arbiter else {
            return;
        };
        for act in work(&mut **arbiter) {
            match act {
                Act::Ended(rank) => self.found_ended(rank),
                Act::Post(process, rank, bytes) => {
                    self.tasks.push(Task::Post(process, rank, bytes));
                }
                Act::Look(ranks) => self.tasks.push(Task::Look(ranks)),
                Act::Report(bytes) => self.emit(CoordinatorEvent::Watch { bytes }),
                Act::Tell(rank, bytes) => {
                    self.tell_rank(rank, &Body::new(&ToSession::Watch { bytes }));
                }
                Act::TellAll(bytes) => self.tell_all(&ToSession::Watch { bytes }, None),
            }
        }
    }

    /// The time of day at which bring-up failed: the first one counts.
    pub(super) fn set_failed_at(&mut self) -> u64 {
        let now_unix_ms = self.epoch_unix_ms + self.seen_ms;
        *self.failed_unix_ms.get_or_insert(now_unix_ms)
    }

    /// Tells the ranks that wait in failed rounds.
    pub(super) fn tell_failures(&mut self, failures: Vec<Failure>) {
        // Where no round can be completed any more all ranks are told of one moment, whenever they come.
        let at_unix_ms = if self.rounds.is_over() {
            self.set_failed_at()
        } else {
            let now_unix_ms = self.epoch_unix_ms + self.seen_ms;
            self.failed_unix_ms.unwrap_or(now_unix_ms)
        };
        for Failure {
            round,
            waiting,
            error,
        } in failures
        {
            let body = Body::new(&ToSession::RoundFailed {
                round,
                error,
                at_unix_ms,
            });
            for rank in waiting {
                self.tell_rank(rank, &body);
            }
        }
    }

    /// Sends one frame to one rank, if it is there.
    fn tell_rank(&mut self, rank: Rank, body: &Body) {
        if let Some(token) = self.token(rank) {
            self.tasks.push(Task::Tell(token, body.clone()));
        }
    }

    /// Sends one frame to every rank that is there, except one.
    pub(crate) fn tell_all(&mut self, message: &ToSession, except: Option<Rank>) {
        self.tell_body(&Body::new(message), except);
    }

    fn tell_body(&mut self, body: &Body, except: Option<Rank>) {
        for index in 0..self.ranks.len() {
            let rank = Rank::from_index(index);
            if Some(rank) != except {
                self.tell_rank(rank, body);
            }
        }
    }

    fn malformed(&mut self, token: u64, what: &str) {
        self.tasks.push(Task::Malformed(token, what.to_owned()));
    }

    pub(super) fn emit(&mut self, event: CoordinatorEvent) {
        self.tasks.push(Task::Emit(event));
    }
}
