//! Memory of ranks that are processes: memory that is older than the world, found by the peers, and whole
//! when one of them is killed while it works on it; how much a world takes, and that this does not grow.
//!
//! `cargo test --release -p muster-comm --test memory -- nothing_grows --nocapture calls=1000000` makes a
//! million calls instead of the few of every day, and prints what was seen.

#![expect(unsafe_code, reason = "buffers in memory that the ranks share")]
#![expect(
    clippy::wildcard_enum_match_arm,
    clippy::cast_precision_loss,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test: what it does not know fails it, its numbers are small, and processes talk"
)]

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use muster_comm::algo::Table;
use muster_comm::collective::{Communicator, PointToPoint};
use muster_comm::error::{CommError, ErrorKind};
use muster_comm::rendezvous::{Coordinator, CoordinatorOptions, Secret};
use muster_comm::sync::{Clock, Deadline};
use muster_comm::types::{Rank, ReduceOp};
use muster_comm::world::{JoinOptions, PeerReads, SharedMemory, Transport, World};

/// Elements of a buffer: more than rides in an entry, and long enough to be killed in.
const COUNT: usize = 300_000;
/// Worlds, one after the other, that one memory serves.
const WORLDS: usize = 2;
/// The job whose ranks read each other's memory.
const READING: &str = "killed-reading";
/// Calls that a rank makes before it must have met the death of its peer.
const CALLS_MAX: usize = 1_000_000;
const PATIENCE: Duration = Duration::from_secs(100);
/// Calls between two looks at what a rank holds, unless `calls=N` says otherwise.
const CALLS_WATCHED: usize = 20_000;
/// What the memory of a rank may differ by, in KiB: an allocator keeps pages that it may use again. A leak of
/// 32 bytes in each call would be more after few calls already.
const GROWTH_KIB: u64 = 512;

/// What a rank that is a process is told, as one argument that filters no test.
struct Orders {
    rank: i64,
    size: i64,
    job: String,
    addresses: Vec<SocketAddr>,
}

impl Orders {
    fn text(&self) -> String {
        let addresses: Vec<String> = self.addresses.iter().map(SocketAddr::to_string).collect();
        let (rank, size, job) = (self.rank, self.size, &self.job);
        format!("orders {rank} {size} {job} {}", addresses.join(" "))
    }

    fn given() -> Option<Self> {
        let text = std::env::args().find(|argument| argument.starts_with("orders "))?;
        let mut words = text.split(' ').skip(1);
        let mut word = || words.next().expect("a word more");
        Some(Self {
            rank: word().parse().expect("a rank"),
            size: word().parse().expect("a size"),
            job: word().to_owned(),
            addresses: words
                .map(|word| word.parse().expect("an address"))
                .collect(),
        })
    }

    fn join(&self, world: usize, memory: &Arc<SharedMemory>) -> World {
        let endpoint = self.addresses[world].into();
        let secret = Secret::from_text(b"of this test");
        let mut options = JoinOptions::new(endpoint, secret, self.rank, self.size);
        options.job_id.clone_from(&self.job);
        options.deadline = Duration::from_secs(60);
        options.memory = Some(Arc::clone(memory));
        if self.job.ends_with("-tcp") {
            options.transport = Transport::Tcp;
        }
        options.peer_reads = if self.job == READING {
            PeerReads::Always
        } else {
            PeerReads::Never
        };
        World::join(options).expect("the ranks meet")
    }
}

/// A buffer of `COUNT` elements at a part of the memory that is its alone.
#[expect(
    clippy::mut_from_ref,
    clippy::cast_ptr_alignment,
    reason = "an allocator, whose memory begins at a page"
)]
fn part(memory: &SharedMemory, number: usize) -> &mut [f32] {
    let at = memory
        .as_ptr()
        .wrapping_add(number * COUNT * size_of::<f32>());
    // SAFETY: inside the capacity and aligned; every number is asked for once, and peers write the
    // part only within calls that have it.
    unsafe { std::slice::from_raw_parts_mut(at.cast::<f32>(), COUNT) }
}

/// Not a test of its own: what a process does that another test started as a rank.
#[test]
fn a_rank_of_another_test() {
    let Some(orders) = Orders::given() else {
        return;
    };
    let memory = SharedMemory::create(64 << 30).expect("address space");
    let (mine, all) = (part(&memory, 0), part(&memory, 5));
    for number in 0..orders.addresses.len() {
        let world = orders.join(number, &memory);
        if let Some(calls) = orders.job.strip_prefix("growing-") {
            let calls = calls.trim_end_matches("-tcp").parse();
            call_and_look(&world, calls.expect("a number"), &memory);
            world.leave();
            continue;
        }
        let comm = world.everyone().expect("a group");
        if orders.job == "idle" {
            say_what_it_takes(&comm);
            world.leave();
            continue;
        }
        mine.fill(orders.rank as f32 + 1.0);
        comm.all_reduce(mine, all, ReduceOp::Sum).expect("a sum");
        let sum = (orders.size * (orders.size + 1) / 2) as f32;
        assert!(all.iter().all(|one| one.to_bits() == sum.to_bits()));
        // Ranks of two hosts would have staged; these have used the buffers themselves, and so the
        // memory holds them and no more.
        let buffers = 2 * (COUNT * size_of::<f32>()) as u64;
        assert!(memory.committed() < buffers + (64 << 10));
        if orders.job == "killed" {
            work_until_killed(mine, all, |mine, all| {
                comm.all_reduce(mine, all, ReduceOp::Max)
            });
        }
        if orders.job == READING {
            let mut ordinary = vec![0.0_f32; COUNT];
            let mine = mine.to_vec();
            comm.all_to_all(&mine, &mut ordinary).expect("blocks");
            // A sandbox may forbid it; that it is done where it may be, tests within one process show.
            println!("all_to_all: {:?}", comm.last_algorithm());
            for (rank, block) in ordinary.chunks(COUNT / world.size()).enumerate() {
                assert!(
                    block
                        .iter()
                        .all(|one| one.to_bits() == (rank as f32 + 1.0).to_bits())
                );
            }
            work_until_killed(&mut mine.clone(), &mut ordinary, |mine, all| {
                comm.all_to_all(mine, all)
            });
        }
        world.leave();
    }
}

/// Calls until the peer dies; then the buffers are this rank's again, and nobody writes them.
fn work_until_killed(
    mine: &mut [f32],
    all: &mut [f32],
    call: impl Fn(&[f32], &mut [f32]) -> Result<(), CommError>,
) {
    let mut call = || call(mine, all).err();
    assert!((0..10).all(|_| call().is_none()));
    println!("at work");
    let error = (0..CALLS_MAX).find_map(|_| call());
    let error = error.expect("the peer is killed");
    assert_eq!(blamed(&error), Rank(2), "{error}");
    mine.fill(1.5);
    all.fill(2.5);
    Clock::pause(Duration::from_millis(20));
    assert!(mine.iter().all(|one| one.to_bits() == 1.5_f32.to_bits()));
    assert!(all.iter().all(|one| one.to_bits() == 2.5_f32.to_bits()));
}

/// The groups that a rank calls on again and again, and its buffers.
struct Caller<'a> {
    world: &'a World,
    everyone: Communicator,
    /// The same ranks, whose calls go as messages.
    ring: Communicator,
    ranks: Vec<Rank>,
    vector: Vec<f32>,
    mine: &'a mut [f32],
    all: &'a mut [f32],
    /// Whether there is a region to take buffers from.
    shares_memory: bool,
}

impl Caller<'_> {
    /// Makes one call; every kind in turn, the dear ones seldom.
    fn call(&mut self, number: usize) -> Result<(), CommError> {
        let comm = &self.everyone;
        let (n, me) = (comm.size(), comm.rank());
        match number % 16 {
            0 => comm.barrier(),
            1 => comm.all_gather_object(&number).map(drop),
            2 => self
                .ring
                .all_reduce_in_place(&mut self.vector[..8], ReduceOp::Sum),
            3 => comm
                .all_reduce_async(vec![1_u32; 8], ReduceOp::Max)
                .wait()
                .map(drop),
            4 => comm.batch_send_recv(&[
                PointToPoint::send(&self.vector[..16], (me + 1) % n),
                PointToPoint::recv(&mut self.mine[..16], (me + n - 1) % n),
            ]),
            5 => {
                let counts: Vec<usize> = (0..n).map(|member| member % 3).collect();
                let sum = counts.iter().sum();
                comm.all_gather_v(&self.vector[..counts[me]], &mut self.all[..sum], &counts)
            }
            // Through staging, and straight between the buffers.
            6 if number.is_multiple_of(64) => comm.broadcast(&mut self.vector, number % n),
            7 if number.is_multiple_of(3) => {
                comm.all_reduce(&self.mine[..8192], &mut self.all[..8192], ReduceOp::Max)
            }
            8 if number.is_multiple_of(5) && self.shares_memory => {
                let mut buffer = self.world.alloc::<f32>(8192).expect("room in the region");
                comm.all_reduce_in_place(&mut buffer, ReduceOp::Max)
            }
            9 if number.is_multiple_of(7) => {
                let again = self.world.group("again", &self.ranks)?;
                again.all_reduce_in_place(&mut self.vector[..8], ReduceOp::Max)
            }
            _ => comm.all_reduce_in_place(&mut self.vector[..2], ReduceOp::Max),
        }
    }
}

/// What this process holds: anonymous memory and its share of what is shared, in KiB, and open descriptors.
fn held() -> (u64, usize) {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").expect("this process");
    let kib = |key: &str| {
        let line = rollup.lines().find_map(|line| line.strip_prefix(key));
        let number = line.map(|line| line.trim().trim_end_matches(" kB").parse::<u64>());
        number.expect("a line").expect("a number")
    };
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("this process");
    (kib("Anonymous:") + kib("Pss_Shmem:"), descriptors.count())
}

/// Makes calls of every kind, looks what the process holds, makes many more, and looks again.
fn call_and_look(world: &World, calls: usize, memory: &SharedMemory) {
    let ranks: Vec<Rank> = (0..world.size()).map(Rank::from_index).collect();
    let rules = Table::with_overrides("all_reduce -> ring").expect("a rule");
    let mut caller = Caller {
        world,
        everyone: world.everyone().expect("a group"),
        ring: world
            .group_with_rules("ring", &ranks, rules)
            .expect("a group"),
        ranks,
        vector: vec![1.0; 40_000],
        mine: part(memory, 0),
        all: part(memory, 5),
        shares_memory: world.alloc::<u8>(1).is_ok(),
    };
    let mut make = |calls: std::ops::Range<usize>| {
        for number in calls {
            caller.call(number).expect("a call");
        }
        // Everybody is as far as this rank when it looks.
        caller.everyone.barrier().expect("a barrier");
        let held = held();
        caller.everyone.barrier().expect("a barrier");
        held
    };
    let warm = 8192;
    let before = make(0..warm);
    let after = make(warm..warm + calls);
    println!("held {} {} {} {}", before.0, before.1, after.0, after.1);
}

/// Prints this process's share of the memory that all ranks take, in KiB, while all of them are there.
fn say_what_it_takes(comm: &Communicator) {
    let mut one = [1_u32];
    comm.all_reduce_in_place(&mut one, ReduceOp::Sum)
        .expect("a sum");
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").expect("this process");
    let share = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
    println!(
        "takes {}",
        share.expect("a line").trim().trim_end_matches(" kB")
    );
    comm.barrier().expect("a barrier");
}

/// The rank that is gone, as the error or its cause on another rank has it.
fn blamed(error: &CommError) -> Rank {
    let kind = match error.kind() {
        ErrorKind::PeerAborted { cause, .. } => cause,
        kind => kind,
    };
    match kind {
        ErrorKind::PeerClosed { peer, .. } => *peer,
        other => panic!("{other}"),
    }
}

/// The rendezvous of each world, and the processes of the ranks.
fn start(job: &str, size: i64, worlds: usize) -> (Vec<Coordinator>, Vec<Child>) {
    let secret = Secret::from_text(b"of this test");
    let ranks = u32::try_from(size).expect("few ranks");
    let coordinators: Vec<Coordinator> = (0..worlds)
        .map(|_| CoordinatorOptions::new(secret.clone(), job, ranks))
        .map(|options| Coordinator::start(options).expect("a free port"))
        .collect();
    let rank = |rank: i64| {
        let orders = Orders {
            rank,
            size,
            job: job.to_owned(),
            addresses: coordinators.iter().map(Coordinator::address).collect(),
        };
        Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "a_rank_of_another_test", "--nocapture"])
            .arg(orders.text())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process")
    };
    let children = (0..size).map(rank).collect();
    (coordinators, children)
}

/// The number that `calls=N` among the arguments asks for.
fn calls_asked_for() -> usize {
    let asked = std::env::args().find_map(|argument| {
        let number = argument.strip_prefix("calls=").map(str::parse);
        number.map(|number| number.expect("calls=N"))
    });
    asked.unwrap_or(CALLS_WATCHED)
}

/// Waits for a process; one that hangs is killed, and fails the test.
fn ends_well(child: &mut Child) -> bool {
    let deadline = Deadline::after(PATIENCE);
    while !deadline.passed() {
        if let Some(status) = child.try_wait().expect("a child") {
            return status.success();
        }
        Clock::pause(Duration::from_millis(5));
    }
    let _ = child.kill();
    let _ = child.wait();
    false
}

#[test]
fn memory_brought_along_reaches_ranks_that_are_processes() {
    let (_coordinators, mut children) = start("shared", 3, WORLDS);
    for (rank, child) in children.iter_mut().enumerate() {
        assert!(ends_well(child), "rank {rank}");
    }
}

#[test]
fn a_peer_killed_at_work_on_shared_buffers_is_named() {
    kill_one_at_work("killed");
}

#[test]
fn a_peer_killed_while_others_read_its_memory_is_named() {
    kill_one_at_work(READING);
}

fn kill_one_at_work(job: &str) {
    let (_coordinators, mut children) = start(job, 3, 1);
    let mut victim = children.pop().expect("three ranks");
    let output = victim.stdout.take().expect("its output");
    let mut lines = BufReader::new(output).lines();
    let at_work = lines.any(|line| line.is_ok_and(|line| line.contains("at work")));
    assert!(at_work, "rank 2 came to an end");
    Clock::pause(Duration::from_millis(10));
    victim.kill().expect("it lives");
    victim.wait().expect("it ends");
    for (rank, child) in children.iter_mut().enumerate() {
        assert!(ends_well(child), "rank {rank}");
    }
}

#[test]
fn nothing_grows_with_the_number_of_calls() {
    let calls = calls_asked_for();
    for job in [format!("growing-{calls}"), format!("growing-{calls}-tcp")] {
        let (_coordinators, mut children) = start(&job, 3, 1);
        for (rank, child) in children.iter_mut().enumerate() {
            let output = BufReader::new(child.stdout.take().expect("its output"));
            let lines = output.lines().map_while(Result::ok);
            let said: Vec<Vec<u64>> = lines
                .filter_map(|line| line.split_once("held ").map(|(_, rest)| rest.to_owned()))
                .map(|rest| {
                    rest.split(' ')
                        .map(|word| word.parse().expect("a number"))
                        .collect()
                })
                .collect();
            let [before_kib, before_open, after_kib, after_open] = said[..].concat()[..] else {
                panic!("rank {rank} of {job} said {said:?}");
            };
            println!(
                "{job}, rank {rank}: {before_kib} KiB and {before_open} descriptors before, {after_kib} and {after_open} after"
            );
            assert!(after_kib <= before_kib + GROWTH_KIB, "rank {rank} of {job}");
            assert!(after_open <= before_open, "rank {rank} of {job}");
            assert!(ends_well(child), "rank {rank} of {job}");
        }
    }
}

#[test]
fn sixteen_idle_ranks_take_less_than_200_mib_together() {
    let (_coordinators, mut children) = start("idle", 16, 1);
    let mut together_kib = 0;
    for (rank, child) in children.iter_mut().enumerate() {
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let lines = output.lines().map_while(Result::ok);
        let said =
            lines.filter_map(|line| line.split_once("takes ").map(|(_, kib)| kib.to_owned()));
        let kib: Vec<u64> = said.map(|kib| kib.parse().expect("a number")).collect();
        assert_eq!(kib.len(), 1, "rank {rank}");
        together_kib += kib[0];
        assert!(ends_well(child), "rank {rank}");
    }
    println!("{together_kib} KiB");
    assert!(together_kib < 200 << 10, "{together_kib} KiB");
}
