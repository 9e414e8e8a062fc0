//! Bring-up of a rank that is a process: from an endpoint and a secret to a world.
//!
//! 1. Join the rendezvous: every rank learns every card, or what stands in the way.
//! 2. Form islands: the lowest rank of each host hands out its arena; who does not get it is an
//!    island of its own.
//! 3. One round over the control plane tells everybody who is attached and where to reach the
//!    others. It is also the barrier that ends bring-up.

use std::os::fd::IntoRawFd;
use std::os::unix::net::UnixListener;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use super::World;
use super::bring_up::BringUpError;
use super::island;
use super::meet::BringUp;
use super::options::{JoinOptions, ServedBy, Transport};
use crate::context::{Context, Control, CutOff, Gone, Life, Notice, StallReport, Status};
use crate::processors;
use crate::rendezvous::{Card, DownReason, Hello, Session, SessionEvent, build_id};
use crate::sabotage::{self, Sabotage};
use crate::sync::Deadline;
use crate::transport::shm::peer_memory::Beacon;
use crate::transport::shm::wait::Pace;
use crate::watch::peers::Peers;
use crate::watch::probe::{Probe as _, System};
use crate::watch::wire::{self, FromRank};
use crate::watch::{Watch, process};

impl World {
    /// Joins the world that `options` describe; returns when all ranks are there.
    ///
    /// # Errors
    /// [`BringUpError`]: whatever keeps the ranks from finding each other, the same on all of them
    /// where the job itself is at fault; at the latest shortly after `options.bring_up`.
    pub fn join(options: JoinOptions) -> Result<Self, BringUpError> {
        let (watched, dumps) = (options.watched, options.dumps.clone());
        let mut claimed = (options.rank, options.world_size);
        let found = options.find();
        let joined = found.and_then(|options| {
            claimed = (options.rank, options.world_size);
            Self::come_together(options)
        });
        joined.inspect_err(|error| {
            if watched {
                error.tell();
            }
            if let Some(folder) = dumps {
                error.keep(&folder, claimed.0, claimed.1);
            }
        })
    }

    fn come_together(options: JoinOptions) -> Result<Self, BringUpError> {
        if sabotage::is(Sabotage::Descriptor) {
            // The number is lost, and with it the only way to close it.
            let _ = std::fs::File::open("/dev/null").map(IntoRawFd::into_raw_fd);
        }
        let deadline = Deadline::after(options.bring_up);
        let status = Arc::new(Status::default());
        let door = (options.transport != Transport::Tcp)
            .then(open_door)
            .flatten();
        let unix_address = door
            .as_ref()
            .map(|(name, _)| name.clone())
            .unwrap_or_default();
        let session = join_session(&options, unix_address, &status, deadline)?;
        let bring_up = BringUp {
            options: &options,
            session: &session,
            deadline,
        };
        let mates = bring_up.candidates(session.rank());
        let local = mates
            .iter()
            .position(|rank| *rank == session.rank().index());
        let mates = mates.len();
        // By the processors of all ranks, so before this one keeps to its own.
        let pace = Pace::for_ranks(mates, processors::of_all_ranks());
        if let Some(kernels) = options.kernels {
            kernels.use_everywhere();
        }
        // Before it touches shared memory, whose pages lie on the node of who touches them first. A rank that may not be placed runs
        // all the same.
        processors::bind(options.bind, local.unwrap_or(0), mates);
        let met = bring_up.meet(door.map(|(_, listener)| listener))?;
        if let Some(island) = &met.island {
            let locals = island.locals.clone();
            status.set_island(Arc::clone(&island.arena), island.local, locals);
            if let Some(wakers) = &island.wakers {
                status.set_wakers(Arc::clone(wakers));
                if let Some(net) = &met.net {
                    net.listener.set_wakers(Arc::clone(wakers));
                }
            }
        }
        let inner = Context {
            watch: watch(&options, &session, &status),
            rank: session.rank(),
            size: session.roster().len(),
            job: job_number(&options),
            island: met.island,
            net: met.net,
            hosts: met.hosts,
            peers: Some(peers(&options, &session)),
            control: Box::new(session),
            status,
            deadline: options.deadline,
            pace,
            table: options.algo_table.clone(),
            checksum: options.checksum,
            call_sites: options.sites(),
            life: Life::default(),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }
}

/// The board of this rank, and its ears for what the arbiter says.
fn watch(options: &JoinOptions, session: &Session, status: &Arc<Status>) -> Arc<Watch> {
    let watch = Watch::new(
        session.rank(),
        session.roster().len(),
        job_number(options),
        options.mode(),
        (options.dumps.clone(), options.recording.clone()),
    );
    let (ears, known) = (Arc::clone(&watch), Arc::clone(status));
    session.set_watcher(Box::new(move |bytes| {
        ears.hear(bytes, |verdict, say| {
            known.set_verdict(verdict, System.now_ms(), say);
        })
    }));
    watch
}

/// What this rank can see of the others by itself.
fn peers(options: &JoinOptions, session: &Session) -> Peers {
    let served_by = match options.served_by {
        ServedBy::Rank(rank) => Some(rank),
        ServedBy::Launcher | ServedBy::Member => None,
    };
    Peers::new(
        &System,
        session.rank(),
        session.roster(),
        session.server(),
        served_by,
    )
}

/// The socket through which local peers get the arena. A host without abstract sockets just has
/// no shared memory: the ranks then talk by TCP.
fn open_door() -> Option<(String, UnixListener)> {
    let name = island::socket_name().ok()?;
    let listener = island::listen(&name).ok()?;
    Some((name, listener))
}

fn join_session(
    options: &JoinOptions,
    unix_address: String,
    status: &Arc<Status>,
    deadline: Deadline,
) -> Result<Session, BringUpError> {
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let card = Card {
        process: process::own(),
        container: process::container(),
        host,
        host_identity: island::host_identity(),
        local_rank: options.local_rank,
        unix_address,
        data_address: None,
        payload: Beacon::own()
            .and_then(|beacon| postcard::to_allocvec(&beacon).ok())
            .unwrap_or_default(),
    };
    let hello = Hello {
        job_id: options.job_id.clone(),
        attempt: options.attempt,
        rank: options.rank,
        world_size: options.world_size,
        source: options.source.clone(),
        build: build_id(),
        card,
    };
    let (status, served_by) = (Arc::clone(status), options.served_by);
    let refused = Arc::new(OnceLock::new());
    let seen = Arc::clone(&refused);
    let on_event = Box::new(move |event| {
        if let SessionEvent::Refused { at_unix_ms } = event {
            // Said once, before anything else fails.
            let _ = seen.set(at_unix_ms);
        } else {
            note(&status, served_by, event);
        }
    });
    Session::join(
        &options.endpoint,
        &options.secret,
        hello,
        deadline,
        on_event,
    )
    .map_err(|error| match refused.get() {
        Some(at_unix_ms) => BringUpError::Rendezvous {
            error,
            at_unix_ms: *at_unix_ms,
        },
        None => error.into(),
    })
}

/// Records an event of the control plane where waiting ranks look.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "events to come concern no waiting rank either"
)]
pub(crate) fn note(status: &Status, served_by: ServedBy, event: SessionEvent) {
    match event {
        SessionEvent::Abort { origin, bytes } => {
            // Only peers that proved the secret get here; what cannot be read is no word of theirs.
            match postcard::from_bytes::<Word>(&bytes) {
                Ok(Word::Notice(notice)) => status.set_notice(Notice {
                    origin: origin.0,
                    ..notice
                }),
                Ok(Word::StallReport(stall_report)) => status.set_testimony(StallReport {
                    rank: origin.0,
                    ..stall_report
                }),
                Err(_) => {}
            }
        }
        SessionEvent::Down { rank, reason } => {
            status.set_gone(rank, Gone::lost(reason));
        }
        SessionEvent::Left { rank } => {
            status.set_gone(rank, Gone::left());
        }
        SessionEvent::CoordinatorLost { why } => {
            let (served_by, why) = match served_by {
                // A rank that left in good order had nobody to bring news for any more.
                ServedBy::Rank(rank) if status.gone(rank).is_some_and(|gone| gone.orderly) => {
                    return;
                }
                ServedBy::Rank(rank) => (Some(rank), format!("is gone ({why})")),
                // As above: a rank that left may have been the one.
                ServedBy::Member if status.is_any_orderly() => return,
                ServedBy::Member => (
                    None,
                    format!("the rank that served the rendezvous is gone ({why})"),
                ),
                ServedBy::Launcher => (None, format!("the launcher is gone ({why})")),
            };
            if let Some(rank) = served_by {
                status.set_gone(
                    rank,
                    Gone {
                        how: why.clone(),
                        ..Gone::lost(DownReason::HungUp)
                    },
                );
            }
            status.set_cut_off(CutOff { served_by, why });
        }
        // Nothing else concerns a waiting rank.
        _ => {}
    }
}

/// Tells this job and attempt from others in the keys of groups.
fn job_number(options: &JoinOptions) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(options.job_id.as_bytes());
    hasher.update(&options.attempt.to_le_bytes());
    let mut word = [0; 8];
    hasher.finalize_xof().fill(&mut word);
    u64::from_le_bytes(word)
}

/// What ranks tell each other over the control plane.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Word {
    Notice(Notice),
    StallReport(StallReport),
}

fn say(session: &Session, word: &Word) {
    if let Ok(bytes) = postcard::to_allocvec(word) {
        // A control plane that is gone has been noticed already.
        let _ = session.abort(bytes);
    }
}

impl Control for Session {
    fn complain(&self, complaint: &FromRank) -> bool {
        self.watch(wire::encode(complaint)).is_ok()
    }

    fn give_up(&self, notice: &Notice) {
        say(self, &Word::Notice(notice.clone()));
    }

    fn testify(&self, stall_report: &StallReport) {
        say(self, &Word::StallReport(stall_report.clone()));
    }

    fn report(&self, bytes: &[u8]) -> Result<(), String> {
        Self::report(self, bytes.to_vec()).map_err(|error| error.to_string())
    }

    fn leave(&self) -> bool {
        Self::leave(self)
    }
}
