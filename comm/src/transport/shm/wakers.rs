//! The descriptors by which the ranks of an island wake each other where they sleep in `poll`.
//!
//! Each rank has a word in its region (see `doorbell`) and an event counter of the kernel's, which all ranks of the island can
//! write. It knows nothing of streams' contents, nor of what a rank waits for.
//!
//! - WAKERS-1: nobody reads a counter. Who sleeps has an `epoll` of its own, in which each write is a new edge. So threads of
//!   one rank that sleep at the same time cannot take each other's wake-ups.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};

use super::arena::Arena;
use super::doorbell::Doorbell;
use crate::transport::ring::RingStream;
use crate::transport::stream::{LinkError, LinkKind, Source, Stream, Target};

/// What wakes the ranks of an island.
#[derive(Debug)]
pub struct Wakers {
    arena: Arc<Arena>,
    /// Index of this rank's region.
    local: usize,
    /// The counter of each rank of the island.
    counters: Vec<OwnedFd>,
}

impl Wakers {
    /// Makes the counters of so many ranks: one rank does it, and hands them to the others.
    ///
    /// # Errors
    /// The system has no more descriptors.
    pub fn make_counters(ranks: usize) -> io::Result<Vec<OwnedFd>> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        (0..ranks).map(|_| Ok(eventfd(0, flags)?)).collect()
    }

    /// For the rank with region `local`; nothing unless there is a counter for each rank.
    #[must_use]
    pub fn new(arena: Arc<Arena>, local: usize, counters: Vec<OwnedFd>) -> Option<Self> {
        (counters.len() == arena.ranks() && local < counters.len()).then_some(Self {
            arena,
            local,
            counters,
        })
    }

    /// Wakes the rank with region `local` if it sleeps; to be called behind every change that it may wait for.
    pub fn ring(&self, local: usize) {
        self.ring_if(local, || true);
    }

    /// Wakes the threads of this rank that sleep.
    pub fn ring_own(&self) {
        self.ring(self.local);
    }

    /// The same where the change may concern nobody (DOORBELL-3).
    fn ring_if(&self, local: usize, concerns: impl FnOnce() -> bool) {
        self.bell(local).ring(concerns, || {
            // It fails only where the counter stands at its maximum, which nobody lives to see; who sleeps looks up by itself.
            let _ = rustix::io::write(&self.counters[local], &1_u64.to_ne_bytes());
        });
    }

    fn bell(&self, local: usize) -> Doorbell<'_> {
        Doorbell {
            asleep: self.arena.asleep_word(local),
        }
    }
}

/// Where one thread sleeps.
#[derive(Debug)]
pub struct Sleeper {
    wakers: Arc<Wakers>,
    edges: OwnedFd,
}

impl Sleeper {
    /// For a thread of the rank that these wakers belong to.
    ///
    /// # Errors
    /// The system has no more descriptors.
    pub fn new(wakers: &Arc<Wakers>) -> io::Result<Self> {
        let edges = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let counter = &wakers.counters[wakers.local];
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&edges, counter, epoll::EventData::new_u64(0), flags)?;
        let sleeper = Self {
            wakers: Arc::clone(wakers),
            edges,
        };
        // A counter that was written before is an edge.
        sleeper.take_edge();
        Ok(sleeper)
    }

    /// Calls `wait`, which sleeps until the descriptor that it gets is readable, unless `ready`. Says whether it is in the end.
    pub fn sleep(
        &self,
        ready: &mut dyn FnMut() -> bool,
        wait: impl FnOnce(BorrowedFd<'_>),
    ) -> bool {
        let own = self.wakers.bell(self.wakers.local);
        own.sleep(ready, || {
            wait(self.edges.as_fd());
            self.take_edge();
        })
    }

    /// What has come so far wakes nobody any more.
    fn take_edge(&self) {
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // An edge that stays ends the next sleep early, and nothing else.
        let _ = epoll::wait(&self.edges, &mut events, Some(&at_once));
    }
}

/// A ring that wakes the rank on its other side whenever that may go on.
#[derive(Debug)]
pub struct WakingRing {
    // Dropped before the bell, which rings then: the close is there when the peer looks.
    ring: RingStream,
    bell: PeerBell,
}

#[derive(Debug)]
struct PeerBell {
    wakers: Arc<Wakers>,
    /// Index of the peer's region.
    peer: usize,
}

impl PeerBell {
    fn ring(&self) {
        self.wakers.ring(self.peer);
    }
}

impl Drop for PeerBell {
    fn drop(&mut self) {
        self.ring();
    }
}

impl WakingRing {
    /// Has a ring to the rank with region `peer` wake it.
    #[must_use]
    pub fn new(ring: RingStream, wakers: &Arc<Wakers>, peer: usize) -> Self {
        let wakers = Arc::clone(wakers);
        Self {
            ring,
            bell: PeerBell { wakers, peer },
        }
    }
}

impl Stream for WakingRing {
    fn write_from(&mut self, source: Source<'_>) -> Result<usize, LinkError> {
        let written = self.ring.write_from(source);
        if written != Ok(0) {
            self.bell.ring();
        }
        written
    }

    fn read_into(&mut self, target: Target<'_>) -> Result<usize, LinkError> {
        let read = self.ring.read_into(target);
        match read {
            Ok(0) => {}
            // Who writes waits for room only where there was none.
            Ok(len) => {
                let was_full = || self.ring.was_full(len);
                self.bell.wakers.ring_if(self.bell.peer, was_full);
            }
            Err(_) => self.bell.ring(),
        }
        read
    }

    fn kind(&self) -> LinkKind {
        self.ring.kind()
    }

    fn reset(&mut self) {
        self.ring.reset();
        self.bell.ring();
    }

    fn stop_reading(&mut self) {
        self.ring.stop_reading();
        self.bell.ring();
    }

    fn has_lost(&self) -> bool {
        self.ring.has_lost()
    }
}

#[cfg(test)]
#[expect(unsafe_code, reason = "a ring needs a block of memory")]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sync::{AtomicBool, AtomicU32, Deadline, Ordering};
    use crate::transport::poll::{Interest, wait_until_ready};
    use crate::transport::shm::arena::HEAP_BYTES_MIN;

    /// No sleep of these tests is to last that long.
    const TOO_LONG: Duration = Duration::from_secs(60);

    fn ranks(count: usize) -> Vec<Arc<Wakers>> {
        let arena = Arc::new(Arena::create(count, HEAP_BYTES_MIN).unwrap());
        let counters = Wakers::make_counters(count).unwrap();
        let wakers = |local| {
            let counters = counters.iter().map(|one| one.try_clone().unwrap());
            Arc::new(Wakers::new(Arc::clone(&arena), local, counters.collect()).unwrap())
        };
        (0..count).map(wakers).collect()
    }

    /// Sleeps until `ready`, and says how often.
    fn sleep_until(wakers: &Arc<Wakers>, mut ready: impl FnMut() -> bool) -> u32 {
        let sleeper = Sleeper::new(wakers).unwrap();
        let mut sleeps = 0;
        let mut is_ready = false;
        while !is_ready {
            is_ready = sleeper.sleep(&mut ready, |bell| {
                sleeps += 1;
                let bell = Interest {
                    descriptor: bell,
                    write: false,
                };
                let is_woken =
                    wait_until_ready([bell].into_iter(), Deadline::after(TOO_LONG)).unwrap();
                assert!(is_woken, "nobody rang");
            });
        }
        sleeps
    }

    /// Waits until somebody sleeps at the bell of this rank.
    fn await_sleeper(wakers: &Wakers) {
        let patience = Deadline::after(TOO_LONG);
        while wakers
            .arena
            .asleep_word(wakers.local)
            .load(Ordering::Relaxed)
            == 0
        {
            assert!(!patience.passed(), "nobody sleeps");
            std::thread::yield_now();
        }
    }

    #[test]
    fn all_threads_of_a_rank_that_sleep_are_woken_time_and_again() {
        let ranks = ranks(2);
        let (turn, done) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for at_least in 1..=100 {
                        sleep_until(&ranks[1], || turn.load(Ordering::Acquire) >= at_least);
                        done.fetch_add(1, Ordering::AcqRel);
                        ranks[0].ring_own();
                    }
                });
            }
            for next in 1..=100 {
                turn.store(next, Ordering::Release);
                ranks[0].ring(1);
                sleep_until(&ranks[0], || done.load(Ordering::Acquire) == 3 * next);
            }
        });
    }

    #[test]
    fn a_rank_that_does_not_sleep_costs_no_signal() {
        let ranks = ranks(2);
        let sleeper = Sleeper::new(&ranks[1]).unwrap();
        ranks[0].ring(1);
        let interest = || Interest {
            descriptor: sleeper.edges.as_fd(),
            write: false,
        };
        let is_woken = |patience| wait_until_ready([interest()].into_iter(), patience).unwrap();
        assert!(!is_woken(Deadline::after(Duration::ZERO)));
        ranks[1].arena.asleep_word(1).store(1, Ordering::Relaxed);
        ranks[0].ring(1);
        assert!(is_woken(Deadline::after(TOO_LONG)));
    }

    #[test]
    fn who_waits_at_a_ring_is_woken_by_bytes_by_room_and_by_its_end() {
        const CAPACITY: usize = 4096;
        let ranks = ranks(2);
        let bytes = RingStream::block_bytes(CAPACITY);
        let mut block = vec![0_u64; bytes / 8 + 8];
        let start = block.as_mut_ptr().cast::<u8>();
        let start = start.wrapping_add(start.align_offset(crate::transport::ring::BLOCK_ALIGN));
        let keep: crate::transport::ring::Keep = Arc::new(());
        // SAFETY: the block is large enough, aligned, and outlives both sides.
        let near = unsafe { RingStream::create(start, bytes, Arc::clone(&keep)) }.unwrap();
        // SAFETY: as above; the stream was made there.
        let far = unsafe { RingStream::attach(start, bytes, keep) }.unwrap();
        let mut near = WakingRing::new(near, &ranks[0], 1);
        let mut far = WakingRing::new(far, &ranks[1], 0);
        let is_read = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (ranks, is_read) = (&ranks, &is_read);
            scope.spawn(move || {
                let mut got = [0; CAPACITY];
                // Bytes.
                let mut len = 0;
                sleep_until(&ranks[1], || {
                    len = far.try_read(&mut got[..1]).unwrap();
                    len > 0
                });
                assert_eq!((len, got[0]), (1, 7));
                is_read.store(true, Ordering::Release);
                ranks[1].ring(0);
                // Room: the other side sleeps before a byte of the full ring is taken.
                await_sleeper(&ranks[0]);
                assert_eq!(far.try_read(&mut got).unwrap(), CAPACITY);
                // The end.
                sleep_until(&ranks[1], || {
                    far.try_read(&mut got) == Err(LinkError::Closed)
                });
            });
            await_sleeper(&ranks[1]);
            assert_eq!(near.try_write(&[7]).unwrap(), 1);
            sleep_until(&ranks[0], || is_read.load(Ordering::Acquire));
            assert_eq!(near.try_write(&[8; CAPACITY]).unwrap(), CAPACITY);
            let sleeps = sleep_until(&ranks[0], || near.try_write(&[9]) == Ok(1));
            assert!(sleeps > 0);
            await_sleeper(&ranks[1]);
            drop(near);
        });
    }
}
