//! Whether ranks may use processors near their devices.

use std::collections::BTreeMap;

use muster_comm::processors::CpuList;

use super::super::npus::Npu;
use super::super::system::{count, listed};
use super::super::{Finding, Problem, System};

pub(super) fn judge(system: &System) -> Finding {
    let npus = system.npus();
    if npus.is_empty() {
        return Finding::skip("no Ascend device on the PCI bus");
    }
    let nodes = system.read("/sys/devices/system/node/online");
    let nodes = nodes.and_then(|text| CpuList::parse(&text));
    if nodes.is_none_or(|nodes| nodes.count() < 2) {
        return Finding::ok("one memory node, near to all devices", evidence(&npus));
    }
    let usable = system.topology().cpus();
    let mut problems = Vec::new();
    let silent: Vec<&str> = npus
        .iter()
        .filter(|npu| npu.node.is_none())
        .map(|npu| npu.address.as_str())
        .collect();
    if !silent.is_empty() {
        problems.push(Problem::warn(
            format!(
                "the firmware does not tell near which memory node {} of {} are",
                silent.len(),
                count(npus.len() as u64, "device")
            ),
            format!("numa_node is -1 at {}", listed(&silent)),
            "switch NUMA on in the firmware's setup; give a virtual machine its devices together with their memory node",
        ));
    }
    for (node, of_node) in by_node(&system.own_npus()) {
        let near = system.cpus_of_node(node);
        if near.is_empty() || usable.is_empty() || !near.common(&usable).is_empty() {
            continue;
        }
        problems.push(Problem::warn(
            format!(
                "{} at memory node {node}, and CPUs {usable} may be used, none of which is: all transfers cross the host",
                are(&of_node)
            ),
            format!("CPUs {near} are at memory node {node}; {}", evidence(&npus)),
            format!("bind the ranks of these devices to CPUs {near}: numactl --cpunodebind={node}, srun --cpu-bind, mpirun --map-by numa"),
        ));
    }
    Finding::of(problems, || {
        Finding::ok("CPUs near to each device may be used", evidence(&npus))
    })
}

/// Numbers of devices by memory node.
fn by_node(npus: &[Npu]) -> BTreeMap<u32, CpuList> {
    let mut nodes: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for npu in npus {
        if let Some(node) = npu.node {
            nodes.entry(node).or_default().push(npu.number);
        }
    }
    let list = |(node, numbers): (u32, Vec<u32>)| (node, numbers.into_iter().collect());
    nodes.into_iter().map(list).collect()
}

fn are(numbers: &CpuList) -> String {
    if numbers.count() == 1 {
        format!("device {numbers} is")
    } else {
        format!("devices {numbers} are")
    }
}

fn evidence(npus: &[Npu]) -> String {
    let nodes = by_node(npus);
    let parts = nodes
        .iter()
        .map(|(node, numbers)| format!("{} at memory node {node}", are(numbers)));
    let parts: Vec<String> = parts.collect();
    let told = if parts.is_empty() {
        count(npus.len() as u64, "device")
    } else {
        parts.join(", ")
    };
    format!("{told} (numbered by PCI address)")
}
