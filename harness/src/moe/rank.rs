//! One rank's way through the cells of `moe`: all ranks take the same steps at the same time.
//!
//! MOE-1: every step begins behind a barrier of all ranks.
//! MOE-2: the first step of a cell and the last one of each round are checked in full, and all steps where the first is wrong
//! on any rank; checking is outside of what is timed.

use std::time::Duration;

use muster_comm::collective::Communicator;
use muster_comm::error::{CommError, ErrorKind};
use muster_comm::layout::FrameworkLayout;
use muster_comm::sync::Clock;
use muster_comm::types::{Rank, ReduceOp};
use muster_comm::world::World;

use super::check::{self, Wrong};
use super::dispatch::{Phase, Recount, Watch};
use super::layer::Layer;
use super::measured::{Measured, Step};
use super::routing::Routing;
use super::sweep::{Cell, Sweep};
use super::workload::Shape;
use crate::bench::machine;
use crate::bench::rank::Place;
use crate::bench::told::Head;

/// Time between two looks at the machine, in nanoseconds.
const PULSE_NS: u64 = 1_000_000_000;

/// A rank that measures.
#[derive(Debug)]
pub struct Moe<'a> {
    plan: &'a Sweep,
    layer: Layer,
    /// All ranks: starts of steps.
    control: Communicator,
    shape: Shape,
    seed: u64,
    rank: usize,
    world: usize,
    /// When this rank last looked at the machine.
    looked_ns: u64,
}

/// What one step took, moved and got wrong.
struct Taken {
    step: Step,
    /// Rows sent, received, kept.
    rows: (u64, u64, u64),
    wrong: Wrong,
}

impl<'a> Moe<'a> {
    /// Makes the groups of this rank; `place` puts each where rows are to move.
    ///
    /// # Errors
    /// If a group cannot be made or placed.
    pub fn new(
        world: &World,
        layout: &FrameworkLayout,
        plan: &'a Sweep,
        seed: u64,
        deadline: Duration,
        place: Place<'_>,
    ) -> Result<Self, CommError> {
        let shape = plan.shape(layout);
        let everyone: Vec<Rank> = (0..world.size()).map(Rank::from_index).collect();
        let control = world.group("moe", &everyone)?;
        control.set_deadline(deadline);
        let layer = Layer::new(world, layout, shape, plan.hidden, &|group| {
            group.set_deadline(deadline);
            place(group)
        })?;
        Ok(Self {
            plan,
            layer,
            control,
            shape,
            seed,
            rank: world.rank().index(),
            world: world.size(),
            looked_ns: 0,
        })
    }

    /// The groups of this rank.
    #[must_use]
    pub fn layer(&self) -> &Layer {
        &self.layer
    }

    /// Measures one cell in one round.
    ///
    /// # Errors
    /// The first error of a call.
    pub fn measure(
        &mut self,
        number: u32,
        round: u32,
        cell: &Cell<'_>,
    ) -> Result<Measured, CommError> {
        let routings: Vec<Routing> = (0..cell.source.routings(self.shape))
            .map(|step| self.routing(cell, step, self.rank))
            .collect();
        let mut measured = Measured {
            head: Head {
                cell: number,
                round,
                ..Head::default()
            },
            tokens: routings[0].tokens() as u64,
            by_expert: routings[0].counts(self.shape.experts),
            ..Measured::default()
        };
        if let Some(capacity) = cell.dispatcher.capacity(self.shape, cell.tokens) {
            let over = |count: &u64| count.saturating_sub(capacity as u64);
            measured.dropped = measured.by_expert.iter().map(over).sum();
        }
        let is_time = number == 0 || Clock::nanos() - self.looked_ns > PULSE_NS;
        if self.rank == 0 && is_time {
            measured.head.machine = Some(machine::pulse());
            self.looked_ns = Clock::nanos();
        }
        let cold = match self.step(cell, &routings, 0, true) {
            Ok(cold) => cold,
            // Refused on all members alike, for it depends on the product and the call only.
            Err(error) if matches!(error.kind(), ErrorKind::Unsupported { .. }) => {
                measured.head.unsupported = Some(error.kind().to_string());
                return Ok(measured);
            }
            Err(error) => return Err(error),
        };
        let is_wrong = cold.wrong.elements > 0;
        note(cold.wrong, &mut measured);
        measured.cold = cold.step;
        measured.rows = cold.rows;
        // All of it, copies to devices too: it decides how long the cell takes.
        let time_ns = measured.cold.time_ns(|_: Phase| true);
        let mut slowest = [time_ns, u64::from(is_wrong)];
        self.control
            .all_reduce_in_place(&mut slowest, ReduceOp::Max)?;
        let is_wrong = slowest[1] > 0;
        let steps = self.plan.steps(slowest[0]);
        for step in 0..self.plan.warm_ups(slowest[0]) {
            let warm = self.step(cell, &routings, u64::from(step), is_wrong)?;
            note(warm.wrong, &mut measured);
        }
        for step in 0..steps {
            let is_checked = is_wrong || step + 1 == steps;
            let timed = self.step(cell, &routings, u64::from(step), is_checked)?;
            note(timed.wrong, &mut measured);
            measured.steps.push(timed.step);
        }
        Ok(measured)
    }

    fn routing(&self, cell: &Cell<'_>, step: u64, rank: usize) -> Routing {
        cell.source
            .route(self.shape, self.seed, step, rank, self.world, cell.tokens)
    }

    /// One step: its times and its rows, and what is wrong with it if it is checked.
    fn step(
        &self,
        cell: &Cell<'_>,
        routings: &[Routing],
        step: u64,
        is_checked: bool,
    ) -> Result<Taken, CommError> {
        let step = step % routings.len() as u64;
        let routing = &routings[usize::try_from(step).unwrap_or(0)];
        let routing_of = |rank: usize| self.routing(cell, step, rank);
        let counts = || check::counts_expected(&self.layer, cell.dispatcher, &routing_of);
        let mut recount = Recount::new(&counts, is_checked);
        let mut watch = Watch::default();
        self.control.barrier()?;
        let begun = Clock::nanos();
        let (layer, dispatcher, payload) = (&self.layer, cell.dispatcher, cell.payload);
        let outcome = dispatcher.step(
            layer,
            payload,
            routing,
            cell.tokens,
            &mut watch,
            &mut recount,
        )?;
        let spans = watch.take();
        let mut wrong = recount.wrong();
        if is_checked {
            let expected = check::rows_expected(layer, dispatcher, cell.tokens, &routing_of);
            let received = outcome.received.unwrap_or_default();
            wrong.add(check::received(
                layer,
                &expected,
                &received.tokens,
                &received.probs,
            ));
            let combined = &outcome.combined;
            wrong.add(check::combined(
                layer,
                dispatcher,
                payload,
                cell.tokens,
                routing,
                combined,
            ));
        }
        layer.pool.give(outcome.combined);
        let rows = (
            outcome.rows_sent as u64,
            outcome.rows_received as u64,
            outcome.rows_own as u64,
        );
        Ok(Taken {
            step: Step::of(begun, &spans),
            rows,
            wrong,
        })
    }
}

fn note(wrong: Wrong, measured: &mut Measured) {
    measured.head.wrong += wrong.elements;
    if measured.head.wrong_text.is_none() {
        measured.head.wrong_text = wrong.first;
    }
}
