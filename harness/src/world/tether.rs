//! The rank's part in WORLD-1, to end with the launcher, however that ends.

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use crate::exit::Exit;
use crate::fail::Failure;

/// Asks the kernel to kill this process when the launcher's starting thread ends, and makes sure
/// that the launcher has not ended already.
///
/// # Errors
/// A failure of class INTERRUPTED if the launcher is gone, RESOURCE if the kernel refuses.
pub fn tie_to(launcher: u32) -> Result<(), Failure> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| {
        Failure::resource(format!("the rank cannot be tied to its launcher: {error}"))
    })?;
    // The launcher may have ended between starting this process and the call above; then no
    // signal will come, and this process has a new parent.
    let parent = getppid()
        .map(Pid::as_raw_nonzero)
        .map(std::num::NonZeroI32::get);
    if parent.map(i64::from) == Some(i64::from(launcher)) {
        return Ok(());
    }
    Err(Failure::new(
        Exit::Interrupted,
        format!("the launcher (process {launcher}) is gone"),
    ))
}
