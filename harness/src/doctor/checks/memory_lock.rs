//! Whether enough memory may be locked for the network cards of devices.

use super::super::system::size;
use super::super::{Finding, Problem, System};

/// Registered buffers of one rank.
const A_RANK: u64 = 64 << 20;

/// Soft and hard limit by `/proc/self/limits`; `None` inside stands for no limit.
pub(super) fn limit(system: &System, name: &str) -> Option<(Option<u64>, Option<u64>)> {
    let text = system.read("/proc/self/limits")?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let mut fields = line.split_ascii_whitespace();
    let mut next = || -> Option<Option<u64>> {
        match fields.next()? {
            "unlimited" => Some(None),
            number => Some(Some(number.parse().ok()?)),
        }
    };
    Some((next()?, next()?))
}

/// A limit for people.
pub(super) fn shown(limit: Option<u64>, unit: impl Fn(u64) -> String) -> String {
    limit.map_or_else(|| "unlimited".to_owned(), unit)
}

pub(super) fn judge(system: &System) -> Finding {
    let Some((soft, hard)) = limit(system, "Max locked memory") else {
        return Finding::skip("/proc/self/limits does not tell the limit");
    };
    let evidence = format!(
        "/proc/self/limits: max locked memory {}, hard limit {}",
        shown(soft, size),
        shown(hard, size)
    );
    if system.devices().is_empty() {
        return Finding::ok(
            format!(
                "{} of memory may be locked; without a device nobody does",
                shown(soft, size)
            ),
            evidence,
        );
    }
    let ranks = system.ranks().map_or(1, |ranks| ranks.count);
    let needed = A_RANK * u64::from(ranks);
    match soft {
        Some(soft) if soft < needed => Problem::warn(
            format!("only {} of memory may be locked, and {ranks} ranks register at least {}", size(soft), size(needed)),
            evidence,
            "ulimit -l unlimited; for good: \"* - memlock unlimited\" in /etc/security/limits.conf; in a container: docker run --ulimit memlock=-1",
        )
        .into(),
        _ => Finding::ok("enough memory may be locked", evidence),
    }
}
