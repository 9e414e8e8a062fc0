//! Typed slices become erased views: where generics end.
//!
//! A collective is generic over [`Element`] for its callers and works on a [`ReadView`] or a
//! [`WriteView`] from there on: an address, a count and an element type, under the lifetime of the
//! slice that they came from. Nothing here knows a rank, a group or a transport.
//!
//! - BUFFER-1: a view covers exactly `count * dtype.size()` bytes, and that product fits `usize`.
//! - BUFFER-2: a view made from a slice is aligned for its type; one made from raw parts need not be.
//! - BUFFER-3: a view never hands out a reference to the memory, because a region may be written by
//!   a peer at any moment. Values are copied out.
#![expect(
    unsafe_code,
    reason = "views hold raw addresses, because the memory may be shared with other processes"
)]

use std::fmt;
use std::marker::PhantomData;

use crate::types::DType;

mod sealed {
    /// Keeps [`super::Element`] to the types whose [`super::DType`] exists.
    #[expect(unnameable_types, reason = "nobody outside may implement it")]
    pub trait Sealed {}
}

/// A Rust type that a buffer may be made of.
///
/// Sealed: the kernels, the wire and the device know these twelve types and no others.
pub trait Element: bytemuck::Pod + PartialEq + fmt::Debug + Send + Sync + sealed::Sealed {
    /// The name under which kernels, frames and reports know the type.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident),* $(,)?) => {$(
        impl sealed::Sealed for $rust {}
        impl Element for $rust {
            const DTYPE: DType = DType::$dtype;
        }
        const _: () = assert!(size_of::<$rust>() == DType::$dtype.size());
    )*};
}

elements! {
    half::bf16 => Bf16,
    half::f16 => F16,
    f32 => F32,
    f64 => F64,
    i8 => I8,
    i16 => I16,
    i32 => I32,
    i64 => I64,
    u8 => U8,
    u16 => U16,
    u32 => U32,
    u64 => U64,
}

/// A view was asked for elements of another type than it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the buffer holds {holds} elements, not {asked}")]
pub struct WrongElement {
    /// The type of the elements in the buffer.
    pub holds: DType,
    /// The type that was asked for.
    pub asked: DType,
}

/// Elements that a call reads: a `&'a [T]` without its type parameter.
#[derive(Clone, Copy)]
pub struct ReadView<'a> {
    ptr: *const u8,
    count: usize,
    dtype: DType,
    owner: PhantomData<&'a [u8]>,
}

// SAFETY: `ptr` is the only field that is not `Send` by itself; it is read through only, and what
// it points to outlives `'a` and may be read from any thread, as with `&'a [T]`.
unsafe impl Send for ReadView<'_> {}
// SAFETY: as above: shared views only read, and every element type is `Sync`.
unsafe impl Sync for ReadView<'_> {}

/// Elements that a call writes: a `&'a mut [T]` without its type parameter.
pub struct WriteView<'a> {
    ptr: *mut u8,
    count: usize,
    dtype: DType,
    owner: PhantomData<&'a mut [u8]>,
}

// SAFETY: `ptr` is the only field that is not `Send` by itself; the view is the only way to the
// memory for `'a`, as with `&'a mut [T]`.
unsafe impl Send for WriteView<'_> {}
// SAFETY: through a shared view the memory can only be read, and every element type is `Sync`.
unsafe impl Sync for WriteView<'_> {}

impl<'a> ReadView<'a> {
    /// The view of a slice.
    #[must_use]
    pub fn new<T: Element>(slice: &'a [T]) -> Self {
        Self {
            ptr: slice.as_ptr().cast(),
            count: slice.len(),
            dtype: T::DTYPE,
            owner: PhantomData,
        }
    }

    /// A view of memory that is no slice: a peer's region, or a buffer handed in through C.
    ///
    /// # Safety
    /// - `ptr` is not null, and `count * dtype.size()` bytes from it lie in one mapping and stay
    ///   readable for `'a`. No alignment is asked for.
    /// - That product does not exceed `isize::MAX`.
    /// - Where another process writes the memory during `'a`, the caller's protocol keeps those
    ///   writes apart from reads through this view.
    #[must_use]
    pub unsafe fn from_raw(ptr: *const u8, count: usize, dtype: DType) -> Self {
        debug_assert!(!ptr.is_null(), "a view of nothing has a dangling address");
        debug_assert!(
            dtype.bytes(count).is_some(),
            "a view fits the address space"
        );
        Self {
            ptr,
            count,
            dtype,
            owner: PhantomData,
        }
    }

    /// Address of the first element.
    #[must_use]
    pub const fn as_ptr(&self) -> *const u8 {
        self.ptr
    }

    /// Number of elements.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Type of the elements.
    #[must_use]
    pub const fn dtype(&self) -> DType {
        self.dtype
    }

    /// Length in bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        // BUFFER-1 rules out overflow.
        self.count * self.dtype.size()
    }

    /// Whether the two views have a byte in common. Views without elements overlap nothing.
    #[must_use]
    pub fn overlaps(&self, other: ReadView<'_>) -> bool {
        let (mine, theirs) = (self.ptr.addr(), other.ptr.addr());
        self.count > 0
            && other.count > 0
            && mine < theirs + other.bytes()
            && theirs < mine + self.bytes()
    }

    /// Appends the bytes of the elements.
    pub(crate) fn append_to(&self, bytes: &mut Vec<u8>) {
        let begin = bytes.len();
        bytes.reserve(self.bytes());
        // SAFETY: the place lies in or at the end of the memory that was just reserved.
        let target = unsafe { bytes.as_mut_ptr().add(begin) };
        // SAFETY: the view's bytes are readable for `'a`, as many are reserved, and memory of a vector that is borrowed here
        // overlaps no view.
        unsafe { std::ptr::copy_nonoverlapping(self.ptr, target, self.bytes()) };
        // SAFETY: so many bytes were just written.
        unsafe { bytes.set_len(begin + self.bytes()) };
    }

    /// `count` elements from `start` on, or `None` where they are not all inside the view.
    #[must_use]
    pub fn part(&self, start: usize, count: usize) -> Option<Self> {
        let offset = part_offset(self.count, self.dtype, start, count)?;
        // SAFETY: `part_offset` placed the part inside this view, which one mapping holds.
        let ptr = unsafe { self.ptr.add(offset) };
        Some(Self {
            ptr,
            count,
            ..*self
        })
    }

    /// Address of the first element with its type; not necessarily aligned (BUFFER-2).
    ///
    /// # Errors
    /// [`WrongElement`] if the view holds another type.
    pub fn typed<T: Element>(&self) -> Result<*const T, WrongElement> {
        expect_element::<T>(self.dtype)?;
        Ok(self.ptr.cast())
    }

    /// A copy of the elements.
    ///
    /// # Errors
    /// [`WrongElement`] if the view holds another type.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>, WrongElement> {
        expect_element::<T>(self.dtype)?;
        let mut copy = vec![T::zeroed(); self.count];
        let target: *mut u8 = copy.as_mut_ptr().cast();
        // SAFETY: the view's bytes are readable for `'a`, `copy` has as many, and memory that was
        // just allocated overlaps nothing.
        unsafe { std::ptr::copy_nonoverlapping(self.ptr, target, self.bytes()) };
        Ok(copy)
    }
}

impl<'a> WriteView<'a> {
    /// The view of a slice.
    #[must_use]
    pub fn new<T: Element>(slice: &'a mut [T]) -> Self {
        Self {
            ptr: slice.as_mut_ptr().cast(),
            count: slice.len(),
            dtype: T::DTYPE,
            owner: PhantomData,
        }
    }

    /// A view of memory that is no slice: a peer's region, or a buffer handed in through C.
    ///
    /// # Safety
    /// - `ptr` is not null, and `count * dtype.size()` bytes from it lie in one mapping and stay
    ///   readable and writable for `'a`. No alignment is asked for.
    /// - That product does not exceed `isize::MAX`.
    /// - During `'a` nothing else in this process reads or writes the memory, save through views
    ///   that the same call was given in place; other processes do so only as the caller's protocol
    ///   allows.
    #[must_use]
    pub unsafe fn from_raw(ptr: *mut u8, count: usize, dtype: DType) -> Self {
        debug_assert!(!ptr.is_null(), "a view of nothing has a dangling address");
        debug_assert!(
            dtype.bytes(count).is_some(),
            "a view fits the address space"
        );
        Self {
            ptr,
            count,
            dtype,
            owner: PhantomData,
        }
    }

    /// Address of the first element, for reading.
    #[must_use]
    pub const fn as_ptr(&self) -> *const u8 {
        self.ptr
    }

    /// Address of the first element, for writing.
    #[must_use]
    pub const fn as_mut_ptr(&mut self) -> *mut u8 {
        self.ptr
    }

    /// Number of elements.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Type of the elements.
    #[must_use]
    pub const fn dtype(&self) -> DType {
        self.dtype
    }

    /// Length in bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        // BUFFER-1 rules out overflow.
        self.count * self.dtype.size()
    }

    /// The same elements, for reading, while this view is borrowed.
    #[must_use]
    pub const fn as_read(&self) -> ReadView<'_> {
        ReadView {
            ptr: self.ptr,
            count: self.count,
            dtype: self.dtype,
            owner: PhantomData,
        }
    }

    /// Copies these bytes into the view, which is as long.
    pub(crate) fn copy_from(&mut self, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.bytes(), "a view is filled whole");
        // SAFETY: the view's bytes are writable for `'a`, `bytes` has as many, and a slice that is borrowed here overlaps
        // no view for writing.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.ptr, bytes.len()) };
    }

    /// Whether the two views have a byte in common. Views without elements overlap nothing.
    #[must_use]
    pub fn overlaps(&self, other: ReadView<'_>) -> bool {
        self.as_read().overlaps(other)
    }

    /// `count` elements from `start` on, or `None` where they are not all inside the view.
    #[must_use]
    pub fn part(&mut self, start: usize, count: usize) -> Option<WriteView<'_>> {
        let offset = part_offset(self.count, self.dtype, start, count)?;
        // SAFETY: `part_offset` placed the part inside this view, which one mapping holds.
        let ptr = unsafe { self.ptr.add(offset) };
        Some(WriteView {
            ptr,
            count,
            dtype: self.dtype,
            owner: PhantomData,
        })
    }

    /// Address of the first element with its type; not necessarily aligned (BUFFER-2).
    ///
    /// # Errors
    /// [`WrongElement`] if the view holds another type.
    pub fn typed<T: Element>(&mut self) -> Result<*mut T, WrongElement> {
        expect_element::<T>(self.dtype)?;
        Ok(self.ptr.cast())
    }
}

impl<'a, T: Element> From<&'a [T]> for ReadView<'a> {
    fn from(slice: &'a [T]) -> Self {
        Self::new(slice)
    }
}

impl<'a, T: Element> From<&'a mut [T]> for WriteView<'a> {
    fn from(slice: &'a mut [T]) -> Self {
        Self::new(slice)
    }
}

impl fmt::Debug for ReadView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "ReadView({} x {} at {:p})",
            self.count, self.dtype, self.ptr
        )
    }
}

impl fmt::Debug for WriteView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "WriteView({} x {} at {:p})",
            self.count, self.dtype, self.ptr
        )
    }
}

fn expect_element<T: Element>(holds: DType) -> Result<(), WrongElement> {
    if holds == T::DTYPE {
        Ok(())
    } else {
        Err(WrongElement {
            holds,
            asked: T::DTYPE,
        })
    }
}

/// Where a part of a view of `whole` elements begins, in bytes, if it lies inside the view.
fn part_offset(whole: usize, dtype: DType, start: usize, count: usize) -> Option<usize> {
    let end = start.checked_add(count)?;
    (end <= whole).then(|| start * dtype.size())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_has_the_bytes_and_the_values_of_its_slice() {
        let slice = [1.5f32, -2.0, 3.25];
        let view = ReadView::new(&slice);
        assert_eq!((view.count(), view.bytes()), (3, 12));
        assert_eq!(view.dtype(), DType::F32);
        assert_eq!(view.to_vec::<f32>().unwrap(), slice);
        assert_eq!(
            view.to_vec::<i32>().unwrap_err().to_string(),
            "the buffer holds f32 elements, not i32"
        );
    }

    #[test]
    fn bytes_go_out_of_a_view_and_into_it() {
        let mut slice = [1u16, 2, 3];
        let mut bytes = vec![7];
        ReadView::new(&slice).append_to(&mut bytes);
        assert_eq!(bytes, [7, 1, 0, 2, 0, 3, 0]);
        WriteView::new(&mut slice).copy_from(&[9, 0, 8, 0, 0, 1]);
        assert_eq!(slice, [9, 8, 256]);
    }

    #[test]
    fn a_part_never_leaves_its_view() {
        let mut slice = [1u16, 2, 3, 4];
        let mut view = WriteView::new(&mut slice);
        let part = view.part(1, 2).unwrap();
        assert_eq!(part.as_read().to_vec::<u16>().unwrap(), [2, 3]);
        assert!(view.part(4, 0).is_some());
        assert!(view.part(3, 2).is_none());
        assert!(view.part(usize::MAX, 2).is_none());
    }

    #[test]
    fn views_overlap_exactly_when_they_share_a_byte() {
        let slice = [0u32; 8];
        let whole = ReadView::new(&slice);
        let part = |start, count| whole.part(start, count).unwrap();
        assert!(part(0, 4).overlaps(part(3, 1)));
        assert!(part(3, 1).overlaps(part(0, 8)));
        assert!(!part(0, 4).overlaps(part(4, 4)));
        assert!(!part(4, 4).overlaps(part(0, 4)));
        assert!(!part(2, 0).overlaps(whole));
    }
}
