//! What ranks make of the messages that the coordinator sends them.

use super::rank::{Life, circle};
use super::scenario::{Fault, Seat};
use super::sim_world::Stage;
use crate::error::verdict::Verdict;
use crate::rendezvous::{SessionEvent, ToCoordinator, ToSession, decode};
use crate::types::Rank;
use crate::watch::peers::Peers;
use crate::watch::probe;
use crate::watch::wire::{self, FromRank, ToRank};
use crate::world::{ServedBy, note};

impl Stage<'_> {
    /// The coordinator has closed the connection.
    pub(super) fn cut_off(&mut self, rank: usize) {
        if matches!(self.players[rank].life, Life::Joining) {
            self.players[rank].life = Life::Left;
        }
        if self.desk_is_gone && !matches!(self.players[rank].life, Life::Left | Life::Dead) {
            let why = "the connection was closed".to_owned();
            let event = SessionEvent::CoordinatorLost { why };
            note(&self.players[rank].status, self.served_by(), event);
            self.go(rank);
        }
    }

    fn served_by(&self) -> ServedBy {
        match self.plan.seat {
            Seat::Launcher => ServedBy::Launcher,
            Seat::Rank(rank) => ServedBy::Rank(Rank::from_index(rank)),
        }
    }

    /// The session's thread takes a frame.
    pub(super) fn rank_hears(&mut self, rank: usize, frame: &[u8]) {
        if matches!(self.players[rank].life, Life::Dead | Life::Left) {
            return;
        }
        let message: ToSession = match decode("message of the coordinator", frame) {
            Ok(message) => message,
            Err(error) => {
                self.wrong = Some(format!("rank {rank} cannot read a message: {error}"));
                return;
            }
        };
        let news = |stage: &mut Self, event: SessionEvent| {
            note(&stage.players[rank].status, stage.served_by(), event);
        };
        match message {
            ToSession::Abort { origin, bytes } => {
                news(self, SessionEvent::Abort { origin, bytes });
            }
            ToSession::Down { rank: who, reason } => {
                self.hear_gone(rank, who);
                news(self, SessionEvent::Down { rank: who, reason });
            }
            ToSession::Failed { error, .. } => {
                self.say(|| format!("rank {rank}: bring-up failed: {error}"));
                self.players[rank].refused = Some(error.to_string());
                self.players[rank].life = Life::Left;
            }
            ToSession::Left { ranks } => {
                for who in ranks {
                    self.hear_gone(rank, who);
                    news(self, SessionEvent::Left { rank: who });
                }
            }
            ToSession::Roster { cards, server } => {
                let served_by = match self.plan.seat {
                    Seat::Launcher => None,
                    Seat::Rank(rank) => Some(Rank::from_index(rank)),
                };
                let (me, view) = (Rank::from_index(rank), self.view(Seat::Rank(rank)));
                let peers = Peers::new(&view, me, &cards, server, served_by);
                self.players[rank].peers = Some(peers);
                self.players[rank].life = Life::Working;
                self.arm();
            }
            ToSession::Watch { bytes } => self.watch(rank, &bytes),
            ToSession::Goodbye
            | ToSession::Message { .. }
            | ToSession::Over { .. }
            | ToSession::Progress { .. }
            | ToSession::Round { .. }
            | ToSession::RoundFailed { .. } => {}
        }
        self.go(rank);
    }

    fn hear_gone(&mut self, rank: usize, who: Rank) {
        let times = self.players[rank].news.entry(who.0).or_default();
        *times += 1;
        if *times > 1 {
            self.wrong = Some(format!("rank {rank} is told twice that {who} is gone"));
        }
    }

    /// What the arbiter says.
    fn watch(&mut self, rank: usize, bytes: &[u8]) {
        self.players[rank].heard_us = self.now_us;
        match wire::decode::<ToRank>(bytes) {
            Some(ToRank::Ask { ask, look }) => {
                let view = self.view(Seat::Rank(rank));
                let looks = look
                    .into_iter()
                    .map(|(who, process)| probe::look_at(&view, who, &process));
                let looks = looks.collect();
                let report = Box::new(self.report(rank));
                let bytes = wire::encode(&FromRank::Answer { ask, report, looks });
                self.tell_desk(rank, &ToCoordinator::Watch { bytes });
            }
            Some(ToRank::Stack { .. }) => {
                let functions = vec!["simulated".to_owned()];
                let bytes = wire::encode(&FromRank::Stack { functions });
                self.tell_desk(rank, &ToCoordinator::Watch { bytes });
            }
            // Nobody looks at a simulated world.
            Some(ToRank::Suspected | ToRank::Show { .. }) => {}
            Some(ToRank::Suspect { line }) => self.say(|| format!("rank {rank}: {line}")),
            Some(ToRank::Verdict(verdict)) => self.take(rank, *verdict),
            None => self.wrong = Some(format!("rank {rank} cannot read the arbiter")),
        }
    }
    /// A rank is told a verdict, or has come to it.
    pub(super) fn take(&mut self, rank: usize, verdict: Verdict) {
        let (plan, now_us, now_ms) = (self.plan, self.now_us, self.now_ms());
        let told = verdict.clone();
        let mut is_new = false;
        self.players[rank]
            .status
            .set_verdict(verdict, now_ms, || is_new = true);
        if is_new {
            self.say(|| format!("rank {rank}: {}", told.line()));
            if plan.fault == Fault::Inverted && self.circle.is_none() {
                self.circle = Some(circle(&self.players, plan));
            }
            self.players[rank].told.push((now_us, told));
        }
    }
}
