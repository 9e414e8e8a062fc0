//! Verdicts on a rank that serves the rendezvous and is gone, or does not run: nobody judges for all ranks then. Pure.

use super::{draft, gone, others, wall_ms, what};
use crate::error::ErrorKind;
use crate::error::verdict::{CallId, Class, Confidence, Verdict, seconds};
use crate::types::Rank;
use crate::watch::judge::{Member, Scene, fate, who};
use crate::watch::process::Sight;

/// Ranks of which a line says that nobody can look at them.
const TOLD_MAX: usize = 4;

/// The rank that served the rendezvous is gone; `rank` was in a call that does not need it.
pub(in crate::watch) fn server_gone(
    scene: &Scene,
    rank: u32,
    server: u32,
    call: CallId,
) -> Verdict {
    let fate = fate(scene, server);
    gone(scene, rank, Rank(server), &fate, call)
}

/// A call of `rank` is over, and whoever judges has not answered for so long; nobody here can look at some of the ranks that the
/// call may have waited for. A rank that serves the rendezvous is named: it does not run. Else nobody can be.
pub(in crate::watch) fn unanswered(
    scene: &Scene,
    rank: u32,
    server: Option<u32>,
    call: CallId,
    quiet_ms: u64,
) -> Verdict {
    let quiet = seconds(quiet_ms);
    let blamed: Vec<u32> = server.into_iter().collect();
    let group = scene
        .member(rank)
        .and_then(|member| member.report.as_ref()?.group(call.key));
    let kind = ErrorKind::Stalled {
        waiting_for: blamed.iter().map(|rank| Rank(*rank)).collect(),
        waited_ms: quiet_ms,
    };
    let unseen = |(rank, member): (u32, &Member)| {
        let sight = member.process.as_ref()?;
        let is_unknown = member.fate.is_none() && matches!(sight, Sight::Hidden(_));
        is_unknown.then(|| format!("rank {rank}: {}", sight.describe()))
    };
    let mut evidence = vec![format!("the arbiter has not answered for {quiet}")];
    evidence.extend((0..).zip(&scene.members).filter_map(unseen).take(TOLD_MAX));
    let next =
        "see whether the process that serves the rendezvous is stopped, or gets no processor time";
    let frozen = server.map(|server| scene.member(server)?.process.as_ref()?.frozen());
    let (class, who, place) = match frozen {
        Some(Some(how)) => {
            let place = format!("{how}: it serves the rendezvous");
            (Class::PeerFrozen, who(scene, &blamed), place)
        }
        Some(None) => {
            let place = "unknown: it serves the rendezvous and does not answer".to_owned();
            (Class::NotJoined, who(scene, &blamed), place)
        }
        None => {
            let place = "not all ranks can be looked at from here".to_owned();
            (Class::Internal, "unknown".to_owned(), place)
        }
    };
    Verdict {
        class,
        confidence: Confidence::Likely,
        who,
        what: what(group, call),
        place,
        elapsed_ms: quiet_ms,
        evidence,
        others: others(scene, call),
        next: next.to_owned(),
        ..draft(
            wall_ms(scene, rank).saturating_sub(quiet_ms),
            blamed,
            call,
            kind,
            false,
        )
    }
}

/// A verdict on a call that has waited in vain for a rank which serves the rendezvous, and did not run for so long.
pub(in crate::watch) fn slept(
    scene: &Scene,
    server: u32,
    slept_ms: u64,
    verdict: Verdict,
) -> Verdict {
    let blamed = vec![server];
    Verdict {
        class: Class::NotJoined,
        who: who(scene, &blamed),
        place: format!("its process did not run for {}", seconds(slept_ms)),
        kind: ErrorKind::Stalled {
            waiting_for: vec![Rank(server)],
            waited_ms: verdict.elapsed_ms,
        },
        evidence: vec![
            "it serves the rendezvous, and nothing was heard there meanwhile".to_owned(),
        ],
        next: "see what stopped that process, or took the processors from it".to_owned(),
        blamed,
        ..verdict
    }
}
