//! Whether the interfaces in use agree about the size of packets.

use super::super::network::used;
use super::super::system::listed;
use super::super::{Finding, Problem, System};

/// The least that every network has to carry for IPv6; overlays of clouds stay above it.
const LEAST: u64 = 1280;

pub(super) fn judge(system: &System) -> Finding {
    let mut used = used(system);
    used.retain(|interface| interface.is_up() && !interface.is_loopback());
    if system.text("HCCL_SOCKET_IFNAME").is_none() {
        // By default only the first one is taken.
        used.truncate(1);
    }
    let Some(first) = used.first() else {
        return Finding::skip("no interface but loopback is in use");
    };
    let seen = listed(
        used.iter()
            .map(|interface| format!("/sys/class/net/{}/mtu: {}", interface.name, interface.mtu)),
    );
    let mut problems = Vec::new();
    if let Some(other) = used.iter().find(|other| other.mtu != first.mtu) {
        problems.push(Problem::warn(
            format!(
                "{} has MTU {} and {} has {}: large packets get lost where they meet",
                first.name, first.mtu, other.name, other.mtu
            ),
            seen.clone(),
            format!(
                "ip link set {} mtu {} on all hosts alike",
                other.name, first.mtu
            ),
        ));
    }
    if let Some(small) = used.iter().find(|interface| interface.mtu < LEAST) {
        problems.push(Problem::warn(
            format!(
                "{} has MTU {}, less than any network needs ({LEAST})",
                small.name, small.mtu
            ),
            seen.clone(),
            format!(
                "ip link set {} mtu {LEAST}, if the network carries it (ping -M do -s {} PEER)",
                small.name,
                LEAST - 28
            ),
        ));
    }
    Finding::of(problems, || {
        Finding::ok(
            format!(
                "{} has MTU {}",
                listed(used.iter().map(|interface| &interface.name)),
                first.mtu
            ),
            seen,
        )
    })
}
