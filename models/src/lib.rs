//! The protocols over shared memory, as they are shipped, under a model checker.
//!
//! The files of `comm` that hold a protocol over atomics are compiled here a second time, with a door to
//! atomics ([`sync`]) behind which loom stands: it runs a model in every order in which its threads can
//! meet, and lets a load see every value that the memory model of Rust allows. Nothing is copied: where a
//! file of `comm` changes, its model runs the change.
//!
//! What stands in for something: the arena (words that are made when they are first used, [`arena`]), time, and
//! the kernel's futex. [`models`] are the models themselves; the tests run them within bounds.
// The files of `comm` bring tests of their own along, which want real atomics: they run there.
#![cfg(not(test))]

pub mod arena;
pub mod board;
pub mod context;
pub mod models;
pub mod ring;
pub mod shm;
pub mod sync;
#[path = "../../comm/src/types/mod.rs"]
pub mod types;
