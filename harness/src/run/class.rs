//! The class of an error, for exit codes.

use muster_comm::error::ErrorKind;
use muster_comm::vendor::{self, Fault};

use crate::exit::Exit;

/// The class of a rank's own error, for its exit code. The launcher judges by more than this.
pub(super) fn exit_of(kind: &ErrorKind) -> Exit {
    match kind {
        ErrorKind::Mismatch { .. } => Exit::Mismatch,
        // The launcher, or rank 0 which serves the others, is gone.
        ErrorKind::Orphaned { .. } | ErrorKind::PeerClosed { .. } => Exit::PeerDead,
        ErrorKind::PeerAborted { cause, .. } => exit_of(cause),
        ErrorKind::Resource { .. } => Exit::Resource,
        ErrorKind::Stalled { .. } => Exit::NotJoined,
        ErrorKind::Transport { .. } => Exit::Link,
        ErrorKind::Malformed { .. } => Exit::Data,
        ErrorKind::DeviceStalled { .. } => Exit::NotJoined,
        ErrorKind::Vendor { code, detail, .. } => exit_of_vendor(*code, detail),
        ErrorKind::InvalidArgument { .. } | ErrorKind::Unsupported { .. } | _ => Exit::Internal,
    }
}

/// The class of an error of the vendor's libraries. A device that is lost counts as a host that is
/// not fit, not as a rank that died: its process lives, and starting it again there does not help.
pub(super) fn exit_of_vendor(code: i32, detail: &str) -> Exit {
    // Ranks made one call with different arguments, as HCCL noticed.
    if vendor::remark_in(detail).is_some_and(|remark| remark.code == "EI0005") {
        return Exit::Mismatch;
    }
    match vendor::fault_of(code, detail) {
        Fault::Argument => Exit::Internal,
        Fault::DeviceLost
        | Fault::Internal
        | Fault::Memory
        | Fault::Resource
        | Fault::Unsupported => Exit::Resource,
        Fault::Link => Exit::Link,
        Fault::Timeout => Exit::NotJoined,
    }
}
