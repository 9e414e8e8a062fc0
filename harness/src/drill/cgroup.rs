//! Control groups of a drill's own: children of the group in which the drill runs itself, so that no limit
//! of the machine is left.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use muster_comm::sync::{Clock, Deadline};

use super::network::Lacking;

/// Time that processes take to leave a group after their end.
const GOING: Duration = Duration::from_secs(2);

/// A control group that is removed with the drill.
#[derive(Debug)]
pub struct Group {
    path: PathBuf,
}

impl Group {
    /// Makes a group of this controller.
    ///
    /// # Errors
    /// Where the machine has no such controller, or does not let us.
    pub fn make(controller: &str, mark: &str) -> Result<Self, Lacking> {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let path = place(&own, controller)
            .ok_or_else(|| Lacking(format!("no control group of the kind {controller}")))?
            .join(format!("drill-{mark}"));
        fs::create_dir(&path).map_err(|error| Lacking(format!("{}: {error}", path.display())))?;
        Ok(Self { path })
    }

    /// Writes a setting.
    ///
    /// # Errors
    /// As the system says.
    pub fn set(&self, name: &str, value: &str) -> Result<(), Lacking> {
        let file = self.path.join(name);
        fs::write(&file, value).map_err(|error| Lacking(format!("{}: {error}", file.display())))
    }

    /// Moves a process into it.
    ///
    /// # Errors
    /// As the system says.
    pub fn take(&self, pid: i32) -> Result<(), Lacking> {
        self.set("cgroup.procs", &pid.to_string())
    }

    /// Lets frozen processes go on, where it has frozen some.
    pub fn thaw(&self) {
        for (name, value) in [("freezer.state", "THAWED"), ("cgroup.freeze", "0")] {
            if self.path.join(name).exists() {
                // Whoever is gone needs no thaw.
                let _ = self.set(name, value);
            }
        }
    }

    /// Removes it, once its processes are gone; says what is left.
    #[must_use]
    pub fn remove(&self) -> Option<String> {
        let deadline = Deadline::after(GOING);
        loop {
            match fs::remove_dir(&self.path) {
                // Processes on their way out are still in it.
                Err(_) if self.path.exists() && !deadline.passed() => {
                    Clock::pause(Duration::from_millis(5));
                }
                Err(error) if self.path.exists() => {
                    return Some(format!("control group {}: {error}", self.path.display()));
                }
                Ok(()) | Err(_) => return None,
            }
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Told where somebody asked for it.
        let _ = self.remove();
    }
}

/// The folder of this process's own group of a controller.
fn place(own: &str, controller: &str) -> Option<PathBuf> {
    let root = PathBuf::from("/sys/fs/cgroup");
    for line in own.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let path = path.trim_start_matches('/');
        if controllers.split(',').any(|one| one == controller) {
            return Some(root.join(controller).join(path));
        }
    }
    // One tree for all controllers: a child can be made there where this one is handed on.
    let unified = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let path = root.join(unified);
    let handed_on = fs::read_to_string(path.join("cgroup.subtree_control")).ok()?;
    handed_on
        .split_whitespace()
        .any(|one| one == controller)
        .then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_group_is_found_by_its_controller() {
        let own = "4:memory:/jobs/7\n2:cpu,cpuacct:/\n0::/\n";
        let memory = place(own, "memory");
        assert_eq!(memory, Some(PathBuf::from("/sys/fs/cgroup/memory/jobs/7")));
        assert_eq!(
            place(own, "cpu"),
            Some(PathBuf::from("/sys/fs/cgroup/cpu/"))
        );
    }
}
