//! Recorded programs: read and checked (`read`, `draft`, `program`), and made again by ranks (`rank`), on the
//! host or on devices (`target`).

mod draft;
pub mod price;
mod program;
mod rank;
mod read;
mod target;
#[cfg(test)]
mod tests;

pub use self::program::{Action, Counts, Group, Message, Problem, Program, RankProgram, Step};
pub use self::rank::{Outcome, Replay};
pub use self::read::read;
pub use self::target::Target;
