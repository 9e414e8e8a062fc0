//! Sets of processors: as the kernel writes them, and as masks of threads.

use std::collections::BTreeSet;
use std::fmt;

use rustix::process::{Pid, getppid};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Processors of the largest host that Linux is built for. A list beyond is none.
const PROCESSORS_MAX: u32 = 1 << 16;

/// Numbers of processors, or of memory nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuList(BTreeSet<u32>);

impl CpuList {
    /// A list as files of the kernel have it: `0-3,8`, or nothing.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut found = BTreeSet::new();
        for item in text.trim().split(',').filter(|item| !item.is_empty()) {
            let (first, last) = item.split_once('-').unwrap_or((item, item));
            let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
            if first > last || last > PROCESSORS_MAX {
                return None;
            }
            found.extend(first..=last);
        }
        Some(Self(found))
    }

    /// Those that the calling thread may use: only such as are online and in the cpuset of its control group.
    #[must_use]
    pub fn of_this_thread() -> Option<Self> {
        Self::of(None)
    }

    /// Those that the first thread of the parent process may use.
    #[must_use]
    pub fn of_parent() -> Option<Self> {
        Self::of(Some(getppid()?))
    }

    fn of(pid: Option<Pid>) -> Option<Self> {
        let mask = sched_getaffinity(pid).ok()?;
        let all = 0..u32::try_from(CpuSet::MAX_CPU).ok()?;
        Some(all.filter(|cpu| mask.is_set(*cpu as usize)).collect())
    }

    /// Keeps the calling thread, and those that it makes later, to these.
    ///
    /// # Errors
    /// The system's refusal: none of them may be used.
    pub fn keep_to(&self) -> std::io::Result<()> {
        let mut mask = CpuSet::new();
        for cpu in self
            .numbers()
            .filter(|cpu| (*cpu as usize) < CpuSet::MAX_CPU)
        {
            mask.set(cpu as usize);
        }
        Ok(sched_setaffinity(None, &mask)?)
    }

    /// The numbers, ascending.
    pub fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this number is one of them.
    #[must_use]
    pub fn has(&self, number: u32) -> bool {
        self.0.contains(&number)
    }

    /// Whether all of `other` are among them.
    #[must_use]
    pub fn includes(&self, other: &Self) -> bool {
        other.0.is_subset(&self.0)
    }

    /// Whether `whole` has all of them, and more.
    #[must_use]
    pub fn is_part_of(&self, whole: &Self) -> bool {
        whole.includes(self) && self.count() < whole.count()
    }

    /// Those that are in both.
    #[must_use]
    pub fn common(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).copied().collect())
    }
}

impl FromIterator<u32> for CpuList {
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> Self {
        Self(numbers.into_iter().collect())
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut numbers = self.numbers().peekable();
        let mut separator = "";
        while let Some(first) = numbers.next() {
            let mut last = first;
            while let Some(next) = numbers.next_if_eq(&(last + 1)) {
                last = next;
            }
            write!(f, "{separator}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written_as_the_kernel_does() {
        for text in ["", "0", "0-3,8", "5", "0-1,3,7-9", "47-95"] {
            let list = CpuList::parse(text).expect("a list");
            assert_eq!(list.to_string(), text);
        }
        assert_eq!(CpuList::parse("0-3,8\n").map(|list| list.count()), Some(5));
        assert_eq!(CpuList::parse("3,1-2").expect("a list").to_string(), "1-3");
        for text in ["3-1", "a", "-", "1-", "0-4294967295"] {
            assert_eq!(CpuList::parse(text), None, "{text}");
        }
    }
}
