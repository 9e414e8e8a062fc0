//! Verdicts on processes that run no more: ranks that died, and ranks that are stopped.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::format::{fate, last_act, stalled, who};
use super::graph::{Graph, Leaf, Why};
use super::verdicts::draft;
use super::{EndCause, FROZEN_AFTER_MS, Fate, Scene};
use crate::error::ErrorKind;
use crate::error::verdict::{Class, Confidence, Verdict, seconds};
use crate::types::Rank;

/// Most ranks that are named beside the first one that ended.
const BESIDE_MAX: usize = 7;

/// A rank that went without a goodbye. Others that a signal ended before anything was told, and ranks that are seen
/// stopped, may have come first: they are named beside it.
pub(super) fn dead(scene: &Scene, graph: &Graph<'_>, rank: u32, frozen: &[&Leaf<'_>]) -> Verdict {
    let held = graph.missing_one(|leaf| leaf.rank == rank && matches!(leaf.why, Why::Down));
    let fate = fate(scene, rank);
    let mut blamed = vec![rank];
    blamed.extend(frozen.iter().map(|leaf| leaf.rank));
    blamed.sort_unstable();
    blamed.dedup();
    let kind = ErrorKind::PeerClosed {
        peer: Rank(rank),
        how: fate.how.clone(),
        orderly: false,
    };
    let mut verdict = draft(scene, graph, fate.class, &blamed, &held, kind);
    verdict.confidence = fate.confidence;
    verdict.place = format!("{}{}", fate.how, last_act(scene, rank));
    verdict.evidence.push(fate.evidence.clone());
    name_beside(scene, rank, &mut verdict);
    for leaf in frozen {
        if let Why::Frozen { how } = &leaf.why
            && !verdict.place.contains(&format!("rank {} is", leaf.rank))
        {
            let _ = write!(verdict.place, "; rank {} is in {how}", leaf.rank);
        }
    }
    for (other, member) in (0_u32..).zip(&scene.members) {
        if let Some(fate) = member
            .fate
            .as_ref()
            .filter(|fate| !fate.orderly && !verdict.blamed.contains(&other))
        {
            verdict
                .cascades
                .push(format!("rank {other} {} after it", fate.how));
        }
    }
    verdict.next = fate.hint;
    verdict
}

/// Names in a verdict on a rank that ended those that may have ended before it.
pub(in crate::watch) fn name_beside(scene: &Scene, rank: u32, verdict: &mut Verdict) {
    let beside = ended_beside(scene, rank);
    if beside.is_empty() {
        return;
    }
    verdict.place.push_str(&describe_ended(scene, &beside));
    verdict.blamed.extend(beside);
    verdict.blamed.sort_unstable();
    verdict.blamed.dedup();
    verdict.who = who(scene, &verdict.blamed);
    let is_likely = |one: &u32| {
        let fate = scene.member(*one).and_then(|one| one.fate.as_ref());
        fate.is_some_and(|fate| fate.confidence == Confidence::Likely)
    };
    if verdict.blamed.iter().any(is_likely) {
        verdict.confidence = Confidence::Likely;
        let unknown =
            "nobody saw which of them ended first, and a launcher may have ended the others";
        verdict.evidence.push(unknown.to_owned());
    }
}

/// Ranks that ended before anything was told, and not because of this one: any of them may have been the first.
fn ended_beside(scene: &Scene, rank: u32) -> Vec<u32> {
    let Some(own) = scene.member(rank).and_then(|one| one.fate.as_ref()) else {
        return Vec::new();
    };
    let is_beside = |fate: &Fate| match (own.cause, fate.cause) {
        (_, EndCause::Unknown) | (EndCause::Unknown, EndCause::MayFollow) => false,
        // It may have followed from that one.
        (EndCause::Unknown, EndCause::Unprovoked) => !own.orderly && fate.order < own.order,
        (_, EndCause::Unprovoked) => true,
        (_, EndCause::MayFollow) => fate.order < own.order,
    };
    let members = (0_u32..).zip(&scene.members);
    let beside: Vec<u32> = members
        .filter(|(other, member)| *other != rank && member.fate.as_ref().is_some_and(is_beside))
        .map(|(other, _)| other)
        .collect();
    // The first stands for many: they have one cause, or a launcher ends all because of it.
    if beside.len() > BESIDE_MAX {
        return Vec::new();
    }
    beside
}

/// `; rank 4 was killed by signal 9, in barrier #7`, for each of them.
fn describe_ended(scene: &Scene, ranks: &[u32]) -> String {
    let mut text = String::new();
    for rank in ranks {
        let how = scene.member(*rank).and_then(|one| one.fate.as_ref());
        let how = how.map_or("", |fate| fate.how.as_str());
        // Writing to a string cannot fail.
        let _ = write!(text, "; rank {rank} {how}{}", last_act(scene, *rank));
    }
    text
}

/// Ranks whose processes do not run: those that others wait for, and those that were found so for as long, since any of them
/// may have been the first.
pub(super) fn frozen(scene: &Scene, graph: &Graph<'_>, leaves: &[&Leaf<'_>]) -> Verdict {
    let awaited = leaves.iter().filter_map(|leaf| {
        let Why::Frozen { how } = &leaf.why else {
            return None;
        };
        Some((leaf.rank, how.clone()))
    });
    let members = (0_u32..).zip(&scene.members);
    let found = members.filter_map(|(rank, member)| Some((rank, member.frozen(FROZEN_AFTER_MS)?)));
    let frozen: BTreeMap<u32, String> = found.chain(awaited).collect();
    let blamed: Vec<u32> = frozen.keys().copied().collect();
    let held = graph.missing_one(|leaf| matches!(leaf.why, Why::Frozen { .. }));
    let mut verdict = draft(
        scene,
        graph,
        Class::PeerFrozen,
        &blamed,
        &held,
        stalled(&blamed),
    );
    let mut places = Vec::new();
    for (rank, how) in &frozen {
        places.push(format!("{how}{}", last_act(scene, *rank)));
        let silent_ms = scene.member(*rank).map_or(0, |member| member.silent_ms);
        verdict.evidence.push(format!(
            "rank {rank} has not answered for {}",
            seconds(silent_ms)
        ));
    }
    let first_frozen = scene.member(blamed[0]);
    let ended_before = first_frozen.map_or(&[][..], |member| &member.ended_before);
    let is_before_all = |ended: &&u32| {
        let mut frozen = blamed.iter().filter_map(|rank| scene.member(*rank));
        frozen.all(|member| member.ended_before.contains(ended))
    };
    let beside: Vec<u32> = ended_before.iter().filter(is_before_all).copied().collect();
    verdict.place = format!("{}{}", places.join("; "), describe_ended(scene, &beside));
    if !beside.is_empty() {
        verdict.blamed.extend(&beside);
        verdict.blamed.sort_unstable();
        verdict.who = who(scene, &verdict.blamed);
    }
    let freezer = blamed.iter().find_map(|rank| {
        let sight = scene.member(*rank)?.process.as_ref()?;
        sight.facts()?.freezer.as_ref()
    });
    verdict.next = match freezer {
        Some(freezer) => format!("thaw the control group: `{}`", freezer.thaw),
        None => "continue the process with `kill -CONT`, or see what it waits for in the kernel"
            .to_owned(),
    };
    verdict
}
