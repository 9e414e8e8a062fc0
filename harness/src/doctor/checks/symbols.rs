//! Whether the libraries hold the calls that are needed.

use hccl_sys::headers::Headers;
use hccl_sys::search::Outcome;
use hccl_sys::symbols::Api;

use super::super::system::listed;
use super::super::{Finding, Problem, System};

/// Without these no client of HCCL works.
const NEEDED: [&str; 20] = [
    "HcclGetRootInfo",
    "HcclCommInitRootInfo",
    "HcclCommDestroy",
    "HcclGetErrorString",
    "HcclAllReduce",
    "HcclBroadcast",
    "HcclReduceScatter",
    "HcclAllGather",
    "HcclAlltoAllV",
    "HcclSend",
    "HcclRecv",
    "aclInit",
    "aclrtGetDeviceCount",
    "aclrtSetDevice",
    "aclrtMalloc",
    "aclrtFree",
    "aclrtMemcpy",
    "aclrtCreateStream",
    "aclrtDestroyStream",
    "aclrtSynchronizeStreamWithTimeout",
];
/// Names that are shown.
const SHOWN: usize = 5;

pub(super) fn judge(system: &System) -> Finding {
    let Some(api) = system.api() else {
        return Finding::skip("libraries of another host are not loaded here");
    };
    let loaded: Vec<&Outcome> = api
        .probe()
        .outcomes
        .iter()
        .filter(|outcome| outcome.loaded.is_some())
        .collect();
    if loaded.is_empty() {
        return Finding::skip("no library of CANN has loaded");
    }
    let files = listed(loaded.iter().filter_map(|outcome| outcome.loaded.as_ref()));
    // Where a whole library is missing, the check of libraries says so.
    let half = |name: &str| {
        api.capabilities()
            .iter()
            .find(|capability| capability.row.name == name)
            .is_some_and(|capability| {
                let family = capability.row.family.libraries();
                loaded
                    .iter()
                    .any(|outcome| family.contains(&outcome.library))
            })
    };
    let missing: Vec<&str> = NEEDED
        .into_iter()
        .filter(|name| half(name) && !api.has(name))
        .collect();
    let mut problems = Vec::new();
    if !missing.is_empty() {
        problems.push(Problem::fail(
            format!(
                "the libraries lack {}, which every client of HCCL calls",
                some(&missing)
            ),
            files.clone(),
            "install the toolkit again; libraries of another version may have been copied over it",
        ));
    }
    problems.extend(lacking(system, api, &missing, &files));
    let all = api.capabilities();
    let found = all
        .iter()
        .filter(|capability| capability.found.is_some())
        .count();
    let emulated = if system.emulated() { ", emulated" } else { "" };
    Finding::of(problems, || {
        Finding::ok(
            format!(
                "{found} of the {} calls that are known in any version are there{emulated}",
                all.len()
            ),
            files,
        )
    })
}

/// Calls that the headers of just this version declare.
fn lacking(system: &System, api: &Api, told: &[&str], files: &str) -> Option<Problem> {
    let (root, _) = system.toolkits().into_iter().next()?;
    let (version, _) = system.toolkit_version(&root)?;
    let of_version = Headers::ALL.into_iter().find(|headers| {
        headers
            .key()
            .parse()
            .is_ok_and(|known: hccl_sys::version::Version| known == version)
    })?;
    let missing: Vec<&str> = api
        .capabilities()
        .iter()
        .filter(|capability| capability.found.is_none())
        .filter(|capability| capability.row.headers.contains(of_version))
        .map(|capability| capability.row.name)
        .filter(|name| !told.contains(name))
        .collect();
    // A half that did not load is told of elsewhere.
    let both = api.has("aclInit") && api.has("HcclGetErrorString");
    (both && !missing.is_empty()).then(|| {
        Problem::warn(
            format!("{version} should have {}, and the libraries lack it", some(&missing)),
            files.to_owned(),
            "programs that call it do not start or fail: install the toolkit again, or look which libraries LD_LIBRARY_PATH finds first",
        )
    })
}

fn some(names: &[&str]) -> String {
    if names.len() <= SHOWN {
        return listed(names);
    }
    format!(
        "{} and {} more",
        names[..SHOWN].join(", "),
        names.len() - SHOWN
    )
}
