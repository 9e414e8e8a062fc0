//! The wait of `shm::wait` and the epoch of `context::epoch`: what is told is seen, and nobody sleeps for ever.

use std::sync::Arc;
use std::time::Duration;

use loom::thread;

use crate::context::epoch::Epoch;
use crate::shm::bell::Bell;
use crate::shm::wait::{Interrupted, Pace, Rest, until};
use crate::sync::{AtomicU32, AtomicU64, Deadline, Ordering};

#[derive(Debug, Default)]
struct Shared {
    epoch: Epoch,
    /// What a rank waits for. The kernel tells of a peer's end after it, so nothing here orders it but the epoch.
    part: AtomicU64,
    /// What is recorded before the epoch moves.
    news: AtomicU64,
    sleepers: AtomicU32,
    bell: AtomicU32,
}

impl Shared {
    fn bell(&self) -> Bell<'_> {
        Bell {
            sleepers: &self.sleepers,
            bell: &self.bell,
        }
    }

    /// A peer has ended, perhaps after its part: that is recorded and told.
    fn tell(&self, has_done_its_part: bool, news: u64) {
        self.part
            .store(u64::from(has_done_its_part), Ordering::Relaxed);
        self.news.store(news, Ordering::Relaxed);
        self.epoch.advance();
    }

    /// Waits for the part with the shipped loop, which never spins here.
    fn wait(&self, ordering: Ordering) -> Result<(), Interrupted> {
        let (pace, rest) = (Pace::for_ranks(usize::MAX, 1), Rest::Bell(self.bell()));
        let ready = || self.part.load(ordering) == 1;
        until(pace, Deadline, self.epoch.word(), 0, &rest, ready)
    }
}

/// A peer ends, and that is told: a wait for its part ends well if it had done it, and knows of the end otherwise (EPOCH-1).
///
/// # Panics
/// Where the wait blames a peer that has done its part, or ends before it can know why.
pub fn a_wait_ends_with_the_part_or_with_the_news(has_done_its_part: bool) {
    let shared = Arc::new(Shared::default());
    let teller = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || shared.tell(has_done_its_part, 7))
    };
    let ended = shared.wait(Ordering::Relaxed);
    if has_done_its_part {
        assert_eq!(ended, Ok(()), "a part that was done before the end counts");
    } else {
        assert_eq!(ended, Err(Interrupted::Epoch));
        assert_eq!(shared.news.load(Ordering::Relaxed), 7);
    }
    teller.join().expect("the teller ends well");
}

/// A peer does its part and rings: the wait ends, whether it sleeps or not, and sees what was published with the part.
///
/// # Panics
/// Where it does not see it.
pub fn a_wait_ends_with_what_is_published() {
    let shared = Arc::new(Shared::default());
    let peer = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || {
            shared.news.store(7, Ordering::Relaxed);
            shared.part.store(1, Ordering::Release);
            shared.bell().ring();
        })
    };
    assert_eq!(shared.wait(Ordering::Acquire), Ok(()));
    assert_eq!(shared.news.load(Ordering::Relaxed), 7);
    peer.join().expect("the peer ends well");
}

/// Something happens some times; a thread that does nothing but wait for news sleeps in between, and each time sees what
/// (EPOCH-2).
///
/// # Panics
/// Where it sees older news.
pub fn who_sleeps_for_news_gets_them(events: u64) {
    let shared = Arc::new(Shared::default());
    let teller = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || (1..=events).for_each(|news| shared.tell(false, news)))
    };
    let mut seen = 0;
    while seen < events {
        let now = shared.epoch.now();
        if now == seen {
            shared.epoch.sleep(seen, Duration::MAX);
            continue;
        }
        assert!(shared.news.load(Ordering::Relaxed) >= now, "older news");
        seen = now;
    }
    teller.join().expect("the teller ends well");
}
