//! Free ranges of an address space, kept apart and merged where they touch.

use std::collections::BTreeMap;

/// Disjoint ranges, by start.
#[derive(Debug, Default)]
pub struct Ranges {
    by_start: BTreeMap<u64, u64>,
}

impl Ranges {
    /// One range from 0.
    #[must_use]
    pub fn up_to(bytes: u64) -> Self {
        let mut ranges = Self::default();
        ranges.give(0, bytes);
        ranges
    }

    /// Takes `bytes` that begin at a multiple of `align` out of the first range that has them.
    pub fn take(&mut self, bytes: u64, align: u64) -> Option<u64> {
        let fits = |(start, length): (&u64, &u64)| {
            let aligned = start.checked_next_multiple_of(align)?;
            let end = aligned.checked_add(bytes)?;
            (end <= start + length).then_some((*start, *length, aligned))
        };
        let (start, length, aligned) = self.by_start.iter().find_map(fits)?;
        self.by_start.remove(&start);
        self.give(start, aligned - start);
        self.give(aligned + bytes, start + length - aligned - bytes);
        Some(aligned)
    }

    /// Gives a range back.
    pub fn give(&mut self, start: u64, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let (mut start, mut end) = (start, start + bytes);
        if let Some((&before, &length)) = self.by_start.range(..start).next_back() {
            assert!(before + length <= start, "a range is given back twice");
            if before + length == start {
                self.by_start.remove(&before);
                start = before;
            }
        }
        if let Some(&length) = self.by_start.get(&end) {
            self.by_start.remove(&end);
            end += length;
        }
        self.by_start.insert(start, end - start);
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
        for (start, bytes) in [(64, 100), (0, 10), (10, 54)] {
            ranges.give(start, bytes);
        }
        assert_eq!(ranges.take(1000, 512), Some(0));
        assert_eq!(ranges.take(1, 1), None);
    }
}
