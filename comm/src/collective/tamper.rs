//! Faults on purpose: a communicator that spoils what this rank contributes.
//!
//! For tests of tests: `muster verify --inject` shows that its checks can fail. The spoilt data
//! really goes through the transport; only the caller's buffer stays as it was.
#![expect(unsafe_code, reason = "works on erased buffers")]

use std::sync::Mutex;

use crate::backend::host::Host;
use crate::backend::wait_context::WaitContext;
use crate::backend::{Failure, Request};
use crate::sync::{AtomicBool, Ordering, lock};
use crate::types::{Collective, DType};

/// What to spoil in this rank's contributions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tamper {
    /// How.
    pub kind: TamperKind,
    /// In which calls; in all where `None`.
    pub collective: Option<Collective>,
}

/// How to spoil a contribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TamperKind {
    /// Zeroes instead of the data.
    DropContribution,
    /// One bit of the element in the middle is wrong: the second highest, so that rounding hides
    /// it in no type.
    FlipBit,
    /// The first two of the buffer's parts (one part a rank) have changed places; halves where
    /// the buffer has fewer elements than ranks.
    SwapBlocks,
}

/// What a communicator spoils, if anything; looked at in every call.
#[derive(Debug, Default)]
pub(super) struct Setting {
    is_set: AtomicBool,
    tamper: Mutex<Option<Tamper>>,
}

impl Setting {
    pub(super) fn get(&self) -> Option<Tamper> {
        // Relaxed: only says whether to look behind the lock, which orders the rest.
        if !self.is_set.load(Ordering::Relaxed) {
            return None;
        }
        *lock(&self.tamper)
    }

    pub(super) fn set(&self, tamper: Option<Tamper>) {
        *lock(&self.tamper) = tamper;
        // Relaxed: see `get`.
        self.is_set.store(tamper.is_some(), Ordering::Relaxed);
    }
}

impl Tamper {
    pub(super) fn hits(self, request: &Request<'_>) -> bool {
        let is_hit = |one| one == request.collective || one == request.called;
        self.collective.is_none_or(is_hit)
    }

    /// Carries a call out with a spoilt copy of the send buffer.
    pub(super) fn run(
        self,
        host: &mut Host,
        wait_context: &WaitContext<'_>,
        request: &Request<'_>,
    ) -> Result<(), Failure> {
        let (n, me) = (wait_context.group.len(), wait_context.group.me);
        let bytes = request.send_count(n, me) * request.dtype.size();
        let mut copy = vec![0_u8; bytes];
        // SAFETY: the send buffer holds that many bytes (checked by the collective layer), and the
        // copy is as long.
        unsafe { std::ptr::copy_nonoverlapping(request.send, copy.as_mut_ptr(), bytes) };
        self.spoil(&mut copy, request.dtype, n);
        if !request.collective.has_one_buffer() {
            return host.run(
                wait_context,
                &Request {
                    send: copy.as_ptr(),
                    ..*request
                },
            );
        }
        // A broadcast has one buffer: spoil it, and put the data back afterwards.
        let spoilt = Request {
            send: copy.as_ptr(),
            recv: copy.as_mut_ptr(),
            ..*request
        };
        if me == request.root {
            host.run(wait_context, &spoilt)
        } else {
            host.run(wait_context, request)
        }
    }

    fn spoil(self, data: &mut [u8], dtype: DType, parts: usize) {
        let size = dtype.size();
        let count = data.len() / size;
        match self.kind {
            TamperKind::DropContribution => data.fill(0),
            TamperKind::FlipBit => {
                if count > 0 {
                    // Little endian: the highest byte is the last one of the element.
                    data[count / 2 * size + size - 1] ^= 0x40;
                }
            }
            TamperKind::SwapBlocks => {
                let part = (count / parts.max(2)).max(usize::from(count >= 2)) * size;
                let (first, rest) = data.split_at_mut(part.min(data.len()));
                let len = first.len().min(rest.len());
                first[..len].swap_with_slice(&mut rest[..len]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spoilt(kind: TamperKind, data: &[u16], parts: usize) -> Vec<u16> {
        let mut bytes: Vec<u8> = data.iter().flat_map(|value| value.to_le_bytes()).collect();
        Tamper {
            kind,
            collective: None,
        }
        .spoil(&mut bytes, DType::U16, parts);
        bytes
            .chunks(2)
            .map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
            .collect()
    }

    #[test]
    fn each_kind_changes_what_it_says_and_nothing_else() {
        assert_eq!(
            spoilt(TamperKind::FlipBit, &[1, 2, 3, 4], 2),
            [1, 2, 0x4003, 4]
        );
        assert_eq!(
            spoilt(TamperKind::SwapBlocks, &[1, 2, 3, 4], 2),
            [3, 4, 1, 2]
        );
        assert_eq!(
            spoilt(TamperKind::SwapBlocks, &[1, 2, 3, 4], 9),
            [2, 1, 3, 4]
        );
        assert_eq!(spoilt(TamperKind::DropContribution, &[1, 2], 2), [0, 0]);
        assert_eq!(spoilt(TamperKind::SwapBlocks, &[1], 2), [1]);
        assert_eq!(spoilt(TamperKind::FlipBit, &[], 2), [0_u16; 0]);
    }
}
