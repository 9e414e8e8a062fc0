//! Collectives over ordinary memory and over region memory, call by call.
//!
//! One line a cell: the median over calls of the slowest rank's time, with the least and the 90th
//! percentile. Every call begins behind a barrier; ranks are
//! threads, each kept to its share of the processors. Arguments (behind `--`) pick cells: `ranks=2,8`,
//! `bytes=1MiB`, `only=all_reduce`, `memory=region`, `budget_ms=300`; without any, all cells are run. Made
//! for runs that alternate with another program's, since only such ratios mean something on a machine
//! that does other work too.

#![expect(clippy::print_stdout, reason = "the table is the output")]

use std::sync::Mutex;
use std::time::Duration;

use half::bf16;
use muster_comm::buffer::Element;
use muster_comm::collective::Communicator;
use muster_comm::error::CommError;
use muster_comm::sync::Clock;
use muster_comm::types::ReduceOp;
use muster_comm::world::{RegionBuffer, ThreadOptions, World};

/// Calls that are not timed.
const WARM_UPS: usize = 3;
/// Least and most calls of a cell.
const CALLS: (u32, u32) = (7, 4000);
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// What is measured: the collective, and what a "size" is: the whole buffer, or all blocks together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    AllReduce,
    AllReduceBf16,
    AllReduceInPlace,
    AllToAll,
    AllGather,
    ReduceScatter,
    Broadcast,
    Barrier,
}

const OPS: [(Op, &str, &[usize]); 8] = [
    (Op::Barrier, "barrier", &[0]),
    (
        Op::AllReduce,
        "all_reduce_f32",
        &[8, KIB, 64 * KIB, MIB, 16 * MIB, 128 * MIB],
    ),
    (
        Op::AllReduceInPlace,
        "all_reduce_f32_in_place",
        &[64 * KIB, MIB, 16 * MIB, 128 * MIB],
    ),
    (
        Op::AllReduceBf16,
        "all_reduce_bf16",
        &[8, KIB, 64 * KIB, MIB, 16 * MIB, 128 * MIB],
    ),
    (
        Op::AllToAll,
        "all_to_all",
        &[8 * KIB, MIB, 16 * MIB, 64 * MIB],
    ),
    (Op::AllGather, "all_gather", &[KIB, MIB, 16 * MIB]),
    (Op::ReduceScatter, "reduce_scatter", &[KIB, MIB, 16 * MIB]),
    (Op::Broadcast, "broadcast", &[KIB, MIB, 16 * MIB]),
];

/// A buffer of either kind.
enum Buffer<T> {
    Ordinary(Vec<T>),
    Region(RegionBuffer<T>),
}

impl<T: Element> Buffer<T> {
    fn new(world: &World, region: bool, count: usize) -> Self {
        let mut buffer = if region {
            Self::Region(world.alloc(count).expect("the region has room"))
        } else {
            Self::Ordinary(vec![T::zeroed(); count])
        };
        // Touched, so that no page is made in a timed call.
        buffer.get().fill(T::zeroed());
        buffer
    }

    fn get(&mut self) -> &mut [T] {
        match self {
            Self::Ordinary(all) => all,
            Self::Region(all) => all,
        }
    }
}

fn call<T: Element>(
    op: Op,
    comm: &Communicator,
    send: &mut [T],
    recv: &mut [T],
) -> Result<(), CommError> {
    let block = send.len() / comm.size();
    match op {
        Op::AllReduce | Op::AllReduceBf16 => comm.all_reduce(send, recv, ReduceOp::Sum),
        Op::AllReduceInPlace => comm.all_reduce_in_place(send, ReduceOp::Sum),
        Op::AllToAll => comm.all_to_all(send, recv),
        Op::AllGather => comm.all_gather(&send[..block], recv),
        Op::ReduceScatter => comm.reduce_scatter(send, &mut recv[..block], ReduceOp::Sum),
        Op::Broadcast => comm.broadcast(recv, 0),
        Op::Barrier => comm.barrier(),
    }
}

/// The times of one rank's calls, and the least of a barrier.
fn times<T: Element>(
    world: &World,
    op: Op,
    bytes: usize,
    region: bool,
    budget: Duration,
) -> (Vec<Duration>, Duration) {
    let comm = world.everyone().expect("a group of all ranks");
    let n = comm.size();
    let count = bytes / size_of::<T>() / n * n;
    let (mut send, mut recv) = (
        Buffer::<T>::new(world, region, count),
        Buffer::<T>::new(world, region, count),
    );
    let mut once = || {
        let start = Clock::now();
        call(op, &comm, send.get(), recv.get()).expect("the collective works");
        start.elapsed()
    };
    let warm: Duration = (0..WARM_UPS).map(|_| once()).sum();
    let about = u32::try_from(WARM_UPS).unwrap_or(1);
    let calls = budget.as_nanos() / (warm / about).as_nanos().max(1);
    let mut calls = [u32::try_from(calls)
        .unwrap_or(CALLS.1)
        .clamp(CALLS.0, CALLS.1)];
    comm.broadcast(&mut calls, 0)
        .expect("one number of calls for all");
    let between = |_| {
        let start = Clock::now();
        comm.barrier().expect("a barrier");
        start.elapsed()
    };
    // A placement of the processors that changes under a run shows in the barrier.
    let barriers = (0..50).map(between).min().unwrap_or_default();
    let calls = (0..calls[0]).map(|call| {
        between(call);
        once()
    });
    (calls.collect(), barriers)
}

fn cell(op: Op, name: &str, ranks: usize, bytes: usize, region: bool, budget: Duration) {
    let all = Mutex::new(vec![(Vec::new(), Duration::ZERO); ranks]);
    let options = ThreadOptions {
        pin: true,
        ..ThreadOptions::default()
    };
    World::threads_with(ranks, &options, |world| {
        let times = if op == Op::AllReduceBf16 {
            times::<bf16>(&world, op, bytes, region, budget)
        } else {
            times::<f32>(&world, op, bytes, region, budget)
        };
        all.lock().expect("nobody panicked")[world.rank().index()] = times;
    })
    .expect("there is shared memory");
    let all = all.into_inner().expect("nobody panicked");
    let mut slowest: Vec<f64> = (0..all[0].0.len())
        .map(|call| {
            all.iter()
                .map(|times| times.0[call].as_secs_f64() * 1e6)
                .fold(0.0, f64::max)
        })
        .collect();
    slowest.sort_by(f64::total_cmp);
    let at = |part: usize| slowest[(slowest.len() - 1) * part / 100];
    let memory = if region { "region" } else { "ordinary" };
    println!(
        "{name:24} {ranks:2} {bytes:>10} {memory:8} median_us {:10.2} min_us {:10.2} p90_us {:10.2} barrier_us {:5.2} calls {}",
        at(50),
        at(0),
        at(90),
        all[0].1.as_secs_f64() * 1e6,
        slowest.len()
    );
}

/// The values of one argument, if it was given.
fn argument(arguments: &[String], key: &str) -> Option<Vec<String>> {
    let value = arguments
        .iter()
        .find_map(|one| one.strip_prefix(key)?.strip_prefix('='))?;
    Some(value.split(',').map(str::to_owned).collect())
}

fn bytes_of(text: &str) -> usize {
    let (number, unit) = text.split_at(
        text.find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len()),
    );
    let scale = match unit {
        "KiB" => KIB,
        "MiB" => MIB,
        _ => 1,
    };
    number.parse::<usize>().expect("a number of bytes") * scale
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let ranks: Vec<usize> = argument(&arguments, "ranks").map_or_else(
        || vec![2, 8],
        |list| {
            list.iter()
                .map(|one| one.parse().expect("a number"))
                .collect()
        },
    );
    let sizes: Option<Vec<usize>> =
        argument(&arguments, "bytes").map(|list| list.iter().map(|one| bytes_of(one)).collect());
    let only = argument(&arguments, "only");
    let memory = argument(&arguments, "memory");
    let budget =
        argument(&arguments, "budget_ms").map_or(300, |list| list[0].parse().expect("a number"));
    let named = |list: &Option<Vec<String>>, name: &str| {
        list.as_ref()
            .is_none_or(|list| list.iter().any(|one| one == name))
    };
    for ranks in ranks {
        for (op, name, all) in OPS {
            for bytes in all {
                if !named(&only, name) || sizes.as_ref().is_some_and(|sizes| !sizes.contains(bytes))
                {
                    continue;
                }
                for (region, kind) in [(false, "ordinary"), (true, "region")] {
                    if named(&memory, kind) {
                        cell(
                            op,
                            name,
                            ranks,
                            *bytes,
                            region,
                            Duration::from_millis(budget),
                        );
                    }
                }
            }
        }
    }
}
