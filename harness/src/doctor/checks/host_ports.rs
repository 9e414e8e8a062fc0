//! Whether the ports that HCCL takes on the host are free, and who holds them.

use super::super::network::{BASE_PORT, PORTS, host_ports};
use super::super::process::{Held, held, taken_ports};
use super::super::{Finding, Problem, Status, System};

/// Holders that are named one by one.
const SHOWN: usize = 5;

pub(super) fn judge(system: &System) -> Finding {
    let Some((how, ranges)) = host_ports(system) else {
        return Finding::skip("the ports are chosen freely, or the variable is malformed");
    };
    let wanted = |port: u16| {
        ranges
            .iter()
            .any(|(first, last)| (*first..=*last).contains(&port))
    };
    let Some(held) = held(system, wanted) else {
        return Finding::skip("/proc/net does not tell the ports in use");
    };
    let texts: Vec<String> = ranges
        .iter()
        .map(|(first, last)| format!("{first}-{last}"))
        .collect();
    let texts = texts.join(",");
    let listeners: Vec<&Held> = held.iter().filter(|held| held.listens).collect();
    let connections = held.iter().filter(|held| !held.listens);
    // Where nothing speaks of HCCL its default ports are anybody's.
    let status = if system.wants_hccl() {
        Status::Fail
    } else {
        Status::Warn
    };
    let move_on = format!(
        "export HCCL_IF_BASE_PORT={} alike for all ranks",
        free_base(system)
    );
    let mut problems: Vec<Problem> = listeners
        .iter()
        .take(SHOWN)
        .map(|held| {
            let end = held.pid.map_or_else(String::new, |pid| {
                format!(", or end that process: kill {pid}")
            });
            Problem::new(
                status,
                format!(
                    "port {} of HCCL's {texts} is held by {}",
                    held.port, held.who
                ),
                format!("{}; {how}", held.evidence),
                format!("{move_on}{end}"),
            )
        })
        .collect();
    if listeners.len() > SHOWN {
        problems.push(Problem::new(
            status,
            format!("{} more of HCCL's ports are held", listeners.len() - SHOWN),
            format!("/proc/net/tcp; {how}"),
            move_on.clone(),
        ));
    }
    if let Some(held) = connections
        .into_iter()
        .next()
        .filter(|_| system.wants_hccl())
    {
        problems.push(Problem::warn(
            format!("port {} of HCCL's {texts} serves a connection of {}", held.port, held.who),
            held.evidence.clone(),
            "keep these ports out of those that Linux hands out: sysctl -w net.ipv4.ip_local_reserved_ports=60000-60031",
        ));
    }
    Finding::of(problems, || {
        Finding::ok(format!("HCCL's ports {texts} are free"), how)
    })
}

/// A base from which on nobody holds a port.
fn free_base(system: &System) -> u16 {
    let taken = taken_ports(system);
    let wanted = system
        .text("HCCL_IF_BASE_PORT")
        .and_then(|text| text.parse().ok())
        .unwrap_or(BASE_PORT);
    let is_free = |base: &u16| {
        !taken
            .iter()
            .any(|port| (*base..*base + PORTS).contains(port))
    };
    // Below the range that Linux hands out by default, in steps that two jobs can share out.
    let steps = (20_000..30_000).step_by(usize::from(PORTS));
    (wanted.saturating_add(PORTS)..=65_000)
        .step_by(usize::from(PORTS))
        .chain(steps)
        .find(is_free)
        .unwrap_or(BASE_PORT)
}
