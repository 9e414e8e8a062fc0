//! How the process of the arbiter looks at ranks itself: the launcher, or the rank that serves the rendezvous. It may see
//! what no rank sees: ranks in containers of their own, and ranks of which none answers.

use super::Arbiter;
use crate::rendezvous::{Card, ProcessId};
use crate::watch::judge::Member;
use crate::watch::process::{self, Inside, Sight};
use crate::watch::wire::Look;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Eyes {
    /// The boot of the host that they see.
    boot: u64,
    inside: fn(&Card) -> Option<Inside>,
    process: fn(&ProcessId) -> Sight,
    /// The process of this rank and its board.
    board: fn(u32, &ProcessId) -> Look,
}

impl Eyes {
    /// Those of this process.
    pub(super) fn own() -> Self {
        Self {
            boot: process::own().boot,
            inside: process::inside,
            process: process::look_at,
            board: crate::watch::look_at,
        }
    }

    /// How the process of a rank is to be named.
    pub(super) fn inside(&self, card: &Card) -> Option<Inside> {
        (self.inside)(card)
    }

    /// Looks at a rank that does not answer; `None` where it runs on another host. A board costs much more than a process,
    /// and matters where the process does not run.
    fn look(&self, rank: u32, process: &ProcessId) -> Option<Look> {
        if process.boot != self.boot {
            return None;
        }
        let sight = (self.process)(process);
        if sight.frozen().is_some() {
            return Some((self.board)(rank, process));
        }
        Some(Look {
            rank,
            sight,
            report: None,
        })
    }
}

impl Arbiter {
    /// Looks at the ranks that do not answer, where they run on this host.
    pub(super) fn look_at_silent(&mut self) {
        let Some(eyes) = self.eyes else {
            return;
        };
        for rank in self.silent_since.keys() {
            let at = *rank as usize;
            let look = self.processes.get(at).and_then(|id| eyes.look(*rank, id));
            if let (Some(member), Some(look)) = (self.scene.members.get_mut(at), look) {
                member.take_look(look);
            }
        }
    }
}

impl Member {
    /// Takes in what somebody saw of this rank. Who could not look does not gainsay who could.
    pub(super) fn take_look(&mut self, look: Look) {
        let is_hidden = matches!(look.sight, Sight::Hidden(_));
        if !is_hidden || self.process.is_none() {
            self.process = Some(look.sight);
        }
        if let Some(report) = look.report {
            self.report = Some(*report);
        }
    }
}
