//! A run that passes, and runs that differ from it in one thing.

use super::same::{FIELDS, incomplete};
use super::*;

const LINE: &str = "VERDICT PEER_DEAD who=rank 2 (h, pid 1; world) what=all_reduce #4 on world \
                    where=was killed since=01:35:15.942Z (+0.000 s) confidence=certain \
                    evidence=its process ended others=1 waiting next=look";

fn expect() -> Expect {
    Expect {
        outcome: Outcome::Verdict {
            class: Exit::PeerDead,
            blamed: Blamed::Exactly(vec![2]),
        },
        exit: Some(Exit::PeerDead),
        bound: Duration::from_millis(250),
        survivors: vec![0, 1],
        words: vec!["killed".to_owned()],
        usable: false,
        shared: true,
        turned_away: Vec::new(),
    }
}

fn told(rank: u32, at_ms: u64, what: What) -> Told {
    Told {
        rank,
        pid: 1,
        at_ns: at_ms * 1_000_000,
        what,
    }
}

fn failed(class: &str, blamed: Vec<u32>, line: &str) -> What {
    What::Failed(Box::new(Failed {
        error: "rank 2 was killed".to_owned(),
        is_usable: false,
        verdict: Some(Said {
            class: class.to_owned(),
            blamed,
            line: line.to_owned(),
        }),
    }))
}

fn seen() -> Seen {
    let said = || failed("PEER_DEAD", vec![2], LINE);
    let line = || LINE.to_owned();
    Seen {
        told: vec![told(0, 1010, said()), told(1, 1020, said())],
        verdicts: vec![(Some(0), line()), (Some(1), line()), (None, line())],
        has_launcher: true,
        ends: vec![End {
            rank: None,
            how: Some((Ended::Exited(20), 2_000_000_000)),
        }],
        injected_ns: Some(1_000_000_000),
        world_size: 3,
        ..Seen::default()
    }
}

/// The assertions that do not hold.
fn broken(expect: &Expect, seen: &Seen) -> Vec<String> {
    let graded = grade(expect, seen);
    assert_eq!(graded.assertions.len(), 5);
    let broken: Vec<String> = graded
        .assertions
        .iter()
        .filter(|assertion| !assertion.holds)
        .map(|assertion| assertion.name.to_string())
        .collect();
    assert_eq!(broken.is_empty(), graded.reasons.is_empty());
    broken
}

#[test]
fn a_run_as_it_should_be_passes_and_its_time_is_that_of_the_last_survivor() {
    let graded = grade(&expect(), &seen());
    assert_eq!(graded.reasons, [""; 0]);
    assert_eq!(graded.detected, Some(Duration::from_millis(20)));
    assert!(graded.survivors_returned);
}

#[test]
fn each_assertion_can_fail_alone() {
    let mut late = seen();
    late.told[1].at_ns = 1_300_000_000;
    assert_eq!(broken(&expect(), &late), ["in time"]);

    let mut other = seen();
    other.told[1].what = failed("PEER_DEAD", vec![1, 2], LINE);
    assert_eq!(broken(&expect(), &other), ["culprits"]);

    let mut class = seen();
    class.told[1].what = failed("LINK", vec![2], LINE);
    assert_eq!(broken(&expect(), &class), ["detected"]);

    let mut left = seen();
    left.leaks.push("process 7 (muster)".to_owned());
    assert_eq!(broken(&expect(), &left), ["clean"]);

    let mut code = seen();
    code.ends[0].how = Some((Ended::Exited(0), 1));
    assert_eq!(broken(&expect(), &code), ["clean"]);

    let mut descriptors = seen();
    descriptors.told.push(told(
        0,
        1030,
        What::Closed {
            descriptors_before: 5,
            descriptors_after: 6,
        },
    ));
    assert_eq!(broken(&expect(), &descriptors), ["clean"]);
}

#[test]
fn the_line_must_be_whole_and_the_same_everywhere() {
    for silent in 0..3 {
        let mut seen = seen();
        seen.verdicts.remove(silent);
        assert_eq!(broken(&expect(), &seen), ["same"]);
    }
    let mut twice = seen();
    twice.verdicts.push((Some(0), LINE.to_owned()));
    assert_eq!(broken(&expect(), &twice), ["same"]);
    let mut other = seen();
    other.verdicts[2].1 = LINE.replace("pid 1", "pid 9");
    assert_eq!(broken(&expect(), &other), ["same"]);
    for field in FIELDS {
        assert_eq!(incomplete(&LINE.replace(field, " x=")).len(), 1, "{field}");
    }
    let hollow = LINE.replace("others=1 waiting", "others=");
    assert_eq!(incomplete(&hollow), ["the line says nothing in others="]);
}

#[test]
fn a_survivor_that_does_not_return_is_not_overlooked() {
    let mut silent = seen();
    silent.told.remove(1);
    assert!(broken(&expect(), &silent).contains(&"detected".to_owned()));
    assert!(!grade(&expect(), &silent).survivors_returned);
}

#[test]
fn in_a_control_any_verdict_and_any_wrong_result_is_a_failure() {
    let expect = Expect {
        outcome: Outcome::Well,
        exit: Some(Exit::Ok),
        words: Vec::new(),
        ..expect()
    };
    let well = Seen {
        told: vec![told(0, 1, What::Done), told(1, 1, What::Done)],
        verdicts: Vec::new(),
        ends: vec![End {
            rank: None,
            how: Some((Ended::Exited(0), 1)),
        }],
        ..seen()
    };
    assert_eq!(broken(&expect, &well), [""; 0]);
    let mut alarm = well.clone();
    alarm.verdicts.push((None, LINE.to_owned()));
    assert_eq!(broken(&expect, &alarm), ["detected"]);
    let mut wrong = well.clone();
    let call = "all_reduce".to_owned();
    wrong.told.push(told(0, 1, What::Wrong { call }));
    assert_eq!(broken(&expect, &wrong), ["detected"]);
    let mut missing = well;
    missing.told.remove(0);
    assert_eq!(broken(&expect, &missing), ["detected"]);
}
