//! The network interface on which a rank listens for ranks of other hosts, where the user names one.

use std::net::IpAddr;

use crate::config::InterfaceNames;

/// None of the named interfaces has an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "MUSTER_IFNAME is {:?}, and no interface of that name has an address; there are {there}",
    names.join(",")
)]
pub struct NoInterface {
    names: Vec<String>,
    there: String,
}

/// An interface with one of its addresses.
#[derive(Clone, Debug)]
struct Found {
    name: String,
    address: IpAddr,
    is_up: bool,
}

/// The address on which to listen: of the first interface that has one, of the rendezvous' version of IP where it has both.
///
/// # Errors
/// [`NoInterface`].
pub(super) fn address(names: &InterfaceNames, is_v6: bool) -> Result<IpAddr, NoInterface> {
    let all = if_addrs::get_if_addrs().unwrap_or_default();
    // An address of the link alone says nothing without its interface.
    let all = all.into_iter().filter(|one| !one.is_link_local());
    let found = all.map(|one| Found {
        address: one.ip(),
        is_up: one.is_oper_up() || one.is_loopback(),
        name: one.name,
    });
    choose(names, is_v6, &found.collect::<Vec<Found>>())
}

fn choose(names: &InterfaceNames, is_v6: bool, found: &[Found]) -> Result<IpAddr, NoInterface> {
    let of = |name: &String, is_up: bool| {
        let own = || found.iter().filter(|one| one.name == *name);
        let own = || own().filter(|one| one.is_up || !is_up);
        let best = own().find(|one| one.address.is_ipv6() == is_v6);
        best.or_else(|| own().next()).map(|one| one.address)
    };
    // An interface is down for a moment after it was set up.
    let any = |is_up| names.0.iter().find_map(|name| of(name, is_up));
    any(true).or_else(|| any(false)).ok_or_else(|| {
        let shown = |one: &Found| format!("{} ({})", one.name, one.address);
        let shown: Vec<String> = found.iter().map(shown).collect();
        NoInterface {
            names: names.0.clone(),
            there: if shown.is_empty() {
                "none".to_owned()
            } else {
                shown.join(", ")
            },
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    #[test]
    fn the_first_interface_that_has_an_address_is_taken() {
        let one = |name: &str, address: &str, is_up| Found {
            name: name.to_owned(),
            address: address.parse().unwrap(),
            is_up,
        };
        let found = [
            one("lo", "127.0.0.1", true),
            one("ib0", "10.1.0.2", false),
            one("eth0", "10.0.0.2", true),
            one("eth0", "fd00::2", true),
        ];
        let choose = |text: &str, is_v6| {
            let names = config::parse_interfaces(text).unwrap();
            choose(&names, is_v6, &found).map(|address| address.to_string())
        };
        assert_eq!(choose("eth0", false).unwrap(), "10.0.0.2");
        assert_eq!(choose("eth0", true).unwrap(), "fd00::2");
        assert_eq!(choose("ib0, eth0", false).unwrap(), "10.0.0.2");
        assert_eq!(choose("ib0", false).unwrap(), "10.1.0.2");
        assert_eq!(choose("lo", true).unwrap(), "127.0.0.1");
        assert_eq!(
            choose("ib1,eth", false).unwrap_err().to_string(),
            "MUSTER_IFNAME is \"ib1,eth\", and no interface of that name has an address; \
             there are lo (127.0.0.1), ib0 (10.1.0.2), eth0 (10.0.0.2), eth0 (fd00::2)"
        );
    }

    #[test]
    fn this_host_has_a_loopback() {
        let names = config::parse_interfaces("lo").unwrap();
        assert!(address(&names, false).unwrap().is_loopback());
    }
}
