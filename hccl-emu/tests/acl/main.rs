//! The emulated runtime through its C ABI: what clients do, and what they do wrong.
//!
//! The library is loaded as a client loads it. All tests share its state, so each uses a device of
//! its own: the constant at its beginning.

#![expect(unsafe_code, reason = "calls a C ABI")]

mod client;
mod copies;
mod devices;
mod events;
mod exports;
mod memory;
mod streams;
mod support;
mod virt;
