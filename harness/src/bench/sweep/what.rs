//! What is done again and again, and what each call has: sizes, numbers, places.

use muster_comm::types::Collective;
use serde::{Deserialize, Serialize};

/// What is done again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
            Self::Collective(collective) => !collective.is_empty() && !collective.is_of_objects(),
            Self::BringUp | Self::GroupCreate => false,
        }
    }

    /// Whether it has sizes.
    #[must_use]
    pub const fn has_sizes(self) -> bool {
        match self {
            Self::Collective(collective) => !collective.is_empty(),
            Self::BringUp | Self::GroupCreate => false,
        }
    }
}

/// Whether a call can be made out of place (first) and in place (second).
#[must_use]
pub const fn places(collective: Collective) -> (bool, bool) {
    // The one buffer that a call may have is input on the root and output elsewhere.
    (!collective.has_one_buffer(), collective.has_one_count())
}
