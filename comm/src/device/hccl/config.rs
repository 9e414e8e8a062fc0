//! The vendor's struct that says how a device communicator is made.

use std::time::Duration;

use hccl_sys::types::{
    CommConfigError, CommConfigRow, HcclCommConfig, HcclCommConfigCapability as Capability,
};

use crate::device::options::{Determinism, DeviceOptions, Expansion};
use crate::error::ErrorKind;

/// The vendor's struct, and what of the wishes it could not take.
pub(crate) struct Config {
    pub(super) vendor: HcclCommConfig,
    /// Seconds, where the library takes the limit.
    pub(crate) exec_timeout_s: Option<i32>,
    /// Nothing is set, so that the vendor's form without settings will do.
    pub(super) is_plain: bool,
}

impl DeviceOptions {
    /// Whether anything is asked for that needs the vendor's struct.
    fn needs_config(&self) -> bool {
        self.buffer_mib.is_some()
            || self.deterministic.is_some()
            || self.expansion.is_some()
            || self.name.is_some()
    }

    /// The vendor's struct for a library of this capability, which is one more than the number of
    /// the last feature that it has. The version is the oldest that has every field in use.
    pub(super) fn config(&self, capability: u32) -> Result<Config, ErrorKind> {
        let has = |feature: Capability| feature.is_in(capability);
        let require = |feature: Capability, what: &str| {
            if has(feature) {
                return Ok(());
            }
            Err(ErrorKind::Unsupported {
                what: format!("{what} for one communicator"),
                why: format!(
                    "this CANN takes {capability} settings of a communicator; use the HCCL_ variable"
                ),
            })
        };
        let exec = self
            .exec_timeout
            .filter(|_| has(Capability::HCCL_COMM_CONFIG_EXEC_TIMEOUT));
        let exec_timeout_s = exec.map(seconds);
        let row = match exec_timeout_s {
            Some(_) => CommConfigRow::of_version(8).unwrap_or(CommConfigRow::SAFEST),
            None => CommConfigRow::SAFEST,
        };
        let mut vendor = HcclCommConfig::new(row);
        if let Some(mib) = self.buffer_mib {
            require(Capability::HCCL_COMM_CONFIG_BUFFER_SIZE, "a buffer size")?;
            if mib == 0 {
                return Err(invalid("buffer_mib", "0", "at least 1"));
            }
            vendor.set_buffer_size(Some(mib));
        }
        if let Some(deterministic) = self.deterministic {
            require(Capability::HCCL_COMM_CONFIG_DETERMINISTIC, "determinism")?;
            vendor.hccl_deterministic = match deterministic {
                Determinism::Off => 0,
                Determinism::On => 1,
                Determinism::Strict => 2,
            };
        }
        if let Some(expansion) = self.expansion {
            require(
                Capability::HCCL_COMM_CONFIG_OP_EXPANSION_MODE,
                "an expansion mode",
            )?;
            vendor.hccl_op_expansion_mode = match expansion {
                Expansion::Host => 1,
                Expansion::AiCpu => 2,
                Expansion::Aiv => 3,
                Expansion::AivOnly => 4,
            };
        }
        let refuse = |error: CommConfigError| {
            invalid(
                "the communicator's settings",
                &error.to_string(),
                "what the vendor's struct holds",
            )
        };
        if let Some(name) = &self.name {
            require(Capability::HCCL_COMM_CONFIG_COMM_NAME, "a name")?;
            vendor.set_comm_name(name).map_err(refuse)?;
        }
        if exec_timeout_s.is_some() {
            vendor.set_exec_time_out(exec_timeout_s).map_err(refuse)?;
        }
        Ok(Config {
            vendor,
            exec_timeout_s,
            is_plain: !self.needs_config() && exec_timeout_s.is_none(),
        })
    }
}

/// Whole seconds, rounded up, at least one: zero would mean for ever.
fn seconds(time: Duration) -> i32 {
    let whole = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    i32::try_from(whole).unwrap_or(i32::MAX).max(1)
}

fn invalid(what: &str, got: &str, want: &str) -> ErrorKind {
    ErrorKind::InvalidArgument {
        what: what.to_owned(),
        got: got.to_owned(),
        want: want.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Capabilities of CANN 8.1.RC1 and 8.5.0.
    const CANN_8_1: u32 = 5;
    const CANN_8_5: u32 = 11;

    #[test]
    fn the_version_is_the_oldest_that_has_every_field_in_use() {
        let plain = DeviceOptions::default().config(CANN_8_5).ok().unwrap();
        assert_eq!(
            (plain.vendor.head.version, plain.vendor.head.size),
            (5, 300)
        );
        let timed = DeviceOptions {
            exec_timeout: Some(Duration::from_millis(1500)),
            name: Some("tp-0".to_owned()),
            ..DeviceOptions::default()
        };
        let config = timed.config(CANN_8_5).ok().unwrap();
        assert_eq!(
            (config.vendor.head.version, config.vendor.head.size),
            (8, 2104)
        );
        assert_eq!(
            (config.exec_timeout_s, config.vendor.hccl_exec_time_out),
            (Some(2), 2)
        );
        assert_eq!(config.vendor.comm_name().as_deref(), Some("tp-0"));
        let older = timed.config(CANN_8_1).ok().unwrap();
        assert_eq!((older.vendor.head.version, older.exec_timeout_s), (5, None));
    }

    #[test]
    fn what_a_library_does_not_take_is_refused_and_not_dropped() {
        let kind = |options: DeviceOptions, capability| options.config(capability).err().unwrap();
        let wide = DeviceOptions {
            expansion: Some(Expansion::Aiv),
            ..DeviceOptions::default()
        };
        assert!(matches!(kind(wide, 2), ErrorKind::Unsupported { .. }));
        let empty = DeviceOptions {
            buffer_mib: Some(0),
            ..DeviceOptions::default()
        };
        assert!(matches!(kind(empty, 5), ErrorKind::InvalidArgument { .. }));
        let long = DeviceOptions {
            name: Some("x".repeat(128)),
            ..DeviceOptions::default()
        };
        assert!(matches!(kind(long, 5), ErrorKind::InvalidArgument { .. }));
    }
}
