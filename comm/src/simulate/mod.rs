//! The control plane in virtual time: one seed is one run of a small world with a fault or without.
//!
//! What runs here is what is shipped: the coordinator's membership with job and rounds, the arbiter and the
//! judge, what ranks know of each other (`context::Status`) and make of it (`backend::peer_status`), when a call complains, gives up
//! and comes to its verdict (`backend::{call_wait, verdict_wait}`), what ranks judge by themselves (`watch::peers`), the
//! comparison of calls, and every message as it travels. What is played is the rest: connections that
//! delay, processes that stop and die, what they see of each other, a launcher or a rank that serves, and programs that make
//! calls.
//!
//! - PLAY-1: a run is a function of its seed: nothing reads a clock, and nothing depends on the order of a
//!   hash table. The hash of two runs of one seed is the same.
//! - PLAY-2: what a run must show is computed from what was done to it, never from what the judge said.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "what a place does not ask of a fault is the same for all others"
)]

mod act;
mod check;
mod ending;
mod hear;
mod machine;
mod net;
mod press;
mod rank;
mod scenario;
mod sim_world;
mod view;

use std::fmt;

pub use self::scenario::Fault;

/// A run that showed what it had to.
#[derive(Clone, Debug)]
pub struct Summary {
    /// What was done to it.
    pub fault: Fault,
    /// The verdict that its ranks were told, in one line, if there was one.
    pub verdict: Option<String>,
    /// Things that happened.
    pub events: u64,
    /// How long it took, in virtual milliseconds.
    pub virtual_ms: u64,
    /// A hash over all that happened.
    pub hash: u64,
    /// What happened, where that was asked for.
    pub log: Vec<String>,
}

/// A run that did not.
#[derive(Clone, Debug)]
pub struct Broken {
    /// Its seed: [`run`] repeats it.
    pub seed: u64,
    /// What was wrong.
    pub what: String,
    /// What was done to it.
    pub plan: String,
    /// What happened, where that was asked for.
    pub log: Vec<String>,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: {} ({})", self.seed, self.what, self.plan)
    }
}

impl std::error::Error for Broken {}

/// Plays one run, and keeps a log of it where `logs`.
///
/// # Errors
/// [`Broken`]: the run did not end, blamed the wrong rank, was late, or told ranks different things.
pub fn run(seed: u64, logs: bool) -> Result<Summary, Box<Broken>> {
    let plan = scenario::Scenario::draw(seed);
    let mut stage = sim_world::Stage::new(&plan, seed, logs);
    let outcome = stage.play().and_then(|()| check::check(&plan, &stage));
    let log = std::mem::take(&mut stage.log);
    match outcome {
        Ok(()) => Ok(Summary {
            fault: plan.fault,
            verdict: stage.verdict_line(),
            events: stage.events,
            virtual_ms: stage.now_us / 1000,
            hash: stage.hash(),
            log,
        }),
        Err(what) => Err(Box::new(Broken {
            seed,
            what,
            plan: plan.describe(),
            log,
        })),
    }
}
