//! Which memory all ranks of an island can reach, and how a place in it is named.
//!
//! Space 0 is the arena; space `k + 1` is the shared memory that rank `k` of the island brought along.
//! A *place* is one word, space and offset, so that it travels in an entry. It means the same on every
//! rank, at addresses of the rank's own.
//!
//! - SPACE-1: a space counts only if every rank of the island has mapped it, which they agree on at
//!   bring-up. So all ranks resolve the same places, and refuse the same.

use std::sync::Arc;

use super::arena::Arena;
use super::memory::SharedMemory;
use crate::types::index;

/// Bits of a place that hold the offset; the space, plus one, lies above.
const OFFSET_BITS: u32 = 48;

/// The spaces of an island, as this rank has mapped them.
#[derive(Clone, Debug)]
pub struct Spaces {
    arena: Arc<Arena>,
    memories: Vec<Option<Arc<SharedMemory>>>,
    /// Which of `memories` this rank brought along.
    own: Option<usize>,
}

impl Spaces {
    /// The arena, and what the ranks brought along, by index in the island; `own` says which of it
    /// this rank may name.
    pub(crate) fn new(
        arena: Arc<Arena>,
        memories: Vec<Option<Arc<SharedMemory>>>,
        own: Option<usize>,
    ) -> Self {
        Self {
            arena,
            memories,
            own,
        }
    }

    /// The place of `len` bytes at `ptr`, or 0 where peers cannot reach them.
    #[must_use]
    pub fn locate(&self, ptr: *const u8, len: usize) -> u64 {
        if let Some(offset) = self.arena.offset_of(ptr, len)
            && self.arena.in_some_heap(offset, len)
        {
            return place(0, offset);
        }
        let own = self.own.and_then(|own| Some((own, self.memory(own)?)));
        own.and_then(|(own, memory)| Some(place(own + 1, memory.offset_of(ptr, len)?)))
            .unwrap_or(0)
    }

    /// Address of `len` bytes at a place that a peer named, or `None` where they do not lie in a space.
    #[must_use]
    pub fn resolve(&self, place: u64, len: usize) -> Option<*mut u8> {
        let space = index(place >> OFFSET_BITS).checked_sub(1)?;
        let offset = index(place & ((1 << OFFSET_BITS) - 1));
        let Some(local) = space.checked_sub(1) else {
            let inside = self.arena.in_some_heap(offset, len);
            return inside.then(|| self.arena.at(offset, len));
        };
        let memory = self.memory(local)?;
        memory
            .holds(offset, len)
            .then(|| memory.as_ptr().wrapping_add(offset))
    }

    fn memory(&self, local: usize) -> Option<&Arc<SharedMemory>> {
        self.memories.get(local)?.as_ref()
    }
}

fn place(space: usize, offset: usize) -> u64 {
    debug_assert!(offset >> OFFSET_BITS == 0, "offset {offset}");
    ((space as u64 + 1) << OFFSET_BITS) | offset as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::shm::arena::HEAP_BYTES_MIN;

    #[test]
    fn a_place_leads_back_to_its_address_and_nowhere_else() {
        let arena = Arc::new(Arena::create(2, HEAP_BYTES_MIN).unwrap());
        let memory = SharedMemory::create(1 << 20).unwrap();
        let memories = vec![None, Some(Arc::clone(&memory))];
        let spaces = Spaces::new(Arc::clone(&arena), memories, Some(1));
        let inside = memory.as_ptr().wrapping_add(4096);
        let place = spaces.locate(inside, 100);
        assert_eq!(spaces.resolve(place, 100), Some(inside));
        assert_eq!(spaces.resolve(place, 1 << 20), None);
        let heap = arena.at(arena.heap_offset(1) + 128, 64);
        let place = spaces.locate(heap, 64);
        assert_eq!(spaces.resolve(place, 64), Some(heap));
        // The header of a region is nobody's buffer.
        let header = arena.at(arena.heap_offset(1) - 128, 64);
        assert_eq!(spaces.locate(header, 64), 0);
        assert_eq!(spaces.locate([0_u8; 8].as_ptr(), 8), 0);
        for nonsense in [0, 1, u64::MAX, 1 << 48, 2 << 48, 9 << 48] {
            assert_eq!(spaces.resolve(nonsense, 8), None, "{nonsense:#x}");
        }
    }

    #[test]
    fn memory_that_somebody_could_not_map_is_no_space() {
        let arena = Arc::new(Arena::create(1, HEAP_BYTES_MIN).unwrap());
        let memory = SharedMemory::create(4096).unwrap();
        let spaces = Spaces::new(arena, vec![None], Some(0));
        assert_eq!(spaces.locate(memory.as_ptr(), 8), 0);
    }
}
