//! Copies chosen by what becomes of the bytes: through the cache, by the CPU's own string copy, or
//! around the cache.
//!
//! - STREAM-C1: what went around the cache is in order with later stores only after [`fence`], so that
//!   is called before anything says that the bytes are there.
#![expect(unsafe_code, reason = "special instructions that work on raw memory")]

/// A cache line, which stores around the cache should fill whole.
const LINE: usize = 64;
/// From this many bytes on the string copy is worth its start-up.
pub(super) const STRING_FROM: usize = 2 << 10;
/// The CPU compares places by their offsets in pages of this size.
#[cfg(target_arch = "x86_64")]
const PAGE: usize = 4096;

/// Whether the CPU's string copy is fast (and, for long copies, does not fetch what it overwrites).
#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) fn has_fast_strings() -> bool {
    use std::sync::OnceLock;
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        let leaf = std::arch::x86_64::__cpuid_count(7, 0);
        // "Enhanced REP MOVSB", bit 9 of EBX.
        leaf.ebx & (1 << 9) != 0
    })
}

/// Whether the string copy is slow for these addresses: the target begins a little behind the source within their pages, so
/// that the CPU takes what it loads for what it has just stored. That is so for buffers of equal size from one heap, and where
/// a page is copied into large memory from `malloc`, which begins 16 bytes into a page. On an AMD EPYC such a copy of 16 KiB
/// takes 5.3 us instead of 0.26 us where the distance is 1 to 31 bytes.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) fn is_slow_string(dst: usize, src: usize) -> bool {
    (1..LINE).contains(&(dst.wrapping_sub(src) % PAGE))
}

/// Copies through vector registers: for what the string copy is slow for.
///
/// # Safety
/// - `src` is readable and `dst` writable for `bytes` bytes, and the two do not overlap.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
pub(super) unsafe fn vector_copy(dst: *mut u8, src: *const u8, bytes: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_storeu_si128};
    const VECTOR: usize = size_of::<__m128i>();
    let lines = bytes / LINE * LINE;
    for at in (0..lines).step_by(LINE) {
        let (from, to) = (src.wrapping_add(at), dst.wrapping_add(at));
        // SAFETY: a whole line at `at` lies in both ranges, and neither access needs an alignment.
        let line: [__m128i; LINE / VECTOR] = std::array::from_fn(|one| unsafe {
            _mm_loadu_si128(from.wrapping_add(one * VECTOR).cast())
        });
        for (one, vector) in line.into_iter().enumerate() {
            // SAFETY: as above.
            unsafe { _mm_storeu_si128(to.wrapping_add(one * VECTOR).cast(), vector) };
        }
    }
    let (from, to) = (src.wrapping_add(lines), dst.wrapping_add(lines));
    // SAFETY: what is left, less than a line, lies in both ranges.
    unsafe { std::ptr::copy_nonoverlapping(from, to, bytes - lines) };
}

/// The string copy.
///
/// # Safety
/// - `src` is readable and `dst` writable for `bytes` bytes, and the two do not overlap.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) unsafe fn string_copy(dst: *mut u8, src: *const u8, bytes: usize) {
    // SAFETY: the caller promises both ranges; the direction flag is clear at every call, by the
    // calling convention, so that the copy runs upwards.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") bytes => _,
            inout("rdi") dst => _,
            inout("rsi") src => _,
            options(nostack, preserves_flags),
        );
    }
}

/// Copies around the cache; to be followed by [`fence`] (STREAM-C1).
///
/// # Safety
/// - `src` is readable and `dst` writable for `bytes` bytes, and the two do not overlap.
#[inline]
pub(super) unsafe fn copy(dst: *mut u8, src: *const u8, bytes: usize) {
    let head = (dst.addr().wrapping_neg() % LINE).min(bytes);
    let lines = (bytes - head) / LINE * LINE;
    // SAFETY: `head` lies in both ranges.
    unsafe { std::ptr::copy_nonoverlapping(src, dst, head) };
    // SAFETY: as does what follows.
    let from = unsafe { src.add(head) };
    // SAFETY: as above.
    let to = unsafe { dst.add(head) };
    let copy_lines = super::select::lines(super::Isa::best());
    // SAFETY: whole lines that lie in both ranges; `to` begins one, unless there is none. The CPU has
    // the best instructions that it has.
    unsafe { copy_lines(from, to, lines) };
    // SAFETY: what is left lies in both ranges.
    let from = unsafe { from.add(lines) };
    // SAFETY: as above.
    let to = unsafe { to.add(lines) };
    // SAFETY: as above.
    unsafe { std::ptr::copy_nonoverlapping(from, to, bytes - head - lines) };
}

/// How whole lines go around the cache.
pub(super) trait Lines {
    /// Copies whole lines around the cache; to be followed by [`fence`] (STREAM-C1).
    ///
    /// # Safety
    /// - As [`copy`]; `bytes` is a multiple of a line, and if there are any, `dst` begins one.
    /// - The CPU has the instructions that this was made for.
    unsafe fn copy(dst: *mut u8, src: *const u8, bytes: usize);
}

/// With what every CPU of the target has.
pub(super) struct BaseLines;

impl Lines for BaseLines {
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn copy(dst: *mut u8, src: *const u8, bytes: usize) {
        use std::arch::x86_64::{_mm_loadu_si128, _mm_stream_si128};
        const VECTOR: usize = 16;
        for at in (0..bytes).step_by(VECTOR) {
            // SAFETY: the caller promises both ranges.
            let from = unsafe { src.add(at) };
            // SAFETY: as above; the load needs no alignment.
            let vector = unsafe { _mm_loadu_si128(from.cast()) };
            // SAFETY: as above.
            let to = unsafe { dst.add(at) };
            // SAFETY: `to` is aligned, since `dst` begins a line.
            unsafe { _mm_stream_si128(to.cast(), vector) };
        }
    }

    /// Other targets have no portable way around the cache.
    #[cfg(not(target_arch = "x86_64"))]
    #[inline(always)]
    unsafe fn copy(dst: *mut u8, src: *const u8, bytes: usize) {
        // SAFETY: the caller promises both ranges and that they are apart.
        unsafe { std::ptr::copy_nonoverlapping(src, dst, bytes) };
    }
}

/// Orders what [`copy`] stored before all later stores.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) fn fence() {
    // SAFETY: every x86-64 has SSE.
    unsafe { std::arch::x86_64::_mm_sfence() };
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(super) fn has_fast_strings() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(super) fn is_slow_string(_: usize, _: usize) -> bool {
    false
}

/// No other target needs one.
///
/// # Safety
/// As for the copy that stands in.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(super) unsafe fn vector_copy(dst: *mut u8, src: *const u8, bytes: usize) {
    // SAFETY: the caller promises both ranges and that they are apart.
    unsafe { std::ptr::copy_nonoverlapping(src, dst, bytes) };
}

/// No other target has one.
///
/// # Safety
/// As for the copy that stands in.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(super) unsafe fn string_copy(dst: *mut u8, src: *const u8, bytes: usize) {
    // SAFETY: the caller promises both ranges and that they are apart.
    unsafe { std::ptr::copy_nonoverlapping(src, dst, bytes) };
}

/// Nothing to order.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(super) fn fence() {}
