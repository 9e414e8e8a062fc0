//! Whether the parts of the toolkit, and all toolkits in use, are of one version.

use hccl_sys::version::{Toolkit, Version, VersionFile, oldest_driver, splits_libraries};

use super::super::system::listed;
use super::super::{Finding, Problem, System};

pub(super) fn judge(system: &System) -> Finding {
    let toolkits = system.toolkits();
    if toolkits.is_empty() {
        return Finding::skip("no CANN toolkit");
    }
    let mut problems = Vec::new();
    let mut seen = Vec::new();
    let mut by_variable: Vec<(&str, Version)> = Vec::new();
    for (root, how) in &toolkits {
        let toolkit = system.toolkit(root);
        problems.extend(mixture(system, root, &toolkit));
        if let Some((file, reason)) = toolkit.unreadable.first() {
            problems.push(Problem::warn(
                format!("{} states no readable version", system.shown(file)),
                reason.clone(),
                "install the toolkit again",
            ));
        }
        let Some((version, file)) = system.toolkit_version(root) else {
            if *how != "default installation" {
                problems.push(Problem::warn(
                    format!("the version of the toolkit {root} cannot be told"),
                    "no version.cfg, ascend_toolkit_install.info or version.info in it",
                    "check that the folder is the root of a toolkit",
                ));
            }
            continue;
        };
        if how.starts_with("ASCEND_") {
            by_variable.push((*how, version.clone()));
        }
        seen.push(format!("{root}: {version} ({file})"));
    }
    if let [(one, mine), (other, theirs)] = by_variable.as_slice()
        && mine != theirs
    {
        problems.push(Problem::fail(
            format!("{one} leads to CANN {mine} and {other} to CANN {theirs}"),
            seen.join("; "),
            "start from a fresh shell and source one set_env.sh only",
        ));
    }
    problems.extend(generations(system));
    problems.extend(old_driver(system));
    let driver = system.driver();
    if let Some(version) = &driver.version {
        seen.push(format!(
            "driver: {version} ({})",
            system.shown(&driver.path)
        ));
    }
    Finding::of(problems, || {
        let what = if seen.is_empty() {
            "no version is told anywhere"
        } else {
            "all parts of the toolkit are of one version"
        };
        Finding::ok(what, listed(&seen))
    })
}

/// A toolkit whose parts state different versions.
fn mixture(system: &System, root: &str, toolkit: &Toolkit) -> Option<Problem> {
    let stated = |file: &VersionFile| {
        let path = system.shown(&file.path);
        format!("{} ({path}: {})", file.package, file.version)
    };
    let (first, other) = toolkit.files.first().zip(toolkit.disagreeing().next())?;
    Some(Problem::fail(
        format!(
            "the toolkit {root} is a mixture: {} is {} and {} is {}",
            first.package, first.version, other.package, other.version
        ),
        format!("{}; {}", stated(first), stated(other)),
        "remove the toolkit and install one version in full",
    ))
}

/// From 8.5 on communicators are in a library of their own; before, there is none such.
fn generations(system: &System) -> Option<Problem> {
    let (root, _) = system.toolkits().into_iter().next()?;
    let (version, file) = system.toolkit_version(&root)?;
    let splits = splits_libraries(&version)?;
    let hcomm = format!("{root}/lib64/libhcomm.so");
    let hccl = format!("{root}/lib64/libhccl.so");
    if splits && system.exists(&hccl) && !system.exists(&hcomm) {
        return Some(Problem::fail(
            format!("CANN {version} keeps its communicators in libhcomm.so, which is missing"),
            format!("{file}: {version}; no {hcomm}"),
            "install the toolkit again; libraries of an older one may have been copied over it",
        ));
    }
    // The emulator answers to all names, whatever version it plays.
    if !splits && system.exists(&hcomm) && !version.is_emulated() {
        return Some(Problem::fail(
            format!(
                "CANN {version} has no libhcomm.so, yet one lies in its lib64: two versions are mixed"
            ),
            format!("{file}: {version}; {hcomm}"),
            "remove the toolkit and install one version in full",
        ));
    }
    None
}

/// A driver that is older than any that the vendor lists for the toolkit in use, or for an earlier one.
fn old_driver(system: &System) -> Option<Problem> {
    let (root, _) = system.toolkits().into_iter().next()?;
    let (cann, file) = system.toolkit_version(&root)?;
    let driver = system.driver();
    let version = driver.version?;
    let oldest = oldest_driver(&cann)?;
    let is_old = version < oldest.parse().ok()?;
    (is_old && !cann.is_emulated()).then(|| {
        Problem::fail(
            format!(
                "the driver {version} is too old for CANN {cann}: the vendor lists none before {oldest}"
            ),
            format!("{}: {version}; {file}: {cann}", system.shown(&driver.path)),
            format!("install the driver {oldest} or a later one, or an older toolkit"),
        )
    })
}
