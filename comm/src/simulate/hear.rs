//! What ranks make of the messages that the coordinator sends them.

use super::plan::Fault;
use super::rank::{Life, circle};
use super::stage::Stage;
use crate::rendezvous::{SessionEvent, ToCoordinator, ToSession, decode};
use crate::types::Rank;
use crate::watch::wire::{self, FromRank, Look, ToRank};
use crate::world::{ServedBy, note};

impl Stage<'_> {
    /// The coordinator has closed the connection.
    pub(super) fn cut_off(&mut self, rank: usize) {
        if matches!(self.players[rank].life, Life::Joining) {
            self.players[rank].life = Life::Left;
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
            note(&stage.players[rank].status, ServedBy::Launcher, event);
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
            ToSession::Roster { .. } => {
                self.players[rank].life = Life::Working;
                self.arm();
            }
            ToSession::Watch { bytes } => self.watch(rank, &bytes),
            ToSession::Message { .. }
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
        let (plan, now_us) = (self.plan, self.now_us);
        match wire::decode::<ToRank>(bytes) {
            Some(ToRank::Ask { ask, look }) => {
                let looks = look.into_iter().map(|(who, _)| {
                    let at = super::plan::index(u64::from(who));
                    let sight = self.sight(at);
                    let report = sight
                        .facts()
                        .map(|_| Box::new(self.players[at].report(plan, now_us)));
                    Look {
                        rank: who,
                        sight,
                        report,
                    }
                });
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
            Some(ToRank::Suspected) => {}
            Some(ToRank::Suspect { line }) => self.say(|| format!("rank {rank}: {line}")),
            Some(ToRank::Verdict(verdict)) => {
                let told = (*verdict).clone();
                let mut is_new = false;
                self.players[rank]
                    .status
                    .set_verdict(*verdict, || is_new = true);
                if is_new {
                    self.say(|| format!("rank {rank}: {}", told.line()));
                    if plan.fault == Fault::Inverted && self.circle.is_none() {
                        self.circle = Some(circle(&self.players, plan));
                    }
                    self.players[rank].told.push((now_us, told));
                }
            }
            None => self.wrong = Some(format!("rank {rank} cannot read the arbiter")),
        }
    }
}
