//! Interfaces and addresses of a host, as `/sys/class/net` and `/proc/net` show them, and which of
//! them HCCL would take.

use std::net::{IpAddr, Ipv6Addr};

use muster_comm::rendezvous::local_v4;

use super::System;

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) name: String,
    /// `up`, `down`, `unknown` and so on, as the kernel says.
    pub(super) state: String,
    pub(super) mtu: u64,
    pub(super) addresses: Vec<IpAddr>,
}

impl Interface {
    /// Loopback and tunnels have no carrier and say `unknown`.
    pub(super) fn is_up(&self) -> bool {
        self.state == "up" || self.state == "unknown"
    }

    pub(super) fn is_loopback(&self) -> bool {
        self.name == "lo"
    }

    /// `eth0 (up, 10.0.0.5)`.
    pub(super) fn shown(&self) -> String {
        let addresses: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        let addresses = if addresses.is_empty() {
            "no address".to_owned()
        } else {
            addresses.join(" ")
        };
        format!("{} ({}, {addresses})", self.name, self.state)
    }
}

/// All interfaces, by name; empty where the system does not tell.
pub(super) fn interfaces(system: &System) -> Vec<Interface> {
    let addresses = addresses(system);
    let of = |name: String| {
        let folder = format!("/sys/class/net/{name}");
        // What is no interface has no MTU, as the file `bonding_masters`.
        let mtu = system.number(format!("{folder}/mtu"))?;
        let state = system.read(format!("{folder}/operstate"));
        let own = addresses
            .iter()
            .filter(|(_, of)| of.as_deref() == Some(&name));
        Some(Interface {
            state: state.unwrap_or_else(|| "unknown".to_owned()),
            mtu,
            addresses: own.map(|(address, _)| *address).collect(),
            name,
        })
    };
    system
        .names("/sys/class/net")
        .into_iter()
        .filter_map(of)
        .collect()
}

/// All addresses of this host, each with its interface where that can be told.
pub(super) fn addresses(system: &System) -> Vec<(IpAddr, Option<String>)> {
    let routes = routes(system);
    let mut found: Vec<(IpAddr, Option<String>)> = Vec::new();
    for address in local_v4(&system.read("/proc/net/fib_trie").unwrap_or_default()) {
        let by_route = routes
            .iter()
            .filter(|route| u32::from(address) & route.mask == route.network)
            .max_by_key(|route| route.mask)
            .map(|route| route.interface.clone());
        let interface = if address.is_loopback() {
            Some("lo".to_owned())
        } else {
            by_route
        };
        found.push((IpAddr::V4(address), interface));
    }
    let v6 = system.read("/proc/net/if_inet6").unwrap_or_default();
    found.extend(v6.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let bits = u128::from_str_radix(fields.first()?, 16).ok()?;
        let interface = (*fields.get(5)?).to_owned();
        Some((IpAddr::V6(Ipv6Addr::from(bits)), Some(interface)))
    }));
    found
}

/// A network that an interface is on directly.
struct Route {
    network: u32,
    mask: u32,
    interface: String,
}

fn routes(system: &System) -> Vec<Route> {
    /// Destinations behind a gateway say nothing about our own addresses.
    const GATEWAY: u32 = 2;
    let text = system.read("/proc/net/route").unwrap_or_default();
    let hex = |field: &str| u32::from_str_radix(field, 16).ok();
    let route = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let flags = hex(fields.get(3)?)?;
        // The kernel prints the number whose bytes in memory are in network order.
        (flags & GATEWAY == 0).then_some(Route {
            network: u32::from_be(hex(fields.get(1)?)?),
            mask: u32::from_be(hex(fields.get(7)?)?),
            interface: (*fields.first()?).to_owned(),
        })
    };
    text.lines().filter_map(route).collect()
}

/// What `HCCL_SOCKET_IFNAME` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    names: Vec<String>,
    exact: bool,
    not: bool,
}

impl Choice {
    /// `eth,en` prefixes, `^eth` all but these, `=eth0` exactly, `^=eth0` all but exactly these.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (not, rest) = match text.strip_prefix('^') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (exact, rest) = match rest.strip_prefix('=') {
            Some(rest) => (true, rest),
            None => (false, rest),
        };
        let legal = |name: &str| {
            !name.is_empty()
                && name.len() < 16
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_graphic() && !b"^=/".contains(&byte))
        };
        let names: Vec<String> = rest.split(',').map(str::to_owned).collect();
        names
            .iter()
            .all(|name| legal(name))
            .then_some(Self { names, exact, not })
    }

    pub(super) fn takes(&self, interface: &str) -> bool {
        let named = self.names.iter().any(|name| {
            if self.exact {
                interface == name
            } else {
                interface.starts_with(name.as_str())
            }
        });
        named != self.not
    }

    /// Names that no interface has, where each name has to be one.
    pub(super) fn absent<'a>(&'a self, interfaces: &[Interface]) -> Vec<&'a str> {
        let is_there = |name: &str| {
            interfaces.iter().any(|interface| {
                if self.exact {
                    interface.name == name
                } else {
                    interface.name.starts_with(name)
                }
            })
        };
        if self.not {
            return Vec::new();
        }
        self.names
            .iter()
            .map(String::as_str)
            .filter(|name| !is_there(name))
            .collect()
    }
}

/// The interfaces that HCCL may take for the exchange between hosts, best first.
///
/// With `HCCL_SOCKET_IFNAME` those that it names; else all that are up, in the order in which HCCL
/// looks: first those that are neither docker's nor loopback, by name, then docker's, then loopback.
pub(super) fn used(system: &System) -> Vec<Interface> {
    let mut all = interfaces(system);
    if let Some(address) = system
        .text("HCCL_IF_IP")
        .and_then(|text| text.parse::<IpAddr>().ok())
    {
        all.retain(|interface| interface.addresses.contains(&address));
        return all;
    }
    match system.text("HCCL_SOCKET_IFNAME").and_then(Choice::parse) {
        Some(choice) => all.retain(|interface| choice.takes(&interface.name)),
        None => {
            all.retain(|interface| interface.is_up() && !interface.addresses.is_empty());
            all.sort_by_key(|interface| {
                let late = u8::from(interface.name.starts_with("docker"));
                (
                    if interface.is_loopback() { 2 } else { late },
                    interface.name.clone(),
                )
            });
        }
    }
    all
}

/// The ports that HCCL takes on the host, as a text and as first and last of each range; `None`
/// where they are chosen freely or the variable is malformed.
pub(super) fn host_ports(system: &System) -> Option<(String, Vec<(u16, u16)>)> {
    if let Some(text) = system.text("HCCL_HOST_SOCKET_PORT_RANGE") {
        let how = format!("HCCL_HOST_SOCKET_PORT_RANGE={text}");
        return port_ranges(text).map(|ranges| (how, ranges));
    }
    let (first, how) = match system.text("HCCL_IF_BASE_PORT") {
        Some(text) => {
            let legal = |port: &u16| (1024..=65_520).contains(port);
            let first = text.parse().ok().filter(legal)?;
            (first, format!("HCCL_IF_BASE_PORT={text}"))
        }
        None => (BASE_PORT, "HCCL_IF_BASE_PORT is not set".to_owned()),
    };
    let last = first.saturating_add(PORTS - 1);
    Some((how, vec![(first, last)]))
}

/// Default of `HCCL_IF_BASE_PORT`.
pub(super) const BASE_PORT: u16 = 60_000;
/// Ports that HCCL takes from there on.
pub(super) const PORTS: u16 = 32;

/// `60000-60050,61000`; `auto` gives none.
pub(super) fn port_ranges(text: &str) -> Option<Vec<(u16, u16)>> {
    let range = |item: &str| {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        (first > 0 && first <= last).then_some((first, last))
    };
    text.split(',').map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_chosen_by_all_forms_of_the_variable() {
        let takes = |text: &str, name: &str| Choice::parse(text).expect(text).takes(name);
        assert!(takes("eth", "eth0") && takes("en,eth", "eth1") && !takes("eth", "bond0"));
        assert!(takes("^eth", "bond0") && !takes("^eth,docker", "docker0"));
        assert!(takes("=eth0", "eth0") && !takes("=eth0", "eth01"));
        assert!(takes("^=eth0", "eth01") && !takes("^=eth0", "eth0"));
        for wrong in ["", "=", "^", "eth0,", "a b", "eth0;eth1/"] {
            assert_eq!(Choice::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn port_ranges_are_lists_of_ports_and_ranges() {
        assert_eq!(
            port_ranges("60000-60050,7"),
            Some(vec![(60_000, 60_050), (7, 7)])
        );
        for wrong in ["", "auto", "5-4", "0", "70000", "1-2-3", "1,,2"] {
            assert_eq!(port_ranges(wrong), None, "{wrong}");
        }
    }
}
