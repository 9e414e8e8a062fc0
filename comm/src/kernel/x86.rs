//! The families of x86-64, and the conversions of halves that x86-64 has instructions for.
//!
//! Arithmetic is left to the compiler; only conversions are written by hand, because no loop over
//! plain Rust becomes these instructions.
#![expect(
    unsafe_code,
    reason = "vector instructions work on raw memory and exist on some CPUs only"
)]

use std::arch::x86_64::{
    __m256i, __m512bh, __m512i, _MM_FROUND_TO_NEAREST_INT, _mm_loadu_si128, _mm_storeu_si128,
    _mm256_cvtph_ps, _mm256_cvtps_ph, _mm256_loadu_ps, _mm256_loadu_si256, _mm256_storeu_ps,
    _mm256_storeu_si256, _mm512_cvtne2ps_pbh, _mm512_cvtph_ps, _mm512_cvtps_ph,
    _mm512_fpclass_ps_mask, _mm512_loadu_ps, _mm512_loadu_si512, _mm512_storeu_ps,
    _mm512_storeu_si512, _mm512_stream_si512,
};

use super::half_bits::{narrow_bf16, narrow_f16, widen_f16};
use super::lane::{Bf16, Lane, read_at, write_at, write_rest};
use super::select::family;
use super::stream::{BaseLines, Lines};

family!(
    /// 256-bit vectors.
    Avx2, ["avx2,f16c"], Bf16, F16Avx2, BaseLines, Self
);
family!(
    /// 512-bit vectors.
    Avx512, ["avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl"], Bf16, F16Avx512, WideLines, Self
);
family!(
    /// 512-bit vectors with conversions to bf16.
    Avx512Bf16, ["avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16"],
    Bf16Avx512, F16Avx512, WideLines, Avx512
);

/// Whole lines, each with one load and one store.
pub(super) struct WideLines;

impl Lines for WideLines {
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn copy(dst: *mut u8, src: *const u8, bytes: usize) {
        const LINE: usize = 64;
        for at in (0..bytes).step_by(LINE) {
            // SAFETY: the caller promises both ranges, in whole lines.
            let from = unsafe { src.add(at) };
            // SAFETY: as above; the load needs no alignment.
            let line = unsafe { _mm512_loadu_si512(from.cast()) };
            // SAFETY: as above.
            let to = unsafe { dst.add(at) };
            // SAFETY: `to` begins a line, as the caller promises of `dst`.
            unsafe { _mm512_stream_si512(to.cast(), line) };
        }
    }
}

/// f16 converted eight at a time.
pub(super) struct F16Avx2;

impl Lane for F16Avx2 {
    type Wide = f32;
    const SIZE: usize = 2;

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn stage(src: *const u8, room: *mut f32, len: usize) -> *const u8 {
        const STEP: usize = 8;
        let whole = len - len % STEP;
        for i in (0..whole).step_by(STEP) {
            // SAFETY: the caller promises `len` readable elements, and `i + STEP <= len`.
            let from = unsafe { src.add(2 * i) };
            // SAFETY: as above.
            let half = unsafe { _mm_loadu_si128(from.cast()) };
            let value = _mm256_cvtph_ps(half);
            // SAFETY: `room` holds `len` elements.
            let to = unsafe { room.add(i) };
            // SAFETY: as above.
            unsafe { _mm256_storeu_ps(to, value) };
        }
        for i in whole..len {
            // SAFETY: the caller promises `len` readable elements.
            let value = widen_f16(unsafe { read_at(src, i) });
            // SAFETY: `room` holds `len` elements.
            unsafe { write_at(room.cast(), i, value) };
        }
        room.cast_const().cast()
    }

    #[inline(always)]
    unsafe fn read(staged: *const u8, i: usize) -> f32 {
        // SAFETY: `stage` has filled more than `i` elements.
        unsafe { read_at(staged, i) }
    }

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn write(wide: *const f32, dst: *mut u8, len: usize) {
        const STEP: usize = 8;
        let whole = len - len % STEP;
        for i in (0..whole).step_by(STEP) {
            // SAFETY: the caller promises `len` readable elements, and `i + STEP <= len`.
            let from = unsafe { wide.add(i) };
            // SAFETY: as above.
            let value = unsafe { _mm256_loadu_ps(from) };
            let half = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(value);
            // SAFETY: the caller promises room for `len` elements.
            let to = unsafe { dst.add(2 * i) };
            // SAFETY: as above.
            unsafe { _mm_storeu_si128(to.cast(), half) };
        }
        // SAFETY: the caller's promise covers the elements that are left.
        unsafe { write_rest(wide, dst, whole, len, narrow_f16) };
    }
}

/// f16 converted sixteen at a time.
pub(super) struct F16Avx512;

impl Lane for F16Avx512 {
    type Wide = f32;
    const SIZE: usize = 2;

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn stage(src: *const u8, room: *mut f32, len: usize) -> *const u8 {
        const STEP: usize = 16;
        let whole = len - len % STEP;
        for i in (0..whole).step_by(STEP) {
            // SAFETY: the caller promises `len` readable elements, and `i + STEP <= len`.
            let from = unsafe { src.add(2 * i) };
            // SAFETY: as above.
            let half: __m256i = unsafe { _mm256_loadu_si256(from.cast()) };
            let value = _mm512_cvtph_ps(half);
            // SAFETY: `room` holds `len` elements.
            let to = unsafe { room.add(i) };
            // SAFETY: as above.
            unsafe { _mm512_storeu_ps(to, value) };
        }
        for i in whole..len {
            // SAFETY: the caller promises `len` readable elements.
            let value = widen_f16(unsafe { read_at(src, i) });
            // SAFETY: `room` holds `len` elements.
            unsafe { write_at(room.cast(), i, value) };
        }
        room.cast_const().cast()
    }

    #[inline(always)]
    unsafe fn read(staged: *const u8, i: usize) -> f32 {
        // SAFETY: `stage` has filled more than `i` elements.
        unsafe { read_at(staged, i) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn write(wide: *const f32, dst: *mut u8, len: usize) {
        const STEP: usize = 16;
        let whole = len - len % STEP;
        for i in (0..whole).step_by(STEP) {
            // SAFETY: the caller promises `len` readable elements, and `i + STEP <= len`.
            let from = unsafe { wide.add(i) };
            // SAFETY: as above.
            let value = unsafe { _mm512_loadu_ps(from) };
            let half = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(value);
            // SAFETY: the caller promises room for `len` elements.
            let to = unsafe { dst.add(2 * i) };
            // SAFETY: as above.
            unsafe { _mm256_storeu_si256(to.cast(), half) };
        }
        // SAFETY: the caller's promise covers the elements that are left.
        unsafe { write_rest(wide, dst, whole, len, narrow_f16) };
    }
}

/// bf16 rounded thirty-two at a time.
pub(super) struct Bf16Avx512;

impl Lane for Bf16Avx512 {
    type Wide = f32;
    const SIZE: usize = 2;

    #[inline(always)]
    unsafe fn read(staged: *const u8, i: usize) -> f32 {
        // SAFETY: the caller's promise is the same. Widening is a shift and needs no instruction
        // of its own.
        unsafe { Bf16::read(staged, i) }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512dq,avx512bf16")]
    unsafe fn write(wide: *const f32, dst: *mut u8, len: usize) {
        const STEP: usize = 32;
        /// The class of numbers that the instruction takes for zero, against KERNEL-1.
        const SUBNORMAL: i32 = 0x20;
        let whole = len - len % STEP;
        for i in (0..whole).step_by(STEP) {
            // SAFETY: the caller promises `len` readable elements, and `i + STEP <= len`.
            let from = unsafe { wide.add(i) };
            // SAFETY: as above.
            let low = unsafe { _mm512_loadu_ps(from) };
            // SAFETY: as above.
            let from = unsafe { from.add(STEP / 2) };
            // SAFETY: as above.
            let high = unsafe { _mm512_loadu_ps(from) };
            let subnormal = _mm512_fpclass_ps_mask::<SUBNORMAL>(low)
                | _mm512_fpclass_ps_mask::<SUBNORMAL>(high);
            if subnormal != 0 {
                // SAFETY: the caller's promise covers these elements.
                unsafe { write_rest(wide, dst, i, i + STEP, narrow_bf16) };
                continue;
            }
            let halves = as_bits(_mm512_cvtne2ps_pbh(high, low));
            // SAFETY: the caller promises room for `len` elements.
            let to = unsafe { dst.add(2 * i) };
            // SAFETY: as above.
            unsafe { _mm512_storeu_si512(to.cast(), halves) };
        }
        // SAFETY: the caller's promise covers the elements that are left.
        unsafe { write_rest(wide, dst, whole, len, narrow_bf16) };
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn as_bits(halves: __m512bh) -> __m512i {
    // SAFETY: both are 64 bytes without padding, and every bit pattern is a value of each.
    unsafe { std::mem::transmute::<__m512bh, __m512i>(halves) }
}
