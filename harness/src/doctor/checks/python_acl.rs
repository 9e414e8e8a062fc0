//! Whether Python finds the toolkit's `acl` module.

use super::super::python::{interpreter, python_path};
use super::super::{Finding, Problem, System};

pub(super) fn judge(system: &System) -> Finding {
    let Some(python) = interpreter(system) else {
        return Finding::skip("no Python in PATH");
    };
    let toolkits = system.toolkits();
    let Some((root, _)) = toolkits.first() else {
        return Finding::skip("no CANN toolkit");
    };
    let holds_acl = |folder: &str| {
        system.exists(format!("{folder}/acl.so"))
            || system.exists(format!("{folder}/acl/__init__.py"))
            || system
                .names(folder)
                .iter()
                .any(|name| name.starts_with("acl.") && name.ends_with(".so"))
    };
    let own = [
        "python/site-packages",
        "pyACL/python/site-packages/acl",
        "python/site-packages/acl",
    ]
    .map(|folder| format!("{root}/{folder}"));
    if let Some(folder) = python_path(system).iter().find(|folder| holds_acl(folder)) {
        if let Some(problem) = of_another(system, root, folder) {
            return problem.into();
        }
        return Finding::ok(
            "Python finds the acl module",
            format!("{folder}, by PYTHONPATH"),
        );
    }
    let Some(folder) = own.iter().find(|folder| holds_acl(folder)) else {
        return Finding::skip(format!("the toolkit {root} has no acl module for Python"));
    };
    Problem::warn(
        "Python will not find the toolkit's acl module: import acl and import torch_npu fail",
        format!("{python}; {folder} is not in PYTHONPATH"),
        format!("source the toolkit's set_env.sh, or: export PYTHONPATH={folder}:$PYTHONPATH"),
    )
    .into()
}

/// The folder of a toolkit that is not the one in use.
fn of_another(system: &System, root: &str, folder: &str) -> Option<Problem> {
    let real = |path: &str| std::fs::canonicalize(system.path(path)).ok();
    let own = real(root)?;
    if real(folder)?.starts_with(&own) {
        return None;
    }
    let above = std::path::Path::new(folder).ancestors().skip(1);
    let (other, version) = above.filter_map(std::path::Path::to_str).find_map(|path| {
        let (version, _) = system.toolkit_version(path)?;
        Some((path.to_owned(), version))
    })?;
    let in_use = system.toolkit_version(root);
    let in_use = in_use.map_or_else(String::new, |(version, _)| format!(" CANN {version}"));
    Some(Problem::fail(
        format!(
            "Python takes the acl module of CANN {version} in {other}, and the toolkit in use is{in_use} in {root}"
        ),
        format!("PYTHONPATH finds acl in {folder}"),
        format!("start from a fresh shell and source the set_env.sh of {root} only"),
    ))
}
