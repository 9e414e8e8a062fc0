//! How calls over shared memory go, by their size and by where their buffers lie.

use muster_comm::error::ErrorKind;
use muster_comm::types::ReduceOp;
use muster_comm::world::World;

use crate::support::{Setup, ranks};

/// What is long enough is read where it only moves, by rules of the user's it is staged.
#[test]
fn what_peers_read_is_told_by_name() {
    const COUNT: usize = 8 << 10;
    let ways = |world: World| {
        let comm = world.everyone().unwrap();
        let n = comm.size();
        let (mine, mut all) = (vec![1_f32; n * COUNT], vec![0_f32; n * COUNT]);
        let mut ways = Vec::new();
        let mut note = || ways.push(comm.last_algorithm().unwrap());
        comm.all_gather(&mine[..COUNT], &mut all).unwrap();
        note();
        comm.all_to_all(&mine, &mut all).unwrap();
        note();
        comm.broadcast(&mut all, 1).unwrap();
        note();
        comm.all_reduce(&mine, &mut all, ReduceOp::Sum).unwrap();
        note();
        comm.all_gather(&mine[..16], &mut all[..16 * n]).unwrap();
        note();
        ways
    };
    for all in ranks(2, &Setup::reading(), ways) {
        assert_eq!(all, ["read", "read", "read", "direct", "entry"]);
    }
    // What several ranks want is copied once for all of them.
    for all in ranks(3, &Setup::reading(), ways) {
        assert_eq!(all, ["direct", "read", "direct", "direct", "entry"]);
    }
    let staged = Setup {
        table: "all_gather -> direct\nall_to_all -> direct\nbroadcast -> direct\n".to_owned(),
        ..Setup::reading()
    };
    for all in ranks(2, &staged, ways) {
        assert_eq!(all, ["direct", "direct", "direct", "direct", "direct"]);
    }
}

/// Which ranks have their buffers in their regions.
type Placed = fn(usize) -> bool;

/// How calls of these many bytes go: `all_reduce`, `all_gather`, `all_to_all` and `broadcast`, each rank's buffers in its
/// region or not.
fn ways(n: usize, setup: &Setup, bytes: usize, in_region: fn(usize) -> bool) -> [&'static str; 4] {
    let found = ranks(n, setup, move |world| {
        let comm = world.everyone().unwrap();
        let most = n * bytes;
        let mut private = vec![1_u8; 2 * most];
        let mut region = world.alloc::<u8>(2 * most).unwrap();
        let memory = if in_region(comm.rank()) {
            &mut *region
        } else {
            &mut *private
        };
        let (send, recv) = memory.split_at_mut(most);
        let mut ways = [""; 4];
        for (way, nth) in ways.iter_mut().zip(0..) {
            match nth {
                0 => comm.all_reduce(&send[..bytes], &mut recv[..bytes], ReduceOp::Max),
                1 => comm.all_gather(&send[..bytes], recv),
                2 => comm.all_to_all(&send[..bytes / n * n], &mut recv[..bytes / n * n]),
                _ => comm.broadcast(&mut recv[..bytes], 1),
            }
            .unwrap();
            *way = comm.last_algorithm().unwrap();
        }
        ways
    });
    assert!(found.windows(2).all(|two| two[0] == two[1]), "{found:?}");
    found[0]
}

/// Of what the entry could carry, that stays where it lies which is fetched sooner than carried.
#[test]
fn what_the_entry_could_carry_goes_as_it_is_faster() {
    const KIB: usize = 1 << 10;
    let shm = Setup::shm();
    let (all, none, first): (Placed, Placed, Placed) = (|_| true, |_| false, |rank| rank == 0);
    let cases: [(usize, usize, Placed, [&str; 4]); 12] = [
        (2, 4 * KIB - 1, all, ["entry"; 4]),
        (2, 4 * KIB, all, ["straight", "straight", "entry", "entry"]),
        (2, 8 * KIB, all, ["straight"; 4]),
        (4, 8 * KIB - 1, all, ["entry"; 4]),
        (4, 8 * KIB, all, ["straight", "straight", "entry", "entry"]),
        (8, 16 * KIB, all, ["straight", "straight", "entry", "entry"]),
        (9, 16 * KIB, all, ["entry"; 4]),
        (2, 8 * KIB, none, ["entry"; 4]),
        // Reduced in halves.
        (2, 16 * KIB, none, ["direct", "entry", "entry", "entry"]),
        (4, 16 * KIB, none, ["entry"; 4]),
        // What some have left where others cannot reach theirs is staged by all; a root need not ask others.
        (
            2,
            8 * KIB,
            first,
            ["direct_small", "direct", "direct", "entry"],
        ),
        (
            4,
            8 * KIB,
            first,
            ["direct_small", "direct", "entry", "entry"],
        ),
    ];
    for (n, bytes, in_region, expected) in cases {
        let found = ways(n, &shm, bytes, in_region);
        assert_eq!(found, expected, "{n} ranks, {bytes} bytes");
    }
    let fits = ways(2, &Setup::reading(), 8 * KIB, none);
    assert_eq!(fits, ["entry"; 4]);
    let long = ways(2, &Setup::reading(), 12 * KIB, none);
    assert_eq!(long, ["direct", "read", "entry", "read"]);
}

/// A group of which one rank has no room left for staging makes the calls that need none; of those that do all
/// ranks say whose room it is, and stay in step.
#[test]
fn calls_that_need_no_staging_do_without() {
    const KIB: usize = 1 << 10;
    let tight = Setup {
        region_bytes: 16 << 20,
        ..Setup::shm()
    };
    ranks(2, &tight, |world| {
        let comm = world.everyone().unwrap();
        // Staging takes six MiB.
        let held = (comm.rank() == 1).then(|| world.alloc::<u8>(11 << 20).unwrap());
        let mut region = world.alloc::<u8>(8 * KIB).unwrap();
        let mut private = vec![1_u8; 8 * KIB];
        let mut large = vec![1_u8; 100 * KIB];
        let all_reduce = |buffer: &mut [u8]| {
            let done = comm.all_reduce_in_place(buffer, ReduceOp::Max);
            done.map(|()| comm.last_algorithm().unwrap())
        };
        assert_eq!(all_reduce(&mut private).unwrap(), "entry");
        assert_eq!(all_reduce(&mut region).unwrap(), "straight");
        for one in 0..3 {
            let buffer = match one {
                2 => &mut *large,
                one if comm.rank() == one => &mut *region,
                _ => &mut *private,
            };
            let error = all_reduce(buffer).unwrap_err();
            assert!(
                matches!(error.kind(), ErrorKind::Resource { .. }),
                "{error}"
            );
            let text = error.to_string();
            assert!(
                text.contains("rank 1: need 6291456 bytes of staging"),
                "{text}"
            );
            assert_eq!(all_reduce(&mut private).unwrap(), "entry");
        }
        drop(held);
        // Now there is room.
        let mixed = if comm.rank() == 0 {
            all_reduce(&mut region)
        } else {
            all_reduce(&mut private)
        };
        assert_eq!(mixed.unwrap(), "direct_small");
    });
}
