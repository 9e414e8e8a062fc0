//! Verdicts about failures that a rank meets by itself: calls that differ, links that break, limits,
//! data that cannot be understood. Pure.

mod server;

pub(super) use self::server::{server_gone, slept, unanswered};
use super::judge::{EndCause, Fate, Member, Scene, destroyed_by, last_act, name_beside, who};
use super::mismatch::{self, Comparison};
use super::report::GroupState;
use crate::error::verdict::{CallId, Class, Confidence, Verdict, ranks};
use crate::error::{ErrorKind, Field};
use crate::rendezvous::DownReason;
use crate::types::Rank;

/// The evidence of calls that do not match.
pub(super) const COMPARED: &str = "the ranks compared their calls before any data";

/// An error that a rank met by itself.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) rank: u32,
    pub(super) call: CallId,
    pub(super) kind: ErrorKind,
    pub(super) usable: bool,
    /// The rank whose doing it is, where all ranks of the group found the same.
    pub(super) culprit: Option<Rank>,
    /// How often all boards were looked at because of it.
    pub(super) looks: u64,
    /// When the arbiter heard of it.
    pub(super) since_ms: u64,
}

/// What is known of a rank that went without a goodbye.
pub(super) fn fate(reason: &DownReason, order: u64) -> Fate {
    let (class, confidence, evidence) = match reason {
        DownReason::Deserted { .. } => (
            Class::NotJoined,
            Confidence::Certain,
            "its connection to the rendezvous was closed, and its process lives",
        ),
        DownReason::Disconnected { .. } => (
            Class::Link,
            Confidence::Certain,
            "its connection to the rendezvous was reset, and its process lives",
        ),
        DownReason::HungUp => (
            Class::PeerDead,
            Confidence::Likely,
            "its connection to the rendezvous ended, and nobody can look at its process",
        ),
        DownReason::NotReading { .. } => (
            Class::Link,
            Confidence::Likely,
            "it takes nothing off its connection to the rendezvous",
        ),
        DownReason::ProtocolBroken { .. } => (
            Class::Internal,
            Confidence::Certain,
            "what it sent over its connection to the rendezvous",
        ),
        DownReason::Unreachable { .. } => (
            Class::Link,
            Confidence::Likely,
            "its host does not acknowledge what is sent to it",
        ),
        // A variant to come is an end of the process until it says otherwise.
        DownReason::Ended
        | DownReason::Exited { .. }
        | DownReason::Killed { .. }
        | DownReason::OutOfMemory { .. }
        | DownReason::Panicked { .. } => {
            (Class::PeerDead, Confidence::Certain, "its process ended")
        }
    };
    Fate {
        how: how(reason),
        orderly: false,
        class,
        confidence,
        evidence: evidence.to_owned(),
        cause: cause(reason),
        order,
        hint: hint(reason).to_owned(),
    }
}

impl From<&DownReason> for Fate {
    /// Of the first rank that went.
    fn from(reason: &DownReason) -> Self {
        fate(reason, 0)
    }
}

/// What is known of a rank that said goodbye.
pub(super) fn goodbye(order: u64) -> Fate {
    Fate {
        how: "left the world".to_owned(),
        orderly: true,
        class: Class::NotJoined,
        confidence: Confidence::Certain,
        evidence: "said goodbye".to_owned(),
        cause: EndCause::Unknown,
        order,
        hint: String::new(),
    }
}

/// SIGHUP, SIGINT and SIGTERM end programs on request, SIGPIPE as a consequence of another end.
pub(super) const fn cause(reason: &DownReason) -> EndCause {
    match reason {
        DownReason::Killed {
            signal: 1 | 2 | 13 | 15,
        }
        | DownReason::Exited { .. }
        | DownReason::Panicked { .. } => EndCause::MayFollow,
        DownReason::Killed { .. } | DownReason::OutOfMemory { .. } => EndCause::Unprovoked,
        DownReason::Deserted { .. }
        | DownReason::Disconnected { .. }
        | DownReason::Ended
        | DownReason::HungUp
        | DownReason::NotReading { .. }
        | DownReason::ProtocolBroken { .. }
        | DownReason::Unreachable { .. } => EndCause::Unknown,
    }
}

/// How a rank went, in words that follow "rank 3".
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "all others are told in their own words"
)]
fn how(reason: &DownReason) -> String {
    match reason {
        DownReason::Exited { code: 0 } => "exited with code 0 before its work was done".to_owned(),
        // Panics say themselves that they are one.
        DownReason::Panicked { text } if text.starts_with("panicked") => text.clone(),
        other => other.to_string(),
    }
}

/// What to do about it.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "all others say the rest themselves"
)]
fn hint(reason: &DownReason) -> &'static str {
    match reason {
        DownReason::Exited { code: 0 } => {
            "look why that rank's program returned before the others'"
        }
        DownReason::Killed { signal: 9 } => {
            "somebody sent SIGKILL: look for the kernel's out-of-memory killer (dmesg) or a resource manager"
        }
        DownReason::OutOfMemory { .. } => {
            "give that rank more memory, or let it use less; see what else its control group holds"
        }
        DownReason::Killed { signal: 7 } => {
            "SIGBUS: see whether a mapped file was cut short, or /dev/shm is full"
        }
        DownReason::Unreachable { .. } | DownReason::NotReading { .. } => {
            "see whether that host lives and can be reached"
        }
        DownReason::Disconnected { .. } => "check what resets connections between these hosts",
        DownReason::Deserted { .. } => {
            "look why that rank's program gave its world up, or started another program in its place"
        }
        DownReason::Ended | DownReason::HungUp => {
            "read that rank's output, and what its launcher says of its end"
        }
        _ => "read that rank's output",
    }
}

/// The verdict on an error that a rank met in a call. `is_told` says whether a verdict on an earlier call is out.
pub(super) fn verdict(scene: &Scene, failed: &Failed, is_told: &dyn Fn(CallId) -> bool) -> Verdict {
    let Failed {
        rank,
        call,
        ref kind,
        usable,
        culprit,
        ..
    } = *failed;
    if let ErrorKind::PeerClosed { peer, .. } | ErrorKind::Transport { peer, .. } = kind
        && let Some(fate) = scene.member(peer.0).and_then(|member| member.fate.clone())
    {
        let mut verdict = gone(scene, rank, *peer, &fate, call);
        if matches!(kind, ErrorKind::PeerClosed { .. }) {
            // The control plane told of it, not the link.
            verdict.evidence.remove(0);
        }
        return verdict;
    }
    if let ErrorKind::Transport { peer, .. } = kind
        && let Some(verdict) = destroyed_by(scene, peer.0, call)
    {
        return verdict;
    }
    if let ErrorKind::Mismatch { field, .. } = kind
        && *field != Field::Membership
    {
        let mut verdict = mismatch(scene, failed, is_told);
        if is_unread(kind, culprit) && verdict.kind == *kind {
            // Nothing says which of the two made a call too many or too few.
            verdict.confidence = Confidence::Likely;
            if call.seq == 0 {
                verdict.what = format!("messages on {}", name(scene, call));
            } else {
                // One has made a call of the group too many, or the other one too few: the other members tell which, if any do.
                verdict.blamed = Class::of(kind, rank).1;
                verdict.blamed.sort_unstable();
                let sent_in = CallId {
                    seq: call.seq - 1,
                    ..call
                };
                if let [one, other] = verdict.blamed[..]
                    && let Some(odd) = mismatch::odd_of(scene, sent_in, [one, other])
                {
                    verdict.blamed = vec![odd];
                }
                verdict.who = who(scene, &verdict.blamed);
            }
            verdict.evidence = vec![
                "the message was sent, and its receiver makes no more calls on the group"
                    .to_owned(),
            ];
            "receive every message that is sent, or do not send it".clone_into(&mut verdict.next);
        }
        return verdict;
    }
    let (class, blamed) = class_of(culprit.map_or(rank, |culprit| culprit.0), kind);
    let mut verdict = told(scene, rank, call, kind, usable, class, blamed);
    // An object that cannot be decoded is met only by those who decode it.
    if culprit.is_some() && !matches!(kind, ErrorKind::Malformed { .. }) {
        verdict.evidence = vec!["all ranks of the group found the same in this call".to_owned()];
    }
    verdict
}

/// Whether an error says that a rank has left the world with messages that it never received, while others wait
/// in calls of that group: what they wait for says more.
pub(super) fn is_left_to_waiters(scene: &Scene, failed: &Failed) -> bool {
    let waits = |(rank, member): (u32, &Member)| {
        let report = member.report.as_ref().filter(|_| member.fate.is_none());
        let group = report.and_then(|report| report.group(failed.call.key));
        rank != failed.rank && group.is_some_and(|group| group.call.is_some())
    };
    is_unread(&failed.kind, failed.culprit) && (0..).zip(&scene.members).any(waits)
}

/// Whether an error is about a message that was never received: of other mismatches no single rank is known to be
/// the culprit before the boards are compared.
fn is_unread(kind: &ErrorKind, culprit: Option<Rank>) -> bool {
    culprit.is_some() && matches!(kind, ErrorKind::Mismatch { .. })
}

/// Ranks made different calls: the boards name all sides.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "no other kind is a mismatch"
)]
fn mismatch(scene: &Scene, failed: &Failed, is_told: &dyn Fn(CallId) -> bool) -> Verdict {
    let Failed {
        rank,
        call,
        ref kind,
        usable,
        culprit,
        ..
    } = *failed;
    let (field, mine) = match kind {
        ErrorKind::Mismatch { field, mine, .. } => (*field, mine.as_str()),
        _ => (Field::Sequence, ""),
    };
    let is_sequence = field == Field::Sequence;
    // By the places in the program, or by what the receiver of each block expects.
    let is_known = culprit.is_some() || is_sequence || field == Field::Splits;
    if is_sequence {
        // A rank that waits for nobody in a call goes on to the next one, and is met there by those who
        // wait: the first call that differs is the cause. What was left out shows in this one only by
        // the places in the program.
        let is_met = mine == format!("call {}", call.seq);
        let up_to = call.seq - u64::from(!is_met && call.seq > 0);
        if let Some((call, found)) = mismatch::earliest(scene, call, up_to, is_told) {
            return compared(scene, rank, call, found, usable);
        }
    } else {
        // A message may be of an earlier call than the one that met it.
        let found = mismatch::compare(scene, call).map(|found| (call, found));
        let found = found.or_else(|| mismatch::earliest(scene, call, call.seq, is_told));
        if let Some((call, found)) = found {
            return compared(scene, rank, call, found, usable);
        }
    }
    // No board tells what others made of it. Ranks that share memory have compared the calls of all; over messages a rank has
    // seen one other call, and any of the two may be the odd one.
    let (class, mut blamed) = if usable || is_known {
        class_of(rank, kind)
    } else {
        Class::of(kind, rank)
    };
    blamed.sort_unstable();
    if let [one, other] = blamed[..]
        && let Some(odd) = mismatch::odd_of(scene, call, [one, other])
    {
        blamed = vec![odd];
    }
    let mut verdict = told(scene, usual(kind, rank), call, kind, usable, class, blamed);
    let places = mismatch::places(scene, call);
    if !places.is_empty() {
        verdict.place = format!("{} ({places})", verdict.place);
    }
    verdict
}

/// The rank whose call stands for what most made.
fn usual(kind: &ErrorKind, otherwise: u32) -> u32 {
    if let ErrorKind::Mismatch { rank, .. } = kind {
        rank.0
    } else {
        otherwise
    }
}

/// The verdict on calls that differ, with all sides.
pub(super) fn compared(
    scene: &Scene,
    rank: u32,
    call: CallId,
    found: Comparison,
    usable: bool,
) -> Verdict {
    let rank = usual(&found.kind, rank);
    let mut verdict = told(
        scene,
        rank,
        call,
        &found.kind,
        usable,
        Class::Mismatch,
        found.blamed,
    );
    verdict.place = found.place;
    if let Some(hint) = mismatch::hint(scene, call, &verdict.blamed) {
        verdict.next = hint;
    }
    verdict
}

fn told(
    scene: &Scene,
    rank: u32,
    call: CallId,
    kind: &ErrorKind,
    usable: bool,
    class: Class,
    blamed: Vec<u32>,
) -> Verdict {
    let group = group_of(scene, rank, call);
    let age_ms = group
        .and_then(|group| group.call.as_ref())
        .map_or(0, |call| call.age_ms);
    let now_ms = wall_ms(scene, rank);
    Verdict {
        class,
        since_unix_ms: now_ms.saturating_sub(age_ms),
        elapsed_ms: age_ms,
        others: others(scene, call),
        who: who(scene, &blamed),
        what: what(group, call),
        place: kind.to_string(),
        evidence: vec![if matches!(kind, ErrorKind::Mismatch { .. }) {
            COMPARED.to_owned()
        } else {
            format!("rank {rank} met it in this call")
        }],
        next: kind.help().to_owned(),
        ..draft(now_ms, blamed, call, kind.clone(), usable)
    }
}

fn gone(scene: &Scene, rank: u32, peer: Rank, fate: &Fate, call: CallId) -> Verdict {
    let blamed = vec![peer.0];
    let kind = ErrorKind::PeerClosed {
        peer,
        how: fate.how.clone(),
        orderly: fate.orderly,
    };
    let mut verdict = Verdict {
        class: fate.class,
        confidence: fate.confidence,
        who: who(scene, &blamed),
        what: what(group_of(scene, rank, call), call),
        place: format!("{}{}", fate.how, last_act(scene, peer.0)),
        evidence: vec![
            "its end of the link closed".to_owned(),
            fate.evidence.clone(),
        ],
        next: fate.hint.clone(),
        ..draft(wall_ms(scene, rank), blamed, call, kind, false)
    };
    name_beside(scene, peer.0, &mut verdict);
    verdict
}

/// The wall clock of a rank when it last said something of itself; where it never did, the latest one.
fn wall_ms(scene: &Scene, rank: u32) -> u64 {
    let said = |member: &Member| Some(member.report.as_ref()?.wall_ms);
    let latest = || scene.members.iter().filter_map(said).max();
    scene
        .member(rank)
        .and_then(said)
        .or_else(latest)
        .unwrap_or(0)
}

fn draft(
    since_unix_ms: u64,
    blamed: Vec<u32>,
    call: CallId,
    kind: ErrorKind,
    usable: bool,
) -> Verdict {
    Verdict {
        class: Class::Internal,
        blamed,
        who: String::new(),
        what: what(None, call),
        place: String::new(),
        since_unix_ms,
        elapsed_ms: 0,
        confidence: Confidence::Certain,
        evidence: Vec::new(),
        others: "see each rank".to_owned(),
        next: String::new(),
        cascades: Vec::new(),
        ends: if usable { Vec::new() } else { vec![call] },
        about: usable.then_some(call),
        kind,
    }
}

/// The group of a call, as the board of this rank shows it.
fn group_of(scene: &Scene, rank: u32, call: CallId) -> Option<&GroupState> {
    scene.member(rank)?.report.as_ref()?.group(call.key)
}

/// Who is in the same call: `4 in the call: ranks 0-3`.
fn others(scene: &Scene, call: CallId) -> String {
    let is_in = |(rank, member): (u32, &Member)| {
        let group = member.report.as_ref()?.group(call.key)?;
        group
            .call
            .as_ref()
            .filter(|theirs| theirs.seq == call.seq)?;
        Some(rank)
    };
    let there: Vec<u32> = (0..).zip(&scene.members).filter_map(is_in).collect();
    if there.is_empty() {
        return "nobody else is in the call".to_owned();
    }
    format!("{} in the call: {}", there.len(), ranks(&there))
}

/// The name of the group of a call, where somebody has it or remembers it.
fn name(scene: &Scene, call: CallId) -> &str {
    let reports = || {
        scene
            .members
            .iter()
            .filter_map(|member| member.report.as_ref())
    };
    let live = || reports().find_map(|report| Some(report.group(call.key)?.name.as_str()));
    let gone = || reports().find_map(|report| Some(report.destroyed(call.key)?.name.as_str()));
    live().or_else(gone).unwrap_or("a group that is gone")
}

fn what(group: Option<&GroupState>, call: CallId) -> String {
    let Some(group) = group else {
        return format!("call #{}", call.seq);
    };
    match group.call.as_ref().filter(|one| one.seq == call.seq) {
        Some(under_way) => format!(
            "{} #{} on {}{}",
            under_way.call.name(),
            call.seq,
            group.name,
            under_way.call.details()
        ),
        None => format!("call #{} on {}", call.seq, group.name),
    }
}

/// In a mismatch that the ranks found themselves `rank` stands for the usual call, `peer` for the odd one.
fn class_of(rank: u32, kind: &ErrorKind) -> (Class, Vec<u32>) {
    if let ErrorKind::Mismatch { peer, .. } = kind {
        return (Class::Mismatch, vec![peer.0]);
    }
    Class::of(kind, rank)
}
