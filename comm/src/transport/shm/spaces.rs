//! Which memory all ranks of an island can reach, and how a place in it is named.
//!
//! Space 0 is the arena; space `k + 1` is the shared memory that rank `k` of the island brought along.
//! A *place* is one word, space and offset, so that it travels in an entry. It means the same on every
//! rank, at addresses of the rank's own. Ordinary memory has places too, where the ranks of the island may
//! read each other's: it can be fetched from, and not be reached in any other way.
//!
//! - SPACE-1: a space counts only if every rank of the island has mapped it, which they agree on at
//!   bring-up. So all ranks resolve the same places, and refuse the same.

use std::sync::Arc;

use super::arena::Arena;
use super::memory::SharedMemory;
use crate::types::index;

/// Bits of a place that hold the offset; the space, plus one, lies above.
const OFFSET_BITS: u32 = 48;
/// The space of the ordinary memory of the island's first rank; those of the others follow.
const ORDINARY: usize = 1 << 15;

/// The spaces of an island, as this rank has mapped them.
#[derive(Clone, Debug)]
pub struct Spaces {
    arena: Arc<Arena>,
    memories: Vec<Option<Arc<SharedMemory>>>,
    /// Which of `memories` this rank brought along.
    own: Option<usize>,
    /// Process ids of the ranks, by index in the island, where they may read each other's memory.
    readable: Option<Vec<u32>>,
}

/// Ordinary memory of a rank, to be read by system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ordinary {
    /// The rank's process.
    pub pid: u32,
    /// The address there.
    pub address: u64,
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
            readable: None,
        }
    }

    /// The ranks of the island are these processes, and all of them may read each other's memory.
    pub(crate) fn let_all_read(&mut self, pids: Vec<u32>) {
        self.readable = (pids.len() < ORDINARY).then_some(pids);
    }

    /// The place of ordinary memory of this rank at `ptr`, or 0 where peers may not read it.
    #[must_use]
    pub fn locate_ordinary(&self, ptr: *const u8) -> u64 {
        let local = self.own.filter(|_| self.readable.is_some());
        let fits = |address: &usize| address >> OFFSET_BITS == 0;
        let address = Some(ptr.addr()).filter(fits);
        local
            .zip(address)
            .map_or(0, |(local, address)| place(ORDINARY + local, address))
    }

    /// The ordinary memory that a place names, if it names any.
    #[must_use]
    pub fn ordinary(&self, place: u64) -> Option<Ordinary> {
        let space = index(place >> OFFSET_BITS).checked_sub(1)?;
        let local = space.checked_sub(ORDINARY)?;
        Some(Ordinary {
            pid: *self.readable.as_ref()?.get(local)?,
            address: place & ((1 << OFFSET_BITS) - 1),
        })
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
        let header = arena.at(arena.directory_offset(1), 64);
        assert_eq!(spaces.locate(header, 64), 0);
        assert_eq!(spaces.locate([0_u8; 8].as_ptr(), 8), 0);
        for nonsense in [0, 1, u64::MAX, 1 << 48, 2 << 48, 9 << 48] {
            assert_eq!(spaces.resolve(nonsense, 8), None, "{nonsense:#x}");
        }
    }

    #[test]
    fn ordinary_memory_has_a_place_where_it_may_be_read_and_no_address_here() {
        let arena = Arc::new(Arena::create(2, HEAP_BYTES_MIN).unwrap());
        let mut spaces = Spaces::new(arena, vec![None, None], Some(1));
        let bytes = [7_u8; 8];
        assert_eq!(spaces.locate_ordinary(bytes.as_ptr()), 0);
        spaces.let_all_read(vec![11, 12]);
        let place = spaces.locate_ordinary(bytes.as_ptr());
        let there = Ordinary {
            pid: 12,
            address: bytes.as_ptr().addr() as u64,
        };
        assert_eq!(spaces.ordinary(place), Some(there));
        assert_eq!(spaces.resolve(place, 8), None);
        for nonsense in [0, 1, u64::MAX, 1 << 48, ((ORDINARY as u64) + 3) << 48] {
            assert_eq!(spaces.ordinary(nonsense), None, "{nonsense:#x}");
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
