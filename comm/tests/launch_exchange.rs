//! A rank that asks its launcher where to meet, by PMI-1 over a descriptor that it inherited: here from this test.
//!
//! Alone in this binary: a process asks once.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use muster_comm::launch::Exchange;
use muster_comm::rendezvous::Secret;
use muster_comm::types::Rank;
use muster_comm::world::{JoinOptions, ServedBy, World};

/// Answers as Hydra does, until it was told that the rank has finished; returns what was put.
fn launcher(stream: UnixStream) -> String {
    let mut lines = BufReader::new(stream);
    let mut put = String::new();
    loop {
        let mut line = String::new();
        lines.read_line(&mut line).expect("a command");
        let answer = match line.split_whitespace().next().expect("a command") {
            "cmd=init" => "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n",
            "cmd=get_my_kvsname" => "cmd=my_kvsname kvsname=kvs_1\n",
            "cmd=put" => {
                let (_, value) = line.split_once("value=").expect("a value");
                value.trim().clone_into(&mut put);
                "cmd=put_result rc=0 msg=success\n"
            }
            "cmd=barrier_in" => "cmd=barrier_out\n",
            "cmd=finalize" => "cmd=finalize_ack\n",
            _ => "cmd=unknown\n",
        };
        lines
            .get_mut()
            .write_all(answer.as_bytes())
            .expect("it listens");
        if line.starts_with("cmd=finalize") {
            return put;
        }
    }
}

#[test]
fn rank_0_serves_where_it_says_and_a_process_that_joins_again_asks_nobody() {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let launcher = std::thread::spawn(move || launcher(theirs));
    let options = JoinOptions {
        exchange: Some(Exchange::Pmi {
            descriptor: ours.as_raw_fd(),
        }),
        served_by: ServedBy::Rank(Rank(0)),
        bring_up: Duration::from_secs(20),
        ..JoinOptions::new(
            "127.0.0.1:1".parse().expect("an endpoint"),
            Secret::random().expect("random bytes"),
            0,
            1,
        )
    };
    let world = match World::serve_and_join(options.clone()) {
        Ok(world) => world,
        // A host without any network has no address to tell others.
        Err(error) => {
            assert_eq!(error.exit_code(), 2, "{error}");
            return;
        }
    };
    assert_eq!(world.size(), 1);
    let put = launcher
        .join()
        .expect("it was told that the rank has finished");
    let endpoint: std::net::SocketAddr = put.parse().expect("an address");
    assert!(!endpoint.ip().is_loopback() && endpoint.port() > 0, "{put}");
    drop(world);
    // Nobody answers there any more.
    let again = World::serve_and_join(options).expect("the same place");
    assert_eq!(again.size(), 1);
    drop(ours);
}
