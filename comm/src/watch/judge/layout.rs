//! Groups of one name that ranks made with different members: each side waits for ranks that have another.

use super::graph::{Graph, Waiter, has_remade};
use super::verdicts::draft;
use super::{Member, Scene};
use crate::error::verdict::{Class, Verdict, ranks};
use crate::error::{ErrorKind, Field};
use crate::types::Rank;
use crate::watch::report::GroupState;

/// A rank, and the group of the name that it made.
pub(super) type Side<'a> = (u32, &'a GroupState);

/// Two sides of a cycle whose groups have one name, and each of which lacks the other's. The second may have
/// given up its own, and wait elsewhere for the first.
pub(super) fn namesakes<'g>(
    scene: &'g Scene,
    graph: &Graph<'g>,
    cycle: &[usize],
) -> Option<(Side<'g>, Side<'g>)> {
    let waiters: Vec<&Waiter<'g>> = cycle.iter().map(|at| &graph.waiters[*at]).collect();
    let report = |rank: u32| scene.member(rank).and_then(|one| one.report.as_ref());
    let lacks = |rank: u32, key: u64| report(rank).is_some_and(|one| one.group(key).is_none());
    for (at, one) in waiters.iter().enumerate() {
        let other = waiters[at + 1..].iter().find(|other| {
            other.group.name == one.group.name
                && other.group.key != one.group.key
                && lacks(other.rank, one.group.key)
                && lacks(one.rank, other.group.key)
        });
        if let Some(other) = other {
            return Some(((one.rank, one.group), (other.rank, other.group)));
        }
    }
    waiters.iter().find_map(|one| {
        let there = waiters.iter().map(|other| other.rank);
        let odd =
            there.filter(|rank| one.wait.missing.contains(rank) && lacks(*rank, one.group.key));
        let made = |rank: u32| {
            let report = report(rank)?;
            let is_remade = has_remade(report, one.group);
            let other = report.groups.iter().find(|group| {
                group.name == one.group.name && (is_remade || group.differs(one.group))
            });
            Some((rank, other?))
        };
        Some(((one.rank, one.group), odd.filter_map(made).next()?))
    })
}

/// A rank that is waited for has a group of this name with other members.
pub(super) fn other_members(
    scene: &Scene,
    graph: &Graph<'_>,
    start: usize,
    odd: u32,
    group: &GroupState,
) -> Verdict {
    let mut held = graph.missing_one(|leaf| leaf.rank == odd);
    held.push(start);
    let mine = (graph.waiters[start].rank, graph.waiters[start].group);
    verdict(scene, graph, &held, mine, (odd, group))
}

/// Ranks made a group of one name with different members.
pub(super) fn verdict(
    scene: &Scene,
    graph: &Graph<'_>,
    held: &[usize],
    mine: Side<'_>,
    theirs: Side<'_>,
) -> Verdict {
    let kind = ErrorKind::Mismatch {
        field: Field::Membership,
        rank: Rank(mine.0),
        mine: format!("{:?}", mine.1.members),
        peer: Rank(theirs.0),
        theirs: format!("{:?}", theirs.1.members),
    };
    // The side with fewer ranks is the odd one; where both are equal, both are named.
    // A rank is on the side of the group that it waits in, or, where it does not wait so far, of the one
    // that it has made last.
    let key_of = |(rank, member): (u32, &Member)| -> Option<u64> {
        let mut own = graph.waiters.iter().filter(|waiter| waiter.rank == rank);
        let waits = own.find(|waiter| waiter.group.name == mine.1.name);
        let made = || {
            let groups = &member.report.as_ref()?.groups;
            groups.iter().rfind(|group| group.name == mine.1.name)
        };
        Some(waits.map(|waiter| waiter.group).or_else(made)?.key)
    };
    let side = |key: u64| -> Vec<u32> {
        let ranks = (0..).zip(&scene.members);
        let there = ranks.filter(|one| key_of(*one) == Some(key));
        there.map(|(rank, _)| rank).collect()
    };
    let (mut ours, mut others) = (side(mine.1.key), side(theirs.1.key));
    if others.is_empty() {
        others.push(theirs.0);
    }
    let mut shown = [(ours.clone(), mine.1), (others.clone(), theirs.1)];
    shown.sort_by_key(|(ranks, _)| ranks.first().copied());
    let place = shown.map(|(who, group)| format!("{:?} on {}", group.members, ranks(&who)));
    let blamed = match ours.len().cmp(&others.len()) {
        std::cmp::Ordering::Less => ours,
        std::cmp::Ordering::Greater => others,
        std::cmp::Ordering::Equal => {
            ours.append(&mut others);
            ours.sort_unstable();
            ours
        }
    };
    let name = &mine.1.name;
    // Calls of other groups, in which somebody waits for these ranks, can still be made.
    let held: Vec<usize> = held
        .iter()
        .copied()
        .filter(|at| graph.waiters[*at].group.name == *name)
        .collect();
    let mut verdict = draft(scene, graph, Class::Mismatch, &blamed, &held, kind);
    let (what, next) = if mine.1.members == theirs.1.members {
        (
            format!("group {name} was made more often on one side: "),
            "make the group equally often on every rank",
        )
    } else {
        (
            format!("group layout: {name} = "),
            "make the group from the same list on every rank",
        )
    };
    verdict.place = format!("{what}{}", place.join(", "));
    let waits = |waiter: &Waiter<'_>| waiter.rank == theirs.0 && waiter.group.key == theirs.1.key;
    verdict.evidence.push(if graph.waiters.iter().any(waits) {
        "both sides wait, each in its own group".to_owned()
    } else {
        format!(
            "rank {} waits in its group, which rank {} has not made",
            mine.0, theirs.0
        )
    });
    next.clone_into(&mut verdict.next);
    verdict
}
