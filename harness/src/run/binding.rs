//! To which processors ranks are bound, in words for people.

use muster_comm::processors::{Bind, CpuList, Place, Topology, is_bound_by_launcher};

use crate::out;

/// Says where the ranks go that are started here, if they are bound.
pub(super) fn announce(bind: Bind, ranks: u32) {
    if bind != Bind::None {
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online").ok();
        let online = online.and_then(|text| CpuList::parse(&text));
        out::note(&places(bind, ranks, &Topology::here(), online.as_ref()));
    }
}

/// Says that a rank of another launcher stays where that has put it, if it is to be bound and is already.
pub(super) fn announce_left_alone(bind: Bind, launcher: &str) {
    if bind != Bind::None && is_bound_by_launcher() {
        let own = CpuList::of_this_thread().unwrap_or_default();
        let bind = bind.name();
        out::note(&format!(
            "bind {bind}: ranks that {launcher} has bound stay there, this one on CPUs {own}"
        ));
    }
}

fn places(bind: Bind, ranks: u32, topology: &Topology, online: Option<&CpuList>) -> String {
    let places = topology.places(bind, ranks as usize);
    let mut parts = Vec::new();
    let mut first = 0;
    for together in places.chunk_by(|one, next| one.node == next.node) {
        let last = first + together.len() - 1;
        parts.push(of_node(first, last, together, topology));
        first = last + 1;
    }
    if parts.is_empty() {
        parts.push("the system does not tell the processors".to_owned());
    }
    let usable = topology.cpus();
    if let Some(online) = online.filter(|online| usable.is_part_of(online)) {
        parts.push(format!("of CPUs {online} only {usable} may be used"));
    }
    format!("bind {}: {}", bind.name(), parts.join("; "))
}

fn of_node(first: usize, last: usize, places: &[Place], topology: &Topology) -> String {
    let node = places[0].node;
    let cpus: CpuList = places
        .iter()
        .flat_map(|place| place.cpus.numbers())
        .collect();
    let who = if first == last {
        format!("rank {first}")
    } else {
        format!("ranks {first}-{last}")
    };
    let of_node = topology.nodes().iter().find(|one| one.number == node);
    let memory = if of_node.is_some_and(|node| node.has_memory) {
        ""
    } else {
        ", which has no memory of its own"
    };
    format!("{who} on CPUs {cpus} of memory node {node}{memory}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_names_ranks_processors_and_nodes() {
        let read = |path: &str| {
            let text = match path {
                "/proc/self/status" => "Cpus_allowed_list:\t0-5\n",
                "/sys/devices/system/node/online" => "0-1\n",
                "/sys/devices/system/node/has_memory" => "0\n",
                "/sys/devices/system/node/node0/cpulist" => "0-3\n",
                "/sys/devices/system/node/node1/cpulist" => "4-7\n",
                other => return other.strip_prefix("none").map(str::to_owned),
            };
            Some(text.to_owned())
        };
        let topology = Topology::seen(&read);
        let online = CpuList::parse("0-7");
        assert_eq!(
            places(Bind::Core, 3, &topology, online.as_ref()),
            "bind core: ranks 0-1 on CPUs 1,3 of memory node 0; rank 2 on CPUs 5 of memory node 1, \
             which has no memory of its own; of CPUs 0-7 only 0-5 may be used"
        );
        let nothing = Topology::seen(&|_| None);
        let said = places(Bind::Numa, 3, &nothing, None);
        assert!(said.contains("does not tell"), "{said}");
    }
}
