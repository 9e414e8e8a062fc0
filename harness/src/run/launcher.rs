//! What launchers whose ranks are processes of this host have in common: what they hear, and the
//! contract that their ranks are started under.

use muster_comm::rendezvous::{Coordinator, CoordinatorEvent};

use crate::world;

/// What reaches the launcher.
#[derive(Debug)]
pub(super) enum Event {
    /// From the ranks, over the control plane.
    Control(CoordinatorEvent),
    /// From the kernel, about their processes, and from who interrupts us.
    Process(world::Event),
}

impl From<world::Event> for Event {
    fn from(event: world::Event) -> Self {
        Self::Process(event)
    }
}

/// The variables that lead a rank to this coordinator.
pub(super) fn contract(job_id: &str, coordinator: &Coordinator) -> Vec<(String, String)> {
    let launcher = std::process::id().to_string();
    let variables = [
        (
            "MUSTER_RENDEZVOUS",
            format!("tcp://{}", coordinator.address()),
        ),
        ("MUSTER_JOB_ID", job_id.to_owned()),
        ("MUSTER_ATTEMPT", "0".to_owned()),
        ("MUSTER_LAUNCHER_PID", launcher),
    ];
    variables
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec()
}
