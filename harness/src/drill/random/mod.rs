//! Random drills: programs, faults and moments from a seed, and whether what is said of them is true.
//!
//! `program` writes what ranks do, `fault` spoils it, `scenario` is both with the place where it happens,
//! `run` carries it out. `machine` plays the program in thought, `truth` says by it what may be said, `grade`
//! compares. `report` counts.
//!
//! - RANDOM-1: a run is a function of its seed and the options; the moment of a strike is not, and so the
//!   truth is looked up where the victim was.
//! - RANDOM-2: what is graded as false is false whatever the machine does: where the truth allows two
//!   things, both are right.

pub mod cases;
pub mod fault;
pub mod grade;
pub mod load;
pub mod machine;
pub mod mpi;
pub mod program;
pub mod report;
pub mod run;
pub mod scenario;
pub mod suite;
#[cfg(test)]
mod tests;
pub mod truth;
