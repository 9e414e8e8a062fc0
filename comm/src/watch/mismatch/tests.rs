//! Boards of ranks that make different calls, and what is said of them.

use super::*;
use crate::types::{DType, ReduceOp};
use crate::watch::judge::Member;
use crate::watch::process::ProcessFacts;
use crate::watch::report::{Report, Wait};

const CALL: CallId = CallId { key: 8, seq: 3 };

fn code(collective: Collective, dtype: DType, count: u64) -> CallCode {
    let word = collective as u64 | (dtype as u64) << 8 | (ReduceOp::Sum as u64) << 16;
    CallCode { word, count }
}

/// One rank's board: in the call, or past it.
fn member(rank: u32, code: CallCode, site: &str, row: &[u64], is_past: bool) -> Member {
    let call = (!is_past).then(|| InFlight {
        seq: CALL.seq,
        call: code,
        site: site.to_owned(),
        row: row.to_vec(),
        wait: Some(Wait::default()),
        ..InFlight::default()
    });
    let past = is_past.then(|| CallRecord {
        key: CALL.key,
        seq: CALL.seq,
        call: code,
        site: site.to_owned(),
        ..CallRecord::default()
    });
    Member {
        report: Some(Report {
            rank,
            groups: vec![GroupState {
                key: CALL.key,
                name: "tp".to_owned(),
                members: vec![0, 1, 2, 3],
                size: 4,
                call,
                ..GroupState::default()
            }],
            calls: past.into_iter().collect(),
            ..Report::default()
        }),
        ..Member::default()
    }
}

fn scene(members: Vec<Member>) -> Scene {
    Scene { members }
}

#[test]
fn all_ranks_of_both_sides_are_named_those_that_are_through_too() {
    let sum = code(Collective::AllReduce, DType::F32, 7);
    let odd = code(Collective::AllReduce, DType::I32, 7);
    let members = vec![
        member(0, sum, "a.rs:7", &[], false),
        member(1, sum, "a.rs:9", &[], true),
        member(2, odd, "a.rs:8", &[], false),
        member(3, sum, "a.rs:7", &[], false),
    ];
    let scene = scene(members);
    let found = compare(&scene, CALL).unwrap();
    assert_eq!(found.blamed, [2]);
    assert_eq!(
        found.place,
        "dtype differs: ranks 0,1,3 have all_reduce(f32[7], sum) at a.rs:7 and a.rs:9, rank 2 has \
         all_reduce(i32[7], sum) at a.rs:8"
    );
    assert_eq!(find(&scene).unwrap().1, CALL);
    assert!(!is_incomplete(&scene, CALL));
    assert!(hint(&scene, CALL, &[2]).unwrap().contains("a.rs:8"));
}

#[test]
fn more_may_be_known_where_a_member_that_runs_has_not_come() {
    let sum = code(Collective::AllReduce, DType::F32, 7);
    let incomplete = |silent_ms, process: Option<Sight>, stopped_ms| {
        let mut members: Vec<Member> = (0..3)
            .map(|rank| member(rank, sum, "a.rs:7", &[], false))
            .collect();
        members.push(Member {
            silent_ms,
            process,
            stopped_ms,
            ..Member::default()
        });
        is_incomplete(&scene(members), CALL)
    };
    let seen = || Some(Sight::Seen(ProcessFacts::default()));
    assert!(incomplete(0, None, None));
    assert!(incomplete(900, seen(), None), "it is starved");
    assert!(!incomplete(900, seen(), Some(400)), "it is stopped");
    let hidden = Sight::Hidden("elsewhere".to_owned());
    assert!(!incomplete(900, Some(hidden), None));
}

#[test]
fn equal_calls_and_counts_that_may_vary_are_no_mismatch() {
    let made = |count| code(Collective::AllGatherV, DType::F32, count);
    let members = vec![
        member(0, made(7), "a", &[7, 8], false),
        member(1, made(8), "b", &[7, 8], false),
    ];
    let mut scene = scene(members);
    assert!(compare(&scene, CALL).is_none());
    assert!(find(&scene).is_none());
    let row = [7, 9];
    scene.members[1] = member(1, made(8), "b", &row, false);
    let found = compare(&scene, CALL).unwrap();
    assert!(
        found.place.contains("counts [7, 8]") && found.place.contains("counts [7, 9]"),
        "{}",
        found.place
    );
    assert!(compare(&self::scene(Vec::new()), CALL).is_none());
}

#[test]
fn splits_blame_who_disagrees_with_most() {
    let all = code(Collective::AllToAllV, DType::F32, 0);
    let good: Vec<u64> = vec![4; 8];
    let mut bad = good.clone();
    bad[0] = 2;
    bad[1] = 6;
    let row = |rank: u32| if rank == 2 { bad.clone() } else { good.clone() };
    let members = (0..4)
        .map(|rank| member(rank, all, "a", &row(rank), false))
        .collect();
    let found = compare(&scene(members), CALL).unwrap();
    assert_eq!(found.blamed, [2]);
    assert!(
        found.place.contains("rank 2 has 2 elements for rank 0"),
        "{}",
        found.place
    );
    // A receiver that expects too much of two others is to blame, though they send.
    let mut greedy = good.clone();
    greedy[4] = 9;
    greedy[5] = 9;
    let rows = [good.clone(), good.clone(), good.clone(), greedy];
    assert_eq!(fault_of(4, |member| &rows[member]).unwrap().odd, 3);
    assert_eq!(fault_of(4, |_| &good), None);
}

#[test]
fn the_first_field_that_differs_is_named() {
    let word = |collective: Collective, dtype: DType, op: ReduceOp, root: u64| {
        collective as u64 | (dtype as u64) << 8 | (op as u64) << 16 | root << 32
    };
    let call = |word, count| CallCode { word, count };
    let usual = call(word(Collective::Reduce, DType::F32, ReduceOp::Sum, 1), 7);
    for (odd, field) in [
        (
            word(Collective::AllReduce, DType::I32, ReduceOp::Max, 2),
            Field::Collective,
        ),
        (
            word(Collective::Reduce, DType::I32, ReduceOp::Max, 2),
            Field::Dtype,
        ),
        (
            word(Collective::Reduce, DType::F32, ReduceOp::Max, 2),
            Field::Op,
        ),
        (
            word(Collective::Reduce, DType::F32, ReduceOp::Sum, 2),
            Field::Root,
        ),
        (usual.word, Field::Count),
    ] {
        let odd = call(odd, 8);
        let members = [usual, odd, usual]
            .into_iter()
            .zip(0..)
            .map(|(code, rank)| member(rank, code, "a.rs:7", &[], false));
        let found = compare(&scene(members.collect()), CALL).unwrap();
        assert_eq!(found.blamed, [1]);
        let ErrorKind::Mismatch { field: named, .. } = found.kind else {
            unreachable!("it is a mismatch");
        };
        assert_eq!(named, field);
    }
}

#[test]
fn a_call_is_stuck_only_where_every_member_has_come_and_waits_or_is_through() {
    let sum = code(Collective::AllReduce, DType::F32, 7);
    let odd = code(Collective::AllReduce, DType::I32, 7);
    let all = |stands: bool| {
        let mut members: Vec<Member> = (0..4)
            .map(|rank| {
                member(
                    rank,
                    if rank == 2 { odd } else { sum },
                    "a.rs:7",
                    &[],
                    false,
                )
            })
            .collect();
        if !stands {
            let group = &mut members[2].report.as_mut().unwrap().groups[0];
            group.call.as_mut().unwrap().wait = None;
        }
        members
    };
    assert!(find(&scene(all(true))).is_some());
    // It works on the call: it may go on, and say itself what it sees.
    assert!(find(&scene(all(false))).is_none());
    let mut missing = all(true);
    missing[3].report = None;
    assert!(find(&scene(missing)).is_none());
}

#[test]
fn the_first_call_that_differs_is_found_from_a_later_one() {
    let sum = code(Collective::AllReduce, DType::F32, 7);
    let odd = code(Collective::AllReduce, DType::I32, 7);
    let members = vec![
        member(0, sum, "a.rs:7", &[], true),
        member(1, odd, "a.rs:8", &[], true),
        member(2, sum, "a.rs:7", &[], true),
    ];
    let scene = scene(members);
    let later = CallId { seq: 4, ..CALL };
    let (call, found) = earliest(&scene, later, 3, &|_| false).unwrap();
    assert_eq!((call, found.blamed), (CALL, vec![1]));
    assert!(earliest(&scene, later, 2, &|_| false).is_none());
}

#[test]
fn where_as_many_are_known_of_both_sides_and_not_all_ranks_are_both_are_named() {
    let [sum, odd] = [DType::F32, DType::I32].map(|dtype| code(Collective::AllReduce, dtype, 7));
    let silent = || Member::default();
    let mut members = vec![
        member(0, sum, "a.rs:7", &[], false),
        silent(),
        member(2, odd, "a.rs:8", &[], false),
        silent(),
    ];
    let found = compare(&scene(members.clone()), CALL).unwrap();
    assert_eq!(found.blamed, [0, 2]);
    // One more decides, though not all are known.
    members[1] = member(1, sum, "a.rs:7", &[], true);
    let found = compare(&scene(members), CALL).unwrap();
    assert_eq!(found.blamed, [2]);
}

#[test]
fn of_two_ranks_that_met_the_odd_one_is_the_one_whose_call_nobody_else_made() {
    let sum = code(Collective::AllReduce, DType::F32, 7);
    let mut members = vec![
        member(0, sum, "a.rs:7", &[], false),
        Member::default(),
        member(2, sum, "a.rs:7", &[], true),
    ];
    let odd = |members: &[Member]| odd_of(&scene(members.to_vec()), CALL, [0, 1]);
    assert_eq!(odd(&members), Some(1));
    members[2] = Member::default();
    // The other one's word stands against its own.
    assert_eq!(odd(&members), None);
}

#[test]
fn the_other_members_tell_who_is_odd_where_a_message_of_a_collective_was_never_received() {
    let sum = code(Collective::AllReduce, DType::F32, 7);
    let verdict = |others: &[u32]| {
        let members = (0..4).map(|rank| match rank {
            0 => member(0, sum, "a.rs:7", &[], true),
            rank if others.contains(&rank) => member(rank, sum, "a.rs:7", &[], true),
            _ => Member::default(),
        });
        let kind = ErrorKind::Mismatch {
            field: Field::Sequence,
            rank: Rank(0),
            mine: "sent rank 1 a message of call 3".to_owned(),
            peer: Rank(1),
            theirs: "ended the group after call 2".to_owned(),
        };
        let failed = crate::watch::failure::Failed {
            rank: 1,
            call: CallId { seq: 4, ..CALL },
            kind,
            usable: false,
            culprit: Some(Rank(1)),
            looks: 0,
            since_ms: 0,
        };
        crate::watch::failure::verdict(&scene(members.collect()), &failed, &|_| false)
    };
    let (alone, with_others) = (verdict(&[]), verdict(&[2, 3]));
    assert_eq!(alone.blamed, [0, 1]);
    assert_eq!(with_others.blamed, [1]);
    assert!(with_others.who.contains("rank 1") && !with_others.who.contains("rank 0"));
}
