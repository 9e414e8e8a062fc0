//! Bruck's `all_to_all`: blocks travel along the binary digits of their distance.
//!
//! A block for the rank d places on goes 1, 2, 4, … places on in the rounds of the binary digits
//! of d that are set, together with all other blocks that have the digit. So there are as many
//! messages as digits, and each block is sent as often as its distance has digits set.

use super::builder::{Builder, input, output, scratch};
use super::plan::{Plan, Span};
use super::problem::Problem;

/// `all_to_all` of equal blocks.
///
/// Scratch holds a packed message to send and, for each digit, the message that came. Where each
/// block lies is known when the plan is made, so that blocks are copied into the next message
/// straight from the message they came with.
pub(super) fn all_to_all(problem: &Problem, rank: usize) -> Plan {
    let n = problem.n();
    let count = problem.out_len(rank) / n;
    // Entry d is the block that still has to go, or has come, d places in all.
    let mut place: Vec<Span> = (0..n)
        .map(|distance| input((rank + distance) % n * count, count))
        .collect();
    let packed_max = (0..digits(n))
        .map(|digit| with_digit(n, digit).count())
        .max()
        .unwrap_or(0);
    let mut used = packed_max * count;
    let mut plan = Builder::new();
    for digit in 0..digits(n) {
        let travelling: Vec<usize> = with_digit(n, digit).collect();
        for (slot, distance) in travelling.iter().enumerate() {
            plan.copy(place[*distance], scratch(slot * count, count));
        }
        plan.end_round();
        let step = 1 << digit;
        let len = travelling.len() * count;
        plan.send((rank + step) % n, scratch(0, len));
        plan.recv((rank + n - step) % n, scratch(used, len));
        plan.end_round();
        for (slot, distance) in travelling.iter().enumerate() {
            place[*distance] = scratch(used + slot * count, count);
        }
        used += len;
    }
    for (distance, block) in place.into_iter().enumerate() {
        let from = (rank + n - distance) % n;
        plan.copy(block, output(from * count, count));
    }
    plan.end_round();
    plan.message_plan(used, true)
}

/// Number of binary digits of the greatest distance.
fn digits(n: usize) -> u32 {
    n.next_power_of_two().ilog2()
}

/// The distances below `n` that have this binary digit set.
fn with_digit(n: usize, digit: u32) -> impl Iterator<Item = usize> {
    (0..n).filter(move |distance| distance >> digit & 1 == 1)
}
