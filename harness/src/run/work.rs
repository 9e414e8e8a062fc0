//! What the ranks of a job do: one variant for each command that starts ranks.
//!
//! Nothing else branches on the kind of work; [`super::rank`] does it, and the command makes of it what
//! ranks told.

use muster_comm::layout::FrameworkLayout;
use muster_comm::types::DType;
use serde::{Deserialize, Serialize};

use super::job::Forced;
use crate::bench;
use crate::check::cases::{Catalogue, KindGroups, Selection, WORLD_KIND};
use crate::check::message::MessageError;
use crate::moe;

/// What is done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Work {
    /// Collectives are measured.
    Bench(bench::sweep::Sweep),
    /// Tokens are dispatched and combined.
    Moe(moe::sweep::Sweep),
    /// Every group is proved.
    Verify(Checks),
}

/// What is asked of every group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checks {
    /// Element types to check; the default choice where empty.
    pub dtypes: Vec<DType>,
    /// Numbers of elements to check; the default choice where empty.
    pub counts: Vec<usize>,
    /// Which way calls are made to go, where each is proved by itself.
    pub forced: Forced,
}

/// What a rank tells of a cell that it measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Measured {
    /// Of [`Work::Bench`].
    Bench(bench::measured::Measured),
    /// Of [`Work::Moe`].
    Moe(moe::measured::Measured),
}

impl Measured {
    /// The bytes of a message.
    ///
    /// # Errors
    /// If it cannot be encoded.
    pub fn encode(&self) -> Result<Vec<u8>, MessageError> {
        Ok(postcard::to_stdvec(self)?)
    }

    /// What some bytes are.
    ///
    /// # Errors
    /// If they are none.
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        Ok(postcard::from_bytes(bytes)?)
    }

    /// Wrong elements that it found.
    #[must_use]
    pub const fn wrong(&self) -> u64 {
        match self {
            Self::Bench(measured) => measured.head.wrong,
            Self::Moe(measured) => measured.head.wrong,
        }
    }

    /// How long its samples took, in microseconds.
    #[must_use]
    pub fn took_us(&self) -> u64 {
        let ns: u64 = match self {
            Self::Bench(measured) => measured.samples_ns.iter().sum(),
            Self::Moe(measured) => {
                let steps = measured.steps.iter();
                steps.map(|step| step.time_ns(|_| true)).sum()
            }
        };
        ns / 1000
    }
}

impl Work {
    /// All groups of a layout and all questions to them.
    #[must_use]
    pub fn catalogue(&self, layout: &FrameworkLayout) -> Catalogue {
        match self {
            Self::Bench(plan) => plan.catalogue(layout),
            Self::Moe(plan) => plan.catalogue(layout),
            Self::Verify(checks) => checks.catalogue(layout),
        }
    }

    /// About how many bytes a rank needs at once.
    #[must_use]
    pub fn bytes_a_rank(&self, layout: &FrameworkLayout) -> u64 {
        match self {
            Self::Bench(plan) => plan.bytes_a_rank(layout),
            Self::Moe(plan) => plan.bytes_a_rank(),
            Self::Verify(checks) => checks.catalogue(layout).bytes_a_rank(),
        }
    }

    /// How calls are made to go, where each way is proved by itself.
    #[must_use]
    pub fn forced(&self) -> Forced {
        match self {
            Self::Bench(_) | Self::Moe(_) => Forced::default(),
            Self::Verify(checks) => checks.forced.clone(),
        }
    }

    /// What each world of ranks does that is started for it: one for each bring-up and for each round, so that
    /// what differs between two starts of one program is among the differences between rounds.
    #[must_use]
    pub fn worlds(&self, layout: &FrameworkLayout) -> Vec<Self> {
        match self {
            Self::Bench(plan) => {
                let nothing = bench::sweep::Sweep {
                    what: Vec::new(),
                    ..plan.clone()
                };
                let mut worlds = vec![Self::Bench(nothing); plan.bring_ups() as usize];
                if !plan.cells(layout).is_empty() {
                    worlds.extend((0..plan.rounds).map(|round| {
                        Self::Bench(bench::sweep::Sweep {
                            round: Some(round),
                            ..plan.clone()
                        })
                    }));
                }
                worlds
            }
            Self::Moe(plan) => (0..plan.rounds)
                .map(|round| {
                    Self::Moe(moe::sweep::Sweep {
                        round: Some(round),
                        ..plan.clone()
                    })
                })
                .collect(),
            Self::Verify(_) => vec![self.clone()],
        }
    }

    /// Cells that every round goes through.
    #[must_use]
    pub fn cells(&self, layout: &FrameworkLayout) -> usize {
        match self {
            Self::Bench(plan) => plan.cells(layout).len(),
            Self::Moe(plan) => plan.cells().len(),
            Self::Verify(_) => 0,
        }
    }

    /// Lines of the result: cells, and one for bring-up.
    #[must_use]
    pub fn lines(&self, layout: &FrameworkLayout) -> usize {
        let bring_up =
            matches!(self, Self::Bench(plan) if plan.what.contains(&bench::sweep::What::BringUp));
        self.cells(layout) + usize::from(bring_up)
    }
}

impl Checks {
    fn catalogue(&self, layout: &FrameworkLayout) -> Catalogue {
        // The catalogue has the world as its last kind.
        let kinds = layout.named_groups().into_iter();
        let kinds = kinds.filter(|kind| kind.name != WORLD_KIND);
        let kinds = kinds.map(|kind| KindGroups::new(kind.name, &kind.groups));
        let calls = self.forced.calls();
        let selection = Selection {
            dtypes: &self.dtypes,
            counts: &self.counts,
            calls: &calls,
        };
        Catalogue::new(kinds.collect(), layout.world_size(), selection)
    }
}
