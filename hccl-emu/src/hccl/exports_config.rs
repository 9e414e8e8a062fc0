//! The exports that configure the library and its communicators.

use std::ffi::{CStr, c_char, c_void};

use hccl_sys::types::{HcclConfig, HcclConfigValue, HcclResult};

use super::config;
use super::exports_life::{put, the_comm};
use super::fail::{Answer, Fail, answer};
use super::library::{Library, library};
use super::states::{self, Callback};
use crate::options::Product;

/// `HcclSetConfig`: for the whole process; ignored where the variable is set.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclSetConfig(config: HcclConfig, value: HcclConfigValue) -> HcclResult {
    const CALL: &str = "HcclSetConfig";
    answer(CALL, || {
        let library = library(CALL)?;
        only_deterministic(CALL, config)?;
        match value.value {
            0 | 1 => {}
            2 if library.product == Product::A2 => {}
            2 => {
                let text = format!(
                    "{CALL}: 2 (strict) is not supported on {:?}",
                    library.product
                );
                return Err(Fail::unsupported(text));
            }
            other => {
                let text = format!("{CALL}: value is {other}; allowed: 0, 1, and 2 on Atlas A2");
                return Err(Fail::para(text));
            }
        }
        library.set_deterministic(value.value);
        Ok(())
    })
}

/// `HcclGetConfig`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclGetConfig(
    config: HcclConfig,
    value: *mut HcclConfigValue,
) -> HcclResult {
    const CALL: &str = "HcclGetConfig";
    answer(CALL, || {
        let library = library(CALL)?;
        only_deterministic(CALL, config)?;
        let set = library.deterministic();
        put(CALL, "configValue", value, HcclConfigValue { value: set })
    })
}

/// `HcclSetCommConfig`: for one communicator.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclSetCommConfig(
    comm: *mut c_void,
    config: HcclConfig,
    value: HcclConfigValue,
) -> HcclResult {
    const CALL: &str = "HcclSetCommConfig";
    answer(CALL, || {
        let library = library(CALL)?;
        let comm = the_comm(CALL, comm)?;
        only_deterministic(CALL, config)?;
        check_value(CALL, library, value)?;
        comm.set_deterministic(value.value);
        Ok(())
    })
}

/// `HcclGetCommConfig`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclGetCommConfig(
    comm: *mut c_void,
    config: HcclConfig,
    value: *mut HcclConfigValue,
) -> HcclResult {
    const CALL: &str = "HcclGetCommConfig";
    answer(CALL, || {
        let library = library(CALL)?;
        let comm = the_comm(CALL, comm)?;
        only_deterministic(CALL, config)?;
        let set = comm
            .deterministic()
            .unwrap_or_else(|| library.deterministic());
        put(CALL, "configValue", value, HcclConfigValue { value: set })
    })
}

fn check_value(call: &str, library: &Library, value: HcclConfigValue) -> Answer {
    match value.value {
        0 | 1 => Ok(()),
        2 if library.product == Product::A2 => Ok(()),
        2 => Err(Fail::unsupported(format!(
            "{call}: 2 (strict) is not supported on {:?}",
            library.product
        ))),
        other => Err(Fail::para(format!(
            "{call}: value is {other}; allowed: 0, 1, and 2 on Atlas A2"
        ))),
    }
}

fn only_deterministic(call: &str, config: HcclConfig) -> Answer {
    if config == HcclConfig::HCCL_DETERMINISTIC {
        return Ok(());
    }
    let text = format!(
        "{call}: config is {}; allowed: 0 (HCCL_DETERMINISTIC)",
        config.0
    );
    Err(Fail::para(text))
}

/// `HcclGetCommConfigCapability`: how many features the configuration of a communicator has.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclGetCommConfigCapability() -> u32 {
    let Ok(library) = library("HcclGetCommConfigCapability") else {
        return 0;
    };
    match config::own_row(library.cann).version() {
        ..=5 => 5,
        6..=8 => 11,
        _ => 12,
    }
}

/// `HcclCommRegCommStateCallback`: `callback` is told before and after a communicator is destroyed
/// or resumed, on the thread that does it; null takes the name back.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclCommRegCommStateCallback(
    name: *const c_char,
    callback: Option<Callback>,
    arguments: *mut c_void,
) -> HcclResult {
    const CALL: &str = "HcclCommRegCommStateCallback";
    answer(CALL, || {
        if name.is_null() {
            return Err(Fail::null(CALL, "regName"));
        }
        // SAFETY: the caller passes a text with an end.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        if name.is_empty() || name.len() > states::NAME_BYTES_MAX {
            let text = format!(
                "{CALL}: regName has {} bytes; allowed: 1 to {}",
                name.len(),
                states::NAME_BYTES_MAX
            );
            return Err(Fail::para(text));
        }
        states::register(&name, callback, arguments);
        Ok(())
    })
}
