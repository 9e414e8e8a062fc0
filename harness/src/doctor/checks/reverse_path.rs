//! Whether answers that come in by another interface are thrown away.

use super::super::network::interfaces;
use super::super::system::listed;
use super::super::{Finding, Problem, System};

const FOLDER: &str = "/proc/sys/net/ipv4/conf";

pub(super) fn judge(system: &System) -> Finding {
    let mut up = interfaces(system);
    up.retain(|interface| {
        let v4 = interface.addresses.iter().any(std::net::IpAddr::is_ipv4);
        interface.is_up() && !interface.is_loopback() && v4
    });
    if up.len() < 2 {
        return Finding::skip("fewer than two interfaces with an address");
    }
    let all = system
        .number(format!("{FOLDER}/all/rp_filter"))
        .unwrap_or(0);
    // The kernel takes the higher of the two.
    let strict: Vec<String> = up
        .iter()
        .filter(|interface| {
            let own = system.number(format!("{FOLDER}/{}/rp_filter", interface.name));
            all.max(own.unwrap_or(0)) == 1
        })
        .map(|interface| interface.name.clone())
        .collect();
    let evidence = format!(
        "{FOLDER}/all/rp_filter: {all}; up: {}",
        listed(up.iter().map(|interface| interface.shown()))
    );
    if strict.is_empty() {
        return Finding::ok("no interface filters by the way back", evidence);
    }
    Problem::warn(
        format!(
            "{} drops packets whose way back leads over another interface (strict rp_filter)",
            listed(&strict)
        ),
        evidence,
        "sysctl -w net.ipv4.conf.all.rp_filter=2",
    )
    .into()
}
