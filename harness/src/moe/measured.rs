//! What one rank tells about one cell.

use serde::{Deserialize, Serialize};

use super::dispatch::{Phase, Span};
use crate::bench::told::Head;

/// When a rank was in a phase of one step: nanoseconds since the step began on this rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spell {
    /// Number of the phase in [`Phase::ALL`].
    pub phase: u8,
    /// Nanoseconds since the step began.
    pub start_ns: u64,
    /// Nanoseconds that it took.
    pub took_ns: u64,
}

/// One step of a rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// When the step began, on the clock that all ranks of the host share: nanoseconds.
    pub begun_ns: u64,
    /// Its phases.
    pub spells: Vec<Spell>,
}

/// One cell in one round, on one rank.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// What is the same whatever is measured.
    pub head: Head,
    /// The first step of the cell in this round.
    pub cold: Step,
    /// The timed steps.
    pub steps: Vec<Step>,
    /// Tokens of this rank in the first routing.
    pub tokens: u64,
    /// Selections of its tokens by expert, in the first routing.
    pub by_expert: Vec<u64>,
    /// Rows that it sent, received, and kept, in the first routing.
    pub rows: (u64, u64, u64),
    /// Selections that a capacity dropped, in the first routing.
    pub dropped: u64,
}

impl Step {
    /// The step that these spans are of.
    #[must_use]
    pub fn of(begun_ns: u64, spans: &[Span]) -> Self {
        let number = |phase: Phase| {
            let place = Phase::ALL.iter().position(|other| *other == phase);
            u8::try_from(place.unwrap_or(0)).unwrap_or(0)
        };
        let spell = |span: &Span| Spell {
            phase: number(span.phase),
            start_ns: span.start_ns.saturating_sub(begun_ns),
            took_ns: span.end_ns.saturating_sub(span.start_ns),
        };
        Self {
            begun_ns,
            spells: spans.iter().map(spell).collect(),
        }
    }

    /// Time in the phases that `wanted` picks, in nanoseconds.
    #[must_use]
    pub fn time_ns(&self, wanted: impl Fn(Phase) -> bool) -> u64 {
        let is_wanted = |spell: &&Spell| {
            Phase::ALL
                .get(usize::from(spell.phase))
                .is_some_and(|phase| wanted(*phase))
        };
        let spells = self.spells.iter().filter(is_wanted);
        spells.map(|spell| spell.took_ns).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_of_many_seconds_keep_their_length() {
        let second = 1_000_000_000;
        let span = |phase, start_ns, end_ns| Span {
            phase,
            start_ns,
            end_ns,
        };
        let spans = [
            span(Phase::Tokens, 7 * second, 19 * second),
            span(Phase::Staging, 19 * second, 20 * second),
            span(Phase::Tokens, 20 * second, 21 * second),
        ];
        let step = Step::of(second, &spans);
        assert_eq!(step.time_ns(Phase::is_dispatch), 13 * second);
        assert_eq!(step.time_ns(Phase::is_combine), 0);
        assert_eq!(step.time_ns(Phase::is_layer), 13 * second);
        assert_eq!(step.spells[1].start_ns, 18 * second);
    }
}
