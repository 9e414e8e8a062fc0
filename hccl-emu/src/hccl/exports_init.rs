//! The exports that make communicators.

use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;

use hccl_sys::types::{HcclCommConfig, HcclResult, HcclRootInfo};

use super::comm::Comm;
use super::config::{self, CommConfig};
use super::fail::{Answer, Fail, answer};
use super::init;
use super::library::{Library, current_device, library};
use super::life::{self, SubComm};
use super::rank_table;
use super::root_info::RootInfo;
use super::submit::{defer, is_grouping};

/// Where a handle goes.
#[derive(Clone, Copy)]
struct Place(*mut *mut c_void);

// SAFETY: the caller keeps the place of a handle alive until the call, or its group, has ended, and
// does not touch it meanwhile.
unsafe impl Send for Place {}

impl Place {
    fn of(call: &str, argument: &str, place: *mut *mut c_void) -> Answer<Self> {
        if place.is_null() {
            return Err(Fail::null(call, argument));
        }
        Ok(Self(place))
    }

    fn put(self, handle: u64) {
        let handle = std::ptr::without_provenance_mut(handle as usize);
        // SAFETY: the caller passed a place for a handle (`Place::of` refused null).
        unsafe { self.0.write_unaligned(handle) };
    }

    fn fill(self, made: Answer<Arc<Comm>>) -> Answer {
        made.map(|comm| self.put(comm.handle))
    }
}

fn read_config(call: &str, library: &Library, config: *const HcclCommConfig) -> Answer<CommConfig> {
    let own = config::own_row(library.cann);
    // SAFETY: the caller passes null or a config with an honest size.
    unsafe { config::read(call, config, own, library.product) }
}

fn read_root_info(call: &str, info: *const HcclRootInfo) -> Answer<RootInfo> {
    if info.is_null() {
        return Err(Fail::null(call, "rootInfo"));
    }
    // SAFETY: the caller passes a root info of 4108 bytes, which has no alignment.
    let info = unsafe { info.read_unaligned() };
    RootInfo::decode(&info.internal).map_err(|what| Fail::para(format!("{call}: rootInfo {what}")))
}

/// `HcclGetRootInfo`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclGetRootInfo(root_info: *mut HcclRootInfo) -> HcclResult {
    const CALL: &str = "HcclGetRootInfo";
    answer(CALL, || {
        if root_info.is_null() {
            return Err(Fail::null(CALL, "rootInfo"));
        }
        let info = init::root_info(CALL, library(CALL)?)?;
        let internal = info.encode();
        // SAFETY: the caller passes a place for a root info, which has no alignment.
        unsafe { root_info.write_unaligned(HcclRootInfo { internal }) };
        Ok(())
    })
}

/// `HcclGetRootInfoScalable`: as the plain one, for one of several roots.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclGetRootInfoScalable(root_info: *mut HcclRootInfo) -> HcclResult {
    HcclGetRootInfo(root_info)
}

/// Joins now, or when the open group ends.
fn join(
    call: &'static str,
    info: RootInfo,
    (rank, world_size): (u32, u32),
    config: CommConfig,
    place: Place,
) -> Answer {
    let library = library(call)?;
    let device = current_device(call)?;
    init::check_rank(call, rank, world_size)?;
    let make = move |place: Place| {
        let numbers = (rank, world_size);
        place.fill(init::from_root_info(call, library, &info, numbers, &config))
    };
    if is_grouping() {
        let device = i32::try_from(device.logical).unwrap_or(i32::MAX);
        return defer(call, device, Box::new(move || make(place)));
    }
    make(place)
}

/// `HcclCommInitRootInfo`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclCommInitRootInfo(
    n_ranks: u32,
    root_info: *const HcclRootInfo,
    rank: u32,
    comm: *mut *mut c_void,
) -> HcclResult {
    const CALL: &str = "HcclCommInitRootInfo";
    answer(CALL, || {
        let place = Place::of(CALL, "comm", comm)?;
        let info = read_root_info(CALL, root_info)?;
        join(CALL, info, (rank, n_ranks), CommConfig::default(), place)
    })
}

/// `HcclCommInitRootInfoConfig`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclCommInitRootInfoConfig(
    n_ranks: u32,
    root_info: *const HcclRootInfo,
    rank: u32,
    config: *const HcclCommConfig,
    comm: *mut *mut c_void,
) -> HcclResult {
    const CALL: &str = "HcclCommInitRootInfoConfig";
    answer(CALL, || {
        let place = Place::of(CALL, "comm", comm)?;
        let config = read_config(CALL, library(CALL)?, config)?;
        let info = read_root_info(CALL, root_info)?;
        join(CALL, info, (rank, n_ranks), config, place)
    })
}

/// `HcclCommInitRootInfoScalable`: the ranks meet at the first of the roots.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclCommInitRootInfoScalable(
    n_ranks: u32,
    n_root: u32,
    root_infos: *const HcclRootInfo,
    rank: u32,
    _n_ext_root: u32,
    config: *const HcclCommConfig,
    comm: *mut *mut c_void,
) -> HcclResult {
    const CALL: &str = "HcclCommInitRootInfoScalable";
    answer(CALL, || {
        let place = Place::of(CALL, "comm", comm)?;
        if n_root == 0 {
            return Err(Fail::para(format!("{CALL}: nRoot is 0")));
        }
        let config = if config.is_null() {
            CommConfig::default()
        } else {
            read_config(CALL, library(CALL)?, config)?
        };
        let info = read_root_info(CALL, root_infos)?;
        join(CALL, info, (rank, n_ranks), config, place)
    })
}

fn text_of(call: &str, argument: &str, text: *const c_char) -> Answer<String> {
    if text.is_null() {
        return Err(Fail::null(call, argument));
    }
    // SAFETY: the caller passes a text with an end.
    let text = unsafe { CStr::from_ptr(text) };
    Ok(text.to_string_lossy().into_owned())
}

fn from_file(
    call: &'static str,
    path: *const c_char,
    rank: u32,
    config: &CommConfig,
    place: Place,
) -> Answer {
    let library = library(call)?;
    current_device(call)?;
    let path = text_of(call, "clusterInfo", path)?;
    if path.len() > rank_table::PATH_BYTES_MAX {
        let text = format!("{call}: clusterInfo has {} bytes", path.len());
        return Err(Fail::para(text));
    }
    let text = rank_table::read_file(call, &path)?;
    place.fill(rank_table::from_table(call, library, &text, rank, config))
}

/// `HcclCommInitClusterInfo`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclCommInitClusterInfo(
    cluster_info: *const c_char,
    rank: u32,
    comm: *mut *mut c_void,
) -> HcclResult {
    const CALL: &str = "HcclCommInitClusterInfo";
    answer(CALL, || {
        let place = Place::of(CALL, "comm", comm)?;
        from_file(CALL, cluster_info, rank, &CommConfig::default(), place)
    })
}

/// `HcclCommInitClusterInfoConfig`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclCommInitClusterInfoConfig(
    cluster_info: *const c_char,
    rank: u32,
    config: *const HcclCommConfig,
    comm: *mut *mut c_void,
) -> HcclResult {
    const CALL: &str = "HcclCommInitClusterInfoConfig";
    answer(CALL, || {
        let place = Place::of(CALL, "comm", comm)?;
        let config = read_config(CALL, library(CALL)?, config)?;
        from_file(CALL, cluster_info, rank, &config, place)
    })
}

/// `HcclCommInitClusterInfoMemConfig`: the table as text; the config must name the communicator.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclCommInitClusterInfoMemConfig(
    rank_table: *const c_char,
    rank: u32,
    config: *const HcclCommConfig,
    comm: *mut *mut c_void,
) -> HcclResult {
    const CALL: &str = "HcclCommInitClusterInfoMemConfig";
    answer(CALL, || {
        let place = Place::of(CALL, "comm", comm)?;
        let library = library(CALL)?;
        current_device(CALL)?;
        let config = read_config(CALL, library, config)?;
        if config.name.is_none() {
            return Err(Fail::para(format!(
                "{CALL}: hcclCommName of the config is empty"
            )));
        }
        let text = text_of(CALL, "rankTableString", rank_table)?;
        place.fill(rank_table::from_table(CALL, library, &text, rank, &config))
    })
}

/// `HcclCommInitAll`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclCommInitAll(
    n_dev: u32,
    devices: *mut i32,
    comms: *mut *mut c_void,
) -> HcclResult {
    const CALL: &str = "HcclCommInitAll";
    answer(CALL, || {
        let place = Place::of(CALL, "comms", comms)?;
        if devices.is_null() {
            return Err(Fail::null(CALL, "devices"));
        }
        let library = library(CALL)?;
        init::check_rank(CALL, 0, n_dev)?;
        let list: Vec<i32> = (0..n_dev as usize)
            .map(|at| {
                // SAFETY: the caller passes `n_dev` numbers; `at` is below that.
                let place = unsafe { devices.add(at) };
                // SAFETY: as above; a number need not be aligned here.
                unsafe { place.read_unaligned() }
            })
            .collect();
        for (at, handle) in init::all(CALL, library, &list)?.into_iter().enumerate() {
            // SAFETY: the caller passes places for `n_dev` handles.
            Place(unsafe { place.0.add(at) }).put(handle);
        }
        Ok(())
    })
}

/// `HcclCreateSubCommConfig`; `comm` points to the parent's handle.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclCreateSubCommConfig(
    comm: *mut *mut c_void,
    rank_num: u32,
    rank_ids: *mut u32,
    sub_comm_id: u64,
    sub_comm_rank_id: u32,
    config: *mut HcclCommConfig,
    sub_comm: *mut *mut c_void,
) -> HcclResult {
    const CALL: &str = "HcclCreateSubCommConfig";
    answer(CALL, || {
        let library = library(CALL)?;
        let parent = Place::of(CALL, "comm", comm)?;
        // SAFETY: the caller passes a pointer to the parent's handle.
        let parent = unsafe { parent.0.read_unaligned() };
        let parent = super::call::find_comm(CALL, library, parent)?;
        let ids: Vec<u32> = if rank_ids.is_null() {
            Vec::new()
        } else {
            init::check_rank(CALL, 0, rank_num)?;
            (0..rank_num as usize)
                .map(|at| {
                    // SAFETY: the caller passes `rank_num` numbers; `at` is below that.
                    let place = unsafe { rank_ids.add(at) };
                    // SAFETY: as above; a number need not be aligned here.
                    unsafe { place.read_unaligned() }
                })
                .collect()
        };
        // A rank that is no member needs neither a config nor a place.
        let is_member = !rank_ids.is_null();
        let config = if is_member {
            read_config(CALL, library, config)?
        } else {
            CommConfig::default()
        };
        let sub = SubComm {
            rank_ids: is_member.then_some(&ids[..]),
            id: sub_comm_id,
            rank: sub_comm_rank_id,
            config: &config,
        };
        let place = is_member
            .then(|| Place::of(CALL, "subComm", sub_comm))
            .transpose()?;
        let made = life::create_sub(CALL, library, &parent, &sub)?;
        if let (Some(made), Some(place)) = (made, place) {
            place.put(made.handle);
        }
        Ok(())
    })
}
