//! Whether Ray will renumber the devices behind a job's back.

use super::super::{Finding, Problem, System};

const FLAG: &str = "RAY_EXPERIMENTAL_NOSET_ASCEND_RT_VISIBLE_DEVICES";

pub(super) fn judge(system: &System) -> Finding {
    let by_variable = system
        .environment()
        .names()
        .find(|name| name.starts_with("RAY_") && *name != FLAG)
        .map(|name| format!("{name} is set"));
    let raylet = || {
        let process = system
            .processes()
            .iter()
            .find(|process| process.name == "raylet")?;
        Some(format!("{} runs", process.called()))
    };
    let flag = system.text(FLAG);
    if let Some(value) = flag.filter(|value| *value != "1") {
        return Problem::warn(
            format!("{FLAG} is {value:?}; only 1 is sure to be taken for yes"),
            format!("{FLAG}={value}"),
            format!("export {FLAG}=1 before `ray start`, or unset it"),
        )
        .into();
    }
    let Some(evidence) = by_variable.or_else(raylet) else {
        return Finding::skip("no Ray here");
    };
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
