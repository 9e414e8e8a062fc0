//! Runs plans whose steps read peers' memory, for buffers that lie outside the shared region.
//!
//! The vector is cut into segments small enough for the cache. For each segment the plan of that
//! smaller problem is run: what it exposes is copied into this rank's staging block, what it pulls
//! comes out of the peers'.
//!
//! - DIRECT-1: staging has two halves, used in turn by segment. A rank writes half `g % 2` for
//!   segment `g` only after a barrier of segment `g - 1`, which every peer passes after it has done
//!   with segment `g - 2`. The count goes on over calls; the entry exchange is such a barrier.
//! - DIRECT-2: within a half, what lies at element `i` of a plan's buffer lies at element `i` of
//!   that buffer's area, so a peer finds a span without being told.
//! - DIRECT-3: the slice of an `all_reduce` (`algo::direct::all_reduce`) that a rank has reduced goes where the
//!   next rank's share of it lay, in that rank's block: those lines are in the cache of who reduces them, and no
//!   reader has to give them up. Between two ranks nobody else reads them, so that rank may write there next,
//!   and such a segment does not count for DIRECT-1.
#![expect(
    unsafe_code,
    reason = "copies between user memory and memory shared with peers"
)]

mod plans;

use std::sync::Arc;

use self::plans::Plans;
use super::exchange::Exchange;
use super::segment::{Map, Shape};
use super::shm_exchange::Local;
use super::wait_context::WaitContext;
use super::{Failure, PerRank, Request};
use crate::algo::{self, Algorithm, Choice, Plan, Round, Space, Span, Step};
use crate::error::ErrorKind;
use crate::kernel;
use crate::transport::shm::arena::Arena;
use crate::transport::shm::heap::{Block, Heap};
use crate::transport::shm::slot::Entry;
use crate::types::{Collective, Rank, index};

/// Bytes of one area: what a rank exposes of one buffer in one segment. The chunk that fits the
/// second-level cache beside its readers.
const AREA_BYTES: usize = 1 << 20;
/// Areas in one half: `In`, `Out` and `Scratch`.
const AREAS: usize = 3;
const HALF_BYTES: usize = AREAS * AREA_BYTES;
/// From this many bytes of results on, over all ranks, results go around the cache: they would push
/// out of it what is still to be read.
pub(super) const STREAM_FROM: usize = 6 << 20;
/// Bytes of the whole block. Only what is written costs memory.
const STAGING_BYTES: usize = 2 * HALF_BYTES;

/// This rank's staging block.
#[derive(Debug)]
pub(crate) struct Staging {
    block: Block,
    /// Segments run so far which peers may still read at their end.
    segments: u64,
    plans: Plans,
}

impl Staging {
    /// `None` where the region has no room for it.
    pub(crate) fn take(heap: &Arc<Heap>) -> Option<Self> {
        Some(Self {
            block: heap.take(STAGING_BYTES).ok()?,
            segments: 0,
            plans: Plans::default(),
        })
    }

    /// What all ranks say where one has none and the call needs it.
    pub(crate) fn lacked(rank: Rank) -> ErrorKind {
        ErrorKind::Resource {
            what: format!("shared memory of rank {rank}"),
            need: format!("{STAGING_BYTES} bytes of staging"),
            have: "less room in its region (MUSTER_REGION_BYTES)".to_owned(),
        }
    }

    pub(crate) fn offset(&self) -> u64 {
        self.block.offset() as u64
    }

    /// The half of a rank's block that the present segment uses. The count of segments is the same on all ranks, so
    /// all use the same half.
    fn half_of(&self, block: *mut u8) -> *mut u8 {
        block.wrapping_add(index(self.segments % 2) * HALF_BYTES)
    }
}

/// One call, cut into segments.
pub(crate) struct Run<'a> {
    wait_context: &'a WaitContext<'a>,
    request: &'a Request<'a>,
    algorithm: &'static Algorithm,
    seq: u64,
    /// Ticks published so far in this call; the entry is tick zero.
    tick: u32,
    /// Lengths of the blocks of the whole call.
    shape: Shape,
    segment_len: usize,
    segment_count: usize,
    /// Whether results go around the cache: there are many, and the call is not in place, so that their
    /// lines are not there.
    stream: bool,
    /// Whether results that peers want go where the next rank's share of them lay (DIRECT-3).
    returns: bool,
    /// The first segment, where it was exposed before the entry.
    first: Option<(Arc<Plan>, Spaces)>,
}

/// Where spans of one segment lie.
struct Spaces {
    input: Map,
    output: Map,
    /// This rank's half of staging.
    half: *mut u8,
    /// Every member's half, once the entries have told them.
    peers: PerRank<*const u8>,
}

impl<'a> Run<'a> {
    /// Prepares a call. `exchange` is needed for exchanges of splits, whose shape only the rows of
    /// all members tell.
    pub(crate) fn new(
        wait_context: &'a WaitContext<'a>,
        request: &'a Request<'a>,
        chosen: &Choice,
        seq: u64,
        exchange: Option<&Exchange>,
    ) -> Self {
        let (n, me) = (wait_context.group.len(), wait_context.group.me);
        let shape = Shape::of(request, n, exchange);
        let results = request.recv_count(n, me) * request.dtype.size();
        let area = chosen.segment.unwrap_or(AREA_BYTES).min(AREA_BYTES);
        let fits = area / request.dtype.size();
        let segment_len = (fits / shape.blocks_exposed(request.pattern())).max(1);
        let segment_count = shape.longest().div_ceil(segment_len);
        Self {
            wait_context,
            request,
            algorithm: chosen.algorithm,
            seq,
            tick: 0,
            shape,
            segment_len,
            segment_count,
            stream: results.saturating_mul(n) >= STREAM_FROM && !request.overlaps(n, me),
            returns: request.collective == Collective::AllReduce
                && chosen.algorithm.name == algo::direct::ALL_REDUCE,
            first: None,
        }
    }

    /// The algorithm.
    pub(crate) fn name(&self) -> &'static str {
        self.algorithm.name
    }

    /// Exposes the first segment, before the entry is published: then the entry is its barrier.
    pub(crate) fn expose_first(
        &mut self,
        local: &Local,
        staging: &mut Staging,
    ) -> Result<(), Failure> {
        if self.segment_count > 0 {
            let plan = self.plan(staging, 0)?;
            let spaces = self.spaces(local, staging, 0);
            self.begin(&plan, &spaces);
            self.first = Some((plan, spaces));
        }
        Ok(())
    }

    /// Runs all segments. `exposed` says that `expose_first` was called before the entry.
    pub(crate) fn finish(
        mut self,
        local: &Local,
        staging: &mut Staging,
        exposed: bool,
    ) -> Result<(), Failure> {
        let blocks = self.blocks(local)?;
        for segment in 0..self.segment_count {
            let (plan, mut spaces) = match self.first.take() {
                Some(first) => first,
                None => {
                    let plan = self.plan(staging, segment)?;
                    (plan, self.spaces(local, staging, segment))
                }
            };
            let half = |block: &*mut u8| staging.half_of(*block).cast_const();
            spaces.peers = blocks.iter().map(half).collect();
            let ready = exposed && segment == 0;
            if !ready {
                self.begin(&plan, &spaces);
                self.barrier(local, segment, &plan, 0)?;
            }
            for round in 1..plan.rounds.len() {
                self.work(&plan, round, &spaces);
                self.expose(&plan, round, &spaces);
                // After the last round the next segment's barrier, or the next call's entry, keeps
                // the ranks apart (DIRECT-1).
                if round + 1 < plan.rounds.len() {
                    self.barrier(local, segment, &plan, round)?;
                }
            }
            if !(self.returns && self.wait_context.group.len() == 2) {
                staging.segments += 1;
            }
        }
        Ok(())
    }

    /// The first round: reads this rank's buffers, writes its staging.
    fn begin(&self, plan: &Plan, spaces: &Spaces) {
        self.work(plan, 0, spaces);
        self.expose(plan, 0, spaces);
    }

    fn barrier(
        &mut self,
        local: &Local,
        segment: usize,
        plan: &Plan,
        round: usize,
    ) -> Result<(), Failure> {
        self.tick += 1;
        local
            .barrier(self.wait_context, self.seq, self.tick)
            .map_err(|kind| {
                let rounds = plan.rounds.len();
                let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
                let position = number(segment * rounds + round + 1);
                Failure {
                    round: Some((position, number(self.segment_count * rounds))),
                    usable: false,
                    ..Failure::from(kind)
                }
            })
    }

    fn plan(&self, staging: &mut Staging, segment: usize) -> Result<Arc<Plan>, Failure> {
        let (n, me) = (self.wait_context.group.len(), self.wait_context.group.me);
        let from = segment * self.segment_len;
        let part = self.shape.part(self.request, me, from, self.segment_len);
        let plan = part
            .map_err(|error| error.to_string())
            .and_then(|part| staging.plans.of(self.algorithm, part, n, me))
            .map_err(|why| ErrorKind::Unsupported {
                what: format!("{} by {}", self.request.collective, self.algorithm.name),
                why,
            })?;
        Ok(plan)
    }

    fn spaces(&self, local: &Local, staging: &Staging, segment: usize) -> Spaces {
        let (sends, recvs) = self.shape.buffers(self.request, self.wait_context.group.me);
        let (from, size) = (segment * self.segment_len, self.segment_len);
        Spaces {
            input: Map::new(self.request.send.cast_mut(), &sends, from, size),
            output: Map::new(self.request.recv, &recvs, from, size),
            half: staging.half_of(local.arena.at(index(staging.offset()), STAGING_BYTES)),
            peers: PerRank::new(),
        }
    }

    /// Every member's block, as its entry names it.
    fn blocks(&self, local: &Local) -> Result<PerRank<*mut u8>, Failure> {
        let arena: &Arena = &local.arena;
        let block = |(member, entry): (usize, &Entry)| {
            let offset = index(entry.staging);
            if !arena.heap_holds(local.region(member), offset, STAGING_BYTES) {
                let what = format!("it names staging at offset {offset}, outside its region");
                let peer = self.wait_context.group.members[member];
                return Err(ErrorKind::Transport { peer, what }.into());
            }
            Ok(arena.at(offset, STAGING_BYTES))
        };
        let entries = local.exchange.entries.iter();
        entries.enumerate().map(block).collect()
    }

    /// Copies what the round exposes into staging.
    fn expose(&self, plan: &Plan, round: usize, spaces: &Spaces) {
        let size = self.request.dtype.size();
        for step in &plan.rounds[round].steps {
            let Step::Expose { span } = step else {
                continue;
            };
            if span.space == Space::Scratch || reduced_into(&plan.rounds[round], *span) {
                // It lies in staging already.
                continue;
            }
            self.pieces(spaces, *span, |at, done, len| {
                let to = staged(spaces.half, span.space, span.start + done, size);
                // SAFETY: the span lies in this rank's buffer (the plan is checked, the buffer's
                // length too) and in its area of staging (segments are cut to fit), which no peer
                // reads now (DIRECT-1).
                unsafe { kernel::copy(to, at.cast_const(), len * size) };
            });
        }
    }

    /// Runs the steps of a round but for `Expose`.
    fn work(&self, plan: &Plan, round: usize, spaces: &Spaces) {
        for step in &plan.rounds[round].steps {
            match step {
                Step::Copy { src, dst } => self.copy(*src, *dst, spaces),
                Step::Pull { src, dst } => self.pull(src.peer, src.span, *dst, spaces),
                Step::PullReduce { srcs, dst } => {
                    let spans: PerRank<(usize, Span)> =
                        srcs.iter().map(|src| (src.peer, src.span)).collect();
                    // Scratch lies in staging already.
                    let wanted = plan.rounds[round]
                        .steps
                        .contains(&Step::Expose { span: *dst });
                    let exposed = wanted && dst.space != Space::Scratch;
                    self.pull_reduce(&spans, *dst, exposed, spaces);
                }
                Step::Expose { .. } => {}
                Step::Reduce { .. }
                | Step::Send { .. }
                | Step::Recv { .. }
                | Step::RecvReduce { .. } => {
                    unreachable!("{} is a direct algorithm", self.algorithm.name)
                }
            }
        }
    }

    fn copy(&self, src: Span, dst: Span, spaces: &Spaces) {
        let size = self.request.dtype.size();
        self.pieces(spaces, dst, |to, done, len| {
            let part = Span::new(src.space, src.start + done, len);
            self.pieces(spaces, part, |from, skipped, len| {
                // SAFETY: `skipped + len` does not exceed the piece of the target.
                let to = unsafe { to.add(skipped * size) };
                if !std::ptr::eq(to, from) {
                    // SAFETY: both pieces lie in this rank's buffers; buffers that are not the same
                    // memory here do not overlap (in-place calls alias exactly).
                    unsafe { kernel::copy(to, from.cast_const(), len * size) };
                }
            });
        });
    }

    fn pull(&self, peer: usize, src: Span, dst: Span, spaces: &Spaces) {
        let size = self.request.dtype.size();
        self.pieces(spaces, dst, |to, done, len| {
            let (holder, space) = self.place_of(peer, src.space);
            let block = spaces.peers[holder].cast_mut();
            let from = staged(block, space, src.start + done, size);
            // SAFETY: the holder's half was checked to lie in its region, the span lies in its area
            // (all ranks cut the same segments), and nobody writes it before the next barrier; the
            // target is this rank's buffer.
            unsafe { self.deliver(to, from.cast_const(), len * size) };
        });
    }

    /// Copies results to this rank's buffer.
    ///
    /// # Safety
    /// As [`kernel::copy`].
    unsafe fn deliver(&self, to: *mut u8, from: *const u8, bytes: usize) {
        if self.stream {
            // SAFETY: the caller's promise is the same.
            unsafe { kernel::copy_streaming(to, from, bytes) };
        } else {
            // SAFETY: as above.
            unsafe { kernel::copy(to, from, bytes) };
        }
    }

    /// Reduces into this rank's buffer and, where peers want the result, into staging at once.
    fn pull_reduce(&self, srcs: &[(usize, Span)], dst: Span, exposed: bool, spaces: &Spaces) {
        let (me, size) = (self.wait_context.group.me, self.request.dtype.size());
        let divisor = u32::try_from(srcs.len()).unwrap_or(u32::MAX);
        let own = srcs
            .iter()
            .find(|(peer, _)| *peer == me)
            .map(|(_, span)| *span);
        self.pieces(spaces, dst, |to, done, len| {
            // The own source may have gaps where the target has none: it sets the pieces.
            let part = own.map_or(dst, |own| Span::new(own.space, own.start + done, len));
            self.pieces(spaces, part, |mine, skipped, len| {
                let at = |(peer, span): &(usize, Span)| {
                    if *peer == me {
                        mine.cast_const()
                    } else {
                        let start = span.start + done + skipped;
                        staged(spaces.peers[*peer].cast_mut(), span.space, start, size).cast_const()
                    }
                };
                let from: PerRank<*const u8> = srcs.iter().map(at).collect();
                // SAFETY: `skipped + len` does not exceed the piece of the target.
                let to = unsafe { to.add(skipped * size) };
                let at = dst.start + done + skipped;
                let (holder, space) = self.place_of(me, dst.space);
                let copy = staged(spaces.peers[holder].cast_mut(), space, at, size);
                let (dtype, op) = (self.request.dtype, self.request.op);
                let (kept, streamed): (&[_], &[_]) = match (exposed, self.stream) {
                    (true, true) => (&[copy], &[to]),
                    (true, false) => (&[copy, to], &[]),
                    (false, true) if dst.space == Space::Out => (&[], &[to]),
                    (false, _) => (&[to], &[]),
                };
                // SAFETY: as in `pull`; the own source is this rank's buffer, and where it is the
                // target too it is exactly so, which the kernel allows; the copy is in the area of
                // staging that no source lies in, or exactly where one of them lies: there nobody
                // reads before the next barrier (DIRECT-3).
                unsafe { kernel::reduce_to(dtype, op, &from, kept, streamed, len, divisor) };
            });
        });
    }

    /// Which rank's block holds what `owner` exposes of a space, and in which area of it (DIRECT-3).
    fn place_of(&self, owner: usize, space: Space) -> (usize, Space) {
        if self.returns && space == Space::Out {
            ((owner + 1) % self.wait_context.group.len(), Space::In)
        } else {
            (owner, space)
        }
    }

    /// Calls `each(address, elements before, elements)` for the parts of a span of this rank's
    /// buffers that lie together in memory.
    fn pieces(&self, spaces: &Spaces, span: Span, mut each: impl FnMut(*mut u8, usize, usize)) {
        let size = self.request.dtype.size();
        let map = match span.space {
            Space::In => &spaces.input,
            Space::Out => &spaces.output,
            Space::Scratch => {
                each(
                    staged(spaces.half, Space::Scratch, span.start, size),
                    0,
                    span.len,
                );
                return;
            }
        };
        let mut done = 0;
        while done < span.len {
            let (at, together) = map.locate(span.start + done);
            let len = together.min(span.len - done);
            // SAFETY: `at` is an element of the buffer: blocks and their lengths were checked
            // against it by the collective layer.
            each(unsafe { map.base.add(at * size) }, done, len);
            done += len;
        }
    }
}

/// Whether a round reduces into this span, and so into its place in staging too.
fn reduced_into(round: &Round, span: Span) -> bool {
    let into = |step: &Step| matches!(step, Step::PullReduce { dst, .. } if *dst == span);
    round.steps.iter().any(into)
}

/// Where element `start` of a space lies in a half of staging (DIRECT-2).
fn staged(half: *mut u8, space: Space, start: usize, size: usize) -> *mut u8 {
    let area = match space {
        Space::In => 0,
        Space::Out => 1,
        Space::Scratch => 2,
    };
    debug_assert!(start * size <= AREA_BYTES, "element {start} of {space:?}");
    // SAFETY: within the half, since segments are cut so that every space fits its area.
    unsafe { half.add(area * AREA_BYTES + start * size) }
}
