//! The values that our variables take, and how their text becomes them.

use std::path::PathBuf;
use std::time::Duration;

use crate::kernel::{Isa, Kernels};
use crate::processors::Bind;
use crate::rendezvous::Endpoint;

/// Longest host name that DNS can carry.
const HOST_CHARS_MAX: usize = 253;
/// Longest job id: it travels in every hello.
const JOB_ID_CHARS_MAX: usize = 128;
/// Longest deadline that can be asked for: a day.
const DEADLINE_S_MAX: f64 = 86_400.0;
/// Most connections between two ranks of a group: `transport` has as many.
pub const TCP_STREAMS_MAX: u8 = 16;
/// Most bytes of a selection table in a variable; a longer one belongs in a file.
const ALGO_BYTES_MAX: usize = 64 * 1024;
/// What ranks make of the places in the program that calls come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CallSitesChoice {
    /// A call against the habit of the program is an error where it shows that one was left out.
    #[default]
    Habit,
    /// Nothing.
    Off,
    /// Any difference is an error.
    Strict,
}

/// Whether ranks of one host read each other's ordinary memory by system call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PeerReadsChoice {
    /// Where it is allowed, and faster than staging.
    #[default]
    Auto,
    /// Nowhere.
    Never,
    /// Where it is allowed.
    Always,
}

/// Which transport carries the bytes between two ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransportChoice {
    /// Shared memory where both ranks can map it, TCP elsewhere.
    #[default]
    Auto,
    /// Shared memory only: ranks of two hosts are an error.
    Shm,
    /// TCP only, also between ranks of one host.
    Tcp,
}

/// Where the table comes from that overrides the selection of algorithms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlgoSource {
    /// A file to read.
    File(PathBuf),
    /// The table itself.
    Text(String),
}

/// Digits only: no sign, no space, no empty text.
pub(crate) fn decimal(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

pub(super) fn number(text: &str) -> Option<u32> {
    decimal(text).and_then(|number| u32::try_from(number).ok())
}

pub(super) fn positive(text: &str) -> Option<u32> {
    number(text).filter(|number| *number > 0)
}

/// Most devices of a host that a list may name.
const DEVICES_MAX: u32 = 1024;

/// Device ids, each once.
pub(super) fn device_ids(text: &str) -> Option<Vec<u32>> {
    let ids: Option<Vec<u32>> = text
        .split(',')
        .map(|item| number(item.trim()).filter(|id| *id < DEVICES_MAX))
        .collect();
    let ids = ids?;
    let mut sorted = ids.clone();
    sorted.sort_unstable();
    sorted.dedup();
    (sorted.len() == ids.len()).then_some(ids)
}

/// Whole seconds, zero included.
pub(super) fn whole_seconds(text: &str) -> Option<Duration> {
    decimal(text).map(Duration::from_secs)
}

pub(super) fn world_size(text: &str) -> Option<u32> {
    positive(text).filter(|size| *size <= crate::types::MAX_WORLD_SIZE)
}

/// Standard input may carry a secret; output and error may not.
pub(super) fn descriptor(text: &str) -> Option<i32> {
    decimal(text)
        .and_then(|number| i32::try_from(number).ok())
        .filter(|descriptor| *descriptor == 0 || *descriptor > 2)
}

pub(super) fn endpoint(text: &str) -> Option<Endpoint> {
    text.parse().ok()
}

/// Names of network interfaces, best first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceNames(pub(crate) Vec<String>);

/// Names separated by commas.
pub(crate) fn interfaces(text: &str) -> Option<InterfaceNames> {
    /// The longest that the kernel takes, in bytes.
    const NAME_MAX: usize = 15;
    let is_legal = |name: &String| {
        let mut bytes = name.bytes();
        let is_plain = bytes.all(|byte| byte.is_ascii_graphic() && byte != b'/');
        is_plain && (1..=NAME_MAX).contains(&name.len())
    };
    let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
    names.iter().all(is_legal).then_some(InterfaceNames(names))
}

pub(super) fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

pub(super) fn path(text: &str) -> Option<PathBuf> {
    Some(PathBuf::from(text))
}

pub(super) fn absolute_path(text: &str) -> Option<PathBuf> {
    path(text).filter(|path| path.is_absolute())
}

pub(super) fn job_id(text: &str) -> Option<String> {
    let legal = text.len() <= JOB_ID_CHARS_MAX && text.bytes().all(|byte| byte.is_ascii_graphic());
    legal.then(|| text.to_owned())
}

pub(super) fn deadline(text: &str) -> Option<Duration> {
    let plain = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    let seconds: f64 = plain.then(|| text.parse().ok()).flatten()?;
    let legal = seconds > 0.0 && seconds <= DEADLINE_S_MAX;
    legal.then(|| Duration::from_secs_f64(seconds))
}

pub(super) fn transport(text: &str) -> Option<TransportChoice> {
    match text {
        "auto" => Some(TransportChoice::Auto),
        "shm" => Some(TransportChoice::Shm),
        "tcp" => Some(TransportChoice::Tcp),
        _ => None,
    }
}

pub(super) fn streams(text: &str) -> Option<u8> {
    positive(text)
        .and_then(|number| u8::try_from(number).ok())
        .filter(|number| *number <= TCP_STREAMS_MAX)
}

pub(super) fn peer_reads(text: &str) -> Option<PeerReadsChoice> {
    match text {
        "auto" => Some(PeerReadsChoice::Auto),
        "never" => Some(PeerReadsChoice::Never),
        "always" => Some(PeerReadsChoice::Always),
        _ => None,
    }
}

pub(super) fn call_sites(text: &str) -> Option<CallSitesChoice> {
    match text {
        "habit" => Some(CallSitesChoice::Habit),
        "off" => Some(CallSitesChoice::Off),
        "strict" => Some(CallSitesChoice::Strict),
        _ => None,
    }
}

pub(super) fn algo(text: &str) -> Option<AlgoSource> {
    match text.strip_prefix('@') {
        Some("") => None,
        Some(file) => Some(AlgoSource::File(PathBuf::from(file))),
        None => (text.len() <= ALGO_BYTES_MAX).then(|| AlgoSource::Text(text.to_owned())),
    }
}

/// A number of bytes: digits, then nothing or `KiB`, `MiB`, `GiB`.
pub(super) fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit: u64 = match &text[digits.len()..] {
        "" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    decimal(digits)?
        .checked_mul(unit)
        .filter(|bytes| *bytes > 0)
}

pub(super) fn seed(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) if hex.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            u64::from_str_radix(hex, 16).ok()
        }
        Some(_) => None,
        None => decimal(text),
    }
}

pub(super) fn switch(text: &str) -> Option<bool> {
    match text {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

pub(super) fn bind(text: &str) -> Option<Bind> {
    match text {
        "on" => Some(Bind::Share),
        "off" => Some(Bind::None),
        "core" => Some(Bind::Core),
        "numa" => Some(Bind::Numa),
        _ => None,
    }
}

/// The one backend of torch.distributed whose place can be taken.
pub(super) fn gloo(text: &str) -> Option<bool> {
    (text == "gloo").then_some(true)
}

pub(super) fn kernels(text: &str) -> Option<Kernels> {
    let isa = Isa::ALL.into_iter().find(|isa| isa.name() == text)?;
    Kernels::new(isa).ok()
}

/// By the NO_COLOR convention any text but the empty one means yes.
pub(super) fn present(_: &str) -> Option<bool> {
    Some(true)
}

/// Letters, digits, dots, dashes and underscores: enough for names and IPv4, and nothing that
/// could change the meaning of a line it is printed in.
pub(crate) fn is_host(text: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    !text.is_empty() && text.len() <= HOST_CHARS_MAX && text.bytes().all(legal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_seeds_and_seconds_take_the_units_they_say_and_nothing_else() {
        assert_eq!(bytes("4096"), Some(4096));
        assert_eq!(bytes("64MiB"), Some(64 << 20));
        for wrong in ["", "0", "64MB", "-1", "MiB", "1.5GiB", "99999999999999GiB"] {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
        assert_eq!(seed("0xff"), Some(255));
        assert_eq!(seed("18446744073709551615"), Some(u64::MAX));
        assert_eq!(seed("0x"), None);
        assert_eq!(seed("0x+1"), None);
        assert_eq!(deadline("2.5"), Some(Duration::from_millis(2500)));
        for wrong in ["0", "-1", "inf", "nan", "86401", "1e3", ".", ""] {
            assert_eq!(deadline(wrong), None, "{wrong}");
        }
        assert_eq!(descriptor("1"), None);
        assert_eq!(descriptor("2"), None);
        assert_eq!(descriptor("0"), Some(0));
        assert_eq!(descriptor("3"), Some(3));
    }
}
