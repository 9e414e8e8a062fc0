//! The tool as its users meet it: real processes, real signals, real launchers.

mod alone;
mod bench;
mod ci;
mod compare;
mod drill;
mod dumps;
mod faults;
mod hccl;
mod inject;
mod joined;
mod measured_hccl;
mod moe;
mod recount;
mod replay;
mod reports;
mod spread;
mod standing;
mod tap;
mod thousand;
mod toolkit;
mod top;
mod tuned;
mod usage;
mod validate;
mod verify;
mod watched;
