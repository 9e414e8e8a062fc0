//! Whether this host's name leads to an address that others can reach.

use muster_comm::launch::Detected;

use super::super::network::used;
use super::super::system::listed;
use super::super::{Finding, Problem, Status, System};

/// Whether the launcher says that there is more than one host.
pub(super) fn several_hosts(system: &System) -> bool {
    match system.launched() {
        Ok(Detected::Identity(identity)) => identity.nnodes.is_some_and(|nodes| nodes > 1),
        Ok(Detected::PerNode(node)) => node.nnodes.is_some_and(|nodes| nodes > 1),
        Ok(Detected::Standalone { .. }) | Err(_) => false,
    }
}

pub(super) fn judge(system: &System) -> Finding {
    let Some(name) = system
        .read("/proc/sys/kernel/hostname")
        .filter(|name| !name.is_empty())
    else {
        return Finding::skip("/proc/sys/kernel/hostname does not tell the name");
    };
    // One host alone needs no name that others understand.
    let status = if several_hosts(system) {
        Status::Fail
    } else {
        Status::Warn
    };
    let own = used(system)
        .into_iter()
        .flat_map(|interface| interface.addresses)
        .find(|address| address.is_ipv4() && !address.is_loopback())
        .map_or_else(|| "ADDRESS".to_owned(), |address| address.to_string());
    let remedy = format!(
        "write the address of the interface between the hosts into /etc/hosts: {own} {name}"
    );
    let Some(resolved) = system.resolve(&name) else {
        return Finding::skip(format!(
            "whether the host name {name} resolves is not told by files: it is not in /etc/hosts"
        ));
    };
    match resolved {
        Err(error) => Problem::new(
            status,
            format!("the host name {name} cannot be resolved"),
            format!("resolver: {error}"),
            remedy,
        )
        .into(),
        Ok(mut addresses) => {
            addresses.sort();
            addresses.dedup();
            if addresses.iter().all(std::net::IpAddr::is_loopback) {
                return Problem::new(
                    status,
                    format!("the host name {name} leads to loopback only, so other hosts told this name call themselves"),
                    format!("{name} resolves to {}", listed(&addresses)),
                    remedy,
                )
                .into();
            }
            Finding::ok(
                format!("the host name {name} resolves"),
                format!("to {}", listed(&addresses)),
            )
        }
    }
}
