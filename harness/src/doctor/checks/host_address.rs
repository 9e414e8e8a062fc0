//! Whether the address that HCCL is told to use is one of this host.

use std::net::IpAddr;

use super::super::network::{addresses, interfaces};
use super::super::system::listed;
use super::super::{Finding, Problem, System};

pub(super) fn judge(system: &System) -> Finding {
    let Some(text) = system.text("HCCL_IF_IP") else {
        return Finding::skip("HCCL_IF_IP is not set");
    };
    let own = addresses(system);
    let mut others: Vec<IpAddr> = own
        .iter()
        .map(|(address, _)| *address)
        .filter(|address| !address.is_loopback())
        .collect();
    others.sort();
    let remedy =
        "unset HCCL_IF_IP and name the interface: HCCL_SOCKET_IFNAME can be the same on all hosts";
    let Ok(address) = text.parse::<IpAddr>() else {
        return Problem::fail(
            format!("HCCL_IF_IP is {text:?}, which is no address"),
            format!("HCCL_IF_IP={text}"),
            remedy,
        )
        .into();
    };
    if own.is_empty() {
        return Finding::skip("/proc/net does not tell the addresses of this host");
    }
    let Some((_, interface)) = own.iter().find(|(known, _)| *known == address) else {
        return Problem::fail(
            format!("HCCL_IF_IP {address} is no address of this host, and HCCL fails with EI0001"),
            format!("HCCL_IF_IP={text}; this host has {}", listed(&others)),
            remedy,
        )
        .into();
    };
    let interface = interfaces(system)
        .into_iter()
        .find(|known| Some(&known.name) == interface.as_ref());
    if let Some(down) = interface.filter(|interface| !interface.is_up()) {
        return Problem::fail(
            format!(
                "HCCL_IF_IP {address} is on {}, which is {}",
                down.name, down.state
            ),
            format!("/sys/class/net/{}/operstate: {}", down.name, down.state),
            format!("ip link set {} up", down.name),
        )
        .into();
    }
    if address.is_loopback() {
        return Problem::warn(
            format!("HCCL_IF_IP is the loopback address {address}: other hosts are out of reach"),
            format!("HCCL_IF_IP={text}; this host has {}", listed(&others)),
            remedy,
        )
        .into();
    }
    Finding::ok(
        format!("HCCL_IF_IP {address} is an address of this host"),
        format!("HCCL_IF_IP={text}"),
    )
}
