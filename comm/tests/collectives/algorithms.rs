//! Every registered algorithm of every collective, chosen through the user's selection table, over
//! rings in shared memory and over TCP.

use muster_comm::algo::{Algorithm, Links, algorithms_for, planned};
use muster_comm::types::{Collective, DType, ReduceOp};

use crate::check::{Case, Lens, UNEVEN, run, uneven};
use crate::support::{Random, Setup, seed};

/// A setup in which collectives are carried out by these algorithms.
fn forced(setup: &Setup, algorithms: &[(Collective, &Algorithm)]) -> Setup {
    let rule = |(collective, algorithm): &(Collective, &Algorithm)| {
        format!("{collective} -> {}\n", algorithm.name)
    };
    Setup {
        table: algorithms.iter().map(rule).collect(),
        ..setup.clone()
    }
}

/// Cases for one collective: all counts, both places, types and reductions in turn.
fn cases(collective: Collective, n: usize, counts: &[usize], random: &mut Random) -> Vec<Case> {
    let is_uneven = UNEVEN.contains(&collective);
    let places: &[bool] = match collective {
        Collective::Barrier | Collective::Broadcast => &[false],
        _ if is_uneven => &[false],
        _ => &[false, true],
    };
    let mut cases = Vec::new();
    for count in counts {
        for in_place in places {
            for _ in 0..2 {
                let lens = if is_uneven {
                    uneven(collective, n, *count, random)
                } else {
                    Lens::Same(*count)
                };
                let dtype = random.pick(&DType::ALL);
                let case = Case::new(collective, dtype, lens, random.next());
                cases.push(Case {
                    op: random.pick(&ReduceOp::ALL),
                    root: random.below(n),
                    in_place: *in_place,
                    ..case
                });
            }
        }
    }
    cases
}

/// Runs all algorithms, in as many worlds as the collective with most algorithms needs.
fn sweep(setup: &Setup, n: usize, links: &[Links], large: usize, random: &mut Random) {
    for turn in 0.. {
        let nth = |collective: Collective| {
            let mut found = algorithms_for(collective).filter(|one| links.contains(&one.links));
            Some((collective, found.nth(turn)?))
        };
        let algorithms: Vec<_> = planned().filter_map(nth).collect();
        if algorithms.is_empty() {
            return;
        }
        let mut counts = vec![0, 1, n - 1, n, n + 1, 300, large];
        counts.dedup();
        let mut all = Vec::new();
        for (collective, _) in &algorithms {
            all.extend(cases(*collective, n, &counts, random));
        }
        random.shuffle(&mut all);
        run(&forced(setup, &algorithms), n, all);
    }
}

#[test]
fn every_algorithm_is_right_over_shared_memory() {
    let mut random = Random::new(seed() ^ 10);
    for n in [1, 2, 3, 4, 5, 7, 8, 9, 13, 16] {
        let checksum = n % 2 == 1;
        let setup = Setup {
            checksum,
            ..Setup::shm()
        };
        // More than one direction of a ring holds, for the widest types.
        let large = 20_000 / n;
        sweep(&setup, n, &Links::ALL, large, &mut random);
    }
}

#[test]
fn every_message_algorithm_is_right_over_tcp() {
    let mut random = Random::new(seed() ^ 11);
    for n in [2, 3, 5, 8] {
        let checksum = n % 2 == 0;
        let setup = Setup {
            checksum,
            ..Setup::tcp()
        };
        sweep(&setup, n, &[Links::Message], 30_000 / n, &mut random);
    }
}

#[test]
fn messages_far_longer_than_a_ring_are_right() {
    let mut random = Random::new(seed() ^ 12);
    for collective in planned().filter(|collective| *collective != Collective::Barrier) {
        let found = algorithms_for(collective).filter(|one| one.links == Links::Message);
        for algorithm in found {
            let setup = forced(&Setup::shm(), &[(collective, algorithm)]);
            let mut case = Case::new(collective, DType::I64, Lens::Same(70_001), random.next());
            if UNEVEN.contains(&collective) {
                case.lens = uneven(collective, 3, 30_000, &mut random);
            }
            case.root = random.below(3);
            run(&setup, 3, vec![case.clone(), case]);
        }
    }
}
