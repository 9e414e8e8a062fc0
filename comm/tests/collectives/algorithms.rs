//! Every registered algorithm of every collective, chosen through the user's selection table, over
//! rings in shared memory and over TCP.

use muster_comm::algo::{Algorithm, ENTRY, Links, Table, algorithms_for, planned};
use muster_comm::error::{ErrorKind, Field};
use muster_comm::types::{Collective, DType, Rank, ReduceOp};

use crate::check::{Case, Lens, UNEVEN, any_op, run, uneven};
use crate::support::{Random, Setup, ranks, seed};

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
                    op: any_op(collective, dtype, random),
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

#[test]
fn the_entry_carries_all_that_fits_it_where_a_rule_says_so() {
    let mut random = Random::new(seed() ^ 13);
    for n in [2, 3, 5, 8] {
        let carried: Vec<_> = planned()
            .filter(|collective| ENTRY.collectives.contains(collective))
            .map(|collective| (collective, &ENTRY))
            .collect();
        let mut all = Vec::new();
        for (collective, _) in &carried {
            // Eight bytes an element at most, a block for each rank, and the counts.
            all.extend(cases(*collective, n, &[0, 1, n + 1, 100], &mut random));
        }
        random.shuffle(&mut all);
        run(&forced(&Setup::shm(), &carried), n, all);
    }
}

#[test]
fn staging_in_segments_of_any_size_is_right() {
    let mut random = Random::new(seed() ^ 14);
    for segment in ["16KiB", "64KiB", "512KiB"] {
        let direct: Vec<Collective> = planned()
            .filter(|collective| *collective != Collective::Barrier)
            .collect();
        let rule = |collective: &Collective| format!("{collective} -> direct segment={segment}\n");
        let setup = Setup {
            table: direct.iter().map(rule).collect(),
            ..Setup::shm()
        };
        for n in [2, 3, 7] {
            let counts = [0, 1, 5000, 40_000 / n];
            let of = |collective: &Collective| cases(*collective, n, &counts, &mut random);
            run(&setup, n, direct.iter().flat_map(of).collect());
        }
    }
}

#[test]
fn a_call_says_by_which_algorithm_it_went() {
    let taken = |rule: &'static str, count: usize| {
        let setup = Setup {
            table: rule.to_owned(),
            ..Setup::shm()
        };
        let all = ranks(3, &setup, move |world| {
            let comm = world.everyone().unwrap();
            assert_eq!(comm.last_algorithm(), None);
            let outcome = comm.all_reduce_in_place(&mut vec![1_f32; count], ReduceOp::Sum);
            outcome
                .map(|()| comm.last_algorithm().unwrap())
                .map_err(|error| error.kind().to_string())
        });
        assert!(all.iter().all(|one| *one == all[0]), "{all:?}");
        all[0].clone()
    };
    assert_eq!(taken("", 8), Ok("entry"));
    assert_eq!(taken("", 8000), Ok("direct"));
    assert_eq!(taken("all_reduce bytes<=16 -> entry", 8), Ok("entry"));
    assert_eq!(taken("all_reduce -> direct", 8), Ok("direct"));
    assert_eq!(taken("all_reduce -> direct_small", 8), Ok("direct_small"));
    assert_eq!(taken("all_reduce -> ring", 8), Ok("ring"));
    let refused = taken("\nall_reduce -> entry", 8000).unwrap_err();
    assert!(
        refused.contains("line 2") && refused.contains("16384 bytes"),
        "{refused}"
    );
}

#[test]
fn ranks_that_go_by_different_tables_are_told_so() {
    let tables = [
        "",
        "all_reduce -> direct",
        "all_reduce -> direct segment=64KiB",
        "all_reduce -> ring",
    ];
    for (usual, odd) in [(0, 1), (1, 2), (1, 3), (3, 0), (2, 0)] {
        let errors = ranks(3, &Setup::shm(), move |world| {
            let which = if world.rank().0 == 1 { odd } else { usual };
            let table = Table::with_overrides(tables[which]).unwrap();
            let everyone: Vec<Rank> = (0..3).map(Rank).collect();
            let comm = world.group_with_rules("torn", &everyone, table).unwrap();
            let first = comm.all_reduce_in_place(&mut [1_f32; 8], ReduceOp::Sum);
            // Nobody is out of step.
            comm.barrier().unwrap();
            first.map_err(|error| error.kind().clone())
        });
        for error in &errors {
            assert_eq!(error, &errors[0]);
            let Err(ErrorKind::Mismatch { field, peer, .. }) = error else {
                panic!("{error:?}");
            };
            assert_eq!((*field, *peer), (Field::Algorithm, Rank(1)), "{error:?}");
        }
    }
}
