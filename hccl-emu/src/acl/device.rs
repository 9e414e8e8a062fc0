//! Devices: which there are, which is current, what they are, who may reach whose memory.

use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use muster_comm::sync::{Deadline, Ordering};

use super::abi::{Out, exports};
use crate::options::Product;
use crate::runtime::device::{self, Device};
use crate::runtime::errors::{AclError, RuntimeError};
use crate::runtime::state;
use crate::runtime::stream::Stream;

/// Attributes of `aclrtGetDeviceInfo`.
pub(super) mod attribute {
    pub(crate) const AICPU_CORES: i32 = 1;
    pub(crate) const AICORES: i32 = 101;
    pub(crate) const CUBE_CORES: i32 = 102;
    pub(crate) const VECTOR_CORES: i32 = 201;
    pub(crate) const MEMORY: i32 = 301;
    pub(crate) const L2_CACHE: i32 = 302;
    pub(crate) const HOST: i32 = 401;
    pub(crate) const PHYSICAL_CHIP: i32 = 402;
    pub(crate) const IS_VIRTUAL: i32 = 501;
}

/// Longest task abort that the vendor allows: 36 minutes.
const ABORT_MAX: Duration = Duration::from_secs(36 * 60);

/// Name of the chip, or null if the options cannot be used.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn aclrtGetSocName() -> *const c_char {
    static NAME: OnceLock<Option<CString>> = OnceLock::new();
    let name = NAME.get_or_init(|| {
        let options = state().options().ok()?;
        CString::new(options.soc.name).ok()
    });
    name.as_deref().map_or(std::ptr::null(), CStr::as_ptr)
}

exports! {
    /// How many devices are visible. Works before `aclInit`.
    fn aclrtGetDeviceCount(count: Out<u32>) {
        let count = count.check("count")?;
        state().options()?;
        let found = state().devices().len();
        if found == 0 {
            count.set("count", 0)?;
            let text = "no device is visible: MUSTER_EMU_DEVICES and ASCEND_RT_VISIBLE_DEVICES leave none";
            return Err(RuntimeError::new(AclError::RT_NO_DEVICE, text));
        }
        count.set("count", u32::try_from(found).unwrap_or(u32::MAX))
    }

    /// Counts a user of the device and makes its context current in the calling thread.
    fn aclrtSetDevice(device: i32) {
        state().device(device)?.set()
    }

    /// Counts a user less; the last one frees everything on the device.
    fn aclrtResetDevice(device: i32) {
        state().device(device)?.reset(false)
    }

    /// Frees everything on the device, whoever uses it.
    fn aclrtResetDeviceForce(device: i32) {
        state().device(device)?.reset(true)
    }

    /// The calling thread's device.
    fn aclrtGetDevice(device: Out<i32>) {
        let device = device.check("deviceId")?;
        device.set("deviceId", number(&device::current()?.device))
    }

    /// The program runs on the host: `ACL_HOST`.
    fn aclrtGetRunMode(mode: Out<i32>) {
        mode.set("runMode", 1)
    }

    /// Saturation or Inf and NaN on overflow: kept, and without effect.
    fn aclrtSetDeviceSatMode(mode: i32) {
        device::current()?;
        if !(0..=1).contains(&mode) {
            return Err(RuntimeError::argument(format!("mode is {mode}; allowed: 0, 1")));
        }
        // Relaxed: a setting on its own.
        state().process.saturation.store(mode.unsigned_abs(), Ordering::Relaxed);
        Ok(())
    }

    /// What was set.
    fn aclrtGetDeviceSatMode(mode: Out<i32>) {
        device::current()?;
        // Relaxed: a setting on its own.
        let set = state().process.saturation.load(Ordering::Relaxed);
        mode.set("mode", i32::try_from(set).unwrap_or(0))
    }

    /// Normal (0), or abnormal (1) for a device that was lost.
    fn aclrtQueryDeviceStatus(device: i32, status: Out<i32>) {
        let status = status.check("deviceStatus")?;
        let lost = state().device(device)?.check_alive().is_err();
        status.set("deviceStatus", i32::from(lost))
    }

    /// Properties of the chip that is played; those that it has not are refused.
    fn aclrtGetDeviceInfo(device: u32, attribute: c_int, value: Out<i64>) {
        let value = value.check("value")?;
        let device = state().device(i32::try_from(device).unwrap_or(-1))?;
        let known = info(device, attribute)?;
        let missing = || {
            let text = format!("attribute {attribute} is not emulated");
            RuntimeError::new(AclError::RT_FEATURE_NOT_SUPPORT, text)
        };
        value.set("value", known.ok_or_else(missing)?)
    }

    /// Sixteen bytes: `muster-emu` and the physical number of the device.
    fn aclrtDeviceGetUuid(device: i32, uuid: Out<[u8; 16]>) {
        let device = state().device(device)?;
        let mut bytes = *b"muster-emu\0\0\0\0\0\0";
        bytes[12..].copy_from_slice(&device.physical.to_be_bytes());
        uuid.set("uuid", bytes)
    }

    /// The physical number behind a visible one.
    fn aclrtGetPhyDevIdByLogicDevId(logical: i32, physical: Out<i32>) {
        physical.set("phyDevId", physical_of(logical)?)
    }

    /// As [`aclrtGetPhyDevIdByLogicDevId`]: user numbers are logical ones here.
    fn aclrtGetPhyDevIdByUserDevId(user: i32, physical: Out<i32>) {
        physical.set("phyDevId", physical_of(user)?)
    }

    /// The visible number of a physical device.
    fn aclrtGetLogicDevIdByPhyDevId(physical: i32, logical: Out<i32>) {
        logical.set("logicDevId", logical_of(physical)?)
    }

    /// As [`aclrtGetLogicDevIdByPhyDevId`].
    fn aclrtGetUserDevIdByPhyDevId(physical: i32, user: Out<i32>) {
        user.set("userDevId", logical_of(physical)?)
    }

    /// The same number.
    fn aclrtGetLogicDevIdByUserDevId(user: i32, logical: Out<i32>) {
        logical.set("logicDevId", number(state().device(user)?))
    }

    /// The same number.
    fn aclrtGetUserDevIdByLogicDevId(logical: i32, user: Out<i32>) {
        user.set("userDevid", number(state().device(logical)?))
    }

    /// Whether a device may reach another one's memory: all of one host can, none itself.
    fn aclrtDeviceCanAccessPeer(can: Out<i32>, device: i32, peer: i32) {
        let can = can.check("canAccessPeer")?;
        let (device, peer) = (state().device(device)?, state().device(peer)?);
        can.set("canAccessPeer", i32::from(device.logical != peer.logical))
    }

    /// Lets the current device reach the memory of `peer`.
    fn aclrtDeviceEnablePeerAccess(peer: i32, flags: u32) {
        if flags != 0 {
            return Err(RuntimeError::new(AclError::INVALID_PARAM, format!("flags is {flags}; allowed: 0")));
        }
        set_peer_access(peer, true)
    }

    /// Ends that.
    fn aclrtDeviceDisablePeerAccess(peer: i32) {
        set_peer_access(peer, false)
    }

    /// Whether `device` was let to reach `peer`.
    fn aclrtDevicePeerAccessStatus(device: i32, peer: i32, status: Out<i32>) {
        let (device, peer) = (state().device(device)?, state().device(peer)?);
        status.set("status", i32::from(device.reaches(peer.logical)))
    }

    /// 0 is the highest priority of a stream, 7 the lowest; they change nothing.
    fn aclrtDeviceGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) {
        device::current()?;
        least.set("leastPriority", 7)?;
        greatest.set("greatestPriority", 0)
    }

    /// The process as the device sees it.
    fn aclrtDeviceGetBareTgid(pid: Out<i32>) {
        pid.set("pid", i32::try_from(std::process::id()).unwrap_or(0))
    }

    /// Seconds that a stream waits for an event; 0 is for ever.
    fn aclrtSetOpWaitTimeout(seconds: u32) {
        // Relaxed: a setting on its own.
        state().process.op_wait_timeout_s.store(seconds, Ordering::Relaxed);
        Ok(())
    }

    /// Accepted: no kernel runs on an emulated device.
    fn aclrtSetOpExecuteTimeOut(_seconds: u32) {
        Ok(())
    }

    /// Accepted, as [`aclrtSetOpExecuteTimeOut`].
    fn aclrtSetOpExecuteTimeOutWithMs(_milliseconds: u32) {
        Ok(())
    }

    /// Accepted, as [`aclrtSetOpExecuteTimeOut`].
    fn aclrtSetOpExecuteTimeOutV2(microseconds: u64, actual: Out<u64>) {
        actual.set("actualTimeout", microseconds)
    }

    /// Waits for all streams of the current context.
    fn aclrtSynchronizeDevice() {
        synchronize(None)
    }

    /// The same with a limit in milliseconds; -1 is none.
    fn aclrtSynchronizeDeviceWithTimeout(milliseconds: i32) {
        synchronize(limit(milliseconds)?)
    }

    /// Ends every task of the device; who waits for one gets `RT_DEVICE_TASK_ABORT`.
    fn aclrtDeviceTaskAbort(device: i32, milliseconds: u32) {
        let device = state().device(device)?;
        let limit = Duration::from_millis(u64::from(milliseconds));
        if limit > ABORT_MAX {
            let text = format!("timeout is {milliseconds} ms; allowed: 0 (for ever) to 2160000");
            return Err(RuntimeError::argument(text));
        }
        let text = format!("the tasks of device {} were aborted", device.logical);
        let error = RuntimeError::new(AclError::RT_DEVICE_TASK_ABORT, text);
        let limit = if limit.is_zero() { ABORT_MAX } else { limit };
        if device.abort_tasks(&error, Some(limit)) {
            return Ok(());
        }
        let text = format!("a task of device {} still ran after {limit:?}", device.logical);
        Err(RuntimeError::new(AclError::RT_WAIT_TIMEOUT, text))
    }
}

/// A time in milliseconds as the vendor's calls take it: -1 is without limit.
pub(super) fn limit(milliseconds: i32) -> Result<Option<Duration>, RuntimeError> {
    match u64::try_from(milliseconds) {
        Ok(milliseconds) => Ok(Some(Duration::from_millis(milliseconds))),
        Err(_) if milliseconds == -1 => Ok(None),
        Err(_) => Err(RuntimeError::argument(format!(
            "timeout is {milliseconds}; allowed: -1 or more"
        ))),
    }
}

/// Waits for the tasks of the current context, whatever becomes of them.
pub(super) fn settle() -> Result<(), RuntimeError> {
    let context = device::current()?;
    let own = |stream: &Stream| stream.context.as_ptr() == Arc::as_ptr(&context);
    for stream in state().streams.filter(own) {
        let _ = stream.settle(None);
    }
    Ok(())
}

fn number(device: &Device) -> i32 {
    i32::try_from(device.logical).unwrap_or(i32::MAX)
}

fn physical_of(logical: i32) -> Result<i32, RuntimeError> {
    let device = state().device(logical)?;
    Ok(i32::try_from(device.physical).unwrap_or(i32::MAX))
}

fn logical_of(physical: i32) -> Result<i32, RuntimeError> {
    let found = state()
        .devices()
        .iter()
        .find(|device| i32::try_from(device.physical) == Ok(physical));
    let missing = || {
        let text = format!("the physical device {physical} is not visible");
        RuntimeError::new(AclError::RT_INVALID_DEVICEID, text)
    };
    found.map(|device| number(device)).ok_or_else(missing)
}

fn set_peer_access(peer: i32, allowed: bool) -> Result<(), RuntimeError> {
    let peer = state().device(peer)?;
    let context = device::current()?;
    if peer.logical == context.device.logical {
        let text = format!("device {} is the current device itself", peer.logical);
        return Err(RuntimeError::new(AclError::RT_INVALID_DEVICEID, text));
    }
    context.device.set_peer_access(peer.logical, allowed);
    Ok(())
}

fn synchronize(limit: Option<Duration>) -> Result<(), RuntimeError> {
    let context = device::current()?;
    let deadline = limit.map(Deadline::after);
    let streams = state()
        .streams
        .filter(|stream| stream.context.as_ptr() == Arc::as_ptr(&context));
    let mut first = Ok(());
    for stream in streams {
        let outcome = stream.synchronize(deadline.map(|deadline| deadline.left()));
        if first.is_ok() {
            first = outcome;
        }
    }
    first
}

/// Figures of the vendor's products, by family; numbers of cores are those of the largest chip.
pub(super) fn info(device: &Arc<Device>, asked: c_int) -> Result<Option<i64>, RuntimeError> {
    let product = state().options()?.soc.product;
    let cores = match product {
        Product::A2 | Product::A3 => 24,
        Product::Atlas910 => 32,
        Product::Atlas310P => 8,
        Product::Atlas950 => 32,
    };
    Ok(match asked {
        attribute::AICPU_CORES => Some(6),
        attribute::AICORES | attribute::CUBE_CORES => Some(cores),
        attribute::VECTOR_CORES => Some(match product {
            Product::A2 | Product::A3 | Product::Atlas950 => 2 * cores,
            Product::Atlas910 | Product::Atlas310P => cores,
        }),
        attribute::MEMORY => {
            let total = device.memory.info()?.total;
            Some(i64::try_from(total).unwrap_or(i64::MAX))
        }
        attribute::L2_CACHE => Some(192 << 20),
        attribute::HOST | attribute::IS_VIRTUAL => Some(0),
        attribute::PHYSICAL_CHIP => Some(i64::from(device.physical)),
        _ => None,
    })
}
