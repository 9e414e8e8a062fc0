//! The memory of a run: where its spans lie, and the local work on them.
//!
//! f16 and bf16 reductions work on f32 copies of both buffers and round once, at the end; so the
//! plan then counts f32. Everything else works in place on the caller's buffers.
//!
//! - MEMORY-1: all spans of the plan were checked when the memory was made, so every address that
//!   [`Memory::address`] gives lies in its buffer.

#![expect(
    unsafe_code,
    reason = "the buffers of a run may be shared with peers, so they are never slices"
)]

use std::fmt;
use std::ops::Range;

use super::{MessageCall, MessageError};
use crate::algo::plan::{Plan, Space, Span, Step};
use crate::kernel;
use crate::transport::stream::{Source, Target};
use crate::types::{DType, ReduceOp};

/// Bytes that a reducing receive takes at once: they are in the cache when they are reduced, and
/// a large message is reduced while the rest of it arrives.
pub(super) const BOUNCE_BYTES: usize = 64 * 1024;

/// The caller's buffers. Counts are in elements; with a count of zero the pointer is not used.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// The send buffer, [`Space::In`].
    pub send: *const u8,
    /// Its elements.
    pub send_count: usize,
    /// The receive buffer, [`Space::Out`].
    pub recv: *mut u8,
    /// Its elements.
    pub recv_count: usize,
}

/// Memory that runs hand on to each other, so that a call allocates nothing once it is warm.
#[derive(Default)]
pub struct Workspace {
    /// [`Space::Scratch`].
    scratch: Vec<u64>,
    /// A copy of the send buffer, as f32 or for plans that must not run in place.
    input: Vec<u64>,
    /// The receive buffer as f32.
    output: Vec<u64>,
    /// Received bytes that are to be reduced.
    bounce: Vec<u64>,
    /// Frames, each with its payload if that is small.
    stage: Vec<u8>,
}

impl Workspace {
    /// Bytes that the workspace holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let words = [&self.scratch, &self.input, &self.output, &self.bounce]
            .map(Vec::capacity)
            .iter()
            .sum::<usize>();
        words * size_of::<u64>() + self.stage.capacity()
    }
}

impl fmt::Debug for Workspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Workspace({} bytes)", self.bytes())
    }
}

/// One of the three buffers of the plan, as the run works on it.
#[derive(Clone, Copy, Debug)]
struct Place {
    start: *mut u8,
    count: usize,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Memory {
    input: Place,
    output: Place,
    scratch: Place,
    /// The type that the plan counts: the caller's, or f32 in place of a half.
    work: DType,
    /// The caller's receive buffer and the type of its elements.
    recv: *mut u8,
    dtype: DType,
    op: Option<ReduceOp>,
    /// What an average divides by.
    contributors: u32,
    workspace: Workspace,
}

// SAFETY: the pointers lead into the workspace, which is owned, and into the caller's buffers,
// which nobody else touches until the run ends; nothing depends on the thread.
unsafe impl Send for Memory {}

impl Memory {
    /// Checks the plan against the buffers and lays the memory out.
    ///
    /// # Safety
    /// As `MessageRun::new`: until the memory is dropped or finished, the send buffer is readable
    /// and unwritten, and the receive buffer is this run's.
    pub(super) unsafe fn new(
        plan: &Plan,
        call: &MessageCall,
        buffers: Buffers,
        mut workspace: Workspace,
    ) -> Result<Self, MessageError> {
        // A plan of one rank only copies.
        let is_half = matches!(call.dtype, DType::Bf16 | DType::F16);
        let wide = is_half && call.op.is_some() && call.ranks > 1;
        let work = if wide { DType::F32 } else { call.dtype };
        let scratch = grow(&mut workspace.scratch, work, plan.scratch)?;
        grow(&mut workspace.bounce, DType::U8, BOUNCE_BYTES)?;
        let mut memory = Self {
            input: Place {
                start: buffers.send.cast_mut(),
                count: buffers.send_count,
            },
            output: Place {
                start: buffers.recv,
                count: buffers.recv_count,
            },
            scratch,
            work,
            recv: buffers.recv,
            dtype: call.dtype,
            op: call.op,
            contributors: u32::try_from(call.contributors).unwrap_or(u32::MAX),
            workspace,
        };
        memory.check(plan)?;
        // SAFETY: the caller's promise about the buffers is the same.
        unsafe { memory.separate(plan, wide) }?;
        Ok(memory)
    }

    /// Replaces the caller's buffers by private ones where the run cannot work on them.
    ///
    /// # Safety
    /// As [`Memory::new`].
    unsafe fn separate(&mut self, plan: &Plan, wide: bool) -> Result<(), MessageError> {
        let (send, count) = (self.input.start, self.input.count);
        if wide {
            self.output = grow(&mut self.workspace.output, self.work, self.output.count)?;
            self.input = grow(&mut self.workspace.input, self.work, count)?;
            // SAFETY: the caller's send buffer holds `count` elements of the half type, and the
            // workspace was grown to as many f32.
            unsafe { kernel::widen(self.dtype, send, self.input.start.cast(), count) };
        } else if !plan.in_place && self.overlap() {
            self.input = grow(&mut self.workspace.input, self.work, count)?;
            // SAFETY: the caller's send buffer holds `count` elements, and so does the workspace,
            // which is memory of its own.
            unsafe { kernel::copy(self.input.start, send, count * self.work.size()) };
        }
        Ok(())
    }

    /// Whether the two buffers of the caller share a byte.
    fn overlap(&self) -> bool {
        let range = |place: &Place| {
            let start = place.start.addr();
            (start, start + place.count * self.work.size())
        };
        let (input, output) = (range(&self.input), range(&self.output));
        input.0 < output.1 && output.0 < input.1
    }

    /// Type of the elements that the run works on.
    pub(super) fn work(&self) -> DType {
        self.work
    }

    /// Where a span begins.
    fn address(&self, span: &Span) -> *mut u8 {
        let place = self.place(span.space);
        debug_assert!(span.end() <= place.count);
        place.start.wrapping_add(span.start * self.work.size())
    }

    fn place(&self, space: Space) -> &Place {
        match space {
            Space::In => &self.input,
            Space::Out => &self.output,
            Space::Scratch => &self.scratch,
        }
    }

    /// Bytes of a span.
    pub(super) fn bytes(&self, span: &Span) -> usize {
        span.len * self.work.size()
    }

    /// A part of a span, to be sent.
    pub(super) fn source(&self, span: &Span, skip: usize) -> Source<'_> {
        let (start, bytes) = (self.address(span), self.bytes(span));
        // SAFETY: the span lies in its buffer (MEMORY-1), which is readable while `self` lives;
        // that nobody writes it in this round is PLAN-1, and the caller's promise.
        unsafe { Source::new(start, bytes) }.skip(skip)
    }

    /// A part of a span, to be received into.
    #[expect(
        clippy::needless_pass_by_ref_mut,
        reason = "a target is an exclusive borrow of the buffers"
    )]
    pub(super) fn target(&mut self, span: &Span, skip: usize) -> Target<'_> {
        let (start, bytes) = (self.address(span), self.bytes(span));
        let skip = skip.min(bytes);
        let start = start.wrapping_add(skip);
        // SAFETY: the span lies in its buffer (MEMORY-1), which is writable while `self` lives
        // (no step writes `In`); that nobody else touches it in this round is PLAN-1.
        unsafe { Target::new(start, bytes - skip) }
    }

    /// The bytes that a reducing receive reads into.
    pub(super) fn bounce(&mut self) -> &mut [u8] {
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut self.workspace.bounce);
        &mut bytes[..BOUNCE_BYTES]
    }

    /// Forgets the messages that were staged.
    pub(super) fn clear_stage(&mut self) {
        self.workspace.stage.clear();
    }

    /// Bytes that are staged.
    pub(super) fn stage_bytes(&self) -> usize {
        self.workspace.stage.len()
    }

    /// Puts a frame, and the payload behind it if given, where one write sends both.
    pub(super) fn stage(&mut self, frame: &[u8], payload: Option<&Span>) -> Range<usize> {
        let start = self.workspace.stage.len();
        self.workspace.stage.extend_from_slice(frame);
        if let Some(span) = payload {
            let (from, bytes) = (self.address(span), self.bytes(span));
            // SAFETY: as in `source`; the lifetime ends with this block.
            let payload = unsafe { Source::new(from, bytes) };
            let at = self.workspace.stage.len();
            self.workspace.stage.resize(at + bytes, 0);
            payload.copy_to(&mut self.workspace.stage[at..]);
        }
        start..self.workspace.stage.len()
    }

    /// Bytes that were staged.
    pub(super) fn staged(&self, range: Range<usize>) -> &[u8] {
        &self.workspace.stage[range]
    }

    /// CRC-32 of a span.
    pub(super) fn checksum(&mut self, span: &Span) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        self.hash(&mut hasher, span, 0, self.bytes(span));
        hasher.finalize()
    }

    /// Adds `len` bytes of a span, from its byte `skip` on, to a checksum. They are copied out
    /// first, because a peer may be able to write them.
    pub(super) fn hash(
        &mut self,
        hasher: &mut crc32fast::Hasher,
        span: &Span,
        skip: usize,
        len: usize,
    ) {
        assert!(skip + len <= self.bytes(span));
        let start = self.address(span).wrapping_add(skip);
        let mut done = 0;
        while done < len {
            // SAFETY: the part lies in its span, by the assertion, and the span in its buffer
            // (MEMORY-1); nobody writes it in this round (PLAN-1) but this thread, before.
            let rest = unsafe { Source::new(start.wrapping_add(done), len - done) };
            let bounce = self.bounce();
            let piece = rest.copy_to(bounce);
            hasher.update(&bounce[..piece]);
            done += piece;
        }
    }

    /// `dst = src`, where the two may be the same memory in an in-place call.
    pub(super) fn copy(&self, src: &Span, dst: &Span) {
        let (from, to) = (self.address(src), self.address(dst));
        if from != to {
            // SAFETY: both spans lie in their buffers (MEMORY-1) and are equally long; `copy`
            // allows them to overlap.
            unsafe { std::ptr::copy(from, to, self.bytes(dst)) };
        }
    }

    /// `dst = src op dst`, or `dst = dst op src`.
    pub(super) fn reduce(&self, src: &Span, dst: &Span, src_first: bool) {
        let (from, to) = (self.address(src), self.address(dst));
        self.combine(to, from, dst.len, src_first);
    }

    /// Reduces `count` elements at the beginning of the bounce buffer into a span, from its
    /// element `skip` on.
    pub(super) fn reduce_bounced(&mut self, dst: &Span, skip: usize, count: usize, first: bool) {
        assert!(count * self.work.size() <= BOUNCE_BYTES);
        assert!(skip + count <= dst.len);
        let to = self.address(dst).wrapping_add(skip * self.work.size());
        let from = self.bounce().as_ptr();
        self.combine(to, from, count, first);
    }

    fn combine(&self, to: *mut u8, from: *const u8, count: usize, from_first: bool) {
        let op = self
            .op
            .expect("`check` refuses reducing plans without a reduction");
        // SAFETY: both hold `count` elements of the working type: spans by MEMORY-1, the bounce
        // buffer by the assertion above. They are equal or apart by PLAN-1.
        unsafe { kernel::reduce_into(self.work, op, to, from, count, from_first) };
    }

    /// Turns what the plan left into the result: averages divide, halves round.
    pub(super) fn finish(&mut self) {
        let Place { start, count } = self.output;
        if self.op == Some(ReduceOp::Avg) && self.contributors > 1 {
            // SAFETY: the output holds `count` elements of the working type.
            unsafe { kernel::finish_avg(self.work, start, count, self.contributors) };
        }
        if self.work != self.dtype {
            // SAFETY: the output holds `count` f32, and the caller's receive buffer as many
            // elements of the half type; the workspace is apart from it.
            unsafe { kernel::narrow(self.dtype, start.cast_const().cast(), self.recv, count) };
        }
    }

    pub(super) fn into_workspace(self) -> Workspace {
        self.workspace
    }

    /// Whether every span lies in its buffer and every step may do what it does.
    fn check(&self, plan: &Plan) -> Result<(), MessageError> {
        for place in [&self.input, &self.output, &self.scratch] {
            if self
                .work
                .bytes(place.count)
                .is_none_or(|bytes| bytes > isize::MAX.cast_unsigned())
            {
                return Err(MessageError::Plan {
                    round: plan.rounds.len(),
                    what: PlanFault::Span,
                });
            }
        }
        for (round, steps) in plan.rounds.iter().enumerate() {
            for step in &steps.steps {
                self.check_step(step)
                    .map_err(|what| MessageError::Plan { round, what })?;
            }
        }
        Ok(())
    }

    fn check_step(&self, step: &Step) -> Result<(), PlanFault> {
        let (src, dst, reduces) = match step {
            Step::Copy { src, dst } => (Some(src), Some(dst), false),
            Step::Reduce { src, dst, .. } => (Some(src), Some(dst), true),
            Step::Send { src, .. } => (Some(src), None, false),
            Step::Recv { dst, .. } => (None, Some(dst), false),
            Step::RecvReduce { dst, .. } => (None, Some(dst), true),
            Step::Expose { .. } | Step::Pull { .. } | Step::PullReduce { .. } => {
                return Err(PlanFault::DirectStep);
            }
        };
        for span in [src, dst].into_iter().flatten() {
            let end = span.start.checked_add(span.len);
            if end.is_none_or(|end| end > self.place(span.space).count) {
                return Err(PlanFault::Span);
            }
        }
        if dst.is_some_and(|dst| dst.space == Space::In) {
            return Err(PlanFault::WritesIn);
        }
        if let (Some(src), Some(dst)) = (src, dst)
            && src.len != dst.len
        {
            return Err(PlanFault::Lengths);
        }
        if reduces && self.op.is_none() {
            return Err(PlanFault::NoOp);
        }
        Ok(())
    }
}

/// Makes `words` hold `count` elements; a workspace only ever grows.
fn grow(words: &mut Vec<u64>, dtype: DType, count: usize) -> Result<Place, MessageError> {
    let bytes = dtype
        .bytes(count)
        .ok_or(MessageError::NoMemory { bytes: usize::MAX })?;
    let len = bytes.div_ceil(size_of::<u64>());
    if words.len() < len {
        words
            .try_reserve_exact(len - words.len())
            .map_err(|_| MessageError::NoMemory { bytes })?;
        words.resize(len, 0);
    }
    Ok(Place {
        start: words.as_mut_ptr().cast(),
        count,
    })
}

/// What a plan can have that a message run cannot serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum PlanFault {
    /// A step on the memory of a peer, or a plan made for such steps.
    #[error("is direct, which needs shared memory")]
    DirectStep,
    /// A step on two spans that are not equally long.
    #[error("has a step whose spans differ in length")]
    Lengths,
    /// A reducing step in a call without a reduction.
    #[error("reduces, but the call names no reduction")]
    NoOp,
    /// A peer that is not in the group, or this rank itself.
    #[error("has a message to or from no other rank of the group")]
    Peer,
    /// More rounds than a frame can count.
    #[error("has a number that no frame holds")]
    Rounds,
    /// A span that leaves its buffer.
    #[error("has a span outside its buffer")]
    Span,
    /// A step that writes the send buffer.
    #[error("writes the send buffer")]
    WritesIn,
}
