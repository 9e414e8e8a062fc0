//! The rendezvous over real sockets, with threads as ranks. Every wait is bounded, every port is
//! one that was free.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests fail as tests do; the lints spare only what is inside a test"
)]

mod absent;
mod addresses;
mod claims;
mod hostile;
mod life;
mod support;
