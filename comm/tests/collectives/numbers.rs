//! The same bits on every rank and in every run, whatever the numbers.

use half::bf16;
use muster_comm::algo::{Links, algorithms_for};
use muster_comm::buffer::Element;
use muster_comm::collective::{Communicator, reference};
use muster_comm::error::CommError;
use muster_comm::types::{Collective, DType, Rank, ReduceOp};

use crate::check::{Case, Inputs, Lens, run};
use crate::perform::perform;
use crate::support::{Random, Setup, ranks, seed};

const FLOATS: [DType; 4] = [DType::Bf16, DType::F16, DType::F32, DType::F64];

/// What every rank gets from the same calls, in `rounds` runs on one group.
fn outputs(setup: &Setup, n: usize, cases: &[Case], rounds: usize) -> Vec<Vec<Vec<u8>>> {
    let cases = cases.to_vec();
    ranks(n, setup, move |world| {
        let comm = world.everyone().unwrap();
        let mut all = Vec::new();
        for _ in 0..rounds {
            for case in &cases {
                let input = &case.inputs(n)[comm.rank()];
                all.push(perform(&comm, case, input).unwrap().got);
            }
        }
        all
    })
}

fn wild_cases(n: usize, counts: &[usize], random: &mut Random) -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in FLOATS {
        for op in ReduceOp::OF_NUMBERS {
            for count in counts {
                let lens = Lens::Same(*count);
                let case = Case::new(Collective::AllReduce, dtype, lens, random.next());
                cases.push(Case {
                    op,
                    inputs: Inputs::Wild,
                    in_place: n.is_multiple_of(2),
                    ..case
                });
            }
        }
    }
    cases
}

/// Several buffers in one call get what each gets alone: few, many, long and empty ones, and none at all.
#[test]
fn coalesced_buffers_get_what_each_gets_alone() {
    for setup in [Setup::shm(), Setup::tcp()] {
        for n in [1, 2, 3] {
            let results = ranks(n, &setup, |world| -> Result<(), CommError> {
                let comm = world.everyone()?;
                let lists: [&[usize]; 6] = [
                    &[],
                    &[7],
                    &[0, 0],
                    &[3, 0, 1, 1000],
                    &[1; 2500],
                    &[70_000, 1, 300_000],
                ];
                for (turn, lengths) in lists.into_iter().enumerate() {
                    check_coalesced::<f32>(&comm, lengths, ReduceOp::Sum, turn)?;
                    check_coalesced::<bf16>(&comm, lengths, ReduceOp::Avg, turn)?;
                    check_coalesced::<u8>(&comm, lengths, ReduceOp::Max, turn)?;
                }
                Ok(())
            });
            results.into_iter().for_each(|result| result.unwrap());
        }
    }
}

fn check_coalesced<T: Element>(
    comm: &Communicator,
    lengths: &[usize],
    op: ReduceOp,
    turn: usize,
) -> Result<(), CommError> {
    let (n, dtype) = (comm.size(), T::DTYPE);
    let input = |at: usize, rank: usize| {
        let seed = (turn * 10_000 + at) as u64;
        let (rank, length) = (Rank::from_index(rank), lengths[at]);
        reference::exact_inputs(dtype, op, rank, n, length, seed)
    };
    let of = |bytes: &[u8]| -> Vec<T> {
        let elements = bytes.chunks_exact(size_of::<T>());
        elements.map(bytemuck::pod_read_unaligned).collect()
    };
    let mut buffers: Vec<Vec<T>> = (0..lengths.len())
        .map(|at| of(&input(at, comm.rank())))
        .collect();
    let mut each: Vec<&mut [T]> = buffers.iter_mut().map(Vec::as_mut_slice).collect();
    comm.all_reduce_coalesced(&mut each, op)?;
    for (at, buffer) in buffers.iter().enumerate() {
        let inputs: Vec<_> = (0..n).map(|rank| input(at, rank)).collect();
        let expected = reference::all_reduce(dtype, op, &inputs).swap_remove(0);
        let got: &[u8] = bytemuck::cast_slice(buffer);
        let difference = reference::first_difference(dtype, &expected, got);
        assert!(
            difference.is_none(),
            "buffer {at} of {lengths:?}: {difference:?}"
        );
    }
    Ok(())
}

/// Floats whose sums depend on the order, over shared memory and by messages, against the reference bit by bit.
#[test]
fn a_scan_combines_in_rank_order_on_every_way() {
    let mut random = Random::new(seed() ^ 22);
    for setup in [Setup::shm(), Setup::reading(), Setup::tcp()] {
        for n in [2, 3, 5] {
            let mut cases = Vec::new();
            for collective in [Collective::Scan, Collective::ExclusiveScan] {
                for dtype in FLOATS {
                    for op in collective.ops().iter().filter(|op| op.takes(dtype)) {
                        for count in [1, 37, 5000, 70_001] {
                            let lens = Lens::Same(count);
                            let case = Case::new(collective, dtype, lens, random.next());
                            cases.push(Case {
                                op: *op,
                                inputs: Inputs::Wild,
                                in_place: random.below(2) == 0,
                                ..case
                            });
                        }
                    }
                }
            }
            run(&setup, n, cases);
        }
    }
}

#[test]
fn an_all_reduce_gives_the_same_bits_on_every_rank_and_in_every_run() {
    let mut random = Random::new(seed() ^ 20);
    for algorithm in algorithms_for(Collective::AllReduce) {
        for n in [2, 3, 6, 7] {
            let counts: &[usize] = match algorithm.links {
                Links::Direct => &[37, 5000],
                Links::Message => &[1, 37, 900],
            };
            let setup = Setup {
                table: format!("all_reduce -> {}", algorithm.name),
                ..Setup::shm()
            };
            let cases = wild_cases(n, counts, &mut random);
            let first = outputs(&setup, n, &cases, 2);
            let second = outputs(&setup, n, &cases, 1);
            for (at, case) in cases.iter().enumerate() {
                let bits = &first[0][at];
                for rank in 0..n {
                    let again = [
                        &first[rank][at],
                        &first[rank][at + cases.len()],
                        &second[rank][at],
                    ];
                    let same = again.iter().all(|other| *other == bits);
                    assert!(same, "{} on {n}: rank {rank}: {case:?}", algorithm.name);
                }
            }
        }
    }
}
