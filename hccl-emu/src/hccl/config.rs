//! `HcclCommConfig` as the library reads it: a head with size and version, then as many fields as
//! the version promises.
//!
//! - `READING-1`: no byte behind the stated size is read, and no field of a later version than the
//!   emulated library's.
//! - `READING-2`: a size that does not cover what the version promises is refused. The vendor's
//!   library takes garbage for the rest, except for the pair that a client is known to pass.

use std::ffi::{c_char, c_void};
use std::mem::{MaybeUninit, size_of};
use std::time::Duration;

use hccl_sys::types::{
    COMM_CONFIG_MAGIC, CommConfigField, CommConfigHeader, CommConfigRow, HcclCommConfig, HcclResult,
};

use super::fail::{Answer, EI0003, EI0016, Fail};
use super::settings::exec_seconds;
use crate::options::Product;

/// Version and size that torch_npu up to 2.12 passes: the last field of the version is missing.
const KNOWN_SHORT: (u32, usize) = (10, 2232);
/// A number that was not set.
const NOT_SET: u32 = u32::MAX;

/// What a configuration asks for, as far as the emulator has a use for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CommConfig {
    /// Name of the communicator.
    pub(crate) name: Option<String>,
    pub(crate) buffer_mb: Option<u32>,
    pub(crate) deterministic: Option<u32>,
    /// The outer `None`: not set. The inner one: wait for ever.
    pub(crate) exec_timeout: Option<Option<Duration>>,
    /// Number of the expansion mode; 0 is the product's own.
    pub(crate) expansion_mode: u32,
}

/// The layout that the emulated version of the library has, by its CANN version (805 for 8.5).
pub(crate) fn own_row(cann: u32) -> CommConfigRow {
    let version = match cann {
        ..803 => 5,
        803..805 => 6,
        805..900 => 8,
        900..902 => 10,
        _ => 11,
    };
    let row = CommConfigRow::ALL
        .into_iter()
        .find(|row| row.version() == version);
    row.unwrap_or(CommConfigRow::SAFEST)
}

/// Reads the configuration that `config` points to.
///
/// # Safety
/// `config` is null, or as many bytes as the `size_t` that it points to says can be read there.
pub(crate) unsafe fn read(
    call: &str,
    config: *const HcclCommConfig,
    own: CommConfigRow,
    product: Product,
) -> Answer<CommConfig> {
    if config.is_null() {
        return Err(Fail::null(call, "config"));
    }
    // SAFETY: the caller vouches for the first word, which need not be aligned here.
    let size = unsafe { config.cast::<usize>().read_unaligned() };
    let head = size_of::<CommConfigHeader>();
    if size < head {
        return Err(Fail::new(
            HcclResult::HCCL_E_PARA,
            EI0003,
            format!("{call}: size of the config is {size}; its head alone has {head} bytes"),
        ));
    }
    // What the caller did not fill stays as `HcclCommConfigInit` would have it.
    let mut copy = MaybeUninit::new(HcclCommConfig::new(own));
    let bytes = size.min(own.size());
    // SAFETY: the caller vouches for `size` bytes, `copy` has `own.size()` and more, and what was
    // just made overlaps nothing.
    unsafe {
        std::ptr::copy_nonoverlapping(
            config.cast::<c_void>(),
            copy.as_mut_ptr().cast::<c_void>(),
            bytes,
        );
    }
    // SAFETY: all fields are numbers, for which every pattern of bits is a value, and all of them
    // were written.
    let copy = unsafe { copy.assume_init() };
    check_head(call, &copy.head)?;
    fields(call, &copy, own, product)
}

fn check_head(call: &str, head: &CommConfigHeader) -> Answer {
    let wrong = |text: String| {
        Err(Fail::new(
            HcclResult::HCCL_E_PARA,
            EI0003,
            format!("{call}: {text}"),
        ))
    };
    if head.magic != COMM_CONFIG_MAGIC {
        return wrong(format!(
            "magic word of the config is {:#x}; it must be {COMM_CONFIG_MAGIC:#x}, as HcclCommConfigInit writes it",
            head.magic
        ));
    }
    let promised = CommConfigRow::ALL
        .into_iter()
        .find(|row| row.version() == head.version);
    match promised {
        None if head.version == 0 => {
            wrong("version of the config is 0; versions begin at 1".to_owned())
        }
        Some(row) if head.size < row.size() && (head.version, head.size) != KNOWN_SHORT => {
            wrong(format!(
                "the config calls itself version {}, which has {} bytes, and states {}",
                head.version,
                row.size(),
                head.size
            ))
        }
        // A later version than any known: its first fields are known.
        Some(_) | None => Ok(()),
    }
}

fn fields(
    call: &str,
    config: &HcclCommConfig,
    own: CommConfigRow,
    product: Product,
) -> Answer<CommConfig> {
    use CommConfigField as F;
    let version = config.head.version.min(own.version());
    let has = |field: F| field.since() <= version;
    let check = |field: F, is_legal: bool, got: &dyn std::fmt::Display, allowed: &str| {
        if !has(field) || is_legal {
            return Ok(());
        }
        Err(Fail::new(
            HcclResult::HCCL_E_PARA,
            EI0016,
            format!("{call}: {field} is {got}; allowed: {allowed}"),
        ))
    };
    let buffer = config.hccl_buffer_size;
    check(F::BufferSize, buffer >= 1, &buffer, "1 and up, in MB")?;
    let deterministic = config.hccl_deterministic;
    let strict = if product == Product::A2 { 2 } else { 1 };
    check(
        F::Deterministic,
        deterministic <= strict || deterministic == NOT_SET,
        &deterministic,
        "0, 1, and 2 on Atlas A2",
    )?;
    let class = config.hccl_rdma_traffic_class;
    let legal = class == NOT_SET || (class <= 255 && class.is_multiple_of(4));
    check(
        F::RdmaTrafficClass,
        legal,
        &class,
        "0 to 255, a multiple of 4",
    )?;
    let level = config.hccl_rdma_service_level;
    check(
        F::RdmaServiceLevel,
        level == NOT_SET || level <= 7,
        &level,
        "0 to 7",
    )?;
    let zero_copy = config.acl_graph_zero_copy_enable;
    check(
        F::AclGraphZeroCopyEnable,
        zero_copy <= 1,
        &zero_copy,
        "0 or 1",
    )?;
    let timeout = config.hccl_exec_time_out;
    check(
        F::ExecTimeOut,
        timeout >= -1,
        &timeout,
        "0 and up, in seconds",
    )?;
    let qos = config.hccl_qos;
    check(F::Qos, qos == NOT_SET || qos <= 7, &qos, "0 to 7")?;
    taken(call, config, &has, product)
}

/// What the fields say, once they are known to be legal.
fn taken(
    call: &str,
    config: &HcclCommConfig,
    has: &dyn Fn(CommConfigField) -> bool,
    product: Product,
) -> Answer<CommConfig> {
    use CommConfigField as F;
    let name = if has(F::CommName) {
        text(call, F::CommName, &config.hccl_comm_name)?
    } else {
        String::new()
    };
    if has(F::Udi) {
        text(call, F::Udi, &config.hccl_udi)?;
    }
    let timeout = config.hccl_exec_time_out;
    let exec_timeout = (has(F::ExecTimeOut) && timeout >= 0)
        .then(|| exec_seconds(u64::from(timeout.unsigned_abs()), product));
    Ok(CommConfig {
        name: (!name.is_empty()).then_some(name),
        buffer_mb: Some(config.hccl_buffer_size).filter(|mb| *mb != NOT_SET),
        deterministic: Some(config.hccl_deterministic).filter(|set| *set != NOT_SET),
        exec_timeout,
        expansion_mode: if has(F::OpExpansionMode) {
            config.hccl_op_expansion_mode
        } else {
            0
        },
    })
}

/// A text that must end within its field.
fn text(call: &str, field: CommConfigField, bytes: &[c_char]) -> Answer<String> {
    let Some(end) = bytes.iter().position(|byte| *byte == 0) else {
        return Err(Fail::new(
            HcclResult::HCCL_E_PARA,
            EI0016,
            format!(
                "{call}: {field} has no end within its {} bytes",
                bytes.len()
            ),
        ));
    };
    let bytes: Vec<u8> = bytes[..end]
        .iter()
        .flat_map(|byte| byte.to_ne_bytes())
        .collect();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_as(config: &HcclCommConfig, own: CommConfigRow) -> Answer<CommConfig> {
        // SAFETY: `config` is a whole one, and states at most its own length.
        unsafe { read("test", config, own, Product::A2) }
    }

    fn row(version: u32) -> CommConfigRow {
        let mut rows = CommConfigRow::ALL.into_iter();
        rows.find(|row| row.version() == version).unwrap()
    }

    #[test]
    fn every_version_is_read_by_every_library() {
        for theirs in CommConfigRow::ALL {
            for ours in [5, 8, 10, 11] {
                let mut config = HcclCommConfig::new(theirs);
                config.hccl_buffer_size = 16;
                if theirs.version() >= 2 {
                    config.set_comm_name("tp-0").unwrap();
                }
                let read = read_as(&config, row(ours)).unwrap();
                assert_eq!(read.buffer_mb, Some(16));
                let name = (theirs.version() >= 2).then(|| "tp-0".to_owned());
                assert_eq!(read.name, name, "{} by {ours}", theirs.version());
            }
        }
    }

    #[test]
    fn fields_that_only_one_side_knows_are_left_alone() {
        let mut config = HcclCommConfig::new(row(8));
        config.hccl_exec_time_out = 30;
        let old = read_as(&config, row(5)).unwrap();
        assert_eq!(old.exec_timeout, None);
        let new = read_as(&config, row(11)).unwrap();
        assert_eq!(new.exec_timeout, Some(Some(Duration::from_secs(30))));
        config.head.version = 12;
        config.head.size = 5000;
        // SAFETY: the library that knows 2248 bytes reads no more than the struct has.
        assert!(unsafe { read("test", &raw const config, row(11), Product::A2) }.is_ok());
    }

    #[test]
    fn a_head_that_cannot_be_is_refused_and_the_known_odd_one_is_not() {
        let refused = |change: &dyn Fn(&mut HcclCommConfig), what: &str| {
            let mut config = HcclCommConfig::new(row(10));
            change(&mut config);
            let fail = read_as(&config, row(11)).unwrap_err();
            assert_eq!(fail.result, HcclResult::HCCL_E_PARA);
            assert!(fail.text.contains(what), "{}", fail.text);
        };
        refused(&|config| config.head.magic = 1, "magic word");
        refused(&|config| config.head.size = 20, "head alone");
        refused(
            &|config| config.head.size = 300,
            "has 2240 bytes, and states 300",
        );
        refused(&|config| config.head.version = 0, "versions begin at 1");
        refused(&|config| config.hccl_buffer_size = 0, "hcclBufferSize is 0");
        refused(&|config| config.hccl_deterministic = 3, "hcclDeterministic");
        refused(
            &|config| config.hccl_rdma_traffic_class = 130,
            "multiple of 4",
        );
        refused(&|config| config.hccl_exec_time_out = -2, "hcclExecTimeOut");
        refused(&|config| config.hccl_comm_name = [65; 128], "has no end");
        let mut config = HcclCommConfig::new(row(10));
        config.head.size = 2232;
        assert!(read_as(&config, row(11)).is_ok());
        // SAFETY: a null pointer is refused before anything is read.
        let null = unsafe { read("test", std::ptr::null(), row(11), Product::A2) };
        assert_eq!(null.unwrap_err().result, HcclResult::HCCL_E_PTR);
    }
}
