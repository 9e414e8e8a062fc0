//! A communicator: one world of the host backend, or a group in it, on one device.
//!
//! - `COMM-1`: a rank leaves its world when the communicator, its sub-communicators and all their
//!   tasks are gone, so that nothing is taken away from a task that still runs.
//! - `COMM-2`: an operator that ended in the middle breaks the communicator on this rank: later ones
//!   fail at once, until it is resumed.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

use hccl_sys::types::HcclResult;
use muster_comm::collective::Communicator;
use muster_comm::sync::{AtomicBool, Ordering};
use muster_comm::types::Rank;
use muster_comm::world::World;
use serde::{Deserialize, Serialize};

use super::fail::{Answer, EI0007, EI0011, Fail};
use super::library::Library;
use super::meeting::FOR_EVER;
use super::operator::Operator;
use crate::fault::{Fault, Kind, Where};
use crate::runtime::RuntimeError;
use crate::runtime::device::Device;
use crate::runtime::memory::Charge;
use crate::runtime::notice;

/// A place in a world, given up when the last who needs it is gone (`COMM-1`).
#[derive(Debug)]
pub(crate) struct Seat {
    world: World,
    /// Where every rank of the world is.
    pub(crate) peers: Vec<Peer>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.world.leave();
    }
}

/// What ranks tell each other when their world is complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Peer {
    pub(crate) host: String,
    /// Tells hosts with equal names apart.
    pub(crate) place: String,
    pub(crate) pid: u32,
    pub(crate) device: u32,
    /// Whether its process serves the rendezvous.
    pub(crate) serves: bool,
}

/// What one communicator is made of.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) name: String,
    pub(crate) device: Arc<Device>,
    pub(crate) seat: Arc<Seat>,
    /// World ranks, in the order of the communicator.
    pub(crate) members: Vec<Rank>,
    pub(crate) rank: u32,
    pub(crate) is_sub: bool,
    pub(crate) exec_timeout: Option<Duration>,
    pub(crate) buffer_mb: u32,
    pub(crate) deterministic: Option<i32>,
    /// Whether it is the first of more than one rank that the device joined.
    pub(crate) is_first: bool,
}

/// A communicator.
#[derive(Debug)]
pub(crate) struct Comm {
    /// What the client holds.
    pub(crate) handle: u64,
    pub(crate) name: String,
    pub(crate) device: Arc<Device>,
    pub(crate) seat: Arc<Seat>,
    pub(crate) members: Vec<Rank>,
    pub(crate) rank: u32,
    pub(crate) is_sub: bool,
    /// `None` waits for ever.
    pub(crate) exec_timeout: Option<Duration>,
    buffer_mb: u32,
    /// Whether it counts as a user of its device, as those of `HcclCommInitAll` do.
    holds_device: AtomicBool,
    /// What goes wrong on this rank.
    pub(crate) faults: Vec<Kind>,
    /// Faults of a single communicator, this one, that wait for an operator of this rank.
    awaited: Vec<Fault>,
    state: Mutex<State>,
}

/// The groups of the host backend that a communicator works over.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    /// Operators.
    pub(crate) main: Communicator,
    /// Receivers tell senders that they are there; without messages it costs nothing.
    pub(crate) receipts: Communicator,
    /// Members to which a link for receipts is there.
    linked: Arc<Mutex<BTreeSet<usize>>>,
}

impl Lines {
    fn new(seat: &Seat, name: &str, members: &[Rank]) -> Answer<Self> {
        Ok(Self {
            main: seat.group(name, members)?,
            receipts: seat.group(&format!("{name} receipts"), members)?,
            linked: Arc::default(),
        })
    }

    /// Whether receipts can go to these members without waiting for them.
    pub(crate) fn are_linked(&self, mut peers: impl Iterator<Item = usize>) -> bool {
        let linked = self.linked.lock().unwrap_or_else(PoisonError::into_inner);
        peers.all(|peer| linked.contains(&peer))
    }

    /// Receipts went to or came from these members.
    pub(crate) fn set_linked(&self, peers: impl Iterator<Item = usize>) {
        let mut linked = self.linked.lock().unwrap_or_else(PoisonError::into_inner);
        linked.extend(peers);
    }

    /// How long an operator may wait for other ranks.
    pub(crate) fn set_deadline(&self, deadline: Duration) {
        self.main.set_deadline(deadline);
        self.receipts.set_deadline(deadline);
    }
}

#[derive(Debug)]
struct State {
    lines: Lines,
    suspended: bool,
    async_error: HcclResult,
    broken: Option<RuntimeError>,
    /// What `HcclSetCommConfig`, or the configuration, said.
    deterministic: Option<i32>,
    issued: u64,
    issued_by_kind: HashMap<Operator, u64>,
    /// Threads inside a call of this communicator.
    users: Vec<ThreadId>,
    /// The communicator's own buffers on the device, taken with its first operator.
    buffers: Option<Charge>,
    /// Memory of the device that a fault takes away.
    lost_memory: Option<Charge>,
}

/// Which operator of its communicator a call is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    pub(crate) operator: Operator,
    /// Among all operators, from 1.
    pub(crate) number: u64,
    /// Among those of its kind, from 1.
    pub(crate) of_kind: u64,
}

impl Seat {
    pub(crate) fn new(world: World, peers: Vec<Peer>) -> Arc<Self> {
        Arc::new(Self { world, peers })
    }

    pub(crate) fn world_size(&self) -> usize {
        self.world.size()
    }

    fn group(&self, name: &str, members: &[Rank]) -> Answer<Communicator> {
        self.world.group(name, members).map_err(|error| {
            let text = format!("communicator {name}: {error}");
            Fail::new(HcclResult::HCCL_E_INTERNAL, EI0007, text)
        })
    }
}

impl Comm {
    /// Makes a communicator and gives it its handle.
    pub(crate) fn create(library: &Library, parts: Parts) -> Answer<Arc<Self>> {
        let lines = Lines::new(&parts.seat, &parts.name, &parts.members)?;
        let faults = library
            .faults
            .iter()
            .filter(|fault| fault.place.concerns(&parts.name, parts.is_first))
            // Of a link both ends are concerned; the peer is the other one then.
            .filter_map(|fault| match fault.kind {
                Kind::LinkDown { peer, after } if peer == parts.rank => Some(Kind::LinkDown {
                    peer: fault.rank,
                    after,
                }),
                kind => (fault.rank == parts.rank).then_some(kind),
            })
            .collect();
        let awaited = library
            .faults
            .iter()
            .filter(|fault| fault.rank == parts.rank && fault.place != Where::All)
            .filter(|fault| fault.place.concerns(&parts.name, parts.is_first))
            .cloned()
            .collect();
        let state = State {
            lines,
            suspended: false,
            async_error: HcclResult::HCCL_SUCCESS,
            broken: None,
            deterministic: parts.deterministic,
            issued: 0,
            issued_by_kind: HashMap::new(),
            users: Vec::new(),
            buffers: None,
            lost_memory: None,
        };
        let comm = library.comms.insert(|handle| {
            Arc::new(Self {
                handle,
                name: parts.name,
                device: parts.device,
                seat: parts.seat,
                members: parts.members,
                rank: parts.rank,
                is_sub: parts.is_sub,
                exec_timeout: parts.exec_timeout,
                buffer_mb: parts.buffer_mb,
                holds_device: AtomicBool::new(false),
                faults,
                awaited,
                state: Mutex::new(state),
            })
        });
        library.give_name(comm.device.logical, &comm.name, comm.handle);
        if comm.rank == 0 && !comm.is_sub {
            notice::world(comm.size(), library.soc);
        }
        comm.limit_memory();
        Ok(comm)
    }

    /// The communicator has counted itself as a user of its device.
    pub(crate) fn hold_device(&self) {
        // Relaxed: before anybody else knows the communicator.
        self.holds_device.store(true, Ordering::Relaxed);
    }

    pub(crate) fn holds_device(&self) -> bool {
        // Relaxed: never changes once others know the communicator.
        self.holds_device.load(Ordering::Relaxed)
    }

    pub(crate) fn size(&self) -> u32 {
        u32::try_from(self.members.len()).unwrap_or(u32::MAX)
    }

    /// The groups of the host backend, as of now.
    pub(crate) fn lines(&self) -> Lines {
        self.state().lines.clone()
    }

    /// How long an operator may wait for others.
    pub(crate) fn patience(&self) -> Duration {
        self.exec_timeout.unwrap_or(FOR_EVER)
    }

    /// Numbers an operator, and takes the communicator's buffers before the first one.
    ///
    /// # Errors
    /// If the communicator is suspended, or the device has no room for the buffers.
    pub(crate) fn issue(&self, operator: Operator) -> Answer<Ticket> {
        let mut state = self.state();
        if state.suspended {
            return Err(Fail::new(
                HcclResult::HCCL_E_SUSPENDING,
                EI0007,
                format!(
                    "{}: communicator {} is suspended",
                    operator.function(),
                    self.name
                ),
            ));
        }
        if state.buffers.is_none() {
            let bytes = u64::from(self.buffer_mb) * (2 << 20);
            let taken = self
                .device
                .memory
                .charge(bytes, "buffers of a communicator");
            let charge = taken.map_err(|error| {
                let text = format!(
                    "{}: communicator {} needs {bytes} bytes for its buffers (twice {} MB): {}",
                    operator.function(),
                    self.name,
                    self.buffer_mb,
                    error.text
                );
                Fail::new(HcclResult::HCCL_E_OOM, EI0011, text)
            })?;
            state.buffers = Some(charge);
        }
        state.issued += 1;
        let number = state.issued;
        let of_kind = state.issued_by_kind.entry(operator).or_insert(0);
        *of_kind += 1;
        Ok(Ticket {
            operator,
            number,
            of_kind: *of_kind,
        })
    }

    /// Notes that the calling thread is inside a call, until the guard is dropped.
    pub(crate) fn enter(self: &Arc<Self>) -> Inside {
        let thread = std::thread::current().id();
        self.state().users.push(thread);
        Inside {
            comm: Arc::clone(self),
            thread,
        }
    }

    /// Whether another thread is inside a call.
    pub(crate) fn is_used_elsewhere(&self) -> bool {
        let me = std::thread::current().id();
        self.state().users.iter().any(|user| *user != me)
    }

    /// Says which faults on purpose waited for an operator that never came, so that nobody takes a
    /// run without them for one that survived them.
    pub(crate) fn tell_missed_faults(&self) {
        let state = self.state();
        for fault in &self.awaited {
            let Some(at) = fault.kind.at() else { continue };
            let issued = match at.operator {
                None => state.issued,
                Some(name) => {
                    let mut counts = state.issued_by_kind.iter();
                    let found = counts.find(|(operator, _)| operator.name() == name);
                    found.map_or(0, |(_, issued)| *issued)
                }
            };
            if issued < at.k {
                notice::missed(&fault.to_string(), &self.name, issued);
            }
        }
    }

    /// What an operator found that broke the communicator on this rank.
    pub(crate) fn broken(&self) -> Option<RuntimeError> {
        self.state().broken.clone()
    }

    /// Breaks the communicator on this rank, silently for the others (`COMM-2`).
    pub(crate) fn break_off(&self, error: &RuntimeError) {
        let lines = {
            let mut state = self.state();
            state.broken.get_or_insert_with(|| error.clone());
            state.lines.clone()
        };
        lines.main.cancel(&error.text);
        lines.receipts.cancel(&error.text);
    }

    /// What `HcclGetCommAsyncError` answers.
    pub(crate) fn async_error(&self) -> HcclResult {
        self.state().async_error
    }

    /// Sets what `HcclGetCommAsyncError` answers.
    pub(crate) fn set_async_error(&self, error: HcclResult) {
        self.state().async_error = error;
    }

    /// What `HcclSetCommConfig`, or the configuration, said.
    pub(crate) fn deterministic(&self) -> Option<i32> {
        self.state().deterministic
    }

    /// Takes what `HcclSetCommConfig` says.
    pub(crate) fn set_deterministic(&self, value: i32) {
        self.state().deterministic = Some(value);
    }

    /// Whether `HcclCommSuspend` was called and `HcclCommResume` was not.
    pub(crate) fn is_suspended(&self) -> bool {
        self.state().suspended
    }

    /// Refuses operators from now on.
    pub(crate) fn suspend(&self) {
        self.state().suspended = true;
    }

    /// Takes operators again, on fresh links: what went wrong before is forgotten. All ranks resume
    /// before any of them goes on.
    pub(crate) fn resume(&self) -> Answer {
        let lines = Lines::new(&self.seat, &self.name, &self.members)?;
        let mut state = self.state();
        state.lines = lines;
        state.suspended = false;
        state.broken = None;
        state.async_error = HcclResult::HCCL_SUCCESS;
        Ok(())
    }

    /// Leaves the device no more memory than a fault allows, for as long as the communicator lives.
    fn limit_memory(&self) {
        for fault in &self.faults {
            if let Kind::Oom { bytes } = fault
                && let Ok(info) = self.device.memory.info()
                && let Some(excess) = info.free.checked_sub(*bytes).filter(|excess| *excess > 0)
                && let Ok(charge) = self.device.memory.charge(excess, "a fault on purpose")
            {
                self.state().lost_memory = Some(charge);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread inside a call of a communicator.
#[derive(Debug)]
pub(crate) struct Inside {
    comm: Arc<Comm>,
    thread: ThreadId,
}

impl Drop for Inside {
    fn drop(&mut self) {
        let mut state = self.comm.state();
        if let Some(at) = state.users.iter().position(|user| *user == self.thread) {
            state.users.swap_remove(at);
        }
    }
}
