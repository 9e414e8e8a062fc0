//! The processors of this host, the memory nodes that they belong to, and which of them a rank keeps to.
//!
//! A rank that stays where it is finds its data in the cache of its processor, its memory on the node of that processor, and two ranks
//! never share a processor while another is idle. The system does not know that, and other load moves ranks about. It is not the
//! default: a program with threads of its own may need the processors otherwise.
//!
//! This room must not know ranks of groups, transports or launchers.
//!
//! - `PROCESSORS-1`: nobody is ever moved to processors outside of the mask that it has.
//! - `PROCESSORS-2`: a process whose launcher has given it fewer processors than the launcher itself has is left as it is.

mod list;
mod topology;

pub use list::CpuList;
pub use topology::{Node, Place, Topology};

/// What ranks are bound to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bind {
    /// Nothing: ranks stay where the launcher and the system put them.
    #[default]
    None,
    /// An even share of all processors.
    Share,
    /// One core, with all its hardware threads.
    Core,
    /// All processors of one memory node.
    Numa,
}

impl Bind {
    /// The word of options and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Share => "share",
            Self::Core => "core",
            Self::Numa => "numa",
        }
    }
}

/// Keeps the calling thread, and those that it makes later, to its place: that of rank `local` of `locals` on this host. `false` if it
/// stays as it is: nothing is asked for, its launcher has bound it already, or the system refuses.
pub fn bind(bind: Bind, local: usize, locals: usize) -> bool {
    if bind == Bind::None || is_bound_by_launcher() {
        return false;
    }
    keep_to_place(bind, local, locals)
}

/// As [`bind`], for a thread of a process that is all ranks: its launcher has bound no single one of them.
pub fn bind_thread(bind: Bind, local: usize, locals: usize) -> bool {
    bind != Bind::None && keep_to_place(bind, local, locals)
}

fn keep_to_place(bind: Bind, local: usize, locals: usize) -> bool {
    let places = Topology::here().places(bind, locals);
    places
        .get(local)
        .is_some_and(|place| place.cpus.keep_to().is_ok())
}

/// Whether the process that started this one may use more processors than this one, all of this one's among them: it or what lies
/// between them has given this process a part. Unknown, and so `false`, where the parent cannot be seen, as in most containers.
#[must_use]
pub fn is_bound_by_launcher() -> bool {
    of_launcher().is_some()
}

/// The processors of the parent process, if this one has a part of them only.
fn of_launcher() -> Option<CpuList> {
    let own = CpuList::of_this_thread()?;
    CpuList::of_parent().filter(|parent| own.is_part_of(parent))
}

/// How many processors the calling thread may use.
#[must_use]
pub fn own() -> usize {
    CpuList::of_this_thread().map_or(1, |own| own.count())
}

/// How many processors the ranks of this host have together, as far as this one knows: those of its launcher where that has given this
/// rank a part of them, else its own.
#[must_use]
pub fn of_all_ranks() -> usize {
    of_launcher().map_or_else(own, |all| all.count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_thread_may_use_its_place_only() {
        for kind in [Bind::Share, Bind::Core] {
            std::thread::spawn(move || {
                let before = CpuList::of_this_thread().unwrap();
                let cores = Topology::here().cores();
                assert!(bind_thread(kind, 0, before.count()));
                let after = CpuList::of_this_thread().unwrap();
                assert!(after.count() <= before.count().div_ceil(cores), "{after}");
                assert!(before.includes(&after), "{after} of {before}");
            })
            .join()
            .unwrap();
        }
    }

    #[test]
    fn a_thread_that_has_fewer_processors_than_its_parent_process_is_left_alone() {
        std::thread::spawn(|| {
            let parent = CpuList::of_parent();
            let own = CpuList::of_this_thread().unwrap();
            let first = CpuList::from_iter(own.numbers().take(1));
            first.keep_to().unwrap();
            let has_more = parent.as_ref().is_some_and(|all| first.is_part_of(all));
            assert_eq!(is_bound_by_launcher(), has_more);
            assert_eq!(
                of_all_ranks(),
                parent.map_or(1, |all| if has_more { all.count() } else { 1 })
            );
            assert_eq!(bind(Bind::Core, 0, 1), !has_more);
            assert!(!bind(Bind::None, 0, 1) && !bind_thread(Bind::None, 0, 1));
            assert_eq!(CpuList::of_this_thread().unwrap(), first);
        })
        .join()
        .unwrap();
    }
}
