//! What the values of the vendor's variables look like.

use std::net::IpAddr;

use crate::doctor::network::{Choice, port_ranges};

/// A whole number from `min` to `max`, digits only.
pub(super) fn whole(text: &str, min: u64, max: u64) -> bool {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits
        && text
            .parse()
            .is_ok_and(|number: u64| (min..=max).contains(&number))
}

/// One of these words, upper and lower case alike.
pub(super) fn word(text: &str, words: &[&str]) -> bool {
    words.iter().any(|word| word.eq_ignore_ascii_case(text))
}

pub(super) fn switch(text: &str) -> bool {
    word(text, &["0", "1"])
}

pub(super) fn truth(text: &str) -> bool {
    word(text, &["TRUE", "FALSE", "0", "1"])
}

pub(super) fn any(_: &str) -> bool {
    true
}

pub(super) fn path(text: &str) -> bool {
    text.starts_with('/')
}

pub(super) fn address(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok()
}

pub(super) fn interfaces(text: &str) -> bool {
    Choice::parse(text).is_some()
}

pub(super) fn ports(text: &str) -> bool {
    text == "auto" || port_ranges(text).is_some()
}

/// `level0:NA;level1:ring`, or the same for each collective: `allreduce=…/allgather=…`.
pub(super) fn algorithm(text: &str) -> bool {
    const NAMES: [&str; 10] = [
        "NA",
        "ring",
        "H-D_R",
        "NHR",
        "NHR_V1",
        "NB",
        "AHC",
        "AHC_BROKE",
        "pipeline",
        "pairwise",
    ];
    let level = |part: &str| {
        part.split_once(':').is_some_and(|(level, name)| {
            let known = NAMES.contains(&name) || name == "fullmesh";
            ["level0", "level1", "level2", "level3"].contains(&level) && known
        })
    };
    let levels = |text: &str| text.split(';').all(level);
    text.split('/').all(|part| match part.split_once('=') {
        Some((collective, rest)) => !collective.is_empty() && levels(rest),
        None => levels(part),
    })
}

/// `^alg,task`: words without spaces, a leading `^` for all but these.
pub(super) fn debug(text: &str) -> bool {
    let words = text.strip_prefix('^').unwrap_or(text);
    words.split(',').all(|word| {
        !word.is_empty()
            && word
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    })
}

/// `key:value` pairs separated by commas, spaces around them allowed.
fn pairs(text: &str, fits: impl Fn(&str, &str) -> bool) -> bool {
    text.split(',').all(|pair| {
        pair.trim()
            .split_once(':')
            .is_some_and(|(key, value)| fits(key.trim(), value.trim()))
    })
}

pub(super) fn dfs(text: &str) -> bool {
    pairs(text, |key, value| match key {
        "connection_fault_detection_time" => value == "0" || whole(value, 20, 7200),
        "cluster_heartbeat" | "stuck_detection" | "task_exception" => {
            ["on", "off"].contains(&value)
        }
        "inconsistent_check" => ["first", "on", "off"].contains(&value),
        "task_monitor_interval" => whole(value, 0, u64::MAX),
        _ => false,
    })
}

pub(super) fn retry_enable(text: &str) -> bool {
    pairs(text, |key, value| {
        ["L0", "L1", "L2"].contains(&key) && switch(value)
    })
}

pub(super) fn retry_params(text: &str) -> bool {
    pairs(text, |key, value| match key {
        "MaxCnt" => whole(value, 1, 10),
        "HoldTime" | "IntervalTime" => whole(value, 0, 60_000),
        _ => false,
    })
}

/// Options of the allocator, `expandable_segments:True,max_split_size_mb:128`. One that is not known may be newer than this;
/// one that is spelt almost as a known one is a slip.
pub(super) fn allocator(text: &str) -> bool {
    const KNOWN: [&str; 5] = [
        "base_addr_aligned_kb",
        "expandable_segments",
        "garbage_collection_threshold",
        "max_split_size_mb",
        "page_size",
    ];
    const SLIPS_MAX: usize = 3;
    pairs(text, |key, value| match key {
        "expandable_segments" => ["True", "False"].contains(&value),
        "garbage_collection_threshold" => value
            .parse()
            .is_ok_and(|share: f64| share > 0.0 && share < 1.0),
        "max_split_size_mb" => whole(value, 0, u64::MAX),
        _ => {
            let is_slip = |known: &str| strsim::damerau_levenshtein(key, known) <= SLIPS_MAX;
            KNOWN.contains(&key) || !KNOWN.iter().any(|known| is_slip(known))
        }
    })
}
