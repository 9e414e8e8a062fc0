//! Worlds of threads for the conformance tests, every one bounded in time, and random numbers.

#![expect(unsafe_code, reason = "buffers in memory that the ranks share")]

use std::panic::resume_unwind;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use muster_comm::algo::Table;
use muster_comm::collective::Communicator;
use muster_comm::config::Environment;
use muster_comm::error::{CommError, ErrorKind};
use muster_comm::rendezvous::{Coordinator, CoordinatorOptions, Secret};
use muster_comm::sync::{AtomicUsize, Ordering};
use muster_comm::types::Rank;
use muster_comm::watch::arbiter::arbiter;
use muster_comm::world::{JoinOptions, PeerReads, SharedMemory, ThreadOptions, Transport, World};

/// After this a test is taken to hang. Calls have a deadline far below.
const PATIENCE: Duration = Duration::from_secs(240);
/// Deadline of calls that are not about deadlines.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);
/// What "at once" means on a machine that does much else; far below [`DEADLINE`].
pub(crate) const AT_ONCE: Duration = Duration::from_secs(10);

/// What links the ranks of a test, and what they do over it.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// `Auto` and `Shm` are the same for threads.
    pub(crate) transport: Transport,
    /// Rules in front of the built-in selection table.
    pub(crate) table: String,
    pub(crate) checksum: bool,
    pub(crate) deadline: Duration,
    pub(crate) region_bytes: usize,
    /// Over a rendezvous, as processes do it, also where the ranks could simply be threads.
    pub(crate) joined: bool,
    /// Whether ranks read each other's memory by system call; of those only that are joined.
    pub(crate) peer_reads: PeerReads,
}

impl Setup {
    pub(crate) fn shm() -> Self {
        Self {
            transport: Transport::Shm,
            table: String::new(),
            checksum: false,
            deadline: DEADLINE,
            region_bytes: 1 << 30,
            joined: false,
            peer_reads: PeerReads::Never,
        }
    }

    pub(crate) fn tcp() -> Self {
        Self {
            transport: Transport::Tcp,
            ..Self::shm()
        }
    }

    /// Ranks as processes have them, that may read each other's memory.
    pub(crate) fn reading() -> Self {
        Self {
            joined: true,
            transport: Transport::Auto,
            peer_reads: PeerReads::Always,
            ..Self::shm()
        }
    }

    pub(crate) fn deadline_ms(self, deadline: u64) -> Self {
        Self {
            deadline: Duration::from_millis(deadline),
            ..self
        }
    }

    fn table(&self) -> Option<Table> {
        (!self.table.is_empty()).then(|| Table::with_overrides(&self.table).unwrap())
    }
}

/// Runs `body` as `n` ranks and returns what they returned, in rank order.
pub(crate) fn ranks<T: Send + 'static>(
    n: usize,
    setup: &Setup,
    body: impl Fn(World) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let setup = setup.clone();
    bounded(move || {
        if setup.transport == Transport::Tcp || setup.joined {
            return joined(n, &setup, body);
        }
        let options = ThreadOptions {
            algo_table: setup.table(),
            checksum: setup.checksum,
            deadline: setup.deadline,
            region_bytes: setup.region_bytes,
            memory: Some(brought()),
            pin: false,
            ..ThreadOptions::default()
        };
        World::threads_with(n, &options, body).unwrap()
    })
}

/// The same over a rendezvous, as processes do it.
fn joined<T: Send>(n: usize, setup: &Setup, body: impl Fn(World) -> T + Sync) -> Vec<T> {
    let secret = Secret::random().unwrap();
    let mut options = CoordinatorOptions::new(secret.clone(), "conform", u32::try_from(n).unwrap());
    options.arbiter = Some(arbiter);
    let coordinator = Coordinator::start(options).unwrap();
    let address = coordinator.address();
    let join = |rank: usize| {
        let (rank, n) = (i64::try_from(rank).unwrap(), i64::try_from(n).unwrap());
        let mut options = JoinOptions::new(address.into(), secret.clone(), rank, n);
        options.job_id = "conform".to_owned();
        options.transport = setup.transport;
        options.deadline = setup.deadline;
        options.algo_table = setup.table();
        options.checksum = setup.checksum;
        options.region_bytes = setup.region_bytes;
        options.memory = setup.joined.then(brought);
        options.peer_reads = setup.peer_reads;
        let world = World::join(options).unwrap();
        let value = body(world.clone());
        world.leave();
        value
    };
    thread::scope(|scope| {
        let join = &join;
        let ranks: Vec<_> = (0..n).map(|rank| scope.spawn(move || join(rank))).collect();
        let join = |rank: thread::ScopedJoinHandle<'_, T>| rank.join();
        let values = ranks.into_iter().map(join);
        values
            .map(|value| value.unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    })
}

/// The memory that all worlds of these tests are given: older than all of them.
pub(crate) fn brought() -> Arc<SharedMemory> {
    static BROUGHT: OnceLock<Arc<SharedMemory>> = OnceLock::new();
    Arc::clone(BROUGHT.get_or_init(|| SharedMemory::create(WINDOWS * WINDOW).unwrap()))
}

/// Each buffer has a part of that memory to itself.
const WINDOW: usize = 64 << 20;
const WINDOWS: usize = 1 << 16;

/// Bytes of the memory that was brought along.
pub(crate) struct Carved {
    memory: Arc<SharedMemory>,
    at: usize,
    len: usize,
}

impl Carved {
    pub(crate) fn new(len: usize) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        assert!(len <= WINDOW);
        // All windows in turn: tests do not keep their buffers for so long.
        let at = NEXT.fetch_add(1, Ordering::Relaxed) % WINDOWS * WINDOW;
        let memory = brought();
        Self { memory, at, len }
    }

    fn start(&self) -> *mut u8 {
        self.memory.as_ptr().wrapping_add(self.at)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the window is this buffer's alone, and peers write it only in calls that have it.
        unsafe { std::slice::from_raw_parts(self.start(), self.len) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.len) }
    }
}

impl Drop for Carved {
    fn drop(&mut self) {
        let pages = self.len.next_multiple_of(4096);
        self.memory.discard(self.at, pages).unwrap();
    }
}

/// Runs `body`, and fails loudly where it does not come to an end.
pub(crate) fn bounded<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = channel();
    let thread = thread::spawn(move || {
        // The receiver is gone only if the test has failed already.
        let _ = sender.send(body());
    });
    match receiver.recv_timeout(PATIENCE) {
        Ok(value) => value,
        Err(RecvTimeoutError::Timeout) => panic!("the ranks hang: nothing after {PATIENCE:?}"),
        Err(RecvTimeoutError::Disconnected) => resume_unwind(thread.join().unwrap_err()),
    }
}

/// All members' world ranks `0..n`.
pub(crate) fn rank_list(list: &[usize]) -> Vec<Rank> {
    list.iter().map(|rank| Rank::from_index(*rank)).collect()
}

/// A communicator of these world ranks.
pub(crate) fn group(world: &World, name: &str, list: &[usize]) -> Communicator {
    world.group(name, &rank_list(list)).unwrap()
}

/// The error itself, or the one that another rank met first and passed on.
pub(crate) fn cause(error: &CommError) -> &ErrorKind {
    match error.kind() {
        ErrorKind::PeerAborted { cause, .. } => cause,
        kind => kind,
    }
}

/// Numbers that look random and are the same for the same seed.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    pub(crate) fn shuffle<T>(&mut self, list: &mut [T]) {
        for i in (1..list.len()).rev() {
            list.swap(i, self.below(i + 1));
        }
    }
}

/// The seed of everything random: `MUSTER_SEED`, or a fixed one. Failures print it.
pub(crate) fn seed() -> u64 {
    let environment = Environment::capture();
    let text = environment.text("MUSTER_SEED").unwrap();
    text.map_or(0x5eed, |text| text.parse().unwrap())
}

/// Ranks of one test share their findings this way.
pub(crate) type Shared<T> = Arc<std::sync::Mutex<T>>;
