//! Reductions, conversions and copies over raw memory, as fast as the CPU allows.
//!
//! Kernels know element types and operations; they know no rank, no plan and no transport. The
//! free functions use the best instructions of this CPU; [`Kernels`] lets tests and benchmarks
//! choose. `docs/numerics.md` says what every operation means.
//!
//! - KERNEL-1: every family of instructions gives the same bits, and NaN where another gives NaN.
//! - KERNEL-2: reductions go through the sources in the given order, left to right.
//! - KERNEL-3: no pointer needs to be aligned, and no reference is made to the memory behind one,
//!   because another process may share it.
//!
//! ```
//! use muster_comm::kernel;
//! use muster_comm::{DType, ReduceOp};
//!
//! let inputs = [[1.0f32, 2.0], [10.0, 20.0], [100.0, 200.0]];
//! let srcs: Vec<*const u8> = inputs.iter().map(|input| input.as_ptr().cast()).collect();
//! let mut sum = [0.0f32; 2];
//! // SAFETY: every source and `sum` hold two f32, and `sum` overlaps no source.
//! unsafe { kernel::reduce_n(DType::F32, ReduceOp::Sum, &srcs, sum.as_mut_ptr().cast(), 2, 1) };
//! assert_eq!(sum, [111.0, 222.0]);
//! ```
#![expect(
    unsafe_code,
    reason = "kernels work on raw memory, because it may be shared with other processes"
)]

#[cfg(target_arch = "aarch64")]
mod arm;
mod body;
mod half_bits;
mod isa;
mod lane;
mod number;
mod select;
mod stream;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::ptr;

use self::body::Task;
pub use self::isa::{Isa, UnsupportedIsa};
use crate::types::{DType, ReduceOp};

/// The family of vector instructions that the free functions of this module use.
#[must_use]
pub fn isa() -> Isa {
    Isa::current()
}

/// Reduces `srcs` element by element, from the first to the last, into `dst`.
///
/// f16 and bf16 accumulate in f32 and round once. [`ReduceOp::Avg`] divides the sum by `divisor`
/// before that rounding; the other operations ignore `divisor`.
///
/// # Panics
/// If `srcs` is empty, or if the operation is an average and `divisor` is zero.
///
/// # Safety
/// - Every source is readable and `dst` writable for `count` elements of `dtype`.
/// - `dst` equals a source or overlaps it nowhere; sources may overlap each other.
/// - What another process does to this memory meanwhile is ruled out by the caller's protocol: a
///   source that changes under the kernel gives values of the old or the new content.
pub unsafe fn reduce_n(
    dtype: DType,
    op: ReduceOp,
    srcs: &[*const u8],
    dst: *mut u8,
    count: usize,
    divisor: u32,
) {
    // SAFETY: the caller's promise is the same.
    unsafe { Kernels::current().reduce_n(dtype, op, srcs, dst, count, divisor) }
}

/// [`reduce_n`] into several destinations at once: each source is read once. What goes to `streamed`
/// goes around the cache, because nobody reads it soon.
///
/// # Panics
/// As [`reduce_n`].
///
/// # Safety
/// - Every source is readable, and each of `dsts` and `streamed` writable, for `count` elements of
///   `dtype`.
/// - Each destination equals a source or overlaps none; destinations do not overlap each other.
/// - What another process does to this memory meanwhile is ruled out by the caller's protocol.
pub unsafe fn reduce_to(
    dtype: DType,
    op: ReduceOp,
    srcs: &[*const u8],
    dsts: &[*mut u8],
    streamed: &[*mut u8],
    count: usize,
    divisor: u32,
) {
    // SAFETY: the caller's promise is the same.
    unsafe { Kernels::current().reduce_to(dtype, op, srcs, dsts, streamed, count, divisor) }
}

/// `dst = src op dst` where `src_first`, else `dst = dst op src`. An average acts as a sum here:
/// see [`finish_avg`].
///
/// # Safety
/// - `src` is readable, `dst` readable and writable for `count` elements of `dtype`.
/// - The two are equal or do not overlap.
/// - What another process does to this memory meanwhile is ruled out by the caller's protocol.
pub unsafe fn reduce_into(
    dtype: DType,
    op: ReduceOp,
    dst: *mut u8,
    src: *const u8,
    count: usize,
    src_first: bool,
) {
    // SAFETY: the caller's promise is the same.
    unsafe { Kernels::current().reduce_into(dtype, op, dst, src, count, src_first) }
}

/// Divides sums by `divisor`, which makes them averages: floats round once, integers truncate
/// toward zero.
///
/// # Panics
/// If `divisor` is zero.
///
/// # Safety
/// - `buf` is readable and writable for `count` elements of `dtype`.
/// - What another process does to this memory meanwhile is ruled out by the caller's protocol.
pub unsafe fn finish_avg(dtype: DType, buf: *mut u8, count: usize, divisor: u32) {
    // SAFETY: the caller's promise is the same.
    unsafe { Kernels::current().finish_avg(dtype, buf, count, divisor) }
}

/// Converts `count` elements of a half type to f32, exactly. NaN stays NaN.
///
/// # Panics
/// If `dtype` is neither f16 nor bf16.
///
/// # Safety
/// - `src` is readable for `count` elements of `dtype`, `dst` writable for `count` f32; neither
///   needs to be aligned.
/// - The two do not overlap.
/// - What another process does to this memory meanwhile is ruled out by the caller's protocol.
pub unsafe fn widen(dtype: DType, src: *const u8, dst: *mut f32, count: usize) {
    // SAFETY: the caller's promise is the same.
    unsafe { Kernels::current().widen(dtype, src, dst, count) }
}

/// Rounds `count` f32 to a half type: to nearest, ties to even. NaN stays NaN.
///
/// # Panics
/// If `dtype` is neither f16 nor bf16.
///
/// # Safety
/// - `src` is readable for `count` f32, `dst` writable for `count` elements of `dtype`; neither
///   needs to be aligned.
/// - The two do not overlap.
/// - What another process does to this memory meanwhile is ruled out by the caller's protocol.
pub unsafe fn narrow(dtype: DType, src: *const f32, dst: *mut u8, count: usize) {
    // SAFETY: the caller's promise is the same.
    unsafe { Kernels::current().narrow(dtype, src, dst, count) }
}

/// Copies bytes. Every copy of the library comes through here.
///
/// # Safety
/// - `src` is readable and `dst` writable for `bytes` bytes, and the two do not overlap.
/// - What another process does to this memory meanwhile is ruled out by the caller's protocol.
#[inline]
pub unsafe fn copy(dst: *mut u8, src: *const u8, bytes: usize) {
    if bytes < stream::STRING_FROM || !stream::has_fast_strings() {
        // SAFETY: the caller promises both ranges and that they are apart.
        unsafe { ptr::copy_nonoverlapping(src, dst, bytes) };
    } else if stream::is_slow_string(dst.addr(), src.addr()) {
        // SAFETY: as above.
        unsafe { stream::vector_copy(dst, src, bytes) };
    } else {
        // SAFETY: as above.
        unsafe { stream::string_copy(dst, src, bytes) };
    }
}

/// Whether the system and the C library copy slowly from one of these addresses to the other (see `stream`); [`copy`] does not.
#[must_use]
#[inline]
pub fn is_slow_elsewhere(dst: usize, src: usize) -> bool {
    stream::has_fast_strings() && stream::is_slow_string(dst, src)
}

/// Copies bytes whose copy nobody reads soon, around the cache where the CPU can.
///
/// # Safety
/// As [`copy`].
pub unsafe fn copy_streaming(dst: *mut u8, src: *const u8, bytes: usize) {
    // SAFETY: the caller's promise is the same.
    unsafe { stream::copy(dst, src, bytes) };
    stream::fence();
}

/// Kernels compiled for one family of vector instructions, which this CPU has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernels {
    isa: Isa,
}

impl Kernels {
    /// The kernels for these instructions.
    ///
    /// # Errors
    /// [`UnsupportedIsa`] if this CPU lacks them.
    pub fn new(isa: Isa) -> Result<Self, UnsupportedIsa> {
        if isa.is_supported() {
            Ok(Self { isa })
        } else {
            Err(UnsupportedIsa { isa })
        }
    }

    /// The best kernels for this CPU.
    #[must_use]
    pub fn best() -> Self {
        Self { isa: Isa::best() }
    }

    /// The kernels that the free functions of this module use: the best ones, unless others were
    /// chosen.
    #[must_use]
    pub fn current() -> Self {
        Self {
            isa: Isa::current(),
        }
    }

    /// Makes these the kernels of the whole process, for calls that begin later. All kernels give
    /// the same results; this is for tests and for measuring.
    pub fn use_everywhere(self) {
        self.isa.choose();
    }

    /// The instructions that these kernels use.
    #[must_use]
    pub const fn isa(self) -> Isa {
        self.isa
    }

    /// [`reduce_n`] with these instructions.
    ///
    /// # Panics
    /// As [`reduce_n`].
    ///
    /// # Safety
    /// As [`reduce_n`].
    pub unsafe fn reduce_n(
        self,
        dtype: DType,
        op: ReduceOp,
        srcs: &[*const u8],
        dst: *mut u8,
        count: usize,
        divisor: u32,
    ) {
        // SAFETY: the caller's promise is the same.
        unsafe { self.reduce_to(dtype, op, srcs, &[dst], &[], count, divisor) }
    }

    /// [`reduce_to`] with these instructions.
    ///
    /// # Panics
    /// As [`reduce_to`].
    ///
    /// # Safety
    /// As [`reduce_to`].
    pub unsafe fn reduce_to(
        self,
        dtype: DType,
        op: ReduceOp,
        srcs: &[*const u8],
        dsts: &[*mut u8],
        streamed: &[*mut u8],
        count: usize,
        divisor: u32,
    ) {
        assert!(!srcs.is_empty(), "a reduction has at least one source");
        let divisor = (op == ReduceOp::Avg).then_some(divisor);
        assert!(divisor != Some(0), "an average is over at least one rank");
        let task = Task {
            srcs,
            dsts,
            streamed,
            count,
            divisor,
        };
        // SAFETY: the caller promises the memory; `new` and `best` have seen to the instructions.
        unsafe { select::reduction(self.isa, dtype, op)(&task) }
    }

    /// [`reduce_into`] with these instructions.
    ///
    /// # Safety
    /// As [`reduce_into`].
    pub unsafe fn reduce_into(
        self,
        dtype: DType,
        op: ReduceOp,
        dst: *mut u8,
        src: *const u8,
        count: usize,
        src_first: bool,
    ) {
        let mine = dst.cast_const();
        let srcs = if src_first { [src, mine] } else { [mine, src] };
        let task = Task {
            srcs: &srcs,
            dsts: &[dst],
            streamed: &[],
            count,
            divisor: None,
        };
        // SAFETY: the caller promises the memory; `new` and `best` have seen to the instructions.
        unsafe { select::reduction(self.isa, dtype, op)(&task) }
    }

    /// [`finish_avg`] with these instructions.
    ///
    /// # Panics
    /// As [`finish_avg`].
    ///
    /// # Safety
    /// As [`finish_avg`].
    pub unsafe fn finish_avg(self, dtype: DType, buf: *mut u8, count: usize, divisor: u32) {
        // SAFETY: the caller's promise covers a reduction of one source, in place.
        unsafe {
            self.reduce_n(
                dtype,
                ReduceOp::Avg,
                &[buf.cast_const()],
                buf,
                count,
                divisor,
            );
        }
    }

    /// [`widen`] with these instructions.
    ///
    /// # Panics
    /// As [`widen`].
    ///
    /// # Safety
    /// As [`widen`].
    pub unsafe fn widen(self, dtype: DType, src: *const u8, dst: *mut f32, count: usize) {
        let convert = select::widening(self.isa, dtype);
        let convert = convert.expect("only f16 and bf16 are widened");
        // SAFETY: the caller promises the memory; `new` and `best` have seen to the instructions.
        unsafe { convert(src, dst.cast(), count) }
    }

    /// [`narrow`] with these instructions.
    ///
    /// # Panics
    /// As [`narrow`].
    ///
    /// # Safety
    /// As [`narrow`].
    pub unsafe fn narrow(self, dtype: DType, src: *const f32, dst: *mut u8, count: usize) {
        let convert = select::narrowing(self.isa, dtype);
        let convert = convert.expect("only f16 and bf16 are narrowed");
        // SAFETY: the caller promises the memory; `new` and `best` have seen to the instructions.
        unsafe { convert(src.cast(), dst, count) }
    }
}
