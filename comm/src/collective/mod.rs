//! (to come)

pub mod reference;
