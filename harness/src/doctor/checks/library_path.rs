//! Whether `LD_LIBRARY_PATH` leads to the toolkit that the variables name, and to real libraries.

use super::super::{Finding, Problem, System};

pub(super) fn judge(system: &System) -> Finding {
    if system.text("LD_LIBRARY_PATH").is_none() {
        if system.devices().is_empty() || system.toolkits().is_empty() {
            return Finding::skip("LD_LIBRARY_PATH is not set");
        }
        return Problem::warn(
            "LD_LIBRARY_PATH is not set, so programs that link HCCL will not find it",
            "LD_LIBRARY_PATH is not set",
            "source the toolkit's set_env.sh",
        )
        .into();
    }
    let folders: Vec<&str> = system.library_folders().collect();
    let mut problems = Vec::new();
    for (position, folder) in folders.iter().enumerate() {
        let is_stub = folder.trim_end_matches('/').ends_with("/stub");
        let holds = ["libascend_hal.so", "libascendcl.so", "libhccl.so"]
            .into_iter()
            .find(|name| system.exists(format!("{folder}/{name}")));
        if let Some(name) = holds.filter(|_| is_stub) {
            problems.push(Problem::fail(
                format!("LD_LIBRARY_PATH holds the stubs {folder}, whose {name} does nothing"),
                format!("LD_LIBRARY_PATH, folder {}", position + 1),
                format!("take {folder} out of LD_LIBRARY_PATH: it is for linking only"),
            ));
        }
    }
    let of_hccl = folders
        .iter()
        .find(|folder| system.exists(format!("{folder}/libhccl.so")));
    let home = ["ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"]
        .into_iter()
        .find_map(|name| Some((name, system.text(name)?)));
    if let (Some(folder), Some((name, home))) = (of_hccl, home) {
        let real = |path: &str| std::fs::canonicalize(system.path(path)).ok();
        let inside = real(folder)
            .zip(real(home))
            .is_some_and(|(folder, home)| folder.starts_with(home));
        if !inside && system.path(home).is_dir() {
            problems.push(Problem::fail(
                format!("LD_LIBRARY_PATH finds libhccl.so in {folder}, outside of {name}"),
                format!("{name}={home}; {folder}/libhccl.so"),
                format!("start from a fresh shell and source the set_env.sh of {home} only"),
            ));
        }
    }
    Finding::of(problems, || {
        Finding::ok(
            "LD_LIBRARY_PATH holds no stubs and no second toolkit",
            format!("{} folders", folders.len()),
        )
    })
}
