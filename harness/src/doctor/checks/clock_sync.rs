//! Whether somebody keeps this host's clock in step with that of others.

use super::super::{Finding, Problem, Status, System};

/// Names of programs that do, as the kernel cuts them.
const KEEPERS: [&str; 7] = [
    "chronyd",
    "ntpd",
    "openntpd",
    "phc2sys",
    "ptp4l",
    "systemd-timesyn",
    "ntpsec",
];

pub(super) fn judge(system: &System) -> Finding {
    if system.exists("/run/systemd/timesync/synchronized") {
        return Finding::ok(
            "the clock is in step",
            "/run/systemd/timesync/synchronized exists",
        );
    }
    let processes = system.processes();
    if let Some(keeper) = processes
        .iter()
        .find(|process| KEEPERS.contains(&process.name.as_str()))
    {
        return Finding::ok(
            format!("{} keeps the clock", keeper.called()),
            format!("/proc/{}", keeper.pid),
        );
    }
    // In a container the keeper runs outside, where it cannot be seen.
    let sees_host = processes
        .iter()
        .any(|process| process.pid == 2 && process.name == "kthreadd");
    if !sees_host {
        return Finding::skip("whoever keeps the clock cannot be seen from inside a container");
    }
    let several = super::host_name::several_hosts(system);
    if !several && system.devices().is_empty() {
        return Finding::ok(
            "nobody keeps the clock in step; one host alone does not need it",
            "no chronyd, ntpd or timesyncd runs",
        );
    }
    Problem::new(
        Status::Warn,
        "nobody keeps this host's clock in step: the logs of several hosts cannot be put in order",
        "no chronyd, ntpd, ptp4l or systemd-timesyncd runs",
        "systemctl enable --now chronyd",
    )
    .into()
}
