//! The backend string: which library moves the data of which kind of memory.
//!
//! `cpu:host,npu:hccl` is what training stacks write. Objects and barriers of a group always go
//! over its host communicator; tensors go to the one that holds their memory.

use std::fmt;
use std::str::FromStr;

/// What moves data, by the memory that it lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backends {
    /// `cpu:host`: no device communicators are made.
    Host,
    /// `cpu:host,npu:hccl`: host memory over the host backend, device memory over HCCL.
    HostAndHccl,
}

/// A text that names no backends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("backends {text:?}: {why}; allowed: host, hccl, cpu:host or cpu:host,npu:hccl")]
pub struct UnknownBackends {
    /// The text, cut to a line.
    pub text: String,
    /// What is wrong with it.
    pub why: String,
}

/// Longest part of a text that an error repeats, in characters.
const SHOWN_CHARS_MAX: usize = 60;

impl Backends {
    /// The choice where nobody made one: HCCL where hardware can be driven. An emulated device is
    /// never chosen unasked.
    #[must_use]
    pub fn detected(has_device: bool, is_emulated: bool) -> Self {
        if has_device && !is_emulated {
            Self::HostAndHccl
        } else {
            Self::Host
        }
    }

    /// Whether device memory goes over HCCL.
    #[must_use]
    pub fn has_hccl(self) -> bool {
        self == Self::HostAndHccl
    }
}

impl fmt::Display for Backends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Host => "cpu:host",
            Self::HostAndHccl => "cpu:host,npu:hccl",
        })
    }
}

impl FromStr for Backends {
    type Err = UnknownBackends;

    fn from_str(text: &str) -> Result<Self, UnknownBackends> {
        let wrong = |why: String| UnknownBackends {
            text: text.chars().take(SHOWN_CHARS_MAX).collect(),
            why,
        };
        let (mut cpu, mut npu) = (None, None);
        for item in text.split(',').map(str::trim) {
            let (memory, backend) = match item.split_once(':') {
                Some((memory, backend)) => (memory.trim(), backend.trim()),
                // A backend alone stands for the memory that it works on.
                None if item.eq_ignore_ascii_case("hccl") => ("npu", item),
                None => ("cpu", item),
            };
            let (memory, backend) = (memory.to_ascii_lowercase(), backend.to_ascii_lowercase());
            let place = match memory.as_str() {
                "cpu" => &mut cpu,
                "npu" => &mut npu,
                _ => return Err(wrong(format!("no memory is called {memory:?}"))),
            };
            if place.is_some() {
                return Err(wrong(format!("{memory} stands there twice")));
            }
            match (memory.as_str(), backend.as_str()) {
                // Under torch the host backend is called gloo.
                ("cpu", "host" | "gloo") | ("npu", "hccl") => *place = Some(()),
                _ => {
                    return Err(wrong(format!(
                        "{backend:?} does not work on {memory} memory"
                    )));
                }
            }
        }
        Ok(if npu.is_some() {
            Self::HostAndHccl
        } else {
            Self::Host
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strings_of_training_stacks_are_understood() {
        for (text, backends) in [
            ("host", Backends::Host),
            ("cpu:host", Backends::Host),
            ("cpu:gloo,npu:hccl", Backends::HostAndHccl),
            ("cpu:host,npu:hccl", Backends::HostAndHccl),
            ("npu:hccl, cpu:host", Backends::HostAndHccl),
            ("hccl", Backends::HostAndHccl),
            ("HCCL", Backends::HostAndHccl),
        ] {
            assert_eq!(text.parse(), Ok(backends), "{text}");
        }
        for backends in [Backends::Host, Backends::HostAndHccl] {
            assert_eq!(backends.to_string().parse(), Ok(backends));
        }
    }

    #[test]
    fn what_is_none_is_refused_with_the_reason() {
        for (text, why) in [
            ("cpu:hccl", "does not work on cpu"),
            ("npu:host", "does not work on npu"),
            ("cuda:nccl", "no memory is called \"cuda\""),
            ("cpu:host,cpu:host", "twice"),
            ("", "does not work on cpu"),
        ] {
            let error = text.parse::<Backends>().unwrap_err();
            assert!(error.to_string().contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn an_emulated_device_is_never_chosen_unasked() {
        assert_eq!(Backends::detected(true, false), Backends::HostAndHccl);
        assert_eq!(Backends::detected(true, true), Backends::Host);
        assert_eq!(Backends::detected(false, false), Backends::Host);
    }
}
