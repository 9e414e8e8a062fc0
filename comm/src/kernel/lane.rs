//! How the elements of each type are read and written by the one reduction loop.
#![expect(
    unsafe_code,
    reason = "elements are read from and written to memory that other processes share"
)]

use std::marker::PhantomData;

use super::half_bits::{narrow_bf16, narrow_f16, widen_bf16, widen_f16};
use super::number::Number;

/// An element type as the reduction loop sees it: stored in one form, computed with in another.
pub(super) trait Lane {
    /// The type that reductions compute in.
    type Wide: Number;

    /// Size of a stored element in bytes.
    const SIZE: usize;

    /// Where [`Lane::read`] finds the `len` elements at `src`: there, or converted in `room`.
    ///
    /// # Safety
    /// - `src` is readable for `len` stored elements.
    /// - `room` is writable for `len` wide elements, and nobody else uses it.
    /// - The CPU has the instructions that this lane was made for.
    #[inline(always)]
    unsafe fn stage(src: *const u8, _room: *mut Self::Wide, _len: usize) -> *const u8 {
        src
    }

    /// Element `i` of what [`Lane::stage`] returned.
    ///
    /// # Safety
    /// - `staged` came from [`Lane::stage`] with a `len` greater than `i`, and what that call was
    ///   given still stands.
    unsafe fn read(staged: *const u8, i: usize) -> Self::Wide;

    /// Rounds `len` results and stores them.
    ///
    /// # Safety
    /// - `wide` is readable for `len` elements, aligned, and does not overlap `dst`.
    /// - `dst` is writable for `len` stored elements.
    /// - The CPU has the instructions that this lane was made for.
    unsafe fn write(wide: *const Self::Wide, dst: *mut u8, len: usize);
}

/// A type that is computed with as it is stored: integers, f32, f64.
pub(super) struct Plain<T>(PhantomData<T>);

impl<T: Number> Lane for Plain<T> {
    type Wide = T;
    const SIZE: usize = size_of::<T>();

    #[inline(always)]
    unsafe fn read(staged: *const u8, i: usize) -> T {
        // SAFETY: the caller promises that element `i` is readable.
        unsafe { read_at(staged, i) }
    }

    #[inline(always)]
    unsafe fn write(wide: *const T, dst: *mut u8, len: usize) {
        // SAFETY: the caller promises both ranges and that they are apart.
        unsafe { std::ptr::copy_nonoverlapping(wide.cast(), dst, len * Self::SIZE) };
    }
}

/// bf16 with conversions that need no special instructions.
pub(super) struct Bf16;

impl Lane for Bf16 {
    type Wide = f32;
    const SIZE: usize = 2;

    #[inline(always)]
    unsafe fn read(staged: *const u8, i: usize) -> f32 {
        // SAFETY: the caller promises that element `i` is readable.
        widen_bf16(unsafe { read_at(staged, i) })
    }

    #[inline(always)]
    unsafe fn write(wide: *const f32, dst: *mut u8, len: usize) {
        for i in 0..len {
            // SAFETY: the caller promises `len` readable elements.
            let value = unsafe { read_at(wide.cast(), i) };
            // SAFETY: the caller promises room for `len` elements.
            unsafe { write_at(dst, i, narrow_bf16(value)) };
        }
    }
}

/// f16 with conversions that need no special instructions.
pub(super) struct F16;

impl Lane for F16 {
    type Wide = f32;
    const SIZE: usize = 2;

    #[inline(always)]
    unsafe fn read(staged: *const u8, i: usize) -> f32 {
        // SAFETY: the caller promises that element `i` is readable.
        widen_f16(unsafe { read_at(staged, i) })
    }

    #[inline(always)]
    unsafe fn write(wide: *const f32, dst: *mut u8, len: usize) {
        for i in 0..len {
            // SAFETY: the caller promises `len` readable elements.
            let value = unsafe { read_at(wide.cast(), i) };
            // SAFETY: the caller promises room for `len` elements.
            unsafe { write_at(dst, i, narrow_f16(value)) };
        }
    }
}

/// Element `i` of an array that need not be aligned.
///
/// # Safety
/// - `base` is readable for `i + 1` elements of type `T`, whose every bit pattern is a value.
#[inline(always)]
pub(super) unsafe fn read_at<T: Copy>(base: *const u8, i: usize) -> T {
    // SAFETY: the caller promises that the element is inside the array.
    let at = unsafe { base.add(i * size_of::<T>()) };
    // SAFETY: as above; no alignment is needed.
    unsafe { at.cast::<T>().read_unaligned() }
}

/// Stores element `i` of an array that need not be aligned.
///
/// # Safety
/// - `base` is writable for `i + 1` elements of type `T`.
#[inline(always)]
pub(super) unsafe fn write_at<T: Copy>(base: *mut u8, i: usize, value: T) {
    // SAFETY: the caller promises that the element is inside the array.
    let at = unsafe { base.add(i * size_of::<T>()) };
    // SAFETY: as above; no alignment is needed.
    unsafe { at.cast::<T>().write_unaligned(value) };
}

/// Rounds and stores elements `start..end` one at a time.
///
/// # Safety
/// - `wide` is readable and `dst` writable for `end` elements, and they are apart.
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
#[inline(always)]
pub(super) unsafe fn write_rest(
    wide: *const f32,
    dst: *mut u8,
    start: usize,
    end: usize,
    narrow: impl Fn(f32) -> u16,
) {
    for i in start..end {
        // SAFETY: the caller promises `end` readable elements.
        let value = unsafe { read_at(wide.cast(), i) };
        // SAFETY: the caller promises room for `end` elements.
        unsafe { write_at(dst, i, narrow(value)) };
    }
}
