//! What is done again and again, and what each call has: sizes, numbers, places.

use muster_comm::types::Collective;
use serde::{Deserialize, Serialize};

/// What is done again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// Nothing, in a world that comes up and ends.
    BringUp,
    /// A call.
    Collective(Collective),
    /// A group is made, its members meet for the first time, and it is destroyed.
    GroupCreate,
}

impl What {
    /// The name that options and reports use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BringUp => "bring_up",
            Self::Collective(collective) => collective.name(),
            Self::GroupCreate => "group_create",
        }
    }

    /// Whether it moves or reduces numbers, so that it has sizes and element types.
    #[must_use]
    pub const fn has_numbers(self) -> bool {
        match self {
            Self::Collective(collective) => {
                !matches!(collective, Collective::Barrier) && !carries_objects(collective)
            }
            Self::BringUp | Self::GroupCreate => false,
        }
    }

    /// Whether it has sizes.
    #[must_use]
    pub const fn has_sizes(self) -> bool {
        match self {
            Self::Collective(collective) => !matches!(collective, Collective::Barrier),
            Self::BringUp | Self::GroupCreate => false,
        }
    }
}

/// Whether a call carries objects rather than numbers.
#[must_use]
pub const fn carries_objects(collective: Collective) -> bool {
    matches!(
        collective,
        Collective::AllGatherObject
            | Collective::BroadcastObject
            | Collective::GatherObject
            | Collective::ScatterObject
    )
}

/// Whether a call can be made out of place (first) and in place (second).
#[must_use]
pub const fn places(collective: Collective) -> (bool, bool) {
    match collective {
        Collective::AllGather
        | Collective::AllReduce
        | Collective::AllToAll
        | Collective::Gather
        | Collective::Reduce
        | Collective::ReduceScatter
        | Collective::Scatter => (true, true),
        // The one buffer is input on the root and output elsewhere.
        Collective::Broadcast => (false, true),
        Collective::AllGatherObject
        | Collective::AllGatherV
        | Collective::AllToAllV
        | Collective::Barrier
        | Collective::BroadcastObject
        | Collective::GatherObject
        | Collective::GatherV
        | Collective::Recv
        | Collective::ReduceScatterV
        | Collective::ScatterObject
        | Collective::ScatterV
        | Collective::Send
        | Collective::SendRecvBatch => (true, false),
    }
}
