//! Whether Linux may hand HCCL's ports out to somebody else.

use super::super::network::{host_ports, port_ranges};
use super::super::{Finding, Problem, System};

const RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
const RESERVED: &str = "/proc/sys/net/ipv4/ip_local_reserved_ports";

pub(super) fn judge(system: &System) -> Finding {
    if !system.wants_hccl() && system.text("MASTER_PORT").is_none() {
        return Finding::skip("nothing here speaks of HCCL, and MASTER_PORT is not set");
    }
    let range = system.read(RANGE).and_then(|text| {
        let (first, last) = text.split_once(char::is_whitespace)?;
        Some((
            first.trim().parse::<u16>().ok()?,
            last.trim().parse::<u16>().ok()?,
        ))
    });
    let Some((first, last)) = range else {
        return Finding::skip(format!("{RANGE} cannot be read"));
    };
    let text = system.read(RESERVED).unwrap_or_default();
    let reserved = port_ranges(&text).unwrap_or_default();
    let is_open = |port: u16| {
        let inside = |(first, last): &(u16, u16)| (*first..=*last).contains(&port);
        (first..=last).contains(&port) && !reserved.iter().any(inside)
    };
    let mut problems = Vec::new();
    let evidence = format!(
        "{RANGE}: {first} {last}; {RESERVED}: {}",
        if text.is_empty() { "empty" } else { &text }
    );
    let mut keep: Vec<String> = (!text.is_empty())
        .then_some(text.clone())
        .into_iter()
        .collect();
    if let Some((how, ranges)) = host_ports(system).filter(|_| system.wants_hccl()) {
        let open = ranges
            .iter()
            .find(|(first, last)| (*first..=*last).any(is_open));
        if let Some((first, last)) = open {
            keep.push(format!("{first}-{last}"));
            problems.push(Problem::warn(
                format!("Linux may hand out HCCL's ports {first}-{last} to any other program"),
                format!("{evidence}; {how}"),
                format!(
                    "sysctl -w net.ipv4.ip_local_reserved_ports={}",
                    keep.join(",")
                ),
            ));
        }
    }
    if let Some(port) = system
        .text("MASTER_PORT")
        .and_then(|text| text.parse().ok())
        .filter(|port| is_open(*port))
    {
        problems.push(Problem::warn(
            format!("Linux may hand out MASTER_PORT {port} to any other program"),
            evidence.clone(),
            format!(
                "choose a port below {first}, or: sysctl -w net.ipv4.ip_local_reserved_ports={port}"
            ),
        ));
    }
    Finding::of(problems, || {
        Finding::ok("Linux does not hand out HCCL's ports", evidence)
    })
}
