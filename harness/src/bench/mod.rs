//! `muster bench`: what is measured, how, and what is made of it.
//!
//! `plan` says which cells there are, `shape` how large their buffers are and how many bytes count,
//! `data` what lies in them, `call` makes the calls, on `ground`: host or devices. `rank` measures as one rank, `measured` is what
//! it tells, `gather` merges what all ranks told into the records of `model`. `table` and `csv` are
//! views of them. Nothing here starts processes: that is `run`'s work.

pub mod call;
pub mod data;
mod document;
pub mod gather;
pub mod ground;
pub mod machine;
pub mod map;
pub mod measured;
pub mod model;
mod page;
pub mod rank;
pub mod shape;
pub mod sweep;
pub mod table;
pub mod told;
pub mod tune;
