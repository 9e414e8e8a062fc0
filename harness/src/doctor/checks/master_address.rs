//! Whether the host where the ranks meet can be found.

use super::super::network::addresses;
use super::super::system::listed;
use super::super::{Finding, Problem, System};

pub(super) fn judge(system: &System) -> Finding {
    let Some(host) = system.text("MASTER_ADDR") else {
        return Finding::skip("MASTER_ADDR is not set");
    };
    let Some(resolved) = system.resolve(host) else {
        return Finding::skip(format!(
            "whether MASTER_ADDR {host} resolves is not told by files: it is not in /etc/hosts"
        ));
    };
    match resolved {
        Err(error) => Problem::fail(
            format!("MASTER_ADDR {host} cannot be resolved"),
            format!("MASTER_ADDR={host}; resolver: {error}"),
            "write its address into /etc/hosts, or set MASTER_ADDR to the address itself",
        )
        .into(),
        Ok(mut found) => {
            found.sort();
            found.dedup();
            let loopback = !found.is_empty() && found.iter().all(std::net::IpAddr::is_loopback);
            if loopback && super::host_name::several_hosts(system) {
                return Problem::fail(
                    format!("MASTER_ADDR {host} is loopback and there are several hosts: each would wait for itself"),
                    format!("MASTER_ADDR={host} resolves to {}", listed(&found)),
                    "set MASTER_ADDR to the address of rank 0's host that the others reach",
                )
                .into();
            }
            let own = addresses(system);
            let is_here = own.iter().any(|(address, _)| found.contains(address));
            let place = if is_here || loopback {
                "this host"
            } else {
                "another host"
            };
            Finding::ok(
                format!("MASTER_ADDR {host} is {place}"),
                format!("resolves to {}", listed(&found)),
            )
        }
    }
}
