//! A layout in one word: `vllm0.18:tp4dp4@16+lmhead=2+eplb`.
//!
//! After the colon stand axes with sizes in any sequence, then optionally `@` and the world size, then options,
//! each after a `+`. Without a version it is the newest release; without a world what the sizes make.

use std::fmt;
use std::str::FromStr;

use crate::types::UnknownName;

use super::super::error::did_you_mean;
use super::super::word::{self, WordError};
use super::{PREFIX, VllmError, VllmLayout, VllmOption, VllmSizes, VllmVersion};

const AXES: [&str; 5] = ["tp", "pp", "pcp", "dcp", "dp"];

/// Why a word is no layout of vLLM.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VllmTextError {
    /// The sizes make no legal layout.
    #[error("{0}")]
    Illegal(#[from] VllmError),
    /// The axes or options cannot be read.
    #[error(transparent)]
    Word(#[from] WordError),
    /// A version or option that does not exist.
    #[error("{0}{meant}", meant = did_you_mean(.0.suggestion()))]
    UnknownName(#[from] UnknownName),
}

/// The canonical form; reading it yields the same layout.
impl fmt::Display for VllmLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let VllmSizes {
            tp,
            pp,
            pcp,
            dcp,
            dp,
        } = self.sizes;
        let sizes = AXES.iter().zip([tp, pp, pcp, dcp, dp]);
        let written: String = sizes
            .filter(|(_, size)| *size > 1)
            .map(|(axis, size)| format!("{axis}{size}"))
            .collect();
        let axes = if written.is_empty() { "tp1" } else { &written };
        let options = self.options.iter().map(|(option, size)| {
            if option.is_flag() {
                format!("+{option}")
            } else {
                format!("+{option}={size}")
            }
        });
        let options: String = options.collect();
        let text = format!("{PREFIX}{}:{axes}@{}{options}", self.version, self.world);
        f.pad(&text)
    }
}

impl FromStr for VllmLayout {
    type Err = VllmTextError;

    fn from_str(text: &str) -> Result<Self, VllmTextError> {
        let lower = text.trim().to_ascii_lowercase();
        let unexpected = || WordError::Unexpected(lower.clone());
        let rest = lower.strip_prefix(PREFIX).ok_or_else(unexpected)?;
        let (version, rest) = rest.split_once(':').ok_or_else(unexpected)?;
        let version = match version.trim_start_matches('-') {
            "" => VllmVersion::DEFAULT,
            version => version.parse()?,
        };
        let mut parts = rest.split('+');
        let sizes = parts.next().unwrap_or_default();
        let mut builder = Self::builder(version);
        let (sizes, world) = word::axes(sizes, &AXES)?;
        for (axis, size) in sizes {
            builder = match axis {
                "tp" => builder.tp(size),
                "pp" => builder.pp(size),
                "pcp" => builder.pcp(size),
                "dcp" => builder.dcp(size),
                _ => builder.dp(size),
            };
        }
        if let Some(world) = world {
            builder = builder.world(world);
        }
        let mut seen = Vec::new();
        for part in parts {
            let (name, size) = match part.split_once('=') {
                None => (part, None),
                Some((name, size)) => (name, Some(word::number(name, size)?)),
            };
            let option: VllmOption = name.trim().parse()?;
            if seen.contains(&option) {
                return Err(WordError::Twice(option.name().to_owned()).into());
            }
            seen.push(option);
            let size = match size {
                Some(size) => size,
                None if option.is_flag() => 1,
                None => {
                    return Err(WordError::NoNumber(option.name().to_owned()).into());
                }
            };
            builder = builder.option(option, size);
        }
        Ok(builder.build()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_as_the_same_layout() {
        for (text, canonical) in [
            ("vllm:tp4dp4", "vllm0.23:tp4dp4@16"),
            ("VLLM-0.18:dp2xtp=2", "vllm0.18:tp2dp2@4"),
            (
                "vllm0.25:tp1 dp8@8+lmhead=4+eplb",
                "vllm0.25:dp8@8+eplb+lmhead=4",
            ),
            (
                "vllm0.13:@1+dense+multistream_overlap_gate",
                "vllm0.13:tp1@1+dense+multistream_overlap_gate",
            ),
        ] {
            let layout: VllmLayout = text.parse().unwrap();
            assert_eq!(layout.to_string(), canonical, "{text}");
            assert_eq!(canonical.parse(), Ok(layout), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        for (text, message) in [
            ("vllm0.12:tp2", "unknown version of vllm-ascend \"0.12\""),
            ("vllm:tp2ep4", "unknown axis \"ep\""),
            ("vllm:tp2tp4", "tp stands twice"),
            ("vllm:tp", "\"tp\" needs a whole number"),
            ("vllm:2", "unexpected \"2\""),
            ("vllm:tp2@", "\"@\" needs a whole number"),
            ("vllm:dp4+lmhead", "\"lmhead\" needs a whole number"),
            ("vllm:dp4+lmhed=2", "did you mean"),
            ("vllm:dp4+eplb+eplb", "eplb stands twice"),
            ("vllm:dp4+eplb=2", "eplb is on or off"),
            ("vllm:tp0", "tp=0: every size must be at least 1"),
            ("vllm:tp3@8", "not divisible by tp*pp*pcp*dp = 3"),
            (
                "vllm0.25:tp4+flashcomm2=2",
                "versions with it: 0.13 to 0.23",
            ),
            ("vllm", "unexpected \"vllm\""),
            ("vllm:tp99999999999999999999", "\"tp\" needs a whole number"),
            ("vllm:tp4294967295dp4294967295", "above the limit"),
        ] {
            let error = text.parse::<VllmLayout>().unwrap_err().to_string();
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
