//! Every collective over types, reductions, counts, roots and both places, where the ranks share
//! memory. The full product for few ranks, every pair of parameters for many.

use std::sync::Arc;
use std::time::Duration;

use muster_comm::sync::{AtomicU64, Clock, Ordering};
use muster_comm::types::{Collective, DType, ReduceOp};
use muster_comm::world::Transport;

use crate::check::{Case, Inputs, Lens, Memory, UNEVEN, UNIFORM, run, taken, uneven};
use crate::support::{Random, Setup, ranks, seed};

/// Payload that rides in an entry (`transport::shm::slot`).
const PAYLOAD: usize = 16 << 10;
/// Bytes of one area of staging (`backend::direct`).
const AREA: usize = 1 << 20;

/// Reductions that make a difference for a collective.
fn ops(collective: Collective, dtype: DType) -> Vec<ReduceOp> {
    if collective.reduces() {
        taken(collective, dtype).collect()
    } else {
        vec![ReduceOp::Sum]
    }
}

/// Roots that make a difference for a collective.
fn roots(collective: Collective, n: usize) -> std::ops::Range<usize> {
    0..if collective.is_rooted() { n } else { 1 }
}

fn places(collective: Collective) -> &'static [bool] {
    if UNEVEN.contains(&collective) || collective == Collective::Broadcast {
        &[false]
    } else {
        &[false, true]
    }
}

fn counts(n: usize) -> Vec<usize> {
    let mut counts = vec![0, 1, n - 1, n, n + 1, 1000];
    counts.sort_unstable();
    counts.dedup();
    counts
}

fn every() -> impl Iterator<Item = Collective> {
    UNIFORM.into_iter().chain(UNEVEN)
}

fn lens(collective: Collective, n: usize, count: usize, random: &mut Random) -> Lens {
    if UNEVEN.contains(&collective) {
        uneven(collective, n, count, random)
    } else {
        Lens::Same(count)
    }
}

/// Every combination.
fn product(n: usize, random: &mut Random) -> Vec<Case> {
    let mut cases = Vec::new();
    for collective in every() {
        for dtype in DType::ALL {
            for op in ops(collective, dtype) {
                for count in counts(n) {
                    for root in roots(collective, n) {
                        for in_place in places(collective) {
                            let lens = lens(collective, n, count, random);
                            let case = Case::new(collective, dtype, lens, random.next());
                            cases.push(Case {
                                op,
                                root,
                                in_place: *in_place,
                                inputs: random.pick(&[Inputs::Exact, Inputs::Wild]),
                                ..case
                            });
                        }
                    }
                }
            }
        }
    }
    cases
}

/// Every type with every reduction, and every count with every root and place; the rest at random.
fn pairs(n: usize, random: &mut Random) -> Vec<Case> {
    let mut cases = Vec::new();
    for collective in every() {
        let mut add = |dtype: DType, op: ReduceOp, count: usize, root: usize, in_place: bool| {
            let lens = lens(collective, n, count, random);
            let case = Case::new(collective, dtype, lens, random.next());
            cases.push(Case {
                op,
                root,
                in_place,
                inputs: random.pick(&[Inputs::Exact, Inputs::Wild]),
                ..case
            });
        };
        let mut turn = 0;
        let counts = counts(n);
        for dtype in DType::ALL {
            for op in ops(collective, dtype) {
                turn += 1;
                let place = places(collective)[turn % places(collective).len()];
                let root = turn % roots(collective, n).len();
                add(dtype, op, counts[turn % counts.len()], root, place);
            }
        }
        for count in &counts {
            for root in roots(collective, n) {
                for in_place in places(collective) {
                    turn += 1;
                    let dtype = DType::ALL[turn % DType::ALL.len()];
                    let ops = ops(collective, dtype);
                    let op = ops[turn % ops.len()];
                    add(dtype, op, *count, root, *in_place);
                }
            }
        }
    }
    cases
}

#[test]
fn every_combination_is_right_on_up_to_four_ranks() {
    let mut random = Random::new(seed());
    for n in 1..=4 {
        run(&Setup::shm(), n, product(n, &mut random));
    }
}

/// Some of the pairs: every collective with a type, a reduction, a root and a place at random, for each count.
fn some(n: usize, random: &mut Random) -> Vec<Case> {
    let mut cases = Vec::new();
    for collective in every() {
        // The last one goes through staging.
        for count in [0, 1, n + 1, 5000] {
            let dtype = random.pick(&DType::ALL);
            let ops = ops(collective, dtype);
            let root = roots(collective, n).len() - 1;
            let lens = lens(collective, n, count, random);
            let case = Case::new(collective, dtype, lens, random.next());
            cases.push(Case {
                op: random.pick(&ops),
                root: random.pick(&[0, root / 2, root]),
                in_place: random.pick(places(collective)),
                inputs: Inputs::Exact,
                ..case
            });
        }
    }
    cases
}

/// Their entries are exchanged over a tree (`transport::shm::tree`), of one level and of two.
#[test]
fn every_collective_is_right_in_a_large_group() {
    let mut random = Random::new(seed() ^ 4);
    for n in [48, 70] {
        run(&Setup::shm(), n, some(n, &mut random));
    }
}

#[test]
fn every_pair_of_parameters_is_right_on_many_ranks() {
    let mut random = Random::new(seed() ^ 1);
    for n in [5, 7, 8, 9, 13, 16] {
        run(&Setup::shm(), n, pairs(n, &mut random));
    }
}

/// The count with which the contribution and its row of counts take `bytes` bytes.
fn count_for(collective: Collective, n: usize, dtype: DType, bytes: usize) -> usize {
    use Collective as C;
    let row = match collective {
        C::AllToAllV => 2 * n * 8,
        _ if UNEVEN.contains(&collective) => n * 8,
        _ => 0,
    };
    let blocks = match collective {
        C::ReduceScatter | C::ReduceScatterV | C::AllToAll | C::AllToAllV => n,
        C::Scatter | C::ScatterV => n,
        _ => 1,
    };
    (bytes - row) / dtype.size() / blocks
}

/// Even blocks, for collectives with and without a list of counts.
fn even(collective: Collective, n: usize, count: usize) -> Lens {
    match collective {
        Collective::AllToAllV => Lens::Matrix(vec![vec![count; n]; n]),
        _ if UNEVEN.contains(&collective) => Lens::Blocks(vec![count; n]),
        _ => Lens::Same(count),
    }
}

#[test]
fn sizes_around_the_limit_of_the_entry_are_right() {
    let mut random = Random::new(seed() ^ 2);
    for n in [2, 3, 5, 8] {
        let mut cases = Vec::new();
        for collective in every() {
            for dtype in [DType::U8, DType::F16, DType::F32, DType::F64] {
                let most = count_for(collective, n, dtype, PAYLOAD);
                for count in most.saturating_sub(1)..=most + 2 {
                    for in_place in places(collective) {
                        let lens = even(collective, n, count);
                        let case = Case::new(collective, dtype, lens, random.next());
                        cases.push(Case {
                            op: random.pick(&ops(collective, dtype)),
                            root: random.below(n),
                            in_place: *in_place,
                            inputs: Inputs::Wild,
                            ..case
                        });
                    }
                }
            }
        }
        random.shuffle(&mut cases);
        run(&Setup::shm(), n, cases);
    }
}

/// Calls over whole areas of staging and parts of them.
fn segments(n: usize, dtype: DType, random: &mut Random) -> Vec<Case> {
    let mut cases = Vec::new();
    for collective in every() {
        let row = count_for(collective, n, dtype, AREA + 2 * n * 8);
        let in_place = random.pick(places(collective));
        for count in [row, row + 1, 2 * row, 3 * row + 17] {
            let lens = match random.below(2) {
                0 if UNEVEN.contains(&collective) => uneven(collective, n, count, random),
                _ => even(collective, n, count),
            };
            let case = Case::new(collective, dtype, lens, random.next());
            cases.push(Case {
                op: random.pick(&ops(collective, dtype)),
                root: random.below(n),
                in_place,
                inputs: random.pick(&[Inputs::Exact, Inputs::Wild]),
                ..case
            });
        }
    }
    random.shuffle(&mut cases);
    cases
}

/// Sizes at which the place of the buffers matters, with every kind of memory, in both places.
fn placed(n: usize, random: &mut Random) -> Vec<Case> {
    let mut cases = Vec::new();
    for collective in every() {
        for memory in Memory::ALL {
            for in_place in places(collective) {
                // What the entry could carry may stay where it lies too.
                let fits = random.pick(&[PAYLOAD / 3, 3 * PAYLOAD / 4, PAYLOAD - 512]);
                for bytes in [fits, PAYLOAD + 512, 3 * PAYLOAD, 200_000] {
                    let dtype = random.pick(&DType::ALL);
                    let count = count_for(collective, n, dtype, bytes + 2 * n * 8) + 1;
                    let lens = match random.below(3) {
                        0 if UNEVEN.contains(&collective) => uneven(collective, n, count, random),
                        _ => even(collective, n, count),
                    };
                    let case = Case::new(collective, dtype, lens, random.next());
                    cases.push(Case {
                        op: random.pick(&ops(collective, dtype)),
                        root: random.below(n),
                        in_place: *in_place,
                        memory,
                        inputs: random.pick(&[Inputs::Exact, Inputs::Wild]),
                        ..case
                    });
                }
            }
        }
    }
    random.shuffle(&mut cases);
    cases
}

#[test]
fn buffers_may_lie_in_any_memory() {
    let mut random = Random::new(seed() ^ 5);
    for n in [2, 3, 4, 5, 8] {
        for _ in 0..4 {
            run(&Setup::shm(), n, placed(n, &mut random));
        }
    }
}

#[test]
fn large_buffers_may_lie_in_any_memory() {
    let mut random = Random::new(seed() ^ 6);
    for (n, dtype) in [(2, DType::F32), (3, DType::Bf16), (4, DType::F64)] {
        for memory in [Memory::Region, Memory::Brought, Memory::Mixed] {
            let mut cases = segments(n, dtype, &mut random);
            cases.iter_mut().for_each(|case| case.memory = memory);
            run(&Setup::shm(), n, cases);
        }
    }
}

#[test]
fn memory_that_ranks_bring_along_is_found_by_their_peers() {
    let mut random = Random::new(seed() ^ 7);
    let joined = Setup {
        joined: true,
        transport: Transport::Auto,
        ..Setup::shm()
    };
    for n in [2, 5] {
        run(&joined, n, placed(n, &mut random));
    }
}

#[test]
fn ordinary_memory_may_be_read_by_peers() {
    let mut random = Random::new(seed() ^ 9);
    for n in [2, 3, 5] {
        run(&Setup::reading(), n, placed(n, &mut random));
    }
    let mut cases = segments(3, DType::F32, &mut random);
    let mixed = |case: &mut Case| case.memory = random.pick(&[Memory::Private, Memory::Mixed]);
    cases.iter_mut().for_each(mixed);
    run(&Setup::reading(), 3, cases);
}

#[test]
fn memory_that_peers_cannot_reach_serves_as_any_other() {
    let mut random = Random::new(seed() ^ 8);
    let mut cases = placed(3, &mut random);
    // Messages reduce in an order of their own.
    cases
        .iter_mut()
        .for_each(|case| case.inputs = Inputs::Exact);
    run(&Setup::tcp(), 3, cases);
    run(&Setup::shm(), 1, placed(1, &mut random));
}

#[test]
fn sizes_of_several_segments_are_right() {
    let mut random = Random::new(seed() ^ 3);
    for (n, dtype) in [
        (2, DType::I64),
        (3, DType::F64),
        (4, DType::F32),
        (5, DType::U64),
    ] {
        run(&Setup::shm(), n, segments(n, dtype, &mut random));
    }
}

#[test]
fn nobody_leaves_a_barrier_before_everybody_came() {
    let message = Setup {
        table: "barrier -> dissemination".to_owned(),
        ..Setup::shm()
    };
    for setup in [Setup::shm(), message, Setup::tcp()] {
        for n in [1, 2, 3, 6, 9] {
            let came = Arc::new(AtomicU64::new(0));
            ranks(n, &setup, move |world| {
                let comm = world.everyone().unwrap();
                for round in 1..=40 {
                    if round % n == comm.rank() {
                        Clock::pause(Duration::from_micros(300));
                    }
                    came.fetch_add(1, Ordering::Relaxed);
                    comm.barrier().unwrap();
                    let came = came.load(Ordering::Relaxed);
                    assert!(
                        came >= (round * n) as u64,
                        "round {round}: {came} of {n} came"
                    );
                }
            });
        }
    }
}

#[test]
fn small_and_large_calls_in_turn_do_not_disturb_each_other() {
    let mut random = Random::new(seed() ^ 4);
    for n in [2, 3, 6] {
        let mut cases = Vec::new();
        for _ in 0..400 {
            let collective = random.pick(&every().collect::<Vec<_>>());
            let count = random.pick(&[0, 1, 40, 700, 3000, 12_000]);
            let dtype = random.pick(&DType::ALL);
            let lens = lens(collective, n, count, &mut random);
            let case = Case::new(collective, dtype, lens, random.next());
            cases.push(Case {
                op: random.pick(&ops(collective, dtype)),
                root: random.below(n),
                in_place: random.pick(places(collective)),
                ..case
            });
        }
        run(&Setup::shm(), n, cases);
    }
}

/// Halves of staging are used in turn, but for some calls (DIRECT-1, DIRECT-3): what a slow rank still reads must not
/// be written by a fast one, whatever came before.
#[test]
fn staged_calls_in_turn_leave_what_others_still_read() {
    let mut random = Random::new(seed() ^ 15);
    let others = Setup {
        table: "all_reduce -> direct_small\nreduce -> direct_sliced".to_owned(),
        ..Setup::shm()
    };
    for (n, setup) in [
        (2, Setup::shm()),
        (2, others),
        (3, Setup::shm()),
        (4, Setup::shm()),
    ] {
        let mut cases = Vec::new();
        for _ in 0..300 {
            // Many of those that do not turn the halves.
            let collective = match random.below(3) {
                0 => Collective::AllReduce,
                _ => random.pick(&every().collect::<Vec<_>>()),
            };
            let count = random.pick(&[5000, 9000, 30_000, 90_000]);
            let lens = lens(collective, n, count, &mut random);
            let case = Case::new(collective, DType::F32, lens, random.next());
            cases.push(Case {
                root: random.below(n),
                in_place: random.pick(places(collective)),
                ..case
            });
        }
        run(&setup, n, cases);
    }
}
