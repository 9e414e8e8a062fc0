//! Parts of verdicts in words.

use super::graph::Waiter;
use super::{EndCause, Fate, Scene};
use crate::error::ErrorKind;
use crate::error::verdict::{Class, Confidence, ranks};
use crate::types::Rank;
use crate::watch::report::{CallOutcome, Report};

/// Characters that the names of a culprit's groups may take; beyond that the others are counted.
const NAMES_MAX: usize = 120;
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
        let groups = member.report.as_ref().map_or_else(String::new, names);
        let groups = if groups.is_empty() {
            groups
        } else {
            format!("; {groups}")
        };
        // What a flight recorder wrote tells no process.
        if member.pid == 0 && member.host.is_empty() && !groups.is_empty() {
            return format!("rank {rank} ({})", groups.trim_start_matches("; "));
        }
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

/// The names of a rank's groups: `world tp dp`, or `world tp dp and 70 more groups`.
fn names(report: &Report) -> String {
    let mut names: Vec<&str> = Vec::new();
    for group in &report.groups {
        if !names.contains(&group.name.as_str()) {
            names.push(&group.name);
        }
    }
    let mut chars = 0;
    let mut fits = |name: &&&str| {
        chars += name.chars().count() + 1;
        chars <= NAMES_MAX
    };
    let shown = names.iter().take_while(|name| fits(name)).count();
    let more = names.len() - shown;
    let shown = names[..shown].join(" ");
    match (shown.as_str(), more) {
        (_, 0) => shown,
        ("", 1) => "1 group".to_owned(),
        ("", more) => format!("{more} groups"),
        (_, 1) => format!("{shown} and 1 more group"),
        (_, more) => format!("{shown} and {more} more groups"),
    }
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

/// `, last finished all_reduce #183 on tp0 at x.rs:88`, as far as the rank's board tells. That of a rank that has gone was read
/// before, and the rank may have made more calls.
pub(in crate::watch) fn last_act(scene: &Scene, rank: u32) -> String {
    let member = scene.member(rank);
    let Some(report) = member.and_then(|member| member.report.as_ref()) else {
        return String::new();
    };
    let has_gone = member.is_some_and(|member| member.fate.is_some());
    let cancels = report.groups.iter().filter_map(|group| {
        let why = group.cancelled.as_ref()?;
        Some(format!(", cancelled its calls on {}: {why}", group.name))
    });
    let cancels: String = cancels.collect();
    let open = report
        .calls
        .iter()
        .rfind(|call| call.outcome == CallOutcome::Open && !call.is_async);
    let (verb, call) = match (open, report.last_completed()) {
        (Some(call), _) if has_gone => ("last seen in", call),
        (Some(call), _) => ("in", call),
        (None, Some(call)) if has_gone => ("last seen after", call),
        (None, Some(call)) => ("last finished", call),
        (None, None) if has_gone => return cancels,
        (None, None) => return format!(", no call so far{cancels}"),
    };
    let on = if call.group.is_empty() {
        String::new()
    } else {
        format!(" on {}", call.group)
    };
    // Recorders without stacks do not tell.
    let at = if call.site.is_empty() {
        String::new()
    } else {
        format!(" at {}", call.site)
    };
    format!(
        ", {verb} {} #{}{on}{at}{cancels}",
        call.call.name(),
        call.seq
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
        cause: EndCause::Unknown,
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
