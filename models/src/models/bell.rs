//! The bell of `shm::bell`: nobody sleeps for ever.

use std::sync::Arc;
use std::time::Duration;

use loom::thread;

use crate::shm::bell::Bell;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

#[derive(Debug, Default)]
struct Shared {
    sleepers: Words,
    published: Word,
}

#[derive(Debug)]
struct Word(AtomicU64);

impl Default for Word {
    fn default() -> Self {
        Self(AtomicU64::new(0))
    }
}

#[derive(Debug)]
struct Words {
    sleepers: AtomicU32,
    bell: AtomicU32,
}

impl Default for Words {
    fn default() -> Self {
        Self {
            sleepers: AtomicU32::new(0),
            bell: AtomicU32::new(0),
        }
    }
}

impl Shared {
    fn bell(&self) -> Bell<'_> {
        Bell {
            sleepers: &self.sleepers.sleepers,
            bell: &self.sleepers.bell,
        }
    }

    /// Sleeps until so much is published. Without a time-out.
    fn await_published(&self, at_least: u64) {
        let mut ready = || self.published.0.load(Ordering::Acquire) >= at_least;
        while !ready() && !self.bell().sleep(&mut ready, Duration::MAX) {}
    }

    fn publish(&self, value: u64, is_fenced: bool) {
        self.published.0.store(value, Ordering::Release);
        if is_fenced {
            fence(Ordering::SeqCst);
        }
        self.bell().ring();
    }
}

/// One rank publishes some times, others sleep until each of it is there. With a fence between publishing
/// and ringing no wake-up is ever missed; without it one may be (BELL-1).
pub fn nobody_sleeps_for_ever(sleepers: usize, rings: u64, is_fenced: bool) {
    let shared = Arc::new(Shared::default());
    let threads: Vec<_> = (0..sleepers)
        .map(|_| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                for value in 1..=rings {
                    shared.await_published(value);
                }
            })
        })
        .collect();
    for value in 1..=rings {
        shared.publish(value, is_fenced);
    }
    for thread in threads {
        thread.join().expect("a sleeper ends well");
    }
}
