//! Whether this user may open the device nodes.

use std::os::unix::fs::MetadataExt;

use super::super::system::listed;
use super::super::{Finding, Problem, System};

/// User and groups of this process.
struct User {
    uid: u32,
    groups: Vec<u32>,
}

fn user(system: &System) -> Option<User> {
    let status = system.read("/proc/self/status")?;
    // Real, effective, saved and file system id: the last decides about files.
    let ids = |name: &str| -> Vec<u32> {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let fields = line.unwrap_or_default().split_ascii_whitespace();
        fields.filter_map(|field| field.parse().ok()).collect()
    };
    let uid = *ids("Uid:").last()?;
    let mut groups = ids("Groups:");
    groups.extend(ids("Gid:").last());
    Some(User { uid, groups })
}

pub(super) fn judge(system: &System) -> Finding {
    let devices = system.devices();
    if devices.is_empty() {
        return Finding::skip("no Ascend device");
    }
    let Some(user) = user(system) else {
        return Finding::skip("/proc/self/status does not tell who this process is");
    };
    let mut nodes: Vec<String> = devices
        .iter()
        .map(|id| format!("/dev/davinci{id}"))
        .collect();
    let managers = super::devices::MANAGERS.into_iter();
    nodes.extend(
        managers
            .flat_map(|(name, other)| [Some(name), other])
            .flatten()
            .map(str::to_owned),
    );
    let mut closed = Vec::new();
    let mut group = None;
    for node in nodes {
        let Some(metadata) = system.metadata(&node) else {
            continue;
        };
        let mode = metadata.mode();
        let bits = if user.uid == metadata.uid() {
            mode >> 6
        } else if user.groups.contains(&metadata.gid()) {
            mode >> 3
        } else {
            mode
        };
        if user.uid != 0 && bits & 0o6 != 0o6 {
            group = group.or_else(|| Some(metadata.gid()));
            closed.push(format!(
                "{node} is mode {:04o} of user {} and group {}",
                mode & 0o7777,
                metadata.uid(),
                metadata.gid()
            ));
        }
    }
    let Some(group) = group else {
        return Finding::ok(
            "this user may open all device nodes",
            format!("user id {}", user.uid),
        );
    };
    let name = group_name(system, group);
    Problem::fail(
        format!(
            "user id {} may not read and write {}",
            user.uid,
            listed(
                closed
                    .iter()
                    .map(|one| one.split(' ').next().unwrap_or_default())
            )
        ),
        closed.join("; "),
        format!("sudo usermod -aG {name} \"$USER\", then log in again"),
    )
    .into()
}

fn group_name(system: &System, gid: u32) -> String {
    let groups = system.read("/etc/group").unwrap_or_default();
    let line = groups.lines().find(|line| {
        line.split(':')
            .nth(2)
            .is_some_and(|id| id == gid.to_string())
    });
    line.and_then(|line| line.split(':').next())
        .unwrap_or("HwHiAiUser")
        .to_owned()
}
