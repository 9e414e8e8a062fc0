//! Whether muster's own variables are known and well formed.

use muster_comm::config::Warning;

use super::super::{Finding, Problem, System};

pub(super) fn judge(system: &System) -> Finding {
    let mut problems = Vec::new();
    for error in system.environment().check().err().into_iter().flatten() {
        let text = error.to_string();
        let name = text.split(' ').next().unwrap_or_default().to_owned();
        problems.push(Problem::fail(
            text,
            format!("{name} is set"),
            format!("unset {name}, or see docs/environment.md"),
        ));
    }
    for warning in system.environment().warnings() {
        let Warning::UnknownVariable { name, suggestion } = &warning;
        // The emulator reads its own, which it documents.
        if name.starts_with("MUSTER_EMU_") {
            continue;
        }
        let remedy = suggestion.map_or_else(
            || format!("unset {name}"),
            |meant| format!("unset {name} and export {meant} instead"),
        );
        problems.push(Problem::warn(
            warning.to_string(),
            format!("{name} is set"),
            remedy,
        ));
    }
    let ours = system
        .environment()
        .names()
        .filter(|name| name.starts_with("MUSTER_"))
        .count();
    Finding::of(problems, || {
        Finding::ok(
            "muster's own variables are well formed",
            format!("{ours} are set"),
        )
    })
}
