//! The types of HCCL.

use std::ffi::c_void;
use std::mem::{align_of, offset_of, size_of};

use super::newtype::{c_constants, c_enum};
use crate::headers::HeaderSet;

/// A communicator. Belongs to the device that was current in the thread which made it.
pub type HcclComm = *mut c_void;
/// A window of symmetric memory.
pub type HcclCommSymWindow = *mut c_void;
/// Told of a communicator's changes of state: communicator, phase, the registered argument.
pub type HcclCommStateCallback =
    Option<unsafe extern "C" fn(HcclComm, HcclCommStatePhase, *mut c_void) -> HcclResult>;

c_enum! {
    /// What a call of HCCL returns.
    HcclResult {
        HCCL_SUCCESS = 0, ALL;
        HCCL_E_PARA = 1, ALL;
        HCCL_E_PTR = 2, ALL;
        HCCL_E_MEMORY = 3, ALL;
        HCCL_E_INTERNAL = 4, ALL;
        HCCL_E_NOT_SUPPORT = 5, ALL;
        HCCL_E_NOT_FOUND = 6, ALL;
        HCCL_E_UNAVAIL = 7, ALL;
        HCCL_E_SYSCALL = 8, ALL;
        HCCL_E_TIMEOUT = 9, ALL;
        HCCL_E_OPEN_FILE_FAILURE = 10, ALL;
        HCCL_E_TCP_CONNECT = 11, ALL;
        HCCL_E_ROCE_CONNECT = 12, ALL;
        HCCL_E_TCP_TRANSFER = 13, ALL;
        HCCL_E_ROCE_TRANSFER = 14, ALL;
        HCCL_E_RUNTIME = 15, ALL;
        HCCL_E_DRV = 16, ALL;
        HCCL_E_PROFILING = 17, ALL;
        HCCL_E_CCE = 18, ALL;
        HCCL_E_NETWORK = 19, ALL;
        HCCL_E_AGAIN = 20, ALL;
        HCCL_E_REMOTE = 21, ALL;
        HCCL_E_SUSPENDING = 22, ALL;
        HCCL_E_OPRETRY_FAIL = 23, SINCE_8_5;
        HCCL_E_OOM = 24, SINCE_8_5;
        HCCL_E_IN_STATUS = 1041, CANN_8_5;
    }
    moving {
        HCCL_E_RESERVED = 23, HeaderSet::CANN_8_1_ONLY;
        HCCL_E_RESERVED = 1042, HeaderSet::CANN_8_5;
        HCCL_E_RESERVED = 25, HeaderSet::TORCH_NPU;
    }
}

/// What `HcclGetErrorString` answers, by number.
const TEXTS: [&str; 25] = [
    "no error",
    "parameter error",
    "empty pointer",
    "memory error",
    "internal error",
    "not support feature",
    "not found specific resource",
    "resource unavailable",
    "call system interface error",
    "timeout",
    "open file fail",
    "tcp connect fail",
    "roce connect fail",
    "tcp transfer fail",
    "roce transfer fail",
    "call runtime api fail",
    "call driver api fail",
    "call profiling api fail",
    "call cce api fail",
    "call network api fail",
    "try again",
    "error cqe",
    "error communicator suspending",
    "retry constraint",
    "out of memory",
];

impl HcclResult {
    /// Whether the call was accepted. What it started may fail later, on its stream.
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.0 == 0
    }

    /// This result as a `Result`.
    ///
    /// # Errors
    /// The result itself, unless it is `HCCL_SUCCESS`.
    pub const fn check(self) -> Result<(), Self> {
        if self.is_success() { Ok(()) } else { Err(self) }
    }

    /// What `HcclGetErrorString` of CANN 8.5 and later answers for it, also where no library
    /// is loaded.
    #[must_use]
    pub fn text(self) -> &'static str {
        let known = usize::try_from(self.0).ok().and_then(|at| TEXTS.get(at));
        match known {
            Some(text) => text,
            // Between the mapped numbers and RESERVED of those versions, 1042.
            None if (0..1042).contains(&self.0) => "unknown err",
            None => "unknown error",
        }
    }
}

c_enum! {
    /// The type of an element.
    HcclDataType {
        HCCL_DATA_TYPE_INT8 = 0, ALL;
        HCCL_DATA_TYPE_INT16 = 1, ALL;
        HCCL_DATA_TYPE_INT32 = 2, ALL;
        HCCL_DATA_TYPE_FP16 = 3, ALL;
        HCCL_DATA_TYPE_FP32 = 4, ALL;
        HCCL_DATA_TYPE_INT64 = 5, ALL;
        HCCL_DATA_TYPE_UINT64 = 6, ALL;
        HCCL_DATA_TYPE_UINT8 = 7, ALL;
        HCCL_DATA_TYPE_UINT16 = 8, ALL;
        HCCL_DATA_TYPE_UINT32 = 9, ALL;
        HCCL_DATA_TYPE_FP64 = 10, ALL;
        HCCL_DATA_TYPE_BFP16 = 11, ALL;
        HCCL_DATA_TYPE_INT128 = 12, ALL;
        HCCL_DATA_TYPE_HIF8 = 14, SINCE_8_5;
        HCCL_DATA_TYPE_FP8E4M3 = 15, SINCE_8_5;
        HCCL_DATA_TYPE_FP8E5M2 = 16, SINCE_8_5;
        HCCL_DATA_TYPE_FP8E8M0 = 17, SINCE_8_5;
        HCCL_DATA_TYPE_RESERVED = 255, ALL;
    }
}

impl HcclDataType {
    /// Bytes of one element, if the number stands for a type.
    #[must_use]
    pub const fn bytes(self) -> Option<u64> {
        match self.0 {
            0 | 7 | 14..=17 => Some(1),
            1 | 3 | 8 | 11 => Some(2),
            2 | 4 | 9 => Some(4),
            5 | 6 | 10 => Some(8),
            12 => Some(16),
            _ => None,
        }
    }
}

c_enum! {
    /// How elements are combined. There is no average.
    HcclReduceOp {
        HCCL_REDUCE_SUM = 0, ALL;
        HCCL_REDUCE_PROD = 1, ALL;
        HCCL_REDUCE_MAX = 2, ALL;
        HCCL_REDUCE_MIN = 3, ALL;
        HCCL_REDUCE_RESERVED = 255, ALL;
    }
}

c_enum! {
    /// Direction of an item of `HcclBatchSendRecv`.
    HcclSendRecvType {
        HCCL_SEND = 0, ALL;
        HCCL_RECV = 1, ALL;
        HCCL_SEND_RECV_RESERVED = 2, ALL;
    }
}

c_enum! {
    /// A setting of the whole process.
    HcclConfig {
        HCCL_DETERMINISTIC = 0, ALL;
    }
    moving {
        HCCL_CONFIG_RESERVED = 1, HeaderSet::CANN_8_1_ONLY.and(HeaderSet::CANN_9_0);
        HCCL_CONFIG_RESERVED = 2, HeaderSet::CANN_8_5_ONLY.and(HeaderSet::TORCH_NPU);
    }
}

c_enum! {
    /// A feature of `HcclCommConfig`: there if `HcclGetCommConfigCapability()` exceeds it.
    HcclCommConfigCapability {
        HCCL_COMM_CONFIG_BUFFER_SIZE = 0, ALL;
        HCCL_COMM_CONFIG_DETERMINISTIC = 1, ALL;
        HCCL_COMM_CONFIG_COMM_NAME = 2, ALL;
        HCCL_COMM_CONFIG_OP_EXPANSION_MODE = 3, ALL;
        HCCL_COMM_CONFIG_SUPPORT_INIT_BY_ENV = 4, ALL;
        HCCL_COMM_CONFIG_WORLD_RANKID = 5, SINCE_8_5;
        HCCL_COMM_CONFIG_JOBID = 6, SINCE_8_5;
        HCCL_COMM_CONFIG_ACLGRAPH_ZEROCOPY_ENABLE = 7, SINCE_8_5;
        HCCL_COMM_CONFIG_EXEC_TIMEOUT = 8, SINCE_8_5;
        HCCL_COMM_CONFIG_ALGO = 9, SINCE_8_5;
        HCCL_COMM_CONFIG_RETRY = 10, SINCE_8_5;
        HCCL_COMM_CONFIG_BUFFER_NAME = 11, SINCE_9_0;
    }
    moving {
        HCCL_COMM_CONFIG_RESERVED = 5, HeaderSet::CANN_8_1_ONLY;
        HCCL_COMM_CONFIG_RESERVED = 11, HeaderSet::CANN_8_5_ONLY;
        HCCL_COMM_CONFIG_RESERVED = 12, HeaderSet::SINCE_9_0;
    }
}

impl HcclCommConfigCapability {
    /// Whether a library that answers `count` to `HcclGetCommConfigCapability()` has the feature.
    #[must_use]
    pub fn is_in(self, count: u32) -> bool {
        u32::try_from(self.0).is_ok_and(|feature| feature < count)
    }
}

c_enum! {
    /// A kind of operation, as names in logs and callbacks count them.
    HcclCMDType {
        HCCL_CMD_INVALID = 0, SINCE_8_5;
        HCCL_CMD_BROADCAST = 1, SINCE_8_5;
        HCCL_CMD_ALLREDUCE = 2, SINCE_8_5;
        HCCL_CMD_REDUCE = 3, SINCE_8_5;
        HCCL_CMD_SEND = 4, SINCE_8_5;
        HCCL_CMD_RECEIVE = 5, SINCE_8_5;
        HCCL_CMD_ALLGATHER = 6, SINCE_8_5;
        HCCL_CMD_REDUCE_SCATTER = 7, SINCE_8_5;
        HCCL_CMD_ALLTOALLV = 8, SINCE_8_5;
        HCCL_CMD_ALLTOALLVC = 9, SINCE_8_5;
        HCCL_CMD_ALLTOALL = 10, SINCE_8_5;
        HCCL_CMD_GATHER = 11, SINCE_8_5;
        HCCL_CMD_SCATTER = 12, SINCE_8_5;
        HCCL_CMD_BATCH_SEND_RECV = 13, SINCE_8_5;
        HCCL_CMD_BATCH_PUT = 14, SINCE_8_5;
        HCCL_CMD_BATCH_GET = 15, SINCE_8_5;
        HCCL_CMD_ALLGATHER_V = 16, SINCE_8_5;
        HCCL_CMD_REDUCE_SCATTER_V = 17, SINCE_8_5;
        HCCL_CMD_BATCH_WRITE = 18, SINCE_8_5;
        HCCL_CMD_HALF_ALLTOALLV = 20, SINCE_8_5;
        HCCL_CMD_ALL = 21, SINCE_8_5;
        HCCL_CMD_FINALIZE = 100, SINCE_8_5;
        HCCL_CMD_INTER_GROUP_SYNC = 101, SINCE_8_5;
        HCCL_CMD_INIT = 102, SINCE_8_5;
        HCCL_CMD_BARRIER = 103, SINCE_8_5;
        HCCL_CMD_MAX = 104, SINCE_8_5;
    }
}

c_enum! {
    /// What `HcclCommGetStatus` answers.
    HcclCommStatus {
        HCCL_COMM_STATUS_READY = 0, CANN_9_1;
        HCCL_COMM_STATUS_SUSPENDING = 1, CANN_9_1;
        HCCL_COMM_STATUS_INVALID = 254, CANN_9_1;
        HCCL_COMM_STATUS_RESERVED = 255, CANN_9_1;
    }
}

c_enum! {
    /// A change of a communicator's state that a callback is told of.
    HcclCommStatePhase {
        HCCL_COMM_STATE_PHASE_INVALID = -1, HEAD;
        HCCL_COMM_STATE_PHASE_DESTROY_PRE = 0, HEAD;
        HCCL_COMM_STATE_PHASE_DESTROY_POST = 1, HEAD;
        HCCL_COMM_STATE_PHASE_RESUME_PRE = 2, HEAD;
        HCCL_COMM_STATE_PHASE_RESUME_POST = 3, HEAD;
    }
}

c_enum! {
    /// Where operations are unfolded, as `HcclConfigGetInfo` answers. These are not the numbers
    /// of `HcclCommConfig::hccl_op_expansion_mode`.
    HcclOpExpansionMode {
        HCCL_OP_EXPANSION_MODE_INVALID = -1, HEAD;
        HCCL_OP_EXPANSION_MODE_AI_CPU = 0, HEAD;
        HCCL_OP_EXPANSION_MODE_AIV = 1, HEAD;
        HCCL_OP_EXPANSION_MODE_HOST = 2, HEAD;
        HCCL_OP_EXPANSION_MODE_HOST_TS = 3, HEAD;
        HCCL_OP_EXPANSION_MODE_CCU_MS = 4, HEAD;
        HCCL_OP_EXPANSION_MODE_CCU_SCHED = 5, HEAD;
    }
}

c_enum! {
    /// What `HcclConfigGetInfo` is asked for. The facts hold no numbers of it.
    HcclConfigType {}
}

c_enum! {
    /// What `HcclGetHeterogMode` answers. The facts hold no numbers of it.
    HcclHeterogMode {}
}

c_enum! {
    /// Shape of a network layer. The facts hold no numbers of it.
    CommTopo {}
}

c_enum! {
    /// A property of an endpoint. The facts hold no numbers of it.
    EndpointAttr {}
}

/// A struct of the vendor whose inside a client never sees; used behind pointers only.
macro_rules! opaque {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Debug)]
            pub struct $name {
                _inside: [u8; 0],
                _not_send: std::marker::PhantomData<*mut u8>,
            }
        )*
    };
}
pub(crate) use opaque;

opaque! {
    /// A link between two ranks.
    CommLink;
    /// An endpoint of a network layer.
    EndpointDesc;
}

c_constants! {
    /// All constants of HCCL's headers with their numbers.
    HCCL_CONSTANTS {
        /// Bytes of [`HcclRootInfo`].
        HCCL_ROOT_INFO_BYTES: usize = 4108, ALL;
        /// Longest name of a communicator with its closing zero, in bytes.
        COMM_NAME_MAX_LENGTH: usize = 128, ALL;
        /// Longest user text for logs with its closing zero, in bytes.
        UDI_MAX_LENGTH: usize = 128, ALL;
        /// Bytes of the head of `HcclCommConfig`.
        HCCL_COMM_CONFIG_INFO_BYTES: usize = 24, ALL;
        /// The word that marks a head of `HcclCommConfig`.
        HCCL_COMM_CONFIG_MAGIC_WORD: u32 = 0xf0f0_f0f0, ALL;
        /// Buffer of a communicator in MB if nothing else is said.
        HCCL_COMM_DEFAULT_BUFFSIZE: u32 = 200, ALL;
        /// Buffer size: not set.
        HCCL_COMM_BUFFSIZE_CONFIG_NOT_SET: u32 = 0xffff_ffff, ALL;
        /// Determinism if nothing else is said: off.
        HCCL_COMM_DEFAULT_DETERMINISTIC: u32 = 0, ALL;
        /// Determinism: not set.
        HCCL_COMM_DETERMINISTIC_CONFIG_NOT_SET: u32 = 0xffff_ffff, ALL;
        /// Expansion mode: the product's own.
        HCCL_COMM_DEFAULT_OP_EXPANSION_MODE: u32 = 0, ALL;
        /// RDMA traffic class: not set.
        HCCL_COMM_TRAFFIC_CLASS_CONFIG_NOT_SET: u32 = 0xffff_ffff, ALL;
        /// RDMA service level: not set.
        HCCL_COMM_SERVICE_LEVEL_CONFIG_NOT_SET: u32 = 0xffff_ffff, ALL;
        /// Longest choice of algorithms with its closing zero, in bytes.
        HCCL_COMM_ALGO_MAX_LENGTH: usize = 1600, SINCE_8_5;
        /// Longest choice of retries with its closing zero, in bytes.
        HCCL_COMM_RETRY_ENABLE_MAX_LENGTH: usize = 50, SINCE_8_5;
        /// Longest parameters of retries with their closing zero, in bytes.
        HCCL_COMM_RETRY_PARAMS_MAX_LENGTH: usize = 128, SINCE_8_5;
        /// Timeout of execution: not set.
        HCCL_COMM_EXECTIMEOUT_CONFIG_NOT_SET: i32 = -1, SINCE_8_5;
        /// Longest name of a buffer with its closing zero, in bytes.
        BUFFER_NAME_MAX_LENGTH: usize = 128, SINCE_9_0;
        /// Symmetric memory of a rank in GB if nothing else is said.
        HCCL_DEFAULT_SYMMETRIC_MEMORY_STRIDE: u64 = 16, SINCE_9_0;
    }
    moving {
        HCCL_COMM_CONFIG_VERSION = 5, HeaderSet::CANN_8_1_ONLY;
        HCCL_COMM_CONFIG_VERSION = 8, HeaderSet::CANN_8_5_ONLY;
        HCCL_COMM_CONFIG_VERSION = 10, HeaderSet::CANN_9_0_UP_TO_9_1.and(HeaderSet::TORCH_NPU);
        HCCL_COMM_CONFIG_VERSION = 11, HeaderSet::HEAD;
    }
}

/// How the ranks of a new communicator find rank 0. Opaque; made by `HcclGetRootInfo`, carried to
/// the other ranks by the caller, good for one communicator.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HcclRootInfo {
    /// The library's own bytes.
    pub internal: [u8; HCCL_ROOT_INFO_BYTES],
}

impl HcclRootInfo {
    /// All bytes zero: a place to write one into.
    #[must_use]
    pub const fn zeroed() -> Self {
        Self {
            internal: [0; HCCL_ROOT_INFO_BYTES],
        }
    }

    /// The root info that these bytes are, if there are exactly as many as it has.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let internal = bytes.try_into().ok()?;
        Some(Self { internal })
    }

    /// Its bytes, to be carried to other ranks.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; HCCL_ROOT_INFO_BYTES] {
        &self.internal
    }
}

/// Only the size: the bytes hold an address that is nobody else's business.
impl std::fmt::Debug for HcclRootInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HcclRootInfo({HCCL_ROOT_INFO_BYTES} bytes)")
    }
}

/// Value of a setting, a union of one member in C; passed by value.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HcclConfigValue {
    /// The number.
    pub value: i32,
}

/// One transfer of `HcclBatchSendRecv`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HcclSendRecvItem {
    /// Whether this rank sends or receives.
    pub send_recv_type: HcclSendRecvType,
    /// Device memory of `count` elements.
    pub buf: *mut c_void,
    /// Elements.
    pub count: u64,
    /// Type of the elements.
    pub data_type: HcclDataType,
    /// The peer, as a rank of the communicator.
    pub remote_rank: u32,
}

const _: () = {
    assert!(size_of::<HcclComm>() == 8 && align_of::<HcclComm>() == 8);
    assert!(size_of::<HcclResult>() == 4 && size_of::<HcclDataType>() == 4);
    assert!(size_of::<HcclRootInfo>() == 4108 && align_of::<HcclRootInfo>() == 1);
    assert!(offset_of!(HcclRootInfo, internal) == 0);
    assert!(size_of::<HcclConfigValue>() == 4 && align_of::<HcclConfigValue>() == 4);
    assert!(size_of::<HcclSendRecvItem>() == 32 && align_of::<HcclSendRecvItem>() == 8);
    assert!(offset_of!(HcclSendRecvItem, send_recv_type) == 0);
    assert!(offset_of!(HcclSendRecvItem, buf) == 8);
    assert!(offset_of!(HcclSendRecvItem, count) == 16);
    assert!(offset_of!(HcclSendRecvItem, data_type) == 24);
    assert!(offset_of!(HcclSendRecvItem, remote_rank) == 28);
};
