//! `muster compare`: what is different between two result files, and whether it is worse.
//!
//! `files` reads them, `rank_test` holds the statistics, `rows` compares what was measured or
//! checked, `judge` decides, `view` shows. Nothing here starts ranks.

pub mod files;
pub mod judge;
pub mod rank_test;
pub mod rows;
pub mod view;
