//! Which parts of an allocation nobody has used yet.

/// Size of the parts. Small enough that a small use poisons little, large enough that 64 GiB need
/// no more than 32 KiB of notes.
pub const PART: u64 = 256 << 10;

/// One mark for each part of an allocation.
#[derive(Debug)]
pub struct Fresh {
    used: Vec<u64>,
    /// Parts that are still unused.
    left: u64,
}

impl Fresh {
    /// Notes for an allocation of `bytes`, all of it unused.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        let parts = bytes.div_ceil(PART);
        Self {
            used: vec![0; parts.div_ceil(64) as usize],
            left: parts,
        }
    }

    /// Whether every part was used.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.left == 0
    }

    /// Marks the parts of `bytes` from `start` as used, and gives those that were not.
    pub fn touch(&mut self, start: u64, bytes: u64) -> Vec<u64> {
        if bytes == 0 || self.is_over() {
            return Vec::new();
        }
        let mut found = Vec::new();
        for part in start / PART..=(start + bytes - 1) / PART {
            let (word, bit) = ((part / 64) as usize, 1 << (part % 64));
            if self.used[word] & bit == 0 {
                self.used[word] |= bit;
                self.left -= 1;
                found.push(part);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::{Fresh, PART};

    #[test]
    fn every_part_is_given_once() {
        let mut fresh = Fresh::new(70 * PART + 1);
        assert_eq!(fresh.touch(PART - 1, 2), [0, 1]);
        assert_eq!(fresh.touch(0, 3 * PART), [2]);
        assert!(fresh.touch(5 * PART, 0).is_empty());
        assert_eq!(fresh.touch(0, 70 * PART + 1).len(), 71 - 3);
        assert!(fresh.is_over());
        assert!(fresh.touch(70 * PART, 1).is_empty());
    }
}
