//! Algorithms as plans: pure arithmetic, no I/O, no addresses, no element types.
//!
//! ```text
//! Problem --(select: table of rules)--> Algorithm --(plan)--> Plan of one rank
//!                                                   plans of all ranks --> check, cost, draw
//! ```
//!
//! A [`Problem`] says what is asked, an [`Algorithm`] of the [`registry`] turns it into the
//! [`Plan`] of each rank, and everything else reads plans: the engine of the host backend runs
//! them, [`check()`] proves them, [`cost`] prices them, [`draw`] shows them.
//!
//! ```
//! use muster_comm::algo::{Links, Problem, plan, select};
//!
//! let problem = Problem::all_reduce(8, 1 << 20)?;
//! let algorithm = select(problem.collective(), 4 << 20, problem.n(), Links::Message)?;
//! let plan = plan(algorithm, &problem, 3, false)?;
//! assert_eq!(algorithm.name, "ring");
//! assert_eq!(plan.rounds.len(), 1 + 7 + 7);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod bruck;
mod builder;
pub mod check;
pub mod cost;
pub(crate) mod direct;
mod doubling;
pub mod draw;
mod halving;
mod hierarchical;
mod pairwise;
pub mod plan;
pub mod problem;
pub mod registry;
mod ring;
mod scan;
mod schedule;
pub mod select;
pub mod shape;
mod stage;
pub mod sweep;
mod tree;

pub use self::check::{Defect, DefectKind, Proof, check};
pub use self::cost::{Cost, Topology, predict};
pub use self::plan::{Links, PeerSpan, Plan, Round, Space, Span, Step};
pub use self::problem::{InPlace, Problem};
pub use self::registry::{
    ALGORITHMS, Algorithm, ENTRY, PlanError, algorithms_for, choices_for, find, find_choice,
    planned,
};
pub use self::select::{Choice, SelectError, Spread, Table, TableError, select};
pub use self::shape::{Blocks, Matrix, ProblemError};

/// The plan of `rank`; see [`Algorithm::plan`].
///
/// # Errors
/// [`PlanError`], saying what does not fit.
pub fn plan(
    algorithm: &Algorithm,
    problem: &Problem,
    rank: usize,
    in_place: bool,
) -> Result<Plan, PlanError> {
    algorithm.plan(problem, rank, in_place)
}
