//! Whether Ray offers the devices, and whether it will renumber them behind a job's back.

use super::super::system::count;
use super::super::{Finding, Problem, Process, System};

/// With this Ray leaves the mask alone.
pub(super) const FLAG: &str = "RAY_EXPERIMENTAL_NOSET_ASCEND_RT_VISIBLE_DEVICES";

pub(super) fn judge(system: &System) -> Finding {
    let by_variable = system
        .environment()
        .names()
        .find(|name| name.starts_with("RAY_") && *name != FLAG)
        .map(|name| format!("{name} is set"));
    let mut processes = system.processes().iter();
    let raylet = processes.find(|process| process.name == "raylet");
    let runs = || Some(format!("{} runs", raylet?.called()));
    let flag = system.text(FLAG);
    if let Some(value) = flag.filter(|value| *value != "1") {
        return Problem::warn(
            format!("{FLAG} is {value:?}; only 1 is sure to be taken for yes"),
            format!("{FLAG}={value}"),
            format!("export {FLAG}=1 before `ray start`, or unset it"),
        )
        .into();
    }
    let Some(evidence) = by_variable.or_else(runs) else {
        return Finding::skip("no Ray here");
    };
    if let Some(problem) = raylet.and_then(|raylet| offers_others(system, raylet)) {
        return problem.into();
    }
    if flag.is_some() {
        return Finding::ok(
            "Ray leaves ASCEND_RT_VISIBLE_DEVICES alone",
            format!("{FLAG}=1; {evidence}"),
        );
    }
    if system.devices().is_empty() {
        return Finding::skip("Ray is here, and no Ascend device that it could renumber");
    }
    Problem::warn(
        "Ray sets ASCEND_RT_VISIBLE_DEVICES anew in each actor, so ids that a program sets itself are read as logical ones",
        format!("{evidence}; {FLAG} is not set"),
        format!("export {FLAG}=1 before `ray start` on every host, if the program chooses devices itself"),
    )
    .into()
}

/// A raylet that offers more devices than there are, or none.
fn offers_others(system: &System, raylet: &Process) -> Option<Problem> {
    let devices = system.devices().len() as u64;
    let line = system
        .try_read(format!("/proc/{}/cmdline", raylet.pid))
        .ok()?;
    let offers = line
        .split('\0')
        .find_map(|word| word.strip_prefix("--static_resource_list="))?;
    let offered = npus(offers);
    let evidence = format!("{}: --static_resource_list={offers}", raylet.called());
    let remedy = format!("ray stop, then ray start --resources='{{\"NPU\": {devices}}}'");
    if offered > devices {
        return Some(Problem::fail(
            format!(
                "Ray offers {offered} NPUs on this host, which has {}",
                count(devices, "device")
            ),
            evidence,
            remedy,
        ));
    }
    (offered == 0 && devices > 0).then(|| {
        Problem::warn(
            format!(
                "Ray offers no NPU on this host, which has {}: actors that ask for one wait for ever",
                count(devices, "device")
            ),
            evidence,
            remedy,
        )
    })
}

/// The number of NPUs in a list such as `CPU,8.0,NPU,8.0`.
fn npus(offers: &str) -> u64 {
    let mut words = offers.split(',');
    let number = words
        .position(|word| word == "NPU")
        .and_then(|_| words.next());
    let whole = number.and_then(|number| number.split('.').next());
    whole.and_then(|number| number.parse().ok()).unwrap_or(0)
}
