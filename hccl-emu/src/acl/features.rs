//! What the chip that is played, and the software on it, can do.

use std::ffi::c_int;

use super::abi::{Out, exports};
use super::device::{attribute, info};
use crate::options::Product;
use crate::runtime::errors::{AclError, RuntimeError};
use crate::runtime::state;

/// Values of `aclCannAttr`: overflow to Inf and NaN, bf16, and operators compiled at run time.
mod feature {
    pub(super) const INF_NAN: i32 = 0;
    pub(super) const BF16: i32 = 1;
    pub(super) const JIT_COMPILE: i32 = 2;
    pub(super) const ALL: [i32; 3] = [INF_NAN, BF16, JIT_COMPILE];
    /// What chips before A2 have of them.
    pub(super) const EARLY: [i32; 1] = [JIT_COMPILE];
}

/// The features of the chip that is played.
fn features() -> Result<&'static [i32], RuntimeError> {
    Ok(match state().options()?.soc.product {
        Product::A2 | Product::A3 | Product::Atlas950 => &feature::ALL,
        Product::Atlas910 | Product::Atlas310P => &feature::EARLY,
    })
}

exports! {
    /// Whether a feature is there: 1 or 0. Needs no device and no `aclInit`.
    fn aclGetCannAttribute(feature: c_int, value: Out<i32>) {
        let value = value.check("value")?;
        if !feature::ALL.contains(&feature) {
            let text = format!("cannAttr is {feature}; allowed: 0 (Inf and NaN), 1 (bf16), 2 (JIT)");
            return Err(RuntimeError::new(AclError::INVALID_PARAM, text));
        }
        value.set("value", i32::from(features()?.contains(&feature)))
    }

    /// The features that are there, in memory that stays.
    fn aclGetCannAttributeList(list: Out<*const i32>, count: Out<usize>) {
        let count = count.check("num")?;
        let features = features()?;
        list.set("cannAttrList", features.as_ptr())?;
        count.set("num", features.len())
    }

    /// Figures of a device: cores (0), vector cores (1), bytes of the second cache (2).
    fn aclGetDeviceCapability(device: u32, asked: c_int, value: Out<i64>) {
        let value = value.check("value")?;
        let device = state().device(i32::try_from(device).unwrap_or(-1))?;
        let asked = match asked {
            0 => attribute::AICORES,
            1 => attribute::VECTOR_CORES,
            2 => attribute::L2_CACHE,
            _ => {
                let text = format!(
                    "deviceInfo is {asked}; allowed: 0 (cores), 1 (vector cores), 2 (second cache)"
                );
                return Err(RuntimeError::new(AclError::INVALID_PARAM, text));
            }
        };
        value.set("value", info(device, asked)?.unwrap_or(0))
    }
}
