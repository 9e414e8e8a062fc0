//! What the judge says of ranks that fail in every way.

use super::super::Member;
use super::super::Scene;
use super::stall_report::difference;
use super::*;
use crate::error::Field;
use crate::error::verdict::CallId;
use crate::types::{Collective, DType, ReduceOp};

const MEMBERS: [Rank; 3] = [Rank(4), Rank(6), Rank(9)];

fn ask(collective: Collective, count: u64) -> Ask {
    Ask {
        collective,
        dtype: Some(DType::F32),
        count,
        op: None,
        root: None,
    }
}

fn deed(seq: u64, ask: Ask, stage: Stage) -> Deed {
    Deed {
        seq,
        ask,
        site: "train.rs:8".to_owned(),
        age_ms: 5000,
        stage,
    }
}

fn words(made: u64, deeds: Vec<Deed>) -> Words {
    Words {
        wall_ms: 43_384_512,
        made,
        deeds,
        ..Words::default()
    }
}

/// A member in its 17th call, after a completed one.
fn waits(collective: Collective, count: u64) -> Words {
    let done = Stage::Completed { after_ms: 2 };
    words(
        17,
        vec![
            deed(16, ask(Collective::AllReduce, 1), done),
            deed(17, ask(collective, count), Stage::Enqueued),
        ],
    )
}

fn fault(code: i32, detail: &str) -> ErrorKind {
    ErrorKind::Vendor {
        call: "aclrtSynchronizeStreamWithTimeout".to_owned(),
        code,
        name: vendor::name_of(code).to_owned(),
        detail: detail.to_owned(),
    }
}

fn complains(mut words: Words, code: i32, age_ms: u64) -> Words {
    words.fault = Some((fault(code, "(EI0002): waited"), age_ms));
    words
}

fn judge(said: &[Option<Words>]) -> Verdict {
    let member = |rank: u32| Member {
        host: "n1".to_owned(),
        pid: 4700 + rank,
        ..Member::default()
    };
    let verdict = Case {
        scene: &Scene {
            members: (0..10).map(member).collect(),
        },
        group: "tp-0",
        on_device: "tp-0 on npu",
        key: 7,
        members: &MEMBERS,
        said,
    }
    .judge();
    // Every verdict has a line that can be read back, and ends calls on the device only.
    let read = Verdict::parse(&verdict.line(), 43_400_000).expect("a line");
    assert_eq!(read.blamed, verdict.blamed, "{verdict}");
    assert_eq!(verdict.about.map(|call| call.key), Some(7));
    assert_eq!(verdict.ends, Vec::from_iter(verdict.about));
    verdict
}

fn stalled(said: &[Option<Words>]) -> (Vec<u32>, String) {
    let verdict = judge(said);
    let ErrorKind::DeviceStalled { blamed, what } = verdict.kind else {
        panic!("{verdict:?}")
    };
    let blamed: Vec<u32> = blamed.into_iter().map(|rank| rank.0).collect();
    assert_eq!(
        (verdict.class, &verdict.blamed),
        (Class::NotJoined, &blamed)
    );
    (blamed, what)
}

#[test]
fn who_did_not_enqueue_is_named_with_its_last_act() {
    let gather = || Some(waits(Collective::AllGather, 1000));
    let done = Stage::Completed { after_ms: 1000 };
    let late = words(16, vec![deed(16, ask(Collective::AllReduce, 1), done)]);
    let (blamed, what) = stalled(&[gather(), Some(late), gather()]);
    assert_eq!(blamed, [6]);
    assert_eq!(
        what,
        "rank 6 never enqueued all_gather #17 (f32[1000]) on group \"tp-0\"; its last act was \
         all_reduce #16 (f32[1]), completed 4.0 s ago; ranks 4, 9 waited for it"
    );
}

#[test]
fn different_calls_of_one_number_are_a_mismatch_that_names_both_sides() {
    let said = [
        Some(waits(Collective::AllGather, 1000)),
        Some(waits(Collective::AllGather, 1000)),
        Some(waits(Collective::AllReduce, 1000)),
    ];
    let verdict = judge(&said);
    let ErrorKind::Mismatch {
        field,
        rank,
        mine,
        peer,
        theirs,
    } = verdict.kind
    else {
        panic!("{verdict:?}")
    };
    assert_eq!((verdict.class, verdict.blamed), (Class::Mismatch, vec![9]));
    assert_eq!((field, rank, peer), (Field::Collective, Rank(4), Rank(9)));
    assert_eq!(mine, "all_gather (f32[1000])");
    assert_eq!(theirs, "all_reduce (f32[1000])");
}

#[test]
fn counts_types_reductions_and_roots_are_compared_where_they_must_agree() {
    let mut sum = ask(Collective::Reduce, 5);
    (sum.op, sum.root) = (Some(ReduceOp::Sum), Some(0));
    let mut max = sum;
    max.op = Some(ReduceOp::Max);
    assert_eq!(difference(&sum, &max).map(|found| found.0), Some(Field::Op));
    let mut other = sum;
    other.root = Some(1);
    assert_eq!(
        difference(&sum, &other).map(|found| found.0),
        Some(Field::Root)
    );
    let mut longer = sum;
    longer.count = 6;
    assert_eq!(
        difference(&sum, &longer).map(|found| found.0),
        Some(Field::Count)
    );
    let mut typed = sum;
    typed.dtype = Some(DType::I8);
    assert_eq!(
        difference(&sum, &typed).map(|found| found.0),
        Some(Field::Dtype)
    );
    let uneven = |count| ask(Collective::AllToAllV, count);
    assert_eq!(difference(&uneven(3), &uneven(4)), None);
}

#[test]
fn the_device_that_neither_completes_nor_complains_is_the_cause() {
    let said = [
        Some(complains(waits(Collective::AllGather, 10), 507_048, 900)),
        Some(waits(Collective::AllGather, 10)),
        Some(complains(waits(Collective::AllGather, 10), 107_020, 800)),
    ];
    let (blamed, what) = stalled(&said);
    assert_eq!(blamed, [6]);
    assert_eq!(
        what,
        "the device of rank 6 never completed all_gather #17 (f32[10]) on group \"tp-0\", \
         enqueued 5.0 s ago, and reports no error, while ranks 4, 9 report 507048 \
         (ACL_ERROR_RT_FFTS_PLUS_TIMEOUT, EI0002)"
    );
}

#[test]
fn a_device_that_lags_behind_completed_peers_is_the_cause_without_any_complaint() {
    let done = Stage::Completed { after_ms: 3 };
    let through = words(17, vec![deed(17, ask(Collective::Broadcast, 10), done)]);
    let said = [
        Some(through.clone()),
        Some(through),
        Some(waits(Collective::Broadcast, 10)),
    ];
    assert_eq!(stalled(&said).0, [9]);
}

#[test]
fn where_all_wait_alike_nobody_is_blamed() {
    let all = || Some(waits(Collective::AllReduce, 10));
    let (blamed, what) = stalled(&[all(), all(), all()]);
    assert_eq!(blamed, [0_u32; 0]);
    assert!(
        what.contains("no device completed it, and none reports an error"),
        "{what}"
    );
    let timed = || Some(complains(waits(Collective::AllReduce, 10), 507_048, 1));
    let (blamed, what) = stalled(&[timed(), timed(), timed()]);
    assert_eq!(blamed, [0_u32; 0]);
    assert!(
        what.contains("every device that waits reports a timeout"),
        "{what}"
    );
}

#[test]
fn who_says_nothing_is_blamed_before_devices_that_wait() {
    let said = [
        Some(complains(waits(Collective::AllGather, 10), 507_048, 900)),
        None,
        Some(waits(Collective::AllGather, 10)),
    ];
    let (blamed, what) = stalled(&said);
    assert_eq!(blamed, [6]);
    assert!(
        what.starts_with("rank 6 of group \"tp-0\" does not answer"),
        "{what}"
    );
}

#[test]
fn a_broken_device_outranks_timeouts_and_the_gravest_and_earliest_counts() {
    let link = |age_ms| {
        let mut words = waits(Collective::AllGather, 10);
        words.fault = Some((fault(507_056, ""), age_ms));
        Some(words)
    };
    let timed = Some(complains(waits(Collective::AllGather, 10), 507_048, 9000));
    let verdict = judge(&[timed, link(100), link(300)]);
    assert_eq!((verdict.class, verdict.blamed), (Class::Link, vec![9]));
    let ErrorKind::PeerAborted { origin, cause, .. } = verdict.kind else {
        panic!("{:?}", verdict.kind)
    };
    assert_eq!((origin, *cause), (Rank(9), fault(507_056, "")));
    let mut lost = waits(Collective::AllGather, 10);
    lost.fault = Some((fault(507_010, ""), 1));
    let verdict = judge(&[link(500), link(400), Some(lost)]);
    assert_eq!(
        (verdict.class, verdict.blamed),
        (Class::Resource, vec![9]),
        "a lost device outranks a link"
    );
}

#[test]
fn what_the_vendor_noticed_is_told_with_both_sides_where_they_are_known() {
    let noticed = |collective| {
        let mut words = waits(collective, 10);
        words.fault = Some((fault(4, "(EI0005): op differs"), 1));
        Some(words)
    };
    let said = [
        noticed(Collective::AllGather),
        Some(waits(Collective::AllReduce, 10)),
        Some(waits(Collective::AllGather, 10)),
    ];
    assert!(matches!(judge(&said).kind, ErrorKind::Mismatch { .. }));
    let alike = [
        noticed(Collective::AllToAllV),
        Some(waits(Collective::AllToAllV, 11)),
        Some(waits(Collective::AllToAllV, 12)),
    ];
    let verdict = judge(&alike);
    // Who noticed it is not to blame for it.
    assert_eq!(
        (verdict.class, verdict.blamed),
        (Class::Mismatch, Vec::new())
    );
    assert!(verdict.place.contains("EI0005"), "{}", verdict.place);
    assert_eq!(verdict.who, "no rank in particular");
}

#[test]
fn a_message_without_its_other_side_blames_the_peer() {
    let mut sender = words(3, vec![deed(3, ask(Collective::Send, 4), Stage::Enqueued)]);
    sender.sent.insert(2, 1);
    let idle = words(3, Vec::new());
    let (blamed, what) = stalled(&[Some(sender.clone()), Some(idle.clone()), Some(idle.clone())]);
    assert_eq!(blamed, [9]);
    assert!(
        what.contains("never enqueued the receive that fits send"),
        "{what}"
    );
    let mut there = idle.clone();
    there.received.insert(0, 1);
    let (blamed, what) = stalled(&[Some(sender), Some(idle), Some(there)]);
    assert_eq!(blamed, [4]);
    assert!(
        what.contains("the device of rank 4 never completed send"),
        "{what}"
    );
}

#[test]
fn of_ranks_that_made_other_calls_the_fewer_are_blamed_whoever_comes_first() {
    let said = [
        Some(waits(Collective::AllReduce, 10)),
        Some(waits(Collective::AllGather, 10)),
        Some(waits(Collective::AllGather, 10)),
    ];
    assert_eq!(judge(&said).blamed, [4]);
}

#[test]
fn the_line_has_host_process_call_and_time_from_the_testimonies() {
    let gather = || Some(waits(Collective::AllGather, 1000));
    let done = Stage::Completed { after_ms: 1000 };
    let late = words(16, vec![deed(16, ask(Collective::AllReduce, 1), done)]);
    let verdict = judge(&[gather(), Some(late), gather()]);
    assert_eq!(
        verdict.line(),
        "VERDICT NOT_JOINED who=rank 6 (n1, pid 4706) what=all_gather #17 on tp-0 on npu f32[1000] \
         where=rank 6 never enqueued all_gather #17 (f32[1000]) on group \"tp-0\"; its last act was \
         all_reduce #16 (f32[1]), completed 4.0 s ago; ranks 4, 9 waited for it \
         since=12:02:59.512Z (+5.0 s) confidence=certain evidence=3 of 3 ranks told what they gave \
         their devices and what became of it; rank 6 made all_reduce #16 (f32[1]) at train.rs:8 \
         others=2 waiting: ranks 4,9 in all_gather #17 on tp-0 on npu next=see what the named ranks \
         are doing, then the health of their devices (npu-smi info)"
    );
    assert_eq!(verdict.about, Some(CallId { key: 7, seq: 17 }));
}
