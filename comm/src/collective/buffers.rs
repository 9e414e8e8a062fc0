//! Requests, from slices: here the types of elements end.

use crate::backend::{Counts, Request};
use crate::buffer::Element;
use crate::types::{Collective, DType, ReduceOp};

/// A request, from slices.
pub(super) struct Buffers {
    pub(super) send: *const u8,
    pub(super) recv: *mut u8,
}

impl Buffers {
    pub(super) fn apart<T: Element>(send: &[T], recv: &mut [T]) -> Self {
        Self {
            send: send.as_ptr().cast(),
            recv: recv.as_mut_ptr().cast(),
        }
    }

    /// One buffer for both, the send part from element `send_at` on and the receive part from
    /// `recv_at` on.
    pub(super) fn in_place<T: Element>(buffer: &mut [T], send_at: usize, recv_at: usize) -> Self {
        let base = buffer.as_mut_ptr();
        // Wrapping: the offsets lie in the buffer, and nothing is dereferenced here.
        Self {
            send: base.wrapping_add(send_at).cast::<u8>().cast_const(),
            recv: base.wrapping_add(recv_at).cast(),
        }
    }

    pub(super) fn request<'a>(
        self,
        collective: Collective,
        dtype: DType,
        op: Option<ReduceOp>,
        root: usize,
        counts: Counts<'a>,
    ) -> Request<'a> {
        let op = op.unwrap_or(ReduceOp::Sum);
        Request {
            collective,
            called: collective,
            dtype,
            op,
            root,
            counts,
            packed: &[],
            send: self.send,
            recv: self.recv,
        }
    }
}
