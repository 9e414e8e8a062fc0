//! What can be said of each round of each plan by itself: bounds, lengths, peers, PLAN-1.

use super::super::plan::{Links, PeerSpan, Plan, Round, Space, Span, Step};
use super::super::problem::{InPlace, Problem};
use super::defect::DefectKind;

/// Where the buffers of the ranks lie: in-place calls make two of them one.
#[derive(Debug)]
pub(super) struct Map {
    n: usize,
    ranks: Vec<Place>,
}

/// Where the buffers of one rank lie.
#[derive(Clone, Copy, Debug)]
struct Place {
    in_len: usize,
    out_len: usize,
    scratch: usize,
    alias: InPlace,
}

/// Memory of one rank: buffer 0 is `In`, 1 is `Out`, 2 is scratch, whatever else they are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Memory {
    pub(super) buffer: usize,
    pub(super) start: usize,
    pub(super) len: usize,
}

impl Memory {
    pub(super) fn end(&self) -> usize {
        self.start + self.len
    }

    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.buffer == other.buffer && self.start < other.end() && other.start < self.end()
    }

    pub(super) fn holds(&self, other: &Self) -> bool {
        self.buffer == other.buffer && self.start <= other.start && other.end() <= self.end()
    }
}

impl Map {
    /// The buffers of `problem` for calls of one kind; none where it has no in-place form.
    pub(super) fn of(problem: &Problem, plans: &[Plan], in_place: bool) -> Option<Self> {
        let ranks = plans
            .iter()
            .enumerate()
            .map(|(rank, plan)| {
                Some(Place {
                    in_len: problem.in_len(rank),
                    out_len: problem.out_len(rank),
                    scratch: plan.scratch,
                    alias: if in_place {
                        problem.in_place(rank)?
                    } else {
                        InPlace::Apart
                    },
                })
            })
            .collect::<Option<Vec<_>>>()?;
        Some(Self {
            n: problem.n(),
            ranks,
        })
    }

    /// The memory of a span of a rank.
    pub(super) fn memory(&self, rank: usize, span: Span) -> Memory {
        let (buffer, offset) = match (span.space, self.ranks[rank].alias) {
            (Space::In, InPlace::InWithinOut(offset)) => (1, offset),
            (Space::In, InPlace::Apart | InPlace::OutWithinIn(_)) => (0, 0),
            (Space::Out, InPlace::OutWithinIn(offset)) => (0, offset),
            (Space::Out, InPlace::Apart | InPlace::InWithinOut(_)) => (1, 0),
            (Space::Scratch, _) => (2, 0),
        };
        Memory {
            buffer,
            start: span.start + offset,
            len: span.len,
        }
    }

    fn limit(&self, rank: usize, space: Space) -> usize {
        let place = &self.ranks[rank];
        match space {
            Space::In => place.in_len,
            Space::Out => place.out_len,
            Space::Scratch => place.scratch,
        }
    }

    fn in_bounds(&self, rank: usize, span: Span) -> Result<(), DefectKind> {
        if span.len == 0 {
            return Err(DefectKind::EmptySpan);
        }
        let limit = self.limit(rank, span.space);
        let end = span.start.saturating_add(span.len);
        if end > limit {
            return Err(DefectKind::Bounds {
                space: span.space,
                end,
                limit,
            });
        }
        Ok(())
    }

    fn is_peer(&self, rank: usize, peer: usize) -> Result<(), DefectKind> {
        if peer == rank || peer >= self.n {
            return Err(DefectKind::Peer { peer, n: self.n });
        }
        Ok(())
    }
}

/// What a step writes on its own rank.
pub(super) fn written(step: &Step) -> Option<Span> {
    match step {
        Step::Copy { dst, .. }
        | Step::Reduce { dst, .. }
        | Step::Recv { dst, .. }
        | Step::RecvReduce { dst, .. }
        | Step::Pull { dst, .. }
        | Step::PullReduce { dst, .. } => Some(*dst),
        Step::Send { .. } | Step::Expose { .. } => None,
    }
}

/// Whether the step copies memory onto itself, which is no step at all.
pub(super) fn is_idle(map: &Map, rank: usize, step: &Step) -> bool {
    match step {
        Step::Copy { src, dst } => map.memory(rank, *src) == map.memory(rank, *dst),
        Step::Reduce { .. }
        | Step::Send { .. }
        | Step::Recv { .. }
        | Step::RecvReduce { .. }
        | Step::Expose { .. }
        | Step::Pull { .. }
        | Step::PullReduce { .. } => false,
    }
}

/// What a step reads on its own rank, other than what it writes.
fn read(rank: usize, step: &Step) -> Vec<Span> {
    match step {
        Step::Copy { src, .. } | Step::Reduce { src, .. } | Step::Send { src, .. } => vec![*src],
        Step::PullReduce { srcs, .. } => srcs
            .iter()
            .filter(|src| src.peer == rank)
            .map(|src| src.span)
            .collect(),
        Step::Recv { .. } | Step::RecvReduce { .. } | Step::Expose { .. } | Step::Pull { .. } => {
            Vec::new()
        }
    }
}

/// Checks one step by itself.
pub(super) fn check_step(
    map: &Map,
    rank: usize,
    links: Links,
    step: &Step,
) -> Result<(), DefectKind> {
    let lengths = |read: Span, written: Span| {
        if read.len == written.len {
            Ok(())
        } else {
            Err(DefectKind::Lengths {
                read: read.len,
                written: written.len,
            })
        }
    };
    let is_direct = match step {
        Step::Copy { src, dst } | Step::Reduce { src, dst, .. } => {
            map.in_bounds(rank, *src)?;
            lengths(*src, *dst)?;
            false
        }
        Step::Send { to, src } => {
            map.is_peer(rank, *to)?;
            map.in_bounds(rank, *src)?;
            false
        }
        Step::Recv { from, .. } | Step::RecvReduce { from, .. } => {
            map.is_peer(rank, *from)?;
            false
        }
        Step::Expose { span } => {
            map.in_bounds(rank, *span)?;
            true
        }
        Step::Pull { src, dst } => {
            map.is_peer(rank, src.peer)?;
            map.in_bounds(src.peer, src.span)?;
            lengths(src.span, *dst)?;
            true
        }
        Step::PullReduce { srcs, dst } => {
            check_sources(map, rank, srcs)?;
            srcs.iter().try_for_each(|src| lengths(src.span, *dst))?;
            true
        }
    };
    if is_direct && links == Links::Message {
        return Err(DefectKind::Links { links });
    }
    if let Some(dst) = written(step) {
        map.in_bounds(rank, dst)?;
        if dst.space == Space::In {
            return Err(DefectKind::WritesIn);
        }
    }
    Ok(())
}

fn check_sources(map: &Map, rank: usize, srcs: &[PeerSpan]) -> Result<(), DefectKind> {
    if srcs.is_empty() {
        return Err(DefectKind::NoSources);
    }
    for src in srcs {
        if src.peer != rank {
            map.is_peer(rank, src.peer)?;
        }
        map.in_bounds(src.peer, src.span)?;
    }
    Ok(())
}

/// One use of memory in a round.
#[derive(Clone, Copy, Debug)]
struct Use {
    memory: Memory,
    step: usize,
    /// The span, if the step writes it.
    written: Option<Span>,
}

/// PLAN-1: which step of the round writes what another uses.
pub(super) fn check_round(
    map: &Map,
    rank: usize,
    round: &Round,
) -> Result<(), (usize, DefectKind)> {
    let mut uses = Vec::with_capacity(2 * round.steps.len());
    for (number, step) in round.steps.iter().enumerate() {
        if is_idle(map, rank, step) {
            continue;
        }
        check_self(map, rank, step).map_err(|kind| (number, kind))?;
        let reads = read(rank, step).into_iter().map(|span| (span, None));
        let writes = written(step).into_iter().map(|span| (span, Some(span)));
        uses.extend(reads.chain(writes).map(|(span, written)| Use {
            memory: map.memory(rank, span),
            step: number,
            written,
        }));
    }
    uses.sort_by_key(|one| one.memory);
    let mut open: Vec<Use> = Vec::new();
    for one in uses {
        open.retain(|before| before.memory.overlaps(&one.memory));
        for before in open.iter().filter(|before| before.step != one.step) {
            let (writer, other) = match (before.written, one.written) {
                (_, Some(span)) => ((one, span), before),
                (Some(span), None) => ((*before, span), &one),
                (None, None) => continue,
            };
            return Err((writer.0.step, conflict(writer, other)));
        }
        open.push(one);
    }
    Ok(())
}

fn conflict((writer, span): (Use, Span), other: &Use) -> DefectKind {
    let first = writer.memory.start.max(other.memory.start);
    DefectKind::Conflict {
        other: other.step,
        space: span.space,
        element: span.start + (first - writer.memory.start),
    }
}

/// A step may read what it writes only where it is exactly the same memory, element for element.
fn check_self(map: &Map, rank: usize, step: &Step) -> Result<(), DefectKind> {
    let Some(dst) = written(step) else {
        return Ok(());
    };
    let target = map.memory(rank, dst);
    // A local reduction of memory with itself would count it twice; no plan means that.
    let may_be_same = matches!(step, Step::PullReduce { .. });
    for src in read(rank, step) {
        let source = map.memory(rank, src);
        if source.overlaps(&target) && !(may_be_same && source == target) {
            let first = source.start.max(target.start);
            return Err(DefectKind::OwnSource {
                space: dst.space,
                element: dst.start + (first - target.start),
            });
        }
    }
    Ok(())
}
