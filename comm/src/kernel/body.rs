//! The one reduction loop, generic over element type and operation.
//!
//! It holds no vector instruction. `select.rs` compiles it once for each family of instructions,
//! and the compiler turns its inner loops into vector code. For that each inner loop is as plain
//! as possible and works on a block of results that lives on the stack, where nothing else can
//! point, so that no question of overlap is left: `dst` may be one of the sources.
//!
//! - BODY-1: all sources of a block are read before its results are stored.
//! - BODY-2: each result is `((src0 op src1) op src2) ...`, whatever the block size.
#![expect(
    unsafe_code,
    reason = "sources and destination are memory that other processes share"
)]

use std::mem::MaybeUninit;
use std::ptr;

use super::lane::{Lane, read_at, write_at};
use super::number::{Fold, Number};
use super::stream::{self, Lines};

/// Stored bytes of a block. So few that the stores to one destination come close behind those to the
/// next: bursts of kilobytes take up to twice as long where memory is the limit. Whole cache lines.
const BLOCK_BYTES: usize = 256;
/// Most elements of a block.
const BLOCK: usize = BLOCK_BYTES;
/// What a store around the cache should fill.
const LINE: usize = 64;

/// One reduction: what [`super::reduce_n`] was asked for, less the types.
pub(super) struct Task<'a> {
    /// The sources in the order of the reduction; at least one.
    pub(super) srcs: &'a [*const u8],
    /// Where the results go.
    pub(super) dsts: &'a [*mut u8],
    /// Where they go as well, around the cache.
    pub(super) streamed: &'a [*mut u8],
    /// Elements in each source and in each place of results.
    pub(super) count: usize,
    /// What the results are divided by before they are rounded; not zero.
    pub(super) divisor: Option<u32>,
}

/// A block of wide elements on the stack, aligned to a cache line.
#[repr(align(64))]
struct Block<T>([MaybeUninit<T>; BLOCK]);

impl<T: Copy> Block<T> {
    #[inline(always)]
    const fn new() -> Self {
        Self([MaybeUninit::uninit(); BLOCK])
    }

    #[inline(always)]
    const fn start(&mut self) -> *mut T {
        self.0.as_mut_ptr().cast()
    }
}

/// Reduces all sources into every destination.
///
/// # Safety
/// - Every source is readable and every destination writable for `count` stored elements.
/// - Each destination is one of the sources or overlaps none.
/// - The CPU has the instructions that the lane was made for.
#[inline(always)]
pub(super) unsafe fn reduce<L: Lane, F: Fold, S: Lines>(task: &Task<'_>) {
    let mut rooms = [Block::<L::Wide>::new(), Block::new(), Block::new()];
    let [results, first, second] = &mut rooms;
    let rooms = [results.start(), first.start(), second.start()];
    let block = BLOCK_BYTES / L::SIZE;

    let mut start = lead::<L>(task);
    if start > 0 {
        // SAFETY: the caller's promise; the block is shorter than a whole one.
        unsafe { reduce_block::<L, F, S>(task, 0, start, rooms) };
    }
    // A length that the compiler knows, in the loop where the time goes.
    while task.count - start >= block {
        // SAFETY: the caller's promise.
        unsafe { reduce_block::<L, F, S>(task, start, block, rooms) };
        start += block;
    }
    if start < task.count {
        // SAFETY: as above; what is left is shorter than a block.
        unsafe { reduce_block::<L, F, S>(task, start, task.count - start, rooms) };
    }
    if !task.streamed.is_empty() {
        stream::fence();
    }
}

/// Elements up to the first cache line that begins in the first streamed destination; fewer than a
/// block.
#[inline(always)]
fn lead<L: Lane>(task: &Task<'_>) -> usize {
    let Some(first) = task.streamed.first() else {
        return 0;
    };
    let bytes = first.addr().wrapping_neg() % LINE;
    if bytes.is_multiple_of(L::SIZE) {
        (bytes / L::SIZE).min(task.count)
    } else {
        0
    }
}

/// Reduces `len` elements from `start` on.
///
/// # Safety
/// - As [`reduce`], for those elements; `len` is at most the elements of a block.
/// - `rooms` are distinct local blocks.
#[inline(always)]
unsafe fn reduce_block<L: Lane, F: Fold, S: Lines>(
    task: &Task<'_>,
    start: usize,
    len: usize,
    rooms: [*mut L::Wide; 3],
) {
    let [results, first, second] = rooms;
    let offset = start * L::SIZE;
    // SAFETY: the block lies inside the sources, which the caller promises; the rooms are local and
    // hold BLOCK elements.
    unsafe { fold_block::<L, F>(task.srcs, offset, len, results, [first, second]) };
    if let Some(divisor) = task.divisor {
        // SAFETY: `fold_block` has filled `len` elements of `results`.
        unsafe { divide(results, len, divisor) };
    }
    if let ([dst], []) = (task.dsts, task.streamed) {
        // SAFETY: the block lies inside the destination, which the caller promises.
        let dst = unsafe { dst.add(offset) };
        // SAFETY: `results` is a local array with `len` filled elements, apart from everything.
        unsafe { L::write(results, dst, len) };
    } else {
        // SAFETY: as above; `first` holds a block, which has been read by now.
        unsafe { spread::<L, S>(results, first, task, offset, len) };
    }
}

/// Stores one block of results in every destination.
///
/// # Safety
/// - `results` holds `len` filled elements; `room` holds a block. Both are local.
/// - Every destination is writable for `len` stored elements from byte `offset` on.
/// - The CPU has the instructions that the lane was made for.
#[inline(always)]
unsafe fn spread<L: Lane, S: Lines>(
    results: *mut L::Wide,
    room: *mut L::Wide,
    task: &Task<'_>,
    offset: usize,
    len: usize,
) {
    let stored: *const u8 = if L::SIZE == size_of::<L::Wide>() {
        results.cast_const().cast()
    } else {
        // SAFETY: stored elements are not larger than wide ones, so `room` has room for `len`.
        unsafe { L::write(results, room.cast(), len) };
        room.cast_const().cast()
    };
    let bytes = len * L::SIZE;
    for dst in task.dsts {
        // SAFETY: the block lies inside every destination, which the caller promises.
        let dst = unsafe { dst.add(offset) };
        // SAFETY: as above; `stored` is local and holds `bytes` bytes.
        unsafe { ptr::copy_nonoverlapping(stored, dst, bytes) };
    }
    for dst in task.streamed {
        // SAFETY: as above.
        let dst = unsafe { dst.add(offset) };
        if dst.addr().is_multiple_of(LINE) && bytes.is_multiple_of(LINE) {
            // SAFETY: as above: whole lines.
            unsafe { S::copy(dst, stored, bytes) };
        } else {
            // SAFETY: as above.
            unsafe { ptr::copy_nonoverlapping(stored, dst, bytes) };
        }
    }
}

/// Folds one block of all sources into `results`.
///
/// # Safety
/// - Every source is readable for `len` stored elements from byte `offset` on; `len` is at most
///   [`BLOCK`].
/// - `results` and `rooms` are distinct local blocks.
/// - The CPU has the instructions that the lane was made for.
#[inline(always)]
unsafe fn fold_block<L: Lane, F: Fold>(
    srcs: &[*const u8],
    offset: usize,
    len: usize,
    results: *mut L::Wide,
    rooms: [*mut L::Wide; 2],
) {
    let at = |src: *const u8, room: usize| {
        // SAFETY: the caller promises that the block lies inside every source.
        let block = unsafe { src.add(offset) };
        // SAFETY: as above, and `rooms` hold a block each.
        unsafe { L::stage(block, rooms[room], len) }
    };
    let mut rest = match srcs {
        [] => return,
        [only] => {
            let from = [at(*only, 0)];
            // SAFETY: `from` was staged with `len` just now; `results` holds a block.
            unsafe { pass::<L, F, 1, true>(results, from, len) };
            return;
        }
        [one, two, rest @ ..] => {
            let from = [at(*one, 0), at(*two, 1)];
            // SAFETY: as above.
            unsafe { pass::<L, F, 2, true>(results, from, len) };
            rest
        }
    };
    // Two sources at a time, which halves the traffic to and from `results`.
    while let [one, two, more @ ..] = rest {
        let from = [at(*one, 0), at(*two, 1)];
        // SAFETY: as above, and the first pass has filled `len` elements of `results`.
        unsafe { pass::<L, F, 2, false>(results, from, len) };
        rest = more;
    }
    if let [last] = rest {
        let from = [at(*last, 0)];
        // SAFETY: as above.
        unsafe { pass::<L, F, 1, false>(results, from, len) };
    }
}

/// Folds `N` sources, in order, onto the results or, the first time, into them.
///
/// # Safety
/// - `from` was staged for `len` elements and still stands.
/// - `results` holds `len` elements, which are filled unless this is the first pass.
#[inline(always)]
unsafe fn pass<L: Lane, F: Fold, const N: usize, const FIRST: bool>(
    results: *mut L::Wide,
    from: [*const u8; N],
    len: usize,
) {
    for i in 0..len {
        let start = if FIRST {
            from[0]
        } else {
            results.cast_const().cast()
        };
        let mut value = if FIRST {
            // SAFETY: the caller promises that `from` was staged for `len` elements.
            unsafe { L::read(start, i) }
        } else {
            // SAFETY: the caller promises that `results` holds `len` filled elements.
            unsafe { read_at(start, i) }
        };
        for src in &from[usize::from(FIRST)..] {
            // SAFETY: as for the first source.
            value = F::fold(value, unsafe { L::read(*src, i) });
        }
        // SAFETY: the caller promises that `results` holds `len` elements.
        unsafe { write_at(results.cast(), i, value) };
    }
}

/// Divides every result.
///
/// # Safety
/// - `results` holds `len` filled elements.
#[inline(always)]
unsafe fn divide<T: Number>(results: *mut T, len: usize, divisor: u32) {
    for i in 0..len {
        // SAFETY: the caller promises `len` filled elements.
        let sum: T = unsafe { read_at(results.cast_const().cast(), i) };
        // SAFETY: as above.
        unsafe { write_at(results.cast(), i, sum.divide(divisor)) };
    }
}

/// Converts stored elements to the type that reductions compute in.
///
/// # Safety
/// - `src` is readable for `count` stored elements, `dst` writable for as many wide ones, and the
///   two are apart.
/// - The CPU has the instructions that the lane was made for.
#[inline(always)]
pub(super) unsafe fn widen<L: Lane>(src: *const u8, dst: *mut u8, count: usize) {
    let mut results = Block::<L::Wide>::new();
    let results = results.start();
    let mut start = 0;
    while start < count {
        let len = BLOCK.min(count - start);
        // SAFETY: the block lies inside the source, which the caller promises.
        let from = unsafe { src.add(start * L::SIZE) };
        // SAFETY: the block lies inside the destination, which the caller promises.
        let to = unsafe { dst.add(start * size_of::<L::Wide>()) };
        // SAFETY: as above; `results` is a local block.
        let staged = unsafe { L::stage(from, results, len) };
        for i in 0..len {
            // SAFETY: `staged` stands for `len` elements.
            let value = unsafe { L::read(staged, i) };
            // SAFETY: `to` has room for `len` wide elements.
            unsafe { write_at(to, i, value) };
        }
        start += len;
    }
}

/// Rounds wide elements to the form in which they are stored.
///
/// # Safety
/// - `src` is readable for `count` wide elements, `dst` writable for as many stored ones, and the
///   two are apart.
/// - The CPU has the instructions that the lane was made for.
#[inline(always)]
pub(super) unsafe fn narrow<L: Lane>(src: *const u8, dst: *mut u8, count: usize) {
    let mut wide = Block::<L::Wide>::new();
    let wide = wide.start();
    let mut start = 0;
    while start < count {
        let len = BLOCK.min(count - start);
        let bytes = len * size_of::<L::Wide>();
        // SAFETY: the block lies inside the source, which the caller promises.
        let from = unsafe { src.add(start * size_of::<L::Wide>()) };
        // SAFETY: as above; `wide` is a local block. The copy aligns what may be unaligned.
        unsafe { super::copy(wide.cast(), from, bytes) };
        // SAFETY: the block lies inside the destination, which the caller promises.
        let to = unsafe { dst.add(start * L::SIZE) };
        // SAFETY: `wide` holds `len` elements, apart from everything.
        unsafe { L::write(wide, to, len) };
        start += len;
    }
}
