//! What the emulator says by itself, so that what a foreign program prints passes for no result of
//! an NPU.
//!
//! - One line on stderr with the first world in which this process has rank 0. A client that has
//!   asked for [`muster_emu_version`](crate) knows, and says so itself: it gets no line.
//! - One line on stderr for a fault on purpose that never struck, or that struck and changed nothing.
//! - The text of every failed call on stdout, where `ASCEND_SLOG_PRINT_TO_STDOUT` is 1, as the
//!   vendor's runtime prints its log: many clients print a code only.

use std::io::Write as _;
use std::sync::OnceLock;

use muster_comm::sync::{AtomicBool, Ordering};

use super::state;

/// Whether the line was printed, or is not needed.
static SAID: AtomicBool = AtomicBool::new(false);

/// The client knows that it runs on an emulator.
pub fn is_known() {
    // Relaxed: the flag guards nothing but a line of text.
    SAID.store(true, Ordering::Relaxed);
}

/// Rank 0 of a world of `ranks` was made over devices called `soc`.
pub fn world(ranks: u32, soc: &str) {
    // Relaxed: as above; the swap alone decides who prints.
    if !SAID.swap(true, Ordering::Relaxed) {
        // Nothing helps where stderr is closed.
        let _ = writeln!(
            std::io::stderr(),
            "muster-emu: emulated: {ranks} ranks on emulated devices ({soc}) in the memory of this host; no NPU takes part, and times say nothing of one"
        );
    }
}

/// A fault on purpose never struck: its communicator ended after this many operators of the kind.
pub fn missed(fault: &str, comm: &str, issued: u64) {
    let _ = writeln!(
        std::io::stderr(),
        "muster-emu: emulated: the fault {fault} never struck: communicator {comm} ended after {issued} such operators"
    );
}

/// A fault on purpose struck `operator` and left its result as it was.
pub fn harmless(fault: &str, operator: &str, why: &str) {
    let _ = writeln!(
        std::io::stderr(),
        "muster-emu: emulated: the fault {fault} changed nothing at {operator}: {why}"
    );
}

/// A call failed with this line.
pub(super) fn failed(line: &str) {
    static IS_LOGGING: OnceLock<bool> = OnceLock::new();
    let is_logging = IS_LOGGING.get_or_init(|| {
        let wanted = state().environment.text("ASCEND_SLOG_PRINT_TO_STDOUT");
        matches!(wanted, Ok(Some(text)) if text.trim() == "1")
    });
    if *is_logging {
        let _ = writeln!(std::io::stdout(), "[ERROR] muster-emu: {line}");
    }
}
