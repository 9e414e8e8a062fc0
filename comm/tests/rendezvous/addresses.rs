//! Ports that cannot be had, and endpoints at which somebody else sits, or nobody.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use muster_comm::rendezvous::{Coordinator, CoordinatorOptions, Endpoint, RendezvousError, Secret};
use muster_comm::sync::Clock;

use crate::support::*;

#[test]
fn a_taken_port_names_its_owner() {
    for bind in ["127.0.0.1:0", "[::1]:0"] {
        let Ok(squatter) = TcpListener::bind(bind) else {
            eprintln!("skipped {bind}: this host has no such address");
            continue;
        };
        let address = squatter.local_addr().unwrap();
        let error = Coordinator::start(CoordinatorOptions {
            bind: address,
            ..options(2)
        })
        .expect_err("the port is taken");
        let RendezvousError::PortTaken {
            owner: Some(owner),
            address: named,
        } = &error
        else {
            panic!("{error}");
        };
        assert_eq!(*named, address);
        let pid = format!("pid {} ", std::process::id());
        assert!(owner.starts_with(&pid), "{owner}");
        assert_eq!(error.exit_code(), 12);
    }
}

#[test]
fn an_address_of_another_host_cannot_be_bound_and_is_named() {
    let bind: SocketAddr = "192.0.2.1:0".parse().unwrap();
    let error = Coordinator::start(CoordinatorOptions { bind, ..options(2) }).unwrap_err();
    assert!(
        matches!(error, RendezvousError::Bind { address, .. } if address == bind),
        "{error}"
    );
}

#[test]
fn a_port_is_free_again_as_soon_as_its_coordinator_is_shut_down() {
    let coordinator = start(options(1));
    let bind = coordinator.address();
    let members = world(&coordinator, 1);
    members[0].session.leave();
    coordinator.shutdown();
    start(CoordinatorOptions { bind, ..options(1) }).shutdown();
}

#[test]
fn an_endpoint_where_nobody_listens_is_unreachable_at_the_deadline_and_not_before() {
    // Bound and never listened on: connecting is refused, and nobody else gets the port.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    socket.bind(&any.into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let endpoint = Endpoint::from(address);
    let budget = Duration::from_millis(300);
    let began = Clock::now();
    let error = failure(join_within(&endpoint, secret(), hello(0, 2), budget));
    let took = Clock::now().duration_since(began);
    assert!(took >= budget, "{took:?}");
    assert!(took < budget + AT_ONCE, "{took:?}");
    let RendezvousError::Unreachable {
        tries,
        endpoint: named,
        ..
    } = &error
    else {
        panic!("{error}");
    };
    assert!(*tries > 2, "{error}");
    assert_eq!(*named, endpoint);
    assert_eq!(error.exit_code(), 12);
}

#[test]
fn a_coordinator_that_starts_after_its_ranks_is_found() {
    let first = start(options(1));
    let bind = first.address();
    first.shutdown();
    let joining = [0, 1].map(|rank| join(&bind.into(), hello(rank, 2)));
    Clock::pause(Duration::from_millis(150));
    let coordinator = start(CoordinatorOptions { bind, ..options(2) });
    let members = joining.map(member);
    on_all(&members, |session| session.leave());
    drop(coordinator);
}

#[test]
fn a_name_that_does_not_resolve_is_named_with_time_and_tries() {
    let endpoint: Endpoint = "no-such-host.invalid:7".parse().unwrap();
    let budget = Duration::from_millis(400);
    let began = Clock::now();
    let error = failure(join_within(&endpoint, secret(), hello(0, 2), budget));
    let took = Clock::now().duration_since(began);
    assert!(took < budget + AT_ONCE, "{took:?}");
    let RendezvousError::NameUnresolved { host, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(host, "no-such-host.invalid");
    assert_eq!(error.exit_code(), 12);
}

#[test]
fn names_and_both_address_families_lead_to_the_coordinator() {
    let coordinator = start(options(1));
    let port = coordinator.address().port();
    let by_name: Endpoint = format!("tcp://localhost:{port}").parse().unwrap();
    member(join(&by_name, hello(0, 1))).session.leave();

    let bind: SocketAddr = "[::1]:0".parse().unwrap();
    if TcpListener::bind(bind).is_err() {
        eprintln!("skipped: this host has no IPv6 loopback");
        return;
    }
    let coordinator = start(CoordinatorOptions { bind, ..options(1) });
    let endpoint: Endpoint = endpoint(&coordinator).to_string().parse().unwrap();
    member(join(&endpoint, hello(0, 1))).session.leave();
}

#[test]
fn a_coordinator_that_says_nothing_and_is_not_seen_stopped_is_waited_for_until_the_deadline() {
    // The kernel accepts for a listener whose process gets no processor, just as here.
    let frozen = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = Endpoint::from(frozen.local_addr().unwrap());
    let began = Clock::now();
    let error = failure(join(&endpoint, hello(0, 2)));
    let took = Clock::now().duration_since(began);
    assert!(matches!(error, RendezvousError::Silent { .. }), "{error}");
    assert!(took > Duration::from_secs(4), "{took:?}");
    assert_eq!(error.exit_code(), 12);
}

#[test]
fn another_service_on_the_port_is_called_no_coordinator_and_quoted() {
    let service = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = Endpoint::from(service.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = service.accept().unwrap();
        let _ = stream.read(&mut [0; 64]).unwrap();
        stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .unwrap();
    });
    let error = failure(join(&endpoint, hello(0, 2)));
    server.join().unwrap();
    let RendezvousError::NotACoordinator { said, .. } = &error else {
        panic!("{error}");
    };
    assert!(said.starts_with("HTTP/1.1 400"), "{said}");
    assert_eq!(error.exit_code(), 12);
}

#[test]
fn an_impostor_that_does_not_know_the_secret_is_recognised_by_the_joiner() {
    // An impostor that relays nothing: it answers the handshake with a secret of its own.
    let coordinator = start(CoordinatorOptions {
        secret: Secret::from_bytes([9; 32]),
        ..options(1)
    });
    let address = coordinator.address();
    let liar = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = Endpoint::from(liar.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut client, _) = liar.accept().unwrap();
        let mut real = TcpStream::connect(address).unwrap();
        // The opening and the challenge pass; then it claims that all is well.
        let mut bytes = [0; 512];
        let count = client.read(&mut bytes).unwrap();
        real.write_all(&bytes[..count]).unwrap();
        let count = real.read(&mut bytes).unwrap();
        client.write_all(&bytes[..count]).unwrap();
        let _ = client.read(&mut bytes).unwrap();
        let mut welcome = vec![33, 0, 0, 0, 1];
        welcome.extend([7; 32]);
        client.write_all(&welcome).unwrap();
    });
    let error = failure(join(&endpoint, hello(0, 1)));
    server.join().unwrap();
    assert_eq!(error, RendezvousError::Impostor { endpoint });
    assert_eq!(error.exit_code(), 11);
}
