//! Strangers and liars: whatever they send, they lose their connection and nobody else anything.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use muster_comm::rendezvous::{Coordinator, CoordinatorOptions, Refusals};
use muster_comm::sync::{Clock, Deadline};
use proptest::test_runner::{RngAlgorithm, RngSeed, TestRng};
use rand_core::RngCore as _;

use crate::support::*;

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
