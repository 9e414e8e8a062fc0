//! Where a root listens: loopback, unless a variable names an address or an interface.

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::fail::{Answer, EI0001, Fail};
use super::settings::Settings;
use hccl_sys::types::HcclResult;

/// An address of this host, and the interface that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostAddress {
    pub(crate) interface: String,
    pub(crate) ip: IpAddr,
}

/// The address at which a root of this process is to be found.
pub(crate) fn host_address(settings: &Settings) -> Answer<HostAddress> {
    let all = interfaces();
    if let Some(ip) = settings.if_ip {
        let known = all.into_iter().find(|address| address.ip == ip);
        // An address that no interface has is found out when it is bound.
        return Ok(known.unwrap_or(HostAddress {
            interface: "unknown".to_owned(),
            ip,
        }));
    }
    let Some(allowed) = &settings.interfaces else {
        let ip = if settings.wants_ipv6 {
            IpAddr::V6(Ipv6Addr::LOCALHOST)
        } else {
            IpAddr::V4(Ipv4Addr::LOCALHOST)
        };
        let interface = "lo".to_owned();
        return Ok(HostAddress { interface, ip });
    };
    let names: Vec<String> = all
        .iter()
        .map(|address| address.interface.clone())
        .collect();
    let fits = |address: &HostAddress| {
        allowed.allows(&address.interface) && address.ip.is_ipv6() == settings.wants_ipv6
    };
    all.into_iter().find(fits).ok_or_else(|| {
        let text = format!(
            "environment variable HCCL_SOCKET_IFNAME is {:?} and no interface with an address of the wanted family matches; there are: {}",
            allowed.text(),
            names.join(", ")
        );
        Fail::new(HcclResult::HCCL_E_PARA, EI0001, text)
    })
}

/// All addresses of interfaces that are up, by name: docker's behind the others, loopback last.
fn interfaces() -> Vec<HostAddress> {
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: `list` is a place for the pointer, which the call fills or leaves alone.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut at = list;
    while !at.is_null() {
        // SAFETY: `at` is an entry of the list that getifaddrs made and nobody has freed yet.
        let entry = unsafe { &*at };
        found.extend(address_of(entry));
        at = entry.ifa_next;
    }
    // SAFETY: the list is getifaddrs' own and is not used after this.
    unsafe { libc::freeifaddrs(list) };
    let order = |address: &HostAddress| match address.interface.as_str() {
        "lo" => 2,
        name if name.starts_with("docker") => 1,
        _ => 0,
    };
    found.sort_by(|a, b| (order(a), &a.interface).cmp(&(order(b), &b.interface)));
    found
}

fn address_of(entry: &libc::ifaddrs) -> Option<HostAddress> {
    let is_up = entry.ifa_flags & u32::try_from(libc::IFF_UP).unwrap_or(0) != 0;
    if !is_up || entry.ifa_addr.is_null() || entry.ifa_name.is_null() {
        return None;
    }
    // SAFETY: the name of an entry is a text with an end, and lives as long as the list.
    let name = unsafe { CStr::from_ptr(entry.ifa_name) };
    // SAFETY: the address of an entry has a family at its begin, whatever follows.
    let family = i32::from(unsafe { (*entry.ifa_addr).sa_family });
    let ip = match family {
        libc::AF_INET => {
            let address = entry.ifa_addr.cast::<libc::sockaddr_in>();
            // SAFETY: the family says that a `sockaddr_in` lies there; it need not be aligned.
            let address = unsafe { address.read_unaligned() };
            IpAddr::V4(Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes()))
        }
        libc::AF_INET6 => {
            let address = entry.ifa_addr.cast::<libc::sockaddr_in6>();
            // SAFETY: the family says that a `sockaddr_in6` lies there; it need not be aligned.
            let address = unsafe { address.read_unaligned() };
            IpAddr::V6(Ipv6Addr::from(address.sin6_addr.s6_addr))
        }
        _ => return None,
    };
    Some(HostAddress {
        interface: name.to_string_lossy().into_owned(),
        ip,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_among_the_interfaces_and_last() {
        let all = interfaces();
        let last = all.last().expect("every host has a loopback interface");
        assert_eq!(last.interface, "lo");
        assert!(all.iter().any(|address| address.ip.is_loopback()));
    }
}
