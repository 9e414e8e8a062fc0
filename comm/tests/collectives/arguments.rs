//! Arguments that cannot be served: refused by name, with what is allowed, before anything is sent.

use muster_comm::collective::{Communicator, PointToPoint};
use muster_comm::error::{Blame, CommError, ErrorKind};
use muster_comm::sync::Clock;
use muster_comm::types::{Rank, ReduceOp};
use muster_comm::world::{GROUP_NAME_MAX, World};

use crate::check::zeroes;
use crate::support::{AT_ONCE, Setup, cause, ranks};

const SUM: ReduceOp = ReduceOp::Sum;

/// A refused call, and parts of what must be said: the argument, what was given, what is allowed.
type Refused = (
    Result<(), CommError>,
    &'static str,
    &'static str,
    &'static str,
);

fn expect(refused: Refused) {
    let (result, argument, given, allowed) = refused;
    let error = result.unwrap_err();
    let ErrorKind::InvalidArgument { what, got, want } = error.kind() else {
        panic!("{error}");
    };
    assert!(what.contains(argument), "{error}: want {argument:?}");
    assert!(got.contains(given), "{error}: want {given:?}");
    assert!(want.contains(allowed), "{error}: want {allowed:?}");
    assert!(error.is_recoverable(), "{error}");
    assert_eq!(error.blame(), Blame::Caller, "{error}");
    assert_eq!(error.at().seq, 0, "{error}");
}

/// Wrong lengths on a group of three.
#[expect(clippy::too_many_lines, reason = "a table")]
fn lengths(comm: &Communicator) -> Vec<Refused> {
    let me = comm.rank();
    let mut buffer = zeroes::<f32>(64);
    let out = |len: usize| -> &'static mut [f32] { zeroes(len).leak() };
    let give = zeroes::<f32>(64).leak();
    vec![
        (
            comm.all_reduce(&give[..5], out(6), SUM),
            "recvbuf",
            "6",
            "5",
        ),
        (comm.scan(&give[..5], out(6), SUM), "recvbuf", "6", "5"),
        (
            comm.all_reduce(&give[..5], out(5), ReduceOp::BitXor),
            "reduction",
            "bxor of f32",
            "integers",
        ),
        (
            comm.exclusive_scan(&give[..5], out(5), ReduceOp::Avg),
            "reduction",
            "avg",
            "sum, prod, min, max",
        ),
        (
            comm.exclusive_scan_in_place(out(5), ReduceOp::Avg),
            "reduction",
            "avg",
            "sum, prod, min, max",
        ),
        (
            comm.reduce(&give[..5], out(4), SUM, me),
            "recvbuf",
            "4",
            "5",
        ),
        (
            comm.reduce_scatter(&give[..7], out(2), SUM),
            "sendbuf",
            "7",
            "6",
        ),
        (
            comm.reduce_scatter_in_place(&mut buffer[..7], SUM),
            "buffer",
            "7",
            "multiple",
        ),
        (comm.all_gather(&give[..2], out(5)), "recvbuf", "5", "6"),
        (
            comm.all_gather_in_place(&mut buffer[..5]),
            "buffer",
            "5",
            "3 members",
        ),
        (
            comm.all_to_all(&give[..4], out(4)),
            "sendbuf",
            "4",
            "multiple",
        ),
        (comm.all_to_all(&give[..6], out(3)), "recvbuf", "3", "6"),
        (
            comm.all_to_all_in_place(&mut buffer[..4]),
            "buffer",
            "4",
            "multiple",
        ),
        (comm.gather(&give[..2], out(7), me), "recvbuf", "7", "6"),
        (
            comm.gather_in_place(&mut buffer[..7], me),
            "buffer",
            "7",
            "multiple",
        ),
        (comm.scatter(&give[..7], out(2), me), "sendbuf", "7", "6"),
        (
            comm.scatter_in_place(&mut buffer[..8], me),
            "buffer",
            "8",
            "multiple",
        ),
    ]
}

/// Wrong lists of counts on a group of three.
#[expect(clippy::too_many_lines, reason = "a table")]
fn lists(comm: &Communicator) -> Vec<Refused> {
    let me = comm.rank();
    let out = |len: usize| -> &'static mut [u16] { zeroes(len).leak() };
    let give = zeroes::<u16>(64).leak();
    let huge = [usize::MAX, 1, 1];
    let fit = [2, 2, 2];
    vec![
        (
            comm.all_gather_v(&give[..2], out(4), &[2, 2]),
            "recv_counts",
            "2 counts",
            "3 members",
        ),
        (
            comm.all_gather_v(&give[..2], out(8), &[2; 4]),
            "recv_counts",
            "4 counts",
            "3 members",
        ),
        (
            comm.all_gather_v(&give[..3], out(6), &fit),
            "sendbuf",
            "3",
            "2",
        ),
        (
            comm.all_gather_v(&give[..2], out(7), &fit),
            "recvbuf",
            "7",
            "6",
        ),
        (
            comm.all_gather_v(&give[..2], out(6), &huge),
            "recv_counts",
            "18446744073709551615",
            "fits",
        ),
        (
            comm.gather_v(&give[..2], out(4), &[2, 2], me),
            "recv_counts",
            "2 counts",
            "3 members",
        ),
        (
            comm.gather_v(&give[..2], out(5), &fit, me),
            "recvbuf",
            "5",
            "6",
        ),
        (
            comm.gather_v(&give[..2], out(5), &huge, me),
            "recv_counts",
            "18446744073709551615",
            "fits",
        ),
        (
            comm.scatter_v(&give[..6], &[2, 2], out(2), me),
            "send_counts",
            "2 counts",
            "3 members",
        ),
        (
            comm.scatter_v(&give[..5], &fit, out(2), me),
            "sendbuf",
            "5",
            "6",
        ),
        (
            comm.scatter_v(&give[..6], &fit, out(1), me),
            "recvbuf",
            "1",
            "2",
        ),
        (
            comm.reduce_scatter_v(&give[..6], &[6], out(2), SUM),
            "recv_counts",
            "1 counts",
            "3",
        ),
        (
            comm.reduce_scatter_v(&give[..5], &fit, out(2), SUM),
            "sendbuf",
            "5",
            "6",
        ),
        (
            comm.reduce_scatter_v(&give[..6], &fit, out(3), SUM),
            "recvbuf",
            "3",
            "2",
        ),
        (
            comm.all_to_all_v(&give[..6], &[6], out(6), &fit),
            "send_counts",
            "1 counts",
            "3",
        ),
        (
            comm.all_to_all_v(&give[..6], &fit, out(6), &[]),
            "recv_counts",
            "0 counts",
            "3",
        ),
        (
            comm.all_to_all_v(&give[..5], &fit, out(6), &fit),
            "sendbuf",
            "5",
            "6",
        ),
        (
            comm.all_to_all_v(&give[..6], &fit, out(5), &fit),
            "recvbuf",
            "5",
            "6",
        ),
        (
            comm.all_to_all_v(&give[..6], &fit, out(9), &[3; 3]),
            "block for itself",
            "3",
            "send_counts",
        ),
    ]
}

/// Roots and peers that are no members of a group of three.
#[expect(clippy::too_many_lines, reason = "a table")]
fn indices(comm: &Communicator) -> Vec<Refused> {
    let me = comm.rank();
    let out = |len: usize| -> &'static mut [i8] { zeroes(len).leak() };
    let give = zeroes::<i8>(64).leak();
    let far = usize::MAX;
    let own = &give[..3];
    vec![
        (comm.broadcast(out(3), 3), "root", "3", "0 to 2"),
        (
            comm.reduce(own, out(3), SUM, far),
            "root",
            "18446744073709551615",
            "0 to 2",
        ),
        (comm.reduce_in_place(out(3), SUM, 3), "root", "3", "0 to 2"),
        (comm.gather(own, out(9), 3), "root", "3", "0 to 2"),
        (comm.gather_in_place(out(9), 3), "root", "3", "0 to 2"),
        (
            comm.gather_v(own, out(9), &[3; 3], 3),
            "root",
            "3",
            "0 to 2",
        ),
        (comm.scatter(own, out(1), 3), "root", "3", "0 to 2"),
        (comm.scatter_in_place(out(9), 3), "root", "3", "0 to 2"),
        (
            comm.scatter_v(own, &[1; 3], out(1), 3),
            "root",
            "3",
            "0 to 2",
        ),
        (
            comm.gather_object(&1_u8, 3).map(drop),
            "root",
            "3",
            "0 to 2",
        ),
        (
            comm.broadcast_object(Some(&1_u8), 3).map(drop),
            "root",
            "3",
            "0 to 2",
        ),
        (
            comm.scatter_object(&[1_u8; 3], 3).map(drop),
            "root",
            "3",
            "0 to 2",
        ),
        (comm.send(own, 3), "peer", "3", "0 to 2"),
        (comm.recv(out(3), 4), "peer", "4", "0 to 2"),
        (
            comm.send(own, me),
            "this rank sends",
            "i8[3] to itself",
            "none",
        ),
        (
            comm.recv(out(3), me),
            "this rank sends",
            "none to itself",
            "i8[3]",
        ),
        (
            comm.batch_send_recv(&[
                PointToPoint::send(own, me),
                PointToPoint::recv(&mut out(2)[..], me),
            ]),
            "this rank sends",
            "i8[3] to itself",
            "i8[2]",
        ),
    ]
}

#[test]
fn bad_arguments_are_refused_by_name_and_the_corrected_call_meets_its_peers() {
    for setup in [Setup::shm(), Setup::tcp()] {
        let kinds: [fn(&Communicator) -> Vec<Refused>; 3] = [lengths, lists, indices];
        for kind in kinds {
            let results = ranks(3, &setup, move |world| -> Result<(), CommError> {
                let comm = world.everyone()?;
                // Each rank errs in turn, before the group was ever used and after.
                for clumsy in 0..3 {
                    if comm.rank() == clumsy {
                        kind(&comm).into_iter().for_each(expect);
                    }
                    let mut one = [1_u8];
                    comm.all_reduce_in_place(&mut one, SUM)?;
                    assert_eq!(one, [3]);
                }
                Ok(())
            });
            results.into_iter().for_each(|result| result.unwrap());
        }
    }
}

fn refuse_groups(world: &World) {
    let group = |name: &str, members: &[u32]| {
        let members: Vec<Rank> = members.iter().copied().map(Rank).collect();
        world.group(name, &members).map(drop)
    };
    let me = world.rank().0;
    let other = (me + 1) % 3;
    expect((
        group("g", &[0, 1, 2, me]),
        "member list",
        "twice",
        "at most once",
    ));
    expect((group("g", &[0, 1, 2, 3]), "member", "3", "0 to 2"));
    expect((
        group("g", &[0, 1, 2, u32::MAX]),
        "member",
        "4294967295",
        "0 to 2",
    ));
    expect((group("g", &[other]), "member list", "[", "this rank"));
    expect((group("g", &[]), "member list", "[]", "this rank"));
    expect((group("", &[me]), "name", "0 bytes", "1 to 256"));
    let long = "x".repeat(GROUP_NAME_MAX + 1);
    expect((group(&long, &[me]), "name", "257 bytes", "1 to 256"));
}

#[test]
fn a_refused_list_of_members_does_not_keep_the_corrected_group_from_its_peers() {
    for setup in [Setup::shm(), Setup::tcp()] {
        let results = ranks(3, &setup, |world| -> Result<(), CommError> {
            for clumsy in [1, 2] {
                if world.rank() == Rank(clumsy) {
                    refuse_groups(&world);
                }
                let comm = world.group("g", &[Rank(2), Rank(0), Rank(1)])?;
                let mut all = [0_u8; 3];
                let mine = [u8::try_from(world.rank().0).unwrap()];
                comm.all_gather(&mine, &mut all)?;
                assert_eq!(all, [2, 0, 1]);
            }
            Ok(())
        });
        results.into_iter().for_each(|result| result.unwrap());
    }
}

#[test]
fn names_that_look_like_members_make_groups_of_their_own() {
    let results = ranks(3, &Setup::shm(), |world| -> Result<(), CommError> {
        if world.rank() == Rank(0) {
            return Ok(());
        }
        // The bytes of rank 2 stand once in the list of members and once in the name.
        let one = world.group("g", &[Rank(2), Rank(1)])?;
        let other = world.group("g\u{2}\0\0\0", &[Rank(1), Rank(2)])?;
        let third = world.group("g\u{2}\0\0\0", &[Rank(1), Rank(2)])?;
        for round in 0..3_u8 {
            for (number, comm) in [&one, &other, &third].into_iter().enumerate() {
                let mine = [round, u8::try_from(number).unwrap()];
                let mut all = [0; 4];
                comm.all_gather(&mine, &mut all)?;
                assert_eq!((&all[..2], &all[2..]), (&mine[..], &mine[..]));
            }
        }
        Ok(())
    });
    results.into_iter().for_each(|result| result.unwrap());
}

#[test]
fn a_rank_without_room_for_a_link_ends_the_call_for_all_soon() {
    let setup = Setup {
        table: "all_reduce -> ring".to_owned(),
        region_bytes: 16 << 20,
        ..Setup::shm()
    };
    let results = ranks(2, &setup, |world| {
        let mut groups = Vec::new();
        for number in 0..1000 {
            let comm = world
                .group(&format!("g{number}"), &[Rank(0), Rank(1)])
                .unwrap();
            let started = Clock::now();
            // Only rank 0 makes the link, so only its region is filled.
            if let Err(error) = comm.all_reduce_in_place(&mut [1_u8], SUM) {
                assert!(started.elapsed() < AT_ONCE, "{error}");
                return error;
            }
            groups.push(comm);
        }
        panic!("a thousand links fit into 16 MiB");
    });
    for error in &results {
        assert!(
            matches!(cause(error), ErrorKind::Resource { .. }),
            "{error}"
        );
        assert!(!error.is_recoverable(), "{error}");
    }
}

#[test]
fn a_region_without_room_is_a_resource_error_and_what_has_room_goes_on() {
    let setup = Setup {
        region_bytes: 16 << 20,
        ..Setup::shm()
    };
    let results = ranks(2, &setup, |world| -> Result<usize, CommError> {
        let mut groups = Vec::new();
        // Staging of each group is some MiB: two fit, and not ten.
        for number in 0..10 {
            let comm = world.group(&format!("g{number}"), &[Rank(0), Rank(1)])?;
            let mut large = vec![1_u8; 100_000];
            match comm.all_reduce_in_place(&mut large, SUM) {
                Ok(()) => assert_eq!(large[99_999], 2),
                Err(error) => {
                    let named = matches!(error.kind(), ErrorKind::Resource { .. });
                    assert!(named, "{error}");
                    assert!(error.is_recoverable(), "{error}");
                    // Small calls of the same group need no staging.
                    let mut small = [1_u8];
                    comm.all_reduce_in_place(&mut small, SUM)?;
                    assert_eq!(small, [2]);
                    let full = groups.len();
                    // Room is made by destroying a group; the same call works then.
                    groups.clear();
                    world.group("sync", &[Rank(0), Rank(1)])?.barrier()?;
                    comm.all_reduce_in_place(&mut large, SUM)?;
                    return Ok(full);
                }
            }
            groups.push(comm);
        }
        Ok(groups.len())
    });
    for result in results {
        let full = result.unwrap();
        assert!((1..10).contains(&full), "{full} groups");
    }
}
