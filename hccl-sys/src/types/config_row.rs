//! The versions of `HcclCommConfig`: their sizes, and the fields that each has.

use std::fmt;
use std::mem::offset_of;

use super::config::HcclCommConfig;

/// A size and the version that belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommConfigRow {
    version: u32,
    size: usize,
}

impl CommConfigRow {
    /// Every version with its size. Version 5 is CANN 8.1.RC1's, 8 that of 8.5.0, 10 that of 9.0.0
    /// and 9.1.0-beta.1.
    pub const ALL: [Self; 11] = [
        Self::row(1, 32),
        Self::row(2, 160),
        Self::row(3, 288),
        Self::row(4, 292),
        Self::row(5, 300),
        Self::row(6, 312),
        Self::row(7, 320),
        Self::row(8, 2104),
        Self::row(9, 2232),
        Self::row(10, 2240),
        Self::row(11, 2248),
    ];
    /// Known to every library from CANN 8.1 on, and enough for size, name and expansion mode.
    pub const SAFEST: Self = Self::row(5, 300);

    const fn row(version: u32, size: usize) -> Self {
        Self { version, size }
    }

    /// The row of a version.
    #[must_use]
    pub fn of_version(version: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|row| row.version == version)
    }

    /// The version that a head states.
    #[must_use]
    pub const fn version(self) -> u32 {
        self.version
    }

    /// Bytes that a head states.
    #[must_use]
    pub const fn size(self) -> usize {
        self.size
    }

    /// Whether the version has the field.
    #[must_use]
    pub const fn has(self, field: CommConfigField) -> bool {
        field.since() <= self.version
    }
}

/// A field of [`HcclCommConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the fields of the struct say what they are")]
pub enum CommConfigField {
    BufferSize,
    Deterministic,
    CommName,
    Udi,
    OpExpansionMode,
    RdmaTrafficClass,
    RdmaServiceLevel,
    WorldRankId,
    JobId,
    AclGraphZeroCopyEnable,
    ExecTimeOut,
    Algo,
    RetryEnable,
    RetryParams,
    BufferName,
    Qos,
    SymWinMaxMemSizePerRank,
    ChannelSqDepth,
}

impl CommConfigField {
    /// All of them, in the order of their offsets.
    pub const ALL: [Self; 18] = [
        Self::BufferSize,
        Self::Deterministic,
        Self::CommName,
        Self::Udi,
        Self::OpExpansionMode,
        Self::RdmaTrafficClass,
        Self::RdmaServiceLevel,
        Self::WorldRankId,
        Self::JobId,
        Self::AclGraphZeroCopyEnable,
        Self::ExecTimeOut,
        Self::Algo,
        Self::RetryEnable,
        Self::RetryParams,
        Self::BufferName,
        Self::Qos,
        Self::SymWinMaxMemSizePerRank,
        Self::ChannelSqDepth,
    ];

    /// The vendor's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BufferSize => "hcclBufferSize",
            Self::Deterministic => "hcclDeterministic",
            Self::CommName => "hcclCommName",
            Self::Udi => "hcclUdi",
            Self::OpExpansionMode => "hcclOpExpansionMode",
            Self::RdmaTrafficClass => "hcclRdmaTrafficClass",
            Self::RdmaServiceLevel => "hcclRdmaServiceLevel",
            Self::WorldRankId => "hcclWorldRankID",
            Self::JobId => "hcclJobID",
            Self::AclGraphZeroCopyEnable => "aclGraphZeroCopyEnable",
            Self::ExecTimeOut => "hcclExecTimeOut",
            Self::Algo => "hcclAlgo",
            Self::RetryEnable => "hcclRetryEnable",
            Self::RetryParams => "hcclRetryParams",
            Self::BufferName => "hcclBufferName",
            Self::Qos => "hcclQos",
            Self::SymWinMaxMemSizePerRank => "hcclSymWinMaxMemSizePerRank",
            Self::ChannelSqDepth => "hcclChannelSqDepth",
        }
    }

    /// The first version of the struct that has it.
    #[must_use]
    pub const fn since(self) -> u32 {
        match self {
            Self::BufferSize | Self::Deterministic => 1,
            Self::CommName => 2,
            Self::Udi => 3,
            Self::OpExpansionMode => 4,
            Self::RdmaTrafficClass | Self::RdmaServiceLevel => 5,
            Self::WorldRankId | Self::JobId => 6,
            Self::AclGraphZeroCopyEnable => 7,
            Self::ExecTimeOut | Self::Algo | Self::RetryEnable | Self::RetryParams => 8,
            Self::BufferName => 9,
            Self::Qos | Self::SymWinMaxMemSizePerRank => 10,
            Self::ChannelSqDepth => 11,
        }
    }

    /// Offset and size in bytes.
    #[must_use]
    pub const fn place(self) -> (usize, usize) {
        match self {
            Self::BufferSize => (offset_of!(HcclCommConfig, hccl_buffer_size), 4),
            Self::Deterministic => (offset_of!(HcclCommConfig, hccl_deterministic), 4),
            Self::CommName => (offset_of!(HcclCommConfig, hccl_comm_name), 128),
            Self::Udi => (offset_of!(HcclCommConfig, hccl_udi), 128),
            Self::OpExpansionMode => (offset_of!(HcclCommConfig, hccl_op_expansion_mode), 4),
            Self::RdmaTrafficClass => (offset_of!(HcclCommConfig, hccl_rdma_traffic_class), 4),
            Self::RdmaServiceLevel => (offset_of!(HcclCommConfig, hccl_rdma_service_level), 4),
            Self::WorldRankId => (offset_of!(HcclCommConfig, hccl_world_rank_id), 4),
            Self::JobId => (offset_of!(HcclCommConfig, hccl_job_id), 8),
            Self::AclGraphZeroCopyEnable => {
                (offset_of!(HcclCommConfig, acl_graph_zero_copy_enable), 1)
            }
            Self::ExecTimeOut => (offset_of!(HcclCommConfig, hccl_exec_time_out), 4),
            Self::Algo => (offset_of!(HcclCommConfig, hccl_algo), 1600),
            Self::RetryEnable => (offset_of!(HcclCommConfig, hccl_retry_enable), 50),
            Self::RetryParams => (offset_of!(HcclCommConfig, hccl_retry_params), 128),
            Self::BufferName => (offset_of!(HcclCommConfig, hccl_buffer_name), 128),
            Self::Qos => (offset_of!(HcclCommConfig, hccl_qos), 4),
            Self::SymWinMaxMemSizePerRank => (
                offset_of!(HcclCommConfig, hccl_sym_win_max_mem_size_per_rank),
                8,
            ),
            Self::ChannelSqDepth => (offset_of!(HcclCommConfig, hccl_channel_sq_depth), 4),
        }
    }
}

impl fmt::Display for CommConfigField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Why a field was not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommConfigError {
    /// The version of this config has no such field.
    NotInVersion {
        /// The field.
        field: CommConfigField,
        /// The version.
        version: u32,
    },
    /// The text holds a zero byte.
    Zero {
        /// The field.
        field: CommConfigField,
    },
    /// The text does not fit with its closing zero.
    TooLong {
        /// The field.
        field: CommConfigField,
        /// Bytes of the text.
        bytes: usize,
        /// Most bytes of a text there, the closing zero not counted.
        bytes_max: usize,
    },
}

impl fmt::Display for CommConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotInVersion { field, version } => write!(
                f,
                "{field} came with version {} of HcclCommConfig, this one is version {version}",
                field.since()
            ),
            Self::Zero { field } => write!(f, "{field} holds a zero byte"),
            Self::TooLong {
                field,
                bytes,
                bytes_max,
            } => write!(f, "{field} has {bytes} bytes, at most {bytes_max} fit"),
        }
    }
}

impl std::error::Error for CommConfigError {}
