//! Many random runs, one after the other or a few at once.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::run::{Record, run};
use super::scenario::Scenario;
use crate::fail::Failure;
use crate::world::signals::Interrupts;
use crossbeam::channel::unbounded;

/// Carries all scenarios out, `jobs` of them at once; says whether somebody stopped it. `take` gets each run when
/// it is over.
///
/// # Errors
/// Where the drill's own means fail, and where `take` does.
pub fn carry_out(
    scenarios: impl Iterator<Item = Scenario> + Send,
    jobs: usize,
    interrupts: &Arc<Interrupts>,
    keep: Option<&Path>,
    mut take: impl FnMut(Record) -> Result<(), Failure>,
) -> Result<bool, Failure> {
    let mut numbered = (0_u64..).zip(scenarios);
    if jobs == 1 {
        for (number, scenario) in numbered {
            match run(scenario, number, interrupts, keep)? {
                Some(record) => take(record)?,
                None => return Ok(true),
            }
        }
        return Ok(false);
    }
    let queue = Mutex::new(Some(&mut numbered));
    let next = || {
        let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.as_mut().and_then(|queue| queue.next())
    };
    let close = || *queue.lock().unwrap_or_else(PoisonError::into_inner) = None;
    let (sender, records) = unbounded();
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            let sender = sender.clone();
            scope.spawn(move || {
                while let Some((number, scenario)) = next() {
                    let outcome = run(scenario, number, interrupts, keep);
                    let is_last = !matches!(outcome, Ok(Some(_)));
                    if sender.send(outcome).is_err() || is_last {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut interrupted = false;
        let mut outcome = Ok(());
        for record in records {
            match record {
                Ok(Some(record)) if outcome.is_ok() => outcome = take(record),
                Ok(Some(_)) => {}
                Ok(None) => interrupted = true,
                Err(failure) => outcome = Err(failure),
            }
            if interrupted || outcome.is_err() {
                close();
            }
        }
        outcome.map(|()| interrupted)
    })
}
