//! A rank's way through its work; through what is measured: every cell in every round.

use std::ops::Range;
use std::time::Instant;

use muster_comm::collective::Communicator;
use muster_comm::error::CommError;
use muster_comm::layout::{FrameworkLayout, GroupKind};
use muster_comm::sync::Clock;

use super::Worker;
use crate::bench::ground::Ground;
use crate::bench::rank::Bench;
use crate::bench::sweep::Sweep;
use crate::check::inject::Inject;
use crate::check::message::{CaseResult, RankMessage};
use crate::moe::{self, rank::Moe};
use crate::run::micros;
use crate::run::npu::Npu;
use crate::run::work::{Measured, Work};

impl Worker<'_> {
    /// Does what the job says.
    pub(super) fn go(
        &mut self,
        layout: &FrameworkLayout,
        started: Instant,
    ) -> Result<(), CommError> {
        match &self.job.work {
            Work::Bench(plan) => self.bench(plan, layout, started),
            Work::Moe(plan) => self.moe(plan, layout, started),
            Work::Verify(_) => self.verify(started),
        }
    }

    /// Measures every cell of a plan, as often as it says.
    fn bench(
        &mut self,
        plan: &Sweep,
        layout: &FrameworkLayout,
        started: Instant,
    ) -> Result<(), CommError> {
        let (kinds, cells) = (plan.kinds(layout), plan.cells(layout));
        let (world, job) = (self.world, self.job);
        let (rank, npu) = (world.rank().0, self.npu.take());
        let place = placed(npu.as_ref());
        let everyone = self.join(started)?;
        let tamper = job.faults_of(rank).next().map(Inject::tamper);
        let mut bench = Bench::new(
            world,
            plan,
            &kinds,
            (job.deadline(), job.seed),
            tamper,
            &place,
        )?;
        // The questions of a cell's groups stand one after the other.
        let mut first = 0;
        let cases = cells.iter().map(|cell| {
            let groups = &kinds[cell.kind].groups;
            let mine = groups.iter().position(|group| group.contains(&rank));
            first += groups.len();
            mine.map(|group| first - groups.len() + group)
        });
        let cases: Vec<Option<usize>> = cases.collect();
        self.measure(plan.rounds_here(), &cases, |number, round| {
            let measured = bench.measure(number, round, &cells[number as usize])?;
            Ok(measured.map(Measured::Bench))
        })?;
        everyone.barrier()
    }

    /// Dispatches tokens in every cell of a plan, as often as it says.
    fn moe(
        &mut self,
        plan: &moe::sweep::Sweep,
        layout: &FrameworkLayout,
        started: Instant,
    ) -> Result<(), CommError> {
        let (seed, deadline) = (self.job.seed, self.job.deadline());
        let (world, npu) = (self.world, self.npu.take());
        let place = placed(npu.as_ref());
        let everyone = self.join(started)?;
        let mut moe = Moe::new(world, layout, plan, seed, deadline, &place)?;
        let (cells, groups) = (plan.cells(), layout.expert_groups(GroupKind::EtpEp));
        let mine = groups.holding(world.rank()).map(|(index, _)| index);
        let case = |number| mine.map(|group| number * groups.len() + group);
        let cases: Vec<Option<usize>> = (0..cells.len()).map(case).collect();
        self.measure(plan.rounds_here(), &cases, |number, round| {
            let measured = moe.measure(number, round, &cells[number as usize])?;
            Ok(Some(Measured::Moe(measured)))
        })?;
        everyone.barrier()
    }

    /// Goes through all cells in every round. `cases` has the question of each that this rank answers with its last
    /// round.
    fn measure(
        &mut self,
        rounds: Range<u32>,
        cases: &[Option<usize>],
        mut measure: impl FnMut(u32, u32) -> Result<Option<Measured>, CommError>,
    ) -> Result<(), CommError> {
        for round in rounds.clone() {
            for (number, case) in (0..).zip(cases) {
                self.current = case.and_then(|case| u32::try_from(case).ok());
                let Some(measured) = measure(number, round)? else {
                    continue;
                };
                self.wrong |= measured.wrong() > 0;
                match measured.encode() {
                    Ok(bytes) => self.tell(&RankMessage::Measured(bytes)),
                    Err(error) => self.lose(error.to_string()),
                }
                if round + 1 == rounds.end {
                    self.has_measured(measured.took_us());
                }
            }
        }
        self.current = None;
        Ok(())
    }

    /// Answers the question under way: its cell has been measured, the last time in so long.
    fn has_measured(&mut self, elapsed_us: u64) {
        if let Some(case) = self.current {
            self.pending.push(CaseResult {
                case,
                elapsed_us,
                calls_us: Vec::new(),
                algo: None,
                wrong: None,
                refused: Vec::new(),
            });
            self.flush();
        }
    }

    /// Passes the first barrier; nobody leaves while another still needs it.
    pub(super) fn join(&mut self, started: Instant) -> Result<Communicator, CommError> {
        let everyone = self.group("world", &self.everyone())?;
        everyone.barrier()?;
        let elapsed_us = micros(Clock::now().duration_since(started));
        self.tell(&RankMessage::Joined { elapsed_us });
        Ok(everyone)
    }
}

/// Puts groups on the device of this rank, if it has one.
fn placed(npu: Option<&Npu>) -> impl Fn(Communicator) -> Result<Ground, CommError> {
    move |group| match npu {
        Some(npu) => npu.on_device(&group).map(Ground::from),
        None => Ok(group.into()),
    }
}
