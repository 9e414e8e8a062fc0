//! The doorbell of `shm::doorbell`: nobody sleeps for ever.

use std::sync::Arc;

use loom::sync::{Condvar, Mutex};
use loom::thread;

use super::ring::{CAPACITY, Ring};
use crate::ring::cursor::Cursor;
use crate::shm::doorbell::Doorbell;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// What a rank sleeps at, and what its peers publish.
#[derive(Debug)]
struct Rank {
    asleep: AtomicU32,
    published: Vec<AtomicU64>,
    /// The kernel's side: who sleeps has an edge of its own, which a signal sets, and which it takes when it wakes. There is no
    /// time-out: a wake-up that is missed is a deadlock, which loom tells.
    edges: Mutex<Vec<bool>>,
    signalled: Condvar,
}

impl Rank {
    fn new(sleepers: usize, ringers: usize) -> Arc<Self> {
        Arc::new(Self {
            asleep: AtomicU32::new(0),
            published: (0..ringers).map(|_| AtomicU64::new(0)).collect(),
            edges: Mutex::new(vec![false; sleepers]),
            signalled: Condvar::new(),
        })
    }

    fn bell(&self) -> Doorbell<'_> {
        Doorbell {
            asleep: &self.asleep,
        }
    }

    fn signal(&self) {
        let mut edges = self.edges.lock().expect("nobody panics with it");
        edges.fill(true);
        self.signalled.notify_all();
        drop(edges);
    }

    fn wait(&self, sleeper: usize) {
        let mut edges = self.edges.lock().expect("nobody panics with it");
        while !edges[sleeper] {
            edges = self.signalled.wait(edges).expect("nobody panics with it");
        }
        edges[sleeper] = false;
    }

    /// Sleeps until this ringer has published so much.
    fn await_published(&self, sleeper: usize, ringer: usize, at_least: u64) {
        let word = &self.published[ringer];
        let mut ready = || word.load(Ordering::Acquire) >= at_least;
        while !ready() && !self.bell().sleep(&mut ready, || self.wait(sleeper)) {}
    }

    fn publish(&self, ringer: usize, value: u64) {
        self.published[ringer].store(value, Ordering::Release);
        self.bell().ring(|| true, || self.signal());
    }
}

/// One rank with some threads that sleep, each until another peer has published so many values (DOORBELL-1, 2).
pub fn threads_of_a_rank_are_woken(sleepers: usize, values: u64) {
    let rank = Rank::new(sleepers, sleepers);
    let threads: Vec<_> = (0..sleepers)
        .map(|sleeper| {
            let rank = Arc::clone(&rank);
            thread::spawn(move || {
                for value in 1..=values {
                    rank.await_published(sleeper, sleeper, value);
                }
            })
        })
        .collect();
    for value in 1..=values {
        for ringer in 0..sleepers {
            rank.publish(ringer, value);
        }
    }
    for thread in threads {
        thread.join().expect("a sleeper ends well");
    }
}

/// One rank that sleeps until each of two peers has published so many values: a peer may leave the signal to the other one.
pub fn a_rank_is_woken_by_each_of_its_peers(values: u64) {
    let rank = Rank::new(1, 2);
    let threads: Vec<_> = (0..2)
        .map(|ringer| {
            let rank = Arc::clone(&rank);
            thread::spawn(move || {
                for value in 1..=values {
                    rank.publish(ringer, value);
                }
            })
        })
        .collect();
    for ringer in 0..2 {
        rank.await_published(0, ringer, values);
    }
    for thread in threads {
        thread.join().expect("a peer ends well");
    }
}

/// A rank writes units into a ring that is soon full, another one reads them; each sleeps where it cannot go on (DOORBELL-3).
///
/// # Panics
/// If a unit is lost or comes twice.
pub fn who_waits_for_room_or_for_units_is_woken(sent: u64) {
    let ring = Ring::new();
    let (writer, reader) = (Rank::new(1, 0), Rank::new(1, 0));
    let thread = {
        let (ring, writer, reader) = (Arc::clone(&ring), Arc::clone(&writer), Arc::clone(&reader));
        thread::spawn(move || {
            let mut cursor = Cursor::new(CAPACITY);
            for unit in 1..=sent {
                let mut put = || ring.put(&mut cursor, unit);
                while !put() && !writer.bell().sleep(&mut put, || writer.wait(0)) {}
                reader.bell().ring(|| true, || reader.signal());
            }
        })
    };
    let mut cursor = Cursor::new(CAPACITY);
    for unit in 1..=sent {
        let mut got = None;
        let mut take = || {
            got = ring.take(&mut cursor);
            got.is_some()
        };
        while !take() && !reader.bell().sleep(&mut take, || reader.wait(0)) {}
        assert_eq!(got, Some(unit));
        let was_full = || cursor.was_full(ring.writer.told(), 1);
        writer.bell().ring(was_full, || writer.signal());
    }
    thread.join().expect("a writer does not panic");
}
