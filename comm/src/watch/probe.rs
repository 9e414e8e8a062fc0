//! How the coordinator looks at a rank: at its process, and at its board.

use super::process::{self, Place, Sight};
use super::wire;
use crate::rendezvous::{Card, Liveness, Seen};
use crate::types::Rank;

/// Looks at a rank whose card this is. Whoever cannot see the process learns nothing.
pub(super) fn look(rank: Rank, card: &Card) -> Seen {
    let look = super::look_at(rank.0, &card.process);
    let liveness = match &look.sight {
        Sight::Ended => Liveness::Ended,
        Sight::Hidden(_) => Liveness::Hidden,
        Sight::Seen(_) => Liveness::Lives {
            program: program(card),
        },
    };
    Seen {
        liveness,
        bytes: wire::encode(&look),
    }
}

/// The name of the program that a process runs.
fn program(card: &Card) -> String {
    let Place::At(pid) = process::find(&card.process) else {
        return "an unknown program".to_owned();
    };
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}
