//! Whether the runtime can write its logs.

use super::super::system::size;
use super::super::{Finding, Problem, System};

/// A rank at the level of information writes some hundred MiB a day.
const FREE_MIN: u64 = 1 << 30;

pub(super) fn judge(system: &System) -> Finding {
    if !system.wants_hccl() {
        return Finding::skip("nothing here speaks of HCCL");
    }
    let (path, how) = match (system.text("ASCEND_PROCESS_LOG_PATH"), system.text("HOME")) {
        (Some(path), _) => (path.to_owned(), "ASCEND_PROCESS_LOG_PATH"),
        (None, Some(home)) => (format!("{home}/ascend/log"), "HOME"),
        (None, None) => {
            return Problem::warn(
                "neither ASCEND_PROCESS_LOG_PATH nor HOME is set, so the runtime's logs go nowhere",
                "environment",
                "export ASCEND_PROCESS_LOG_PATH=/var/log/ascend, a folder that this user may write",
            )
            .into();
        }
    };
    // The runtime makes the folder itself: what counts is the nearest one that exists.
    let mut existing = path.as_str();
    while !system.exists(existing) {
        let Some((above, _)) = existing.rsplit_once('/') else {
            break;
        };
        existing = if above.is_empty() { "/" } else { above };
        if existing == "/" {
            break;
        }
    }
    let evidence = format!("{how}: {path}");
    let place = system.path(existing);
    if !place.is_dir() {
        return Problem::fail(
            format!("the runtime cannot write its logs: {existing} is no folder"),
            evidence,
            "export ASCEND_PROCESS_LOG_PATH=FOLDER with one that this user may write",
        )
        .into();
    }
    if rustix::fs::access(&place, rustix::fs::Access::WRITE_OK).is_err() {
        return Problem::fail(
            format!("the runtime cannot write its logs: {existing} is not writable for this user"),
            evidence,
            "export ASCEND_PROCESS_LOG_PATH=FOLDER with one that this user may write",
        )
        .into();
    }
    match system.senses().space(&place) {
        Ok(space) if space.free < FREE_MIN => Problem::warn(
            format!(
                "only {} are free for the runtime's logs in {existing}",
                size(space.free)
            ),
            evidence,
            "delete old logs below plog, or export ASCEND_PROCESS_LOG_PATH=FOLDER on a larger disk",
        )
        .into(),
        Ok(space) => Finding::ok(
            format!("logs go to {path}, {} free", size(space.free)),
            evidence,
        ),
        Err(error) => Finding::skip(format!("{existing} does not tell its size: {error}")),
    }
}
