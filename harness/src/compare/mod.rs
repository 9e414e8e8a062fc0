//! `muster compare`: what is different between two result files, and whether it is worse.
//!
//! `side` puts the files of a side together, `rank_test` holds the statistics, `states` and `conditions` know
//! rounds that say nothing, `common` what all rows have in common, `judge` decides, `view` shows. Nothing here
//! starts ranks.

mod common;
mod conditions;
mod document;
pub mod judge;
mod machine;
pub mod margin;
mod page;
pub mod rank_test;
#[cfg(test)]
mod recorded;
pub mod report;
pub mod side;
pub mod states;
pub mod view;
