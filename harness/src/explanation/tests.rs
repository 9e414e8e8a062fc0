//! Hangs that are made up: what their pages show.

use muster_comm::error::verdict::Verdict;
use muster_comm::types::Collective;
use muster_comm::watch::dump;
use muster_comm::watch::report::{
    CallCode, CallOutcome, CallRecord, GroupState, InFlight, Report, Wait,
};

use super::*;

/// A call that a rank waits in: group, members, number, whom it waits for.
type Waiting<'a> = (&'a str, &'a [u32], u64, &'a [u32]);

fn group(name: &str, members: &[u32], entered: u64) -> GroupState {
    GroupState {
        key: name.bytes().map(u64::from).sum(),
        name: name.to_owned(),
        members: members.to_vec(),
        size: u32::try_from(members.len()).expect("few"),
        entered,
        thread: 1,
        ..GroupState::default()
    }
}

fn code(collective: Collective) -> CallCode {
    CallCode {
        word: collective as u64,
        count: 8,
    }
}

fn record(
    group: &GroupState,
    seq: u64,
    collective: Collective,
    outcome: CallOutcome,
) -> CallRecord {
    CallRecord {
        id: seq,
        key: group.key,
        group: group.name.clone(),
        seq,
        call: code(collective),
        site: format!("train.py:{}", 10 + collective as u32),
        thread: 1,
        outcome,
        ..CallRecord::default()
    }
}

/// A rank that has made calls on its groups, and waits in one of them where `waits` says so.
fn rank(
    rank: u32,
    world: u32,
    waits: Option<Waiting<'_>>,
    others: &[(&str, &[u32], u64)],
) -> Report {
    let mut report = Report {
        rank,
        world_size: world,
        pid: 100 + rank,
        ..Report::default()
    };
    for (name, members, entered) in others {
        let group = group(name, members, *entered);
        let ended = (1..=*entered)
            .map(|seq| record(&group, seq, Collective::AllReduce, CallOutcome::Completed));
        report.calls.extend(ended);
        report.groups.push(group);
    }
    if let Some((name, members, seq, missing)) = waits {
        let mut group = group(name, members, seq);
        let ended =
            (1..seq).map(|seq| record(&group, seq, Collective::AllReduce, CallOutcome::Completed));
        report.calls.extend(ended);
        report.calls.push(record(
            &group,
            seq,
            Collective::AllReduce,
            CallOutcome::Open,
        ));
        group.call = Some(InFlight {
            seq,
            call: code(Collective::AllReduce),
            site: "train.py:12".to_owned(),
            age_ms: 9_000,
            wait: Some(Wait {
                missing: missing.to_vec(),
                checks: 9,
                age_ms: 9_000,
                ..Wait::default()
            }),
            ..InFlight::default()
        });
        report.groups.push(group);
    }
    report
}

fn explained(reports: Vec<Report>) -> (Option<Verdict>, String) {
    let verdict = dump::explain(&reports);
    let explanation = Explanation::new(verdict.clone(), reports);
    (verdict, crate::report::html::page(&explanation))
}

#[test]
fn of_hundreds_of_ranks_those_that_do_the_same_are_one_box_and_one_row() {
    let all: Vec<u32> = (0..256).collect();
    let of = |number: u32| match number {
        7 => rank(7, 256, None, &[("world", &all, 2)]),
        other => rank(other, 256, Some(("world", &all, 3, &[7])), &[]),
    };
    let reports: Vec<Report> = all.iter().map(|number| of(*number)).collect();
    let nodes = graph::nodes(&reports, &[]);
    assert_eq!(nodes.len(), 2, "{nodes:?}");
    assert_eq!((nodes[0].ranks.len(), &nodes[1].ranks[..]), (255, &[7][..]));
    let key = reports[0].groups[0].key;
    let calls = calls::Group::of(key, &reports).expect("calls");
    assert_eq!((calls.rows.len(), calls.differs_at), (2, Some(3)));
    let (verdict, page) = explained(reports);
    assert_eq!(verdict.expect("a verdict").blamed, [7]);
    assert!(
        page.contains("ranks 0-6, 8-255 (255)"),
        "the box of those that wait"
    );
    assert!(page.contains("ranks differ from call 3 on"));
    assert!(page.len() < 60_000, "{} bytes", page.len());
}

#[test]
fn a_circle_over_three_groups_is_drawn_as_one() {
    let reports = vec![
        rank(0, 3, Some(("ab", &[0, 1], 1, &[1])), &[]),
        rank(1, 3, Some(("bc", &[1, 2], 1, &[2])), &[]),
        rank(2, 3, Some(("ca", &[0, 2], 1, &[0])), &[]),
    ];
    let nodes = graph::nodes(&reports, &[]);
    let arrows = graph::arrows(&nodes);
    assert_eq!(arrows, [(0, 1), (1, 2), (2, 0)]);
    assert_eq!(graph::rows(3, &arrows), [0, 1, 2]);
    let (_, page) = explained(reports);
    assert_eq!(page.matches("marker-end").count(), 3);
    // The one that skips a box goes around it.
    assert_eq!(page.matches("C4.0 ").count(), 1, "{page}");
}

#[test]
fn rows_of_boxes_go_from_those_that_wait_for_nobody_down() {
    // 3 waits for 2, which waits for 0 and for a circle of 1 and 4.
    let arrows = [(3, 2), (2, 0), (2, 1), (1, 4), (4, 1)];
    assert_eq!(graph::rows(5, &arrows), [0, 3, 1, 2, 4]);
}

#[test]
fn who_is_to_blame_shares_no_box_with_others_that_do_the_same() {
    let all = [0, 1, 2];
    let of = |number: u32| {
        rank(
            number,
            3,
            Some(("world", &all, 3, &[(number + 1) % 3])),
            &[],
        )
    };
    let mut reports: Vec<Report> = (0..3).map(of).collect();
    // Ranks 1 and 2 do the same, as after a broken link.
    let missing = |report: &Report| {
        report.groups[0]
            .call
            .as_ref()
            .and_then(|call| call.wait.clone())
    };
    let of_rank_2 = missing(&reports[2]);
    if let Some(call) = &mut reports[1].groups[0].call {
        call.wait = of_rank_2;
    }
    assert_eq!(graph::nodes(&reports, &[]).len(), 2);
    let ranks =
        |nodes: Vec<graph::Node>| nodes.into_iter().map(|node| node.ranks).collect::<Vec<_>>();
    assert_eq!(ranks(graph::nodes(&reports, &[2])), [[0], [1], [2]]);
}

#[test]
fn the_first_number_with_different_calls_is_marked() {
    let mut odd = rank(1, 2, None, &[("tp", &[0, 1], 4)]);
    odd.calls[2].call = code(Collective::Broadcast);
    let reports = vec![rank(0, 2, None, &[("tp", &[0, 1], 4)]), odd];
    let calls = calls::Group::of(reports[0].groups[0].key, &reports).expect("calls");
    assert_eq!(calls.differs_at, Some(3));
    let (verdict, page) = explained(reports);
    assert!(verdict.is_none(), "nobody waits: {verdict:?}");
    assert!(page.contains("nobody waits, as far as 2 dumps tell"));
    assert!(page.contains("first difference"));
}

#[test]
fn a_rank_without_a_dump_stands_in_the_drawing_as_such() {
    let reports = vec![rank(0, 2, Some(("tp", &[0, 1], 5, &[1])), &[])];
    let nodes = graph::nodes(&reports, &[]);
    assert_eq!(nodes[1].lines, ["no dump of it"]);
    // A rank that was dumped twice counts by its last dump.
    let mut later = rank(0, 2, None, &[("tp", &[0, 1], 5)]);
    later.wall_ms = 5;
    let both = Explanation::new(None, [reports, vec![later]].concat());
    assert_eq!((both.ranks.len(), both.waiting()), (1, 0));
}

#[test]
fn variables_of_who_is_to_blame_are_shown_with_what_others_have() {
    let all = [0, 1, 2];
    let variables = |rank: u32| {
        let interface = if rank == 2 { "lo" } else { "eth0" };
        let mut all = vec![
            ("HCCL_SOCKET_IFNAME", interface.to_owned()),
            ("RANK", rank.to_string()),
        ];
        // Most have this one, and it differs among them no more than a number of their own.
        if rank != 2 {
            all.push(("HCCL_EXEC_TIMEOUT", "1800".to_owned()));
        }
        let named = |(name, value): (&str, String)| (name.to_owned(), value);
        all.into_iter().map(named).collect()
    };
    let of = |number: u32| Report {
        environment: variables(number),
        ..match number {
            2 => rank(2, 3, None, &[("world", &all, 2)]),
            other => rank(other, 3, Some(("world", &all, 3, &[2])), &[]),
        }
    };
    let (verdict, page) = explained((0..3).map(of).collect());
    assert_eq!(verdict.expect("a verdict").blamed, [2]);
    let (_, table) = page.split_once("Environment of rank 2").expect("a table");
    let cells = |row: &[&str]| row.join("</code></td><td><code>");
    for row in [["lo", "eth0"], ["not set", "1800"]] {
        assert!(table.contains(&cells(&row)), "{row:?} in {table}");
    }
    assert!(
        table.contains("<code>RANK</code></th><td><code>2</code></td><td></td>"),
        "{table}"
    );
    assert!(!page.contains("Environment of rank 0"));
}

#[test]
fn a_rank_that_is_still_in_an_earlier_call_does_not_differ() {
    let of = |number: u32, seq| rank(number, 2, Some(("tp", &[0, 1], seq, &[1 - number])), &[]);
    let reports = vec![of(0, 3), of(1, 4)];
    let calls = calls::Group::of(reports[0].groups[0].key, &reports).expect("calls");
    assert_eq!((calls.rows.len(), calls.differs_at), (2, None));
    let (_, page) = explained(reports);
    assert!(page.contains("not there yet") && !page.contains("not seen"));
}
