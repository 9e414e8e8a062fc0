//! Whatever the chains of waits are like, blame ends at a rank that waits for nobody.

use muster_comm::error::verdict::{CallId, Class};
use muster_comm::watch::judge::{Finding, Question, judge};
use muster_comm::watch::process::{ProcessFacts, Sight};
use proptest::prelude::*;

use crate::plant::{Plant, verdict};

/// A chain of waits over groups of two that ends in one culprit, among ranks that wait for each other
/// in nothing or for ranks of the chain.
fn chains() -> impl Strategy<Value = (u32, Vec<u32>, Vec<(u32, usize)>)> {
    (3..10_u32).prop_flat_map(|ranks| {
        let order = Just((0..ranks).collect::<Vec<u32>>()).prop_shuffle();
        (Just(ranks), order).prop_flat_map(move |(ranks, order)| {
            let length = 2..=order.len();
            let hangers = proptest::collection::vec((0..ranks, 0..order.len()), 0..4);
            (Just(ranks), Just(order), length, hangers).prop_map(
                |(ranks, order, length, hangers)| (ranks, order[..length].to_vec(), hangers),
            )
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// JUDGE-1, for every kind of culprit.
    #[test]
    fn only_the_end_of_a_chain_is_blamed((ranks, chain, hangers) in chains(), kind in 0..3_u8) {
        let mut plant = Plant::new(ranks);
        let culprit = chain[chain.len() - 1];
        for (key, pair) in (1..).zip(chain.windows(2)) {
            plant.group(key, &format!("g{key}"), pair, 3);
            plant.waits(pair[0], key, &[pair[1]]);
        }
        for (key, (rank, at)) in (100..).zip(&hangers) {
            let target = chain[at % chain.len()];
            let is_free = plant.report(*rank).groups.iter().all(|group| group.call.is_none());
            if !chain.contains(rank) && is_free {
                plant.group(key, &format!("g{key}"), &[*rank, target], 3);
                plant.waits(*rank, key, &[target]);
            }
        }
        plant.confirm();
        let class = match kind {
            0 => Class::NotJoined,
            1 => {
                plant.fate(culprit, "was killed by signal 9", false, 0);
                Class::PeerDead
            }
            _ => {
                let member = &mut plant.scene.members[culprit as usize];
                member.silent_ms = 2000;
                member.stopped_ms = Some(2000);
                member.process = Some(Sight::Seen(ProcessFacts { state: 'T', ..ProcessFacts::default() }));
                Class::PeerFrozen
            }
        };
        let waiting = judge(&plant.scene, Question::Waiting);
        prop_assert_eq!(matches!(waiting, Finding::Verdict(_)), class == Class::PeerFrozen);
        let verdict = plant.overdue(chain[0], 1);
        prop_assert_eq!(verdict.class, class);
        prop_assert_eq!(&verdict.blamed, &vec![culprit]);
        // The call that misses the culprit ends, and everybody in the chain is counted.
        let last = CallId { key: chain.len() as u64 - 1, seq: 4 };
        prop_assert!(verdict.ends.contains(&last));
        prop_assert!(verdict.others.starts_with(|digit: char| digit.is_ascii_digit()));
    }

    /// A closed chain blames its members and nobody who hangs on to it.
    #[test]
    fn only_the_members_of_a_circle_are_blamed((ranks, chain, hangers) in chains()) {
        let mut plant = Plant::new(ranks);
        let closed = chain.iter().copied().chain([chain[0]]).collect::<Vec<u32>>();
        for (key, pair) in (1..).zip(closed.windows(2)) {
            plant.group(key, &format!("g{key}"), pair, 3);
            plant.waits(pair[0], key, &[pair[1]]);
        }
        for (key, (rank, at)) in (100..).zip(&hangers) {
            let target = chain[at % chain.len()];
            let is_free = plant.report(*rank).groups.iter().all(|group| group.call.is_none());
            if !chain.contains(rank) && is_free {
                plant.group(key, &format!("g{key}"), &[*rank, target], 3);
                plant.waits(*rank, key, &[target]);
            }
        }
        prop_assert_eq!(judge(&plant.scene, Question::Waiting), Finding::Again(0));
        plant.confirm();
        let found = verdict(judge(&plant.scene, Question::Waiting));
        let mut members = chain.clone();
        members.sort_unstable();
        prop_assert_eq!((found.class, found.blamed), (Class::Deadlock, members));
    }
}
