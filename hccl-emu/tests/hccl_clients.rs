//! Programs in C, compiled by the system's compiler against a header made from the facts, run over
//! the emulator as processes: what they check they check themselves.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use support::{Bench, Generation};

fn processes(generation: Generation, sizes: &[usize]) {
    let bench = Bench::new();
    let program = bench.compile("cc", "processes", generation);
    for ranks in sizes {
        for ended in bench.ranks(&program, generation, *ranks, &[], &[]) {
            ended.assert_passed();
        }
    }
}

#[test]
fn all_operators_are_right_over_processes_of_the_old_generation() {
    processes(Generation::Old, &[1, 2, 4]);
}

#[test]
fn all_operators_are_right_over_processes_of_the_new_generation() {
    processes(Generation::New, &[3, 8]);
}
