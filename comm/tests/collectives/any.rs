//! Messages from whichever rank sends one first.

use std::time::Duration;

use muster_comm::collective::Communicator;
use muster_comm::error::{CommError, ErrorKind, Field};
use muster_comm::sync::Clock;
use muster_comm::types::Rank;
use muster_comm::world::World;

use crate::support::{AT_ONCE, Setup, cause, ranks};

fn both() -> [Setup; 2] {
    [Setup::shm(), Setup::tcp()]
}

/// The communicator for what `source` sends to `target`.
fn channel(world: &World, source: u32, target: u32) -> Result<Communicator, CommError> {
    world.group(
        &format!("{source}->{target}"),
        &[Rank(source), Rank(target)],
    )
}

/// What rank 0 receives from anybody by, and over which channels: those of all ranks but itself.
fn receiver(world: &World) -> Result<(Communicator, Vec<Communicator>), CommError> {
    let size = u32::try_from(world.size()).expect("few ranks");
    let all: Vec<Rank> = (0..size).map(Rank).collect();
    let channels = (1..size).map(|source| channel(world, source, 0));
    Ok((
        world.group("any->0", &all)?,
        channels.collect::<Result<_, _>>()?,
    ))
}

#[test]
fn every_message_is_received_once_and_in_the_order_of_its_sender() {
    const EACH: u32 = 20;
    for setup in both() {
        for count in [1, 3000] {
            let results = ranks(4, &setup, move |world| -> Result<(), CommError> {
                let me = world.rank().0;
                if me > 0 {
                    let to = channel(&world, me, 0)?;
                    for number in 0..EACH {
                        to.send(&vec![me * 1000 + number; count], 1)?;
                    }
                    return world.everyone()?.barrier();
                }
                let (any, channels) = receiver(&world)?;
                let mut next = [0; 4];
                let mut got = vec![0_u32; count];
                for _ in 0..2 * EACH {
                    let at = any.recv_any(&channels, &mut got)?;
                    let source = at + 1;
                    let want = 1000 * u32::try_from(source).expect("small") + next[source];
                    assert!(got.iter().all(|one| *one == want), "{want}, not {}", got[0]);
                    next[source] += 1;
                }
                // What is left is received by name: the two ways share one order.
                for source in 1..4_u32 {
                    let from = &mut next[source as usize];
                    while *from < EACH {
                        channels[source as usize - 1].recv(&mut got, 0)?;
                        assert_eq!(got[0], source * 1000 + *from);
                        *from += 1;
                    }
                }
                world.everyone()?.barrier()
            });
            results.into_iter().for_each(|result| result.unwrap());
        }
    }
}

#[test]
fn a_message_of_another_type_is_refused_with_both_sides() {
    for setup in both() {
        let results = ranks(2, &setup, |world| {
            if world.rank().0 == 1 {
                let to = channel(&world, 1, 0).unwrap();
                // Both may hold it before the receiver looks at it.
                let sent = to.send(&vec![7_i32; 100_000], 1);
                return sent.and_then(|()| to.recv(&mut [0_i32], 1)).unwrap_err();
            }
            let (any, channels) = receiver(&world).unwrap();
            any.recv_any(&channels, &mut vec![0_u32; 100_000])
                .unwrap_err()
        });
        let ErrorKind::Mismatch {
            field, rank, peer, ..
        } = cause(&results[0])
        else {
            panic!("{}", results[0]);
        };
        assert_eq!((*field, *rank, *peer), (Field::Dtype, Rank(0), Rank(1)));
    }
}

#[test]
fn who_left_is_not_waited_for_as_long_as_others_may_send() {
    for setup in both() {
        let results = ranks(3, &setup, |world| -> Result<(), CommError> {
            let me = world.rank().0;
            if me == 1 {
                // Gone before it is waited for.
                channel(&world, 1, 0)?.send(&[4_u32], 1)?;
                world.leave();
                return Ok(());
            }
            Clock::pause(Duration::from_millis(200));
            if me == 2 {
                Clock::pause(Duration::from_millis(300));
                return channel(&world, 2, 0)?.send(&[5_u32], 1);
            }
            let (any, channels) = receiver(&world)?;
            let mut got = [0_u32];
            assert_eq!((any.recv_any(&channels, &mut got)?, got), (0, [4]));
            assert_eq!((any.recv_any(&channels, &mut got)?, got), (1, [5]));
            let error = any.recv_any(&channels, &mut got).unwrap_err();
            assert!(
                matches!(cause(&error), ErrorKind::PeerClosed { .. }),
                "{error}"
            );
            Ok(())
        });
        results.into_iter().for_each(|result| result.unwrap());
    }
}

#[test]
fn who_left_before_there_was_a_link_to_it_is_not_waited_for() {
    for setup in both() {
        let results = ranks(3, &setup, |world| -> Result<(), CommError> {
            let me = world.rank().0;
            // Over TCP the lower member makes the link, which is the receiver here.
            let from = |source: u32| world.group(&format!("{source}"), &[Rank(0), Rank(source)]);
            match me {
                0 => {
                    Clock::pause(Duration::from_millis(200));
                    let any = world.group("any->0", &[Rank(0), Rank(1), Rank(2)])?;
                    let mut got = [0_u32];
                    let at = any.recv_any(&[from(1)?, from(2)?], &mut got)?;
                    assert_eq!((at, got), (1, [5]));
                }
                1 => world.leave(),
                _ => from(2)?.send(&[5_u32], 0)?,
            }
            Ok(())
        });
        results.into_iter().for_each(|result| result.unwrap());
    }
}

#[test]
fn ranks_that_all_wait_for_the_receiver_are_a_circle_and_one_that_works_ends_none() {
    for works in [false, true] {
        let setup = Setup::shm().deadline_ms(20_000);
        let results = ranks(3, &setup, move |world| -> Result<(), CommError> {
            let me = world.rank().0;
            let (up, back) = (channel(&world, me, 0), channel(&world, 0, me));
            let started = Clock::now();
            let result = match me {
                0 => {
                    let (any, channels) = receiver(&world)?;
                    let mut got = [0_u32];
                    any.recv_any(&channels, &mut got).and_then(|_| {
                        channel(&world, 0, 1)?.send(&got, 1)?;
                        channel(&world, 0, 2)?.send(&got, 1)
                    })
                }
                // Waits for rank 0 all the time.
                1 => back?.recv(&mut [0_u32], 0),
                _ if works => {
                    Clock::pause(Duration::from_millis(2500));
                    up?.send(&[1_u32], 1)?;
                    back?.recv(&mut [0_u32], 0)
                }
                _ => back?.recv(&mut [0_u32], 0),
            };
            assert!(
                works || started.elapsed() < AT_ONCE,
                "{:?}",
                started.elapsed()
            );
            result
        });
        for result in results {
            match result {
                Ok(()) => assert!(works),
                Err(error) => {
                    assert!(!works, "{error}");
                    let verdict = error.verdict().expect("a verdict");
                    assert_eq!(verdict.class.name(), "DEADLOCK", "{error}");
                }
            }
        }
    }
}

#[test]
fn a_channel_that_is_none_is_refused() {
    let results = ranks(3, &Setup::shm(), |world| -> Result<(), CommError> {
        let everyone = world.everyone()?;
        for channels in [vec![], vec![everyone.clone()]] {
            let error = everyone.recv_any(&channels, &mut [0_u8]).unwrap_err();
            assert!(
                matches!(error.kind(), ErrorKind::InvalidArgument { .. }),
                "{error}"
            );
        }
        everyone.barrier()
    });
    results.into_iter().for_each(|result| result.unwrap());
}
