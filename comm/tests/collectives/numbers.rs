//! The same bits on every rank and in every run, whatever the numbers.

use muster_comm::algo::{Links, algorithms_for};
use muster_comm::types::{Collective, DType, ReduceOp};

use crate::check::{Case, Inputs, Lens};
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
        for op in ReduceOp::ALL {
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
