//! How a verdict comes to the ranks of a host without an arbiter: it is written onto the board of the lowest one that lives.

use std::cell::{Cell, RefCell};
use std::io;
use std::time::Duration;

use super::{Patience, Peers};
use crate::error::verdict::{CallId, Verdict};
use crate::rendezvous::ProcessId;
use crate::sync::{Clock, Deadline};
use crate::types::Rank;
use crate::watch::probe::{Probe, System};
use crate::watch::wire;

/// How often a rank looks that stays for those who judge.
const STAY_LOOK: Duration = Duration::from_millis(20);

impl Peers {
    /// Tells a verdict on this call to the ranks of this host; returns the one that was told first, made to end the call too.
    /// Where somebody else is at it this rank waits for that one, or says its own if it is to wait no longer.
    pub(super) fn tell(
        &self,
        probe: &dyn Probe,
        own: Verdict,
        call: CallId,
        patience: Patience,
    ) -> Option<Verdict> {
        match self.share(probe, own.clone()) {
            Some(mut told) => {
                told.end(call);
                Some(told)
            }
            None => self
                .told_to(probe, call)
                .or_else(|| (patience == Patience::Spent).then_some(own)),
        }
    }

    /// Tells a verdict to the ranks of this host, and returns the one that was told first. `None` where somebody else is at
    /// it.
    pub(crate) fn share(&self, probe: &dyn Probe, own: Verdict) -> Option<Verdict> {
        let living = self.living(probe);
        for (at, lowest) in living.iter().enumerate() {
            match share(probe, lowest, &own) {
                // The lowest rank may be gone with its board before all others have looked.
                Ok(told) => return told.map(|told| pass_on(probe, told, &living[at + 1..])),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                // A rank that has left the world has no board any more, though its process may live on.
                Err(_) => {}
            }
        }
        Some(own)
    }

    /// The verdict that stands on the board of this rank, if one does, made to end this call too.
    pub(crate) fn told_to(&self, probe: &dyn Probe, call: CallId) -> Option<Verdict> {
        let told = self.bulletin(probe)?;
        // It was the lowest rank, perhaps, where all others look first, and is about to end.
        let mut told = pass_on(probe, told, &self.living(probe));
        told.end(call);
        Some(told)
    }

    /// Waits until a rank of this host has come to a verdict, for so long at most; not at all where no other one lives.
    pub(crate) fn stay_until_judged(&self, probe: &dyn Probe, longest: Duration) {
        let patience = Deadline::after(longest);
        let is_other = |(rank, _): &(u32, ProcessId)| *rank != self.me;
        while !patience.passed()
            && self.bulletin(probe).is_none()
            && self.living(probe).iter().any(is_other)
        {
            Clock::pause(STAY_LOOK);
        }
    }

    /// The verdict that stands on the board of this rank, if one does.
    fn bulletin(&self, probe: &dyn Probe) -> Option<Verdict> {
        let keep = |told: Option<&[u8]>| told.map_or_else(Vec::new, <[u8]>::to_vec);
        let mate = self.mates.get(crate::types::index(self.me.into()))?;
        wire::decode(&probe.bulletin(&mate.id, self.me, &keep).ok()?)
    }

    /// The ranks that can be seen to live.
    fn living(&self, probe: &dyn Probe) -> Vec<(u32, ProcessId)> {
        let mates = (0..).zip(&self.mates);
        mates
            .filter(|(_, mate)| probe.look(&mate.id).facts().is_some())
            .map(|(rank, mate)| (rank, mate.id))
            .collect()
    }
}

/// Writes a verdict onto the board of a rank that cannot be told it otherwise.
pub(in crate::watch) fn post(process: &ProcessId, rank: Rank, bytes: &[u8]) {
    if let Some(verdict) = wire::decode::<Verdict>(bytes) {
        pass_on(&System, verdict, &[(rank.0, *process)]);
    }
}

/// Writes a verdict onto the boards of ranks that have none, and returns the one that stands on the first of them then. The rank
/// that it was told to before may have ended meanwhile: others have looked at the next one, and may have told another verdict there.
/// Whoever has ended meanwhile needs none.
fn pass_on(probe: &dyn Probe, told: Verdict, ranks: &[(u32, ProcessId)]) -> Verdict {
    let (told, is_first) = (RefCell::new(told), Cell::new(true));
    probe.bulletins(ranks, &|before| {
        let mut told = told.borrow_mut();
        let bytes = bulletin(before, &told);
        if let Some(stands) = is_first
            .replace(false)
            .then(|| wire::decode::<Verdict>(&bytes))
            .flatten()
        {
            let ends = std::mem::take(&mut told.ends);
            *told = Verdict { ends, ..stands };
        }
        bytes
    });
    told.into_inner()
}

/// Writes a verdict onto the board of a rank, for all ranks of the host, and returns what stands there then.
fn share(
    probe: &dyn Probe,
    (rank, process): &(u32, ProcessId),
    own: &Verdict,
) -> io::Result<Option<Verdict>> {
    let shared = probe.bulletin(process, *rank, &|before| bulletin(before, own))?;
    Ok(wire::decode(&shared))
}

/// What is to stand on a board where this verdict is told: what was told first stays, and ends more calls.
fn bulletin(before: Option<&[u8]>, own: &Verdict) -> Vec<u8> {
    let Some(mut told) = before.and_then(wire::decode::<Verdict>) else {
        return wire::encode(own);
    };
    told.ends.extend(&own.ends);
    told.ends.sort_unstable();
    told.ends.dedup();
    wire::encode(&told)
}
