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
#![expect(
    unsafe_code,
    reason = "copies between user memory and memory shared with peers"
)]

use std::sync::Arc;

use super::exchange::Exchange;
use super::local::Local;
use super::segment::{Map, Shape};
use super::vigil::Vigil;
use super::{Failure, Request};
use crate::algo::{Algorithm, Plan, Space, Span, Step};
use crate::error::ErrorKind;
use crate::kernel;
use crate::transport::shm::arena::Arena;
use crate::transport::shm::heap::{Block, Heap};
use crate::types::index;

/// Bytes of one area: what a rank exposes of one buffer in one segment. The chunk that fits the
/// second-level cache beside its readers.
const AREA_BYTES: usize = 1 << 20;
/// Areas in one half: `In`, `Out` and `Scratch`.
const AREAS: usize = 3;
const HALF_BYTES: usize = AREAS * AREA_BYTES;
/// Bytes of the whole block. Only what is written costs memory.
const STAGING_BYTES: usize = 2 * HALF_BYTES;

/// This rank's staging block.
#[derive(Debug)]
pub(crate) struct Staging {
    block: Block,
    /// Segments run so far.
    segments: u64,
}

impl Staging {
    pub(crate) fn take(heap: &Arc<Heap>) -> Result<Self, ErrorKind> {
        let block = heap
            .take(STAGING_BYTES)
            .map_err(|full| ErrorKind::Resource {
                what: "shared memory of this rank".to_owned(),
                need: format!("{STAGING_BYTES} bytes of staging"),
                have: full.to_string(),
            })?;
        Ok(Self { block, segments: 0 })
    }

    pub(crate) fn offset(&self) -> u64 {
        self.block.offset() as u64
    }
}

/// One call, cut into segments.
pub(crate) struct Run<'a> {
    vigil: &'a Vigil<'a>,
    local: &'a Local,
    request: &'a Request<'a>,
    algorithm: &'static Algorithm,
    seq: u64,
    /// Ticks published so far in this call; the entry is tick zero.
    tick: u32,
    /// Lengths of the blocks of the whole call.
    shape: Shape,
    segment_len: usize,
    segment_count: usize,
}

/// Where spans of one segment lie.
struct Spaces {
    input: Map,
    output: Map,
    /// This rank's half of staging.
    half: *mut u8,
    /// Every member's half.
    peers: Vec<*const u8>,
}

impl<'a> Run<'a> {
    /// Prepares a call. `exchange` is needed for exchanges of splits, whose shape only the rows of
    /// all members tell.
    pub(crate) fn new(
        vigil: &'a Vigil<'a>,
        local: &'a Local,
        request: &'a Request<'a>,
        algorithm: &'static Algorithm,
        seq: u64,
        exchange: Option<&Exchange>,
    ) -> Self {
        let n = vigil.group.len();
        let shape = Shape::of(request, n, vigil.group.me, exchange);
        let fits = AREA_BYTES / request.dtype.size();
        let segment_len = (fits / shape.blocks_exposed(request.collective)).max(1);
        let segment_count = shape.longest().div_ceil(segment_len);
        Self {
            vigil,
            local,
            request,
            algorithm,
            seq,
            tick: 0,
            shape,
            segment_len,
            segment_count,
        }
    }

    /// Exposes the first segment, before the entry is published: then the entry is its barrier.
    pub(crate) fn expose_first(&self, staging: &Staging) -> Result<(), Failure> {
        if self.segment_count == 0 {
            return Ok(());
        }
        let plan = self.plan(0)?;
        self.begin(&plan, &self.spaces(staging, 0, None)?);
        Ok(())
    }

    /// Runs all segments. `exposed` says that `expose_first` was called before the entry.
    pub(crate) fn finish(
        mut self,
        staging: &mut Staging,
        exchange: &Exchange,
        exposed: bool,
    ) -> Result<(), Failure> {
        for segment in 0..self.segment_count {
            let plan = self.plan(segment)?;
            let spaces = self.spaces(staging, segment, Some(exchange))?;
            let ready = exposed && segment == 0;
            if !ready {
                self.begin(&plan, &spaces);
                self.barrier(segment, &plan, 0)?;
            }
            for round in 1..plan.rounds.len() {
                self.work(&plan, round, &spaces);
                self.expose(&plan, round, &spaces);
                // After the last round the next segment's barrier, or the next call's entry, keeps
                // the ranks apart (DIRECT-1).
                if round + 1 < plan.rounds.len() {
                    self.barrier(segment, &plan, round)?;
                }
            }
            staging.segments += 1;
        }
        Ok(())
    }

    /// The first round: reads this rank's buffers, writes its staging.
    fn begin(&self, plan: &Plan, spaces: &Spaces) {
        self.work(plan, 0, spaces);
        self.expose(plan, 0, spaces);
    }

    fn barrier(&mut self, segment: usize, plan: &Plan, round: usize) -> Result<(), Failure> {
        self.tick += 1;
        self.local
            .barrier(self.vigil, self.seq, self.tick)
            .map_err(|kind| {
                let rounds = plan.rounds.len();
                let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
                let position = number(segment * rounds + round + 1);
                Failure {
                    kind,
                    round: Some((position, number(self.segment_count * rounds))),
                    usable: false,
                }
            })
    }

    fn plan(&self, segment: usize) -> Result<Plan, Failure> {
        let (n, me) = (self.vigil.group.len(), self.vigil.group.me);
        let from = segment * self.segment_len;
        let problem = self.shape.problem(self.request, n, from, self.segment_len);
        let plan = problem
            .map_err(|error| error.to_string())
            .and_then(|problem| {
                // In place or not, the plan for separate buffers is right: peers read copies.
                self.algorithm
                    .plan(&problem, me, false)
                    .map_err(|error| error.to_string())
            })
            .map_err(|why| ErrorKind::Unsupported {
                what: format!("{} by {}", self.request.collective, self.algorithm.name),
                why,
            })?;
        Ok(plan)
    }

    fn spaces(
        &self,
        staging: &Staging,
        segment: usize,
        exchange: Option<&Exchange>,
    ) -> Result<Spaces, Failure> {
        let (n, me) = (self.vigil.group.len(), self.vigil.group.me);
        let (sends, recvs) = self.shape.buffers(self.request, me);
        let (from, size) = (segment * self.segment_len, self.segment_len);
        // The count of segments is the same on all ranks, so all use the same half.
        let half_at = index(staging.segments % 2) * HALF_BYTES;
        let arena: &Arena = &self.local.arena;
        let mut peers = Vec::with_capacity(n);
        for (member, entry) in exchange
            .iter()
            .flat_map(|all| all.entries.iter().enumerate())
        {
            let offset = index(entry.staging);
            if !arena.heap_holds(self.local.region(member), offset, STAGING_BYTES) {
                let what = format!("it names staging at offset {offset}, outside its region");
                let peer = self.vigil.group.members[member];
                return Err(ErrorKind::Transport { peer, what }.into());
            }
            peers.push(arena.at(offset + half_at, HALF_BYTES).cast_const());
        }
        Ok(Spaces {
            input: Map::new(self.request.send.cast_mut(), &sends, from, size),
            output: Map::new(self.request.recv, &recvs, from, size),
            half: arena.at(index(staging.offset()) + half_at, HALF_BYTES),
            peers,
        })
    }

    /// Copies what the round exposes into staging.
    fn expose(&self, plan: &Plan, round: usize, spaces: &Spaces) {
        let size = self.request.dtype.size();
        for step in &plan.rounds[round].steps {
            let Step::Expose { span } = step else {
                continue;
            };
            if span.space == Space::Scratch {
                // Scratch lies in staging already.
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
                    let spans: Vec<(usize, Span)> =
                        srcs.iter().map(|src| (src.peer, src.span)).collect();
                    self.pull_reduce(&spans, *dst, spaces);
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
            let from = staged(
                spaces.peers[peer].cast_mut(),
                src.space,
                src.start + done,
                size,
            );
            // SAFETY: the peer's half was checked to lie in its region, the span lies in its area
            // (both ranks cut the same segments), and the peer does not write it before the next
            // barrier; the target is this rank's buffer.
            unsafe { kernel::copy(to, from.cast_const(), len * size) };
        });
    }

    fn pull_reduce(&self, srcs: &[(usize, Span)], dst: Span, spaces: &Spaces) {
        let (me, size) = (self.vigil.group.me, self.request.dtype.size());
        let divisor = u32::try_from(self.vigil.group.len()).unwrap_or(u32::MAX);
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
                let from: Vec<*const u8> = srcs.iter().map(at).collect();
                // SAFETY: `skipped + len` does not exceed the piece of the target.
                let to = unsafe { to.add(skipped * size) };
                // SAFETY: as in `pull`; the own source is this rank's buffer, and where it is the
                // target too it is exactly so, which the kernel allows.
                unsafe {
                    kernel::reduce_n(self.request.dtype, self.request.op, &from, to, len, divisor);
                }
            });
        });
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
