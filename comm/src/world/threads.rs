//! Ranks as threads of one process: for tests, for embedding, and for examples.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::hub::{Hub, Seat};
use super::{DEADLINE_DEFAULT, SharedMemory, World};
use crate::algo::Table;
use crate::context::{Context, Gone, Island, Life};
use crate::kernel::Kernels;
use crate::processors::{self, Bind};
use crate::rendezvous::DownReason;
use crate::transport::shm::arena::{Arena, ArenaError, HEAP_BYTES_DEFAULT};
use crate::transport::shm::heap::Heap;
use crate::transport::shm::spaces::Spaces;
use crate::transport::shm::wait::Pace;
use crate::types::Rank;
use crate::watch::{CallSites, Mode};

/// How ranks that are threads work together; the default is what [`World::threads`] gives.
#[derive(Clone, Debug)]
pub struct ThreadOptions {
    /// The user's rules for choosing algorithms, in front of the built-in ones.
    pub algo_table: Option<Table>,
    /// Whether messages carry a checksum.
    pub checksum: bool,
    /// What is made of the places in the program that calls come from.
    pub call_sites: CallSites,
    /// Deadline of every call, unless a communicator says otherwise.
    pub deadline: Duration,
    /// Heap of each rank's shared region, in bytes. Address space; memory is used as written.
    pub region_bytes: usize,
    /// Whether the ranks are watched. Off only to measure what watching costs.
    pub watched: bool,
    /// Memory that is older than the world; see [`SharedMemory`]. All ranks, being threads, share it.
    pub memory: Option<Arc<SharedMemory>>,
    /// Whether each rank keeps to its share of the processors.
    pub pin: bool,
    /// Kernels that the process is to use instead of the best ones; see
    /// [`Kernels::use_everywhere`].
    pub kernels: Option<Kernels>,
}

impl ThreadOptions {
    fn mode(&self) -> Mode {
        if self.watched {
            Mode::Thread
        } else {
            Mode::Off
        }
    }
}

impl Default for ThreadOptions {
    fn default() -> Self {
        Self {
            algo_table: None,
            checksum: false,
            call_sites: CallSites::default(),
            deadline: DEADLINE_DEFAULT,
            region_bytes: HEAP_BYTES_DEFAULT,
            watched: true,
            memory: None,
            pin: false,
            kernels: None,
        }
    }
}

impl World {
    /// Runs `body` on `world_size` threads, each as one rank, and returns what they returned, in
    /// rank order. The ranks share memory exactly as processes of one host do.
    ///
    /// A rank that panics counts as gone: the others' calls end with an error that names it, and
    /// the panic is passed on when all have ended.
    ///
    /// # Errors
    /// Where the shared memory cannot be made.
    ///
    /// # Panics
    /// With the panic of the lowest rank that panicked.
    pub fn threads<T: Send>(
        world_size: usize,
        body: impl Fn(Self) -> T + Sync,
    ) -> Result<Vec<T>, ArenaError> {
        Self::threads_with(world_size, &ThreadOptions::default(), body)
    }

    /// [`World::threads`] with options.
    ///
    /// # Errors
    /// Where the shared memory cannot be made.
    ///
    /// # Panics
    /// With the panic of the lowest rank that panicked.
    pub fn threads_with<T: Send>(
        world_size: usize,
        options: &ThreadOptions,
        body: impl Fn(Self) -> T + Sync,
    ) -> Result<Vec<T>, ArenaError> {
        if let Some(kernels) = options.kernels {
            kernels.use_everywhere();
        }
        let worlds = Self::seats(world_size, options)?;
        let results = thread::scope(|scope| {
            let threads: Vec<_> = worlds
                .into_iter()
                .map(|(world, hub)| {
                    let body = &body;
                    scope.spawn(move || {
                        let _leaving = Leaving {
                            hub,
                            rank: world.rank(),
                        };
                        if options.pin {
                            // A rank that may not be placed runs all the same.
                            let _ = processors::bind_thread(
                                Bind::Share,
                                world.rank().index(),
                                world_size,
                            );
                        }
                        body(world)
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(thread::ScopedJoinHandle::join)
                .collect::<Vec<_>>()
        });
        let mut values = Vec::with_capacity(world_size);
        for result in results {
            match result {
                Ok(value) => values.push(value),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(values)
    }

    fn seats(
        world_size: usize,
        options: &ThreadOptions,
    ) -> Result<Vec<(Self, Arc<Hub>)>, ArenaError> {
        let arena = Arc::new(Arena::create(world_size, options.region_bytes)?);
        let hub = Hub::new(world_size, options.mode());
        let locals: Vec<_> = (0..world_size).map(Some).collect();
        let seat = |local: usize| {
            let rank = Rank::from_index(local);
            let island = Island {
                arena: Arc::clone(&arena),
                heap: Arc::new(Heap::new(Arc::clone(&arena), local)),
                spaces: Spaces::new(Arc::clone(&arena), vec![options.memory.clone()], Some(0)),
                local,
                locals: locals.clone(),
                wakers: None,
                retired: Mutex::default(),
            };
            let inner = Context {
                rank,
                size: world_size,
                job: 0,
                island: Some(island),
                net: None,
                hosts: vec![0; world_size],
                peers: None,
                control: Box::new(Seat {
                    hub: Arc::clone(&hub),
                    rank,
                }),
                status: hub.status(rank),
                watch: hub.watch(rank),
                deadline: options.deadline,
                pace: Pace::for_ranks(world_size, processors::own()),
                table: options.algo_table.clone(),
                checksum: options.checksum,
                call_sites: if options.watched {
                    options.call_sites
                } else {
                    CallSites::Off
                },
                life: Life::default(),
            };
            (
                Self {
                    inner: Arc::new(inner),
                },
                Arc::clone(&hub),
            )
        };
        Ok((0..world_size).map(seat).collect())
    }
}

/// Tells the others when a thread ends, and how.
struct Leaving {
    hub: Arc<Hub>,
    rank: Rank,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let panicked = thread::panicking();
        let gone = if panicked {
            Gone {
                how: "panicked".to_owned(),
                ..Gone::lost(DownReason::Panicked {
                    text: "panicked".to_owned(),
                })
            }
        } else {
            Gone::left()
        };
        self.hub.set_gone(self.rank, &gone);
    }
}
