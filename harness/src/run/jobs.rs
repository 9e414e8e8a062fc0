//! What ranks report of the jobs that they work on, one after the other, and what came of each job.

use std::time::{Duration, Instant};

use muster_comm::error::ErrorKind;
use muster_comm::layout::FrameworkLayout;
use muster_comm::sync::Clock;

use crate::check::collect::{Collector, RankState};
use crate::run::job::Job;
use crate::run::verdict::Facts;
use crate::run::{Finished, Progress};
use crate::world::Ended;

/// Jobs of one world of ranks.
pub(super) struct Jobs<'a> {
    jobs: Vec<State<'a>>,
    /// Which job each rank works on.
    at: Vec<usize>,
    started: Instant,
    /// When all ranks were through their first barrier.
    joined: Option<Instant>,
    progress: &'a mut dyn FnMut(usize, Progress),
}

/// A job, and what is known of it.
struct State<'a> {
    job: &'a Job,
    layout: &'a FrameworkLayout,
    collector: Collector,
    /// When the last report on it came.
    ended: Option<Instant>,
}

impl<'a> Jobs<'a> {
    /// `progress` is told what ranks report, with the place of their job.
    pub(super) fn new(
        jobs: impl Iterator<Item = (&'a Job, &'a FrameworkLayout)>,
        started: Instant,
        progress: &'a mut dyn FnMut(usize, Progress),
    ) -> Self {
        let jobs: Vec<State<'a>> = jobs
            .map(|(job, layout)| State {
                job,
                layout,
                collector: Collector::new(job.work.catalogue(layout), job.matrix.world_size),
                ended: None,
            })
            .collect();
        let world_size = jobs.first().map_or(0, |one| one.job.matrix.world_size);
        Self {
            jobs,
            at: vec![0; world_size as usize],
            started,
            joined: None,
            progress,
        }
    }

    /// Takes in a report. Where the rank says in it that it cannot go on: the ranks that it waited for.
    pub(super) fn reported(&mut self, rank: u32, bytes: &[u8]) -> Option<Vec<u32>> {
        let has_failed_before = self.has_failed(rank);
        let at = self.at.get_mut(rank as usize)?;
        let job = *at;
        let state = self.jobs.get_mut(job)?;
        state.collector.take(rank, bytes);
        state.ended = Some(Clock::now());
        let of_rank = state.collector.ranks().get(rank as usize);
        if of_rank.is_some_and(|state| state.done) {
            *at += 1;
        }
        let awaited = of_rank
            .filter(|state| state.failed.is_some() && !has_failed_before)
            .map(awaited);
        if self.joined.is_none() && state.collector.all_joined() {
            self.joined = Some(Clock::now());
        }
        (self.progress)(job, Progress::of(&mut state.collector));
        awaited
    }

    /// Whether every rank has done every job.
    pub(super) fn are_done(&self) -> bool {
        self.at.iter().all(|at| *at == self.jobs.len())
    }

    /// Whether this rank said that it cannot go on.
    pub(super) fn has_failed(&self, rank: u32) -> bool {
        let jobs = self.jobs.iter();
        let mut states = jobs.filter_map(|one| one.collector.ranks().get(rank as usize));
        states.any(|state| state.failed.is_some())
    }

    /// Whether any rank said so.
    pub(super) fn have_failed(&self) -> bool {
        self.jobs.iter().any(|one| one.collector.has_failure())
    }

    /// Whether what a rank reported tells why its process ended in this way.
    pub(super) fn explain(&self, rank: u32, how: Ended) -> bool {
        let is_done = self.at.get(rank as usize) == Some(&self.jobs.len());
        self.has_failed(rank) || (is_done && how.is_success())
    }

    /// The ranks that have neither done the job at hand nor said why they cannot.
    pub(super) fn silent(&self) -> Vec<u32> {
        let mut silent = self.jobs.iter().map(|one| one.collector.silent());
        silent.find(|ranks| !ranks.is_empty()).unwrap_or_default()
    }

    /// What came of the jobs that began. One that failed is the last. Ranks of our own have ended; those of a guest may go
    /// on, so a job ends with its last report, and a cause belongs to the job that it interrupted.
    pub(super) fn finish(&self, facts: &Facts, is_guest: bool) -> Vec<Finished> {
        let mut all = Vec::new();
        let mut begun = self.started;
        for (index, one) in self.jobs.iter().enumerate() {
            let ended = one.ended.filter(|_| is_guest).unwrap_or_else(Clock::now);
            let none = Facts::default();
            let is_unhurt = is_guest && one.collector.all_done();
            let finished = Finished::new(
                one.job,
                one.layout,
                &one.collector,
                if is_unhurt { &none } else { facts },
                ended.saturating_duration_since(begun),
                self.bring_up().filter(|_| index == 0),
            );
            let is_aborted = finished.verdict.is_some();
            all.push(finished);
            if is_aborted {
                break;
            }
            begun = ended;
        }
        all
    }

    fn bring_up(&self) -> Option<Duration> {
        let joined = self.joined?;
        Some(joined.saturating_duration_since(self.started))
    }
}

/// The ranks for which a rank gave up waiting.
fn awaited(state: &RankState) -> Vec<u32> {
    let failed = state.failed.as_ref();
    let kind = failed.and_then(|failed| failed.kind.as_ref());
    if let Some(
        ErrorKind::Stalled {
            waiting_for: ranks, ..
        }
        | ErrorKind::DeviceStalled { blamed: ranks, .. },
    ) = kind
    {
        return ranks.iter().map(|rank| rank.0).collect();
    }
    Vec::new()
}
