//! Dumps of the flight recorders of PyTorch and torch_npu, read as reports of ranks.
//!
//! Pure. What such a dump does not tell is left open: it names no root and no reduction, and its clock is that of the wall.
//! Works of torch are asynchronous. So a rank has entered a call when the call was enqueued, and it waits in the first call of a
//! group that has not completed.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;

use crate::error::verdict::Verdict;
use crate::types::{Collective, DType};
use crate::watch::report::{
    CallCode, CallOutcome, CallRecord, GroupState, InFlight, REPORT_VERSION, Report, Wait,
};

/// The name of the group of all ranks.
const FIRST: &str = "0";

/// Why a document is no dump of a flight recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no dump of a flight recorder: `{missing}` is missing or of another kind")]
pub struct NoRecord {
    /// The field.
    pub missing: &'static str,
}

/// Reads the dump of one rank, taken at this time of the wall clock.
///
/// # Errors
/// [`NoRecord`] where the document lacks what every version of the format has.
pub fn read(document: &Value, rank: u32, taken_ms: u64) -> Result<Report, NoRecord> {
    let lacks = |missing| NoRecord { missing };
    let config = document.get("pg_config").and_then(Value::as_object);
    let config = config.ok_or_else(|| lacks("pg_config"))?;
    let entries = document.get("entries").and_then(Value::as_array);
    let entries = entries.ok_or_else(|| lacks("entries"))?;
    // Gloo leaves the names out there, so that one group's members stand for those of all: of which, nobody knows.
    let of = |(name, group): (&String, &Value)| (name.clone(), group_of(name, group));
    let config = config.iter().filter(|(name, _)| !name.is_empty());
    let mut groups: Vec<(String, GroupState)> = config.map(of).collect();
    let mut calls = Vec::new();
    for entry in entries {
        let named = |at: usize| {
            entry
                .get("process_group")
                .and_then(|pair| pair.get(at)?.as_str())
        };
        let name = named(0).ok_or_else(|| lacks("process_group"))?;
        if !groups.iter().any(|(known, _)| known == name) {
            groups.push((name.to_owned(), group_of(name, &Value::Null)));
        }
        let Some((_, group)) = groups.iter_mut().find(|(known, _)| *known == name) else {
            continue;
        };
        if let Some(described) = named(1).filter(|described| is_description(described))
            && group.name == name
        {
            described.clone_into(&mut group.name);
        }
        let call = call_of(entry, group)?;
        if !call.call.is_point_to_point() {
            group.entered = group.entered.max(call.seq);
        }
        let is_first = group.call.as_ref().is_none_or(|known| known.seq > call.seq);
        if call.outcome == CallOutcome::Open && is_first && !call.call.is_point_to_point() {
            let age_ms = taken_ms.saturating_sub(call.enqueued_ns / 1_000_000);
            group.call = Some(InFlight {
                seq: call.seq,
                call: call.call,
                site: call.site.clone(),
                age_ms,
                is_async: true,
                wait: Some(Wait {
                    checks: 2,
                    age_ms,
                    ..Wait::default()
                }),
                ..InFlight::default()
            });
        }
        calls.push(call);
    }
    Ok(Report {
        version: REPORT_VERSION,
        rank,
        wall_ms: taken_ms,
        threads: 1,
        groups: groups.into_iter().map(|(_, group)| group).collect(),
        calls,
        ..Report::default()
    })
}

/// Completes what only the dumps of all ranks tell together: the size of the world, members of groups that list none, and whom
/// each rank waits for.
pub fn complete(reports: &mut [Report]) {
    let named = reports
        .iter()
        .flat_map(|report| &report.groups)
        .flat_map(|group| &group.members);
    let ranks = named
        .copied()
        .chain(reports.iter().map(|report| report.rank));
    let world = ranks.max().map_or(0, |last| last.saturating_add(1));
    // By group what each rank that has used it has entered.
    let mut entered: HashMap<u64, HashMap<u32, u64>> = HashMap::new();
    for report in reports.iter() {
        for group in &report.groups {
            let of_group = entered.entry(group.key).or_default();
            of_group.insert(report.rank, group.entered);
        }
    }
    for report in reports.iter_mut() {
        report.world_size = world;
        for group in report
            .groups
            .iter_mut()
            .filter(|group| group.members.is_empty())
        {
            if group.key == hash(FIRST) {
                group.members = (0..world).collect();
                group.size = world;
                continue;
            }
            // Ranks that have not used it yet are not known.
            group.members = entered[&group.key].keys().copied().collect();
            group.members.sort_unstable();
            group.size = u32::try_from(group.members.len() + 1).unwrap_or(u32::MAX);
        }
    }
    for report in reports {
        let rank = report.rank;
        for group in &mut report.groups {
            let others = || {
                group
                    .members
                    .iter()
                    .copied()
                    .filter(|member| *member != rank)
            };
            let Some(call) = &mut group.call else {
                continue;
            };
            let of_group = &entered[&group.key];
            let has_come = |member: u32| of_group.get(&member).is_some_and(|one| *one >= call.seq);
            let mut missing: Vec<u32> = others().filter(|member| !has_come(*member)).collect();
            let is_known = group.size == u32::try_from(group.members.len()).unwrap_or(u32::MAX);
            if missing.is_empty() && is_known {
                missing = others().collect();
            }
            if let Some(wait) = &mut call.wait {
                wait.missing = missing;
                wait.missing_more = u32::from(!is_known);
            }
        }
    }
}

/// What the ranks handed to the call that a verdict is about, where that differs and nobody knows whether it may: the recorder does
/// not name the collective.
#[must_use]
pub fn sizes_in_words(reports: &[Report], verdict: &Verdict) -> Option<String> {
    let about = verdict.about.or_else(|| verdict.ends.first().copied())?;
    let mut sizes: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for report in reports {
        let call = report.under_way(about)?.call;
        if call.collective().is_some() {
            return None;
        }
        sizes.entry(call.details()).or_default().push(report.rank);
    }
    let told = sizes
        .iter()
        .map(|(size, ranks)| format!("ranks {ranks:?} handed over{size}"));
    (sizes.len() > 1).then(|| {
        format!(
            "{}; the recorder does not name the collective, so this may be right or the cause",
            told.collect::<Vec<_>>().join(", ")
        )
    })
}

/// Whether a program or torch has given a group a name for people.
fn is_description(text: &str) -> bool {
    !matches!(text, "" | "undefined")
}

/// A group by its name among those of a rank; the same on all ranks.
fn group_of(name: &str, config: &Value) -> GroupState {
    let text = |field: &str| {
        config
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let members = match config.get("ranks") {
        Some(Value::Array(ranks)) => ranks.iter().filter_map(number).collect(),
        Some(Value::String(ranks)) => numbers(ranks),
        Some(_) | None => Vec::new(),
    };
    let desc = text("desc");
    let shown = if is_description(desc) { desc } else { name };
    GroupState {
        key: hash(name),
        name: shown.to_owned(),
        size: u32::try_from(members.len()).unwrap_or(u32::MAX),
        members,
        thread: 1,
        ..GroupState::default()
    }
}

fn call_of(entry: &Value, group: &GroupState) -> Result<CallRecord, NoRecord> {
    let lacks = |missing| NoRecord { missing };
    let field = |name: &'static str| entry.get(name).and_then(Value::as_u64);
    let text = |name: &'static str| entry.get(name).and_then(Value::as_str);
    let is_p2p = entry
        .get("is_p2p")
        .and_then(Value::as_bool)
        .unwrap_or(false);
    let seq = if is_p2p {
        "p2p_seq_id"
    } else {
        "collective_seq_id"
    };
    let created = field("time_created_ns").ok_or_else(|| lacks("time_created_ns"))?;
    let profiled = text("profiling_name").ok_or_else(|| lacks("profiling_name"))?;
    // Works of gloo stay "scheduled" for ever; one that has ended is retired.
    let is_retired = entry.get("retired").and_then(Value::as_bool) == Some(true);
    let state = text("state").ok_or_else(|| lacks("state"))?;
    let outcome = if is_retired || state == "completed" {
        CallOutcome::Completed
    } else {
        CallOutcome::Open
    };
    let ended = field("time_discovered_completed_ns").unwrap_or(created);
    Ok(CallRecord {
        id: field("record_id").ok_or_else(|| lacks("record_id"))?,
        key: group.key,
        group: group.name.clone(),
        seq: field(seq).ok_or_else(|| lacks(seq))?,
        call: code_of(profiled, entry),
        site: site_of(entry),
        thread: 1,
        enqueued_ns: created,
        started_ns: field("time_discovered_started_ns").unwrap_or(created),
        completed_ns: (outcome == CallOutcome::Completed).then_some(ended),
        outcome,
        is_async: true,
    })
}

/// Collective and element type as a board has them. A name that none of ours is like counts by its letters, so that two
/// different ones are told apart.
fn code_of(profiled: &str, entry: &Value) -> CallCode {
    let name = profiled.split_once(':').map_or(profiled, |(_, name)| name);
    let name = name.split_whitespace().next().unwrap_or_default();
    let plain = name
        .trim_start_matches('_')
        .trim_end_matches("_base")
        .trim_end_matches("_coalesced");
    let collective = match plain {
        "allreduce" | "all_reduce" => Some(Collective::AllReduce),
        "allgather" | "all_gather" | "all_gather_into_tensor" => Some(Collective::AllGather),
        "reduce_scatter" | "reduce_scatter_tensor" => Some(Collective::ReduceScatter),
        "alltoall" | "all_to_all" | "all_to_all_single" => Some(Collective::AllToAll),
        "all_reduce_barrier" => Some(Collective::Barrier),
        other => Collective::ALL.into_iter().find(|one| one.name() == other),
    };
    let first = |field: &str| entry.get(field).and_then(|all| all.get(0));
    let sizes = first("input_sizes").and_then(Value::as_array);
    let count: u64 = sizes.map_or(0, |sizes| {
        sizes
            .iter()
            .filter_map(Value::as_u64)
            .fold(1, u64::saturating_mul)
    });
    let dtype = first("input_dtypes")
        .and_then(Value::as_str)
        .and_then(dtype_of);
    let dtype = dtype.map_or(0, |dtype| u64::from(dtype as u8) << 8);
    match collective {
        Some(collective) => CallCode {
            word: u64::from(collective as u8) | dtype,
            count,
        },
        // torch_npu 2.14 leaves all names out.
        None if name.is_empty() => CallCode {
            word: 0xff | dtype,
            count,
        },
        None => CallCode {
            word: 0xff,
            count: hash(name).wrapping_add(count),
        },
    }
}

fn dtype_of(name: &str) -> Option<DType> {
    Some(match name {
        "BFloat16" => DType::Bf16,
        "Half" => DType::F16,
        "Float" => DType::F32,
        "Double" => DType::F64,
        "Char" => DType::I8,
        "Short" => DType::I16,
        "Int" => DType::I32,
        "Long" => DType::I64,
        "Byte" | "Bool" => DType::U8,
        _ => return None,
    })
}

/// The innermost frame that is not one of torch itself.
fn site_of(entry: &Value) -> String {
    let frames = entry.get("frames").and_then(Value::as_array);
    let of = |frame: &Value| {
        let file = frame.get("filename")?.as_str()?;
        let line = frame.get("line")?.as_u64()?;
        Some(format!("{file}:{line}"))
    };
    let all: Vec<String> = frames.into_iter().flatten().filter_map(of).collect();
    let own = all
        .iter()
        .find(|site| !site.contains("/torch/") && !site.contains("/torch_npu/"));
    own.or_else(|| all.first()).cloned().unwrap_or_default()
}

fn number(value: &Value) -> Option<u32> {
    u32::try_from(value.as_u64()?).ok()
}

/// The numbers in a text such as `[0, 1]`.
fn numbers(text: &str) -> Vec<u32> {
    let parts = text.split(|one: char| !one.is_ascii_digit());
    parts.filter_map(|part| part.parse().ok()).collect()
}

/// The same for equal names in one run of the program.
fn hash(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::error::verdict::Class;
    use crate::watch::dump::explain;

    fn entry(seq: u64, state: &str) -> Value {
        json!({
            "record_id": seq, "process_group": ["0", "default_pg"], "collective_seq_id": seq, "p2p_seq_id": 0,
            "is_p2p": false, "profiling_name": "gloo:all_reduce", "state": state,
            "time_created_ns": 1_000_000_000_u64 * seq, "input_sizes": [[4, 2]], "input_dtypes": ["Float"],
            "frames": [
                {"name": "all_reduce", "filename": "/x/torch/distributed/c.py", "line": 2},
                {"name": "step", "filename": "train.py", "line": 40 + seq},
            ],
        })
    }

    fn dump(entries: &[Value]) -> Value {
        json!({
            "version": "2.10",
            "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}},
            "entries": entries,
        })
    }

    #[test]
    fn the_rank_that_has_not_enqueued_the_call_is_named() {
        let done = [entry(1, "completed"), entry(2, "completed")];
        let waits = [
            entry(1, "completed"),
            entry(2, "completed"),
            entry(3, "started"),
        ];
        let mut reports: Vec<Report> = [(0, &waits[..]), (1, &done[..]), (2, &waits[..])]
            .into_iter()
            .map(|(rank, entries)| read(&dump(entries), rank, 9_000).expect("a dump"))
            .collect();
        complete(&mut reports);
        assert_eq!(reports[0].world_size, 3);
        let group = &reports[0].groups[0];
        let call = group.call.as_ref().expect("a call under way");
        assert_eq!(
            (call.seq, call.age_ms, &call.site[..]),
            (3, 6_000, "train.py:43")
        );
        assert_eq!(call.call.details(), " f32[8]");
        assert_eq!(call.wait.as_ref().expect("a wait").missing, [1]);
        let verdict = explain(&reports).expect("a verdict");
        assert_eq!(
            (verdict.class, &verdict.blamed[..]),
            (Class::NotJoined, &[1][..])
        );
    }

    /// As gloo of torch 2.15 writes it.
    #[test]
    fn works_of_gloo_are_scheduled_until_they_are_retired() {
        let work = |seq: u64, retired: bool| {
            let mut work = entry(seq, "scheduled");
            work["retired"] = json!(retired);
            work
        };
        let document = json!({
            "pg_config": {"": {"name": "", "desc": "", "ranks": "[0, 1]"}},
            "entries": [work(1, true), work(2, false)],
        });
        let report = read(&document, 0, 9_000).expect("a dump");
        assert_eq!(report.groups.len(), 1, "{:?}", report.groups);
        let group = &report.groups[0];
        assert_eq!(group.name, "default_pg");
        assert_eq!(group.call.as_ref().map(|call| call.seq), Some(2));
    }

    /// Gloo's dumps name no members: a rank that has not used a group yet may be one.
    #[test]
    fn nobody_is_named_where_members_are_not_known() {
        let of = |rank: u32, name: &str| {
            let mut open = entry(1, "scheduled");
            open["process_group"] = json!([name, format!("tp{rank}")]);
            let document = json!({
                "pg_config": {"": {"name": "", "desc": "", "ranks": "[0, 1]"}},
                "entries": [open],
            });
            read(&document, rank, 9_000).expect("a dump")
        };
        let mut reports = [of(0, "1"), of(1, "2"), of(2, "3")];
        complete(&mut reports);
        let group = &reports[1].groups[0];
        assert_eq!((&group.name[..], group.size), ("tp1", 2));
        assert!(!group.names_all());
        let call = group.call.as_ref().expect("a call under way");
        let wait = call.wait.as_ref().expect("a wait");
        assert_eq!((&wait.missing[..], wait.missing_more), (&[][..], 1));
        let verdict = explain(&reports).expect("somebody waits");
        assert_eq!(
            (verdict.class, &verdict.blamed[..]),
            (Class::Internal, &[][..])
        );
    }

    #[test]
    fn what_is_no_dump_is_refused_by_the_field_that_is_missing() {
        let missing = |value: &Value| read(value, 0, 0).expect_err("refused").missing;
        assert_eq!(missing(&json!({})), "pg_config");
        assert_eq!(missing(&json!({"pg_config": {}})), "entries");
        let mut cut = entry(1, "started");
        cut.as_object_mut().expect("an object").remove("state");
        assert_eq!(missing(&dump(&[cut])), "state");
    }

    #[test]
    fn names_of_torch_are_the_collectives_that_they_are() {
        let name = |text: &str| code_of(text, &Value::Null);
        assert_eq!(
            name("nccl:_all_gather_base").collective(),
            Some(Collective::AllGather)
        );
        assert_eq!(
            name("hccl:all_to_all").collective(),
            Some(Collective::AllToAll)
        );
        assert_eq!(name("gloo:send 0->1").collective(), Some(Collective::Send));
        assert_eq!(name("nccl:barrier").collective(), Some(Collective::Barrier));
        let (one, other) = (name("nccl:coalesced"), name("nccl:monitored"));
        assert_eq!(one.collective(), None);
        assert_ne!(one, other);
    }

    #[test]
    fn sizes_that_differ_in_a_call_without_a_name_are_told_and_blame_nobody() {
        let report = |rank, count| {
            let mut entry = entry(1, "scheduled");
            entry["profiling_name"] = json!("");
            entry["input_sizes"] = json!([[count]]);
            entry["input_dtypes"] = json!(["Float"]);
            read(&dump(&[entry]), rank, 1_000).expect("a dump")
        };
        let told = |counts: [u64; 3]| {
            let mut reports: Vec<Report> = (0..)
                .zip(counts)
                .map(|(rank, count)| report(rank, count))
                .collect();
            complete(&mut reports);
            let verdict = explain(&reports).expect("all wait");
            (verdict.class, sizes_in_words(&reports, &verdict))
        };
        assert_eq!(told([7, 7, 7]), (Class::Link, None));
        let (class, words) = told([7, 7, 8]);
        assert_eq!(class, Class::Link);
        let words = words.expect("sizes differ");
        let part = "ranks [0, 1] handed over f32[7], ranks [2] handed over f32[8]";
        assert!(words.starts_with(part), "{words}");
    }
}
