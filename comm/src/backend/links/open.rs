//! Making and giving up the streams of a group.
#![expect(unsafe_code, reason = "rings live in memory shared with the peer")]

use std::sync::Arc;

use super::{Links, Plane, remote};
use crate::backend::wait_context::WaitContext;
use crate::context::{Context, Identity, Island, Status};
use crate::error::ErrorKind;
use crate::transport::ring::{RingError, RingStream};
use crate::transport::shm::arena::Arena;
use crate::transport::shm::directory;
use crate::transport::shm::heap::Block;
use crate::transport::shm::wakers::WakingRing;
use crate::transport::{LinkError, LinkKind, Source, Stream, Target};
use crate::types::Rank;

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
    plane: Plane,
    /// The rank on the other side.
    peer: Rank,
}

impl RingBlock {
    /// Whether the memory may be used for something else. This side must be closed.
    pub(crate) fn is_over(&self, status: &Status) -> bool {
        if status.gone(self.peer).is_some() {
            return true;
        }
        // SAFETY: the block belongs to this rank and holds the ring that it made there.
        unsafe { RingStream::is_over(self.block.as_ptr(), self.block.bytes()) }
    }

    /// The rank that has left the world and has not read all messages outside collectives that lie here.
    pub(crate) fn unread_by(&self, status: &Status) -> Option<Rank> {
        let has_left = status.gone(self.peer).is_some_and(|gone| gone.orderly);
        (has_left && self.has_unread()).then_some(self.peer)
    }

    /// Whether messages lie here that the peer, which is there, may still read.
    pub(crate) fn is_unsettled(&self, status: &Status) -> bool {
        status.gone(self.peer).is_none() && self.has_unread()
    }

    /// Whether messages outside collectives lie here that nobody has read.
    fn has_unread(&self) -> bool {
        // SAFETY: the block belongs to this rank and holds the ring that it made there.
        let is_read = || unsafe { RingStream::is_read(self.block.as_ptr(), self.block.bytes()) };
        self.plane == Plane::PointToPoint && !is_read()
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
    /// Makes the streams to `peers` that are this rank's to make, and says which of the others are
    /// not here yet.
    pub(super) fn open(
        &mut self,
        wait_context: &WaitContext<'_>,
        plane: Plane,
        peers: impl Iterator<Item = usize>,
    ) -> Result<Awaited, ErrorKind> {
        let (n, me) = (wait_context.group.len(), wait_context.group.me);
        self.make_places(n);
        let mut awaited = Awaited {
            plane,
            peers: Vec::new(),
        };
        for peer in peers.filter(|peer| *peer != me) {
            if self.plane(plane)[peer].is_some() || awaited.peers.contains(&peer) {
                continue;
            }
            if peer > me {
                let stream = self.make(wait_context, plane, peer)?;
                self.plane(plane)[peer] = Some(stream);
            } else {
                awaited.peers.push(peer);
            }
        }
        Ok(awaited)
    }

    /// Places for the streams to `n` members.
    pub(super) fn make_places(&mut self, n: usize) {
        for streams in [&mut self.collective, &mut self.point] {
            if streams.is_empty() {
                streams.resize_with(n, || None);
            }
        }
    }

    pub(super) fn plane(&mut self, plane: Plane) -> &mut Vec<Option<Box<dyn Stream>>> {
        match plane {
            Plane::Collective => &mut self.collective,
            Plane::PointToPoint => &mut self.point,
        }
    }

    /// Makes the stream to a member with a higher index.
    fn make(
        &mut self,
        wait_context: &WaitContext<'_>,
        plane: Plane,
        peer: usize,
    ) -> Result<Box<dyn Stream>, ErrorKind> {
        match region_of(wait_context.context, wait_context.group, peer) {
            Some(near) => self.create_ring(wait_context, near, plane, peer),
            None => remote::open(wait_context, plane, peer),
        }
    }

    fn create_ring(
        &mut self,
        wait_context: &WaitContext<'_>,
        (island, peer_local): (&Island, usize),
        plane: Plane,
        peer: usize,
    ) -> Result<Box<dyn Stream>, ErrorKind> {
        let bytes = RingStream::block_bytes(RING_BYTES);
        let full = |have: String| ErrorKind::Resource {
            what: "shared memory of this rank".to_owned(),
            need: format!(
                "{bytes} bytes for a link to rank {}",
                wait_context.group.members[peer]
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
        let key = ring_key(wait_context.group.key, plane, wait_context.group.me, peer);
        let local = island.local;
        let place = directory::publish(&island.arena, local, key, 0, block.offset())
            .ok_or_else(|| full("no free place in the directory".to_owned()))?;
        self.rings.push(RingBlock {
            arena: Arc::clone(&island.arena),
            block,
            local,
            place,
            plane,
            peer: wait_context.group.members[peer],
        });
        if let Some(wakers) = &island.wakers {
            wakers.ring(peer_local);
        }
        Ok(waking(ring, island, peer_local))
    }

    /// Closes all streams; what is left is memory that the other sides may still read.
    pub(crate) fn retire(&mut self) -> Vec<RingBlock> {
        self.collective.clear();
        self.point.clear();
        std::mem::take(&mut self.rings)
    }
}

/// The island and the index of a member's region on it, if the member shares memory with this rank.
pub(super) fn region_of<'a>(
    context: &'a Context,
    group: &Identity,
    peer: usize,
) -> Option<(&'a Island, usize)> {
    let island = context.island.as_ref()?;
    let local = island.locals[group.members[peer].index()]?;
    Some((island, local))
}

/// Streams that members with lower indices have still to make.
pub(super) struct Awaited {
    plane: Plane,
    peers: Vec<usize>,
}

impl Awaited {
    /// Puts streams in their places that neither take nor give a byte.
    pub(super) fn hold(&self, streams: &mut [Option<Box<dyn Stream>>]) {
        for peer in &self.peers {
            streams[*peer] = Some(Box::new(NotYet));
        }
    }

    /// Empties the places of those that never came.
    pub(super) fn release(&self, streams: &mut [Option<Box<dyn Stream>>]) {
        for peer in &self.peers {
            streams[*peer] = None;
        }
    }

    /// Takes the streams that are there now.
    pub(super) fn attach(
        &mut self,
        wait_context: &WaitContext<'_>,
        streams: &mut [Option<Box<dyn Stream>>],
    ) -> Result<(), ErrorKind> {
        let mut at = 0;
        while let Some(peer) = self.peers.get(at).copied() {
            let stream = match region_of(wait_context.context, wait_context.group, peer) {
                Some((island, local)) => {
                    attach_ring(wait_context.group, island, self.plane, peer, local)?
                }
                None => remote::take(wait_context.context, wait_context.group, self.plane, peer)?,
            };
            if stream.is_some() {
                streams[peer] = stream;
                self.peers.swap_remove(at);
            } else {
                at += 1;
            }
        }
        Ok(())
    }
}

/// In the place of a stream that is awaited.
#[derive(Debug)]
struct NotYet;

impl Stream for NotYet {
    fn write_from(&mut self, _source: Source<'_>) -> Result<usize, LinkError> {
        Ok(0)
    }

    fn read_into(&mut self, _target: Target<'_>) -> Result<usize, LinkError> {
        Ok(0)
    }

    fn kind(&self) -> LinkKind {
        LinkKind::Shm
    }

    fn reset(&mut self) {}
}

/// The ring that a member with a lower index has made, if it has.
pub(super) fn attach_ring(
    group: &Identity,
    island: &Island,
    plane: Plane,
    peer: usize,
    local: usize,
) -> Result<Option<Box<dyn Stream>>, ErrorKind> {
    let arena = &island.arena;
    let bytes = RingStream::block_bytes(RING_BYTES);
    let key = ring_key(group.key, plane, peer, group.me);
    let broken = |what: String| ErrorKind::Transport {
        peer: group.members[peer],
        what,
    };
    let Some(found) = directory::find(arena, local, key) else {
        return Ok(None);
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
        Ok(ring) => Ok(Some(waking(ring, island, local))),
        Err(error @ (RingError::InUse | RingError::NotCreated)) => {
            Err(broken(format!("its ring is not to be had: {error}")))
        }
        Err(error) => Err(broken(error.to_string())),
    }
}

/// A ring to the rank with region `peer`, which wakes it where it may sleep in `poll`.
fn waking(ring: RingStream, island: &Island, peer: usize) -> Box<dyn Stream> {
    match &island.wakers {
        Some(wakers) => Box::new(WakingRing::new(ring, wakers, peer)),
        None => Box::new(ring),
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
