//! A rank's way through a benchmark, of collectives or of MoE dispatch: every cell in every round.

use std::time::Instant;

use muster_comm::collective::Communicator;
use muster_comm::error::CommError;
use muster_comm::layout::{GroupKind, Layout};
use muster_comm::sync::Clock;

use super::Work;
use crate::bench::ground::Ground;
use crate::bench::plan::Plan;
use crate::bench::rank::Bench;
use crate::check::message::{CaseResult, RankMessage};
use crate::moe::{self, rank::Moe};
use crate::run::micros;
use crate::run::npu::Npu;

impl Work<'_> {
    /// Measures every cell of a plan, as often as it says.
    pub(super) fn bench(
        &mut self,
        plan: &Plan,
        layout: &Layout,
        started: Instant,
    ) -> Result<(), CommError> {
        let everyone = self.group("world", &self.everyone())?;
        everyone.barrier()?;
        let elapsed_us = micros(Clock::now().duration_since(started));
        self.tell(&RankMessage::Joined { elapsed_us });
        let (kinds, cells) = (plan.kinds(layout), plan.cells(layout));
        let npu = self.npu.take();
        let place = placed(npu.as_ref());
        let mut bench = Bench::new(self.world, plan, &kinds, self.job, &place)?;
        for round in plan.rounds_here() {
            // The questions of a cell's groups stand one after the other.
            let mut first = 0;
            for (number, cell) in (0..).zip(&cells) {
                let groups = &kinds[cell.kind].groups;
                let mine = groups
                    .iter()
                    .position(|group| group.contains(&self.world.rank().0));
                self.current = mine.and_then(|group| u32::try_from(first + group).ok());
                first += groups.len();
                let Some(measured) = bench.measure(number, round, cell)? else {
                    continue;
                };
                self.wrong |= measured.wrong > 0;
                let elapsed_us = measured.samples_ns.iter().sum::<u64>() / 1000;
                self.tell(&RankMessage::Measured(measured));
                if round + 1 == plan.rounds_here().end {
                    self.has_measured(elapsed_us);
                }
            }
        }
        self.current = None;
        everyone.barrier()
    }

    /// Dispatches tokens in every cell of a plan, as often as it says.
    pub(super) fn moe(
        &mut self,
        plan: &moe::plan::Plan,
        layout: &Layout,
        started: Instant,
    ) -> Result<(), CommError> {
        let everyone = self.group("world", &self.everyone())?;
        everyone.barrier()?;
        let elapsed_us = micros(Clock::now().duration_since(started));
        self.tell(&RankMessage::Joined { elapsed_us });
        let (seed, deadline) = (self.job.seed, self.job.deadline());
        let mut moe = Moe::new(
            self.world,
            layout,
            plan,
            seed,
            deadline,
            &placed(self.npu.as_ref()),
        )?;
        let groups = layout.groups(GroupKind::EtpEp);
        let mine = groups
            .iter()
            .position(|group| group.iter().any(|rank| rank == self.world.rank()));
        for round in plan.rounds_here() {
            for (number, cell) in plan.cells().iter().enumerate() {
                self.current =
                    mine.and_then(|group| u32::try_from(number * groups.len() + group).ok());
                let number = u32::try_from(number).unwrap_or(u32::MAX);
                let measured = moe.measure(number, round, cell)?;
                self.wrong |= measured.wrong > 0;
                let ns: u64 = measured
                    .steps
                    .iter()
                    .map(|step| step.time_ns(|_| true))
                    .sum();
                self.tell(&RankMessage::Dispatched(measured));
                if round + 1 == plan.rounds_here().end {
                    self.has_measured(ns / 1000);
                }
            }
        }
        self.current = None;
        everyone.barrier()
    }

    /// Answers the question under way: its cell has been measured, the last time in so long.
    fn has_measured(&mut self, elapsed_us: u64) {
        if let Some(case) = self.current {
            self.pending.push(CaseResult {
                case,
                elapsed_us,
                algo: None,
                wrong: None,
                refused: Vec::new(),
            });
            self.flush();
        }
    }
}

/// Puts groups on the device of this rank, if it has one.
fn placed(npu: Option<&Npu>) -> impl Fn(Communicator) -> Result<Ground, CommError> {
    move |group| match npu {
        Some(npu) => npu.on_device(&group).map(Ground::from),
        None => Ok(group.into()),
    }
}
