//! Device memory: typed buffers, and parts of them.
//!
//! The processor never reads or writes device memory directly: there are no references to it, only
//! copies in and out. So several handles to one buffer are no aliasing in the sense of the
//! language; what they can be is a race on the device, which the order of a stream rules out.
//!
//! - `HELD-1`: work that was given to the device holds the buffers that it uses; a buffer is
//!   freed when its last handle is gone *and* the work that uses it has ended.
//! - `HELD-2`: where that end is uncertain the memory is left to the device and counted
//!   ([`super::Leaks`]).

use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use super::error::DeviceError;
use super::leaks;
use super::library::Device;
use super::stream::{Stream, Transfer};
use super::vendor_call::{Handle, Way};
use crate::buffer::Element;

/// Smallest allocation: a buffer without elements has an address too, since some calls want one.
const BYTES_MIN: usize = 64;

/// Memory of a device, owned.
#[derive(Debug)]
pub(crate) struct Storage {
    device: Device,
    address: Handle,
    bytes: usize,
}

impl Storage {
    pub(crate) fn new(device: &Device, bytes: usize) -> Result<Arc<Self>, DeviceError> {
        let _here = device.enter()?;
        let bytes = bytes.max(BYTES_MIN);
        let address = device.calls().malloc(bytes)?;
        Ok(Arc::new(Self {
            device: device.clone(),
            address,
            bytes,
        }))
    }

    pub(crate) fn address(&self) -> Handle {
        self.address
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        let freed = self.device.enter().and_then(|_here| {
            // SAFETY: the address is ours and is freed here only; work on the device holds the
            // storage, so there is none left (HELD-1).
            unsafe { self.device.calls().free(self.address) }
        });
        if freed.is_err() {
            leaks::count_buffer(self.bytes);
        }
    }
}

/// A part of a device buffer: `count` elements from some place on. Cheap to clone.
///
/// The memory lives as long as any part of it, and any work that uses it.
#[derive(Debug)]
pub struct DeviceSlice<T> {
    storage: Arc<Storage>,
    first: usize,
    count: usize,
    element: PhantomData<fn() -> T>,
}

impl<T> Clone for DeviceSlice<T> {
    fn clone(&self) -> Self {
        Self {
            storage: Arc::clone(&self.storage),
            first: self.first,
            count: self.count,
            element: PhantomData,
        }
    }
}

/// Device memory for `count` elements of `T`; dereferences to the [`DeviceSlice`] of all of it.
#[derive(Debug)]
pub struct DeviceBuffer<T> {
    whole: DeviceSlice<T>,
}

impl<T> std::ops::Deref for DeviceBuffer<T> {
    type Target = DeviceSlice<T>;

    fn deref(&self) -> &DeviceSlice<T> {
        &self.whole
    }
}

impl<T: Element> DeviceBuffer<T> {
    /// Allocates `count` elements. Their content is undefined.
    ///
    /// # Errors
    /// `InvalidArgument` where the bytes exceed the address space; out of memory as the vendor's
    /// error.
    pub fn new(device: &Device, count: usize) -> Result<Self, DeviceError> {
        let bytes = T::DTYPE
            .bytes(count)
            .filter(|bytes| isize::try_from(*bytes).is_ok());
        let Some(bytes) = bytes else {
            return Err(DeviceError::InvalidArgument {
                what: "the length of a device buffer".to_owned(),
                got: format!("{count} elements"),
                want: format!("at most {} bytes", isize::MAX),
            });
        };
        Ok(Self {
            whole: DeviceSlice {
                storage: Storage::new(device, bytes)?,
                first: 0,
                count,
                element: PhantomData,
            },
        })
    }

    /// Allocates room for the elements of `source` and copies them there.
    ///
    /// # Errors
    /// As [`DeviceBuffer::new`] and [`DeviceSlice::copy_from`].
    pub fn from_slice(device: &Device, source: &[T]) -> Result<Self, DeviceError> {
        let buffer = Self::new(device, source.len())?;
        buffer.copy_from(source)?;
        Ok(buffer)
    }
}

impl<T: Element> DeviceSlice<T> {
    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether it has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The device that has the memory.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.storage.device
    }

    /// The elements in `range`, as a part of the same memory.
    ///
    /// # Panics
    /// Where the range is not inside, as a slice of the language does.
    #[must_use]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Self {
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(last) => last.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => self.count,
        };
        assert!(start <= end, "a part begins before it ends: {start}..{end}");
        assert!(
            end <= self.count,
            "a part of {} elements: {start}..{end}",
            self.count
        );
        Self {
            storage: Arc::clone(&self.storage),
            first: self.first + start,
            count: end - start,
            element: PhantomData,
        }
    }

    /// Whether two parts have an element in common.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.storage, &other.storage)
            && self.count > 0
            && other.count > 0
            && self.first < other.first + other.count
            && other.first < self.first + self.count
    }

    /// Copies from host memory, and waits for the copy. It waits for nothing else: work of a stream
    /// that uses this memory must have ended before.
    ///
    /// # Errors
    /// `InvalidArgument` where the lengths differ; else as the vendor says.
    pub fn copy_from(&self, source: &[T]) -> Result<(), DeviceError> {
        self.check_len("the source of a copy", source.len())?;
        if source.is_empty() {
            return Ok(());
        }
        let _here = self.device().enter()?;
        let from = source.as_ptr().expose_provenance();
        // SAFETY: both ranges hold `bytes` bytes and live through the call; they lie in different
        // memories.
        unsafe {
            self.calls()
                .copy(self.address(), from, self.bytes(), Way::HostToDevice)
        }
    }

    /// Copies to host memory, and waits for the copy, as [`DeviceSlice::copy_from`] does.
    ///
    /// # Errors
    /// As [`DeviceSlice::copy_from`].
    pub fn copy_to(&self, target: &mut [T]) -> Result<(), DeviceError> {
        self.check_len("the target of a copy", target.len())?;
        if target.is_empty() {
            return Ok(());
        }
        let _here = self.device().enter()?;
        let to = target.as_mut_ptr().expose_provenance();
        // SAFETY: both ranges hold `bytes` bytes and live through the call; any bytes are a value
        // of an element.
        unsafe {
            self.calls()
                .copy(to, self.address(), self.bytes(), Way::DeviceToHost)
        }
    }

    /// The elements, copied to the host.
    ///
    /// # Errors
    /// As [`DeviceSlice::copy_to`].
    pub fn to_vec(&self) -> Result<Vec<T>, DeviceError> {
        let mut copy = vec![T::zeroed(); self.count];
        self.copy_to(&mut copy)?;
        Ok(copy)
    }

    /// Enqueues a copy from host memory, which moves into the transfer and comes back from it.
    ///
    /// # Errors
    /// As [`DeviceSlice::copy_from`].
    pub fn copy_from_async(
        &self,
        source: Vec<T>,
        stream: &Stream,
    ) -> Result<Transfer<T>, DeviceError> {
        self.check_len("the source of a copy", source.len())?;
        self.check_stream(stream)?;
        let from = source.as_ptr().expose_provenance();
        Transfer::enqueue(stream, source, self.storage(), |calls, stream| {
            // SAFETY: the transfer holds the host memory and the storage until the stream is past
            // the copy, or leaves both to the device.
            unsafe {
                calls.copy_async(
                    self.address(),
                    from,
                    self.bytes(),
                    Way::HostToDevice,
                    stream,
                )
            }
        })
    }

    /// Enqueues a copy to host memory; [`Transfer::wait`] gives the elements.
    ///
    /// # Errors
    /// As [`DeviceSlice::copy_to`].
    pub fn copy_to_async(&self, stream: &Stream) -> Result<Transfer<T>, DeviceError> {
        self.check_stream(stream)?;
        let mut target = vec![T::zeroed(); self.count];
        let to = target.as_mut_ptr().expose_provenance();
        Transfer::enqueue(stream, target, self.storage(), |calls, stream| {
            // SAFETY: the transfer holds the host memory and the storage until the stream is past
            // the copy, or leaves both to the device; nobody reads the host memory before.
            unsafe { calls.copy_async(to, self.address(), self.bytes(), Way::DeviceToHost, stream) }
        })
    }

    /// Enqueues a copy from other memory of the same device.
    ///
    /// # Errors
    /// `InvalidArgument` where lengths differ or the two overlap; else as the vendor says.
    pub fn copy_from_device(&self, source: &Self, stream: &Stream) -> Result<(), DeviceError> {
        self.check_len("the source of a copy", source.len())?;
        self.check_stream(stream)?;
        if self.overlaps(source) {
            return Err(DeviceError::InvalidArgument {
                what: "the source of a copy".to_owned(),
                got: "memory that overlaps its target".to_owned(),
                want: "memory apart from it".to_owned(),
            });
        }
        if self.is_empty() {
            return Ok(());
        }
        stream.enqueue(vec![self.storage(), source.storage()], |calls, stream| {
            // SAFETY: the stream holds both storages until it is past the copy.
            unsafe {
                calls.copy_async(
                    self.address(),
                    source.address(),
                    self.bytes(),
                    Way::DeviceToDevice,
                    stream,
                )
            }
        })
    }

    /// Sets every byte, and waits for it, as [`DeviceSlice::copy_from`] does.
    ///
    /// # Errors
    /// As the vendor says.
    pub fn fill_bytes(&self, value: u8) -> Result<(), DeviceError> {
        if self.is_empty() {
            return Ok(());
        }
        let _here = self.device().enter()?;
        // SAFETY: the range is ours.
        unsafe { self.calls().fill(self.address(), value, self.bytes()) }
    }

    /// Address of the first element on the device.
    #[must_use]
    pub(crate) fn address(&self) -> Handle {
        self.storage.address() + self.first * T::DTYPE.size()
    }

    pub(crate) fn storage(&self) -> Arc<Storage> {
        Arc::clone(&self.storage)
    }

    fn bytes(&self) -> usize {
        self.count * T::DTYPE.size()
    }

    fn calls(&self) -> &super::library::RuntimeCalls {
        self.storage.device.calls()
    }

    fn check_len(&self, what: &str, got: usize) -> Result<(), DeviceError> {
        if got == self.count {
            return Ok(());
        }
        Err(DeviceError::InvalidArgument {
            what: what.to_owned(),
            got: format!("{got} elements"),
            want: format!("{} elements", self.count),
        })
    }

    fn check_stream(&self, stream: &Stream) -> Result<(), DeviceError> {
        let (mine, its) = (self.device().logical_id(), stream.device().logical_id());
        if mine == its {
            return Ok(());
        }
        Err(DeviceError::InvalidArgument {
            what: "the stream".to_owned(),
            got: format!("one of device {its}"),
            want: format!("one of device {mine}, which has the memory"),
        })
    }
}
