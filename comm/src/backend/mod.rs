//! Engines: what runs a plan.

pub mod message;
