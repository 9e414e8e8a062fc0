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
