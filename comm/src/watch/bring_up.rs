//! Verdicts about ranks that never found each other. Pure: what the coordinator told all of them becomes
//! the same line on all of them.

use super::failure::goodbye;
use super::judge::Fate;
use crate::error::ErrorKind;
use crate::error::verdict::{Class, Confidence, Verdict, ranks};
use crate::rendezvous::RendezvousError;

/// The verdict on a bring-up that failed at this time.
#[must_use]
pub(crate) fn verdict(error: &RendezvousError, at_unix_ms: u64) -> Verdict {
    let class = class(error);
    let blamed = blamed(error);
    let waited_ms = waited_ms(error);
    Verdict {
        class,
        who: who(error, &blamed),
        blamed,
        what: "bring-up of the world".to_owned(),
        place: error.to_string(),
        since_unix_ms: at_unix_ms.saturating_sub(waited_ms),
        elapsed_ms: waited_ms,
        confidence: confidence(error),
        evidence: vec![evidence(error, class)],
        others: others(error),
        next: error.help().to_owned(),
        cascades: Vec::new(),
        ends: Vec::new(),
        about: None,
        kind: ErrorKind::Orphaned {
            why: error.to_string(),
        },
    }
}

fn class(error: &RendezvousError) -> Class {
    let classes = [
        Class::RdvMissing,
        Class::RdvConflict,
        Class::RdvUnreachable,
        Class::PeerDead,
        Class::PeerFrozen,
        Class::NotJoined,
        Class::Link,
        Class::Resource,
    ];
    classes
        .into_iter()
        .find(|class| class.code() == error.exit_code())
        .unwrap_or(Class::Internal)
}

/// The ranks that an error names as its cause.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "all others are about no rank in particular"
)]
fn blamed(error: &RendezvousError) -> Vec<u32> {
    let given = |rank: i64| u32::try_from(rank).ok();
    let mut blamed: Vec<u32> = match error {
        error if error.is_late() => Vec::new(),
        RendezvousError::Missing { absence } => absence.missing.iter().map(|rank| rank.0).collect(),
        RendezvousError::RoundMissing { missing, .. } => {
            missing.iter().map(|rank| rank.0).collect()
        }
        RendezvousError::Duplicate { first, .. } => given(first.rank).into_iter().collect(),
        RendezvousError::LocalRank { first, second, .. } => [first.rank, second.rank]
            .into_iter()
            .filter_map(given)
            .collect(),
        RendezvousError::Build { claimant, .. } | RendezvousError::Protocol { claimant, .. } => {
            given(claimant.rank).into_iter().collect()
        }
        RendezvousError::Complete { late, .. } => given(late.rank).into_iter().collect(),
        // What the coordinator was told comes first; the others contradict it.
        RendezvousError::WorldSize { claims } => {
            let own = claims.first().map(|claim| claim.world_size);
            claims
                .iter()
                .filter(|claim| Some(claim.world_size) != own)
                .flat_map(|claim| claim.ranks.iter().map(|rank| rank.0))
                .collect()
        }
        RendezvousError::RankDown { rank, .. }
        | RendezvousError::RankFrozen { rank, .. }
        | RendezvousError::RankLeft { rank }
        | RendezvousError::SharedMemory { rank, .. } => vec![rank.0],
        _ => Vec::new(),
    };
    blamed.sort_unstable();
    blamed.dedup();
    blamed
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "all others are about no process in particular"
)]
fn who(error: &RendezvousError, blamed: &[u32]) -> String {
    match error {
        RendezvousError::Duplicate { first, second } => {
            // Where each has its numbers from is said where the claims are.
            let (one, other) = (first.process(), second.process());
            format!("{} ({one}, and {other})", ranks(blamed))
        }
        RendezvousError::RankRange { claimant, .. } => {
            format!("rank {} ({claimant})", claimant.rank)
        }
        RendezvousError::RankDown { host, pid, .. }
        | RendezvousError::RankFrozen { host, pid, .. }
        | RendezvousError::SharedMemory { host, pid, .. }
            if *pid > 0 =>
        {
            format!("{} ({host}, pid {pid})", ranks(blamed))
        }
        _ if blamed.is_empty() => "no rank in particular".to_owned(),
        _ => ranks(blamed),
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the others happen at one moment"
)]
fn waited_ms(error: &RendezvousError) -> u64 {
    match error {
        RendezvousError::Missing { absence } => absence.waited_ms,
        RendezvousError::CoordinatorGone { .. } => 0,
        RendezvousError::NameUnresolved { waited_ms, .. }
        | RendezvousError::RankFrozen { waited_ms, .. }
        | RendezvousError::RoundMissing { waited_ms, .. }
        | RendezvousError::Silent { waited_ms, .. }
        | RendezvousError::Unreachable { waited_ms, .. } => *waited_ms,
        _ => 0,
    }
}

/// How a rank went that had come.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "all others are about no rank that went"
)]
fn fate(error: &RendezvousError) -> Option<Fate> {
    match error {
        RendezvousError::RankDown { reason, .. } => Some(Fate::from(reason)),
        RendezvousError::RankLeft { .. } => Some(goodbye(0)),
        _ => None,
    }
}

fn confidence(error: &RendezvousError) -> Confidence {
    if error.is_late() {
        return Confidence::Likely;
    }
    fate(error).map_or(Confidence::Certain, |fate| fate.confidence)
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the other classes rest on what one process met itself"
)]
fn evidence(error: &RendezvousError, class: Class) -> String {
    if let Some(fate) = fate(error) {
        return fate.evidence;
    }
    let evidence = match class {
        Class::Resource if error.is_late() => "the coordinator counted who came",
        Class::RdvConflict => "what the ranks said of themselves, compared by the coordinator",
        Class::RdvMissing if is_unheard(error) => "this rank waited for it and heard nothing",
        Class::RdvMissing => "the coordinator counted who came",
        Class::PeerDead => "the connection to it ended",
        Class::PeerFrozen => "its process was found in that state at every look of a second",
        _ => "this process met it itself",
    };
    evidence.to_owned()
}

/// Whether the rank that serves the rendezvous is missing itself, so that nobody counted.
fn is_unheard(error: &RendezvousError) -> bool {
    matches!(error, RendezvousError::Missing { absence }
        if absence.missing.iter().map(|rank| rank.0).eq([0]) && absence.missing_more == 0 && absence.present.is_empty())
}

fn others(error: &RendezvousError) -> String {
    if let RendezvousError::Missing { absence } = error
        && !absence.present.is_empty()
    {
        let there: Vec<u32> = absence.present.iter().map(|one| one.rank.0).collect();
        return format!("{} waiting: {}", there.len(), ranks(&there));
    }
    "no rank has a world so far".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host_load::HostLoad;
    use crate::rendezvous::{Absence, DownReason, Presence, WorldClaim};
    use crate::types::Rank;

    fn absence() -> RendezvousError {
        RendezvousError::Missing {
            absence: Box::new(Absence {
                world_size: 3,
                waited_ms: 2000,
                missing: vec![Rank(2)],
                missing_more: 0,
                present: [0, 1]
                    .map(|rank| Presence {
                        rank: Rank(rank),
                        host: "n1".to_owned(),
                        pid: 10 + rank,
                        since_ms: 1900,
                    })
                    .to_vec(),
                seen: Vec::new(),
                late: None,
            }),
        }
    }

    #[test]
    fn who_is_missing_is_to_blame_and_who_is_there_waits() {
        let verdict = verdict(&absence(), 43_384_512);
        assert_eq!(verdict.class, Class::RdvMissing);
        assert_eq!(verdict.blamed, [2]);
        assert_eq!(verdict.others, "2 waiting: ranks 0,1");
        let line = verdict.line();
        assert!(
            line.starts_with("VERDICT RDV_MISSING who=rank 2 what="),
            "{line}"
        );
        assert!(line.contains("since=12:03:02.512Z (+2.0 s)"), "{line}");
    }

    #[test]
    fn how_a_rank_went_decides_class_confidence_and_evidence_as_it_does_in_a_world() {
        let text = || "told".to_owned();
        let reasons = [
            DownReason::Deserted { program: text() },
            DownReason::Disconnected { why: text() },
            DownReason::Ended,
            DownReason::Exited { code: 0 },
            DownReason::HungUp,
            DownReason::Killed { signal: 9 },
            DownReason::OutOfMemory { evidence: text() },
            DownReason::Panicked { text: text() },
            DownReason::NotReading { bytes_queued: 7 },
            DownReason::ProtocolBroken { what: text() },
            DownReason::Unreachable { why: text() },
        ];
        for reason in reasons {
            let fate = Fate::from(&reason);
            let error = RendezvousError::RankDown {
                rank: Rank(2),
                host: String::new(),
                pid: 0,
                reason,
            };
            let verdict = verdict(&error, 0);
            assert_eq!(
                (verdict.class, verdict.confidence, &verdict.evidence[..]),
                (fate.class, fate.confidence, [fate.evidence].as_slice()),
                "{error}"
            );
            assert_eq!(verdict.class.code(), error.exit_code(), "{error}");
        }
    }

    #[test]
    fn who_may_only_be_late_is_not_to_blame() {
        let RendezvousError::Missing { mut absence } = absence() else {
            panic!("ranks are missing");
        };
        absence.late = Some(HostLoad {
            runnable: 60,
            processors: 2,
        });
        let verdict = verdict(&RendezvousError::Missing { absence }, 43_384_512);
        assert_eq!(
            (verdict.class, verdict.confidence),
            (Class::Resource, Confidence::Likely)
        );
        assert_eq!(verdict.blamed, [0_u32; 0]);
        assert!(
            verdict
                .place
                .ends_with("; the host is crowded (load 60 on 2 CPUs), and ranks still arrive"),
            "{}",
            verdict.place
        );
    }

    #[test]
    fn who_contradicts_the_coordinator_is_to_blame() {
        let claim = |world_size, ranks: &[u32]| WorldClaim {
            world_size,
            ranks: ranks.iter().copied().map(Rank).collect(),
            source: "test".to_owned(),
        };
        let error = RendezvousError::WorldSize {
            claims: vec![claim(4, &[]), claim(4, &[0, 2, 3]), claim(5, &[1])],
        };
        let verdict = verdict(&error, 0);
        assert_eq!(verdict.class, Class::RdvConflict);
        assert_eq!(verdict.blamed, [1]);
    }
}
