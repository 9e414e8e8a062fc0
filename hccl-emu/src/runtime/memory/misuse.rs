//! What can be wrong with an address that a client passes.

use std::fmt;

use super::super::errors::{AclError, RuntimeError};

/// Why a range is not what a call needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Misuse {
    /// The pointer is null.
    Null,
    /// Host memory where device memory is needed.
    Host {
        /// The address.
        address: usize,
        /// Whether the runtime gave it out.
        pinned: bool,
    },
    /// Memory of another device.
    OtherDevice {
        /// The address.
        address: usize,
        /// The device whose memory it is.
        owner: u32,
        /// The device that was needed.
        wanted: u32,
    },
    /// The range begins inside an allocation and ends beyond it.
    OutOfBounds {
        /// Where in the allocation the range begins.
        start: u64,
        /// Length of the range.
        bytes: u64,
        /// Length of the allocation.
        allocation: u64,
        /// What allocated it, and which allocation of the device it was.
        by: (&'static str, u64),
    },
    /// The memory was freed.
    Freed {
        /// Length that the allocation had.
        allocation: u64,
        /// What allocated it, and which allocation of the device it was.
        by: (&'static str, u64),
        /// What freed it, and which free of the device that was.
        freed_by: (&'static str, u64),
    },
    /// An address of the device that belongs to no allocation.
    Unallocated {
        /// The device.
        device: u32,
        /// Offset in its address range.
        offset: u64,
    },
    /// Inside an allocation, where its start is needed.
    NotTheStart {
        /// Where in the allocation the pointer points.
        start: u64,
        /// What allocated it, and which allocation of the device it was.
        by: (&'static str, u64),
    },
    /// Reserved addresses without memory behind them.
    Unmapped {
        /// Offset in the reserved range.
        offset: usize,
    },
    /// Reserved addresses whose memory is not in one piece: the emulator needs that.
    Scattered {
        /// Offset in the reserved range at which the next piece begins.
        offset: usize,
    },
    /// No address of a device that is in use.
    Unopened,
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("the pointer is null"),
            Self::Host { address, pinned } => {
                let kind = if *pinned { "pinned" } else { "ordinary" };
                write!(f, "{address:#x} is {kind} host memory, not device memory")
            }
            Self::OtherDevice {
                address,
                owner,
                wanted,
            } => write!(
                f,
                "{address:#x} is memory of device {owner}, not of device {wanted}"
            ),
            Self::OutOfBounds {
                start,
                bytes,
                allocation,
                by: (call, number),
            } => write!(
                f,
                "bytes {start} to {} of an allocation of {allocation} bytes ({call} number {number}): {} beyond its end",
                start.saturating_add(*bytes),
                start.saturating_add(*bytes) - allocation
            ),
            Self::Freed {
                allocation,
                by: (call, number),
                freed_by: (free, free_number),
            } => write!(
                f,
                "the {allocation} bytes of {call} number {number} were freed by {free} number {free_number}"
            ),
            Self::Unallocated { device, offset } => write!(
                f,
                "no allocation of device {device} holds this address (offset {offset:#x})"
            ),
            Self::NotTheStart {
                start,
                by: (call, number),
            } => write!(
                f,
                "the pointer points {start} bytes into the allocation of {call} number {number}, not to its start"
            ),
            Self::Unmapped { offset } => write!(
                f,
                "nothing is mapped at offset {offset:#x} of the reserved range"
            ),
            Self::Scattered { offset } => write!(
                f,
                "the memory behind the reserved range is in pieces (the next begins at offset {offset:#x}), which is not supported"
            ),
            Self::Unopened => f.write_str("this is no address of a device that is in use"),
        }
    }
}

impl std::error::Error for Misuse {}

impl Misuse {
    /// The error of a call of the runtime that was given such an address as `what`.
    #[must_use]
    pub fn of(&self, what: &str) -> RuntimeError {
        RuntimeError::new(AclError::RT_PARAM_INVALID, format!("{what}: {self}"))
    }
}
