//! Dumps: what stands on boards as JSON, ours and that of other tools, and what dumps of many ranks mean.
//!
//! Pure. Ours is versioned and holds everything. Another has the keys of the JSON that PyTorch's
//! flight recorder writes (version 2.10 of its format), so that its analysers read it; what it has no
//! key for is left out. A third has trace events, which Perfetto shows.

pub mod recorder;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::judge::{FROZEN_AFTER_MS, Finding, Member, Question, Scene, judge};
use super::process::Sight;
use super::report::{CallOutcome, CallRecord, GroupState, Report};
use super::{failure, mismatch};
use crate::error::verdict::{CallId, Confidence, Verdict};

/// Name and version of our document.
pub const SCHEMA: &str = "muster.dump/1";

#[derive(Serialize, Deserialize)]
struct Document {
    schema: String,
    ranks: Vec<Report>,
    /// What the rank was told when this was written.
    #[serde(default)]
    verdict: Option<Verdict>,
}

/// What a document holds.
#[derive(Clone, Debug, Default)]
pub struct Dump {
    /// The ranks in it.
    pub ranks: Vec<Report>,
    /// The verdict with which it was written, if it was.
    pub verdict: Option<Verdict>,
}

/// Why a text is no dump.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// Not JSON, or without what a dump has.
    #[error("not a dump: {0}")]
    Malformed(#[from] serde_json::Error),
    /// Of another version.
    #[error("the dump is {given:?}, this program reads {SCHEMA:?}")]
    Schema {
        /// What it says it is.
        given: String,
    },
}

/// Our document.
#[must_use]
pub fn document(ranks: &[Report], verdict: Option<&Verdict>) -> Value {
    let document = Document {
        schema: SCHEMA.to_owned(),
        ranks: ranks.to_vec(),
        verdict: verdict.cloned(),
    };
    serde_json::to_value(document).unwrap_or(Value::Null)
}

/// Reads our document.
///
/// # Errors
/// [`DumpError`].
pub fn read(text: &str) -> Result<Dump, DumpError> {
    let document: Document = serde_json::from_str(text)?;
    if document.schema != SCHEMA {
        return Err(DumpError::Schema {
            given: document.schema,
        });
    }
    Ok(Dump {
        ranks: document.ranks,
        verdict: document.verdict,
    })
}

/// The dump of one rank with the keys of PyTorch's flight recorder, whose times are those of the wall clock: `ahead_ns` is by how much
/// that is ahead of the monotonic clock of the rank's host.
#[must_use]
pub fn pytorch(report: &Report, ahead_ns: u64) -> Value {
    let number = |key: u64| report.groups.iter().position(|group| group.key == key);
    let config: serde_json::Map<String, Value> = (0..)
        .zip(&report.groups)
        .map(|(number, group): (usize, &GroupState)| {
            let value = json!({
                "name": number.to_string(),
                "desc": group.name,
                "ranks": format!("{:?}", group.members),
            });
            (number.to_string(), value)
        })
        .collect();
    let status: serde_json::Map<String, Value> = (0..)
        .zip(&report.groups)
        .map(|(number, group): (usize, &GroupState)| {
            let completed = report
                .calls
                .iter()
                .rfind(|call| call.key == group.key && call.outcome == CallOutcome::Completed);
            let value = json!({
                "last_enqueued_collective": group.entered,
                "last_started_collective": group.entered,
                "last_completed_collective": completed.map_or(0, |call| call.seq),
            });
            (number.to_string(), value)
        })
        .collect();
    let entries: Vec<Value> = report
        .calls
        .iter()
        .map(|call| entry(call, number(call.key), ahead_ns))
        .collect();
    json!({
        "version": "2.10",
        "rank": report.rank,
        "world_size": report.world_size,
        "pg_config": config,
        "pg_status": status,
        "entries": entries,
    })
}

fn entry(call: &CallRecord, group: Option<usize>, ahead_ns: u64) -> Value {
    let wall = |ns: u64| ns.saturating_add(ahead_ns);
    let (file, line) = call.site.rsplit_once(':').unwrap_or((&call.site, "0"));
    let dtype = call.call.dtype().map_or("Byte", |dtype| dtype.name());
    let is_p2p = call.call.is_point_to_point();
    let state = match call.outcome {
        CallOutcome::Open => "started",
        CallOutcome::Completed | CallOutcome::Failed => "completed",
    };
    json!({
        "record_id": call.id,
        "pg_id": group,
        "process_group": [group.map_or_else(String::new, |group| group.to_string()), call.group],
        "collective_seq_id": if is_p2p { 0 } else { call.seq },
        "p2p_seq_id": if is_p2p { call.seq } else { 0 },
        "op_id": call.id,
        "profiling_name": format!("muster:{}", call.call.name()),
        "time_created_ns": wall(call.enqueued_ns),
        "time_discovered_started_ns": wall(call.started_ns),
        "time_discovered_completed_ns": call.completed_ns.map(wall),
        "duration_ms": Value::Null,
        "input_sizes": [[call.call.count]],
        "input_dtypes": [dtype],
        "output_sizes": [[call.call.count]],
        "output_dtypes": [dtype],
        "state": state,
        "timeout_ms": 0,
        "is_p2p": is_p2p,
        "retired": call.outcome != CallOutcome::Open,
        "frames": [{
            "name": call.call.name(),
            "filename": file,
            "line": line.parse::<u32>().unwrap_or(0),
        }],
    })
}

/// The last calls of ranks of one host as trace events, for Perfetto and `chrome://tracing`: a process is a rank, a slice a call.
/// Times are microseconds of the host's monotonic clock. The end of a call is known to some milliseconds, so a slice ends at the latest
/// a nanosecond before the next one of its thread begins: readers round times down, and leave out slices that overlap.
#[must_use]
pub fn chrome(reports: &[Report]) -> Value {
    let mut events = Vec::new();
    for report in reports {
        let pid = report.rank;
        let named = |what: &str, tid: u32, name: String| json!({"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}});
        let name = format!("rank {} (process {})", report.rank, report.pid);
        events.push(named("process_name", 0, name));
        events.push(json!({"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": report.rank}}));
        let mut tracks: BTreeMap<u32, Vec<&CallRecord>> = BTreeMap::new();
        for call in &report.calls {
            // Asynchronous calls overlap those of the thread that started them.
            let track = 2 * call.thread + u32::from(call.is_async);
            tracks.entry(track).or_default().push(call);
        }
        for (track, mut calls) in tracks {
            let kind = if track % 2 == 0 {
                ""
            } else {
                ", asynchronous calls"
            };
            events.push(named(
                "thread_name",
                track,
                format!("thread {}{kind}", track / 2),
            ));
            calls.sort_by_key(|call| call.started_ns);
            for (at, call) in calls.iter().enumerate() {
                let next = calls.get(at + 1).map_or(u64::MAX, |next| next.started_ns);
                events.push(slice(report, call, track, next));
            }
        }
    }
    json!({"traceEvents": events, "displayTimeUnit": "ms"})
}

/// A call that ends before `next`.
fn slice(report: &Report, call: &CallRecord, track: u32, next: u64) -> Value {
    let (state, end) = match (call.outcome, call.completed_ns) {
        (CallOutcome::Failed, end) => ("failed", end),
        (CallOutcome::Completed, end) => ("completed", end),
        (CallOutcome::Open, _) => {
            let id = CallId {
                key: call.key,
                seq: call.seq,
            };
            let under_way = report.under_way(id);
            let age_ns = under_way.map_or(0, |one| one.age_ms.saturating_mul(1_000_000));
            ("under way", Some(call.started_ns.saturating_add(age_ns)))
        }
    };
    let end = end
        .unwrap_or(call.started_ns)
        .clamp(call.started_ns, (next - 1).max(call.started_ns));
    json!({
        "ph": "X",
        "name": call.call.name(),
        "cat": call.group,
        "pid": report.rank,
        "tid": track,
        "ts": call.started_ns as f64 / 1e3,
        "dur": (end - call.started_ns) as f64 / 1e3,
        "args": {
            "group": call.group,
            "number": call.seq,
            "call": format!("{}{}", call.call.name(), call.call.details()),
            "site": call.site,
            "state": state,
        },
    })
}

/// What dumps mean that were read from files: what their boards show, or what their ranks were told
/// where the boards alone do not suffice (of a rank that is dead there is no dump).
#[must_use]
pub fn explain_all(dumps: &[Dump]) -> Option<Verdict> {
    let reports: Vec<Report> = dumps.iter().flat_map(|dump| &dump.ranks).cloned().collect();
    let shown = explain(&reports);
    let is_sure = shown
        .as_ref()
        .is_some_and(|verdict| verdict.confidence == Confidence::Certain);
    let told = dumps.iter().find_map(|dump| dump.verdict.clone());
    if is_sure { shown } else { told.or(shown) }
}

/// What dumps of ranks that were taken at about one time mean; `None` where nobody waits. Ranks without
/// a dump count as ranks that do not answer.
#[must_use]
pub fn explain(reports: &[Report]) -> Option<Verdict> {
    explain_on(reports, |_| String::new())
}

/// The same of ranks whose hosts are known by name.
#[must_use]
pub fn explain_on(reports: &[Report], host: impl Fn(u32) -> String) -> Option<Verdict> {
    let world = reports.iter().map(|report| report.world_size).max()?;
    let mut scene = Scene {
        members: (0..world).map(|_| Member::default()).collect(),
    };
    for member in &mut scene.members {
        member.silent_ms = 1;
    }
    let mut calls: Vec<(u32, CallId)> = Vec::new();
    for report in reports {
        if let Some(member) = scene.members.get_mut(report.rank as usize) {
            member.pid = report.pid;
            member.host = host(report.rank);
            // A process that does not run could not have answered either.
            let is_frozen = report
                .process
                .as_ref()
                .is_some_and(|process| process.frozen().is_some());
            member.silent_ms = if is_frozen { FROZEN_AFTER_MS } else { 0 };
            member.stopped_ms = is_frozen.then_some(FROZEN_AFTER_MS);
            member.process = report.process.clone().map(Sight::Seen);
            member.report = Some(report.clone());
            member.before = Some(before(report.clone()));
        }
    }
    // The longest wait is asked for: it is the first one that anybody would have complained about.
    let mut waits: Vec<(u64, u32, CallId)> = Vec::new();
    for report in reports {
        for group in &report.groups {
            let Some(call) = &group.call else { continue };
            let id = CallId {
                key: group.key,
                seq: call.seq,
            };
            calls.push((report.rank, id));
            if call.wait.is_some() {
                waits.push((call.age_ms, report.rank, id));
            }
        }
    }
    let differing = calls
        .into_iter()
        .find_map(|(rank, call)| Some((rank, call, mismatch::compare(&scene, call)?)));
    if let Some((rank, call, found)) = differing {
        return Some(offline(failure::compared(&scene, rank, call, found, false)));
    }
    let (_, rank, call) = waits
        .into_iter()
        .max_by_key(|(age_ms, rank, _)| (*age_ms, u32::MAX - rank))?;
    match judge(&scene, Question::Overdue { rank, call }) {
        Finding::Verdict(verdict) => Some(offline(*verdict)),
        Finding::Again(_) | Finding::Nothing => None,
    }
}

/// A verdict in whose evidence nobody was asked: dumps were read.
fn offline(mut verdict: Verdict) -> Verdict {
    for text in &mut verdict.evidence {
        if let Some(ranks) = text.strip_suffix(" answered when asked") {
            *text = format!("there is a dump of {ranks}");
        } else if text == failure::COMPARED {
            "the dumps show different calls under one number".clone_into(text);
        }
    }
    verdict
}

/// A dump shows one moment: what waits in it is taken to have waited just before.
fn before(mut report: Report) -> Report {
    for group in &mut report.groups {
        if let Some(wait) = group.call.as_mut().and_then(|call| call.wait.as_mut())
            && wait.checks > 1
        {
            wait.checks -= 1;
        }
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::verdict::Class;
    use crate::watch::report::{CallCode, InFlight, Wait};

    fn report(rank: u32, waits_for: Option<u32>) -> Report {
        let call = waits_for.map(|missing| InFlight {
            seq: 3,
            call: CallCode { word: 4, count: 9 },
            site: "a.rs:7".to_owned(),
            age_ms: 5000,
            row: Vec::new(),
            is_async: false,
            wait: Some(Wait {
                missing: vec![missing],
                checks: 9,
                age_ms: 4900,
                ..Wait::default()
            }),
        });
        Report {
            version: super::super::report::REPORT_VERSION,
            rank,
            world_size: 2,
            pid: 100 + rank,
            threads: 1,
            groups: vec![GroupState {
                key: 8,
                name: "tp".to_owned(),
                members: vec![0, 1],
                size: 2,
                entered: if waits_for.is_some() { 3 } else { 2 },
                thread: 1,
                version: 6,
                awaited_by: 0,
                pending: 0,
                p99_ms: 0,
                cancelled: None,
                call,
            }],
            calls: vec![CallRecord {
                id: 1,
                key: 8,
                group: "tp".to_owned(),
                seq: 2,
                call: CallCode { word: 4, count: 9 },
                site: "a.rs:6".to_owned(),
                thread: 1,
                enqueued_ns: 5,
                started_ns: 6,
                completed_ns: Some(7),
                outcome: CallOutcome::Completed,
                is_async: false,
            }],
            ..Report::default()
        }
    }

    #[test]
    fn a_dump_is_read_as_it_was_written_and_other_versions_are_refused() {
        let reports = [report(0, Some(1)), report(1, None)];
        let text = document(&reports, None).to_string();
        assert_eq!(read(&text).unwrap().ranks, reports);
        let other = text.replace(SCHEMA, "muster.dump/9");
        assert!(matches!(read(&other), Err(DumpError::Schema { .. })));
        assert!(matches!(read("{}"), Err(DumpError::Malformed(_))));
    }

    #[test]
    fn the_keys_of_the_flight_recorder_are_there() {
        let value = pytorch(&report(0, Some(1)), 1_000);
        assert_eq!(value["entries"][0]["time_created_ns"], 1_005);
        let entry = &value["entries"][0];
        for key in [
            "record_id",
            "pg_id",
            "process_group",
            "collective_seq_id",
            "p2p_seq_id",
            "op_id",
            "profiling_name",
            "time_created_ns",
            "time_discovered_started_ns",
            "time_discovered_completed_ns",
            "input_sizes",
            "input_dtypes",
            "output_sizes",
            "output_dtypes",
            "state",
            "timeout_ms",
            "is_p2p",
            "retired",
            "frames",
        ] {
            assert!(entry.get(key).is_some(), "{key}");
        }
        assert_eq!(entry["state"], "completed");
        assert_eq!(entry["frames"][0]["line"], 6);
        assert_eq!(value["pg_config"]["0"]["ranks"], "[0, 1]");
    }

    #[test]
    fn trace_events_are_slices_that_do_not_overlap() {
        let mut one = report(1, None);
        let late = CallRecord {
            id: 2,
            seq: 3,
            started_ns: 6_000,
            completed_ns: None,
            outcome: CallOutcome::Open,
            ..one.calls[0].clone()
        };
        // To the tick of the coarse clock it ended after the next one began.
        one.calls[0].completed_ns = Some(4_000_000);
        one.calls.push(late);
        one.groups[0].call = report(1, Some(0)).groups[0].call.clone();
        let value = chrome(&[one]);
        let events = value["traceEvents"].as_array().unwrap();
        let slices: Vec<&Value> = events.iter().filter(|event| event["ph"] == "X").collect();
        assert_eq!(slices.len(), 2);
        assert_eq!(
            (&slices[0]["ts"], &slices[0]["dur"]),
            (&json!(0.006), &json!(5.993))
        );
        assert_eq!(
            (&slices[1]["dur"], &slices[1]["args"]["state"]),
            (&json!(5e6), &json!("under way"))
        );
        let names = events.iter().filter(|event| event["ph"] == "M");
        assert_eq!(
            names.count(),
            3,
            "the process, its place among others, and its thread"
        );
    }

    /// What the document "Trace Event Format" asks of the phases that we write: fields and what they hold.
    #[test]
    fn trace_events_have_the_fields_that_the_format_asks_for() {
        let is_number = |value: &Value| value.as_f64().is_some_and(|number| number >= 0.0);
        let value = chrome(&[report(0, Some(1)), report(1, None)]);
        assert!(
            ["ms", "ns"]
                .map(Value::from)
                .contains(&value["displayTimeUnit"])
        );
        let events = value["traceEvents"].as_array().unwrap();
        assert!(events.len() > 4, "{events:?}");
        let mut ends: BTreeMap<(u64, u64), f64> = BTreeMap::new();
        for event in events {
            assert!(event["name"].is_string(), "{event}");
            let (pid, tid) = (event["pid"].as_u64(), event["tid"].as_u64());
            let track = (pid.expect("a process"), tid.expect("a thread"));
            let args = event["args"].as_object().expect("arguments");
            if event["ph"] == "M" {
                let (name, key) = (event["name"].as_str().unwrap(), args.keys().next());
                let expected = match name {
                    "process_name" | "thread_name" => "name",
                    "process_sort_index" => "sort_index",
                    other => panic!("{other}"),
                };
                assert_eq!(key.map(String::as_str), Some(expected));
                let is_text = expected == "name";
                assert_eq!(args[expected].is_string(), is_text, "{event}");
                assert_eq!(args[expected].is_i64() || args[expected].is_u64(), !is_text);
            } else {
                assert_eq!(event["ph"], "X", "{event}");
                assert!(event["cat"].is_string(), "{event}");
                assert!(
                    is_number(&event["ts"]) && is_number(&event["dur"]),
                    "{event}"
                );
                // Complete events of a thread nest or follow each other; ours follow.
                let (start, dur) = (
                    event["ts"].as_f64().unwrap(),
                    event["dur"].as_f64().unwrap(),
                );
                let end = ends.insert(track, start + dur);
                assert!(end.is_none_or(|end| end <= start), "{event}");
            }
        }
        assert!(!ends.is_empty());
    }

    #[test]
    fn dumps_of_all_ranks_lead_to_the_verdict_that_the_arbiter_would_give() {
        let verdict = explain(&[report(0, Some(1)), report(1, None)]).unwrap();
        assert_eq!(
            (verdict.class, verdict.blamed.as_slice()),
            (Class::NotJoined, [1].as_slice())
        );
        assert_eq!(explain(&[report(0, None), report(1, None)]), None);
        // Of a rank without a dump nothing is known.
        let verdict = explain(&[report(0, Some(1))]).unwrap();
        assert_eq!(verdict.blamed, [1]);
        assert!(verdict.place.contains("does not answer"), "{verdict}");
    }
}
