//! The exports that ask communicators, suspend and end them, and open groups.

use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::Arc;

use hccl_sys::types::{HcclCommStatePhase, HcclCommStatus, HcclResult};

use super::call::find_comm;
use super::comm::Comm;
use super::fail::{Answer, EI0003, Fail, answer};
use super::library::{current_device, library};
use super::submit::{self, defer, is_grouping};
use super::{life, states};

/// Room for the name of a communicator, which the caller must have.
const NAME_BYTES: usize = 128;

pub(super) fn the_comm(call: &'static str, comm: *const c_void) -> Answer<Arc<Comm>> {
    find_comm(call, library(call)?, comm)
}

pub(super) fn put<T>(call: &str, argument: &str, place: *mut T, value: T) -> Answer {
    if place.is_null() {
        return Err(Fail::null(call, argument));
    }
    // SAFETY: the caller passes a place for a value of this type.
    unsafe { place.write_unaligned(value) };
    Ok(())
}

/// `HcclCommDestroy`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclCommDestroy(comm: *mut c_void) -> HcclResult {
    const CALL: &str = "HcclCommDestroy";
    answer(CALL, || {
        let library = library(CALL)?;
        if is_grouping() {
            let device = current_device(CALL)?;
            let device = i32::try_from(device.logical).unwrap_or(i32::MAX);
            let comm = comm.expose_provenance();
            let body = move || life::destroy(CALL, library, std::ptr::without_provenance(comm));
            return defer(CALL, device, Box::new(body));
        }
        life::destroy(CALL, library, comm)
    })
}

/// `HcclGetRankSize`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclGetRankSize(comm: *mut c_void, rank_size: *mut u32) -> HcclResult {
    const CALL: &str = "HcclGetRankSize";
    answer(CALL, || {
        let size = the_comm(CALL, comm)?.size();
        put(CALL, "rankSize", rank_size, size)
    })
}

/// `HcclGetRankId`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclGetRankId(comm: *mut c_void, rank: *mut u32) -> HcclResult {
    const CALL: &str = "HcclGetRankId";
    answer(CALL, || {
        let number = the_comm(CALL, comm)?.rank;
        put(CALL, "rank", rank, number)
    })
}

/// `HcclGetCommName`; `comm_name` has room for 128 bytes.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclGetCommName(comm: *mut c_void, comm_name: *mut c_char) -> HcclResult {
    const CALL: &str = "HcclGetCommName";
    answer(CALL, || {
        let comm = the_comm(CALL, comm)?;
        if comm_name.is_null() {
            return Err(Fail::null(CALL, "commName"));
        }
        let mut name = comm.name.clone().into_bytes();
        name.truncate(NAME_BYTES - 1);
        let name = CString::new(name).unwrap_or_default();
        let bytes = name.as_bytes_with_nul();
        // SAFETY: the caller has room for 128 bytes, and there are no more than that.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), comm_name.cast(), bytes.len()) };
        Ok(())
    })
}

/// `HcclCommGetHandleWithName`: of the calling thread's device.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclCommGetHandleWithName(
    comm_name: *const c_char,
    comm: *mut *mut c_void,
) -> HcclResult {
    const CALL: &str = "HcclCommGetHandleWithName";
    answer(CALL, || {
        let library = library(CALL)?;
        if comm_name.is_null() {
            return Err(Fail::null(CALL, "commName"));
        }
        let device = current_device(CALL)?;
        // SAFETY: the caller passes a text with an end.
        let name = unsafe { CStr::from_ptr(comm_name) }.to_string_lossy();
        let found = library.named(device.logical, &name).ok_or_else(|| {
            let text = format!(
                "{CALL}: device {} has no communicator {name:?}",
                device.logical
            );
            Fail::new(HcclResult::HCCL_E_NOT_FOUND, EI0003, text)
        })?;
        let handle = std::ptr::without_provenance_mut(found.handle as usize);
        put(CALL, "comm", comm, handle)
    })
}

/// `HcclGetCommAsyncError`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclGetCommAsyncError(
    comm: *mut c_void,
    async_error: *mut HcclResult,
) -> HcclResult {
    const CALL: &str = "HcclGetCommAsyncError";
    answer(CALL, || {
        let error = the_comm(CALL, comm)?.async_error();
        put(CALL, "asyncError", async_error, error)
    })
}

/// `HcclGetErrorString`; the text is static.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclGetErrorString(code: HcclResult) -> *const c_char {
    /// The texts with their ends, by number; then the two for other numbers.
    static TEXTS: std::sync::OnceLock<Vec<CString>> = std::sync::OnceLock::new();
    let texts = TEXTS.get_or_init(|| {
        (0..=25)
            .chain([1041, 5000])
            .map(|number| CString::new(HcclResult(number).text()).unwrap_or_default())
            .collect()
    });
    let wanted = code.text().as_bytes();
    let found = texts.iter().find(|text| text.as_bytes() == wanted);
    found.map_or(c"unknown error".as_ptr(), |text| text.as_ptr())
}

/// `HcclCommSuspend`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclCommSuspend(comm: *mut c_void) -> HcclResult {
    const CALL: &str = "HcclCommSuspend";
    answer(CALL, || {
        the_comm(CALL, comm)?.suspend();
        Ok(())
    })
}

/// `HcclCommResume`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclCommResume(comm: *mut c_void) -> HcclResult {
    const CALL: &str = "HcclCommResume";
    answer(CALL, || {
        let comm = the_comm(CALL, comm)?;
        states::tell(&comm, HcclCommStatePhase::HCCL_COMM_STATE_PHASE_RESUME_PRE);
        comm.resume()?;
        states::tell(&comm, HcclCommStatePhase::HCCL_COMM_STATE_PHASE_RESUME_POST);
        Ok(())
    })
}

/// `HcclCommGetStatus`, by the name of the communicator.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclCommGetStatus(
    comm_id: *const c_char,
    status: *mut HcclCommStatus,
) -> HcclResult {
    const CALL: &str = "HcclCommGetStatus";
    answer(CALL, || {
        let library = library(CALL)?;
        if comm_id.is_null() {
            return Err(Fail::null(CALL, "commId"));
        }
        // SAFETY: the caller passes a text with an end.
        let name = unsafe { CStr::from_ptr(comm_id) }.to_string_lossy();
        let answer = match library.named_anywhere(&name) {
            None => HcclCommStatus::HCCL_COMM_STATUS_INVALID,
            Some(comm) if comm.is_suspended() => HcclCommStatus::HCCL_COMM_STATUS_SUSPENDING,
            Some(_) => HcclCommStatus::HCCL_COMM_STATUS_READY,
        };
        put(CALL, "status", status, answer)
    })
}

/// `HcclGroupStart`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclGroupStart() -> HcclResult {
    const CALL: &str = "HcclGroupStart";
    answer(CALL, || {
        library(CALL)?;
        submit::start();
        Ok(())
    })
}

/// `HcclGroupEnd`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclGroupEnd() -> HcclResult {
    const CALL: &str = "HcclGroupEnd";
    answer(CALL, || submit::end(CALL, library(CALL)?.product))
}

/// `HcclGroupStatusGet`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclGroupStatusGet(is_grouping_now: *mut bool) -> HcclResult {
    const CALL: &str = "HcclGroupStatusGet";
    answer(CALL, || put(CALL, "status", is_grouping_now, is_grouping()))
}
