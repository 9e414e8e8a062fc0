//! A verdict without an arbiter: where the rank that serves the rendezvous does not run.
//!
//! Nobody asks and nobody judges then. Ranks that wait look at that rank's process themselves, read the
//! boards of all ranks of the host, and judge with the same code. The first to come to a verdict
//! writes it onto the board of the rank that stands still, under a lock on that board's file: so all
//! ranks of the host say the same. Ranks of other hosts cannot look, and are less sure.
//!
//! Where that rank is gone the same is done, and the verdict goes onto the boards of all ranks of the host
//! that are left, the lowest first; whoever finds it on its own passes it on before it ends.
//!
//! - SERVER-1: without a process that is seen not to run nothing is said of it before
//!   `LOST_AFTER_MS`.

use std::io;
use std::time::Duration;

use super::board;
use super::failure;
use super::judge::{Fate, Finding, LOST_AFTER_MS, Member, Question, Scene, judge};
use super::process::{self, Inside, Place, Sight};
use super::verdict::{CallId, Class, Confidence, Verdict};
use super::wire;
use crate::rendezvous::{Card, ProcessId};
use crate::sync::{Clock, Deadline};

/// How long it is tried to pass a verdict on to ranks whose boards are being read.
const PASS_ON: Duration = Duration::from_millis(50);
const PASS_ON_STEP: Duration = Duration::from_micros(100);

/// A rank, as this process can look at it.
#[derive(Clone, Debug)]
pub(crate) struct Mate {
    id: ProcessId,
    host: String,
    inside: Option<Inside>,
    /// Its process can be looked at.
    is_near: bool,
}

impl Mate {
    /// From what the rank says of itself, while it lives.
    pub(crate) fn of(card: &Card) -> Self {
        Self {
            id: card.process,
            host: card.host.clone(),
            inside: process::inside(card),
            is_near: !matches!(process::find(&card.process), Place::Hidden(_)),
        }
    }

    /// Its number in /proc, while it lives.
    fn pid(&self) -> Option<u32> {
        match process::find(&self.id) {
            Place::At(pid) => Some(pid),
            Place::Ended | Place::Hidden(_) => None,
        }
    }

    fn look(&self) -> Sight {
        process::look_at(&self.id)
    }
}

/// The rank that serves the rendezvous, and all others.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) rank: u32,
    pub(crate) mates: Vec<Mate>,
}

impl Server {
    /// What is to be said of the server, of which nothing was heard for this long. `None` where it runs,
    /// or nobody waits for it.
    pub(crate) fn look(&self, quiet_ms: u64) -> Option<Verdict> {
        let server = self.mates.get(usize::try_from(self.rank).ok()?)?;
        if !server.is_near {
            return (quiet_ms >= LOST_AFTER_MS)
                .then(|| self.judge(quiet_ms))
                .flatten();
        }
        server.look().frozen()?;
        let own = self.judge(quiet_ms)?;
        match share(server.pid()?, self.rank, &own) {
            Ok(told) => told,
            // Somebody else is at it: it will be there at the next look.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(_) => Some(own),
        }
    }

    /// What others of this host have said of the server, which stands still: it is on its board. They may have ended
    /// since, and their links with them, before this rank looked itself.
    pub(crate) fn told(&self) -> Option<Verdict> {
        let server = self.mates.get(usize::try_from(self.rank).ok()?)?;
        if !server.is_near {
            return None;
        }
        server.look().frozen()?;
        told_to(server.pid()?, self.rank)
    }

    /// What is to be said of the server, which is gone, by a rank whose call has ended because of it.
    /// `None` where somebody of this host is just about to say it, or has; with `at_once` this rank does not wait.
    pub(crate) fn gone(&self, me: u32, call: CallId, at_once: bool) -> Option<Verdict> {
        if let Some(mut told) = told_to(std::process::id(), me) {
            // It was the lowest rank, perhaps, where all others look first, and is about to end.
            pass_on(&told, &self.left());
            if !told.ends.contains(&call) {
                told.ends.push(call);
            }
            return Some(told);
        }
        let own = self.judge_gone(me, call);
        let left = self.left();
        let Some((lowest, others)) = left.split_first() else {
            return Some(own);
        };
        match share(lowest.1, lowest.0, &own) {
            Ok(Some(told)) => {
                // The lowest rank may be gone with its board before all others have looked.
                pass_on(&told, others);
                Some(told)
            }
            // Somebody else is at it, or that rank is just ending: then it has passed on what it was told.
            Err(_) if !at_once => None,
            Ok(None) | Err(_) => Some(own),
        }
    }

    /// The ranks of this host that live beside the server, and their processes.
    fn left(&self) -> Vec<(u32, u32)> {
        let others = (0..)
            .zip(&self.mates)
            .filter(|(rank, _)| *rank != self.rank);
        let runs = |mate: &Mate| mate.look().facts().is_some();
        others
            .filter(|(_, mate)| runs(mate))
            .filter_map(|(rank, mate)| Some((rank, mate.pid()?)))
            .collect()
    }

    fn judge_gone(&self, me: u32, call: CallId) -> Verdict {
        let mut scene = self.scene(0);
        let server = usize::try_from(self.rank).ok();
        let member = server.and_then(|server| scene.members.get_mut(server));
        let mut confidence = Confidence::Likely;
        if let Some(member) = member {
            let how = if member.process == Some(Sight::Ended) {
                confidence = Confidence::Certain;
                "ended, and nobody saw how: it served the rendezvous"
            } else {
                "does not serve the rendezvous any more: the connection to it ended"
            };
            member.fate = Some(Fate {
                how: how.to_owned(),
                orderly: false,
                order: 0,
                hint: "read that rank's output, and what its launcher says of its end".to_owned(),
            });
        }
        let question = Question::Overdue { rank: me, call };
        let mut verdict = match judge(&scene, question) {
            Finding::Verdict(verdict) if verdict.blamed == [self.rank] => *verdict,
            // The call was not one that the server is needed in; it ends with the world all the same.
            Finding::Verdict(_) | Finding::Again(_) | Finding::Nothing => {
                failure::server_gone(&scene, me, self.rank, call)
            }
        };
        verdict.confidence = confidence;
        if !verdict.ends.contains(&call) {
            verdict.ends.push(call);
        }
        verdict
    }

    fn judge(&self, quiet_ms: u64) -> Option<Verdict> {
        match judge(&self.scene(quiet_ms), Question::Waiting) {
            Finding::Verdict(verdict)
                if matches!(verdict.class, Class::Link | Class::PeerFrozen) =>
            {
                Some(*verdict)
            }
            Finding::Verdict(_) | Finding::Again(_) | Finding::Nothing => None,
        }
    }

    /// The ranks as they can be seen from here, while the server has been silent for so long.
    fn scene(&self, quiet_ms: u64) -> Scene {
        let member = |(rank, mate): (u32, &Mate)| {
            let is_server = rank == self.rank;
            let boards = match mate.pid() {
                Some(pid) => board::of_process(pid).unwrap_or_default(),
                None => Vec::new(),
            };
            Member {
                host: mate.host.clone(),
                pid: mate.id.pid,
                inside: mate.inside.clone(),
                report: boards.into_iter().find(|report| report.rank == rank),
                silent_ms: if is_server { quiet_ms } else { 0 },
                process: (is_server && mate.is_near).then(|| mate.look()),
                ..Member::default()
            }
        };
        Scene {
            members: (0..).zip(&self.mates).map(member).collect(),
        }
    }
}

/// The verdict that stands on the board of a rank, if one does.
fn told_to(pid: u32, rank: u32) -> Option<Verdict> {
    let keep = |told: Option<&[u8]>| told.map_or_else(Vec::new, <[u8]>::to_vec);
    let bytes = board::bulletin(pid, rank, keep).ok()?;
    wire::decode(&bytes)
}

/// Writes a verdict onto the boards of ranks (rank, process) that have none.
fn pass_on(told: &Verdict, ranks: &[(u32, u32)]) {
    let patience = Deadline::after(PASS_ON);
    for (rank, pid) in ranks {
        // Whoever has ended meanwhile needs none; whose board is being read gets it a moment later.
        while share(*pid, *rank, told).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
            && !patience.passed()
        {
            Clock::pause(PASS_ON_STEP);
        }
    }
}

/// Writes a verdict onto the board of a rank, for all ranks of the host. What was told first stays, and
/// ends more calls.
fn share(pid: u32, rank: u32, own: &Verdict) -> io::Result<Option<Verdict>> {
    let shared = board::bulletin(pid, rank, |told| {
        let Some(mut told) = told.and_then(wire::decode::<Verdict>) else {
            return wire::encode(own);
        };
        told.ends.extend(&own.ends);
        told.ends.sort_unstable();
        told.ends.dedup();
        wire::encode(&told)
    });
    Ok(wire::decode(&shared?))
}
