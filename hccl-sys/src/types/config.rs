//! `HcclCommConfig`: settings of one communicator, and the versions of its layout.
//!
//! The struct has grown with CANN, and its head says how much of it the caller filled. The library
//! copies as many bytes as the size says and then believes all fields that the version promises:
//! a version that does not belong to the size makes it read garbage. So a head is only written
//! from a row of [`CommConfigRow::ALL`].

#![expect(
    unsafe_code,
    reason = "the struct is shown as the bytes that cross the border"
)]

use std::ffi::c_char;
use std::fmt;
use std::mem::{align_of, offset_of, size_of};

use super::config_row::{CommConfigError, CommConfigField, CommConfigRow};
use super::hccl::{
    BUFFER_NAME_MAX_LENGTH, COMM_NAME_MAX_LENGTH, HCCL_COMM_ALGO_MAX_LENGTH,
    HCCL_COMM_BUFFSIZE_CONFIG_NOT_SET, HCCL_COMM_CONFIG_INFO_BYTES, HCCL_COMM_CONFIG_MAGIC_WORD,
    HCCL_COMM_DETERMINISTIC_CONFIG_NOT_SET, HCCL_COMM_EXECTIMEOUT_CONFIG_NOT_SET,
    HCCL_COMM_RETRY_ENABLE_MAX_LENGTH, HCCL_COMM_RETRY_PARAMS_MAX_LENGTH,
    HCCL_COMM_SERVICE_LEVEL_CONFIG_NOT_SET, HCCL_COMM_TRAFFIC_CLASS_CONFIG_NOT_SET,
    HCCL_DEFAULT_SYMMETRIC_MEMORY_STRIDE, UDI_MAX_LENGTH,
};

/// The word in every head.
pub const COMM_CONFIG_MAGIC: u32 = HCCL_COMM_CONFIG_MAGIC_WORD;

/// The first 24 bytes: `reserved` in the vendor's header.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommConfigHeader {
    /// Bytes that the caller filled.
    pub size: usize,
    /// [`COMM_CONFIG_MAGIC`].
    pub magic: u32,
    /// Version of the layout.
    pub version: u32,
    /// Zero.
    pub zero: u64,
}

/// Settings of one communicator, in the longest form. A library that knows less reads less.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct HcclCommConfig {
    /// Size and version.
    pub head: CommConfigHeader,
    /// MB, at least 1; a communicator takes twice as much. 0xffffffff: not set.
    pub hccl_buffer_size: u32,
    /// 0 or 1, 2 for strict. 0xffffffff: not set.
    pub hccl_deterministic: u32,
    /// Name, unique in the process for each device. Empty: the library makes one.
    pub hccl_comm_name: [c_char; COMM_NAME_MAX_LENGTH],
    /// Text that the logs show.
    pub hccl_udi: [c_char; UDI_MAX_LENGTH],
    /// 0 the product's own, 1 host, 2 AI CPU, 3 AIV, 4 AIV only, 5 and 6 CCU.
    pub hccl_op_expansion_mode: u32,
    /// 0 to 255, a multiple of 4. 0xffffffff: not set.
    pub hccl_rdma_traffic_class: u32,
    /// 0 to 7. 0xffffffff: not set.
    pub hccl_rdma_service_level: u32,
    /// Rank in the world, for balancing the network's load.
    pub hccl_world_rank_id: u32,
    /// Number of the job, for the same.
    pub hccl_job_id: u64,
    /// 0 or 1.
    pub acl_graph_zero_copy_enable: u8,
    /// Zero.
    pub padding_after_zero_copy: [u8; 3],
    /// Seconds, as `HCCL_EXEC_TIMEOUT`. -1: not set.
    pub hccl_exec_time_out: i32,
    /// As `HCCL_ALGO`. Empty: not set.
    pub hccl_algo: [c_char; HCCL_COMM_ALGO_MAX_LENGTH],
    /// Such as `L1:0, L2:1`. Empty: not set.
    pub hccl_retry_enable: [c_char; HCCL_COMM_RETRY_ENABLE_MAX_LENGTH],
    /// Such as `MaxCnt:3, HoldTime:5000, IntervalTime:1000`. Empty: not set.
    pub hccl_retry_params: [c_char; HCCL_COMM_RETRY_PARAMS_MAX_LENGTH],
    /// Communicators of one name share a buffer and must use one stream. Empty: own buffer.
    pub hccl_buffer_name: [c_char; BUFFER_NAME_MAX_LENGTH],
    /// Zero.
    pub padding_after_buffer_name: [u8; 2],
    /// 0 to 7. 0xffffffff: not set.
    pub hccl_qos: u32,
    /// GB, at least 1.
    pub hccl_sym_win_max_mem_size_per_rank: u64,
    /// Depth of a channel's queue. 0xffffffff: not set.
    pub hccl_channel_sq_depth: u32,
    /// Zero.
    pub padding_at_end: [u8; 4],
}

impl HcclCommConfig {
    /// A config of this version in which nothing is set, as `HcclCommConfigInit` of that version
    /// writes it (an inline function of the vendor's header, in no library). Later fields and
    /// padding are filled too, with the same neutral values.
    #[must_use]
    pub const fn new(row: CommConfigRow) -> Self {
        Self {
            head: CommConfigHeader {
                size: row.size(),
                magic: COMM_CONFIG_MAGIC,
                version: row.version(),
                zero: 0,
            },
            hccl_buffer_size: HCCL_COMM_BUFFSIZE_CONFIG_NOT_SET,
            hccl_deterministic: HCCL_COMM_DETERMINISTIC_CONFIG_NOT_SET,
            hccl_comm_name: [0; COMM_NAME_MAX_LENGTH],
            hccl_udi: [0; UDI_MAX_LENGTH],
            hccl_op_expansion_mode: 0,
            hccl_rdma_traffic_class: HCCL_COMM_TRAFFIC_CLASS_CONFIG_NOT_SET,
            hccl_rdma_service_level: HCCL_COMM_SERVICE_LEVEL_CONFIG_NOT_SET,
            hccl_world_rank_id: 0,
            hccl_job_id: 0,
            acl_graph_zero_copy_enable: 0,
            padding_after_zero_copy: [0; 3],
            hccl_exec_time_out: HCCL_COMM_EXECTIMEOUT_CONFIG_NOT_SET,
            hccl_algo: [0; HCCL_COMM_ALGO_MAX_LENGTH],
            hccl_retry_enable: [0; HCCL_COMM_RETRY_ENABLE_MAX_LENGTH],
            hccl_retry_params: [0; HCCL_COMM_RETRY_PARAMS_MAX_LENGTH],
            hccl_buffer_name: [0; BUFFER_NAME_MAX_LENGTH],
            padding_after_buffer_name: [0; 2],
            hccl_qos: u32::MAX,
            hccl_sym_win_max_mem_size_per_rank: HCCL_DEFAULT_SYMMETRIC_MEMORY_STRIDE,
            hccl_channel_sq_depth: u32::MAX,
            padding_at_end: [0; 4],
        }
    }

    /// The bytes of the longest form; a library reads the first [`CommConfigHeader::size`] of them.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; size_of::<Self>()] {
        // SAFETY: all bytes are initialised, since what would be padding is a field (asserted
        // below: each field begins where the last one ends), and bytes need no alignment.
        unsafe { &*std::ptr::from_ref(self).cast() }
    }

    /// Allows writing a field, if the stated version has it.
    ///
    /// # Errors
    /// [`CommConfigError::NotInVersion`] otherwise: the library would not read it.
    pub const fn require(&self, field: CommConfigField) -> Result<(), CommConfigError> {
        let version = self.head.version;
        if field.since() <= version {
            Ok(())
        } else {
            Err(CommConfigError::NotInVersion { field, version })
        }
    }

    /// Names the communicator.
    ///
    /// # Errors
    /// If the version has no name, or the text holds a zero or more than 127 bytes.
    pub fn set_comm_name(&mut self, name: &str) -> Result<(), CommConfigError> {
        self.require(CommConfigField::CommName)?;
        put(&mut self.hccl_comm_name, name, CommConfigField::CommName)
    }

    /// Sets the text for the logs.
    ///
    /// # Errors
    /// If the version has no such field, or the text holds a zero or more than 127 bytes.
    pub fn set_udi(&mut self, text: &str) -> Result<(), CommConfigError> {
        self.require(CommConfigField::Udi)?;
        put(&mut self.hccl_udi, text, CommConfigField::Udi)
    }

    /// Chooses algorithms, in the words of `HCCL_ALGO`.
    ///
    /// # Errors
    /// If the version has no such field, or the text holds a zero or more than 1599 bytes.
    pub fn set_algo(&mut self, algo: &str) -> Result<(), CommConfigError> {
        self.require(CommConfigField::Algo)?;
        put(&mut self.hccl_algo, algo, CommConfigField::Algo)
    }

    /// Sets buffer size in MB, or leaves it to the environment.
    pub fn set_buffer_size(&mut self, megabytes: Option<u32>) {
        self.hccl_buffer_size = megabytes.unwrap_or(HCCL_COMM_BUFFSIZE_CONFIG_NOT_SET);
    }

    /// Sets the timeout of execution in seconds, or leaves it to the environment.
    ///
    /// # Errors
    /// If the version has no such field: it came with version 8 (CANN 8.5.0).
    pub fn set_exec_time_out(&mut self, seconds: Option<i32>) -> Result<(), CommConfigError> {
        self.require(CommConfigField::ExecTimeOut)?;
        self.hccl_exec_time_out = seconds.unwrap_or(HCCL_COMM_EXECTIMEOUT_CONFIG_NOT_SET);
        Ok(())
    }

    /// The name of the communicator, or nothing if it is empty, not closed or no UTF-8.
    #[must_use]
    pub fn comm_name(&self) -> Option<String> {
        text(&self.hccl_comm_name).filter(|name| !name.is_empty())
    }
}

/// Version and the fields that are set.
impl fmt::Debug for HcclCommConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HcclCommConfig")
            .field("head", &self.head)
            .field("hccl_buffer_size", &self.hccl_buffer_size)
            .field("hccl_deterministic", &self.hccl_deterministic)
            .field("hccl_comm_name", &text(&self.hccl_comm_name))
            .field("hccl_op_expansion_mode", &self.hccl_op_expansion_mode)
            .field("hccl_exec_time_out", &self.hccl_exec_time_out)
            .finish_non_exhaustive()
    }
}

/// Writes a text and zeroes up to the end of its field.
fn put(place: &mut [c_char], value: &str, field: CommConfigField) -> Result<(), CommConfigError> {
    let bytes = value.len();
    if value.bytes().any(|byte| byte == 0) {
        return Err(CommConfigError::Zero { field });
    }
    let bytes_max = place.len() - 1;
    if bytes > bytes_max {
        return Err(CommConfigError::TooLong {
            field,
            bytes,
            bytes_max,
        });
    }
    place.fill(0);
    for (slot, byte) in place.iter_mut().zip(value.bytes()) {
        *slot = c_char::from_ne_bytes([byte]);
    }
    Ok(())
}

/// The text before the first zero of a field.
fn text(place: &[c_char]) -> Option<String> {
    let end = place.iter().position(|byte| *byte == 0)?;
    let bytes = place[..end]
        .iter()
        .flat_map(|byte| byte.to_ne_bytes())
        .collect();
    String::from_utf8(bytes).ok()
}

const _: () = {
    assert!(size_of::<CommConfigHeader>() == HCCL_COMM_CONFIG_INFO_BYTES);
    assert!(size_of::<HcclCommConfig>() == 2248 && align_of::<HcclCommConfig>() == 8);
    assert!(offset_of!(CommConfigHeader, magic) == 8);
    assert!(offset_of!(CommConfigHeader, version) == 12);
    assert!(offset_of!(HcclCommConfig, hccl_buffer_size) == 24);
    assert!(offset_of!(HcclCommConfig, hccl_deterministic) == 28);
    assert!(offset_of!(HcclCommConfig, hccl_comm_name) == 32);
    assert!(offset_of!(HcclCommConfig, hccl_udi) == 160);
    assert!(offset_of!(HcclCommConfig, hccl_op_expansion_mode) == 288);
    assert!(offset_of!(HcclCommConfig, hccl_rdma_traffic_class) == 292);
    assert!(offset_of!(HcclCommConfig, hccl_rdma_service_level) == 296);
    assert!(offset_of!(HcclCommConfig, hccl_world_rank_id) == 300);
    assert!(offset_of!(HcclCommConfig, hccl_job_id) == 304);
    assert!(offset_of!(HcclCommConfig, acl_graph_zero_copy_enable) == 312);
    assert!(offset_of!(HcclCommConfig, hccl_exec_time_out) == 316);
    assert!(offset_of!(HcclCommConfig, hccl_algo) == 320);
    assert!(offset_of!(HcclCommConfig, hccl_retry_enable) == 1920);
    assert!(offset_of!(HcclCommConfig, hccl_retry_params) == 1970);
    assert!(offset_of!(HcclCommConfig, hccl_buffer_name) == 2098);
    assert!(offset_of!(HcclCommConfig, hccl_qos) == 2228);
    assert!(offset_of!(HcclCommConfig, hccl_sym_win_max_mem_size_per_rank) == 2232);
    assert!(offset_of!(HcclCommConfig, hccl_channel_sq_depth) == 2240);
    assert!(offset_of!(CommConfigHeader, zero) == 16);
    assert!(offset_of!(HcclCommConfig, padding_after_zero_copy) == 313);
    assert!(offset_of!(HcclCommConfig, padding_after_buffer_name) == 2226);
    assert!(offset_of!(HcclCommConfig, padding_at_end) == 2244);
};
