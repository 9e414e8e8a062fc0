//! Making and giving up the streams of a group.
#![expect(unsafe_code, reason = "rings live in memory shared with the peer")]

use std::sync::Arc;

use super::{Links, Plane};
use crate::backend::vigil::Vigil;
use crate::error::ErrorKind;
use crate::transport::Stream;
use crate::transport::ring::{RingError, RingStream};
use crate::transport::shm::arena::Arena;
use crate::transport::shm::directory;
use crate::transport::shm::heap::Block;
use crate::transport::shm::wait::Rest;
use crate::world::Island;

/// Bytes that one direction of a ring holds. Small enough to stay in the cache of both sides,
/// large enough that a writer is rarely stopped.
const RING_BYTES: usize = 128 << 10;

/// A ring that this rank made: its memory goes back to the heap when both sides are through.
#[derive(Debug)]
pub(crate) struct RingBlock {
    arena: Arc<Arena>,
    block: Arc<Block>,
    local: usize,
    place: usize,
}

impl RingBlock {
    /// Whether the memory may be used for something else. This side must be closed.
    pub(crate) fn is_over(&self) -> bool {
        // SAFETY: the block belongs to this rank and holds the ring that it made there.
        unsafe { RingStream::is_over(self.block.as_ptr(), self.block.bytes()) }
    }
}

impl Drop for RingBlock {
    fn drop(&mut self) {
        // When the rank ends, the other side may still have to find the ring and to read it.
        if !self.block.is_kept() {
            directory::withdraw(&self.arena, self.local, self.place);
        }
    }
}

impl Links {
    /// Makes sure that there is a stream to each of `peers`.
    pub(super) fn open(
        &mut self,
        vigil: &Vigil<'_>,
        plane: Plane,
        peers: impl Iterator<Item = usize> + Clone,
    ) -> Result<(), ErrorKind> {
        let (n, me) = (vigil.group.len(), vigil.group.me);
        for streams in [&mut self.collective, &mut self.point] {
            if streams.is_empty() {
                streams.resize_with(n, || None);
            }
        }
        // First what needs nobody (LINKS-2), then what waits for lower ranks.
        for upper in [true, false] {
            for peer in peers
                .clone()
                .filter(|peer| *peer != me && (*peer > me) == upper)
            {
                if self.plane(plane)[peer].is_none() {
                    let stream = self.open_one(vigil, plane, peer)?;
                    self.plane(plane)[peer] = Some(stream);
                }
            }
        }
        Ok(())
    }

    pub(super) fn plane(&mut self, plane: Plane) -> &mut Vec<Option<Box<dyn Stream>>> {
        match plane {
            Plane::Collective => &mut self.collective,
            Plane::PointToPoint => &mut self.point,
        }
    }

    fn open_one(
        &mut self,
        vigil: &Vigil<'_>,
        plane: Plane,
        peer: usize,
    ) -> Result<Box<dyn Stream>, ErrorKind> {
        let rank = vigil.group.members[peer];
        if let Some(island) = &vigil.world.island
            && let Some(local) = island.locals[rank.index()]
        {
            return if peer > vigil.group.me {
                self.create_ring(vigil, island, plane, peer)
            } else {
                attach_ring(vigil, island, plane, peer, local)
            };
        }
        vigil.world.open_remote(vigil, plane, peer)
    }

    fn create_ring(
        &mut self,
        vigil: &Vigil<'_>,
        island: &Island,
        plane: Plane,
        peer: usize,
    ) -> Result<Box<dyn Stream>, ErrorKind> {
        let bytes = RingStream::block_bytes(RING_BYTES);
        let full = |have: String| ErrorKind::Resource {
            what: "shared memory of this rank".to_owned(),
            need: format!(
                "{bytes} bytes for a link to rank {}",
                vigil.group.members[peer]
            ),
            have,
        };
        let block = island
            .heap
            .take(bytes)
            .map_err(|error| full(error.to_string()))?;
        let block = Arc::new(block);
        let keep = Arc::clone(&block);
        // SAFETY: the block is ours and unpublished, and `keep` holds it.
        let ring = unsafe { RingStream::create(block.as_ptr(), bytes, keep) };
        let ring = ring.map_err(|error| full(error.to_string()))?;
        let key = ring_key(vigil.group.key, plane, vigil.group.me, peer);
        let local = island.local;
        let place = directory::publish(&island.arena, local, key, 0, block.offset())
            .ok_or_else(|| full("no free place in the directory".to_owned()))?;
        self.rings.push(RingBlock {
            arena: Arc::clone(&island.arena),
            block,
            local,
            place,
        });
        Ok(Box::new(ring))
    }

    /// Closes all streams; what is left is memory that the other sides may still read.
    pub(crate) fn retire(&mut self) -> Vec<RingBlock> {
        self.collective.clear();
        self.point.clear();
        std::mem::take(&mut self.rings)
    }
}

fn attach_ring(
    vigil: &Vigil<'_>,
    island: &Island,
    plane: Plane,
    peer: usize,
    local: usize,
) -> Result<Box<dyn Stream>, ErrorKind> {
    let arena = &island.arena;
    let bytes = RingStream::block_bytes(RING_BYTES);
    let key = ring_key(vigil.group.key, plane, peer, vigil.group.me);
    let broken = |what: String| ErrorKind::Transport {
        peer: vigil.group.members[peer],
        what,
    };
    let mut found = directory::find(arena, local, key);
    if found.is_none() {
        let ready = || {
            found = directory::find(arena, local, key);
            found.is_some()
        };
        vigil.wait(&Rest::Pause, ready, || vec![peer])?;
    }
    let Some(found) = found else {
        return Err(vigil.stalled(&[peer]));
    };
    let aligned = found
        .offset
        .is_multiple_of(crate::transport::shm::heap::BLOCK_ALIGN);
    if !aligned || !arena.heap_holds(local, found.offset, bytes) {
        return Err(broken(format!(
            "its ring lies at offset {}, outside its region",
            found.offset
        )));
    }
    let keep = Arc::clone(arena);
    // SAFETY: the bytes lie in the peer's heap, mapped for as long as `keep` holds the arena; the
    // peer published the ring after making it.
    let ring = unsafe { RingStream::attach(arena.at(found.offset, bytes), bytes, keep) };
    match ring {
        Ok(ring) => Ok(Box::new(ring)),
        Err(error @ (RingError::InUse | RingError::NotCreated)) => {
            Err(broken(format!("its ring is not to be had: {error}")))
        }
        Err(error) => Err(broken(error.to_string())),
    }
}

/// The key under which the lower side publishes a ring.
fn ring_key(group: u64, plane: Plane, lower: usize, upper: usize) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&group.to_le_bytes());
    hasher.update(&[plane as u8]);
    hasher.update(&(lower as u64).to_le_bytes());
    hasher.update(&(upper as u64).to_le_bytes());
    let mut word = [0; 8];
    hasher.finalize_xof().fill(&mut word);
    u64::from_le_bytes(word).max(1)
}
