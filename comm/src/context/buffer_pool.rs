//! Buffers that calls with objects leave for the next ones: memory that is new to a process costs more to touch
//! than to copy into.

use crate::sync::{Mutex, lock};

/// Most bytes that are kept.
const KEPT_BYTES_MAX: usize = 16 << 20;
/// Most buffers that are kept: a call needs two.
const KEPT_MAX: usize = 4;

/// The buffers of a process that no call uses, by capacity, the smallest in front.
#[derive(Debug, Default)]
pub(crate) struct BufferPool(Mutex<Vec<Vec<u8>>>);

impl BufferPool {
    /// An empty buffer with room for `len` bytes, new where none of those kept has it.
    pub(crate) fn take(&self, len: usize) -> Vec<u8> {
        let mut kept = lock(&self.0);
        let place = kept.iter().position(|buffer| buffer.capacity() >= len);
        place.map_or_else(Vec::new, |place| kept.remove(place))
    }

    /// Keeps a buffer, if need be in place of smaller ones; frees one that is too large or has no memory.
    pub(crate) fn give(&self, mut buffer: Vec<u8>) {
        if !(1..=KEPT_BYTES_MAX).contains(&buffer.capacity()) {
            return;
        }
        buffer.clear();
        let mut kept = lock(&self.0);
        let bytes = |kept: &[Vec<u8>]| kept.iter().map(Vec::capacity).sum::<usize>();
        let place = kept.partition_point(|other| other.capacity() < buffer.capacity());
        kept.insert(place, buffer);
        // The smaller ones are sooner made anew.
        while kept.len() > KEPT_MAX || bytes(&kept) > KEPT_BYTES_MAX {
            kept.remove(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(spare: &BufferPool) -> Vec<usize> {
        let kept = spare.0.lock().unwrap();
        kept.iter().map(Vec::capacity).collect()
    }

    #[test]
    fn the_smallest_buffer_that_has_room_is_taken_and_comes_empty() {
        let spare = BufferPool::default();
        assert_eq!(spare.take(5).capacity(), 0);
        for capacity in [4000, 100, 2000] {
            spare.give(vec![7; capacity]);
        }
        assert_eq!(kept(&spare), [100, 2000, 4000]);
        let taken = spare.take(101);
        assert_eq!((taken.len(), taken.capacity()), (0, 2000));
        assert_eq!(spare.take(4001).capacity(), 0);
        assert_eq!(kept(&spare), [100, 4000]);
    }

    #[test]
    fn what_is_kept_has_a_bound_in_number_and_in_bytes() {
        let spare = BufferPool::default();
        spare.give(Vec::new());
        assert!(kept(&spare).is_empty());
        for capacity in 1..=2 * KEPT_MAX {
            spare.give(Vec::with_capacity(capacity));
        }
        assert_eq!(kept(&spare), [5, 6, 7, 8]);
        spare.give(Vec::with_capacity(KEPT_BYTES_MAX + 1));
        assert_eq!(kept(&spare), [5, 6, 7, 8]);
        spare.give(Vec::with_capacity(KEPT_BYTES_MAX - 15));
        assert_eq!(kept(&spare), [7, 8, KEPT_BYTES_MAX - 15]);
    }
}
