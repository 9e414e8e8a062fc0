//! How the lines name a process that runs in a container.

use super::find::{Place, find, own};
use crate::rendezvous::Card;

/// The inode of the first PID namespace, on every kernel.
const FIRST_NAMESPACE: u64 = 0xEFFF_FFFC;
/// Digits of a container's id that are shown, as its tools do.
const SHORT_ID: usize = 12;
/// Digits of a container's id.
const ID: usize = 64;

/// A process of another PID namespace than the observer's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inside {
    /// Its number as the observer's /proc shows it, where it does.
    pub outer_pid: Option<u32>,
    /// The container, where that is known.
    pub container: String,
}

impl Inside {
    /// The process with this number of its own: `pid 4711 = 1 in container ab12cd34ef56`.
    #[must_use]
    pub fn describe(&self, pid: u32) -> String {
        let place = if self.container.is_empty() {
            "its PID namespace".to_owned()
        } else {
            format!("container {}", self.container)
        };
        match self.outer_pid {
            Some(outer) => format!("pid {outer} = {pid} in {place}"),
            None => format!("pid {pid} in {place}"),
        }
    }
}

/// How the process of a rank is to be named; `None` where its number says all.
pub(in crate::watch) fn inside(card: &Card) -> Option<Inside> {
    let (me, process) = (own(), &card.process);
    let is_plain = match process.namespace {
        0 | FIRST_NAMESPACE => true,
        namespace => (process.boot, namespace) == (me.boot, me.namespace),
    };
    if is_plain {
        return None;
    }
    let outer_pid = match find(process) {
        Place::At(pid) => Some(pid),
        Place::Ended | Place::Hidden(_) => None,
    };
    Some(Inside {
        outer_pid,
        container: card.container.clone(),
    })
}

/// The container that this process runs in, by its short id; empty where there is none, or it does not say.
#[must_use]
pub fn container() -> String {
    let read = |file| std::fs::read_to_string(file).unwrap_or_default();
    let groups = read("/proc/self/cgroup");
    let mounts = read("/proc/self/mountinfo");
    id_in(&groups)
        .or_else(|| {
            // Engines mount a file of the container's own there; other mounts name layers.
            let is_own = |line: &&str| line.contains(" /etc/hostname ");
            mounts.lines().find(is_own).and_then(id_in)
        })
        .map_or_else(String::new, |id| id.chars().take(SHORT_ID).collect())
}

/// The id of a container in a text: 64 hexadecimal digits in a row.
fn id_in(text: &str) -> Option<&str> {
    text.split(|c: char| !c.is_ascii_hexdigit())
        .find(|run| run.len() == ID)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_known_by_its_control_group_or_its_mounts() {
        let id = "4f0a9c".repeat(11)[..64].to_owned();
        for text in [
            format!("0::/docker/{id}\n"),
            format!("0::/kubepods.slice/kubepods-pod8d.slice/cri-containerd-{id}.scope"),
            format!("812 755 8:1 /var/lib/docker/containers/{id}/hostname /etc/hostname rw"),
        ] {
            assert_eq!(id_in(&text), Some(id.as_str()), "{text}");
        }
        assert_eq!(
            id_in("0::/user.slice/process_api/c33a2f071ac27386cc979b37af2bc2d1"),
            None
        );
    }

    #[test]
    fn a_process_is_named_as_it_is_seen_from_outside() {
        let inside = |outer_pid, container: &str| Inside {
            outer_pid,
            container: container.to_owned(),
        };
        let known = inside(Some(4711), "4f0a9c4f0a9c");
        assert_eq!(known.describe(1), "pid 4711 = 1 in container 4f0a9c4f0a9c");
        assert_eq!(
            inside(None, "4f0a9c").describe(1),
            "pid 1 in container 4f0a9c"
        );
        assert_eq!(inside(None, "").describe(1), "pid 1 in its PID namespace");
    }

    #[test]
    fn a_process_of_the_same_namespace_needs_no_more_than_its_number() {
        let card = Card {
            process: own(),
            container: "4f0a9c".to_owned(),
            ..Card::default()
        };
        assert_eq!(inside(&card), None);
        assert_eq!(inside(&Card::default()), None);
    }
}
