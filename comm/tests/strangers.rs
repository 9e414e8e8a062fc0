//! Connections that prove nothing are nothing that a process holds: a test of its own, because it counts the
//! descriptors of its whole process.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use muster_comm::strangers;
use muster_comm::sync::{Clock, Deadline};
use muster_comm::transport::tcp::Listener;

fn listener() -> Listener {
    let any = "127.0.0.1:0".parse().unwrap();
    Listener::bind(any, 0, &[7; 32]).unwrap()
}

/// Both tests, one after the other: each needs the process for itself.
#[test]
fn descriptors_of_strangers_are_left_out_and_no_other_is() {
    strangers_that_stay_are_left_out();
    strangers_that_come_and_go_hide_no_descriptor();
}

fn strangers_that_stay_are_left_out() {
    let listener = listener();
    let before = strangers::own_descriptors().unwrap();
    let address = listener.local_addr();
    let came: Vec<TcpStream> = (0..20)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    let deadline = Deadline::after(Duration::from_secs(10));
    while strangers::open() < 20 && !deadline.passed() {
        Clock::pause(Duration::from_millis(1));
    }
    assert_eq!(strangers::open(), 20);
    // Their own ends are held here.
    assert_eq!(strangers::own_descriptors(), Some(before + 20));
    drop(came);
}

fn strangers_that_come_and_go_hide_no_descriptor() {
    let listener = listener();
    let address = listener.local_addr();
    let least = strangers::own_descriptors().unwrap();
    // Few enough that the ports of this machine suffice for all other tests beside them.
    let connect = || (0..1000).for_each(|_| drop(TcpStream::connect(address)));
    thread::scope(|scope| {
        let threads = [scope.spawn(connect), scope.spawn(connect)];
        let is_over = || threads.iter().all(thread::ScopedJoinHandle::is_finished);
        while !is_over() {
            let held = strangers::own_descriptors();
            assert!(held.is_none_or(|held| held >= least), "{held:?} of {least}");
        }
    });
}
