//! Hosts that are files in a map.

use super::*;

/// A host by what its files hold.
struct Host(BTreeMap<String, String>);

impl Host {
    /// Nodes with these processors; hardware threads of a core are `stride` apart, where there are two.
    fn of(nodes: &[&str], stride: Option<u32>) -> Self {
        let mut host = Self(BTreeMap::new());
        let cpus: CpuList = nodes
            .iter()
            .flat_map(|cpus| CpuList::parse(cpus).unwrap().numbers().collect::<Vec<_>>())
            .collect();
        for (number, cpus) in nodes.iter().enumerate() {
            host.set(&format!("{NODES}/node{number}/cpulist"), cpus);
        }
        let last = nodes.len() - 1;
        host.set(&format!("{NODES}/online"), &format!("0-{last}"));
        host.set(&format!("{NODES}/has_memory"), &format!("0-{last}"));
        for cpu in cpus.numbers() {
            let first = stride.map_or(cpu, |stride| cpu % stride);
            let threads = stride.map_or_else(
                || cpu.to_string(),
                |stride| format!("{first},{}", first + stride),
            );
            let file = format!("{PROCESSORS}/cpu{cpu}/topology/thread_siblings_list");
            host.set(&file, &threads);
        }
        host.set(&format!("{PROCESSORS}/online"), &cpus.to_string());
        host.set(
            "/proc/self/status",
            &format!("Name:\tx\nCpus_allowed_list:\t{cpus}\n"),
        );
        host
    }

    /// Four nodes with 48 cores each.
    fn kunpeng() -> Self {
        Self::of(&["0-47", "48-95", "96-143", "144-191"], None)
    }

    fn set(&mut self, path: &str, text: &str) {
        self.0.insert(path.to_owned(), format!("{text}\n"));
    }

    fn seen(&self) -> Topology {
        Topology::seen(&|path| self.0.get(path).cloned())
    }

    /// Node and processors of each rank, in one line.
    fn places(&self, bind: Bind, ranks: usize) -> String {
        let places = self.seen().places(bind, ranks);
        assert!(places.len() == ranks || bind == Bind::None);
        let place = |place: &Place| format!("{}:{}", place.node, place.cpus);
        places.iter().map(place).collect::<Vec<_>>().join(" ")
    }
}

#[test]
fn one_node_of_two_cores_has_a_core_for_each_of_two_ranks() {
    let host = Host::of(&["0-1"], None);
    assert_eq!(host.places(Bind::Core, 2), "0:0 0:1");
    assert_eq!(host.places(Bind::Core, 3), "0:0 0:1 0:1");
    assert_eq!(host.places(Bind::Core, 4), "0:0 0:0 0:1 0:1");
    assert_eq!(host.places(Bind::Numa, 2), "0:0-1 0:0-1");
    assert_eq!(host.places(Bind::Share, 2), "0:0 0:1");
    assert_eq!(host.places(Bind::None, 2), "");
    assert_eq!(host.places(Bind::Core, 0), "");
}

#[test]
fn ranks_are_spread_evenly_over_four_nodes() {
    let host = Host::kunpeng();
    assert_eq!(host.seen().cores(), 192);
    let numa = "0:0-47 0:0-47 1:48-95 1:48-95 2:96-143 2:96-143 3:144-191 3:144-191";
    assert_eq!(host.places(Bind::Numa, 8), numa);
    assert_eq!(host.places(Bind::Numa, 2), "1:48-95 3:144-191");
    assert_eq!(
        host.places(Bind::Core, 8),
        "0:12 0:36 1:60 1:84 2:108 2:132 3:156 3:180"
    );
    assert_eq!(
        host.places(Bind::Share, 4),
        "0:0-47 1:48-95 2:96-143 3:144-191"
    );
    for ranks in 1..=400 {
        let cores = host.seen().places(Bind::Core, ranks);
        let nodes = host.seen().places(Bind::Numa, ranks);
        let on = |number| nodes.iter().filter(|place| place.node == number).count();
        let counts = [0, 1, 2, 3].map(on);
        let (most, least) = (counts.iter().max(), counts.iter().min());
        assert!(most.unwrap() - least.unwrap() <= 1, "{ranks}: {counts:?}");
        let mut users = BTreeMap::new();
        for (core, node) in cores.iter().zip(&nodes) {
            assert_eq!(core.node, node.node);
            assert!(node.cpus.includes(&core.cpus));
            *users.entry(core.cpus.to_string()).or_insert(0_usize) += 1;
        }
        assert!(users.values().all(|users| *users <= ranks.div_ceil(192)));
    }
}

#[test]
fn a_core_is_all_its_hardware_threads() {
    let host = Host::of(&["0-3,8-11", "4-7,12-15"], Some(8));
    assert_eq!(host.seen().cores(), 8);
    assert_eq!(host.places(Bind::Core, 4), "0:1,9 0:3,11 1:5,13 1:7,15");
    assert_eq!(
        host.places(Bind::Share, 8),
        "0:0,8 0:1,9 0:2,10 0:3,11 1:4,12 1:5,13 1:6,14 1:7,15"
    );
    assert_eq!(host.places(Bind::Numa, 2), "0:0-3,8-11 1:4-7,12-15");
}

#[test]
fn uneven_nodes_get_ranks_by_their_cores() {
    let host = Host::of(&["0-31", "32-127"], None);
    let places = host.places(Bind::Numa, 4);
    assert_eq!(places, "0:0-31 1:32-127 1:32-127 1:32-127");
    let host = Host::of(&["0", "1-3", "4-9"], None);
    assert_eq!(
        host.places(Bind::Core, 10),
        "0:0 1:1 1:2 1:3 2:4 2:5 2:6 2:7 2:8 2:9"
    );
}

#[test]
fn processors_that_are_offline_are_no_place() {
    let mut host = Host::kunpeng();
    host.set(&format!("{PROCESSORS}/online"), "0-9,48-95,100-191");
    assert_eq!(host.seen().cores(), 10 + 48 + 92);
    let places = host.seen().places(Bind::Numa, 15);
    assert_eq!(places.iter().filter(|place| place.node == 0).count(), 1);
    assert_eq!(places[0].cpus.to_string(), "0-9");
}

#[test]
fn a_node_without_memory_is_used_and_known_and_one_without_processors_is_not_used() {
    let mut host = Host::of(&["0-3", "4-7", ""], None);
    host.set(&format!("{NODES}/has_memory"), "0,2");
    let seen = host.seen();
    let nodes: Vec<_> = seen
        .nodes()
        .iter()
        .map(|node| (node.number, node.has_memory))
        .collect();
    assert_eq!(nodes, [(0, true), (1, false)]);
    assert_eq!(host.places(Bind::Numa, 2), "0:0-3 1:4-7");
}

#[test]
fn a_container_has_the_processors_of_its_cpuset() {
    let mut host = Host::kunpeng();
    host.set("/proc/self/cgroup", "0::/pods/one");
    host.set("/sys/fs/cgroup/cpuset.cpus.effective", "0-191");
    host.set("/sys/fs/cgroup/pods/one/cpuset.cpus.effective", "40-55");
    assert_eq!(host.places(Bind::Numa, 2), "0:40-47 1:48-55");
    // Seen from inside, where the group is the root of what is mounted.
    host.0
        .remove("/sys/fs/cgroup/pods/one/cpuset.cpus.effective");
    host.set("/sys/fs/cgroup/cpuset.cpus.effective", "100-103");
    assert_eq!(host.places(Bind::Core, 4), "2:100 2:101 2:102 2:103");
    // Of version 1.
    host.set("/proc/self/cgroup", "9:cpuset:/a\n4:cpu,cpuacct:/b");
    host.set("/sys/fs/cgroup/cpuset/a/cpuset.effective_cpus", "190-191");
    assert_eq!(host.places(Bind::Numa, 1), "3:190-191");
}

#[test]
fn a_mask_is_never_left() {
    let mut host = Host::kunpeng();
    host.set("/proc/self/status", "Cpus_allowed_list:\t46-49");
    assert_eq!(host.places(Bind::Numa, 2), "0:46-47 1:48-49");
    assert_eq!(host.places(Bind::Core, 2), "0:47 1:49");
    assert_eq!(host.seen().cpus().to_string(), "46-49");
}

#[test]
fn a_host_that_tells_nothing_is_one_node_of_cores() {
    let mut host = Host(BTreeMap::new());
    assert_eq!(host.seen(), Topology::default());
    assert_eq!(host.seen().places(Bind::Core, 2), []);
    host.set("/proc/self/status", "Cpus_allowed_list:\t2-3");
    assert_eq!(host.places(Bind::Core, 2), "0:2 0:3");
    // A node that lacks one of them is not believed.
    host.set(&format!("{NODES}/online"), "0");
    host.set(&format!("{NODES}/node0/cpulist"), "0-2");
    assert_eq!(host.places(Bind::Numa, 2), "0:2-3 0:2-3");
}
