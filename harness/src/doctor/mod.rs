//! What is wrong with a host, told before a job finds out.
//!
//! A check is one file of [`checks`]: a pure judgement over a [`System`], which shows the file system
//! below a root, the environment, and three senses that are no files. [`run`] bounds each of them in
//! time. The room must not know commands, ranks or how findings are shown.
//!
//! - `DOCTOR-1`: a check looks and changes nothing: it writes no file, binds no port, starts no
//!   command and needs no privilege.
//! - `DOCTOR-2`: a check sees the host through its [`System`] only, so that a test can build a broken
//!   host in a folder.
//! - `DOCTOR-3`: the value of a variable is shown only if the variable is one of the tables
//!   (`variables`, launch contracts, `comm::config`): others may hold secrets.
//! - `DOCTOR-4`: whoever warns or fails names what is, where it was seen, and what to do.

mod cgroup;
pub mod checks;
mod finding;
mod mask;
mod network;
mod npus;
mod process;
mod python;
mod run;
mod system;
mod toolkit;
mod variables;

pub use checks::{CHECKS, Check, Group};
pub use finding::{Finding, Problem, Status};
pub use npus::Npu;
pub use process::Process;
pub use run::{Judged, run};
pub use system::{Elsewhere, Live, Ranks, Resolved, Senses, Space, System};
pub use variables::{Owner, Vendor, vendor_variables};
