//! Programs whose processes do not run, and for which nobody waits in a call that the arbiter knows: when others gave up, and
//! at the end of a job, when all others have ended or said goodbye.

use std::time::Duration;

use muster_comm::error::verdict::{Class, Verdict};
use muster_comm::rendezvous::Stopped;
use muster_comm::sync::{Clock, Deadline};
use muster_comm::types::Rank;
use muster_comm::watch::judge::{Observation, observed};
use muster_comm::watch::{keep, of_process};

use super::{Phase, Supervisor};
use crate::out;
use crate::run::standing::{LOOK_EVERY, Standing, standing, tree};

/// All others have ended for this long before it is said who still runs.
const LAST_AFTER: Duration = Duration::from_secs(10);

/// The ranks that still run when all others have ended or said goodbye.
#[derive(Debug, Default)]
pub(super) struct Last {
    /// Since when only they run.
    since: Option<Deadline>,
    pub(super) next: Option<Deadline>,
    stopped: Stopped,
    is_told: bool,
}

impl Supervisor<'_> {
    /// A rank that has joined and whose process does not run.
    pub(super) fn look_for_stopped(&self) -> Option<Verdict> {
        let mut joined = self
            .running()
            .filter(|one| self.arrivals.has_joined(one.rank()));
        joined.find_map(|one| {
            let Standing { pid, state, .. } = standing(one.pid()).filter(|look| look.is_stopped)?;
            let seen = Observation::StoppedInCall { state };
            Some(observed(one.rank(), pid, seen, Clock::wall_ms()))
        })
    }

    /// Where all others have ended or said goodbye: a rank that does not run holds up the end of the job, and nobody waits
    /// for it in a call.
    pub(super) fn look_at_the_last(&mut self) {
        if !matches!(self.phase, Phase::Running(_)) {
            // What was found stays.
            self.last.next = None;
            return;
        }
        let is_gone =
            self.ranks.processes().len() > self.running().count() || self.arrivals.has_any_left();
        let is_last = |rank: u32| self.arrivals.has_joined(rank);
        if !is_gone || !self.running().all(|one| is_last(one.rank())) {
            self.last = Last::default();
            return;
        }
        let since = *self
            .last
            .since
            .get_or_insert_with(|| Deadline::after(LAST_AFTER));
        if self.last.next.is_some_and(|next| !next.passed()) {
            return;
        }
        let looks: Vec<(u32, Standing)> = self
            .running()
            .filter_map(|one| Some((one.rank(), standing(one.pid())?)))
            .collect();
        self.last.next = Some(Deadline::after(LOOK_EVERY));
        let now_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut stopped = Vec::new();
        for (rank, look) in &looks {
            if self.last.stopped.see(Rank(*rank), look.is_stopped, now_ms) {
                stopped.push((*rank, look));
            }
        }
        // Others that run have work to do, and may wait for it.
        let is_idle =
            |(rank, look): &(u32, Standing)| look.is_stopped || self.arrivals.has_left(*rank);
        if let Some((rank, look)) = stopped.first()
            && looks.iter().all(is_idle)
        {
            let seen = Observation::StoppedAtEnd {
                state: look.state.clone(),
                blamed: stopped.iter().map(|(rank, _)| *rank).collect(),
                waited_ms: now_ms,
            };
            self.facts.last = Some(observed(*rank, look.pid, seen, Clock::wall_ms()));
            self.end_ranks();
        } else if let [(rank, look)] = looks.as_slice()
            && since.passed()
            && !self.last.is_told
        {
            self.last.is_told = true;
            let Standing { pid, state, .. } = look;
            out::note(&format!(
                "SUSPECT rank {rank}: all other ranks have ended or left; pid {pid}: {state}"
            ));
        }
    }

    /// Writes the dumps of culprits that do not run, which cannot do it themselves.
    pub(super) fn keep_dumps(&mut self) {
        let found = self.facts.found.clone();
        let found = found.filter(|found| found.class == Class::PeerFrozen);
        // The folder goes: it is done once.
        let Some((found, folder)) = found.and_then(|found| Some((found, self.dumps.take()?)))
        else {
            return;
        };
        let culprits = self
            .running()
            .filter(|one| found.blamed.contains(&one.rank()));
        for process in culprits {
            let reports_of = |pid: u32| of_process(pid).unwrap_or_default();
            let reports = tree(process.pid()).into_iter().flat_map(reports_of);
            for report in reports.filter(|report| report.rank == process.rank()) {
                if let Err(error) = keep(folder, &report, Some(&found)) {
                    out::note(&format!("no dump of rank {}: {error}", report.rank));
                }
            }
        }
    }
}
