//! Whether a container got everything that a device needs.

use super::super::system::listed;
use super::super::{Finding, Problem, System};

/// What makes this a container, if it is one.
pub(super) fn container(system: &System) -> Option<&'static str> {
    for (file, what) in [
        ("/.dockerenv", "/.dockerenv"),
        ("/run/.containerenv", "/run/.containerenv"),
        (
            "/var/run/secrets/kubernetes.io",
            "/var/run/secrets/kubernetes.io",
        ),
    ] {
        if system.exists(file) {
            return Some(what);
        }
    }
    if system.text("KUBERNETES_SERVICE_HOST").is_some() {
        return Some("KUBERNETES_SERVICE_HOST is set");
    }
    let groups = system.read("/proc/self/cgroup").unwrap_or_default();
    ["docker", "kubepods", "containerd", "libpod"]
        .iter()
        .any(|mark| groups.contains(mark))
        .then_some("/proc/self/cgroup")
}

pub(super) fn judge(system: &System) -> Finding {
    let Some(mark) = container(system) else {
        return Finding::skip("not in a container");
    };
    let devices = system.devices();
    let promised = system.text("ASCEND_VISIBLE_DEVICES").is_some();
    if devices.is_empty() && !promised {
        return Finding::skip("a container without Ascend devices");
    }
    let mut problems = Vec::new();
    if devices.is_empty() {
        problems.push(Problem::fail(
            "ASCEND_VISIBLE_DEVICES is set and the container has no /dev/davinci node",
            format!("container by {mark}; no /dev/davinci*"),
            "start it with the Ascend container runtime (docker run --runtime=ascend), or pass --device=/dev/davinci0 and so on",
        ));
    }
    let missing = super::devices::missing_managers(system);
    if !missing.is_empty() {
        let flags: Vec<String> = missing
            .iter()
            .map(|node| format!("--device={node}"))
            .collect();
        problems.push(Problem::fail(
            format!("the container lacks {}", listed(&missing)),
            format!("container by {mark}; /dev has no {}", listed(&missing)),
            format!("docker run {}", flags.join(" ")),
        ));
    }
    let mounts = [
        "/usr/local/Ascend/driver/lib64",
        "/usr/local/Ascend/driver/version.info",
    ];
    let absent: Vec<&str> = mounts
        .into_iter()
        .filter(|path| !system.exists(path))
        .collect();
    if !absent.is_empty() {
        let flags: Vec<String> = absent
            .iter()
            .map(|path| format!("-v {path}:{path}:ro"))
            .collect();
        problems.push(Problem::fail(
            format!(
                "the driver is not mounted into the container: {} is missing",
                listed(&absent)
            ),
            format!("container by {mark}; no {}", listed(&absent)),
            format!("docker run {}", flags.join(" ")),
        ));
    }
    let tool = ["/usr/local/bin/npu-smi", "/usr/local/sbin/npu-smi"];
    if absent.is_empty() && !tool.iter().any(|path| system.exists(path)) {
        problems.push(Problem::warn(
            "npu-smi is not in the container, so nobody can look at the devices from inside",
            format!("neither {} nor {}", tool[0], tool[1]),
            format!("docker run -v {0}:{0}:ro", tool[0]),
        ));
    }
    Finding::of(problems, || {
        Finding::ok(
            "the container has devices, managing nodes and the driver",
            format!("container by {mark}"),
        )
    })
}
