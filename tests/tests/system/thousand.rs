//! Large worlds on one host: they come up, meet, take little memory, and name the one that differs.

use muster_tests::{Ended, Leftovers, binary, start};

const FAULTY: &str = env!("CARGO_BIN_EXE_faulty");

/// Runs a program on so many ranks. A busy machine with two processors may need a while for a thousand processes.
fn run(ranks: &str, mode: &str) -> Ended {
    let args = ["run", "-n", ranks, "--", FAULTY, mode];
    start(binary(), &args, &[("MUSTER_DEADLINE_S", "100")]).wait()
}

// `.ci/run` runs this program with 1,024 ranks, alone: they leave no processor to other tests. It checks its own memory.
#[test]
fn more_processes_than_look_at_each_other_meet_and_take_little_memory() {
    let before = Leftovers::now();
    run("96", "many").expect_code(0);
    before.assert_nothing_new();
}

#[test]
fn in_a_large_world_the_rank_that_makes_another_call_is_named() {
    let before = Leftovers::now();
    let ended = run("96", "manyodd");
    ended.expect_code(30);
    let verdicts = ended
        .stderr
        .lines()
        .filter(|line| line.contains("VERDICT MISMATCH"));
    let verdicts: Vec<&str> = verdicts.collect();
    assert!(!verdicts.is_empty(), "{}", ended.stderr);
    for verdict in verdicts {
        assert!(verdict.contains("who=rank 95 "), "{verdict}");
    }
    before.assert_nothing_new();
}
