//! The families of 64-bit Arm. Plain loops are left to the compiler; conversions of halves are written by hand, because no loop over plain
//! Rust becomes these instructions. Those of f16 are part of every such CPU, that to bf16 came with Armv8.6.
#![expect(
    unsafe_code,
    reason = "vector instructions work on raw memory and exist on some CPUs only"
)]

use std::arch::aarch64::{float32x4_t, uint16x8_t, vld1q_f32, vld1q_u16, vst1q_f32, vst1q_u16};
use std::arch::asm;

use super::half_bits::{narrow_bf16, narrow_f16, widen_f16};
use super::lane::{Bf16, Lane, read_at, write_at, write_rest};
use super::select::family;
use super::stream::BaseLines;

family!(
    /// 128-bit vectors.
    Neon, ["neon"], Bf16, F16Neon, BaseLines, Self
);
family!(
    /// 128-bit vectors with conversions to bf16.
    NeonBf16, ["neon,bf16"], Bf16Neon, F16Neon, BaseLines, Neon
);

/// Elements that are converted at a time.
const STEP: usize = 8;

/// f16 converted eight at a time.
pub(super) struct F16Neon;

impl Lane for F16Neon {
    type Wide = f32;
    const SIZE: usize = 2;

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn stage(src: *const u8, room: *mut f32, len: usize) -> *const u8 {
        let whole = len - len % STEP;
        for i in (0..whole).step_by(STEP) {
            // SAFETY: the caller promises `len` readable elements, and `i + STEP <= len`.
            let from = unsafe { src.add(2 * i) };
            // SAFETY: as above; the load needs no alignment.
            let halves = unsafe { vld1q_u16(from.cast()) };
            let [low, high] = widened(halves);
            // SAFETY: `room` holds `len` elements.
            let to = unsafe { room.add(i) };
            // SAFETY: as above.
            unsafe { vst1q_f32(to, low) };
            // SAFETY: as above.
            let to = unsafe { to.add(STEP / 2) };
            // SAFETY: as above.
            unsafe { vst1q_f32(to, high) };
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
    #[target_feature(enable = "neon")]
    unsafe fn write(wide: *const f32, dst: *mut u8, len: usize) {
        // SAFETY: the caller's promise is the same.
        unsafe { write_by(wide, dst, len, |low, high| narrowed(low, high), narrow_f16) };
    }
}

/// bf16 rounded eight at a time.
pub(super) struct Bf16Neon;

impl Lane for Bf16Neon {
    type Wide = f32;
    const SIZE: usize = 2;

    #[inline(always)]
    unsafe fn read(staged: *const u8, i: usize) -> f32 {
        // SAFETY: the caller's promise is the same. Widening is a shift and needs no instruction
        // of its own.
        unsafe { Bf16::read(staged, i) }
    }

    #[inline]
    #[target_feature(enable = "neon,bf16")]
    unsafe fn write(wide: *const f32, dst: *mut u8, len: usize) {
        // SAFETY: the caller's promise is the same.
        unsafe { write_by(wide, dst, len, |low, high| rounded(low, high), narrow_bf16) };
    }
}

/// Stores `len` halves: eight at a time by `eight`, and the rest by `one`.
///
/// # Safety
/// As [`Lane::write`].
#[inline(always)]
unsafe fn write_by(
    wide: *const f32,
    dst: *mut u8,
    len: usize,
    eight: impl Fn(float32x4_t, float32x4_t) -> uint16x8_t,
    one: impl Fn(f32) -> u16,
) {
    let whole = len - len % STEP;
    for i in (0..whole).step_by(STEP) {
        // SAFETY: the caller promises `len` readable elements, and `i + STEP <= len`.
        let [low, high] = unsafe { load(wide, i) };
        // SAFETY: the caller promises room for `len` elements.
        unsafe { store(dst, i, eight(low, high)) };
    }
    // SAFETY: the caller's promise covers the elements that are left.
    unsafe { write_rest(wide, dst, whole, len, one) };
}

/// Eight f16 as f32. The names of these instructions in Rust are newer than the oldest compiler that muster takes.
#[inline]
#[target_feature(enable = "neon")]
fn widened(halves: uint16x8_t) -> [float32x4_t; 2] {
    let (low, high);
    // SAFETY: it computes, and touches neither memory nor flags.
    unsafe {
        asm!(
            "fcvtl {low:v}.4s, {halves:v}.4h",
            "fcvtl2 {high:v}.4s, {halves:v}.8h",
            low = out(vreg) low,
            high = lateout(vreg) high,
            halves = in(vreg) halves,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    [low, high]
}

/// The f16 nearest to eight f32.
#[inline]
#[target_feature(enable = "neon")]
fn narrowed(low: float32x4_t, high: float32x4_t) -> uint16x8_t {
    let halves;
    // SAFETY: as in `widened`.
    unsafe {
        asm!(
            "fcvtn {halves:v}.4h, {low:v}.4s",
            "fcvtn2 {halves:v}.8h, {high:v}.4s",
            halves = out(vreg) halves,
            low = in(vreg) low,
            high = in(vreg) high,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    halves
}

/// The bf16 nearest to eight f32.
#[inline]
#[target_feature(enable = "neon,bf16")]
fn rounded(low: float32x4_t, high: float32x4_t) -> uint16x8_t {
    let halves;
    // SAFETY: as in `widened`.
    unsafe {
        asm!(
            "bfcvtn {halves:v}.4h, {low:v}.4s",
            "bfcvtn2 {halves:v}.8h, {high:v}.4s",
            halves = out(vreg) halves,
            low = in(vreg) low,
            high = in(vreg) high,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    halves
}

/// Eight f32 from element `i` on.
///
/// # Safety
/// - `wide` is readable for `i + STEP` elements.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn load(wide: *const f32, i: usize) -> [float32x4_t; 2] {
    // SAFETY: the caller's promise.
    let from = unsafe { wide.add(i) };
    // SAFETY: as above.
    let low = unsafe { vld1q_f32(from) };
    // SAFETY: as above.
    let from = unsafe { from.add(STEP / 2) };
    // SAFETY: as above.
    [low, unsafe { vld1q_f32(from) }]
}

/// Stores eight halves as elements from `i` on.
///
/// # Safety
/// - `dst` is writable for `i + STEP` elements.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn store(dst: *mut u8, i: usize, halves: uint16x8_t) {
    // SAFETY: the caller's promise.
    let to = unsafe { dst.add(2 * i) };
    // SAFETY: as above; the store needs no alignment.
    unsafe { vst1q_u16(to.cast(), halves) };
}
