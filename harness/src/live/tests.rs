//! Jobs made of boards, and what a screen shows of them.

use muster_comm::types::{Collective, DType, ReduceOp};
use muster_comm::watch::process::ProcessFacts;
use muster_comm::watch::report::Wait;
use proptest::prelude::*;

use super::*;

const KEY: u64 = 7;

fn code(collective: Collective, count: u64) -> CallCode {
    let word = collective as u64 | (DType::F32 as u64) << 8 | (ReduceOp::Sum as u64) << 16;
    CallCode { word, count }
}

/// A rank of four in one group: how far it is, and the milliseconds for which it has waited for rank 3.
fn seen(rank: u32, entered: u64, waits_ms: Option<u64>) -> Seen {
    let call = waits_ms.map(|age_ms| InFlight {
        seq: entered,
        call: code(Collective::AllReduce, 64),
        site: "train.py:12".to_owned(),
        age_ms,
        wait: Some(Wait {
            missing: vec![3],
            checks: 9,
            age_ms,
            ..Wait::default()
        }),
        ..InFlight::default()
    });
    let record = |seq| CallRecord {
        id: seq,
        key: KEY,
        group: "dp".to_owned(),
        seq,
        call: code(Collective::AllReduce, 64),
        site: "train.py:12".to_owned(),
        completed_ns: Some(0),
        outcome: CallOutcome::Completed,
        ..CallRecord::default()
    };
    Seen {
        job: 1,
        pid: 100 + rank,
        report: Report {
            rank,
            world_size: 4,
            pid: 100 + rank,
            groups: vec![GroupState {
                key: KEY,
                name: "dp".to_owned(),
                members: vec![0, 1, 2, 3],
                size: 4,
                entered,
                call,
                ..GroupState::default()
            }],
            calls: (1..entered).map(record).collect(),
            ..Report::default()
        },
        ..Seen::default()
    }
}

/// Three ranks that wait for the last one.
fn hung() -> Raw {
    let mut ranks: Vec<Seen> = (0..3).map(|rank| seen(rank, 5, Some(9_000))).collect();
    ranks.push(seen(3, 4, None));
    Raw {
        job: 1,
        ranks,
        ..Raw::default()
    }
}

fn job(raw: &Raw) -> Job {
    Live::default().job(raw, &farthest(&raw.ranks), 1_000_000_000)
}

#[test]
fn a_rank_is_shown_by_what_it_does() {
    let mut raw = hung();
    raw.ranks[1].has_ended = true;
    raw.ranks[2].report.process = Some(ProcessFacts {
        state: 'T',
        ..ProcessFacts::default()
    });
    let job = job(&raw);
    let states: Vec<State> = job.ranks.iter().map(|row| row.state).collect();
    let expected = [State::Waiting, State::Ended, State::Stopped, State::Outside];
    assert_eq!(states, expected);
    let first = &job.ranks[0];
    assert_eq!(
        (first.seq, first.since_ms, first.behind),
        (5, Some(9_000), 0)
    );
    assert_eq!(first.waits_for, [3]);
    assert_eq!(job.ranks[1].waits_for, [0; 0]);
    let last = &job.ranks[3];
    assert_eq!((last.seq, last.since_ms, last.behind), (3, Some(1_000), 1));
    // A world of which a rank has ended is left to those who watch it.
    assert_eq!(job.verdict, None);
}

#[test]
fn a_wait_that_lasts_is_judged_where_all_ranks_were_seen() {
    let raw = hung();
    let verdict = job(&raw).verdict.expect("a wait of nine seconds");
    assert_eq!(verdict.blamed, [3]);
    let mut partly = hung();
    partly.ranks.pop();
    assert_eq!(job(&partly).verdict, None);
    let mut short = hung();
    for seen in &mut short.ranks {
        let calls = seen.report.groups.iter_mut();
        let waits = calls.filter_map(|group| group.call.as_mut()?.wait.as_mut());
        waits.for_each(|wait| wait.age_ms = 900);
    }
    assert_eq!(job(&short).verdict, None);
}

#[test]
fn groups_have_rates_from_the_second_look_on_and_the_sizes_of_the_benchmark() {
    let mut live = Live::default();
    let raw = hung();
    let far = farthest(&raw.ranks);
    let first = live.job(&raw, &far, 1_000_000_000);
    assert_eq!(first.groups[0].calls_per_s, None);
    let mut later = hung();
    for seen in &mut later.ranks {
        seen.report.groups[0].entered += 10;
    }
    let group = &live.job(&later, &far, 3_000_000_000).groups[0];
    let rate = group.calls_per_s.expect("two looks");
    assert!((rate - 5.0).abs() < 1e-9, "{rate}");
    let bytes = group.bytes_per_s.expect("calls with elements");
    assert!((bytes - 5.0 * 256.0).abs() < 1e-6, "{bytes}");
    assert_eq!((group.waiting, group.oldest_ms), (3, 9_000));
    let of = |collective, count| bytes_of(code(collective, count), 4);
    assert_eq!(of(Collective::AllGather, 8), 128);
    assert_eq!(of(Collective::ReduceScatter, 8), 128);
    assert_eq!(of(Collective::Broadcast, 8), 32);
    assert_eq!(of(Collective::AllGatherV, 8), 32);
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small whole numbers"
)]
fn bytes_of(call: CallCode, size: u32) -> u64 {
    bytes(call, size) as u64
}

#[test]
fn who_is_behind_was_so_when_the_farthest_was_read() {
    let raw = hung();
    // Rank 0 was read at call 5 and has come to 40 since; nobody is behind by that.
    let before = farthest(&raw.ranks);
    let mut later = hung();
    later.ranks.iter_mut().for_each(|seen| {
        seen.report.groups[0].entered += u64::from(seen.report.rank == 0) * 35 + 1;
    });
    let job = Live::default().job(&later, &before, 1_000_000_000);
    assert!(job.ranks.iter().all(|row| row.behind == 0));
    assert_eq!((job.groups[0].seq, job.groups[0].behind), (41, 0));
}

#[test]
fn a_job_is_meant_by_its_number_or_the_process_of_a_rank() {
    let raw = hung();
    for meant in ["0000000000000001", "00000", "102"] {
        assert!(raw.is_meant(meant), "{meant}");
    }
    for other in ["1", "104", "rank"] {
        assert!(!raw.is_meant(other), "{other}");
    }
}

#[test]
fn every_family_of_figures_has_a_sample_and_a_name_in_the_documents() {
    let mut one = job(&hung());
    one.late.push(Late::default());
    one.groups[0].calls_per_s = Some(5.0);
    one.groups[0].bytes_per_s = Some(2e9);
    let jobs = Jobs {
        jobs: vec![one],
        ..Jobs::default()
    };
    let text = metrics::render(&jobs).expect("figures");
    let page = include_str!("../../../docs/top.md");
    for (name, _) in metrics::FAMILIES {
        let samples = text
            .lines()
            .filter(|line| line.starts_with(&format!("{name}{{")));
        assert!(samples.count() > 0, "{name} in {text}");
        assert!(page.contains(&format!("`{name}`")), "{name} in docs/top.md");
    }
    let gbs = "muster_comm_algo_bandwidth_gbs{job_id=\"0000000000000001\",kind=\"muster\",comm_name=\"dp\",comm_id=\"0000000000000007\",nranks=\"4\"} 2.0";
    assert!(text.contains(gbs), "{text}");
}

#[test]
fn a_screen_says_who_waits_for_whom_and_keeps_to_its_width() {
    let jobs = [job(&hung())];
    let text = once(&jobs, 80);
    let wait = "ranks 0-2 wait for 3 in all_reduce #5 of dp for 9.0s at train.py:12";
    assert!(text.contains(wait), "{text}");
    assert!(
        text.contains("the boards show NOT_JOINED: rank 3"),
        "{text}"
    );
    assert!(
        text.contains("4 of 4 ranks: 3 waiting, 1 outside"),
        "{text}"
    );
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    assert!(!text.contains("101"), "no processes at 80 columns: {text}");
    assert!(once(&jobs, 120).contains("101"));
}

#[test]
fn times_fit_their_column() {
    let shown = [0, 999, 1_000, 99_999, 100_000, 5_999_999, 6_000_000].map(view::age);
    assert_eq!(
        shown,
        ["0ms", "999ms", "1.0s", "100.0s", "1m40", "99m59", "1h40"]
    );
}

proptest! {
    #[test]
    fn screens_of_every_size_can_be_drawn(width in 1_u16..300, ranks in 0_u32..300, groups in 0_u32..300) {
        let mut raw = Raw { job: 1, ..Raw::default() };
        raw.ranks = (0..ranks).map(|rank| seen(rank, u64::from(rank % 7), (rank % 3 == 0).then_some(900))).collect();
        for seen in &mut raw.ranks {
            let more = (0..groups).map(|key| GroupState { key: u64::from(key) + 100, name: format!("group {key}"), ..GroupState::default() });
            seen.report.groups.extend(more);
        }
        let text = once(&[job(&raw)], width);
        prop_assert!(text.lines().all(|line| line.chars().count() <= usize::from(width)));
    }
}
