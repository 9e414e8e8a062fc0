//! Whether the vendor's libraries load, and from one installation.

use hccl_sys::search::{Library, Outcome};
use hccl_sys::symbols::Api;

use super::super::system::listed;
use super::super::{Finding, Problem, System};

/// Libraries of which one is needed, and how messages call them.
const NEEDED: [(&[Library], &str); 2] = [
    (&[Library::Hccl], "libhccl.so"),
    (
        &[Library::AscendCl, Library::AclRt],
        "libascendcl.so or libacl_rt.so",
    ),
];

pub(super) fn judge(system: &System) -> Finding {
    let Some(api) = system.api() else {
        return by_files(system);
    };
    let probe = api.probe();
    let is_loaded = |outcome: &&Outcome| outcome.loaded.is_some();
    let mut problems = Vec::new();
    for outcome in probe
        .outcomes
        .iter()
        .filter(|outcome| outcome.loaded.is_none())
    {
        // A file that is there and does not load; what is merely absent is told below.
        let Some(failure) = outcome.failures.iter().find(|failure| failure.exists) else {
            continue;
        };
        problems.push(Problem::fail(
            format!("{} is there and does not load", outcome.library),
            format!("{}: {}", failure.candidate, failure.message),
            remedy(&failure.message),
        ));
    }
    let has = |libraries: &[Library]| {
        probe
            .outcomes
            .iter()
            .any(|outcome| libraries.contains(&outcome.library) && outcome.loaded.is_some())
    };
    let wanted = !system.devices().is_empty() || !system.toolkits().is_empty();
    for (libraries, name) in NEEDED {
        if wanted && problems.is_empty() && !has(libraries) {
            problems.push(Problem::fail(
                format!("no {name} is found"),
                format!("looked for in {}", searched(system)),
                "source the toolkit's set_env.sh, or set ASCEND_HOME_PATH to its root",
            ));
        }
    }
    problems.extend(mixed(probe.outcomes.iter().filter(is_loaded)));
    if problems.is_empty()
        && !probe
            .outcomes
            .iter()
            .any(|outcome| outcome.loaded.is_some())
    {
        return Finding::skip("no library of CANN on this host, and no device to need one");
    }
    let emulated = if system.emulated() { "emulated " } else { "" };
    Finding::of(problems, || {
        let loaded = probe
            .outcomes
            .iter()
            .filter_map(|outcome| outcome.loaded.as_ref());
        let names = probe
            .outcomes
            .iter()
            .filter(is_loaded)
            .map(|outcome| outcome.library);
        Finding::ok(format!("{emulated}{} load", listed(names)), listed(loaded))
    })
}

/// Libraries of another host are not loaded here: whether they are there is all that is known.
fn by_files(system: &System) -> Finding {
    let Some((root, _)) = system.toolkits().into_iter().next() else {
        return Finding::skip("libraries of another host are not loaded here");
    };
    let folders: Vec<String> = [format!("{root}/lib64")]
        .into_iter()
        .chain(system.library_folders().map(str::to_owned))
        .collect();
    let is_there = |library: &Library| {
        let mut folders = folders.iter();
        folders.any(|folder| system.exists(format!("{folder}/{library}")))
    };
    let missing = NEEDED
        .iter()
        .filter(|(libraries, _)| !libraries.iter().any(is_there));
    let problems = missing.map(|(_, name)| {
        Problem::fail(
            format!("the toolkit {root} has no {name}"),
            format!("looked for in {}", listed(&folders)),
            "install the toolkit in full, or set ASCEND_HOME_PATH to the root of one that is",
        )
    });
    Finding::of(problems.collect(), || {
        Finding::skip("the libraries are there; those of another host are not loaded here")
    })
}

fn searched(system: &System) -> String {
    let Some(probe) = system.api().map(Api::probe) else {
        return String::new();
    };
    let tried = probe.outcomes.iter().flat_map(|outcome| &outcome.failures);
    let mut folders: Vec<String> = tried
        .filter(|failure| failure.candidate.library == Library::Hccl)
        .map(|failure| failure.candidate.to_string())
        .collect();
    folders.push(format!(
        "LD_LIBRARY_PATH={}",
        probe.ld_library_path.as_deref().unwrap_or("")
    ));
    listed(folders)
}

/// What to do, by what the loader says is wrong.
fn remedy(message: &str) -> String {
    if message.contains("libascend_hal.so") || message.contains("libdrvdsmi_host.so") {
        return "the driver's libraries are not found: export LD_LIBRARY_PATH=/usr/local/Ascend/driver/lib64/driver:/usr/local/Ascend/driver/lib64/common:$LD_LIBRARY_PATH; in a container mount /usr/local/Ascend/driver".to_owned();
    }
    if message.contains("cannot open shared object file") {
        let needed = message.split(':').next().unwrap_or_default();
        return format!(
            "{needed} is not found by the loader: source the toolkit's set_env.sh in this shell"
        );
    }
    if message.contains("undefined symbol") || message.contains("version `") {
        return "libraries of two versions are mixed: start from a fresh shell and source one set_env.sh only".to_owned();
    }
    if message.contains("ELF") || message.contains("file too short") {
        return "the file is damaged or for another processor: install the toolkit for this machine again".to_owned();
    }
    "install the toolkit again".to_owned()
}

/// Libraries from two folders are two installations.
fn mixed<'a>(loaded: impl Iterator<Item = &'a Outcome>) -> Option<Problem> {
    let folders: Vec<(Library, String)> = loaded
        .filter_map(|outcome| {
            let candidate = outcome.loaded.as_ref()?;
            let folder = candidate.path.parent()?.display().to_string();
            // A bare name was found by the loader; it does not say where.
            (!folder.is_empty()).then_some((outcome.library, folder))
        })
        .collect();
    let (first, folder) = folders.first()?;
    let (second, other) = folders.iter().find(|(_, other)| other != folder)?;
    Some(Problem::warn(
        format!("{first} and {second} come from two installations"),
        format!("{first} from {folder}, {second} from {other}"),
        "set ASCEND_HOME_PATH to the one that is meant, and LD_LIBRARY_PATH to its lib64",
    ))
}
