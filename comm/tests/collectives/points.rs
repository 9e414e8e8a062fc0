//! Messages between two ranks, alone and in batches.

use muster_comm::collective::{Communicator, PointToPoint, reference};
use muster_comm::error::{CommError, ErrorKind, Field};
use muster_comm::sync::Clock;
use muster_comm::types::{DType, Rank};

use crate::support::{AT_ONCE, Setup, cause, ranks};
use std::time::Duration;

/// What `from` sends to `to` as message `number`.
fn message(from: usize, to: usize, number: usize, count: usize) -> Vec<u32> {
    let seed = (from * 1000 + to) as u64 ^ (number as u64) << 32;
    let bytes = reference::distinct_inputs(DType::U32, Rank::from_index(from), count, seed);
    bytes
        .chunks(4)
        .map(|word| u32::from_ne_bytes(word.try_into().unwrap()))
        .collect()
}

fn both() -> [Setup; 2] {
    [Setup::shm(), Setup::tcp()]
}

fn expect_message(got: &[u32], from: usize, to: usize, number: usize) {
    let same = got == message(from, to, number, got.len());
    assert!(same, "message {number} from {from} to {to}");
}

#[test]
fn a_token_goes_round_the_ring_in_both_directions() {
    for setup in both() {
        for n in [2, 3, 8] {
            let results = ranks(n, &setup, move |world| -> Result<(), CommError> {
                let comm = world.everyone()?;
                let me = comm.rank();
                for (step, count) in [(1, 1), (n - 1, 5000)] {
                    let (to, from) = ((me + step) % n, (me + n - step) % n);
                    let mut token = vec![0; count];
                    if me == 0 {
                        comm.send(&message(0, 0, step, count), to)?;
                        comm.recv(&mut token, from)?;
                    } else {
                        comm.recv(&mut token, from)?;
                        comm.send(&token, to)?;
                    }
                    expect_message(&token, 0, 0, step);
                }
                Ok(())
            });
            results.into_iter().for_each(|result| result.unwrap());
        }
    }
}

/// All ranks send to all, themselves included, `counts.len()` messages each, in one batch.
fn everybody_to_everybody(comm: &Communicator, counts: &[usize]) -> Result<(), CommError> {
    let (n, me) = (comm.size(), comm.rank());
    let mut out = Vec::new();
    let mut back = Vec::new();
    for peer in 0..n {
        for (number, count) in counts.iter().enumerate() {
            out.push((peer, message(me, peer, number, *count)));
            back.push((peer, number, vec![0_u32; *count]));
        }
    }
    let mut batch: Vec<PointToPoint<'_>> = Vec::new();
    batch.extend(
        out.iter()
            .map(|(peer, data)| PointToPoint::send(data, *peer)),
    );
    // Receives from the last rank first: the order between peers does not matter.
    let receives = back.chunks_mut(counts.len()).rev().flatten();
    batch.extend(receives.map(|(peer, _, data)| PointToPoint::recv(data, *peer)));
    comm.batch_send_recv(&batch)?;
    drop(batch);
    for (peer, number, data) in &back {
        expect_message(data, *peer, me, *number);
    }
    Ok(())
}

#[test]
fn batches_of_long_short_empty_and_own_messages_arrive_in_order() {
    for setup in both() {
        for n in [1, 2, 4] {
            let results = ranks(n, &setup, |world| {
                let comm = world.everyone()?;
                everybody_to_everybody(&comm, &[1])?;
                everybody_to_everybody(&comm, &[0, 3, 0, 100_000, 1, 0])?;
                everybody_to_everybody(&comm, &[300_000, 300_000])?;
                comm.barrier()
            });
            results.into_iter().for_each(|result| result.unwrap());
        }
    }
}

#[test]
fn messages_of_a_batch_do_not_wait_for_ranks_that_others_of_it_need() {
    for setup in both() {
        for n in [3, 5] {
            // A chain against the order of the ranks: the last rank's message starts it, and its own
            // batch ends with what comes from the first.
            let results = ranks(n, &setup, move |world| -> Result<(), CommError> {
                let comm = world.everyone()?;
                let me = comm.rank();
                let mut got = [0_u8; 3];
                let start = n - 2;
                let (to, from) = ((me + 1) % n, (me + n - 1) % n);
                if me == start {
                    comm.batch_send_recv(&[
                        PointToPoint::recv(&mut got, from),
                        PointToPoint::send(&[7_u8, 8, 9], to),
                    ])?;
                } else {
                    comm.recv(&mut got, from)?;
                    comm.send(&got, to)?;
                }
                assert_eq!(got, [7, 8, 9]);
                Ok(())
            });
            results.into_iter().for_each(|result| result.unwrap());
        }
    }
}

#[test]
fn many_messages_to_one_peer_arrive_in_the_order_of_the_calls() {
    for setup in both() {
        let results = ranks(2, &setup, |world| -> Result<(), CommError> {
            let comm = world.everyone()?;
            for number in 0..500 {
                let count = number * 37 % 1009;
                if comm.rank() == 0 {
                    comm.send(&message(0, 1, number, count), 1)?;
                } else {
                    let mut got = vec![0; count];
                    comm.recv(&mut got, 0)?;
                    expect_message(&got, 0, 1, number);
                }
            }
            Ok(())
        });
        results.into_iter().for_each(|result| result.unwrap());
    }
}

#[test]
fn a_short_message_outlives_the_group_and_the_rank_that_sent_it() {
    for setup in both() {
        for leaves in [false, true] {
            let results = ranks(2, &setup, move |world| {
                let comm = world.everyone()?;
                if comm.rank() == 0 {
                    comm.send(&message(0, 1, 0, 100), 1)?;
                    drop(comm);
                    // Groups made and used after must not take the place of the message.
                    for _ in 0..3 {
                        world.group("alone", &[Rank(0)])?.barrier()?;
                    }
                    if !leaves {
                        let next = world.group("next", &[Rank(0), Rank(1)])?;
                        next.barrier()?;
                    }
                    return Ok(());
                }
                Clock::pause(Duration::from_millis(100));
                let mut got = [0; 100];
                comm.recv(&mut got, 0)?;
                expect_message(&got, 0, 1, 0);
                if !leaves {
                    world.group("next", &[Rank(0), Rank(1)])?.barrier()?;
                }
                Ok::<_, CommError>(())
            });
            for result in results {
                result.unwrap_or_else(|error| panic!("leaves: {leaves}: {error}"));
            }
        }
    }
}

#[test]
fn a_message_that_the_news_of_its_senders_leaving_overtakes_still_arrives() {
    let results = ranks(3, &Setup::tcp(), |world| {
        let comm = world.everyone()?;
        comm.barrier()?;
        let me = comm.rank();
        if me == 0 {
            // The news first: that is what a slow link looks like to the receiver.
            world.leave();
            Clock::pause(Duration::from_millis(100));
            return comm.send(&message(0, 2, 0, 30), 2);
        }
        let mut got = [vec![0; 30], vec![0; 30]];
        let [first, second] = &mut got;
        if me == 1 {
            Clock::pause(Duration::from_millis(900));
            return comm.send(&message(1, 2, 0, 30), 2);
        }
        // The other message comes long after the moment that is granted to the first.
        comm.batch_send_recv(&[PointToPoint::recv(first, 0), PointToPoint::recv(second, 1)])?;
        expect_message(&got[0], 0, 2, 0);
        expect_message(&got[1], 1, 2, 0);
        Ok::<_, CommError>(())
    });
    results.into_iter().for_each(|result| result.unwrap());
}

#[test]
fn collectives_and_messages_of_one_group_do_not_meet() {
    let setup = Setup {
        table: "all_reduce -> ring".to_owned(),
        ..Setup::shm()
    };
    for setup in [setup, Setup::tcp()] {
        // Only upwards: a short message does not wait for its receiver then, so the ranks may send
        // before a collective and receive behind it.
        let results = ranks(3, &setup, |world| -> Result<(), CommError> {
            let comm = world.everyone()?;
            let (n, me) = (comm.size(), comm.rank());
            for number in 0..20 {
                if me + 1 < n {
                    comm.send(&message(me, me + 1, number, 50), me + 1)?;
                }
                let mut sum = [1_u8; 9];
                comm.all_reduce_in_place(&mut sum, muster_comm::types::ReduceOp::Sum)?;
                assert_eq!(sum, [3; 9]);
                if me > 0 {
                    let mut got = [0; 50];
                    comm.recv(&mut got, me - 1)?;
                    expect_message(&got, me - 1, me, number);
                }
            }
            Ok(())
        });
        results.into_iter().for_each(|result| result.unwrap());
    }
}

#[test]
fn a_message_that_is_not_what_the_receiver_expects_is_named_by_it_and_ends_the_sender_soon() {
    // What rank 0 sends, and which field differs from what rank 1 expects.
    for (wrong_type, field) in [(false, Field::Count), (true, Field::Dtype)] {
        for setup in both() {
            let results = ranks(2, &setup, move |world| {
                let comm = world.everyone().unwrap();
                let started = Clock::now();
                let result = match (comm.rank(), wrong_type) {
                    (0, false) => comm.send(&[7_u32; 100_001], 1),
                    (0, true) => comm.send(&[7_i32; 100_000], 1),
                    _ => comm.recv(&mut vec![0_u32; 100_000], 0),
                };
                assert!(started.elapsed() < AT_ONCE, "{:?}", started.elapsed());
                // A socket may swallow the whole message before the receiver looks at it.
                let error = result.and_then(|()| comm.barrier()).unwrap_err();
                assert!(started.elapsed() < AT_ONCE, "{:?}", started.elapsed());
                error
            });
            for error in &results {
                let ErrorKind::Mismatch {
                    field: found,
                    rank,
                    peer,
                    mine,
                    theirs,
                } = cause(error)
                else {
                    panic!("{error}");
                };
                assert_eq!((*found, *rank, *peer), (field, Rank(1), Rank(0)), "{error}");
                let (wanted, sent) = match field {
                    Field::Count => ("100000", "100001"),
                    _ => ("u32", "i32"),
                };
                assert!(mine.contains(wanted) && theirs.contains(sent), "{error}");
            }
        }
    }
}
