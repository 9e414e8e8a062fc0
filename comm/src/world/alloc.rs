//! Buffers in memory that local peers can reach: calls over them copy nothing twice.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::World;
use crate::buffer::Element;
use crate::collective::Communicator;
use crate::context::Context;
use crate::transport::shm::arena::{Arena, ArenaError};
use crate::transport::shm::heap::{Heap, HeapFull};
use crate::transport::shm::region::RegionBytes;

/// `count` elements in this rank's shared region; dereferences to a slice.
///
/// Made by [`World::alloc`]. A call whose buffers are such memory on all ranks of a host moves the
/// data straight between them; it needs no other call for that. It stays valid memory for as long as it
/// is kept, also after the world has ended; dropped before, it goes back to the region.
///
/// After a call that failed and ended its group, the contents of the buffers that it was given are
/// unspecified.
#[derive(Debug)]
pub struct RegionBuffer<T> {
    bytes: RegionBytes,
    elements: PhantomData<T>,
}

/// Why a region buffer could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AllocError {
    /// The rank's region is full.
    #[error(transparent)]
    Full(#[from] HeapFull),
    /// A rank that shares memory with nobody has no region, and the system gave no memory for one.
    #[error(transparent)]
    Memory(#[from] ArenaError),
    /// More than an address space holds.
    #[error("{count} elements of {size} bytes exceed the address space")]
    TooLarge {
        /// What was asked for.
        count: usize,
        /// Bytes of one.
        size: usize,
    },
}

impl Context {
    fn region_bytes(&self, bytes: usize) -> Result<RegionBytes, AllocError> {
        match &self.island {
            Some(island) => Ok(RegionBytes::take(&island.heap, bytes)?),
            // Nobody to share with: an arena of its own serves as well as any memory.
            None => {
                let arena = Arc::new(Arena::create(1, bytes)?);
                Ok(RegionBytes::take(&Arc::new(Heap::new(arena, 0)), bytes)?)
            }
        }
    }

    pub(crate) fn alloc<T: Element>(&self, count: usize) -> Result<RegionBuffer<T>, AllocError> {
        let size = size_of::<T>();
        let bytes = T::DTYPE
            .bytes(count)
            .filter(|bytes| isize::try_from(*bytes).is_ok())
            .ok_or(AllocError::TooLarge { count, size })?;
        Ok(RegionBuffer {
            bytes: self.region_bytes(bytes)?,
            elements: PhantomData,
        })
    }
}

impl World {
    /// `count` zeroed elements in this rank's shared region, aligned to 128 bytes (to a page from 64 KiB
    /// on). Large buffers take memory as they are written, some 3 us for each page of 4 KiB the first
    /// time: allocate once and keep the buffer.
    ///
    /// # Errors
    /// No room in the region ([`JoinOptions::region_bytes`](super::JoinOptions)).
    pub fn alloc<T: Element>(&self, count: usize) -> Result<RegionBuffer<T>, AllocError> {
        self.inner.alloc(count)
    }
}

impl Communicator {
    /// [`World::alloc`] of the group's world: the region is one for all groups of a rank.
    ///
    /// # Errors
    /// As [`World::alloc`].
    pub fn alloc<T: Element>(&self, count: usize) -> Result<RegionBuffer<T>, AllocError> {
        self.context().alloc(count)
    }
}

impl<T: Element> Deref for RegionBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        bytemuck::cast_slice(self.bytes.as_slice())
    }
}

impl<T: Element> DerefMut for RegionBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(self.bytes.as_mut_slice())
    }
}

impl<T: Element> AsRef<[T]> for RegionBuffer<T> {
    fn as_ref(&self) -> &[T] {
        self
    }
}

impl<T: Element> AsMut<[T]> for RegionBuffer<T> {
    fn as_mut(&mut self) -> &mut [T] {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_outlives_its_world() {
        let buffers = World::threads(2, |world| {
            let mut buffer = world.alloc::<u32>(100_000).unwrap();
            assert!(buffer.iter().all(|element| *element == 0));
            buffer.fill(world.rank().0 + 5);
            buffer
        })
        .unwrap();
        for (rank, mut buffer) in buffers.into_iter().enumerate() {
            assert!(buffer.iter().all(|element| *element as usize == rank + 5));
            buffer.fill(1);
        }
    }

    #[test]
    fn too_much_is_refused_and_nothing_is_allowed() {
        World::threads(2, |world| {
            assert!(matches!(
                world.alloc::<f64>(usize::MAX / 2),
                Err(AllocError::TooLarge { .. })
            ));
            assert!(matches!(
                world.alloc::<u8>(1 << 50),
                Err(AllocError::Full(_))
            ));
            assert!(world.alloc::<f64>(0).unwrap().is_empty());
        })
        .unwrap();
    }
}
