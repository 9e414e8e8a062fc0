//! Broken hosts, each with one thing wrong: the check, how bad it is, who is to blame, what to do.

mod ascend;
mod host;
mod jobs;
mod network;
mod variables;

use muster_harness::doctor::{CHECKS, Status};

use crate::host::Host;

/// A way to break a host, and what must be said about it.
struct Broken {
    id: &'static str,
    status: Status,
    /// Words that the finding must hold: the culprit.
    culprit: &'static [&'static str],
    /// A word that the remedy must hold: the fix.
    fix: &'static str,
    how: fn(&mut Host),
}

const fn broken(
    id: &'static str,
    status: Status,
    culprit: &'static [&'static str],
    fix: &'static str,
    how: fn(&mut Host),
) -> Broken {
    Broken {
        id,
        status,
        culprit,
        fix,
        how,
    }
}

/// Another process, that is visible in full.
fn process(host: &mut Host) {
    host.file("/proc/4711/stat", "4711 (python3) S 1 1 1 0\n")
        .file("/proc/4711/cmdline", "python3\0train.py\0")
        .file("/proc/4711/maps", "");
}

fn all() -> impl Iterator<Item = &'static Broken> {
    [
        ascend::ASCEND,
        variables::VARIABLES,
        network::NETWORK,
        host::HOST,
        jobs::JOBS,
    ]
    .into_iter()
    .flatten()
}

#[test]
fn each_broken_host_is_told_by_its_check_with_culprit_and_fix() {
    let mut wrong = Vec::new();
    for case in all() {
        let mut host = Host::healthy();
        (case.how)(&mut host);
        let finding = host.judge(case.id);
        let (what, remedy) = (finding.what(), finding.remedy());
        let named = case.culprit.iter().all(|word| what.contains(word));
        let right = finding.status() == case.status && named && remedy.contains(case.fix);
        if !right || finding.evidence().is_empty() {
            wrong.push(format!(
                "{} wanted {:?} with {:?} and {:?}\n  got {:?}: {what}\n  seen: {}\n  do: {remedy}",
                case.id,
                case.status,
                case.culprit,
                case.fix,
                finding.status(),
                finding.evidence()
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_host_without_a_device_is_fit_and_says_what_runs_there() {
    let mut host = Host::healthy();
    host.without_npu();
    let devices = host.judge("devices");
    assert_eq!(devices.status(), Status::Skip);
    assert_eq!(
        devices.what(),
        "no Ascend device; the host backend is available"
    );
}

#[test]
fn every_check_has_a_broken_host_of_its_own() {
    // It needs libraries that load, and has its own in the tests of toolkits.
    let elsewhere = ["symbols"];
    for check in CHECKS {
        let has = all().any(|case| case.id == check.id) || elsewhere.contains(&check.id);
        assert!(has, "nothing breaks what {} looks at", check.id);
    }
    assert!(all().count() >= 75);
}

#[test]
fn values_of_unknown_variables_are_shown_nowhere() {
    let mut host = Host::healthy();
    for name in [
        "HCCL_SECRET_THING",
        "HCCL_CONECT_TIMEOUT",
        "RAY_TOKEN",
        "AWS_SECRET",
        "MUSTER_SECRTE",
    ] {
        host.set(name, "hush-hush");
    }
    for check in CHECKS {
        let finding = host.judge(check.id);
        let all = format!(
            "{}{}{}",
            finding.what(),
            finding.evidence(),
            finding.remedy()
        );
        assert!(!all.contains("hush"), "{}: {all}", check.id);
    }
}
