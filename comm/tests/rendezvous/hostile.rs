//! Strangers and liars: whatever they send, they lose their connection and nobody else anything.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use muster_comm::rendezvous::{
    Coordinator, CoordinatorEvent, CoordinatorOptions, DownReason, Endpoint, Refusals,
    RendezvousError, Secret, Session, SessionEvent,
};
use muster_comm::sync::{Clock, Deadline};
use muster_comm::types::Rank;
use proptest::prelude::*;

use crate::support::*;

/// Bytes of the two frames that an honest joiner of [`JOB`] sends before its introduction.
const OPENING_BYTES: usize = 4 + 8 + 32 + 4 + JOB.len();
const PROOF_BYTES: usize = 4 + 32;

fn stranger(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the coordinator accepts");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Waits until the coordinator has closed the connection; what it said before that.
fn closed(stream: &mut TcpStream) -> Vec<u8> {
    let mut said = Vec::new();
    let mut bytes = [0; 1024];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return said,
            Ok(count) => said.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return said,
            Err(error) => panic!("still open after {PATIENCE:?}: {error}"),
        }
    }
}

/// A frame as the handshake has them.
fn frame(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap();
    [&length.to_le_bytes()[..], body].concat()
}

fn opening(job_id: &[u8]) -> Vec<u8> {
    frame(&[b"muster>1", &[5; 32][..], &[0; 4], job_id].concat())
}

/// The world of two that every stranger here fails to disturb.
fn completes(coordinator: &Coordinator) {
    let members = world(coordinator, 2);
    let rounds = on_all(&members, |session| {
        session.gather("r", vec![1], Deadline::after(PATIENCE))
    });
    assert!(rounds.iter().all(Result::is_ok), "{rounds:?}");
    on_all(&members, |session| session.leave());
}

#[test]
fn garbage_costs_its_sender_the_connection_at_once_and_is_counted() {
    let coordinator = start(options(2));
    let garbage: [&[u8]; 9] = [
        b"GET / HTTP/1.1\r\nHost: coordinator\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 the beginning of a TLS hello",
        &[0xFF; 4096],
        // A length of 4 GiB less one, one just over the limit, and none.
        &[0xFF, 0xFF, 0xFF, 0xFF],
        &[1, 2, 0, 0],
        &[0, 0, 0, 0],
        // Openings with another magic, a job id that is no text, and one that is too long.
        &frame(b"muster>2 and what else a later version may say"),
        &opening(&[0xFF, 0xFE]),
        &opening(&[b'j'; 129]),
    ];
    for bytes in garbage {
        let mut stream = stranger(coordinator.address());
        stream.write_all(bytes).unwrap();
        let began = Clock::now();
        assert_eq!(closed(&mut stream), b"", "it is told nothing");
        let took = Clock::now().duration_since(began);
        assert!(took < AT_ONCE, "{took:?}");
    }
    assert_eq!(coordinator.refusals().malformed, 9);
    let event = event_until(&coordinator, |_| true);
    assert!(
        matches!(event, CoordinatorEvent::Refused { count: 1, .. }),
        "{event:?}"
    );
    // One event for all nine: a flood of strangers is no flood of events.
    assert_eq!(coordinator.events().try_next(), None);
    completes(&coordinator);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_at_any_stage_hurt_a_coordinator(
        is_opened in any::<bool>(),
        bytes in proptest::collection::vec(any::<u8>(), 0..2000),
    ) {
        let coordinator = start(options(1));
        let mut stream = stranger(coordinator.address());
        if is_opened {
            stream.write_all(&opening(JOB.as_bytes())).unwrap();
        }
        // The coordinator may close while this writes.
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(Shutdown::Write);
        closed(&mut stream);
        let members = world(&coordinator, 1);
        members[0].session.leave();
    }
}

#[test]
fn a_wrong_proof_is_told_the_job_and_nothing_else() {
    let coordinator = start(options(2));
    let mut stream = stranger(coordinator.address());
    stream.write_all(&opening(JOB.as_bytes())).unwrap();
    stream.write_all(&frame(&[3; 32])).unwrap();
    let said = closed(&mut stream);
    let challenge = 4 + 8 + 32;
    assert_eq!(
        said[challenge..],
        frame(&[&[0, 0, 0, 0, 0], JOB.as_bytes()].concat())
    );
    assert_eq!(coordinator.refusals().wrong_secret, 1);
    completes(&coordinator);
}

#[test]
fn idle_and_slow_connections_are_dropped_after_two_seconds() {
    let coordinator = start(options(2));
    let address = coordinator.address();
    let began = Clock::now();
    let mut idle = stranger(address);
    let mut half = stranger(address);
    half.write_all(&opening(JOB.as_bytes())[..20]).unwrap();
    let mut unproved = stranger(address);
    unproved.write_all(&opening(JOB.as_bytes())).unwrap();
    let slow = std::thread::spawn(move || {
        let mut stream = stranger(address);
        for byte in opening(JOB.as_bytes()) {
            if stream.write_all(&[byte]).is_err() {
                return;
            }
            Clock::pause(Duration::from_millis(100));
        }
        panic!("a slow opening was read to its end");
    });
    for stream in [&mut idle, &mut half, &mut unproved] {
        closed(stream);
    }
    slow.join().unwrap();
    let took = Clock::now().duration_since(began);
    assert!(took >= Duration::from_secs(2), "{took:?}");
    assert_eq!(coordinator.refusals().slow, 4);
    completes(&coordinator);
}

#[test]
fn a_world_forms_among_hundreds_of_idle_connections_and_the_oldest_strangers_go() {
    let coordinator = start(options(17));
    let address = coordinator.address();
    let strangers: Vec<TcpStream> = (0..200).map(|_| stranger(address)).collect();
    let began = Clock::now();
    let members = world(&coordinator, 17);
    let took = Clock::now().duration_since(began);
    assert!(took < AT_ONCE, "{took:?}");
    for mut stream in strangers {
        closed(&mut stream);
    }
    let Refusals { crowded, slow, .. } = coordinator.refusals();
    assert_eq!(crowded + slow, 200);
    assert!(crowded >= 200 - 64 - 17, "{crowded} were crowded out");
    assert!(members.iter().all(Member::is_quiet));
    on_all(&members, |session| session.leave());
}

#[test]
fn a_world_forms_under_a_storm_of_strangers_of_every_kind() {
    let coordinator = start(options(17));
    let address = coordinator.address();
    let deadline = Deadline::after(Duration::from_millis(700));
    let storm: Vec<JoinHandle<u32>> = (0..4)
        .map(|kind| {
            std::thread::spawn(move || {
                let mut count = 0;
                while !deadline.passed() {
                    let mut stream = stranger(address);
                    // The coordinator may close while this writes.
                    let _ = match kind {
                        0 => Ok(()),
                        1 => stream.write_all(b"GET / HTTP/1.1\r\n\r\n"),
                        2 => stream.write_all(&opening(JOB.as_bytes())),
                        _ => stream.write_all(&[&opening(b"x")[..], &frame(&[1; 32])].concat()),
                    };
                    count += 1;
                }
                count
            })
        })
        .collect();
    let members = world(&coordinator, 17);
    let count: u32 = storm.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert!(count > 50, "{count} strangers are no storm");
    let rounds = on_all(&members, |session| {
        session.gather("r", vec![1], Deadline::after(PATIENCE))
    });
    assert!(rounds.iter().all(Result::is_ok), "{rounds:?}");
    assert!(members.iter().all(Member::is_quiet));
    on_all(&members, |session| session.leave());
}

#[test]
fn ranks_with_a_wrong_secret_are_refused_one_by_one_while_the_world_forms() {
    let coordinator = start(options(17));
    let endpoint = endpoint(&coordinator);
    let wrong: Vec<Joining> = (0..50)
        .map(|rank| {
            let secret = Secret::from_bytes([1; 32]);
            join_within(&endpoint, secret, hello(rank % 17, 17), PATIENCE)
        })
        .collect();
    let members = world(&coordinator, 17);
    for joining in wrong {
        let error = failure(joining);
        assert!(
            matches!(error, RendezvousError::WrongSecret { .. }),
            "{error}"
        );
    }
    assert_eq!(coordinator.refusals().wrong_secret, 50);
    on_all(&members, |session| session.leave());
}

/// What a proxy saw from the joiner, and a place (counted in bytes from the joiner) at which it
/// flips a bit.
#[derive(Default)]
struct Tap {
    seen: Vec<u8>,
    flip_at: Option<usize>,
    close_after: Option<usize>,
    /// Lets nothing through in either direction, as a coordinator that is stopped.
    is_frozen: bool,
}

/// A proxy; the tap is on its first connection.
fn proxy(coordinator: &Coordinator) -> (Endpoint, Arc<Mutex<Tap>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = Endpoint::from(listener.local_addr().unwrap());
    let tap = Arc::new(Mutex::new(Tap::default()));
    let address = coordinator.address();
    let shared = Arc::clone(&tap);
    std::thread::spawn(move || {
        let mut tap = Some(shared);
        for joiner in listener.incoming().flatten() {
            let tap = tap.take().unwrap_or_default();
            std::thread::spawn(move || forward(joiner, address, &tap));
        }
    });
    (endpoint, tap)
}

/// One connection through the proxy.
fn forward(mut joiner: TcpStream, address: SocketAddr, tap: &Arc<Mutex<Tap>>) {
    let mut real = TcpStream::connect(address).unwrap();
    let (mut back, mut forth) = (real.try_clone().unwrap(), joiner.try_clone().unwrap());
    let backward = Arc::clone(tap);
    std::thread::spawn(move || {
        let mut bytes = [0; 64 * 1024];
        while let Ok(count @ 1..) = back.read(&mut bytes) {
            let is_frozen = backward.lock().unwrap().is_frozen;
            if !is_frozen && forth.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = forth.shutdown(Shutdown::Both);
    });
    let mut bytes = [0; 64 * 1024];
    while let Ok(count @ 1..) = joiner.read(&mut bytes) {
        let mut tap = tap.lock().unwrap();
        let start = tap.seen.len();
        tap.seen.extend_from_slice(&bytes[..count]);
        if tap.is_frozen {
            continue;
        }
        if let Some(at) = tap.flip_at.filter(|at| (start..start + count).contains(at)) {
            bytes[at - start] ^= 1;
        }
        let keep = tap
            .close_after
            .map_or(count, |end| end.saturating_sub(start).min(count));
        if real.write_all(&bytes[..keep]).is_err() || keep < count {
            break;
        }
    }
    let _ = real.shutdown(Shutdown::Both);
    let _ = joiner.shutdown(Shutdown::Both);
}

#[test]
fn a_rank_that_was_cut_off_before_it_was_heard_introduces_itself_again() {
    let coordinator = start(options(2));
    let (endpoint, tap) = proxy(&coordinator);
    tap.lock().unwrap().close_after = Some(OPENING_BYTES + PROOF_BYTES);
    let joining = [
        join(&crate::support::endpoint(&coordinator), hello(0, 2)),
        join(&endpoint, hello(1, 2)),
    ];
    let members = joining.map(member);
    let first = tap.lock().unwrap().seen.len();
    assert!(first > OPENING_BYTES + PROOF_BYTES, "it was cut: {first}");
    on_all(&members, |session| session.leave());
}

#[test]
fn a_recorded_handshake_gets_nobody_in() {
    let coordinator = start(CoordinatorOptions {
        deadline: PATIENCE,
        ..options(2)
    });
    let (endpoint, tap) = proxy(&coordinator);
    let honest = join(&endpoint, hello(0, 2));
    event_until(&coordinator, |event| {
        matches!(event, CoordinatorEvent::Joined { .. })
    });
    let recorded = tap.lock().unwrap().seen.clone();
    assert!(recorded.len() > OPENING_BYTES + PROOF_BYTES);
    for until in [recorded.len(), OPENING_BYTES + PROOF_BYTES] {
        let mut stream = stranger(coordinator.address());
        stream.write_all(&recorded[..until]).unwrap();
        closed(&mut stream);
    }
    assert_eq!(coordinator.refusals().wrong_secret, 2);
    let members = [
        honest,
        join(&crate::support::endpoint(&coordinator), hello(1, 2)),
    ]
    .map(member);
    on_all(&members, |session| session.leave());
}

#[test]
fn a_frame_that_was_changed_on_the_way_is_never_believed() {
    // In the length, in the tag, and in the body of the first frame after the world is complete.
    for place in [0, 1, 3, 4, 19, 20, 25] {
        let coordinator = start(options(2));
        let (endpoint, tap) = proxy(&coordinator);
        let joining = [
            join(&crate::support::endpoint(&coordinator), hello(0, 2)),
            join(&endpoint, hello(1, 2)),
        ];
        let members = joining.map(member);
        {
            let mut tap = tap.lock().unwrap();
            tap.flip_at = Some(tap.seen.len() + place);
        }
        // More than the length with its lowest bits flipped, so that no wait for the rest begins.
        members[1].session.report(vec![7; 4000]).unwrap();
        // The coordinator may have closed by now.
        let _ = members[1].session.report(vec![7; 4000]);
        let event = members[0].event();
        let SessionEvent::Down { rank, reason } = &event else {
            panic!("{event:?}");
        };
        assert_eq!(*rank, Rank(1));
        assert!(
            matches!(reason, DownReason::ProtocolBroken { .. }),
            "{place}: {reason}"
        );
        let event = members[1].event();
        assert!(
            matches!(event, SessionEvent::CoordinatorLost { .. }),
            "{event:?}"
        );
        while let Some(event) = coordinator.events().try_next() {
            assert!(
                !matches!(event, CoordinatorEvent::Report { .. }),
                "{event:?}"
            );
        }
        members[0].session.leave();
    }
}

#[test]
fn a_connection_that_ends_inside_a_frame_is_that_of_a_rank_which_ended_as_it_wrote() {
    let coordinator = start(options(2));
    let (endpoint, tap) = proxy(&coordinator);
    let joining = [
        join(&crate::support::endpoint(&coordinator), hello(0, 2)),
        join(&endpoint, hello(1, 2)),
    ];
    let members = joining.map(member);
    {
        let mut tap = tap.lock().unwrap();
        tap.close_after = Some(tap.seen.len() + 100);
    }
    members[1].session.report(vec![7; 4000]).unwrap();
    let (rank, reason) = (Rank(1), DownReason::HungUp);
    assert_eq!(members[0].event(), SessionEvent::Down { rank, reason });
    members[0].session.leave();
}

#[test]
fn a_thousand_ranks_at_once_all_get_in() {
    let world_size = affordable(1000);
    let coordinator = start(options(world_size));
    let members = world(&coordinator, world_size);
    assert!(
        members
            .iter()
            .all(|member| member.session.roster().len() == members.len())
    );
    on_all(&members, |session| session.leave());
}

#[test]
fn ten_thousand_idle_connections_cost_no_more_than_those_that_are_allowed_at_a_time() {
    let coordinator = start(options(2));
    let address = coordinator.address();
    let count = affordable(10_000);
    let mut strangers = Vec::new();
    for _ in 0..count {
        strangers.push(stranger(address));
    }
    completes(&coordinator);
    for mut stream in strangers {
        closed(&mut stream);
    }
    let Refusals { crowded, slow, .. } = coordinator.refusals();
    assert_eq!(crowded + slow, u64::from(count));
}

#[test]
fn a_coordinator_that_falls_silent_and_is_not_seen_stopped_is_waited_for() {
    let coordinator = start(options(2));
    let (endpoint, tap) = proxy(&coordinator);
    let joining = join(&endpoint, hello(0, 2));
    event_until(&coordinator, |event| {
        matches!(event, CoordinatorEvent::Joined { .. })
    });
    tap.lock().unwrap().is_frozen = true;
    let began = Clock::now();
    let error = failure(joining);
    let took = Clock::now().duration_since(began);
    assert!(took > Duration::from_secs(4), "{took:?}: {error}");
}

#[test]
fn a_round_with_a_frozen_coordinator_ends_shortly_after_its_deadline() {
    let coordinator = start(options(1));
    let (endpoint, tap) = proxy(&coordinator);
    let member = member(join(&endpoint, hello(0, 1)));
    tap.lock().unwrap().is_frozen = true;
    let budget = Duration::from_millis(200);
    let began = Clock::now();
    let round = member
        .session
        .gather("r", Vec::new(), Deadline::after(budget));
    let took = Clock::now().duration_since(began);
    assert!(
        matches!(round, Err(RendezvousError::Silent { .. })),
        "{round:?}"
    );
    assert!(took >= budget, "{took:?}");
    assert!(took < budget + AT_ONCE, "{took:?}");
    // Leaving is bounded as well, though nobody answers.
    let began = Clock::now();
    member.session.leave();
    let took = Clock::now().duration_since(began);
    assert!(took < Duration::from_secs(1) + AT_ONCE, "{took:?}");
}

#[test]
fn a_rank_that_does_not_read_is_given_up_and_costs_the_others_nothing() {
    let coordinator = start(options(2));
    let endpoint = endpoint(&coordinator);
    let reading = join(&endpoint, hello(0, 2));
    let (release, gate) = std::sync::mpsc::channel::<()>();
    let stuck = std::thread::spawn(move || {
        // The first event blocks the thread that reads for the session.
        let handler = Box::new(move |_| {
            let _ = gate.recv_timeout(PATIENCE);
        });
        let deadline = Deadline::after(PATIENCE);
        Session::join(&endpoint, &secret(), hello(1, 2), deadline, handler)
    });
    let (reading, stuck) = (member(reading), stuck.join().unwrap().unwrap());
    let count = 200;
    for _ in 0..count {
        coordinator.broadcast(vec![7; 1024 * 1024]).unwrap();
    }
    let mut messages = 0;
    let mut down = None;
    while messages < count || down.is_none() {
        let event = reading.event();
        if let SessionEvent::Down { rank, reason } = event {
            down = Some((rank, reason));
        } else {
            assert!(matches!(event, SessionEvent::Message(_)), "{event:?}");
            messages += 1;
        }
    }
    let (rank, reason) = down.expect("that is what was waited for");
    assert_eq!(rank, Rank(1));
    let is_named = matches!(
        reason,
        DownReason::NotReading { .. } | DownReason::Unreachable { .. }
    );
    assert!(is_named, "{reason}");
    drop(release);
    stuck.leave();
    reading.session.leave();
}
