//! Whether the port where the ranks meet is free.

use super::super::process::{held, taken_ports};
use super::super::{Finding, Problem, System};

/// The port that torch takes where none is set.
const USUAL: u16 = 29_500;

pub(super) fn judge(system: &System) -> Finding {
    let Some(text) = system.text("MASTER_PORT") else {
        return Finding::skip("MASTER_PORT is not set");
    };
    let Some(port) = text.parse::<u16>().ok().filter(|port| *port > 0) else {
        return Problem::fail(
            format!("MASTER_PORT is {text:?}, which is no port"),
            format!("MASTER_PORT={text}"),
            "export MASTER_PORT=29500, or another number from 1024 to 65535",
        )
        .into();
    };
    if hccl_takes(system, port) {
        return Problem::fail(
            format!("MASTER_PORT {port} lies among the ports that HCCL takes"),
            format!("MASTER_PORT={text}"),
            format!(
                "export MASTER_PORT={}, or another port outside of HCCL's, alike for all ranks",
                free_port(system)
            ),
        )
        .into();
    }
    let Some(held) = held(system, |other| other == port) else {
        return Finding::skip("/proc/net does not tell the ports in use");
    };
    let agent = system.text("TORCHELASTIC_USE_AGENT_STORE") == Some("True");
    match held.into_iter().find(|held| held.listens) {
        Some(held) if agent => Finding::ok(
            format!(
                "MASTER_PORT {port} is held by {}, torchrun's agent",
                held.who
            ),
            held.evidence,
        ),
        Some(held) => {
            let end = held.pid.map_or_else(String::new, |pid| {
                format!(", or end that process: kill {pid}")
            });
            Problem::fail(
                format!("MASTER_PORT {port} is held by {}", held.who),
                held.evidence,
                format!(
                    "export MASTER_PORT={} (or any other free port), alike for all ranks{end}",
                    free_port(system)
                ),
            )
            .into()
        }
        None => Finding::ok(
            format!("MASTER_PORT {port} is free on this host"),
            "/proc/net/tcp",
        ),
    }
}

/// Whether HCCL listens on this port.
fn hccl_takes(system: &System, port: u16) -> bool {
    let hccl = super::super::network::host_ports(system);
    let is_inside = hccl.is_some_and(|(_, ranges)| {
        let mut ranges = ranges.iter();
        ranges.any(|(first, last)| (*first..=*last).contains(&port))
    });
    is_inside && system.wants_hccl()
}

/// The next port from torch's usual one on that nobody listens on, nor HCCL will.
fn free_port(system: &System) -> u16 {
    let taken = taken_ports(system);
    (USUAL..u16::MAX)
        .find(|port| !taken.contains(port) && !hccl_takes(system, *port))
        .unwrap_or(USUAL)
}
