//! The thread that moves a coordinator's events into another queue, where they can be waited for
//! together with others.

use std::sync::mpsc::Sender;
use std::time::Duration;

use muster_comm::rendezvous::{Coordinator, CoordinatorEvent};
use muster_comm::sync::Deadline;

use crate::fail::Failure;

/// How long the thread sleeps at most before it looks whether the queue still has a reader.
const TURN: Duration = Duration::from_secs(1);

/// Starts the thread. It ends with the coordinator, or with the reader of the queue.
///
/// # Errors
/// A failure of class RESOURCE where no thread can be started.
pub fn start<E: Send + 'static>(
    coordinator: &Coordinator,
    queue: Sender<E>,
    wrap: fn(CoordinatorEvent) -> E,
) -> Result<(), Failure> {
    let events = coordinator.events();
    let work = move || {
        loop {
            let turn = Deadline::after(TURN);
            let event = events.next(turn);
            // Nothing before its time means that the coordinator has ended.
            let has_ended = event.is_none() && !turn.passed();
            let is_refused = event.is_some_and(|event| queue.send(wrap(event)).is_err());
            if has_ended || is_refused {
                return;
            }
        }
    };
    std::thread::Builder::new()
        .name("muster-pump".to_owned())
        .spawn(work)
        .map(drop)
        .map_err(|error| Failure::resource(format!("a thread cannot be started: {error}")))
}
