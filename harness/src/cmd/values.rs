//! Values of options that several commands take.

use std::time::Duration;

use muster_comm::layout::Preset;
use muster_comm::types::DType;

/// Most elements of one buffer that an option may ask for: 64 Mi elements of 8 bytes on each of 16
/// ranks is 8 GiB, more than a machine without an accelerator should be asked for.
const COUNT_MAX: usize = 1 << 26;

/// Longest deadline that makes sense: longer ones are a hang by another name.
const DEADLINE_MAX: Duration = Duration::from_secs(24 * 3600);

pub(crate) fn parse_dtype(name: &str) -> Result<DType, String> {
    name.trim().parse::<DType>().map_err(|error| {
        let meant = error
            .suggestion()
            .map_or_else(String::new, |meant| format!(" (did you mean {meant}?)"));
        format!("{error}{meant}")
    })
}

pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    let allowed =
        || "a time is a number with ms, s or m behind it, from 1ms to 24 hours".to_owned();
    let text = text.trim();
    let (digits, milliseconds) = if let Some(digits) = text.strip_suffix("ms") {
        (digits, 1)
    } else if let Some(digits) = text.strip_suffix('s') {
        (digits, 1000)
    } else if let Some(digits) = text.strip_suffix('m') {
        (digits, 60_000)
    } else {
        (text, 1000)
    };
    let number: u64 = digits.parse().map_err(|_| allowed())?;
    let time = Duration::from_millis(number.checked_mul(milliseconds).ok_or_else(allowed)?);
    if time.is_zero() || time > DEADLINE_MAX {
        return Err(allowed());
    }
    Ok(time)
}

/// A layout of a training stack by its name.
pub(super) fn parse_preset(name: &str) -> Result<&'static Preset, String> {
    Preset::find(name).map_err(|error| {
        let meant = Preset::closest(name)
            .map_or_else(String::new, |meant| format!(" (did you mean {meant}?)"));
        format!("{error}{meant}")
    })
}

/// A number of elements.
pub(super) fn parse_count(text: &str) -> Result<usize, String> {
    text.trim()
        .parse()
        .ok()
        .filter(|count| *count <= COUNT_MAX)
        .ok_or_else(|| format!("a number of elements is 0 to {COUNT_MAX}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_and_bounds() {
        assert_eq!(parse_time("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_time("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(parse_time("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_time("7"), Ok(Duration::from_secs(7)));
        for bad in [
            "",
            "s",
            "0s",
            "-1s",
            "1h",
            "99999999999999999999s",
            "18446744073709551615m",
            "25000m",
        ] {
            assert!(parse_time(bad).is_err(), "{bad}");
        }
    }
}
