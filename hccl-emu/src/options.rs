//! What a user can choose about the emulator, by `MUSTER_EMU_*`: a pure grammar, without state.
//!
//! The variables are rows of `muster_comm::config`; this module gives them their meaning. It must
//! not know the runtime: the tool uses it to explain the options without running an emulator.

use std::fmt;

use hccl_sys::version::Version;
use muster_comm::config::{
    ConfigError, EMU_BOUNDS, EMU_CANN, EMU_DEVICES, EMU_FAULT, EMU_MEMORY, EMU_POISON, EMU_SOC,
    Environment,
};

/// Most devices of one emulated host: four times the largest server of the vendor.
pub const DEVICES_MAX: u32 = 64;
/// Devices where nothing is said: as many as the largest single server (two boards of eight).
pub const DEVICES_DEFAULT: u32 = 16;
/// Memory of a device where nothing is said: that of the 910B1 to 910B3.
pub const MEMORY_DEFAULT: u64 = 64 << 30;
/// Least memory of a device: below it no client could even start.
pub const MEMORY_MIN: u64 = 16 << 20;
/// Most memory of a device, so that all devices fit into the address space of a process.
pub const MEMORY_MAX: u64 = 1 << 40;
/// The version that is played where neither a variable nor an installed tree names one.
pub const CANN_DEFAULT: &str = "8.5.0";
/// Longest version or fault text: they are repeated in messages.
const TEXT_CHARS_MAX: usize = 4096;

/// A family of chips: what the vendor's tables call a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    /// Atlas training cards: Ascend910A, 910B (old naming), 910Pro.
    Atlas910,
    /// Atlas A2: the 910B series.
    A2,
    /// Atlas A3: the 910_93 series.
    A3,
    /// Atlas 300I Duo.
    Atlas310P,
    /// Ascend 950.
    Atlas950,
}

/// A chip that the emulator can play.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Soc {
    /// The name as `aclrtGetSocName` gives it.
    pub name: &'static str,
    /// Its family.
    pub product: Product,
}

/// Every chip that can be chosen; the first of A2 with its default memory is the default.
pub const SOCS: [Soc; 14] = [
    Soc::new("Ascend910B1", Product::A2),
    Soc::new("Ascend910B2", Product::A2),
    Soc::new("Ascend910B2C", Product::A2),
    Soc::new("Ascend910B3", Product::A2),
    Soc::new("Ascend910B4", Product::A2),
    Soc::new("Ascend910_9391", Product::A3),
    Soc::new("Ascend910_9381", Product::A3),
    Soc::new("Ascend910_9372", Product::A3),
    Soc::new("Ascend910_9361", Product::A3),
    Soc::new("Ascend910A", Product::Atlas910),
    Soc::new("Ascend910ProB", Product::Atlas910),
    Soc::new("Ascend310P3", Product::Atlas310P),
    Soc::new("Ascend950PR_9589", Product::Atlas950),
    Soc::new("Ascend950DT_9581", Product::Atlas950),
];

/// The chip that is played where nothing is said: the only product with sixteen chips in one
/// server and 64 GB each, and the one with the fewest restrictions that a client may run into.
pub const SOC_DEFAULT: Soc = Soc::new("Ascend910B2", Product::A2);

impl Soc {
    const fn new(name: &'static str, product: Product) -> Self {
        Self { name, product }
    }

    /// The chip of this name; capitals do not matter.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        SOCS.into_iter()
            .find(|soc| soc.name.eq_ignore_ascii_case(name))
    }
}

/// Where an allocation of device memory ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bounds {
    /// At the size that was asked for.
    Exact,
    /// At what the vendor's allocator takes for it: the size rounded up to 32 bytes, and 32 more.
    Granule,
}

/// What fresh memory of a device holds where nothing is said: NaN in all floating-point types.
pub const POISON_DEFAULT: u8 = 0xFF;

/// Everything that can be chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Devices of the host, before `ASCEND_RT_VISIBLE_DEVICES`.
    pub devices: u32,
    /// Memory of each, in bytes.
    pub memory_bytes: u64,
    /// The chip.
    pub soc: Soc,
    /// The CANN version, such as `8.1.RC1`; `None` if only the installed tree knows.
    pub cann: Option<String>,
    /// The text of `MUSTER_EMU_FAULT`.
    pub fault: Option<String>,
    /// What every byte of fresh device memory holds.
    pub poison: u8,
    /// Where allocations of device memory end.
    pub bounds: Bounds,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            devices: DEVICES_DEFAULT,
            memory_bytes: MEMORY_DEFAULT,
            soc: SOC_DEFAULT,
            cann: None,
            fault: None,
            poison: POISON_DEFAULT,
            bounds: Bounds::Exact,
        }
    }
}

/// Why the options cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionsError {
    /// A variable does not parse.
    Config(ConfigError),
    /// More devices than one emulated host can have.
    Devices {
        /// What was asked for.
        got: u32,
    },
    /// Memory outside of the range.
    Memory {
        /// What was asked for, in bytes.
        got: u64,
    },
    /// No chip of this name.
    Soc {
        /// What was asked for.
        got: String,
    },
    /// Not the text of a CANN version.
    Cann {
        /// What was asked for.
        got: String,
    },
    /// Not a byte.
    Poison {
        /// What was asked for.
        got: String,
    },
    /// No such rule.
    Bounds {
        /// What was asked for.
        got: String,
    },
}

impl fmt::Display for OptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Devices { got } => {
                write!(
                    f,
                    "MUSTER_EMU_DEVICES is {got}; allowed: 0 to {DEVICES_MAX}"
                )
            }
            Self::Memory { got } => write!(
                f,
                "MUSTER_EMU_MEMORY is {got} bytes; allowed: {MEMORY_MIN} to {MEMORY_MAX} (16MiB to 1024GiB)"
            ),
            Self::Soc { got } => {
                let names: Vec<&str> = SOCS.iter().map(|soc| soc.name).collect();
                write!(
                    f,
                    "MUSTER_EMU_SOC is {got:?}; allowed: {}",
                    names.join(", ")
                )
            }
            Self::Cann { got } => write!(
                f,
                "MUSTER_EMU_CANN is {got:?}; allowed: a version such as 8.1.RC1, 8.5.0 or 9.1.0-beta.1"
            ),
            Self::Poison { got } => write!(
                f,
                "MUSTER_EMU_POISON is {got:?}; allowed: a byte, 0 to 255 or 0x00 to 0xff"
            ),
            Self::Bounds { got } => {
                write!(f, "MUSTER_EMU_BOUNDS is {got:?}; allowed: exact, granule")
            }
        }
    }
}

impl std::error::Error for OptionsError {}

impl From<ConfigError> for OptionsError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl Options {
    /// What the environment asks for.
    ///
    /// # Errors
    /// The first variable that cannot be used, with what is allowed.
    pub fn from_environment(environment: &Environment) -> Result<Self, OptionsError> {
        let mut options = Self::default();
        if let Some(got) = environment.read(&EMU_DEVICES)? {
            if got > DEVICES_MAX {
                return Err(OptionsError::Devices { got });
            }
            options.devices = got;
        }
        if let Some(got) = environment.read(&EMU_MEMORY)? {
            if !(MEMORY_MIN..=MEMORY_MAX).contains(&got) {
                return Err(OptionsError::Memory { got });
            }
            options.memory_bytes = got;
        }
        if let Some(got) = environment.read(&EMU_SOC)? {
            options.soc = Soc::named(&got).ok_or(OptionsError::Soc { got })?;
        }
        if let Some(got) = environment.read(&EMU_CANN)? {
            if cann_version(&got).is_none() {
                return Err(OptionsError::Cann { got });
            }
            options.cann = Some(got);
        }
        if let Some(got) = environment.read(&EMU_POISON)? {
            options.poison = byte(&got).ok_or(OptionsError::Poison { got })?;
        }
        if let Some(got) = environment.read(&EMU_BOUNDS)? {
            options.bounds = match got.as_str() {
                "exact" => Bounds::Exact,
                "granule" => Bounds::Granule,
                _ => return Err(OptionsError::Bounds { got }),
            };
        }
        options.fault = environment
            .read(&EMU_FAULT)?
            .filter(|text| text.len() <= TEXT_CHARS_MAX);
        Ok(options)
    }
}

/// A byte in decimal, or in hexadecimal behind `0x`.
fn byte(text: &str) -> Option<u8> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u8::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The CANN version that `text` names: at least two numbers and perhaps a stage, nothing else.
#[must_use]
pub fn cann_version(text: &str) -> Option<Version> {
    let version: Version = text.parse().ok()?;
    let is_plain = version.numbers().len() >= 2 && version.suffix().is_none();
    is_plain.then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(pairs: &[(&str, &str)]) -> Result<Options, OptionsError> {
        Options::from_environment(&Environment::from_pairs(pairs.iter().copied()))
    }

    #[test]
    fn nothing_set_means_the_defaults() {
        assert_eq!(options(&[]), Ok(Options::default()));
        assert_eq!(Soc::named(SOC_DEFAULT.name), Some(SOC_DEFAULT));
    }

    #[test]
    fn every_option_is_read() {
        let read = options(&[
            ("MUSTER_EMU_DEVICES", "4"),
            ("MUSTER_EMU_MEMORY", "1GiB"),
            ("MUSTER_EMU_SOC", "ascend310p3"),
            ("MUSTER_EMU_CANN", "8.1.RC1"),
            ("MUSTER_EMU_FAULT", "x"),
            ("MUSTER_EMU_POISON", "0x5a"),
            ("MUSTER_EMU_BOUNDS", "granule"),
        ])
        .expect("legal options");
        assert_eq!(read.devices, 4);
        assert_eq!(read.memory_bytes, 1 << 30);
        assert_eq!(read.soc.product, Product::Atlas310P);
        assert_eq!(read.cann.as_deref(), Some("8.1.RC1"));
        assert_eq!(read.fault.as_deref(), Some("x"));
        assert_eq!(read.poison, 0x5a);
        assert_eq!(read.bounds, Bounds::Granule);
        let decimal = options(&[("MUSTER_EMU_POISON", "90")]).expect("a byte");
        assert_eq!(decimal.poison, 90);
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_is_allowed() {
        for (name, value) in [
            ("MUSTER_EMU_DEVICES", "65"),
            ("MUSTER_EMU_DEVICES", "four"),
            ("MUSTER_EMU_MEMORY", "1KiB"),
            ("MUSTER_EMU_MEMORY", "2000GiB"),
            ("MUSTER_EMU_SOC", "H100"),
            ("MUSTER_EMU_CANN", "latest"),
            ("MUSTER_EMU_POISON", "256"),
            ("MUSTER_EMU_POISON", "0xfg"),
            ("MUSTER_EMU_BOUNDS", "page"),
        ] {
            let error = options(&[(name, value)]).expect_err(value).to_string();
            assert!(error.contains(name) && error.contains("allowed"), "{error}");
        }
    }

    #[test]
    fn a_version_has_two_numbers_and_nothing_strange_behind_them() {
        for good in ["8.1.RC1", "8.5.0", "9.1.0-beta.1", "8.0.0.alpha001"] {
            assert!(cann_version(good).is_some(), "{good}");
        }
        for bad in ["", "8", "8.x", "8.5.0.", "latest", "8.5.0-emulated"] {
            assert!(cann_version(bad).is_none(), "{bad}");
        }
    }
}
