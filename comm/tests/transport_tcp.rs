//! How TCP links come about: who gets in, who does not, and that strangers cost nobody else
//! anything (TCP-1, LISTEN-1, LISTEN-2 and HELLO-1 of `transport::tcp`).

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use muster_comm::sync::{Clock, Deadline};
use muster_comm::transport::poll::{Interest, wait_until_ready};
use muster_comm::transport::tcp::{
    Connector, LinkName, Listener, ParkedKey, Refusal, TcpError, TcpLink, connect,
};
use muster_comm::transport::{LinkError, Stream};

const SECRET: [u8; 32] = [7; 32];
const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

/// The listener of rank 5.
fn listener() -> Listener {
    Listener::bind(LOOPBACK, 5, &SECRET).unwrap()
}

/// The link that rank `from` makes to rank 5.
fn name(from: u32) -> LinkName {
    LinkName {
        lanes: 1,
        group: 99,
        plane: 1,
        from,
        to: 5,
    }
}

fn key(peer: u32) -> ParkedKey {
    ParkedKey {
        group: 99,
        plane: 1,
        peer,
    }
}

fn say(link: &mut TcpLink, text: &[u8]) {
    assert_eq!(link.try_write(text), Ok(text.len()));
}

fn hear(link: &mut TcpLink, len: usize) -> Vec<u8> {
    let deadline = soon();
    let (mut bytes, mut done) = (vec![0; len], 0);
    while done < len {
        match link.try_read(&mut bytes[done..]).unwrap() {
            0 => wait_for(link, false, deadline),
            got => done += got,
        }
    }
    bytes
}

fn wait_for(link: &TcpLink, write: bool, deadline: Deadline) {
    let descriptor = link.descriptor(false).unwrap();
    let ready = wait_until_ready([Interest { descriptor, write }].into_iter(), deadline).unwrap();
    assert!(ready || !deadline.passed(), "not ready in time");
}

/// A link to the listener works, in both directions.
fn assert_serves(listener: &Listener, from: u32) {
    let mut near = connect(listener.local_addr(), name(from), &SECRET, soon()).unwrap();
    let mut far = listener.take(key(from), soon()).unwrap();
    say(&mut near, b"to the acceptor");
    say(&mut far, b"to the connector");
    assert_eq!(hear(&mut far, 15), b"to the acceptor");
    assert_eq!(hear(&mut near, 16), b"to the connector");
}

#[test]
fn two_ranks_of_a_job_get_a_link() {
    assert_serves(&listener(), 3);
}

#[test]
fn a_link_is_parked_until_it_is_taken_and_found_by_its_whole_name() {
    let listener = listener();
    let mut near: Vec<TcpLink> = (0..4)
        .map(|from| connect(listener.local_addr(), name(from), &SECRET, soon()).unwrap())
        .collect();
    for (from, link) in (0..4).zip(&mut near) {
        say(link, &[from; 3]);
    }
    let wrong = ParkedKey { plane: 0, ..key(2) };
    assert!(listener.try_take(wrong).is_none());
    for from in [2, 0, 3, 1] {
        // A peer that has its link finds it parked, so nobody needs to wait.
        let mut far = listener.try_take(key(from)).unwrap();
        assert_eq!(hear(&mut far, 3), [u8::try_from(from).unwrap(); 3]);
    }
    assert!(listener.try_take(key(2)).is_none(), "taken");
}

#[test]
fn taking_waits_for_the_peer_and_gives_up_at_the_deadline() {
    let listener = listener();
    let budget = Duration::from_millis(30);
    assert_eq!(
        listener.take(key(1), Deadline::after(budget)).unwrap_err(),
        TcpError::TimedOut {
            what: "waiting for a peer to connect",
            budget
        }
    );
    let addr = listener.local_addr();
    let peer = std::thread::spawn(move || {
        Clock::pause(Duration::from_millis(20));
        connect(addr, name(1), &SECRET, soon()).unwrap()
    });
    listener.take(key(1), soon()).unwrap();
    drop(peer.join().unwrap());
}

#[test]
fn a_newer_link_of_the_same_name_replaces_the_older() {
    let listener = listener();
    let mut old = connect(listener.local_addr(), name(1), &SECRET, soon()).unwrap();
    let mut new = connect(listener.local_addr(), name(1), &SECRET, soon()).unwrap();
    let mut far = listener.take(key(1), soon()).unwrap();
    say(&mut new, b"new");
    assert_eq!(hear(&mut far, 3), b"new");
    let deadline = soon();
    while old.try_read(&mut [0]) == Ok(0) {
        wait_for(&old, false, deadline);
    }
    assert_eq!(old.try_read(&mut [0]), Err(LinkError::Closed));
}

#[test]
fn forgetting_a_group_closes_its_links_and_no_others() {
    let listener = listener();
    let other = LinkName {
        group: 100,
        ..name(1)
    };
    let _gone = connect(listener.local_addr(), name(1), &SECRET, soon()).unwrap();
    let _kept = connect(listener.local_addr(), other, &SECRET, soon()).unwrap();
    listener.forget(99);
    assert!(listener.try_take(key(1)).is_none());
    let kept = ParkedKey {
        group: 100,
        ..key(1)
    };
    assert!(listener.try_take(kept).is_some());
    let refused = TcpError::Refused {
        addr: listener.local_addr(),
        reason: Refusal::Ended,
    };
    let late = connect(listener.local_addr(), name(2), &SECRET, soon());
    assert_eq!(late.unwrap_err(), refused);
    assert!(connect(listener.local_addr(), other, &SECRET, soon()).is_ok());
}

#[test]
fn a_rank_of_another_job_is_refused_and_told_why() {
    // The connector notices first: the acceptor's own proof does not fit its secret.
    let listener = listener();
    let addr = listener.local_addr();
    let error = connect(addr, name(1), &[8; 32], soon()).unwrap_err();
    assert_eq!(error, TcpError::Impostor { addr });
    assert!(listener.try_take(key(1)).is_none());
    assert_serves(&listener, 2);
}

#[test]
fn a_connector_without_the_secret_gets_no_link_even_if_it_goes_on() {
    let listener = listener();
    let mut stranger = TcpStream::connect(listener.local_addr()).unwrap();
    stranger.write_all(&hello(2, 1, 5)).unwrap();
    let mut answer = [0; 68];
    stranger.read_exact(&mut answer).unwrap();
    assert_eq!(answer[..4], [0; 4], "the challenge");
    // The acceptor's own proof sent back to it proves nothing.
    stranger.write_all(&answer[36..]).unwrap();
    let mut verdict = [0; 4];
    stranger.read_exact(&mut verdict).unwrap();
    assert_eq!(u32::from_le_bytes(verdict), 2, "another job");
    assert_eq!(stranger.read(&mut [0]).unwrap(), 0, "and closed");
    assert!(listener.try_take(key(1)).is_none());
}

/// A hello as a rank sends it, in this version.
fn hello(version: u16, from: u32, to: u32) -> Vec<u8> {
    let mut bytes = b"muHi".to_vec();
    bytes.extend(version.to_le_bytes());
    // Plane 1, over one connection.
    bytes.extend([1, 1]);
    bytes.extend(99u64.to_le_bytes());
    bytes.extend(from.to_le_bytes());
    bytes.extend(to.to_le_bytes());
    bytes.extend([9; 32]);
    bytes
}

#[test]
fn hellos_that_cannot_be_served_are_answered_with_the_reason() {
    let listener = listener();
    let addr = listener.local_addr();
    let wrong = LinkName { to: 6, ..name(1) };
    let refused = |reason| TcpError::Refused { addr, reason };
    assert_eq!(
        connect(addr, wrong, &SECRET, soon()).unwrap_err(),
        refused(Refusal::Rank)
    );
    assert_eq!(
        connect(addr, name(5), &SECRET, soon()).unwrap_err(),
        refused(Refusal::Rank),
        "a rank has no link to itself"
    );
    let mut stranger = TcpStream::connect(addr).unwrap();
    stranger.write_all(&hello(9, 1, 5)).unwrap();
    let mut answer = [0; 68];
    stranger.read_exact(&mut answer).unwrap();
    assert_eq!(u32::from_le_bytes(answer[..4].try_into().unwrap()), 4);
    assert_serves(&listener, 2);
}

#[test]
fn garbage_silence_and_floods_cost_the_strangers_only() {
    let listener = listener();
    let addr = listener.local_addr();
    let mut garbage = TcpStream::connect(addr).unwrap();
    garbage.write_all(&[0x47; 5000]).unwrap();
    let silent = TcpStream::connect(addr).unwrap();
    let mut half = TcpStream::connect(addr).unwrap();
    half.write_all(&hello(2, 1, 5)[..20]).unwrap();
    // More idle connections than the listener listens to.
    let idle: Vec<TcpStream> = (0..300)
        .map(|_| TcpStream::connect(addr).unwrap())
        .collect();
    for from in 0..4 {
        assert_serves(&listener, from);
    }
    assert_ends(garbage);
    // The oldest made room for the flood.
    assert_ends(silent);
    assert_ends(half);
    drop(idle);
    assert_serves(&listener, 4);
}

/// The listener closes this connection, and well before a test times out.
fn assert_ends(mut stranger: TcpStream) {
    stranger
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    match stranger.read(&mut [0; 100]) {
        Ok(0) => {}
        Ok(len) => panic!("{len} bytes for a stranger"),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
    }
}

#[test]
fn a_silent_stranger_is_dropped_after_its_time() {
    let listener = listener();
    assert_ends(TcpStream::connect(listener.local_addr()).unwrap());
}

#[test]
fn a_connector_waits_for_nobody() {
    // The system accepts for it, as for a process that is stopped.
    let silent = TcpListener::bind(LOOPBACK).unwrap();
    let mut connector = Connector::new(silent.local_addr().unwrap(), name(1), &SECRET);
    for _ in 0..3 {
        assert!(connector.poll().unwrap().is_none());
        connector.rest(Duration::from_millis(1));
    }
    let listener = listener();
    let mut connector = Connector::new(listener.local_addr(), name(1), &SECRET);
    let deadline = soon();
    let link = loop {
        if let Some(link) = connector.poll().unwrap() {
            break link;
        }
        assert!(!deadline.passed());
        connector.rest(Duration::from_millis(1));
    };
    assert_eq!(link.lanes(), name(1).lanes);
    assert!(listener.take(key(1), soon()).is_ok());
}

#[test]
fn nobody_there_and_nobody_who_answers_are_errors_in_time() {
    let free = TcpListener::bind(LOOPBACK).unwrap();
    let addr = free.local_addr().unwrap();
    let budget = Duration::from_millis(50);
    // It accepts (the system does) and says nothing.
    assert_eq!(
        connect(addr, name(1), &SECRET, Deadline::after(budget)).unwrap_err(),
        TcpError::TimedOut {
            what: "connecting to a peer",
            budget
        }
    );
    drop(free);
    assert_eq!(
        connect(addr, name(1), &SECRET, soon()).unwrap_err(),
        TcpError::Connect {
            addr,
            error: std::io::ErrorKind::ConnectionRefused
        }
    );
}

#[test]
fn an_address_in_use_is_named() {
    let first = listener();
    let addr = first.local_addr();
    assert_eq!(
        Listener::bind(addr, 6, &SECRET).map(|_| ()).unwrap_err(),
        TcpError::Bind {
            addr,
            error: std::io::ErrorKind::AddrInUse
        }
    );
}

#[test]
fn a_dropped_listener_frees_its_port_and_closes_what_was_not_taken() {
    let listener = listener();
    let addr = listener.local_addr();
    let mut near = connect(addr, name(1), &SECRET, soon()).unwrap();
    drop(listener);
    let deadline = soon();
    while near.try_read(&mut [0]) == Ok(0) {
        wait_for(&near, false, deadline);
    }
    assert!(matches!(
        connect(addr, name(1), &SECRET, soon()),
        Err(TcpError::Connect { .. })
    ));
}

#[test]
fn ranks_that_all_connect_at_once_all_get_their_links() {
    const RANKS: u32 = 24;
    let listener = Listener::bind(LOOPBACK, RANKS, &SECRET).unwrap();
    let addr = listener.local_addr();
    std::thread::scope(|scope| {
        for from in 0..RANKS {
            scope.spawn(move || {
                let name = LinkName {
                    to: RANKS,
                    ..name(from)
                };
                let mut link = connect(addr, name, &SECRET, soon()).unwrap();
                say(&mut link, &from.to_le_bytes());
                assert_eq!(hear(&mut link, 2), b"ok");
            });
        }
        for from in 0..RANKS {
            let mut link = listener.take(key(from), soon()).unwrap();
            assert_eq!(hear(&mut link, 4), from.to_le_bytes());
            say(&mut link, b"ok");
        }
    });
}
