//! Memory of steps, kept from one step to the next.
//!
//! A step needs buffers of hundreds of MiB. Taken from the system anew each time, their pages cost more
//! than what is measured; programs that train keep theirs, too.

use std::any::{Any, TypeId};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;

/// Buffers that are free to be used again, by type of element. Of one thread.
#[derive(Default)]
pub struct Pool {
    free: RefCell<HashMap<TypeId, Vec<Box<dyn Any>>>>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

impl Pool {
    /// A buffer of `count` elements that all are `value`: never what an earlier step left.
    #[must_use]
    pub fn take<T: Copy + 'static>(&self, count: usize, value: T) -> Vec<T> {
        let mut buffer = self.empty(count);
        buffer.resize(count, value);
        buffer
    }

    /// A buffer without elements that has room for `count`.
    #[must_use]
    pub fn empty<T: 'static>(&self, count: usize) -> Vec<T> {
        let mut all = self.free.borrow_mut();
        let free = all.entry(TypeId::of::<T>()).or_default();
        let room = |buffer: &dyn Any| buffer.downcast_ref::<Vec<T>>().map_or(0, Vec::capacity);
        // The smallest that is large enough, else the largest, which grows.
        let fitting = (0..free.len()).min_by_key(|place| {
            let room = room(free[*place].as_ref());
            (
                room < count,
                if room < count {
                    usize::MAX - room
                } else {
                    room
                },
            )
        });
        let buffer = fitting.map(|place| free.swap_remove(place));
        let mut buffer = buffer
            .and_then(|buffer| buffer.downcast::<Vec<T>>().ok())
            .map_or_else(Vec::new, |buffer| *buffer);
        buffer.clear();
        buffer.reserve(count);
        buffer
    }

    /// Takes a buffer back.
    pub fn give<T: 'static>(&self, buffer: Vec<T>) {
        let mut all = self.free.borrow_mut();
        all.entry(TypeId::of::<T>())
            .or_default()
            .push(Box::new(buffer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_back_without_what_was_in_it() {
        let pool = Pool::default();
        let (small, large) = (pool.take(10, 7_u8), pool.take(1000, 7_u8));
        let place = large.as_ptr();
        pool.give(large);
        pool.give(small);
        let again = pool.take(900, 0_u8);
        assert_eq!(again.as_ptr(), place);
        assert!(again.iter().all(|byte| *byte == 0) && again.len() == 900);
        assert_eq!(pool.take(3, 1.5_f32), [1.5; 3]);
        assert_eq!(pool.take(12, 1_u8), [1; 12]);
    }
}
