//! Who was late in call after call, as the last calls in dumps tell.
//!
//! DUMPED-1: times of several ranks are compared only where no call contradicts that they are of one clock: nobody ends a call of all before
//! everybody has begun it.

use std::collections::BTreeMap;

use muster_comm::watch::report::{CallRecord, Report};

use super::late::{Late, Wait, named};

/// Shortest time for which members waited, in nanoseconds: the end of a call is known to some milliseconds.
const WAIT_MIN_NS: u64 = 12_000_000;
/// By how much the end of a call may seem earlier than it was: a tick of the coarse clock of a kernel of 100 Hz.
const TICK_NS: u64 = 10_000_000;

/// One rank's part in a call.
#[derive(Clone, Copy)]
struct Part<'a> {
    rank: u32,
    call: &'a CallRecord,
    /// When the call before it had ended, of whichever group; 0 where there is none.
    free_ns: u64,
}

/// The ranks that others waited for in call after call of the last ones.
#[must_use]
pub fn late_in(reports: &[Report]) -> Vec<Late> {
    let mut groups: BTreeMap<u64, BTreeMap<u64, Vec<Part<'_>>>> = BTreeMap::new();
    for report in reports {
        let mut free_ns = 0;
        for call in &report.calls {
            let part = Part {
                rank: report.rank,
                call,
                free_ns,
            };
            if call
                .call
                .collective()
                .is_some_and(|one| one.needs_everybody_with(call.call.count))
            {
                let calls = groups.entry(call.key).or_default();
                calls.entry(call.seq).or_default().push(part);
            }
            free_ns = free_ns.max(call.completed_ns.unwrap_or(call.started_ns));
        }
    }
    let group = |key: u64| reports.iter().find_map(|report| report.group(key));
    let of_group = |(key, calls): (u64, BTreeMap<u64, Vec<Part<'_>>>)| {
        let known = group(key)?;
        let whole = calls
            .into_iter()
            .filter(|(_, parts)| parts.len() == known.size as usize);
        Some(of_calls(&whole.collect::<Vec<_>>(), key, &known.name))
    };
    groups.into_iter().filter_map(of_group).flatten().collect()
}

/// Of calls of which all members' parts are known.
fn of_calls(calls: &[(u64, Vec<Part<'_>>)], key: u64, name: &str) -> Vec<Late> {
    let began = |parts: &[Part<'_>]| parts.iter().map(|part| part.call.started_ns).max();
    let ended = |parts: &[Part<'_>]| parts.iter().filter_map(|part| part.call.completed_ns).min();
    let is_of_one_clock = calls
        .iter()
        .all(|(_, parts)| match (began(parts), ended(parts)) {
            (Some(began), Some(ended)) => began <= ended + TICK_NS,
            _ => true,
        });
    let (Some((_, first)), Some((_, last))) = (calls.first(), calls.last()) else {
        return Vec::new();
    };
    let span_ns = began(last)
        .unwrap_or(0)
        .saturating_sub(began(first).unwrap_or(0));
    if !is_of_one_clock || span_ns == 0 {
        return Vec::new();
    }
    let waits: Vec<Wait> = calls
        .iter()
        .filter_map(|(seq, parts)| wait(key, *seq, parts))
        .collect();
    let waited: f64 = waits.iter().map(|wait| wait.weight).sum();
    named(
        &waits.iter().collect::<Vec<_>>(),
        waited / span_ns as f64,
        key,
        name,
    )
}

/// How long all others waited for the last one, which was in no call meanwhile.
fn wait(key: u64, seq: u64, parts: &[Part<'_>]) -> Option<Wait> {
    let mut parts = parts.to_vec();
    parts.sort_by_key(|part| part.call.enqueued_ns);
    let [.., before, last] = parts.as_slice() else {
        return None;
    };
    let since_ns = before.call.enqueued_ns.max(last.free_ns);
    let waited_ns = last.call.enqueued_ns.saturating_sub(since_ns);
    (waited_ns >= WAIT_MIN_NS).then(|| Wait {
        key,
        seq,
        late: vec![last.rank],
        weight: waited_ns as f64,
    })
}

#[cfg(test)]
mod tests {
    use muster_comm::types::Collective;
    use muster_comm::watch::report::{CallCode, GroupState};

    use super::*;

    const MS: u64 = 1_000_000;

    /// Two ranks that make calls, rank 1 `late_ms` after rank 0; its clock is `ahead_ms` ahead.
    fn pair(late_ms: impl Fn(u64) -> u64, ahead_ms: u64) -> Vec<Report> {
        let word = Collective::Barrier as u64;
        let call = |seq: u64, began_ms: u64, ended_ms: u64| CallRecord {
            id: seq,
            key: 7,
            seq,
            call: CallCode { word, count: 0 },
            enqueued_ns: began_ms * MS,
            started_ns: began_ms * MS,
            completed_ns: Some(ended_ms * MS),
            ..CallRecord::default()
        };
        let of = |rank: u32| Report {
            rank,
            groups: vec![GroupState {
                key: 7,
                name: "world".to_owned(),
                size: 2,
                ..GroupState::default()
            }],
            calls: (1..=30)
                .map(|seq| {
                    let (first, late) = (1000 + seq * 100, late_ms(seq));
                    let own = if rank == 1 {
                        first + late + ahead_ms
                    } else {
                        first
                    };
                    let end = first + late + if rank == 1 { ahead_ms } else { 0 };
                    call(seq, own, end)
                })
                .collect(),
            ..Report::default()
        };
        vec![of(0), of(1)]
    }

    #[test]
    fn who_was_late_in_call_after_call_is_named() {
        let late = late_in(&pair(|_| 50, 0));
        assert_eq!(late.len(), 1, "{late:?}");
        assert_eq!((late[0].rank, late[0].calls, late[0].of_calls), (1, 30, 30));
        assert!((late[0].waiting - 0.5).abs() < 0.03, "{late:?}");
    }

    #[test]
    fn little_waiting_other_clocks_and_missing_ranks_name_nobody() {
        assert_eq!(late_in(&pair(|_| 5, 0)), []);
        assert_eq!(late_in(&pair(|seq| if seq < 8 { 90 } else { 0 }, 0)), []);
        // Its clock is ahead: it only seems late, or to have ended before the other began.
        assert_eq!(late_in(&pair(|_| 0, 60)), []);
        assert_eq!(late_in(&pair(|_| 50, 0)[1..]), []);
    }

    #[test]
    fn who_is_held_up_in_another_call_is_not_late() {
        let mut reports = pair(|_| 50, 0);
        let held = reports[1].calls.clone().into_iter().flat_map(|call| {
            let other = CallRecord {
                key: 9,
                enqueued_ns: call.enqueued_ns - 49 * MS,
                started_ns: call.started_ns - 49 * MS,
                completed_ns: Some(call.started_ns - MS),
                ..call.clone()
            };
            [other, call]
        });
        reports[1].calls = held.collect();
        assert_eq!(late_in(&reports), []);
    }
}
