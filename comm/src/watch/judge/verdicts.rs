//! Verdicts in words: one function a class, all from the same scene.

use super::Scene;
use super::format::{DESCRIBED_MAX, call_of, full_call_of, last_act, others, stalled, who};
use super::graph::{Graph, Leaf, Waiter, Why};
use crate::error::ErrorKind;
use crate::error::verdict::{CallId, Class, Confidence, Verdict, ranks, seconds};
use crate::host_load::CROWDED;
use crate::types::Rank;
use crate::watch::process::Sight;
use crate::watch::report::Destroyed;

/// Ranks that could not do what others wait for, since they got no processor.
pub(super) fn starved(scene: &Scene, graph: &Graph<'_>, start: usize, starved: &[u32]) -> Verdict {
    let mut verdict = on_host(scene, graph, start, starved[0], stalled(starved));
    let seen = |rank: &u32| Some((*rank, scene.starvation_of(*rank)?));
    let seen: Vec<_> = starved.iter().filter_map(seen).collect();
    if let Some((_, most)) = seen.iter().max_by_key(|(_, one)| one.ran_ms) {
        verdict.place = format!(
            "starved: {} ran {}{} ms of the last {} ({})",
            ranks(starved),
            if starved.len() > 1 { "at most " } else { "" },
            most.ran_ms,
            seconds(most.window_ms),
            most.load
        );
    }
    for (rank, one) in seen.iter().take(DESCRIBED_MAX) {
        verdict.evidence.push(format!(
            "rank {rank} ran {} and was ready to run for {} of {}",
            seconds(one.ran_ms),
            seconds(one.delayed_ms),
            seconds(one.window_ms)
        ));
    }
    verdict
}

/// The beginning of a verdict on the host of a rank, which names no rank.
fn on_host(scene: &Scene, graph: &Graph<'_>, start: usize, rank: u32, kind: ErrorKind) -> Verdict {
    let mut verdict = draft(scene, graph, Class::Resource, &[], &[start], kind);
    let member = scene.member(rank);
    verdict.who = format!("host {}", member.map_or("", |one| one.host.as_str()));
    "give the ranks more processors, or the call more time".clone_into(&mut verdict.next);
    verdict
}

/// Ranks that said goodbye before a call that others wait for them in.
pub(super) fn left(scene: &Scene, graph: &Graph<'_>, blamed: &[u32]) -> Verdict {
    let held =
        graph.missing_one(|leaf| blamed.contains(&leaf.rank) && matches!(leaf.why, Why::Left));
    let kind = ErrorKind::PeerClosed {
        peer: Rank(blamed[0]),
        how: "left the world".to_owned(),
        orderly: true,
    };
    let mut verdict = draft(scene, graph, Class::NotJoined, blamed, &held, kind);
    verdict.place = format!("left the world{}", last_act(scene, blamed[0]));
    verdict.evidence.push("said goodbye".to_owned());
    "make the same number of calls on every rank before the world is left"
        .clone_into(&mut verdict.next);
    verdict
}

/// Ranks that destroyed a group before a call of it.
pub(super) fn destroyed(scene: &Scene, graph: &Graph<'_>, group: &Destroyed) -> Verdict {
    let is_it =
        |leaf: &Leaf<'_>| matches!(leaf.why, Why::Destroyed { group: one } if one.key == group.key);
    let held = graph.missing_one(is_it);
    let leaves = graph.leaves(&held);
    let mut blamed: Vec<u32> = leaves
        .iter()
        .filter(|leaf| is_it(leaf))
        .map(|leaf| leaf.rank)
        .collect();
    blamed.sort_unstable();
    blamed.dedup();
    destroyed_by(scene, graph, &blamed, &held, group)
}

/// These ranks destroyed the group that these waiters wait in.
pub(super) fn destroyed_by(
    scene: &Scene,
    graph: &Graph<'_>,
    blamed: &[u32],
    held: &[usize],
    group: &Destroyed,
) -> Verdict {
    let kind = ErrorKind::PeerClosed {
        peer: Rank(blamed[0]),
        how: "destroyed the group".to_owned(),
        orderly: true,
    };
    let mut verdict = draft(scene, graph, Class::NotJoined, blamed, held, kind);
    let after = match (group.entered, group.calls) {
        (0, 0) => "before its first call".to_owned(),
        (0, 1) => "after a message".to_owned(),
        (0, calls) => format!("after {calls} calls of messages"),
        (entered, _) => format!("after its call #{entered}"),
    };
    let act = last_act(scene, blamed[0]);
    verdict.place = format!("destroyed group {} {after}{act}", group.name);
    verdict
        .evidence
        .push(format!("{} answered when asked", ranks(blamed)));
    "make the same number of calls on every rank before the group is destroyed"
        .clone_into(&mut verdict.next);
    verdict
}

/// Waits that close a circle.
pub(super) fn cycle(scene: &Scene, graph: &Graph<'_>, cycle: &[usize]) -> Verdict {
    let blamed = graph.held_elsewhere(cycle);
    let held = cycle.to_vec();
    let mut verdict = draft(
        scene,
        graph,
        Class::Deadlock,
        &blamed,
        &held,
        stalled(&blamed),
    );
    verdict.place = format!("cycle: {}", sides(graph, cycle).join("; "));
    verdict
        .evidence
        .push("each of these waits was seen twice, unchanged".to_owned());
    "make these calls in the same order on every rank".clone_into(&mut verdict.next);
    verdict
}

/// The calls of a cycle, a part each: `ranks 0,1 in all_reduce #3 on g1 (x.rs:8) wait for rank 2`.
fn sides(graph: &Graph<'_>, cycle: &[usize]) -> Vec<String> {
    let mut sides: Vec<(String, Vec<u32>, Vec<u32>)> = Vec::new();
    for at in cycle {
        let waiter = &graph.waiters[*at];
        let call = format!("{} ({})", call_of(waiter), waiter.call.site);
        match sides.iter_mut().find(|(known, _, _)| *known == call) {
            Some((_, who, whom)) => {
                who.push(waiter.rank);
                whom.extend(&waiter.wait.missing);
            }
            None => sides.push((call, vec![waiter.rank], waiter.wait.missing.clone())),
        }
    }
    sides
        .into_iter()
        .map(|(call, who, whom)| {
            let verb = if who.len() == 1 { "waits" } else { "wait" };
            let own = |rank: &&u32| !who.contains(rank);
            let whom: Vec<u32> = whom.iter().filter(own).copied().collect();
            let whom = if whom.is_empty() {
                "each other".to_owned()
            } else {
                ranks(&whom)
            };
            format!("{} {verb} for {whom} in {call}", ranks(&who))
        })
        .collect()
}

/// Ranks that run and have not come.
pub(super) fn not_joined(
    scene: &Scene,
    graph: &Graph<'_>,
    leaves: &[Leaf<'_>],
    blamed: &[u32],
) -> Verdict {
    let held = graph.missing_one(|leaf| {
        blamed.contains(&leaf.rank) && matches!(leaf.why, Why::AtWork | Why::NotMade | Why::Running)
    });
    let mut verdict = draft(
        scene,
        graph,
        Class::NotJoined,
        blamed,
        &held,
        stalled(blamed),
    );
    let mut places = Vec::new();
    for rank in blamed.iter().take(DESCRIBED_MAX) {
        let leaf = leaves.iter().find(|leaf| leaf.rank == *rank);
        let lacks = leaf.filter(|leaf| matches!(leaf.why, Why::NotMade));
        let lacks = lacks.map_or_else(String::new, |leaf| {
            format!(
                ", has not made group {}",
                graph.waiters[leaf.missed_by].group.name
            )
        });
        let who = if blamed.len() > 1 {
            format!("rank {rank}: ")
        } else {
            String::new()
        };
        let act = last_act(scene, *rank);
        places.push(match act.strip_prefix(", in ") {
            Some(call) => format!("{who}in {call}{lacks}"),
            None => format!("{who}running user code{lacks}{act}"),
        });
        let seen = scene.member(*rank).and_then(|member| {
            let said = member
                .report
                .as_ref()
                .and_then(|report| report.process.as_ref());
            let looked = member.process.as_ref().and_then(Sight::facts);
            looked.or(said)
        });
        if let Some(process) = seen {
            verdict
                .evidence
                .push(format!("rank {rank}: {}", process.describe()));
        }
    }
    verdict.place = places.join("; ");
    verdict
        .evidence
        .push(format!("{} answered when asked", ranks(blamed)));
    verdict.next = format!(
        "see what {} is doing; if it is only slow, give the call more time",
        ranks(blamed)
    );
    verdict
}

/// Ranks that do not answer though their processes run, as far as is known.
pub(super) fn silent(scene: &Scene, graph: &Graph<'_>, blamed: &[u32]) -> Verdict {
    let held = graph.missing_one(|leaf| matches!(leaf.why, Why::Silent));
    let mut verdict = draft(
        scene,
        graph,
        Class::NotJoined,
        blamed,
        &held,
        stalled(blamed),
    );
    verdict.confidence = Confidence::Likely;
    verdict.place = format!("unknown: it does not answer{}", last_act(scene, blamed[0]));
    for rank in blamed {
        if let Some(member) = scene.member(*rank) {
            let process = member.process.as_ref().map_or_else(
                || "nobody looked at its process".to_owned(),
                Sight::describe,
            );
            verdict.evidence.push(format!(
                "rank {rank} has not answered for {}, {process}",
                seconds(member.silent_ms)
            ));
        }
    }
    "see whether that process gets any processor time".clone_into(&mut verdict.next);
    verdict
}

/// Ranks that have come to a call only now that its time is up.
pub(super) fn late(scene: &Scene, graph: &Graph<'_>, start: usize, late: &[u32]) -> Verdict {
    let mut verdict = draft(
        scene,
        graph,
        Class::NotJoined,
        late,
        &[start],
        stalled(late),
    );
    verdict.place = "entered the call when its time was up".to_owned();
    let evidence = format!("{} had not entered it when last asked before", ranks(late));
    verdict.evidence.push(evidence);
    verdict.next = format!(
        "see what kept {} for so long; if it is only slow, give the call more time",
        ranks(late)
    );
    verdict
}

/// Everybody is in the call, and nothing moves.
pub(super) fn broken_link(scene: &Scene, graph: &Graph<'_>, start: usize) -> Verdict {
    // Who waits for a rank that waits itself is only in line: the broken link is where two wait for each
    // other.
    let reachable = graph.reachable(start);
    let misses = |one: usize, other: usize| {
        let (one, other) = (&graph.waiters[one], &graph.waiters[other]);
        one.id() == other.id() && one.wait.missing.contains(&other.rank)
    };
    let at = reachable
        .iter()
        .copied()
        .find(|one| {
            let is_mutual = |other: &usize| misses(*one, *other) && misses(*other, *one);
            reachable.iter().any(is_mutual)
        })
        .unwrap_or(start);
    let waiter = &graph.waiters[at];
    let missing = &waiter.wait.missing;
    let place = format!(
        "rank {} waits for {}, which entered the call too",
        waiter.rank,
        ranks(missing)
    );
    if scene.slowness() >= CROWDED {
        // No link is known to be broken, and there is another reason.
        let mut verdict = on_host(scene, graph, start, waiter.rank, stalled(missing));
        verdict.confidence = Confidence::Likely;
        let load = scene.member(waiter.rank).and_then(|one| one.starvation);
        let load = load.map_or(String::new(), |one| format!(" ({})", one.load));
        verdict.place = format!("{place}; the host is crowded{load}");
        return verdict;
    }
    let mut blamed = missing.clone();
    blamed.push(waiter.rank);
    blamed.sort_unstable();
    blamed.dedup();
    let kind = stalled(missing);
    let mut verdict = draft(scene, graph, Class::Link, &blamed, &[start], kind);
    verdict.confidence = Confidence::Likely;
    verdict.place = place;
    verdict
        .evidence
        .push("all of them live and answer".to_owned());
    "check the path between these ranks".clone_into(&mut verdict.next);
    verdict
}

/// The time of a call is up while a rank that it needs is held up elsewhere, by a wait that has not
/// lasted long enough to be called a cycle, or that goes on.
pub(super) fn held_up(scene: &Scene, graph: &Graph<'_>, start: usize) -> Verdict {
    let waiter = &graph.waiters[start];
    let blamed = waiter.wait.missing.clone();
    let mut verdict = draft(
        scene,
        graph,
        Class::NotJoined,
        &blamed,
        &[start],
        stalled(&blamed),
    );
    verdict.confidence = Confidence::Likely;
    verdict.place = format!("held up elsewhere{}", last_act(scene, blamed[0]));
    verdict
        .evidence
        .push(format!("{} answered when asked", ranks(&blamed)));
    "make these calls in the same order on every rank, or give the call more time"
        .clone_into(&mut verdict.next);
    verdict
}

/// The time of a call is up, and nobody has told all ranks that it waits for: any of them may be to blame.
pub(super) fn unknown(scene: &Scene, graph: &Graph<'_>, start: usize) -> Verdict {
    let waiter = &graph.waiters[start];
    let mut verdict = draft(scene, graph, Class::Internal, &[], &[start], stalled(&[]));
    verdict.confidence = Confidence::Likely;
    "unknown".clone_into(&mut verdict.who);
    verdict.what = full_call_of(waiter);
    verdict.elapsed_ms = waiter.call.age_ms;
    let report = scene
        .member(waiter.rank)
        .and_then(|one| one.report.as_ref());
    let wall_ms = report.map_or(0, |report| report.wall_ms);
    verdict.since_unix_ms = wall_ms.saturating_sub(waiter.call.age_ms);
    verdict.place = "its time is up, and not all ranks that it waits for are known".to_owned();
    let unknown: Vec<String> = graph
        .reachable(start)
        .into_iter()
        .map(|at| &graph.waiters[at])
        .map(|waiter| {
            let (known, more) = (waiter.wait.missing.len(), waiter.wait.missing_more);
            format!(
                "rank {} waits in {} for {known} ranks that it names and {more} that it does not",
                waiter.rank,
                call_of(waiter)
            )
        })
        .take(DESCRIBED_MAX)
        .collect();
    verdict.evidence = unknown;
    "read the output of each rank, or write dumps of all ranks (`--dumps`) and compare them"
        .clone_into(&mut verdict.next);
    verdict
}

/// A call whose time is up and that nobody sees any more.
pub(super) fn inconclusive(scene: &Scene, graph: &Graph<'_>, rank: u32, call: CallId) -> Verdict {
    let mut verdict = draft(scene, graph, Class::Internal, &[], &[], stalled(&[]));
    verdict.confidence = Confidence::Likely;
    "unknown".clone_into(&mut verdict.who);
    verdict.what = format!("call #{}", call.seq);
    verdict.place =
        format!("the call of rank {rank} is over, and its board does not show the call");
    let shown = |(rank, member): (u32, &super::Member)| {
        let waits = graph.waiters.iter().find(|waiter| waiter.rank == rank);
        match waits {
            Some(waiter) => format!("rank {rank} waits in {}", call_of(waiter)),
            None if member.silent_ms > 0 => format!("rank {rank} does not answer"),
            None => format!("rank {rank} waits for nobody"),
        }
    };
    let shown = (0_u32..).zip(&scene.members).take(DESCRIBED_MAX).map(shown);
    verdict.evidence.extend(shown);
    let latest = |member: &super::Member| Some(member.report.as_ref()?.wall_ms);
    verdict.since_unix_ms = scene.members.iter().filter_map(latest).max().unwrap_or(0);
    verdict.ends.push(call);
    "read the output of each rank, or write dumps of all ranks (`--dumps`) and compare them"
        .clone_into(&mut verdict.next);
    verdict
}

/// A verdict with the fields that do not depend on its class.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "only a wait has a time to fill in"
)]
pub(super) fn draft(
    scene: &Scene,
    graph: &Graph<'_>,
    class: Class,
    blamed: &[u32],
    held: &[usize],
    kind: ErrorKind,
) -> Verdict {
    let of = |places: &[usize]| -> Vec<&Waiter<'_>> {
        places.iter().map(|at| &graph.waiters[*at]).collect()
    };
    let waiters = of(held);
    // The one that is told of: who misses a culprit, where there is one, and waits longest.
    let misses = |waiter: &&&Waiter<'_>| {
        let is_missed = |rank: &u32| blamed.contains(rank);
        blamed.is_empty() || waiter.wait.missing.iter().any(is_missed)
    };
    let main = waiters
        .iter()
        .filter(misses)
        .max_by_key(|waiter| (waiter.call.age_ms, std::cmp::Reverse(waiter.rank)));
    let elapsed_ms = main.map_or(0, |waiter| waiter.call.age_ms);
    let wall_ms = main
        .and_then(|waiter| scene.member(waiter.rank)?.report.as_ref())
        .map_or(0, |report| report.wall_ms);
    let mut ends: Vec<CallId> = waiters.iter().map(|waiter| waiter.id()).collect();
    ends.sort_unstable();
    ends.dedup();
    let kind = match kind {
        ErrorKind::Stalled { waiting_for, .. } => ErrorKind::Stalled {
            waiting_for,
            waited_ms: elapsed_ms,
        },
        other => other,
    };
    Verdict {
        class,
        blamed: blamed.to_vec(),
        who: who(scene, blamed),
        what: main.map_or_else(|| "no call".to_owned(), |waiter| full_call_of(waiter)),
        place: String::new(),
        since_unix_ms: wall_ms.saturating_sub(elapsed_ms),
        elapsed_ms,
        confidence: Confidence::Certain,
        evidence: Vec::new(),
        others: others(&of(&graph.held_up_by(held))),
        next: String::new(),
        cascades: Vec::new(),
        ends,
        about: None,
        kind,
    }
}
