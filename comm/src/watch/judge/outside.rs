//! Verdicts on what a launcher sees of its ranks' processes, where no call tells more: the program does not use the library
//! or had not joined, the arbiter was not heard, or nobody waits for the rank in a call.

use super::format::stalled;
use crate::error::ErrorKind;
use crate::error::verdict::{Class, Confidence, Verdict};
use crate::types::Rank;

/// What a launcher saw of a rank's process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation {
    /// It ended badly, and was the first.
    Ended {
        /// How, in words that follow "rank 3".
        how: String,
        /// What it said at last, where it panicked.
        panic: Option<String>,
        /// Number of the other ranks.
        others: u32,
    },
    /// It did not run when the first of the others ended badly.
    StoppedInCall {
        /// What keeps it from running.
        state: String,
    },
    /// It does not run, and the job waits for its end.
    StoppedAtEnd {
        /// What keeps it from running.
        state: String,
        /// All ranks of which that is so.
        blamed: Vec<u32>,
        /// For how long only they have been there.
        waited_ms: u64,
    },
}

/// The verdict on a rank of this host, at this time in milliseconds since 1970.
#[must_use]
pub fn observed(rank: u32, pid: u32, seen: Observation, now_unix_ms: u64) -> Verdict {
    let verdict = Verdict {
        class: Class::PeerFrozen,
        blamed: vec![rank],
        who: format!("rank {rank} (this host, pid {pid})"),
        what: String::new(),
        place: String::new(),
        since_unix_ms: now_unix_ms,
        elapsed_ms: 0,
        confidence: Confidence::Certain,
        evidence: Vec::new(),
        others: String::new(),
        next: "continue the process with `kill -CONT`, or see who stopped it".to_owned(),
        cascades: Vec::new(),
        ends: Vec::new(),
        about: None,
        kind: stalled(&[rank]),
    };
    match seen {
        Observation::Ended { how, panic, others } => Verdict {
            class: Class::PeerDead,
            what: "no call that is known of".to_owned(),
            place: panic.unwrap_or_else(|| how.clone()),
            evidence: vec!["its process ended".to_owned()],
            others: format!("{others} other ranks, ended by the launcher unless they ended first"),
            next: "read that rank's output".to_owned(),
            kind: ErrorKind::PeerClosed {
                peer: Rank(rank),
                how,
                orderly: false,
            },
            ..verdict
        },
        Observation::StoppedInCall { state } => Verdict {
            what: "a call that others gave up".to_owned(),
            place: state,
            evidence: vec!["its process was found in that state when they did".to_owned()],
            others: "other ranks ended before the launcher heard why".to_owned(),
            ..verdict
        },
        Observation::StoppedAtEnd {
            state,
            blamed,
            waited_ms,
        } => Verdict {
            what: "the end of the job".to_owned(),
            place: state,
            since_unix_ms: now_unix_ms.saturating_sub(waited_ms),
            elapsed_ms: waited_ms,
            evidence: vec![
                "its process was found in that state at every look of a second".to_owned(),
            ],
            others: "all other ranks have ended or left".to_owned(),
            kind: ErrorKind::Stalled {
                waiting_for: blamed.iter().map(|rank| Rank(*rank)).collect(),
                waited_ms,
            },
            blamed,
            ..verdict
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_launcher_sees_of_a_process_is_one_line_of_the_grammar() {
        let ended = |panic: Option<&str>| Observation::Ended {
            how: "exited with code 3".to_owned(),
            panic: panic.map(str::to_owned),
            others: 3,
        };
        let state = || "state T (stopped by a signal)".to_owned();
        let line = |seen| observed(2, 77, seen, 12_000).line();
        assert_eq!(
            line(ended(None)),
            "VERDICT PEER_DEAD who=rank 2 (this host, pid 77) what=no call that is known of \
             where=exited with code 3 since=00:00:12.000Z (+0.000 s) confidence=certain \
             evidence=its process ended others=3 other ranks, ended by the launcher unless they ended first \
             next=read that rank's output"
        );
        assert!(line(ended(Some("panicked at x"))).contains(" where=panicked at x since="));
        assert_eq!(
            line(Observation::StoppedInCall { state: state() }),
            "VERDICT PEER_FROZEN who=rank 2 (this host, pid 77) what=a call that others gave up \
             where=state T (stopped by a signal) since=00:00:12.000Z (+0.000 s) confidence=certain \
             evidence=its process was found in that state when they did \
             others=other ranks ended before the launcher heard why \
             next=continue the process with `kill -CONT`, or see who stopped it"
        );
        let held = Observation::StoppedAtEnd {
            state: state(),
            blamed: vec![2, 5],
            waited_ms: 1500,
        };
        let verdict = observed(2, 77, held, 12_000);
        assert_eq!(verdict.blamed, [2, 5]);
        assert_eq!(
            verdict.line(),
            "VERDICT PEER_FROZEN who=rank 2 (this host, pid 77) what=the end of the job \
             where=state T (stopped by a signal) since=00:00:10.500Z (+1.5 s) confidence=certain \
             evidence=its process was found in that state at every look of a second \
             others=all other ranks have ended or left \
             next=continue the process with `kill -CONT`, or see who stopped it"
        );
    }
}
