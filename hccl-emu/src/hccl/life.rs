//! The life of communicators after they were made: queries, destruction, sub-communicators,
//! suspension.

use std::ffi::c_void;
use std::sync::Arc;

use hccl_sys::types::{HcclCommStatePhase, HcclResult};
use muster_comm::types::Rank;

use super::call::find_comm;
use super::comm::{Comm, Parts};
use super::config::CommConfig;
use super::fail::{Answer, EI0003, Fail};
use super::init::check_rank;
use super::library::{Library, current_device};
use super::states;

/// What a rank that is no member passes for the number of a sub-communicator.
pub(crate) const NO_SUB_COMM: u64 = 0xFFFF_FFFF;

/// Takes a communicator out of the books; it is gone when its tasks are.
pub(crate) fn remove(library: &Library, comm: &Comm) {
    library.comms.remove(comm.handle);
    library.free_name(comm.device.logical, &comm.name);
}

/// `HcclCommDestroy`: a communicator of `HcclCommInitAll` is found from every thread that has a device,
/// and gives up its own; others only where their device is current.
pub(crate) fn destroy(call: &str, library: &Library, handle: *const c_void) -> Answer {
    let device = current_device(call)?;
    if handle.is_null() {
        return Ok(());
    }
    let comm = find_comm(call, library, handle)?;
    if comm.device.logical != device.logical && !comm.holds_device() {
        return Err(Fail::para(format!(
            "{call}: communicator {} is not one of device {}, which is current in this thread; it is on device {}",
            comm.name, device.logical, comm.device.logical
        )));
    }
    if comm.is_used_elsewhere() {
        return Err(Fail::new(
            HcclResult::HCCL_E_AGAIN,
            EI0003,
            format!(
                "{call}: another thread is inside a call of communicator {}",
                comm.name
            ),
        ));
    }
    states::tell(&comm, HcclCommStatePhase::HCCL_COMM_STATE_PHASE_DESTROY_PRE);
    comm.tell_missed_faults();
    remove(library, &comm);
    states::tell(
        &comm,
        HcclCommStatePhase::HCCL_COMM_STATE_PHASE_DESTROY_POST,
    );
    if comm.holds_device() {
        let internal = |error| Fail {
            result: HcclResult::HCCL_E_INTERNAL,
            ..Fail::runtime(&error).under(call)
        };
        comm.device.reset(false).map_err(internal)?;
    }
    Ok(())
}

/// Which sub-communicator is made.
#[derive(Debug)]
pub(crate) struct SubComm<'a> {
    pub(crate) rank_ids: Option<&'a [u32]>,
    pub(crate) id: u64,
    pub(crate) rank: u32,
    pub(crate) config: &'a CommConfig,
}

/// `HcclCreateSubCommConfig`; nothing for a rank that is no member.
pub(crate) fn create_sub(
    call: &str,
    library: &Library,
    parent: &Arc<Comm>,
    sub: &SubComm<'_>,
) -> Answer<Option<Arc<Comm>>> {
    let device = current_device(call)?;
    if device.logical != parent.device.logical {
        return Err(Fail::para(format!(
            "{call}: communicator {} is on device {}, and device {} is current in this thread",
            parent.name, parent.device.logical, device.logical
        )));
    }
    if parent.is_sub {
        return Err(Fail::unsupported(format!(
            "{call}: communicator {} is a sub-communicator itself",
            parent.name
        )));
    }
    let ids = match (sub.rank_ids, sub.id == NO_SUB_COMM) {
        (None, true) => return Ok(None),
        (Some(ids), false) => ids,
        (None, false) => {
            let text = format!("{call}: rankIds is null and subCommId is {}", sub.id);
            return Err(Fail::para(text));
        }
        (Some(_), true) => {
            let text = format!(
                "{call}: subCommId is {NO_SUB_COMM:#x}, which is for ranks that are no members, and rankIds is given"
            );
            return Err(Fail::para(text));
        }
    };
    let size = u32::try_from(ids.len()).unwrap_or(u32::MAX);
    check_rank(call, sub.rank, size)?;
    check_members(call, parent, ids, sub.rank)?;
    let default_name = || format!("{}_sub_{}", parent.name, sub.id);
    let name = sub.config.name.clone().unwrap_or_else(default_name);
    if library
        .take_name(device.logical, &name, ids.len())
        .is_none()
    {
        return Err(Fail::para(format!(
            "{call}: device {} already has a communicator called {name:?}",
            device.logical
        )));
    }
    let made = Comm::create(
        library,
        Parts {
            name: name.clone(),
            device: Arc::clone(&device),
            seat: Arc::clone(&parent.seat),
            members: ids.iter().map(|id| Rank(*id)).collect(),
            rank: sub.rank,
            is_sub: true,
            exec_timeout: sub.config.exec_timeout.unwrap_or(parent.exec_timeout),
            buffer_mb: sub.config.buffer_mb.unwrap_or(library.settings.buffer_mb),
            deterministic: sub
                .config
                .deterministic
                .and_then(|value| i32::try_from(value).ok()),
            is_first: false,
        },
    );
    if made.is_err() {
        library.free_name(device.logical, &name);
    }
    made.map(Some)
}

fn check_members(call: &str, parent: &Comm, ids: &[u32], rank: u32) -> Answer {
    let ranks = parent.seat.world_size();
    for (at, id) in ids.iter().enumerate() {
        if *id as usize >= ranks {
            let text = format!("{call}: rankIds[{at}] is {id}; allowed: 0 to {}", ranks - 1);
            return Err(Fail::para(text));
        }
        if ids[..at].contains(id) {
            return Err(Fail::para(format!("{call}: rankIds has {id} twice")));
        }
    }
    if ids[rank as usize] != parent.rank {
        return Err(Fail::para(format!(
            "{call}: subCommRankId is {rank}, rankIds[{rank}] is {}, and this rank is {}",
            ids[rank as usize], parent.rank
        )));
    }
    Ok(())
}
