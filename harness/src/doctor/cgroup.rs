//! Limits of the control groups that this process is in, of both versions.

use super::System;

/// A limit, and the file that sets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) value: u64,
    pub(super) file: String,
    /// The folder of the group.
    pub(super) folder: String,
}

/// Above this a number of version 1 means no limit.
const UNLIMITED_FROM: u64 = 1 << 60;
const MOUNT: &str = "/sys/fs/cgroup";

/// Folders of this process's group and all above it, for a controller; nearest first.
pub(super) fn folders(system: &System, controller: &str) -> Vec<String> {
    let listed = system.read("/proc/self/cgroup").unwrap_or_default();
    let mut found = Vec::new();
    for line in listed.lines() {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next(), parts.next(), parts.next());
        let (Some(controllers), Some(path)) = (controllers, path) else {
            continue;
        };
        let mount = if controllers.is_empty() {
            MOUNT.to_owned()
        } else if controllers.split(',').any(|one| one == controller) {
            let joint = format!("{MOUNT}/{controllers}");
            let alone = format!("{MOUNT}/{controller}");
            if system.exists(&alone) { alone } else { joint }
        } else {
            continue;
        };
        let mut path = path.trim_end_matches('/');
        loop {
            // In a container the path is often that of the host, and only the mount exists.
            let folder = format!("{mount}{path}");
            if system.exists(&folder) && !found.contains(&folder) {
                found.push(folder);
            }
            let Some((above, _)) = path.rsplit_once('/') else {
                break;
            };
            path = above;
        }
    }
    found
}

/// The lowest limit of this process, by the file's name in version 2 and in version 1.
pub(super) fn lowest(system: &System, controller: &str, files: [&str; 2]) -> Option<Limit> {
    let mut lowest: Option<Limit> = None;
    for folder in folders(system, controller) {
        for file in files {
            let file = format!("{folder}/{file}");
            let Some(value) = system.number(&file).filter(|value| *value < UNLIMITED_FROM) else {
                continue;
            };
            if lowest.as_ref().is_none_or(|known| value < known.value) {
                lowest = Some(Limit {
                    value,
                    file,
                    folder: folder.clone(),
                });
            }
        }
    }
    lowest
}

/// Processors that the quota leaves, and where that stands.
pub(super) fn quota(system: &System) -> Option<(f64, String)> {
    let mut lowest: Option<(f64, String)> = None;
    for folder in folders(system, "cpu") {
        let second = format!("{folder}/cpu.max");
        let first = format!("{folder}/cpu.cfs_quota_us");
        let told = match system.read(&second) {
            Some(text) => text
                .split_once(' ')
                .and_then(|(quota, period)| Some((quota.parse().ok()?, period.parse().ok()?)))
                .map(|pair| (pair, second)),
            None => system
                .read(&first)
                .and_then(|quota| quota.parse().ok())
                .zip(system.read(format!("{folder}/cpu.cfs_period_us")))
                .and_then(|(quota, period)| Some(((quota, period.parse().ok()?), first))),
        };
        let Some(((quota, period), file)) = told else {
            continue;
        };
        let (quota, period): (f64, f64) = (quota, period);
        if quota <= 0.0 || period <= 0.0 {
            continue;
        }
        let processors = quota / period;
        if lowest.as_ref().is_none_or(|(known, _)| processors < *known) {
            lowest = Some((processors, file));
        }
    }
    lowest
}
