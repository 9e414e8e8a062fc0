//! Runs plans with symbols.

use super::super::plan::{Links, PeerSpan, Plan, Space, Span, Step};
use super::super::problem::Problem;
use super::super::schedule::{At, Observer};
use super::memory::{Buffer, Forest, Run, Tree, side_by_side};
use super::rules::{Map, Memory, is_idle, written};
use super::{Defect, DefectKind, at};

/// A write that takes effect when its round is complete.
#[derive(Debug)]
struct Write {
    memory: Memory,
    value: Vec<Run>,
}

/// What one rank holds.
#[derive(Debug, Default)]
struct Holder {
    /// By number of buffer, see [`Memory`].
    buffers: [Buffer; 3],
    /// What peers may read.
    exposed: Vec<Memory>,
    /// What the round in progress will have written.
    writes: Vec<Write>,
    /// What the round in progress writes, known from its start.
    writing: Vec<Memory>,
    /// From which ranks it has heard, directly or through others.
    heard: Vec<bool>,
    /// From whom it hears in the round in progress.
    hears: Vec<bool>,
}

/// The state of all ranks.
#[derive(Debug)]
pub(super) struct Symbols<'a> {
    plans: &'a [Plan],
    map: &'a Map,
    holders: Vec<Holder>,
    pub(super) forest: Forest,
    /// The direct round for which `writing` is up to date.
    prepared: Option<usize>,
}

impl<'a> Symbols<'a> {
    pub(super) fn new(problem: &Problem, plans: &'a [Plan], map: &'a Map) -> Self {
        let n = problem.n();
        let mut symbols = Self {
            plans,
            map,
            holders: (0..n).map(|rank| Holder::new(n, rank)).collect(),
            forest: Forest::new(n),
            prepared: None,
        };
        for (rank, plan) in plans.iter().enumerate() {
            let own = symbols.forest.leaf(rank);
            symbols.fill(rank, Span::new(Space::In, 0, problem.in_len(rank)), own);
            if problem.collective().has_one_buffer() && problem.root() == Some(rank) {
                symbols.fill(rank, Span::new(Space::Out, 0, problem.out_len(rank)), own);
            }
            if problem.collective().is_empty() {
                let token = symbols.forest.token();
                let scratch = Span::new(Space::Scratch, 0, plan.scratch);
                symbols.fill(rank, scratch, token);
            }
        }
        symbols
    }

    /// What the receive buffer of `rank` holds.
    ///
    /// # Errors
    /// The first element that holds nothing.
    pub(super) fn result(&self, rank: usize, start: usize, len: usize) -> Result<Vec<Run>, usize> {
        let memory = self.map.memory(rank, Span::new(Space::Out, start, len));
        self.holders[rank].buffers[memory.buffer]
            .read(memory.start, len)
            .map_err(|element| start + (element - memory.start))
    }

    /// The lowest rank that `rank` has not heard from.
    pub(super) fn unheard(&self, rank: usize) -> Option<usize> {
        self.holders[rank].heard.iter().position(|heard| !heard)
    }

    fn fill(&mut self, rank: usize, span: Span, tree: Tree) {
        if span.len == 0 {
            return;
        }
        let memory = self.map.memory(rank, span);
        let value = Run {
            start: 0,
            len: span.len,
            tree,
            base: 0,
            written: None,
        };
        self.holders[rank].buffers[memory.buffer].write(memory.start, span.len, &[value]);
    }

    fn read(&self, rank: usize, span: Span, place: At) -> Result<Vec<Run>, Defect> {
        let memory = self.map.memory(rank, span);
        self.holders[rank].buffers[memory.buffer]
            .read(memory.start, span.len)
            .map_err(|element| {
                let kind = DefectKind::Undefined {
                    space: span.space,
                    element: span.start + (element - memory.start),
                };
                at(place, kind)
            })
    }

    /// Puts a value where it will be when the round is complete.
    fn write(&mut self, place: At, dst: Span, mut value: Vec<Run>) {
        for run in &mut value {
            run.written = Some((place.round, place.step));
        }
        let memory = self.map.memory(place.rank, dst);
        self.holders[place.rank]
            .writes
            .push(Write { memory, value });
    }

    /// `left op right`, element by element.
    fn combined(&mut self, left: &[Run], right: &[Run], place: At) -> Result<Vec<Run>, Defect> {
        let pairs = side_by_side(left, right);
        let mut value = Vec::with_capacity(pairs.len());
        for pair in pairs {
            if pair.left.base != pair.right.base {
                let kind = DefectKind::Mixed {
                    left: pair.left.base,
                    right: pair.right.base,
                };
                return Err(at(place, kind));
            }
            let tree = self
                .forest
                .combine(pair.left.tree, pair.right.tree)
                .map_err(|contributor| {
                    let kind = DefectKind::Doubled {
                        contributor,
                        element: pair.left.base,
                    };
                    at(place, kind)
                })?;
            value.push(Run {
                start: pair.start,
                len: pair.len,
                tree,
                ..pair.left
            });
        }
        Ok(value)
    }

    /// What a peer's memory holds, if it may be read in this round.
    fn pulled(&self, src: PeerSpan, place: At) -> Result<Vec<Run>, Defect> {
        if src.peer != place.rank {
            let memory = self.map.memory(src.peer, src.span);
            let peer = &self.holders[src.peer];
            if !peer.exposed.iter().any(|exposed| exposed.holds(&memory)) {
                let kind = DefectKind::Unexposed {
                    peer: src.peer,
                    space: src.span.space,
                    element: src.span.start,
                };
                return Err(at(place, kind));
            }
            if let Some(writing) = peer.writing.iter().find(|one| one.overlaps(&memory)) {
                let first = writing.start.max(memory.start);
                let kind = DefectKind::Race {
                    peer: src.peer,
                    space: src.span.space,
                    element: src.span.start + (first - memory.start),
                };
                return Err(at(place, kind));
            }
        }
        self.read(src.peer, src.span, place)
    }

    /// Notes what every rank writes in a direct round, before anyone reads.
    fn prepare(&mut self, round: usize) {
        if self.prepared == Some(round) {
            return;
        }
        self.prepared = Some(round);
        for (rank, plan) in self.plans.iter().enumerate() {
            self.holders[rank].writing = plan.rounds[round]
                .steps
                .iter()
                .filter(|step| !is_idle(self.map, rank, step))
                .filter_map(|step| Some(self.map.memory(rank, written(step)?)))
                .collect();
        }
    }

    /// Runs a step that is no message.
    fn run_step(&mut self, place: At, step: &Step) -> Result<(), Defect> {
        let (value, dst) = match step {
            Step::Copy { src, dst } => (self.read(place.rank, *src, place)?, *dst),
            Step::Reduce {
                src,
                dst,
                src_first,
            } => {
                let theirs = self.read(place.rank, *src, place)?;
                let mine = self.read(place.rank, *dst, place)?;
                let (left, right) = ordered(theirs, mine, *src_first);
                (self.combined(&left, &right, place)?, *dst)
            }
            Step::Pull { src, dst } => (self.pulled(*src, place)?, *dst),
            Step::PullReduce { srcs, dst } => {
                let mut sum = self.pulled(srcs[0], place)?;
                for src in &srcs[1..] {
                    let next = self.pulled(*src, place)?;
                    sum = self.combined(&sum, &next, place)?;
                }
                (sum, *dst)
            }
            Step::Send { .. }
            | Step::Recv { .. }
            | Step::RecvReduce { .. }
            | Step::Expose { .. } => {
                return Ok(());
            }
        };
        self.write(place, dst, value);
        Ok(())
    }
}

impl Observer for Symbols<'_> {
    type Error = Defect;

    fn enter(&mut self, rank: usize, round: usize) -> Result<(), Defect> {
        let plans = self.plans;
        if plans[rank].links == Links::Direct {
            self.prepare(round);
        }
        let heard = self.holders[rank].heard.clone();
        self.holders[rank].hears = heard;
        for (number, step) in plans[rank].rounds[round].steps.iter().enumerate() {
            let place = At {
                rank,
                round,
                step: number,
            };
            if !is_idle(self.map, rank, step) {
                self.run_step(place, step)?;
            }
        }
        Ok(())
    }

    fn message(&mut self, send: At, recv: At) -> Result<(), Defect> {
        let plans = self.plans;
        let step_at = |place: At| &plans[place.rank].rounds[place.round].steps[place.step];
        let Step::Send { src, .. } = step_at(send) else {
            unreachable!("a message begins with a send");
        };
        let payload = self.read(send.rank, *src, send)?;
        match step_at(recv) {
            Step::Recv { dst, .. } => self.write(recv, *dst, payload),
            Step::RecvReduce {
                dst, recv_first, ..
            } => {
                let mine = self.read(recv.rank, *dst, recv)?;
                let (left, right) = ordered(payload, mine, *recv_first);
                let value = self.combined(&left, &right, recv)?;
                self.write(recv, *dst, value);
            }
            Step::Copy { .. }
            | Step::Expose { .. }
            | Step::Pull { .. }
            | Step::PullReduce { .. }
            | Step::Reduce { .. }
            | Step::Send { .. } => unreachable!("a message ends with a receive"),
        }
        let news = self.holders[send.rank].heard.clone();
        for (hears, heard) in self.holders[recv.rank].hears.iter_mut().zip(news) {
            *hears |= heard;
        }
        Ok(())
    }

    fn complete(&mut self, rank: usize, round: usize) -> Result<(), Defect> {
        let holder = &mut self.holders[rank];
        for Write { memory, value } in std::mem::take(&mut holder.writes) {
            holder.buffers[memory.buffer].write(memory.start, memory.len, &value);
            if !holder.exposed.is_empty() {
                holder.exposed = without(&holder.exposed, memory);
            }
        }
        holder.heard = std::mem::take(&mut holder.hears);
        for (number, step) in self.plans[rank].rounds[round].steps.iter().enumerate() {
            if let Step::Expose { span } = step {
                let place = At {
                    rank,
                    round,
                    step: number,
                };
                self.read(rank, *span, place)?;
                let memory = self.map.memory(rank, *span);
                self.holders[rank].exposed.push(memory);
            }
        }
        Ok(())
    }

    fn barrier(&mut self, _round: usize) {
        for holder in &mut self.holders {
            holder.heard.fill(true);
        }
    }
}

impl Holder {
    fn new(n: usize, rank: usize) -> Self {
        let mut heard = vec![false; n];
        heard[rank] = true;
        Self {
            heard,
            ..Self::default()
        }
    }
}

fn ordered(theirs: Vec<Run>, mine: Vec<Run>, theirs_first: bool) -> (Vec<Run>, Vec<Run>) {
    if theirs_first {
        (theirs, mine)
    } else {
        (mine, theirs)
    }
}

/// What is left exposed of `exposed` after a write.
fn without(exposed: &[Memory], write: Memory) -> Vec<Memory> {
    let mut left = Vec::with_capacity(exposed.len() + 1);
    for span in exposed {
        if !span.overlaps(&write) {
            left.push(*span);
            continue;
        }
        let parts = [
            (span.start, write.start.max(span.start)),
            (write.end().min(span.end()), span.end()),
        ];
        left.extend(
            parts
                .into_iter()
                .filter(|(start, end)| start < end)
                .map(|(start, end)| Memory {
                    buffer: span.buffer,
                    start,
                    len: end - start,
                }),
        );
    }
    left
}
