//! The tool as its users meet it: real processes, real signals, real launchers.

mod bench;
mod compare;
mod faults;
mod hccl;
mod inject;
mod joined;
mod moe;
mod usage;
mod verify;
