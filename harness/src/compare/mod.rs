//! `muster compare`: what is different between two result files, and whether it is worse.
//!
//! `files` reads them, `rank_test` holds the statistics, `rows` compares what was measured or
//! checked, `states` and `conditions` know rounds that
//! say nothing, `common` what all rows have in common, `judge` decides, `view` shows. Nothing here starts ranks.

mod common;
mod conditions;
pub mod files;
pub mod judge;
mod machine;
pub mod rank_test;
#[cfg(test)]
mod recorded;
pub mod rows;
pub mod states;
pub mod view;
