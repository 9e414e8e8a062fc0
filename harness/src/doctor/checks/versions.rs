//! Whether the parts of the toolkit, and all toolkits in use, are of one version.

use super::super::system::listed;
use super::super::{Finding, Problem, System};
use super::{Check, Group};

pub(super) const CHECK: Check = Check {
    id: "versions",
    group: Group::Ascend,
    asks: "Do toolkit, its parts and the driver fit together?",
    judge,
};

fn judge(system: &System) -> Finding {
    let toolkits = system.toolkits();
    if toolkits.is_empty() {
        return Finding::skip("no CANN toolkit");
    }
    let mut problems = Vec::new();
    let mut seen = Vec::new();
    let mut by_variable: Vec<(String, String)> = Vec::new();
    for (root, how) in &toolkits {
        let parts = system.toolkit_parts(root);
        if let Some((first, rest)) = parts.split_first() {
            let other = rest.iter().find(|part| part.version != first.version);
            if let Some(other) = other {
                problems.push(Problem::fail(
                    format!(
                        "the toolkit {root} is a mixture: {} is {} and {} is {}",
                        first.name, first.version, other.name, other.version
                    ),
                    format!("{}; {}", first.file, other.file),
                    "remove the toolkit and install one version in full",
                ));
            }
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
            by_variable.push(((*how).to_owned(), version.clone()));
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
    let driver = super::driver::version(system);
    if let Some((version, file)) = &driver {
        seen.push(format!("driver: {version} ({file})"));
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

/// From 8.5 on communicators are in a library of their own; before, there is none such.
fn generations(system: &System) -> Option<Problem> {
    let (root, _) = system.toolkits().into_iter().next()?;
    let (version, file) = system.toolkit_version(&root)?;
    let (major, minor) = numbers(&version)?;
    let newer = (major, minor) >= (8, 5);
    let hcomm = format!("{root}/lib64/libhcomm.so");
    let hccl = format!("{root}/lib64/libhccl.so");
    if newer && system.exists(&hccl) && !system.exists(&hcomm) {
        return Some(Problem::fail(
            format!("CANN {version} keeps its communicators in libhcomm.so, which is missing"),
            format!("{file}: {version}; no {hcomm}"),
            "install the toolkit again; libraries of an older one may have been copied over it",
        ));
    }
    if !newer && system.exists(&hcomm) {
        return Some(Problem::fail(
            format!("CANN {version} has no libhcomm.so, yet one lies in its lib64: two versions are mixed"),
            format!("{file}: {version}; {hcomm}"),
            "remove the toolkit and install one version in full",
        ));
    }
    None
}

/// `8.1.RC1` begins with 8 and 1.
fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.trim_start_matches(['v', 'V']).split(['.', '-']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    #[test]
    fn versions_compare_as_numbers() {
        assert!(super::numbers("8.10.0") > super::numbers("8.5.0"));
        assert_eq!(super::numbers("8.1.RC1"), Some((8, 1)));
        assert_eq!(super::numbers("latest"), None);
    }
}
