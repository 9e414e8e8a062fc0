//! Ranks that do not answer are looked at by others of their host.

use std::collections::BTreeMap;

use super::{AGAIN_PAUSE_MS, Arbiter, ROUND_MS, Round};
use crate::rendezvous::ProcessId;
use crate::watch::judge::FROZEN_AFTER_MS;

/// Rounds that are held again because the board of a rank that has complained could not be read.
const BLANKS_MAX: u32 = 10;
/// Neighbours of one PID namespace that look at a silent rank.
const LOOKERS: usize = 2;

impl Arbiter {
    /// How long each rank has not answered, at the end of a round. When silence comes to mean something a
    /// round ends, whether or not somebody asks for it then.
    pub(super) fn count_silence(&mut self, round: &Round) {
        let now_ms = self.closed_ms;
        for (rank, member) in (0_u32..).zip(&mut self.scene.members) {
            if member.fate.is_none() && !round.answered.contains(&rank) {
                let since = *self.silent_since.entry(rank).or_insert(round.began_ms);
                member.silent_ms = now_ms.saturating_sub(since).max(1);
                let due = since + FROZEN_AFTER_MS - ROUND_MS;
                if due > now_ms {
                    self.due_ms = Some(self.due_ms.map_or(due, |known| known.min(due)));
                }
            }
        }
    }

    /// Whether there is to be another round, because the board of a rank whose call is over, and that answers, does
    /// not show that call waiting: its thread was just writing there, and the system took the processor from it.
    pub(super) fn reads_again(&mut self, now_ms: u64) -> bool {
        if self.blanks >= BLANKS_MAX || !self.lacks_a_wait() {
            self.blanks = 0;
            return false;
        }
        self.blanks += 1;
        self.due_ms = Some(now_ms + AGAIN_PAUSE_MS);
        true
    }

    fn lacks_a_wait(&self) -> bool {
        self.overdue.iter().any(|(rank, call)| {
            let member = self.scene.member(*rank);
            let report = member.filter(|one| one.silent_ms == 0 && one.fate.is_none());
            let group = report.and_then(|one| one.report.as_ref()?.group(call.key));
            let under_way = group.and_then(|group| group.call.as_ref());
            let waits = under_way.is_some_and(|one| one.seq == call.seq && one.wait.is_some());
            report.is_some() && !waits
        })
    }

    /// Who is to look at whom: neighbours that answer at those that do not.
    pub(super) fn looks(&self) -> BTreeMap<u32, Vec<(u32, ProcessId)>> {
        let mut looks: BTreeMap<u32, Vec<(u32, ProcessId)>> = BTreeMap::new();
        for silent in self.silent_since.keys() {
            let process = self.processes[*silent as usize];
            for looker in self.lookers(&process) {
                looks.entry(looker).or_default().push((*silent, process));
            }
        }
        looks
    }

    /// Who may look at this process: ranks of its PID namespace; else those of every other one of its host, for one of
    /// them may be an ancestor of it.
    fn lookers(&self, process: &ProcessId) -> Vec<u32> {
        let mut lookers: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for (rank, other) in (0_u32..).zip(&self.processes) {
            let member = self.scene.member(rank);
            let answers = member.is_some_and(|member| member.fate.is_none())
                && !self.silent_since.contains_key(&rank);
            let known = lookers.entry(other.namespace).or_default();
            if answers && other.boot == process.boot && process.boot != 0 && known.len() < LOOKERS {
                known.push(rank);
            }
        }
        match lookers.remove(&process.namespace) {
            Some(same) if !same.is_empty() => same,
            _ => lookers.into_values().flatten().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Arbiter;
    use crate::rendezvous::{Act, Arbiter as Referee, Card, ProcessId};
    use crate::types::Rank;
    use crate::watch::report::{CallCode, GroupState, InFlight, Report, Wait};
    use crate::watch::verdict::{CallId, Class, Verdict};
    use crate::watch::wire::{Cause, FromRank, ToRank, decode, encode};

    const CALL: CallId = CallId { key: 9, seq: 3 };

    /// What a rank answers; rank 0 waits for rank 1 where `is_whole`.
    fn answer(ask: u64, rank: u32, is_whole: bool) -> Vec<u8> {
        let call = InFlight {
            seq: CALL.seq,
            call: CallCode { word: 4, count: 8 },
            site: "train.rs:8".to_owned(),
            age_ms: 2000,
            wait: Some(Wait {
                missing: vec![1],
                checks: 5,
                age_ms: 1990,
                ..Wait::default()
            }),
            ..InFlight::default()
        };
        let group = GroupState {
            key: CALL.key,
            name: "world".to_owned(),
            members: vec![0, 1],
            size: 2,
            entered: CALL.seq - u64::from(rank),
            thread: 1,
            call: Some(call).filter(|_| rank == 0 && is_whole),
            ..GroupState::default()
        };
        let report = Box::new(Report {
            rank,
            world_size: 2,
            threads: 1,
            groups: vec![group],
            ..Report::default()
        });
        let looks = Vec::new();
        encode(&FromRank::Answer { ask, report, looks })
    }

    fn asked(acts: &[Act]) -> Option<u64> {
        acts.iter().find_map(|act| {
            let Act::Tell(_, bytes) = act else {
                return None;
            };
            let Some(ToRank::Ask { ask, .. }) = decode::<ToRank>(bytes) else {
                return None;
            };
            Some(ask)
        })
    }

    fn verdict(acts: &[Act]) -> Option<Verdict> {
        acts.iter().find_map(|act| {
            let Act::TellAll(bytes) = act else {
                return None;
            };
            let Some(ToRank::Verdict(verdict)) = decode::<ToRank>(bytes) else {
                return None;
            };
            Some(*verdict)
        })
    }

    #[test]
    fn a_silent_rank_is_looked_at_from_its_own_pid_namespace_or_else_from_all_others_of_its_host() {
        let process = |boot, namespace| ProcessId {
            boot,
            namespace,
            pid: 1,
            started_ticks: 5,
        };
        let lookers = |processes: &[ProcessId], silent: u32| {
            let card = |process: &ProcessId| Card {
                process: *process,
                ..Card::default()
            };
            let mut arbiter = Arbiter::default();
            arbiter.ready(&processes.iter().map(card).collect::<Vec<_>>());
            arbiter.silent_since.insert(silent, 1);
            let looks = arbiter.looks();
            let all: Vec<u32> = looks.keys().copied().collect();
            assert!(
                looks
                    .values()
                    .flatten()
                    .all(|(rank, id)| *rank == silent && *id == processes[silent as usize])
            );
            all
        };
        let host = process(1, 10);
        let shared = [host, host, host, host, process(2, 10)];
        assert_eq!(lookers(&shared, 1), [0, 2]);
        assert_eq!(lookers(&shared, 4), [0; 0]);
        let apart = [host, process(1, 11), process(1, 12), process(2, 11)];
        assert_eq!(lookers(&apart, 1), [0, 2]);
        // Nothing is known of these processes.
        assert_eq!(lookers(&[ProcessId::default(); 3], 1), [0; 0]);
    }

    #[test]
    fn a_board_that_could_not_be_read_is_read_again_before_anything_is_said() {
        let mut arbiter = Arbiter::default();
        arbiter.ready(&[Card::default(), Card::default()]);
        let complaint = encode(&FromRank::Complaint {
            call: CALL,
            cause: Cause::InVain,
        });
        let acts = arbiter.heard(Rank(0), &complaint, 1000);
        let mut ask = asked(&acts).expect("a round");
        let mut now_ms = 1000;
        for _ in 0..3 {
            arbiter.heard(Rank(1), &answer(ask, 1, true), now_ms);
            let acts = arbiter.heard(Rank(0), &answer(ask, 0, false), now_ms);
            assert_eq!(verdict(&acts), None);
            now_ms += 10;
            ask = asked(&arbiter.tick(now_ms)).expect("another round");
        }
        arbiter.heard(Rank(1), &answer(ask, 1, true), now_ms);
        arbiter.heard(Rank(0), &answer(ask, 0, true), now_ms);
        let told = encode(&FromRank::Stack {
            functions: Vec::new(),
        });
        let found = verdict(&arbiter.heard(Rank(1), &told, now_ms)).expect("a verdict");
        assert_eq!((found.class, found.blamed), (Class::NotJoined, vec![1]));
    }
}
