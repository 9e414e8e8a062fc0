//! Ranks as processes: started, watched, ended and reaped by the launcher.
//!
//! This part knows processes, signals and pipes; it knows nothing of matrices or collectives.
//!
//! WORLD-1: no rank outlives the launcher. A rank asks the kernel to be killed with the thread that
//! started it, so ranks are started on a thread that lives as long as they do.
//! WORLD-2: no rank stays a zombie: every pidfd is waited for, at the latest when the world drops.
//! WORLD-3: nothing that a rank prints blocks it or grows without bound.

pub mod capture;
pub mod echo;
pub mod ended;
pub mod guard;
pub mod limits;
pub mod look;
mod oom;
pub mod ranks;
pub mod signals;
pub mod tether;
mod watch;

pub use ended::Ended;
pub use ranks::{Event, RankProcess, Ranks, Spawn};
