//! The types of the Ascend runtime (ACL), as far as a client of HCCL needs them.

use std::ffi::c_void;
use std::mem::{align_of, size_of};

use super::AclError;
use super::hccl::opaque;
use super::newtype::{c_constants, c_enum};

/// An ordered queue of work on a device. Null means the default stream of the runtime's calls,
/// and nothing at all for HCCL.
pub type AclrtStream = *mut c_void;
/// A mark in a stream.
pub type AclrtEvent = *mut c_void;
/// What a thread works in on a device.
pub type AclrtContext = *mut c_void;
/// A notification between streams or devices.
pub type AclrtNotify = *mut c_void;
/// Physical device memory that is not mapped yet.
pub type AclrtDrvMemHandle = *mut c_void;
/// Runs on the thread that processes reports, with the registered argument.
pub type AclrtCallback = Option<unsafe extern "C" fn(*mut c_void)>;
/// Runs on a thread of the runtime, in the order of the stream, with the registered argument.
pub type AclrtHostFunc = Option<unsafe extern "C" fn(*mut c_void)>;
/// Told of a task that failed on a device.
pub type AclrtExceptionInfoCallback = Option<unsafe extern "C" fn(*mut AclrtExceptionInfo)>;

c_enum! {
    /// Where the program runs.
    AclrtRunMode {
        ACL_DEVICE = 0, ALL;
        ACL_HOST = 1, ALL;
    }
}

c_enum! {
    /// Pages of device memory; the two types may be added to a policy as flags.
    AclrtMemMallocPolicy {
        ACL_MEM_MALLOC_HUGE_FIRST = 0, ALL;
        ACL_MEM_MALLOC_HUGE_ONLY = 1, ALL;
        ACL_MEM_MALLOC_NORMAL_ONLY = 2, ALL;
        ACL_MEM_MALLOC_HUGE_FIRST_P2P = 3, ALL;
        ACL_MEM_MALLOC_HUGE_ONLY_P2P = 4, ALL;
        ACL_MEM_MALLOC_NORMAL_ONLY_P2P = 5, ALL;
        ACL_MEM_TYPE_LOW_BAND_WIDTH = 0x100, ALL;
        ACL_MEM_TYPE_HIGH_BAND_WIDTH = 0x1000, ALL;
    }
}

c_enum! {
    /// Direction of a copy.
    AclrtMemcpyKind {
        ACL_MEMCPY_HOST_TO_HOST = 0, ALL;
        ACL_MEMCPY_HOST_TO_DEVICE = 1, ALL;
        ACL_MEMCPY_DEVICE_TO_HOST = 2, ALL;
        ACL_MEMCPY_DEVICE_TO_DEVICE = 3, ALL;
        ACL_MEMCPY_DEFAULT = 4, ALL;
    }
}

c_enum! {
    /// A kind of device memory.
    AclrtMemAttr {
        ACL_DDR_MEM = 0, ALL;
        ACL_HBM_MEM = 1, ALL;
        ACL_DDR_MEM_HUGE = 2, ALL;
        ACL_DDR_MEM_NORMAL = 3, ALL;
        ACL_HBM_MEM_HUGE = 4, ALL;
        ACL_HBM_MEM_NORMAL = 5, ALL;
        ACL_DDR_MEM_P2P_HUGE = 6, ALL;
        ACL_DDR_MEM_P2P_NORMAL = 7, ALL;
        ACL_HBM_MEM_P2P_HUGE = 8, ALL;
        ACL_HBM_MEM_P2P_NORMAL = 9, ALL;
    }
}

c_enum! {
    /// What `aclrtQueryEvent` answers. **Complete is 0**: the other way round than
    /// [`AclrtEventRecordedStatus`].
    AclrtEventStatus {
        ACL_EVENT_STATUS_COMPLETE = 0, ALL;
        ACL_EVENT_STATUS_NOT_READY = 1, ALL;
        ACL_EVENT_STATUS_RESERVED = 2, ALL;
    }
}

c_enum! {
    /// What `aclrtQueryEventStatus` answers. **Complete is 1**: the other way round than
    /// [`AclrtEventStatus`], [`AclrtEventWaitStatus`] and [`AclrtStreamStatus`].
    AclrtEventRecordedStatus {
        ACL_EVENT_RECORDED_STATUS_NOT_READY = 0, ALL;
        ACL_EVENT_RECORDED_STATUS_COMPLETE = 1, ALL;
    }
}

c_enum! {
    /// What `aclrtQueryEventWaitStatus` answers. **Complete is 0.**
    AclrtEventWaitStatus {
        ACL_EVENT_WAIT_STATUS_COMPLETE = 0, ALL;
        ACL_EVENT_WAIT_STATUS_NOT_READY = 1, ALL;
        ACL_EVENT_WAIT_STATUS_RESERVED = 0xffff, ALL;
    }
}

c_enum! {
    /// What `aclrtStreamQuery` answers. **Complete is 0.**
    AclrtStreamStatus {
        ACL_STREAM_STATUS_COMPLETE = 0, ALL;
        ACL_STREAM_STATUS_NOT_READY = 1, ALL;
        ACL_STREAM_STATUS_RESERVED = 0xffff, ALL;
    }
}

impl AclrtEventStatus {
    /// Whether the event has come; `None` for a number that no version knows.
    #[must_use]
    pub const fn is_complete(self) -> Option<bool> {
        complete_is_zero(self.0)
    }
}

impl AclrtEventRecordedStatus {
    /// Whether the event has come; `None` for a number that no version knows.
    #[must_use]
    pub const fn is_complete(self) -> Option<bool> {
        match complete_is_zero(self.0) {
            Some(zero) => Some(!zero),
            None => None,
        }
    }
}

impl AclrtEventWaitStatus {
    /// Whether the wait is over; `None` for a number that no version knows.
    #[must_use]
    pub const fn is_complete(self) -> Option<bool> {
        complete_is_zero(self.0)
    }
}

impl AclrtStreamStatus {
    /// Whether the stream is empty; `None` for a number that no version knows.
    #[must_use]
    pub const fn is_complete(self) -> Option<bool> {
        complete_is_zero(self.0)
    }
}

const fn complete_is_zero(number: i32) -> Option<bool> {
    match number {
        0 => Some(true),
        1 => Some(false),
        _ => None,
    }
}

c_enum! {
    /// Whether a callback holds up its stream.
    AclrtCallbackBlockType {
        ACL_CALLBACK_NO_BLOCK = 0, ALL;
        ACL_CALLBACK_BLOCK = 1, ALL;
    }
}

c_enum! {
    /// Whose last error is asked for.
    AclrtLastErrLevel {
        ACL_RT_THREAD_LEVEL = 0, ALL;
    }
}

c_enum! {
    /// The runtime's own type of an element. Not the numbers of `HcclDataType`.
    AclDataType {
        ACL_FLOAT = 0, ALL;
        ACL_FLOAT16 = 1, ALL;
        ACL_INT8 = 2, ALL;
        ACL_INT32 = 3, ALL;
        ACL_UINT8 = 4, ALL;
        ACL_INT16 = 6, ALL;
        ACL_UINT16 = 7, ALL;
        ACL_UINT32 = 8, ALL;
        ACL_INT64 = 9, ALL;
        ACL_UINT64 = 10, ALL;
        ACL_DOUBLE = 11, ALL;
        ACL_BOOL = 12, ALL;
        ACL_BF16 = 27, ALL;
    }
}

c_enum! {
    /// Condition of a device. The facts hold no numbers of it.
    AclrtDeviceStatus {}
}

c_enum! {
    /// A property of a device. The facts hold no numbers of it.
    AclrtDevAttr {}
}

c_enum! {
    /// How overflow of floats shows. The facts hold no numbers of it.
    AclrtFloatOverflowMode {}
}

c_enum! {
    /// Granularity of physical memory that is asked for. The facts hold no numbers of it.
    AclrtMemGranularityOptions {}
}

c_enum! {
    /// How host memory is registered. The facts hold no numbers of it.
    AclrtHostRegisterType {}
}

c_enum! {
    /// How `aclrtReduceAsync` combines. The facts hold no numbers of it.
    AclrtReduceKind {}
}

c_enum! {
    /// A package of CANN. The facts hold no numbers of it.
    AclCANNPackageName {}
}

opaque! {
    /// What an exception callback may ask about.
    AclrtExceptionInfo;
    /// Settings of an allocation.
    AclrtMallocConfig;
    /// What physical memory is asked for.
    AclrtPhysicalMemProp;
    /// Version of a package of CANN.
    AclCANNPackageVersion;
    /// Identity of a device.
    AclrtUuid;
    /// Where an address lies.
    AclrtPtrAttributes;
}

c_constants! {
    /// All constants of the runtime's headers that the bindings hold, with their numbers.
    ACL_CONSTANTS {
        /// Stream: tasks are launched faster, for more memory.
        ACL_STREAM_FAST_LAUNCH: u32 = 1, ALL;
        /// Stream: the host waits by polling.
        ACL_STREAM_FAST_SYNC: u32 = 2, ALL;
        /// After a failed task the stream goes on with the next.
        ACL_CONTINUE_ON_FAILURE: u64 = 0, ALL;
        /// After a failed task the stream does no other.
        ACL_STOP_ON_FAILURE: u64 = 1, ALL;
        /// Event: for order between streams.
        ACL_EVENT_SYNC: u32 = 1, ALL;
        /// Event: shows how far a stream is.
        ACL_EVENT_CAPTURE_STREAM_PROGRESS: u32 = 2, ALL;
        /// Event: keeps the time.
        ACL_EVENT_TIME_LINE: u32 = 8, ALL;
    }
}

const _: () = {
    assert!(size_of::<AclError>() == 4 && align_of::<AclError>() == 4);
    assert!(size_of::<AclrtStream>() == 8 && align_of::<AclrtStream>() == 8);
    assert!(size_of::<AclrtEvent>() == 8 && align_of::<AclrtEvent>() == 8);
    assert!(size_of::<AclrtContext>() == 8 && align_of::<AclrtContext>() == 8);
    assert!(size_of::<AclrtDrvMemHandle>() == 8 && align_of::<AclrtDrvMemHandle>() == 8);
    assert!(size_of::<AclrtMemMallocPolicy>() == 4 && align_of::<AclrtMemMallocPolicy>() == 4);
    assert!(size_of::<AclrtMemcpyKind>() == 4 && align_of::<AclrtMemcpyKind>() == 4);
    assert!(size_of::<AclrtCallback>() == 8 && size_of::<AclrtHostFunc>() == 8);
};
