//! Whether torch and torch_npu are of one version, and made for the toolkit.

use hccl_sys::version::{Version, cann_of_package, goes_with, torch_npu_of};

use super::super::python::package;
use super::super::{Finding, Problem, System};

pub(super) fn judge(system: &System) -> Finding {
    let Some((npu, npu_at)) = package(system, "torch_npu") else {
        return Finding::skip("torch_npu is not installed");
    };
    let Some((torch, torch_at)) = package(system, "torch") else {
        return Problem::fail(
            "torch_npu is installed without torch",
            npu_at,
            format!("pip install torch=={}", numbers(&npu)),
        )
        .into();
    };
    let evidence = format!("{torch_at}; {npu_at}");
    if numbers(&torch) != numbers(&npu) {
        return Problem::fail(
            format!(
                "torch_npu {npu} needs torch {}, and torch {torch} is installed",
                numbers(&npu)
            ),
            evidence,
            format!("pip install torch=={}", numbers(&npu)),
        )
        .into();
    }
    if system.toolkits().is_empty() {
        return Problem::warn(
            format!("torch_npu {npu} is installed and there is no CANN toolkit for it"),
            evidence,
            "install the toolkit that this torch_npu was made for (its release notes name it)",
        )
        .into();
    }
    let cann = system.toolkits().into_iter().next();
    let cann = cann.and_then(|(root, _)| system.toolkit_version(&root));
    if let Some((cann, file)) = &cann
        && let Some(made_for) = cann_of_package(&npu)
        && made_for
            .parse::<Version>()
            .is_ok_and(|made_for| !goes_with(&made_for, cann))
    {
        return Problem::warn(
            format!(
                "torch_npu {npu} was made for CANN {made_for}, and the toolkit is {cann}: CANN 8.5.0 and later need a torch_npu made for them, and that one needs them"
            ),
            format!("{npu_at}; {file}"),
            format!("install CANN {made_for}, or a torch_npu made for CANN {cann}"),
        )
        .into();
    }
    let release = cann.and_then(|(version, _)| {
        let release = torch_npu_of(&version)?;
        Some(format!(
            "; CANN {version} goes with release {release} of torch_npu"
        ))
    });
    Finding::ok(
        format!("torch {torch} and torch_npu {npu} are of one version"),
        format!("{evidence}{}", release.unwrap_or_default()),
    )
}

/// `2.5.1.post1` and `2.5.1+cpu` are both 2.5.1.
fn numbers(version: &str) -> String {
    let plain = version.split('+').next().unwrap_or_default();
    let parts = plain
        .split('.')
        .take_while(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
    parts.take(3).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    #[test]
    fn builds_of_one_release_are_one_version() {
        assert_eq!(super::numbers("2.5.1.post1"), "2.5.1");
        assert_eq!(super::numbers("2.5.1+cpu"), "2.5.1");
    }
}
