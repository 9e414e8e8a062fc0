//! Whether the drills notice faults of our own. With no fault at work the drills must pass, with each of them a certain assertion
//! must fail. Only builds with debug assertions have the faults.
#![cfg(debug_assertions)]

use std::collections::BTreeSet;

use muster_tests::{Ended, Leftovers, binary, start};

/// A fault of ours, and what must be noticed of it.
struct Fault {
    /// What `MUSTER_SABOTAGE` calls it.
    name: &'static str,
    drill: &'static str,
    /// The assertion that must not hold in one of the drill's runs.
    breaks: &'static str,
}

const FAULTS: &[Fault] = &[
    Fault {
        name: "missing",
        drill: "never-enters",
        breaks: "culprits",
    },
    Fault {
        name: "field",
        drill: "other-dtype",
        breaks: "detected",
    },
    Fault {
        name: "chunk",
        drill: "quiet",
        breaks: "detected",
    },
    Fault {
        name: "descriptor",
        drill: "quiet",
        breaks: "clean",
    },
    Fault {
        name: "order",
        drill: "memory-order",
        breaks: "detected",
    },
];

/// Exit code of `muster drill` where a drill has failed.
const FAILED: i32 = 1;

/// Runs drills between two ranks, over shared memory and TCP.
fn drill(drills: &BTreeSet<&str>, fault: Option<&str>) -> Ended {
    let mut words = vec!["drill", "--json", "--world", "2", "--only"];
    words.extend(drills);
    let variables: Vec<(&str, &str)> = fault
        .map(|name| ("MUSTER_SABOTAGE", name))
        .into_iter()
        .collect();
    start(binary(), &words, &variables).wait()
}

/// The assertions that do not hold in some run.
fn broken(ended: &Ended) -> BTreeSet<String> {
    let document = ended.json();
    let runs = document["drills"].as_array().into_iter().flatten();
    runs.flat_map(|run| run["assertions"].as_array().into_iter().flatten())
        .filter(|assertion| assertion["holds"] == false)
        .filter_map(|assertion| assertion["name"].as_str())
        .map(str::to_owned)
        .collect()
}

#[test]
fn each_fault_of_our_own_makes_a_drill_fail() {
    let before = Leftovers::now();
    let drills = FAULTS.iter().map(|fault| fault.drill).collect();
    // They wait for deadlines most of their time, so they run side by side.
    let (sound, ended) = std::thread::scope(|scope| {
        let sound = scope.spawn(|| drill(&drills, None));
        let faulty = |fault: &'static Fault| {
            scope.spawn(|| drill(&BTreeSet::from([fault.drill]), Some(fault.name)))
        };
        let faulty: Vec<_> = FAULTS.iter().map(faulty).collect();
        let ended = faulty.into_iter().map(|one| one.join().expect("a drill"));
        let ended: Vec<Ended> = ended.collect();
        (sound.join().expect("a drill"), ended)
    });
    sound.expect_code(0);
    for (fault, ended) in FAULTS.iter().zip(&ended) {
        let broken = broken(ended);
        ended.expect_code(FAILED);
        assert!(
            broken.contains(fault.breaks),
            "{} under \"{}\" fails {broken:?}, and not \"{}\"",
            fault.drill,
            fault.name,
            fault.breaks
        );
    }
    before.assert_nothing_new();
}
