//! Dispatch and combine, as the dispatchers of training stacks do them.
//!
//! All of them do the same in the end: each token comes back as the sum, over its experts, of what
//! the expert makes of it times the expert's weight. The experts here are the identity, so the
//! result is known.
//!
//! DISPATCH-1: split sizes follow from the routing, by counts that the ranks exchange.
//! DISPATCH-2: between the two readings of the clock of a phase there is only what the phase is.
//! DISPATCH-3: counts that came wrong are put right, so that the calls that follow fit on all ranks and the step can be checked.

mod all_gather;
mod all_to_all;
mod capacity;
mod deduplicated;
mod recount;
mod rows;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use half::bf16;
use muster_comm::error::CommError;
use muster_comm::sync::Clock;
use serde::{Deserialize, Serialize};

pub use self::recount::Recount;
use self::rows::Rows;
use super::data::Number;
use super::layer::{Layer, Payload};
use super::routing::Routing;
use super::workload::Shape;

/// How tokens get to their experts and back.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dispatcher {
    /// Every rank gets every token.
    AllGather,
    /// A copy for each expert of the token, with counts exchanged first.
    AllToAll,
    /// Equal splits: each source has room for this many times the mean rows of an expert.
    Capacity(f64),
    /// A copy for each rank that has an expert of the token.
    Deduplicated,
}

/// Words that name dispatchers.
const DISPATCHERS: &str = "all-to-all, all-gather, deduplicated, capacity:FACTOR";
/// Largest capacity factor: above, nearly all that is sent is padding.
const FACTOR_MAX: f64 = 64.0;

impl fmt::Display for Dispatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AllGather => f.write_str("all-gather"),
            Self::AllToAll => f.write_str("all-to-all"),
            Self::Capacity(factor) => write!(f, "capacity:{factor}"),
            Self::Deduplicated => f.write_str("deduplicated"),
        }
    }
}

/// A word that names no dispatcher.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown dispatcher {got:?}; allowed are {DISPATCHERS}, with FACTOR above 0 and up to {FACTOR_MAX}"
)]
pub struct UnknownDispatcher {
    got: String,
}

impl FromStr for Dispatcher {
    type Err = UnknownDispatcher;

    fn from_str(given: &str) -> Result<Self, UnknownDispatcher> {
        let unknown = || UnknownDispatcher {
            got: given.to_owned(),
        };
        match given {
            "all-gather" => Ok(Self::AllGather),
            "all-to-all" => Ok(Self::AllToAll),
            "deduplicated" => Ok(Self::Deduplicated),
            _ => {
                let factor = given.strip_prefix("capacity:").ok_or_else(unknown)?;
                let factor: f64 = factor.parse().map_err(|_| unknown())?;
                if factor > 0.0 && factor <= FACTOR_MAX {
                    Ok(Self::Capacity(factor))
                } else {
                    Err(unknown())
                }
            }
        }
    }
}

impl Dispatcher {
    /// Rows that each source may send each expert, where sources have `tokens` on average:
    /// `ceil(tokens * top_k / experts * factor)`, as Megatron-LM has it. `None` without a limit.
    #[must_use]
    pub fn capacity(self, shape: Shape, tokens: usize) -> Option<usize> {
        let Self::Capacity(factor) = self else {
            return None;
        };
        let mean = (tokens * shape.top_k) as f64 / shape.experts as f64;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a product of positive numbers; beyond usize it saturates and is refused later"
        )]
        let rows = (mean * factor).ceil() as usize;
        Some(rows)
    }

    /// One step: dispatch, identity experts, combine. All members of the layer call it, each with
    /// its own routing; `tokens` is the mean number of tokens of a source. What was received is kept
    /// if `recount` is of a checked step.
    ///
    /// # Errors
    /// The first error of a call.
    pub fn step(
        self,
        layer: &Layer,
        payload: Payload,
        routing: &Routing,
        tokens: usize,
        watch: &mut Watch,
        recount: &mut Recount<'_>,
    ) -> Result<Outcome, CommError> {
        match payload {
            Payload::F32 => self.typed::<f32>(layer, payload, routing, tokens, watch, recount),
            Payload::Bf16 | Payload::Fp8 => {
                self.typed::<bf16>(layer, payload, routing, tokens, watch, recount)
            }
        }
    }

    fn typed<T: Number>(
        self,
        layer: &Layer,
        payload: Payload,
        routing: &Routing,
        tokens: usize,
        watch: &mut Watch,
        recount: &mut Recount<'_>,
    ) -> Result<Outcome, CommError> {
        let rows = Rows { layer, payload };
        match self {
            Self::AllGather => all_gather::step::<T>(rows, routing, watch, recount),
            Self::AllToAll => all_to_all::step::<T>(rows, routing, watch, recount),
            Self::Deduplicated => deduplicated::step::<T>(rows, routing, watch, recount),
            Self::Capacity(_) => {
                let capacity = self.capacity(layer.shape, tokens).unwrap_or(0);
                capacity::step::<T>(rows, capacity, routing, watch, recount)
            }
        }
    }
}

/// The selections that a capacity leaves, in the order of the tokens: token, place, expert, and how
/// many rows of the expert are before it.
pub(super) fn kept_places(
    routing: &Routing,
    experts: usize,
    capacity: usize,
) -> impl Iterator<Item = (usize, usize, usize, usize)> {
    let mut next = vec![0_usize; experts];
    routing
        .selections()
        .filter_map(move |(token, place, expert)| {
            let number = next[expert];
            next[expert] += 1;
            (number < capacity).then_some((token, place, expert, number))
        })
}

/// What a rank received in a dispatch: rows in the order in which they came.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Received {
    /// `rows * hidden` elements.
    pub tokens: Vec<f32>,
    /// For each row the sum of its weights for the experts of this rank.
    pub probs: Vec<f32>,
}

impl Received {
    fn new<T: Number>(tokens: &[T], probs: Vec<f32>) -> Self {
        Self {
            tokens: tokens.iter().map(|element| element.to_f32()).collect(),
            probs,
        }
    }
}

/// What a step made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// `tokens * hidden` elements: the combined tokens.
    pub combined: Vec<f32>,
    /// What came in between, where it was asked for.
    pub received: Option<Received>,
    /// Rows that this rank sent in the dispatch, without padding.
    pub rows_sent: usize,
    /// Rows that it received in the dispatch, before they go to the other parts of the experts.
    pub rows_received: usize,
    /// Of those it sent, rows that stayed on this rank.
    pub rows_own: usize,
}

/// A part of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Exchange of how many rows go where.
    Counts,
    /// Copies of tokens, in the order of their experts.
    Permute,
    /// Rows to the ranks of their experts; with their scales.
    Tokens,
    /// Weights to the ranks of the experts.
    Probs,
    /// Rows and weights to all parts of the expert.
    EtpGather,
    /// The experts: identity, times the weight.
    Experts,
    /// Parts of the expert's result, summed.
    EtpReduce,
    /// Rows back to the ranks of their tokens.
    Back,
    /// The sum over a token's experts.
    Unpermute,
    /// Copies to devices and back, which a layer that computes on the device does not have.
    Staging,
}

impl Phase {
    /// All, in the order in which they happen.
    pub const ALL: [Self; 10] = [
        Self::Counts,
        Self::Permute,
        Self::Tokens,
        Self::Probs,
        Self::EtpGather,
        Self::Experts,
        Self::EtpReduce,
        Self::Back,
        Self::Unpermute,
        Self::Staging,
    ];

    /// Whether the phase belongs to dispatch.
    #[must_use]
    pub const fn is_dispatch(self) -> bool {
        matches!(
            self,
            Self::Counts | Self::Permute | Self::Tokens | Self::Probs | Self::EtpGather
        )
    }

    /// Whether the phase belongs to combine.
    #[must_use]
    pub const fn is_combine(self) -> bool {
        matches!(self, Self::EtpReduce | Self::Back | Self::Unpermute)
    }

    /// Whether the phase belongs to the round trip: all but what only this program does.
    #[must_use]
    pub const fn is_layer(self) -> bool {
        !matches!(self, Self::Staging)
    }

    /// Whether the ranks of a group must meet in it.
    #[must_use]
    pub const fn is_collective(self) -> bool {
        !matches!(
            self,
            Self::Permute | Self::Experts | Self::Unpermute | Self::Staging
        )
    }
}

/// When one rank was in a phase, on the clock that all ranks of the host share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Which.
    pub phase: Phase,
    /// Nanoseconds.
    pub start_ns: u64,
    /// Nanoseconds.
    pub end_ns: u64,
}

/// Takes the times of phases.
#[derive(Debug, Default)]
pub struct Watch {
    spans: Vec<Span>,
}

impl Watch {
    /// Runs a phase.
    ///
    /// # Errors
    /// That of the phase.
    pub fn run<T>(
        &mut self,
        phase: Phase,
        body: impl FnOnce() -> Result<T, CommError>,
    ) -> Result<T, CommError> {
        let start_ns = Clock::nanos();
        let result = body()?;
        self.spans.push(Span {
            phase,
            start_ns,
            end_ns: Clock::nanos(),
        });
        Ok(result)
    }

    /// The phases so far; the watch begins anew.
    pub fn take(&mut self) -> Vec<Span> {
        std::mem::take(&mut self.spans)
    }
}
