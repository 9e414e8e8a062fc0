//! Free ranges of an address space, kept apart and merged where they touch.

use std::collections::{BTreeMap, BTreeSet};

/// Ranges just long enough that are tried before one whose length makes any start fit: those that
/// fit only by luck of their start must not be searched one by one.
const TRIED_MAX: usize = 8;

/// Disjoint ranges, by start and by length.
#[derive(Debug, Default)]
pub struct Ranges {
    by_start: BTreeMap<u64, u64>,
    /// (length, start)
    by_length: BTreeSet<(u64, u64)>,
}

impl Ranges {
    /// One range from 0.
    #[must_use]
    pub fn up_to(bytes: u64) -> Self {
        let mut ranges = Self::default();
        ranges.give(0, bytes);
        ranges
    }

    /// Takes `bytes` that begin at a multiple of `align`, out of the shortest range that has them or
    /// one that is little longer.
    pub fn take(&mut self, bytes: u64, align: u64) -> Option<u64> {
        let fits = |&(length, start): &(u64, u64)| {
            let aligned = start.checked_next_multiple_of(align)?;
            let end = aligned.checked_add(bytes)?;
            (end <= start + length).then_some((start, length, aligned))
        };
        let from = |least: u64| self.by_length.range((least, 0)..);
        let (start, length, aligned) = from(bytes)
            .take(TRIED_MAX)
            .chain(from(bytes.saturating_add(align)).take(1))
            .chain(from(bytes))
            .find_map(fits)?;
        self.remove(start, length);
        self.give(start, aligned - start);
        self.give(aligned + bytes, start + length - aligned - bytes);
        Some(aligned)
    }

    /// Gives a range back, and says in which free range it lies now, as (start, end).
    pub fn give(&mut self, start: u64, bytes: u64) -> (u64, u64) {
        if bytes == 0 {
            return (start, start);
        }
        let (mut start, mut end) = (start, start + bytes);
        if let Some((&before, &length)) = self.by_start.range(..start).next_back() {
            assert!(before + length <= start, "a range is given back twice");
            if before + length == start {
                self.remove(before, length);
                start = before;
            }
        }
        if let Some(&length) = self.by_start.get(&end) {
            self.remove(end, length);
            end += length;
        }
        self.by_start.insert(start, end - start);
        self.by_length.insert((end - start, start));
        (start, end)
    }

    fn remove(&mut self, start: u64, length: u64) {
        self.by_start.remove(&start);
        self.by_length.remove(&(length, start));
    }
}

#[cfg(test)]
mod tests {
    use super::Ranges;

    #[test]
    fn ranges_are_taken_aligned_and_merge_when_they_come_back() {
        let mut ranges = Ranges::up_to(1000);
        assert_eq!(ranges.take(10, 64), Some(0));
        assert_eq!(ranges.take(100, 64), Some(64));
        assert_eq!(ranges.take(54, 1), Some(10));
        assert_eq!(ranges.take(837, 1), None);
        for (start, bytes, merged) in [(64, 100, (64, 1000)), (0, 10, (0, 10)), (10, 54, (0, 1000))]
        {
            assert_eq!(ranges.give(start, bytes), merged);
        }
        assert_eq!(ranges.take(1000, 512), Some(0));
        assert_eq!(ranges.take(1, 1), None);
    }

    #[test]
    fn a_range_is_found_behind_many_that_are_long_enough_and_begin_badly() {
        let mut ranges = Ranges::default();
        for at in 0..100 {
            ranges.give(at * 64 + 1, 40);
        }
        assert_eq!(ranges.take(30, 64), None);
        ranges.give(64 * 200, 40);
        assert_eq!(ranges.take(30, 64), Some(64 * 200));
    }
}
