//! The models: each is one small run, for loom to repeat in every order.

pub mod bell;
pub mod board;
pub mod directory;
pub mod doorbell;
pub mod epoch;
pub mod memory;
pub mod ring;
pub mod slot;
pub mod tap;
pub mod tree;

use loom::model::Builder;

/// Runs a model in every order with at most this many switches away from a thread that could go on
/// (threads that wait are switched at will). `LOOM_MAX_PREEMPTIONS` replaces the number.
pub fn check(switches: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound.get_or_insert(switches);
    builder.max_branches = builder.max_branches.max(20_000);
    builder.check(model);
}
