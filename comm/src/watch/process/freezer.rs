//! The control group that keeps a process from running.

use std::path::Path;

use serde::{Deserialize, Serialize};

/// A control group that is frozen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Freezer {
    /// Its folder, as its host shows it.
    pub path: String,
    /// The command that thaws it.
    pub thaw: String,
}

/// The frozen control group that holds a process.
pub(super) fn of(pid: u32) -> Option<Freezer> {
    frozen_group(
        &std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default(),
        &std::fs::read_to_string("/proc/self/mounts").unwrap_or_default(),
        |file| std::fs::read_to_string(file).ok(),
    )
}

/// The frozen control group that holds a process, from its `/proc/PID/cgroup` and the table of mounts. Both
/// versions of the freezer are looked at, and the groups above: the topmost one that was frozen itself counts.
fn frozen_group(
    groups: &str,
    mounts: &str,
    read: impl Fn(&Path) -> Option<String>,
) -> Option<Freezer> {
    groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let (kind, option, file, frozen, thaw) = match controllers {
            "" => ("cgroup2", None, "cgroup.freeze", "1", "0"),
            "freezer" => (
                "cgroup",
                Some("freezer"),
                "freezer.state",
                "FROZEN",
                "THAWED",
            ),
            _ => return None,
        };
        let root = mounts.lines().find_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let (root, found, options) = (fields.next()?, fields.next()?, fields.next()?);
            let has_option =
                option.is_none_or(|option| options.split(',').any(|one| one == option));
            (found == kind && has_option).then(|| Path::new(root))
        })?;
        let folder = root.join(path.trim_start_matches('/'));
        let is_frozen = |folder: &&Path| {
            let state = read(&folder.join(file));
            let own = read(&folder.join("freezer.self_freezing"));
            state.is_some_and(|state| state.trim() == frozen)
                && own.is_none_or(|own| own.trim() == "1")
        };
        let folder = folder
            .ancestors()
            .take_while(|folder| folder.starts_with(root))
            .filter(is_frozen)
            .last()?;
        Some(Freezer {
            path: folder.display().to_string(),
            thaw: format!("echo {thaw} > {}", folder.join(file).display()),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frozen_control_group_is_found_with_its_path_and_the_way_to_thaw_it() {
        let mounts = "cgroup /sys/fs/cgroup/freezer cgroup rw,relatime,freezer 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n";
        let groups = "9:name=systemd:/\n6:freezer:/job/a\n0::/slice/job/a\n";
        let found = |files: &[(&str, &str)]| {
            let read = |file: &Path| {
                let (_, text) = files.iter().find(|(name, _)| Path::new(name) == file)?;
                Some((*text).to_owned())
            };
            frozen_group(groups, mounts, read).map(|freezer| (freezer.path, freezer.thaw))
        };
        let unified = "/sys/fs/cgroup/unified/slice";
        assert_eq!(found(&[]), None);
        assert_eq!(
            found(&[(&format!("{unified}/job/a/cgroup.freeze"), "0\n")]),
            None
        );
        // The group above is frozen, and it with that.
        assert_eq!(
            found(&[
                (&format!("{unified}/job/a/cgroup.freeze"), "0\n"),
                (&format!("{unified}/job/cgroup.freeze"), "1\n"),
            ]),
            Some((
                format!("{unified}/job"),
                format!("echo 0 > {unified}/job/cgroup.freeze")
            ))
        );
        // In the first version all groups below are frozen too; which one it was says another file.
        let freezer = "/sys/fs/cgroup/freezer/job";
        assert_eq!(
            found(&[
                (&format!("{freezer}/a/freezer.state"), "FROZEN\n"),
                (&format!("{freezer}/a/freezer.self_freezing"), "0\n"),
                (&format!("{freezer}/freezer.state"), "FROZEN\n"),
                (&format!("{freezer}/freezer.self_freezing"), "1\n"),
            ]),
            Some((
                freezer.to_owned(),
                format!("echo THAWED > {freezer}/freezer.state")
            ))
        );
    }
}
