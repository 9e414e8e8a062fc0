//! The end of a job: ranks that still run when all others have ended or said goodbye. Nobody waits for them in a call, so
//! the arbiter does not ask.

use std::time::Duration;

use muster_comm::error::ErrorKind;
use muster_comm::error::verdict::{Class, Confidence, Verdict};
use muster_comm::rendezvous::Stopped;
use muster_comm::sync::{Clock, Deadline};
use muster_comm::types::Rank;

use super::{Driver, Phase};
use crate::out;
use crate::run::standing::{LOOK_EVERY, Standing, standing};

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
    /// What was found of one of them.
    pub(super) verdict: Option<Verdict>,
}

impl Driver<'_> {
    /// A rank that has joined and whose process does not run.
    pub(super) fn look_for_stopped(&self) -> Option<Verdict> {
        let running = self.ranks.processes().iter();
        let mut running =
            running.filter(|one| one.ended().is_none() && self.arrivals.has_joined(one.rank()));
        let (rank, look) = running.find_map(|one| {
            let look = standing(u32::try_from(one.pid()).ok()?)?;
            look.is_stopped.then_some((one.rank(), look))
        })?;
        let mut verdict = stands_still(rank, &look, vec![rank], 0);
        verdict.what = "a call that others gave up".to_owned();
        verdict.evidence = vec!["its process was found in that state when they did".to_owned()];
        verdict.others = "other ranks ended before the launcher heard why".to_owned();
        Some(verdict)
    }

    /// Where all others have ended or said goodbye: a rank that does not run holds up the end of the job, and nobody waits
    /// for it in a call.
    pub(super) fn look_at_the_last(&mut self) {
        if !matches!(self.phase, Phase::Running) {
            // What was found stays.
            self.last.next = None;
            return;
        }
        let running = || {
            let all = self.ranks.processes().iter();
            all.filter(|one| one.ended().is_none())
        };
        let is_gone = self.ranks.processes().len() > running().count() || !self.left.is_empty();
        let is_last = |rank: u32| self.arrivals.has_joined(rank);
        if !is_gone || !running().all(|one| is_last(one.rank())) {
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
        let looks: Vec<(u32, Standing)> = running()
            .filter_map(|one| Some((one.rank(), standing(u32::try_from(one.pid()).ok()?)?)))
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
        let is_idle = |(rank, look): &(u32, Standing)| look.is_stopped || self.left.contains(rank);
        if let Some((rank, look)) = stopped.first()
            && looks.iter().all(is_idle)
        {
            let blamed: Vec<u32> = stopped.iter().map(|(rank, _)| *rank).collect();
            self.last.verdict = Some(stands_still(*rank, look, blamed, now_ms));
            self.end_within(self.program.grace);
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
}

/// The verdict on ranks whose processes do not run, and for whose end the job waits.
fn stands_still(rank: u32, look: &Standing, blamed: Vec<u32>, waited_ms: u64) -> Verdict {
    Verdict {
        class: Class::PeerFrozen,
        who: format!("rank {rank} (this host, pid {})", look.pid),
        what: "the end of the job".to_owned(),
        place: look.state.clone(),
        since_unix_ms: Clock::wall_ms().saturating_sub(waited_ms),
        elapsed_ms: waited_ms,
        confidence: Confidence::Certain,
        evidence: vec!["its process was found in that state at every look of a second".to_owned()],
        others: "all other ranks have ended or left".to_owned(),
        next: "continue the process with `kill -CONT`, or see who stopped it".to_owned(),
        cascades: Vec::new(),
        ends: Vec::new(),
        about: None,
        kind: ErrorKind::Stalled {
            waiting_for: blamed.iter().map(|rank| Rank(*rank)).collect(),
            waited_ms,
        },
        blamed,
    }
}
