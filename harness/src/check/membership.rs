//! Who is in a group, proved through the group itself.
//!
//! Nothing is taken from the arithmetic that made the group: every member says, over the group,
//! which world rank and process it is, at which index, and whom it takes for the members. All must
//! say the same, and the list must be the one that the layout promised.

use muster_comm::collective::Communicator;
use muster_comm::error::CommError;
use muster_comm::types::Rank;
use serde::{Deserialize, Serialize};

use crate::check::message::Wrong;

/// What a member says about itself and the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Card {
    world_rank: u32,
    process: u32,
    index: u64,
    members: Vec<u32>,
}

/// Numbers that each member contributes to the gather of numbers.
const FIELDS: usize = 3;

/// Checks the membership of a group that should have the members `promised`.
///
/// # Errors
/// The first error of a call.
pub fn check(
    comm: &Communicator,
    world_rank: Rank,
    promised: &[u32],
) -> Result<Option<Wrong>, CommError> {
    let (len, me) = (comm.size(), comm.rank());
    let process = std::process::id();
    let mine = [u64::from(world_rank.0), u64::from(process), me as u64];
    let mut all = vec![u64::MAX; FIELDS * len];
    comm.all_gather(&mine, &mut all)?;
    let card = Card {
        world_rank: world_rank.0,
        process,
        index: me as u64,
        members: comm.members().iter().map(|rank| rank.0).collect(),
    };
    let cards = comm.all_gather_object(&card)?;
    Ok(compare(&all, &cards, me, world_rank.0, promised))
}

/// Holds what was gathered as numbers and as objects against each other and the promise.
fn compare(
    all: &[u64],
    cards: &[Card],
    me: usize,
    world_rank: u32,
    promised: &[u32],
) -> Option<Wrong> {
    if cards.len() != promised.len() {
        let text = "the number of members that answered is not that of the group";
        return Some(differs(text, promised.len(), cards.len(), &[]));
    }
    for (index, (numbers, card)) in all.chunks(FIELDS).zip(cards).enumerate() {
        let blamed = [promised[index]];
        let said = [
            u64::from(card.world_rank),
            u64::from(card.process),
            card.index,
        ];
        if numbers != said.as_slice() {
            let text = format!("index {index} says one thing in numbers and another as an object");
            return Some(differs(
                &text,
                format!("{said:?}"),
                format!("{numbers:?}"),
                &blamed,
            ));
        }
        if card.index != index as u64 {
            let text = format!("who stands at index {index} takes itself for another");
            return Some(differs(&text, index, card.index, &blamed));
        }
        if card.world_rank != promised[index] {
            let text = format!("another rank stands at index {index} than the layout promised");
            return Some(differs(&text, promised[index], card.world_rank, &blamed));
        }
        if card.members != promised {
            let text = format!("rank {} has another list of members", card.world_rank);
            return Some(differs(
                &text,
                format!("{promised:?}"),
                format!("{:?}", card.members),
                &blamed,
            ));
        }
    }
    if cards[me].world_rank != world_rank {
        let text = "another rank answers at this rank's own index";
        return Some(differs(text, world_rank, cards[me].world_rank, &[]));
    }
    None
}

fn differs(text: &str, expected: impl ToString, got: impl ToString, blamed: &[u32]) -> Wrong {
    let (expected, got) = (expected.to_string(), got.to_string());
    Wrong {
        element: None,
        differing: None,
        text: format!("{text}: expected {expected}, got {got}"),
        expected,
        got,
        blamed: blamed.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cards(members: &[u32]) -> Vec<Card> {
        (0..)
            .zip(members)
            .map(|(index, rank)| Card {
                world_rank: *rank,
                process: 100 + rank,
                index,
                members: members.to_vec(),
            })
            .collect()
    }

    fn numbers(cards: &[Card]) -> Vec<u64> {
        cards
            .iter()
            .flat_map(|card| {
                [
                    u64::from(card.world_rank),
                    u64::from(card.process),
                    card.index,
                ]
            })
            .collect()
    }

    #[test]
    fn members_that_agree_pass() {
        let cards = cards(&[1, 3, 5]);
        assert_eq!(compare(&numbers(&cards), &cards, 1, 3, &[1, 3, 5]), None);
    }

    #[test]
    fn every_kind_of_disagreement_is_told_with_the_rank() {
        let promised = [1, 3, 5];
        let good = cards(&promised);
        let mut cases: Vec<(Vec<Card>, Vec<u64>, &str)> = Vec::new();
        let mut swapped = good.clone();
        swapped.swap(0, 1);
        cases.push((
            swapped.clone(),
            numbers(&swapped),
            "takes itself for another",
        ));
        let mut other = good.clone();
        other[2].world_rank = 7;
        cases.push((
            other.clone(),
            numbers(&other),
            "another rank stands at index 2",
        ));
        let mut list = good.clone();
        list[0].members = vec![1, 5, 3];
        cases.push((list.clone(), numbers(&list), "rank 1 has another list"));
        let mut torn = numbers(&good);
        torn[4] ^= 1;
        cases.push((good.clone(), torn, "in numbers and another as an object"));
        cases.push((good[..2].to_vec(), numbers(&good), "number of members"));
        for (cards, numbers, part) in cases {
            let wrong = compare(&numbers, &cards, 1, 3, &promised).expect(part);
            assert!(wrong.text.contains(part), "{wrong:?}");
        }
    }
}
