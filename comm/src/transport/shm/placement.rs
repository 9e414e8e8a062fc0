//! Placement of the ranks of a host on its processors, where the user asks for it.
//!
//! With ranks as many as processors, or more, a rank that stays where it is finds its data in the cache
//! of its processor, and two ranks never share a processor while another is idle. The system does not
//! know that, and other load moves ranks about. It is not the default: a program with threads of its own
//! may need the processors otherwise.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Keeps the calling thread, and those that it makes later, to this rank's share of the processors
/// that the process may use: rank `local` of `locals` on this host. `false` where the system refuses.
#[must_use]
pub fn pin(local: usize, locals: usize) -> bool {
    let Ok(mask) = sched_getaffinity(None) else {
        return false;
    };
    let all: Vec<usize> = (0..CpuSet::MAX_CPU)
        .filter(|cpu| mask.is_set(*cpu))
        .collect();
    let mut mine = CpuSet::new();
    for cpu in share(&all, local, locals) {
        mine.set(*cpu);
    }
    sched_setaffinity(None, &mine).is_ok()
}

/// The part of the processors for one rank: an even share, or one that several ranks take turns on.
fn share(all: &[usize], local: usize, locals: usize) -> &[usize] {
    if all.is_empty() {
        return all;
    }
    if locals >= all.len() {
        return &all[local % all.len()..][..1];
    }
    let start = local * all.len() / locals;
    let end = (local + 1) * all.len() / locals;
    &all[start..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_even_and_cover_all_processors() {
        let all = [2, 3, 5, 8, 9];
        assert_eq!(share(&all, 0, 1), all);
        assert_eq!(share(&all, 0, 2), [2, 3]);
        assert_eq!(share(&all, 1, 2), [5, 8, 9]);
        let spread: Vec<_> = (0..12).map(|local| share(&all, local, 12)).collect();
        assert!(spread.iter().all(|share| share.len() == 1));
        assert_eq!(spread[7], [5]);
        assert!(share(&[], 3, 4).is_empty());
    }

    #[test]
    fn a_pinned_thread_may_use_its_share_only() {
        std::thread::spawn(|| {
            let before = sched_getaffinity(None).unwrap().count();
            assert!(pin(0, before as usize));
            assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
        })
        .join()
        .unwrap();
    }
}
