//! Whether jobs that are over left shared memory behind.

use std::os::unix::fs::MetadataExt;

use super::super::system::{count, size};
use super::super::{Finding, Problem, System};

const FOLDER: &str = "/dev/shm";
/// Beginnings of the names that communication libraries give, and whose they are.
const MAKERS: [(&str, &str); 18] = [
    ("vader_segment.", "Open MPI"),
    ("sm_segment.", "Open MPI"),
    ("osc_rdma.", "Open MPI"),
    ("open_mpi.", "Open MPI"),
    ("mpich_shar_tmp", "MPICH"),
    ("mpich_shm", "MPICH"),
    ("Intel_MPI", "Intel MPI"),
    ("impi-shm", "Intel MPI"),
    ("psm2_shm.", "PSM2"),
    ("psm3_shm.", "PSM3"),
    ("ucx_shm_", "UCX"),
    ("nccl-", "NCCL"),
    ("torch_", "torch"),
    ("gloo_", "gloo"),
    ("psm_", "Python"),
    ("sem.mp-", "Python"),
    ("muster", "muster"),
    ("hccl", "HCCL"),
];
/// Names that are shown.
const SHOWN: usize = 4;
/// Younger than this it may be about to be mapped.
const YOUNG_S: i64 = 60;

pub(super) fn judge(system: &System) -> Finding {
    let candidates: Vec<(String, &str)> = system
        .names(FOLDER)
        .into_iter()
        .filter_map(|name| {
            let (_, maker) = MAKERS
                .iter()
                .find(|(beginning, _)| name.starts_with(beginning))?;
            Some((name, *maker))
        })
        .collect();
    if candidates.is_empty() {
        return Finding::ok("no shared memory of earlier jobs in /dev/shm", FOLDER);
    }
    let (used, blind) = in_use(system);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now
        .ok()
        .and_then(|since| i64::try_from(since.as_secs()).ok())
        .unwrap_or(0);
    let mut left: Vec<(String, &str, u64)> = Vec::new();
    for (name, maker) in candidates {
        let path = format!("{FOLDER}/{name}");
        let Some(metadata) = system.metadata(&path) else {
            continue;
        };
        let held = used.contains(&path) || now.saturating_sub(metadata.mtime()) < YOUNG_S;
        // Where a process of its owner cannot be seen, nothing can be said.
        if !held && !blind.contains(&metadata.uid()) {
            left.push((name, maker, metadata.len()));
        }
    }
    if left.is_empty() {
        return Finding::ok("the shared memory of jobs in /dev/shm is in use", FOLDER);
    }
    let bytes = left.iter().map(|(_, _, bytes)| bytes).sum();
    let mut makers: Vec<&str> = left.iter().map(|(_, maker, _)| *maker).collect();
    makers.sort_unstable();
    makers.dedup();
    let mut names: Vec<String> = left
        .iter()
        .take(SHOWN)
        .map(|(name, _, _)| format!("{FOLDER}/{name}"))
        .collect();
    if left.len() > SHOWN {
        names.push(format!("and {} more", left.len() - SHOWN));
    }
    let files: Vec<String> = left
        .iter()
        .take(SHOWN)
        .map(|(name, _, _)| format!("{FOLDER}/{name}"))
        .collect();
    Problem::warn(
        format!(
            "{} of {} that nobody maps any more hold {} of /dev/shm",
            count(left.len() as u64, "file"),
            makers.join(", "),
            size(bytes)
        ),
        names.join(" "),
        format!("rm -- {}", files.join(" ")),
    )
    .into()
}

/// Files of `/dev/shm` that processes have mapped or opened, and the users of processes into which
/// we cannot look.
fn in_use(system: &System) -> (Vec<String>, Vec<u32>) {
    let (mut used, mut blind) = (Vec::new(), Vec::new());
    let prefix = format!("{FOLDER}/");
    for process in system.processes() {
        used.extend(
            process
                .open
                .iter()
                .filter(|open| open.starts_with(&prefix))
                .cloned(),
        );
        match system.try_read(format!("/proc/{}/maps", process.pid)) {
            Ok(maps) => used.extend(maps.lines().filter_map(|line| {
                let place = line.find(&prefix)?;
                Some(line[place..].to_owned())
            })),
            Err(_) => blind.extend(
                system
                    .metadata(format!("/proc/{}", process.pid))
                    .map(|metadata| metadata.uid()),
            ),
        }
    }
    (used, blind)
}
