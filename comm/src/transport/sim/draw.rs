//! What a simulation draws from its seed, and the hash of what happened.

use std::ops::RangeInclusive;

/// The random numbers of a simulation: a counter that is scrambled (Steele, Lea and Flood, "Fast
/// splittable pseudorandom number generators", 2014).
#[derive(Clone, Debug)]
pub(crate) struct Draw {
    counter: u64,
}

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        Self { counter: seed }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.counter = self.counter.wrapping_add(0x9e37_79b9_7f4a_7c15);
        scramble(self.counter)
    }

    /// A number from 0 to `last`. (The low bias of a remainder does not matter to a simulation.)
    pub(crate) fn up_to(&mut self, last: u64) -> u64 {
        match last.checked_add(1) {
            Some(count) => self.next() % count,
            None => self.next(),
        }
    }

    /// A number from a range; its start if it is empty.
    pub(crate) fn within(&mut self, range: &RangeInclusive<u64>) -> u64 {
        range.start() + self.up_to(range.end().saturating_sub(*range.start()))
    }
}

fn scramble(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// A hash over events in order.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    pub(crate) hash: u64,
}

impl Trace {
    pub(crate) fn add(&mut self, what: u64, at_ns: u64, value: u64) {
        for word in [what, at_ns, value] {
            self.hash = scramble(self.hash.wrapping_add(word).wrapping_add(1));
        }
    }
}
