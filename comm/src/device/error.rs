//! Why a call on a device failed. The layers above give it a group, a call and a rank.

use std::time::Duration;

use crate::error::ErrorKind;
use crate::vendor;

/// A failed call on a device or its runtime.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The arguments cannot be served; nothing was given to the device.
    #[error("{what} is {got}, want {want}")]
    InvalidArgument {
        /// The argument.
        what: String,
        /// What was given.
        got: String,
        /// What is allowed.
        want: String,
    },
    /// The installed version of CANN lacks a function.
    #[error("{what} is not supported: {why}")]
    Missing {
        /// What was asked for.
        what: String,
        /// Which function is missing, and from which version on it is there.
        why: String,
    },
    /// The deadline passed.
    #[error("waited {waited:.1?} for {what}")]
    Stalled {
        /// What was waited for.
        what: String,
        /// How long.
        waited: Duration,
    },
    /// There is no usable device or library.
    #[error("{why}")]
    Unavailable {
        /// What stands in the way.
        why: String,
        /// What was looked for, a line each.
        looked_for: Vec<String>,
    },
    /// A call of the vendor's failed.
    #[error("{call} failed with {code} ({})", vendor::name_of(*code))]
    Vendor {
        /// The function.
        call: &'static str,
        /// What it returned.
        code: i32,
        /// The vendor's own words about it; may be empty.
        detail: String,
    },
}

impl DeviceError {
    /// The code of the vendor, where it is one.
    #[must_use]
    pub fn code(&self) -> Option<i32> {
        match self {
            Self::Vendor { code, .. } => Some(*code),
            Self::InvalidArgument { .. }
            | Self::Missing { .. }
            | Self::Stalled { .. }
            | Self::Unavailable { .. } => None,
        }
    }

    /// One sentence fragment on what to do.
    #[must_use]
    pub fn help(&self) -> &'static str {
        match self {
            Self::Vendor { detail, .. } => vendor::remark_in(detail).map_or(
                "look at the device (npu-smi info) and the vendor's log (ascend/log in the home folder)",
                |remark| remark.remedy,
            ),
            Self::InvalidArgument { .. } => "correct the argument and call again",
            Self::Missing { .. } => "install a newer CANN, or use another call",
            Self::Stalled { .. } => "see what the device does (npu-smi info), or give it more time",
            Self::Unavailable { .. } => {
                "source the toolkit's set_env.sh, mount the driver, and see that devices are visible"
            }
        }
    }
}

impl From<DeviceError> for ErrorKind {
    fn from(error: DeviceError) -> Self {
        match error {
            DeviceError::InvalidArgument { what, got, want } => {
                Self::InvalidArgument { what, got, want }
            }
            DeviceError::Missing { what, why } => Self::Unsupported { what, why },
            DeviceError::Stalled { .. } => Self::DeviceStalled {
                blamed: Vec::new(),
                what: error.to_string(),
            },
            DeviceError::Unavailable { why, .. } => Self::Resource {
                what: "the device".to_owned(),
                need: "a usable one".to_owned(),
                have: why,
            },
            DeviceError::Vendor { call, code, detail } => Self::Vendor {
                call: call.to_owned(),
                code,
                name: vendor::name_of(code).to_owned(),
                detail,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vendor_error_keeps_call_number_name_and_words() {
        let error = DeviceError::Vendor {
            call: "HcclAllReduce",
            code: 9,
            detail: "Communication_Error_Timeout(EI0002)".to_owned(),
        };
        assert!(error.help().contains("without this message"));
        let kind = ErrorKind::from(error);
        assert_eq!(
            kind.to_string(),
            "HcclAllReduce failed with 9 (HCCL_E_TIMEOUT): Communication_Error_Timeout(EI0002)"
        );
        assert_eq!(
            kind.vendor_remark().map(|remark| remark.code),
            Some("EI0002")
        );
    }
}
