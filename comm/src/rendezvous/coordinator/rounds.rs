//! World-wide rounds: every rank gives bytes, every rank gets everybody's, in rank order.
//!
//! Pure: time is a number of milliseconds since the coordinator started, given by the caller.

use std::collections::{BTreeMap, VecDeque};

use crate::host_load::HostLoad;
use crate::rendezvous::error::RendezvousError;
use crate::rendezvous::limits::{NAME_BYTES_MAX, ROUND_BYTES_MAX, ROUNDS_MAX};
use crate::rendezvous::presence::late;
use crate::rendezvous::wire::Part;
use crate::types::Rank;

/// What a contribution leads to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Contribution {
    /// Others are still to come.
    Waiting,
    /// Everybody contributed: the parts in rank order, for every rank.
    Complete(Vec<Part>),
    /// The round has failed.
    Failed(Failure),
    /// No rank of ours does this.
    Broken(&'static str),
}

/// A round that cannot be completed, and the ranks that wait for it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) round: String,
    pub(super) waiting: Vec<Rank>,
    pub(super) error: RendezvousError,
}

/// A wait counts as this long at least where others came to it a short time ago: what bring-up leaves for its rounds may be nothing.
const WAIT_MIN_MS: u64 = 4000;

#[derive(Debug)]
struct Open {
    parts: Vec<Option<Part>>,
    given: usize,
    bytes: usize,
    began_ms: u64,
    /// When the last part came.
    last_ms: u64,
    expires_ms: u64,
}

impl Open {
    fn ranks(&self, contributed: bool) -> Vec<Rank> {
        let ranks = self.parts.iter().enumerate();
        ranks
            .filter(|(_, part)| part.is_some() == contributed)
            .map(|(index, _)| Rank::from_index(index))
            .collect()
    }
}

/// The rounds of one job.
#[derive(Debug)]
pub(super) struct Rounds {
    world_size: u32,
    open: BTreeMap<String, Open>,
    failed: VecDeque<(String, RendezvousError)>,
    /// Why no further round can be completed: the first rank that went.
    over: Option<RendezvousError>,
    /// A round was completed.
    has_completed: bool,
}

impl Rounds {
    pub(super) fn new(world_size: u32) -> Self {
        Self {
            world_size,
            open: BTreeMap::new(),
            failed: VecDeque::new(),
            over: None,
            has_completed: false,
        }
    }

    /// Whether any rank waits in a round.
    pub(super) fn is_any_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// The ranks that the others wait for, before the first round is complete or while one is open; `None` where nobody
    /// waits.
    pub(super) fn awaited(&self) -> Option<Vec<Rank>> {
        let oldest = self.open.values().min_by_key(|open| open.began_ms);
        match oldest {
            _ if self.over.is_some() => None,
            Some(open) => Some(open.ranks(false)),
            None if self.has_completed => None,
            None => Some((0..self.world_size).map(Rank).collect()),
        }
    }

    /// Whether no round can be completed any more.
    pub(super) const fn is_over(&self) -> bool {
        self.over.is_some()
    }

    /// Takes one rank's part.
    pub(super) fn contribute(
        &mut self,
        rank: Rank,
        round: String,
        budget_ms: u64,
        bytes: Vec<u8>,
        now_ms: u64,
    ) -> Contribution {
        if round.len() > NAME_BYTES_MAX {
            return Contribution::Broken("a round with an overlong name");
        }
        if let Some(error) = self.refusal(&round) {
            return Contribution::Failed(Failure {
                round,
                waiting: vec![rank],
                error,
            });
        }
        let world_size = self.world_size as usize;
        let expires_ms = now_ms.saturating_add(budget_ms);
        let open = self.open.entry(round.clone()).or_insert_with(|| Open {
            parts: vec![None; world_size],
            given: 0,
            bytes: 0,
            began_ms: now_ms,
            last_ms: now_ms,
            expires_ms,
        });
        if open.parts[rank.index()].is_some() {
            return Contribution::Broken("two parts for one round");
        }
        open.given += 1;
        open.bytes += bytes.len();
        open.parts[rank.index()] = Some(Part(bytes));
        open.expires_ms = open.expires_ms.min(expires_ms);
        open.last_ms = now_ms;
        if open.bytes > ROUND_BYTES_MAX {
            let error = RendezvousError::TooLarge {
                what: format!("round {round:?}"),
                bytes: open.bytes as u64,
                max: ROUND_BYTES_MAX as u64,
            };
            return self
                .fail(&round, &error)
                .map_or(Contribution::Waiting, Contribution::Failed);
        }
        if open.given < world_size {
            return Contribution::Waiting;
        }
        let parts = self.open.remove(&round).map(|open| open.parts);
        self.has_completed = true;
        Contribution::Complete(parts.into_iter().flatten().flatten().collect())
    }

    pub(super) fn is_any_due(&self, now_ms: u64) -> bool {
        self.open.values().any(|open| open.expires_ms <= now_ms)
    }

    /// The rounds whose time is up.
    pub(super) fn expire(&mut self, load: fn() -> HostLoad, now_ms: u64) -> Vec<Failure> {
        let due = |(round, open): (&String, &Open)| {
            (open.expires_ms <= now_ms).then(|| {
                let waited_ms = now_ms.saturating_sub(open.began_ms);
                let since_last_ms = now_ms.saturating_sub(open.last_ms);
                let error = RendezvousError::RoundMissing {
                    round: round.clone(),
                    missing: open.ranks(false),
                    world_size: self.world_size,
                    waited_ms,
                    late: late(load(), waited_ms.max(WAIT_MIN_MS), since_last_ms),
                };
                (round.clone(), error)
            })
        };
        let due: Vec<_> = self.open.iter().filter_map(due).collect();
        due.iter()
            .filter_map(|(round, error)| self.fail(round, error))
            .collect()
    }

    /// A rank is gone: no round can be completed any more.
    pub(super) fn end(&mut self, error: &RendezvousError) -> Vec<Failure> {
        let rounds: Vec<String> = self.open.keys().cloned().collect();
        let failures = rounds
            .iter()
            .filter_map(|round| self.fail(round, error))
            .collect();
        self.over.get_or_insert_with(|| error.clone());
        failures
    }

    fn refusal(&self, round: &str) -> Option<RendezvousError> {
        if let Some(error) = &self.over {
            return Some(error.clone());
        }
        if let Some((_, error)) = self.failed.iter().find(|(failed, _)| failed == round) {
            return Some(error.clone());
        }
        if self.open.len() < ROUNDS_MAX || self.open.contains_key(round) {
            return None;
        }
        Some(RendezvousError::RoundMisused {
            round: round.to_owned(),
            why: format!("{ROUNDS_MAX} rounds are open already"),
        })
    }

    /// Ends an open round and remembers why, for ranks that contribute later.
    fn fail(&mut self, round: &str, error: &RendezvousError) -> Option<Failure> {
        let open = self.open.remove(round)?;
        if self.failed.len() == ROUNDS_MAX {
            self.failed.pop_front();
        }
        self.failed.push_back((round.to_owned(), error.clone()));
        Some(Failure {
            round: round.to_owned(),
            waiting: open.ranks(true),
            error: error.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn part(rank: usize) -> Vec<u8> {
        vec![u8::try_from(rank).unwrap(); rank]
    }

    fn contribute(rounds: &mut Rounds, rank: usize, round: &str, now_ms: u64) -> Contribution {
        let (name, bytes) = (round.to_owned(), part(rank));
        rounds.contribute(Rank::from_index(rank), name, 100, bytes, now_ms)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_last_to_come_completes_a_round_whatever_the_order(
            order in Just((0..9usize).collect::<Vec<_>>()).prop_shuffle()
        ) {
            let mut rounds = Rounds::new(9);
            for rank in &order[..8] {
                prop_assert_eq!(contribute(&mut rounds, *rank, "r", 0), Contribution::Waiting);
            }
            let parts = (0..9).map(|rank| Part(part(rank))).collect();
            let last = contribute(&mut rounds, order[8], "r", 0);
            prop_assert_eq!(last, Contribution::Complete(parts));
            prop_assert!(!rounds.is_any_open());
        }
    }

    #[test]
    fn a_round_expires_at_the_earliest_budget_and_names_who_is_missing() {
        let mut rounds = Rounds::new(3);
        contribute(&mut rounds, 2, "r", 50);
        contribute(&mut rounds, 0, "r", 60);
        assert_eq!(rounds.expire(HostLoad::default, 149), []);
        let error = RendezvousError::RoundMissing {
            round: "r".to_owned(),
            missing: vec![Rank(1)],
            world_size: 3,
            waited_ms: 100,
            late: None,
        };
        let failure = |waiting: &[u32]| Failure {
            round: "r".to_owned(),
            waiting: waiting.iter().map(|rank| Rank(*rank)).collect(),
            error: error.clone(),
        };
        assert_eq!(rounds.expire(HostLoad::default, 150), [failure(&[0, 2])]);
        assert_eq!(rounds.expire(HostLoad::default, 1000), []);
        let late = contribute(&mut rounds, 1, "r", 2000);
        assert_eq!(late, Contribution::Failed(failure(&[1])));
    }

    #[test]
    fn on_a_crowded_host_a_rank_may_be_late_while_others_still_come() {
        let crowded = || HostLoad {
            runnable: 60,
            processors: 2,
        };
        let late_after = |load: fn() -> HostLoad, ms| {
            let mut rounds = Rounds::new(2);
            rounds.contribute(Rank(0), "r".to_owned(), ms, part(0), 0);
            let RendezvousError::RoundMissing { late, .. } = rounds.expire(load, ms)[0].error
            else {
                panic!("a rank is missing");
            };
            late
        };
        assert_eq!(late_after(crowded, 1000), Some(crowded()));
        assert_eq!(late_after(crowded, 1001), None);
        assert_eq!(late_after(HostLoad::default, 1000), None);
    }

    #[test]
    fn ranks_are_awaited_until_the_first_round_is_complete_and_in_each_that_is_open() {
        let mut rounds = Rounds::new(2);
        assert_eq!(rounds.awaited(), Some(vec![Rank(0), Rank(1)]));
        contribute(&mut rounds, 0, "r", 0);
        assert_eq!(rounds.awaited(), Some(vec![Rank(1)]));
        contribute(&mut rounds, 1, "r", 0);
        assert_eq!(rounds.awaited(), None);
        contribute(&mut rounds, 1, "s", 0);
        assert_eq!(rounds.awaited(), Some(vec![Rank(0)]));
        rounds.end(&RendezvousError::RankLeft { rank: Rank(0) });
        assert_eq!(rounds.awaited(), None);
    }

    #[test]
    fn once_a_rank_is_gone_no_round_begins() {
        let mut rounds = Rounds::new(2);
        contribute(&mut rounds, 0, "r", 0);
        let error = RendezvousError::RankLeft { rank: Rank(1) };
        assert_eq!(rounds.end(&error).len(), 1);
        for round in ["r", "s"] {
            let outcome = contribute(&mut rounds, 0, round, 0);
            assert!(matches!(outcome, Contribution::Failed(failure) if failure.error == error));
        }
    }

    #[test]
    fn rounds_have_limits_in_number_bytes_and_name() {
        let mut rounds = Rounds::new(100);
        for round in 0..ROUNDS_MAX {
            let outcome = contribute(&mut rounds, 0, &round.to_string(), 0);
            assert_eq!(outcome, Contribution::Waiting);
        }
        let outcome = contribute(&mut rounds, 0, "one more", 0);
        assert!(matches!(outcome, Contribution::Failed(_)), "{outcome:?}");
        assert_eq!(contribute(&mut rounds, 1, "0", 0), Contribution::Waiting);
        let twice = contribute(&mut rounds, 1, "0", 0);
        assert!(matches!(twice, Contribution::Broken(_)), "{twice:?}");
        let name = "n".repeat(NAME_BYTES_MAX + 1);
        let overlong = contribute(&mut rounds, 0, &name, 0);
        assert!(matches!(overlong, Contribution::Broken(_)), "{overlong:?}");

        let mut rounds = Rounds::new(100);
        let mut outcomes = (0..49).map(|rank| {
            let bytes = vec![0; 1024 * 1024];
            rounds.contribute(Rank(rank), "big".to_owned(), 100, bytes, 0)
        });
        assert!(
            outcomes
                .by_ref()
                .take(48)
                .all(|outcome| outcome == Contribution::Waiting)
        );
        let Some(Contribution::Failed(failure)) = outcomes.next() else {
            panic!("48 MiB are the limit");
        };
        assert!(
            matches!(failure.error, RendezvousError::TooLarge { .. }),
            "{}",
            failure.error
        );
        assert_eq!(failure.waiting.len(), 49);
    }
}
