//! The control plane in virtual time: a batch of seeds, and seeds that once showed something wrong.
//!
//! `cargo run --release -p xtask -- simulate --runs N` plays more.

use std::collections::BTreeMap;

use muster_comm::config::Environment;
use muster_comm::simulate::{Fault, Summary, run};

/// Runs of the batch: some seconds.
const RUNS: u64 = 4000;

fn play(seed: u64) -> Summary {
    let outcome = run(seed, false);
    let wrong = outcome.as_ref().err().map(ToString::to_string);
    assert_eq!(
        wrong, None,
        "MUSTER_SEED={seed} begins the batch with it; \
         `cargo run -p xtask -- simulate --seed {seed}` tells it step by step"
    );
    outcome.expect("asserted above")
}

#[test]
fn every_fault_gets_its_verdict_in_time_and_nothing_else_gets_one() {
    let environment = Environment::capture();
    let given = environment.text("MUSTER_SEED").expect("text");
    let first = given.map_or(1, |seed| seed.parse().expect("MUSTER_SEED is a number"));
    let mut faults: BTreeMap<Fault, (u64, u64)> = BTreeMap::new();
    for seed in first..first + RUNS {
        let summary = play(seed);
        let (runs, verdicts) = faults.entry(summary.fault).or_default();
        *runs += 1;
        *verdicts += u64::from(summary.verdict.is_some());
    }
    // The batch is no proof unless it met what it is about.
    for (fault, (runs, verdicts)) in faults {
        assert!(runs > RUNS / 100, "{fault:?} was played {runs} times");
        assert!(!fault.is_harmless() || verdicts == 0, "{fault:?}");
        let has_class = !fault.is_harmless() && !fault.ends_bring_up();
        assert!(
            !has_class || verdicts > runs / 4,
            "{fault:?}: {verdicts} verdicts in {runs} runs"
        );
    }
}

#[test]
fn a_seed_is_a_run() {
    for seed in 1..50 {
        let (one, two) = (run(seed, false), run(seed, true));
        let (one, two) = (one.expect("it is played above"), two.expect("as before"));
        assert_eq!(
            (one.hash, one.events, one.verdict),
            (two.hash, two.events, two.verdict)
        );
        assert!(one.log.is_empty() && !two.log.is_empty());
    }
}

/// Seeds that showed: a verdict `INTERNAL`, because a rank's answer was older than its complaint; a rank blamed
/// for leaving, which left because of the verdict before; a broken path blamed on those who merely waited;
/// frozen ranks that were never found, because each complaint began the round anew; a mismatch that was judged before
/// all sides stood on the boards; a rank blamed for the time for which the machine slept, just when the call of
/// another one had begun to wait, or while it waited for what a rank that left might have sent; a circle of waits that
/// grew for half a second, and a bound counted from its first ranks. Where the process that serves was stopped: ranks of another
/// host blamed that had ended because of a verdict there; "its process ended" of a rank whose connection ended; a second line of
/// a rank that had been told one before; two lines, because the arbiter judged before it had read what ranks had found; a broken
/// path between a rank that served and was stopped, and one that had waited for it; a frozen rank that "runs user code", by a look
/// from before the arbiter was stopped; a rank blamed that had ended half a minute ago because of a verdict. And a rank that had left
/// after all its work, blamed with the one that was at fault.
const SEEDS: [u64; 23] = [
    1573, 2477, 262, 738, 67, 426, 504, 2002, 2424, 2662, 531_317, 5_047_089, 612_338, 848_064,
    861, 16_791, 26_220, 46_130, 51_167, 501_043, 631_973, 146_240, 993_224,
];

#[test]
fn seeds_that_showed_a_wrong_verdict_are_right_now() {
    for seed in SEEDS {
        play(seed);
    }
}
