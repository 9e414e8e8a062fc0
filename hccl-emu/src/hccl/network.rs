//! Where a root listens: loopback, unless a variable names an address or an interface.

use std::ffi::CStr;
use std::mem::offset_of;
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
        return Ok(known.unwrap_or_else(|| HostAddress {
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
    // An address of either family lies behind the family and, of both, the port.
    let ip = match family {
        libc::AF_INET => {
            // SAFETY: the family says that a `sockaddr_in` lies there.
            let bytes =
                unsafe { bytes_at(entry.ifa_addr, offset_of!(libc::sockaddr_in, sin_addr)) };
            IpAddr::V4(Ipv4Addr::from(bytes))
        }
        libc::AF_INET6 => {
            let at = offset_of!(libc::sockaddr_in6, sin6_addr);
            // SAFETY: the family says that a `sockaddr_in6` lies there.
            let bytes: [u8; 16] = unsafe { bytes_at(entry.ifa_addr, at) };
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some(HostAddress {
        interface: name.to_string_lossy().into_owned(),
        ip,
    })
}

/// `N` bytes of an address.
///
/// # Safety
/// `N` bytes behind `at` can be read there.
unsafe fn bytes_at<const N: usize>(address: *const libc::sockaddr, at: usize) -> [u8; N] {
    // SAFETY: the caller vouches for the range.
    let start = unsafe { address.byte_add(at) };
    // SAFETY: as above; bytes have no alignment.
    unsafe { start.cast::<[u8; N]>().read() }
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
