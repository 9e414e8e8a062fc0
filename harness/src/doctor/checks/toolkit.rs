//! Whether the toolkit is found, and whether it is a real one.

use super::super::system::listed;
use super::super::{Finding, Problem, System};

pub(super) fn judge(system: &System) -> Finding {
    let mut problems = Vec::new();
    for name in ["ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "ASCEND_OPP_PATH"] {
        let Some(value) = system.text(name) else {
            continue;
        };
        if !system.path(value).is_dir() {
            problems.push(Problem::fail(
                format!("{name} leads to {value}, which is no folder"),
                format!("{name}={value}"),
                "source the set_env.sh of the toolkit that is installed, or unset the variable",
            ));
        }
    }
    let toolkits = system.toolkits();
    let Some((root, how)) = toolkits.first() else {
        if !system.devices().is_empty() {
            problems.push(Problem::fail(
                "there are devices and no CANN toolkit",
                "neither ASCEND_HOME_PATH nor /usr/local/Ascend leads to one",
                "install the toolkit, then: source /usr/local/Ascend/ascend-toolkit/set_env.sh",
            ));
        }
        return Finding::of(problems, || {
            Finding::skip("no CANN toolkit, and no device to need one")
        });
    };
    let lib64 = format!("{root}/lib64");
    if !system.path(&lib64).is_dir() {
        problems.push(Problem::fail(
            format!("the toolkit {root} has no lib64"),
            format!("{lib64} is no folder; the toolkit was found by {how}"),
            "let the variable name the folder that holds lib64, as set_env.sh does",
        ));
    }
    let set = ["ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"]
        .iter()
        .any(|name| system.text(name).is_some());
    if !set {
        problems.push(Problem::warn(
            format!("the toolkit {root} is installed and this shell is not set up for it"),
            "ASCEND_HOME_PATH and ASCEND_TOOLKIT_HOME are not set",
            format!("source {}/set_env.sh", set_env_folder(system, root)),
        ));
    }
    let emulated = if system.emulated() { "emulated " } else { "" };
    Finding::of(problems, || {
        let version = system
            .toolkit_version(root)
            .map(|(version, _)| format!(" {version}"));
        Finding::ok(
            format!(
                "{emulated}toolkit{} found in {root}",
                version.unwrap_or_default()
            ),
            format!(
                "by {}",
                listed(toolkits.iter().map(|(root, how)| format!("{how}: {root}")))
            ),
        )
    })
}

/// The script lies in the toolkit, or above the version.
fn set_env_folder<'a>(system: &System, root: &'a str) -> &'a str {
    if system.exists(format!("{root}/set_env.sh")) {
        return root;
    }
    root.rsplit_once('/').map_or(root, |(above, _)| above)
}
