//! Ranks that nobody watches from outside: rank 0 serves the rendezvous, and stands still.

use std::time::Duration;

use muster_comm::sync::Clock;
use muster_tests::{Leftovers, Running, send, torchrun};
use rustix::process::Signal;

const FAULTY: &str = env!("CARGO_BIN_EXE_faulty");

/// Starts ranks as torchrun does.
fn ranks(count: u32, job: &str, transport: &str) -> Vec<Running> {
    let more = [("MUSTER_TRANSPORT", transport), ("MUSTER_DEADLINE_S", "60")];
    torchrun(FAULTY.as_ref(), &["loop"], count, job, &more)
}

#[test]
fn a_rank_that_serves_the_rendezvous_and_is_stopped_is_named_by_all_others() {
    let before = Leftovers::now();
    for transport in ["shm", "tcp"] {
        for count in [2, 4] {
            let job = format!("alone-{}-{transport}-{count}", std::process::id());
            let mut all = ranks(count, &job, transport);
            Clock::pause(Duration::from_millis(1500));
            let first = all.remove(0);
            send(first.pid(), Signal::STOP).expect("it runs");
            let ended: Vec<_> = all.into_iter().map(Running::wait).collect();
            let lines: Vec<&str> = ended
                .iter()
                .flat_map(|ended| ended.stderr.lines())
                .filter(|line| line.starts_with("VERDICT "))
                .collect();
            assert_eq!(lines.len(), ended.len(), "{ended:?}");
            for line in &lines {
                assert_eq!(line, &lines[0], "{transport} {count}");
                for part in ["PEER_FROZEN who=rank 0 (", "state T", " others=", " next="] {
                    assert!(line.contains(part), "{part} is missing in {line}");
                }
            }
            for other in &ended {
                assert_eq!(other.code, Some(1), "{other:?}");
            }
            first.signal(Signal::KILL);
            assert_eq!(first.wait().code, None);
        }
    }
    before.assert_nothing_new();
}
