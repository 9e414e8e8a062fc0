//! Versions of CANN and of the driver: their order, the files that state them, what fits what.
//!
//! The vendor writes versions in several ways (`8.1.RC1`, `8.5.0.alpha001`, `9.1.0-beta.1`,
//! `24.1.rc2.2`, `7.7.0.1.238`), and toolkits state them in files of several layouts.
//!
//! - `VERSION-1`: versions compare by number, an alpha before a beta before a release candidate
//!   before the release; whatever else a version says is kept and shown, and never compared.
//! - `VERSION-2`: a file that is missing, or says nothing readable, is a value and never a panic.

mod call;
mod compat;
mod files;

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

pub use call::{CallError, api_version, package_version};
pub use compat::{
    TORCH_NPU_PACKAGES, TORCH_NPU_RELEASES, allows_several_processes, cann_of, cann_of_package,
    goes_with, oldest_driver, splits_libraries, torch_npu_of,
};
pub use files::{DRIVER_INSTALL_INFO, Driver, Layout, Toolkit, VersionFile};

/// Longest version that is read, in bytes. The vendor's own buffer holds 128.
const TEXT_MAX: usize = 128;
/// What the version of an emulated toolkit ends with.
const EMULATED: &str = "emulated";

/// How far a version was from its release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// `alpha`.
    Alpha,
    /// `beta`.
    Beta,
    /// `rc`.
    ReleaseCandidate,
}

impl Stage {
    const ALL: [Self; 3] = [Self::Alpha, Self::Beta, Self::ReleaseCandidate];

    const fn word(self) -> &'static str {
        match self {
            Self::Alpha => "alpha",
            Self::Beta => "beta",
            Self::ReleaseCandidate => "rc",
        }
    }

    /// How much `aclsysGetVersionNum` takes off the release's number.
    const fn weight(self) -> i32 {
        match self {
            Self::Alpha => 300,
            Self::Beta => 200,
            Self::ReleaseCandidate => 100,
        }
    }
}

/// What may follow the leading numbers of a version.
///
/// The order of the variants is the order of versions: a version that ends is later than its
/// candidates and earlier than its patches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Stage(Stage, u32),
    End,
    Number(u32),
}

/// A version. Compares by number; equal means the same release, whatever the suffixes say.
#[derive(Clone)]
pub struct Version {
    text: String,
    numbers: Vec<u32>,
    rest: Vec<Part>,
    suffix: Option<String>,
}

/// Why a text is no version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VersionError {
    /// A part between two points is empty.
    EmptyPart {
        /// The text.
        text: String,
    },
    /// It does not begin with a number.
    NoNumber {
        /// The text.
        text: String,
    },
    /// A number exceeds 32 bits.
    NumberTooLarge {
        /// The number.
        number: String,
    },
    /// It has more bytes than any version has.
    TooLong {
        /// Its bytes.
        bytes: usize,
    },
}

impl fmt::Display for VersionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyPart { text } => write!(f, "{text:?} is no version: a part is empty"),
            Self::NoNumber { text } => {
                write!(f, "{text:?} is no version: it does not begin with a number")
            }
            Self::NumberTooLarge { number } => write!(f, "{number} is too large for a version"),
            Self::TooLong { bytes } => {
                write!(
                    f,
                    "{bytes} bytes are no version, which has at most {TEXT_MAX}"
                )
            }
        }
    }
}

impl std::error::Error for VersionError {}

impl FromStr for Version {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, VersionError> {
        let text = text.trim();
        if text.len() > TEXT_MAX {
            return Err(VersionError::TooLong { bytes: text.len() });
        }
        let mut version = Self {
            text: text.to_owned(),
            numbers: Vec::new(),
            rest: Vec::new(),
            suffix: None,
        };
        let mut left = text;
        let mut ended = false;
        while !ended {
            let (part, after) = split(left);
            if part.is_empty() {
                let text = text.to_owned();
                return Err(match version.numbers.is_empty() {
                    true => VersionError::NoNumber { text },
                    false => VersionError::EmptyPart { text },
                });
            }
            if let Some(number) = whole_number(part)? {
                version.push_number(number);
            } else if version.numbers.is_empty() {
                let text = text.to_owned();
                return Err(VersionError::NoNumber { text });
            } else if let Some((stage, number)) = stage(part)? {
                version.rest.push(Part::Stage(stage, number));
            } else {
                version.suffix = Some(left.to_owned());
                break;
            }
            ended = after.is_none();
            left = after.unwrap_or_default();
        }
        Ok(version)
    }
}

/// The first part, and what follows its separator, if there is one.
fn split(text: &str) -> (&str, Option<&str>) {
    match text.split_once(['.', '-', '+', '_']) {
        Some((part, after)) => (part, Some(after)),
        None => (text, None),
    }
}

fn whole_number(part: &str) -> Result<Option<u32>, VersionError> {
    if !part.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(None);
    }
    let too_large = |_| VersionError::NumberTooLarge {
        number: part.to_owned(),
    };
    part.parse().map(Some).map_err(too_large)
}

/// `alpha003` as a stage and its number; a number that stands apart (`beta.1`) comes later.
fn stage(part: &str) -> Result<Option<(Stage, u32)>, VersionError> {
    for stage in Stage::ALL {
        let Some((word, digits)) = part.split_at_checked(stage.word().len()) else {
            continue;
        };
        if !word.eq_ignore_ascii_case(stage.word()) {
            continue;
        }
        if digits.is_empty() {
            return Ok(Some((stage, 0)));
        }
        return Ok(whole_number(digits)?.map(|number| (stage, number)));
    }
    Ok(None)
}

impl Version {
    fn push_number(&mut self, number: u32) {
        match self.rest.last_mut() {
            None => self.numbers.push(number),
            // `beta.1` is `beta1`.
            Some(Part::Stage(_, own)) if *own == 0 => *own = number,
            Some(_) => self.rest.push(Part::Number(number)),
        }
    }

    /// The text that it was read from, without spaces around it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The leading numbers, at least one: 8 and 1 of `8.1.RC1`.
    #[must_use]
    pub fn numbers(&self) -> &[u32] {
        &self.numbers
    }

    /// Alpha, beta or release candidate and its number; `None` for a release.
    #[must_use]
    pub fn stage(&self) -> Option<(Stage, u32)> {
        match self.rest.first() {
            Some(Part::Stage(stage, number)) => Some((*stage, *number)),
            Some(Part::End | Part::Number(_)) | None => None,
        }
    }

    /// What it says beyond numbers and stage, such as `emulated`; never compared.
    #[must_use]
    pub fn suffix(&self) -> Option<&str> {
        self.suffix.as_deref()
    }

    /// Whether it is the version of an emulated toolkit.
    #[must_use]
    pub fn is_emulated(&self) -> bool {
        let suffix = self.suffix.as_deref().unwrap_or_default();
        suffix.to_ascii_lowercase().contains(EMULATED)
    }

    /// The number by which `aclsysGetVersionNum` states this version: `major * 10^7 + minor * 10^5
    /// + patch * 10^3`, from which an alpha takes 300, a beta 200, a candidate 100, and adds its
    /// own number. `None` for a version without three numbers, which that call refuses.
    #[must_use]
    pub fn number(&self) -> Option<i32> {
        let [major, minor, patch] = self.numbers[..] else {
            return None;
        };
        let part = |number: u32, weight: i32| i32::try_from(number).ok()?.checked_mul(weight);
        let release = part(major, 10_000_000)?
            .checked_add(part(minor, 100_000)?)?
            .checked_add(part(patch, 1000)?)?;
        match self.stage() {
            None => Some(release),
            Some((stage, number)) => release
                .checked_sub(stage.weight())?
                .checked_add(i32::try_from(number).ok()?),
        }
    }

    /// The version that `aclsysGetVersionNum` states by a number, if it is one that it can state.
    ///
    /// A beta without number and the hundredth alpha have one number; the beta is taken.
    #[must_use]
    pub fn from_number(number: i32) -> Option<Self> {
        let release = number.checked_add(999)? / 1000 * 1000;
        if number <= 0 {
            return None;
        }
        let before = number - release;
        let (stage, own) = match before {
            0 => (None, 0),
            -100..=-1 => (Some(Stage::ReleaseCandidate), before + 100),
            -200..=-101 => (Some(Stage::Beta), before + 200),
            -300..=-201 => (Some(Stage::Alpha), before + 300),
            _ => return None,
        };
        let (major, minor, patch) = (
            release / 10_000_000,
            release / 100_000 % 100,
            release / 1000 % 100,
        );
        let tail = stage.map_or_else(String::new, |stage| format!(".{}{own}", stage.word()));
        format!("{major}.{minor}.{patch}{tail}").parse().ok()
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Version({})", self.text)
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        let length = self.numbers.len().max(other.numbers.len());
        let number = |version: &Self, at: usize| version.numbers.get(at).copied().unwrap_or(0);
        let numbers = (0..length).map(|at| number(self, at).cmp(&number(other, at)));
        let length = self.rest.len().max(other.rest.len());
        let part = |version: &Self, at: usize| version.rest.get(at).copied().unwrap_or(Part::End);
        let parts = (0..length).map(|at| part(self, at).cmp(&part(other, at)));
        numbers
            .chain(parts)
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Version {}
