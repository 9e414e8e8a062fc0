//! Runs checks side by side, each bounded in time.

use std::sync::Arc;
use std::time::Duration;

use crossbeam::channel;
use muster_comm::sync::{Clock, Deadline};

use super::{Check, Finding, System};

/// A check and what it said.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The check.
    pub check: &'static Check,
    /// What it said.
    pub finding: Finding,
    /// How long it took.
    pub elapsed: Duration,
    /// The check itself broke: a bug of ours, never a pass.
    pub broken: bool,
}

/// Runs `checks`, all at once, and gives back what they said in their order.
///
/// A check that has said nothing after `bound` is skipped with that reason; its thread is left to
/// itself and ends with the process.
#[must_use]
pub fn run(system: &Arc<System>, checks: &[&'static Check], bound: Duration) -> Vec<Judged> {
    let deadline = Deadline::after(bound);
    let (sender, receiver) = channel::unbounded();
    for (position, check) in checks.iter().enumerate() {
        let check: &'static Check = check;
        let job = {
            let (system, sender) = (Arc::clone(system), sender.clone());
            move || {
                let started = Clock::now();
                let finding = (check.judge)(&system);
                // Nobody listens any more once time was up.
                let _ = sender.send((position, finding, Clock::now().duration_since(started)));
            }
        };
        let spawned = std::thread::Builder::new()
            .name(format!("doctor {}", check.id))
            .spawn(job.clone());
        if spawned.is_err() {
            // No thread to be had: that is for the check of the process limit to tell.
            job();
        }
    }
    drop(sender);
    let mut said: Vec<Option<(Finding, Duration)>> = vec![None; checks.len()];
    while let Ok((position, finding, elapsed)) = receiver.recv_timeout(deadline.left()) {
        said[position] = Some((finding, elapsed));
    }
    // Every thread that ended has sent or panicked; those that are left over ran out of time.
    let in_time = !deadline.passed();
    let judged = |(check, said): (&&'static Check, Option<(Finding, Duration)>)| match said {
        Some((finding, elapsed)) => Judged {
            check,
            finding,
            elapsed,
            broken: false,
        },
        None if in_time => Judged {
            check,
            finding: Finding::skip("the check itself broke; this is a bug of muster"),
            elapsed: deadline.elapsed(),
            broken: true,
        },
        None => Judged {
            check,
            finding: Finding::skip(format!(
                "did not finish within {:.1} s",
                bound.as_secs_f64()
            )),
            elapsed: bound,
            broken: false,
        },
    };
    checks.iter().zip(said).map(judged).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Group;
    use super::*;
    use muster_comm::config::Environment;

    static FINE: Check = Check {
        id: "fine",
        group: Group::Host,
        asks: "",
        judge: |_| Finding::ok("fine", "here"),
    };
    static SLOW: Check = Check {
        id: "slow",
        group: Group::Host,
        asks: "",
        judge: |_| {
            Clock::pause(Duration::from_secs(3600));
            Finding::ok("late", "")
        },
    };
    static BROKEN: Check = Check {
        id: "broken",
        group: Group::Host,
        asks: "",
        judge: |_| panic!("on purpose"),
    };

    #[test]
    fn a_check_that_cannot_finish_is_skipped_and_one_that_breaks_is_told_apart() {
        let system = Arc::new(System::here(Environment::default()));
        let judged = run(&system, &[&SLOW, &FINE], Duration::from_millis(300));
        assert_eq!(judged[0].finding.what(), "did not finish within 0.3 s");
        assert!(!judged[0].broken);
        assert_eq!(judged[1].finding.what(), "fine");
        let judged = run(&system, &[&BROKEN, &FINE], Duration::from_secs(600));
        assert!(judged[0].broken);
        assert!(!judged[1].broken);
    }
}
