//! Parts of verdicts in words.

use super::graph::Waiter;
use super::{Fate, Scene};
use crate::error::ErrorKind;
use crate::types::Rank;
use crate::watch::report::{CallOutcome, Report};
use crate::watch::verdict::{Class, Confidence, ranks};

/// Groups of a culprit that are named.
const GROUPS_MAX: usize = 4;
/// Culprits that are described one by one.
pub(super) const DESCRIBED_MAX: usize = 8;

/// `rank 2 (n1, pid 4711; tp-0 dp-1)`, for each.
pub(in crate::watch) fn who(scene: &Scene, blamed: &[u32]) -> String {
    let one = |rank: &u32| {
        let Some(member) = scene.member(*rank) else {
            return format!("rank {rank}");
        };
        let host = if member.host.is_empty() {
            "this host"
        } else {
            &member.host
        };
        let groups = member
            .report
            .as_ref()
            .map_or_else(Vec::new, |report| names(report));
        let groups = if groups.is_empty() {
            String::new()
        } else {
            format!("; {}", groups.join(" "))
        };
        let process = match &member.inside {
            Some(inside) => inside.describe(member.pid),
            None => format!("pid {}", member.pid),
        };
        format!("rank {rank} ({host}, {process}{groups})")
    };
    if blamed.len() > DESCRIBED_MAX {
        return ranks(blamed);
    }
    blamed.iter().map(one).collect::<Vec<_>>().join(", ")
}

pub(super) fn names(report: &Report) -> Vec<&str> {
    let mut names: Vec<&str> = report
        .groups
        .iter()
        .map(|group| group.name.as_str())
        .collect();
    names.dedup();
    if names.len() > GROUPS_MAX {
        names.truncate(GROUPS_MAX - 1);
        names.push("...");
    }
    names
}

/// `3 waiting: ranks 0,1,3 in all_reduce #184 on tp0`.
pub(super) fn others(waiters: &[&Waiter<'_>]) -> String {
    if waiters.is_empty() {
        return "nobody waits".to_owned();
    }
    let mut parts: Vec<(String, Vec<u32>)> = Vec::new();
    for waiter in waiters {
        let call = call_of(waiter);
        match parts.iter_mut().find(|(known, _)| *known == call) {
            Some((_, ranks)) => ranks.push(waiter.rank),
            None => parts.push((call, vec![waiter.rank])),
        }
    }
    let shown: Vec<String> = parts
        .iter()
        .take(DESCRIBED_MAX)
        .map(|(call, who)| format!("{} in {call}", ranks(who)))
        .collect();
    format!("{} waiting: {}", waiters.len(), shown.join(", "))
}

pub(super) fn call_of(waiter: &Waiter<'_>) -> String {
    format!(
        "{} #{} on {}",
        waiter.call.call.name(),
        waiter.call.seq,
        waiter.group.name
    )
}

pub(super) fn full_call_of(waiter: &Waiter<'_>) -> String {
    format!("{}{}", call_of(waiter), waiter.call.call.details())
}

/// `, last finished all_reduce #183 on tp0 at x.rs:88`, as far as the rank's board tells.
pub(in crate::watch) fn last_act(scene: &Scene, rank: u32) -> String {
    let Some(report) = scene.member(rank).and_then(|member| member.report.as_ref()) else {
        return String::new();
    };
    let open = report
        .calls
        .iter()
        .rfind(|call| call.outcome == CallOutcome::Open && !call.is_async);
    let (verb, call) = match (open, report.last_completed()) {
        (Some(call), _) => ("in", call),
        (None, Some(call)) => ("last finished", call),
        (None, None) => return ", no call so far".to_owned(),
    };
    let on = if call.group.is_empty() {
        String::new()
    } else {
        format!(" on {}", call.group)
    };
    format!(
        ", {verb} {} #{}{on} at {}",
        call.call.name(),
        call.seq,
        call.site
    )
}

pub(in crate::watch) fn fate(scene: &Scene, rank: u32) -> Fate {
    let known = scene.member(rank).and_then(|member| member.fate.clone());
    known.unwrap_or_else(|| Fate {
        how: "is gone".to_owned(),
        orderly: false,
        class: Class::PeerDead,
        confidence: Confidence::Likely,
        evidence: "its connection ended".to_owned(),
        is_violent: false,
        order: 0,
        hint: "read the output of that rank".to_owned(),
    })
}

pub(super) fn stalled(blamed: &[u32]) -> ErrorKind {
    ErrorKind::Stalled {
        waiting_for: blamed.iter().map(|rank| Rank(*rank)).collect(),
        waited_ms: 0,
    }
}
