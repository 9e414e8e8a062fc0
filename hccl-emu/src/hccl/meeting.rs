//! How the ranks of a communicator find each other: a coordinator in the root's process, and a
//! world of the host backend for each communicator.
//!
//! - `MEETING-1`: the port of a root is taken only until all ranks have come, as with the vendor.
//! - `MEETING-2`: a coordinator ends when its ranks have left or are gone; it holds nothing of the
//!   process but a thread.

use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use hccl_sys::types::HcclResult;
use muster_comm::rendezvous::{
    Absence, Coordinator, CoordinatorEvent, CoordinatorOptions, RendezvousError, Secret,
};
use muster_comm::sync::Deadline;
use muster_comm::world::{BringUpError, JoinOptions, ServedBy, World};

use super::fail::{Answer, EI0006, EI0007, EI0008, EI0015, EI0019, EJ0003, Fail};
use super::settings::{Ports, Settings};
use crate::runtime::device::Device;

/// Heap of each rank's shared region of one communicator: address space, some hundred
/// sub-communicators' worth.
const REGION_BYTES: usize = 1 << 30;
/// Longest wait that is meant to be none; about a hundred years.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
/// How long a process that served a failed exchange waits for the others to be told.
const SETTLE_MAX: Duration = Duration::from_secs(1);
/// CANN version from which a port that is taken has a code of its own.
const CANN_WITH_EI0019: u32 = 900;

/// Where to serve and for whom.
#[derive(Debug)]
pub(crate) struct Serving<'a> {
    pub(crate) ip: std::net::IpAddr,
    pub(crate) ports: &'a Ports,
    pub(crate) secret: &'a Secret,
    /// Name of the job in messages, the same on all ranks.
    pub(crate) job_id: &'a str,
    /// Ranks; 0 where the first one says how many.
    pub(crate) world_size: u32,
    pub(crate) connect_timeout: Duration,
    pub(crate) cann: u32,
}

/// A rendezvous that this process serves, or has served.
#[derive(Debug, Default)]
pub(crate) struct Served {
    over: Mutex<bool>,
    ended: Condvar,
}

impl Served {
    /// Waits a moment until all ranks have been told how a failed exchange ended: the process that
    /// serves them may be about to exit.
    pub(crate) fn settle(&self) {
        let over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        // Whether that was in time or not, there is nothing more to do.
        let _ = self
            .ended
            .wait_timeout_while(over, SETTLE_MAX, |over| !*over);
    }

    fn end(&self) {
        *self.over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.ended.notify_all();
    }
}

/// Serves a rendezvous in the background; gives where.
pub(crate) fn serve(call: &str, serving: &Serving<'_>) -> Answer<(SocketAddr, Arc<Served>)> {
    let mut taken = None;
    let any = [0];
    let ports = match serving.ports {
        Ports::Any => &any[..],
        Ports::Listed(ports) => ports,
    };
    for port in ports {
        let options = CoordinatorOptions {
            bind: SocketAddr::new(serving.ip, *port),
            world_size: serving.world_size,
            deadline: serving.connect_timeout,
            closes_door: true,
            ..CoordinatorOptions::new(serving.secret.clone(), serving.job_id, 1)
        };
        match Coordinator::start(options) {
            Ok(coordinator) => {
                let address = coordinator.address();
                let served = keep(coordinator).map_err(|error| {
                    let text = format!("{call}: no thread for the rank exchange: {error}");
                    Fail::new(HcclResult::HCCL_E_INTERNAL, EI0007, text)
                })?;
                return Ok((address, served));
            }
            Err(error @ RendezvousError::PortTaken { .. }) => {
                taken.get_or_insert(error);
            }
            Err(error) => return Err(unbound(call, &error, serving.cann)),
        }
    }
    match taken {
        Some(error) => Err(unbound(call, &error, serving.cann)),
        None => Err(Fail::new(
            HcclResult::HCCL_E_UNAVAIL,
            EJ0003,
            format!("{call}: no host port is allowed"),
        )),
    }
}

/// Keeps a coordinator until its ranks are gone.
fn keep(coordinator: Coordinator) -> std::io::Result<Arc<Served>> {
    let served = Arc::new(Served::default());
    let ours = Arc::clone(&served);
    let body = move || {
        let events = coordinator.events();
        let (mut joined, mut gone) = (0, 0);
        while let Some(event) = events.next(Deadline::after(FOR_EVER)) {
            match event {
                CoordinatorEvent::Joined { .. } => joined += 1,
                CoordinatorEvent::Left { .. } | CoordinatorEvent::Lost { .. } => gone += 1,
                CoordinatorEvent::Failed(_) => break,
                _ => {}
            }
            if gone > 0 && gone == joined {
                break;
            }
        }
        // What is still to be told is told here; the port and the thread are free after it.
        coordinator.shutdown();
        ours.end();
    };
    // Not joined: it ends with its ranks, or with the process.
    let builder = std::thread::Builder::new().name("emu-root".to_owned());
    builder.spawn(body).map(|_| served)
}

fn unbound(call: &str, error: &RendezvousError, cann: u32) -> Fail {
    let label = if cann >= CANN_WITH_EI0019 {
        EI0019
    } else {
        EJ0003
    };
    match error {
        RendezvousError::PortTaken { .. } | RendezvousError::Bind { .. } => Fail::new(
            HcclResult::HCCL_E_UNAVAIL,
            label,
            format!("{call}: host address for the rank exchange: {error}"),
        ),
        _ => refused(call, error),
    }
}

/// Who joins which world.
#[derive(Debug)]
pub(crate) struct Joining<'a> {
    pub(crate) address: SocketAddr,
    pub(crate) secret: &'a Secret,
    pub(crate) job_id: &'a str,
    pub(crate) rank: u32,
    pub(crate) world_size: u32,
}

/// Joins the others; returns when all are there.
///
/// The world may read and write the memory of `device` where it lies, so that operators on it copy
/// nothing to and fro.
pub(crate) fn join(
    call: &str,
    joining: &Joining<'_>,
    settings: &Settings,
    device: &Device,
) -> Answer<World> {
    let (rank, size) = (i64::from(joining.rank), i64::from(joining.world_size));
    let endpoint = joining.address.into();
    let options = JoinOptions {
        job_id: joining.job_id.to_owned(),
        source: format!("{call}(nRanks={size}, rank={rank})"),
        served_by: ServedBy::Member,
        bring_up: settings.connect_timeout,
        region_bytes: REGION_BYTES,
        // A device without memory of its own has nothing to share either.
        memory: device
            .memory
            .backing()
            .ok()
            .map(|backing| Arc::clone(backing.shared())),
        ..JoinOptions::new(endpoint, joining.secret.clone(), rank, size)
    };
    World::join(options).map_err(|error| match error {
        BringUpError::Rendezvous { error, .. } => refused(call, &error),
        error => Fail::new(
            HcclResult::HCCL_E_MEMORY,
            EI0007,
            format!("{call}: rank {rank}: {error}"),
        ),
    })
}

/// What the caller of an initialisation gets for a rendezvous that failed.
fn refused(call: &str, error: &RendezvousError) -> Fail {
    use RendezvousError as E;
    let (result, label) = match error {
        E::Missing { absence } => {
            return Fail::new(
                HcclResult::HCCL_E_TIMEOUT,
                EI0015,
                format!(
                    "{call}: topo exchange server get socket timeout! {}",
                    missing(absence)
                ),
            );
        }
        E::Unreachable { .. } | E::Silent { .. } | E::NameUnresolved { .. } => {
            (HcclResult::HCCL_E_TIMEOUT, EI0015)
        }
        E::Duplicate { .. } | E::RankRange { .. } | E::WorldSize { .. } | E::WorldRange { .. } => {
            (HcclResult::HCCL_E_PARA, EI0015)
        }
        E::RankDown { .. } | E::RankLeft { .. } | E::CoordinatorGone { .. } => {
            (HcclResult::HCCL_E_TCP_CONNECT, EI0006)
        }
        E::Build { .. } | E::Protocol { .. } => (HcclResult::HCCL_E_INTERNAL, EI0008),
        E::Descriptors { .. } | E::Resource { .. } => (HcclResult::HCCL_E_SYSCALL, EI0007),
        _ => (HcclResult::HCCL_E_INTERNAL, EI0015),
    };
    Fail::new(result, label, format!("{call}: {error}"))
}

fn missing(absence: &Absence) -> String {
    let list = |ranks: &mut dyn Iterator<Item = u32>| {
        let ranks: Vec<String> = ranks.map(|rank| rank.to_string()).collect();
        ranks.join(", ")
    };
    let connected = list(&mut absence.present.iter().map(|presence| presence.rank.0));
    let unconnected = list(&mut absence.missing.iter().map(|rank| rank.0));
    format!(
        "rank size is {}, after {} s connected rankinfo: [{connected}], not connected: [{unconnected}]",
        absence.world_size,
        absence.waited_ms / 1000,
    )
}
