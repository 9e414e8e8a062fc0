//! Whether there are devices, and as many as ranks.

use super::super::system::{count, listed};
use super::super::{Finding, Problem, System};

/// Nodes that every process needs beside its device, each with the name that old drivers use.
pub(super) const MANAGERS: [(&str, Option<&str>); 3] = [
    ("/dev/davinci_manager", Some("/dev/davinci_manager_docker")),
    ("/dev/devmm_svm", None),
    ("/dev/hisi_hdc", None),
];

/// Managing nodes that are missing.
pub(super) fn missing_managers(system: &System) -> Vec<&'static str> {
    MANAGERS
        .into_iter()
        .filter(|(name, other)| {
            !system.exists(name) && !other.is_some_and(|other| system.exists(other))
        })
        .map(|(name, _)| name)
        .collect()
}

pub(super) fn judge(system: &System) -> Finding {
    let devices = system.devices();
    if devices.is_empty() {
        return without(system);
    }
    let nodes = listed(devices.iter().map(|number| format!("/dev/davinci{number}")));
    let mut problems = Vec::new();
    let missing = missing_managers(system);
    if !missing.is_empty() {
        problems.push(Problem::fail(
            format!("no device can be used without {}, which {} missing", listed(&missing), if missing.len() == 1 { "is" } else { "are" }),
            format!("there are {nodes} and no {}", listed(&missing)),
            "load the driver (`npu-smi info` must list the devices); in a container pass the nodes in with --device",
        ));
    }
    let found = devices.len() as u64;
    if let Some(ranks) = system
        .ranks()
        .filter(|ranks| u64::from(ranks.count) > found)
    {
        problems.push(Problem::fail(
            format!(
                "{} are to run on {}: two on one device end with EJ0001",
                count(ranks.count, "rank"),
                count(found, "device")
            ),
            format!("{nodes}; ranks by {}", ranks.how),
            format!("start at most {found} ranks on this host"),
        ));
    }
    Finding::of(problems, || {
        Finding::ok(format!("{} found", count(found, "Ascend device")), nodes)
    })
}

/// No device: is one promised?
fn without(system: &System) -> Finding {
    let virtual_nodes: Vec<String> = system
        .names("/dev")
        .into_iter()
        .filter(|name| name.starts_with("vdavinci"))
        .collect();
    if let Some(first) = virtual_nodes.first() {
        return Problem::fail(
            format!("only virtual devices are here ({first}), and HCCL does not run on them"),
            format!("/dev: {}", virtual_nodes.join(" ")),
            "give the machine whole devices",
        )
        .into();
    }
    let promise = ["ASCEND_RT_VISIBLE_DEVICES", "ASCEND_VISIBLE_DEVICES"]
        .into_iter()
        .find_map(|name| Some((name, system.text(name)?)));
    if let Some((name, value)) = promise
        && value.contains(|c: char| c.is_ascii_digit())
        && !system.emulated()
    {
        return Problem::fail(
            format!("{name} names devices and there is no Ascend device here"),
            format!("{name}={value}; no /dev/davinci0 or any other"),
            format!(
                "unset {name} on a host without NPU; on one with NPUs load the driver, in a container pass the devices in"
            ),
        )
        .into();
    }
    if system.emulated() {
        return Finding::ok(
            "no Ascend device; the toolkit's devices are emulated",
            "no /dev/davinci*",
        );
    }
    Finding::skip("no Ascend device; the host backend is available")
}
