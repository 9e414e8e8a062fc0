//! The rendezvous over real sockets, with threads as ranks. Every wait is bounded, every port is
//! one that was free.

mod faults;
mod life;
mod support;
