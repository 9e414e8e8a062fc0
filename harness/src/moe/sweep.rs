//! What `moe` measures: the cells, which every rank and the launcher derive alike.

use muster_comm::layout::{FrameworkLayout, GroupKind};
use muster_comm::types::{Collective, DType};
use serde::{Deserialize, Serialize};

use crate::check::cases::{Case, Catalogue, KindGroups, Question, WORLD_KIND};

use super::data::{HIDDEN_MIN, SCALE_BLOCK, TOKENS_MAX};
use super::dispatch::Dispatcher;
use super::file::Recorded;
use super::layer::Payload;
use super::routing::{Router, Routing};
use super::workload::{Shape, Workload};

/// Different routings that a cell goes through: so many that a lucky one does not decide, so few that
/// making them takes less time than the steps.
const ROUTINGS: u64 = 4;
/// Most experts of a layer: far more than any model has.
const EXPERTS_MAX: usize = 1 << 16;
/// Most cells of a run.
pub const CELLS_MAX: usize = 1000;
/// Most steps of a cell in a round: what fits a message to the launcher.
pub const STEPS_MAX: u32 = 2000;

/// Fewest and most steps of a cell in a round, where time decides.
const STEPS: (u64, u64) = (3, 100);

/// Where routing comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Source {
    /// The choices of a model, as a file has them.
    File(Recorded),
    /// Made by a workload.
    Made(Workload),
}

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sweep {
    /// Elements of a token.
    pub hidden: usize,
    /// Routed experts.
    pub experts: usize,
    /// Experts of each token.
    pub top_k: usize,
    /// Mean tokens of a rank, a cell each.
    pub tokens: Vec<usize>,
    /// Workloads, a cell each.
    pub sources: Vec<Source>,
    /// Dispatchers, a cell each.
    pub dispatchers: Vec<Dispatcher>,
    /// What is sent, a cell each.
    pub payloads: Vec<Payload>,
    /// Timed steps of each round, if a number was asked for.
    pub steps: Option<u32>,
    /// About how long the steps of a cell may take in each round, in milliseconds.
    pub time_ms: u64,
    /// Steps before them, in each round.
    pub warm_ups: u32,
    /// How often all cells are gone through.
    pub rounds: u32,
    /// The one round that this world is for; all of them where it stays together.
    pub round: Option<u32>,
}

/// What is measured at a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell<'a> {
    /// Mean tokens of a rank.
    pub tokens: usize,
    /// Where routing comes from.
    pub source: &'a Source,
    /// How tokens go.
    pub dispatcher: Dispatcher,
    /// What goes.
    pub payload: Payload,
}

impl Sweep {
    /// The shape on a layout.
    #[must_use]
    pub fn shape(&self, layout: &FrameworkLayout) -> Shape {
        Shape {
            experts: self.experts,
            top_k: self.top_k,
            ranks: layout.dims().ep as usize,
        }
    }

    /// Timed steps of a cell in a round, whose first step took so long on the slowest rank.
    #[must_use]
    pub fn steps(&self, first_ns: u64) -> u32 {
        let fit = self.time_ms.saturating_mul(1_000_000) / first_ns.max(1);
        let steps = u32::try_from(fit.clamp(STEPS.0, STEPS.1)).unwrap_or(STEPS_MAX);
        self.steps.unwrap_or(steps)
    }

    /// Steps before the timed ones, of a cell whose first step took so long on the slowest rank:
    /// one where each takes longer than all of them may.
    #[must_use]
    pub fn warm_ups(&self, first_ns: u64) -> u32 {
        let is_long = first_ns / 1_000_000 > self.time_ms && self.steps.is_none();
        self.warm_ups.min(if is_long { 1 } else { u32::MAX })
    }

    /// The rounds of this world.
    #[must_use]
    pub fn rounds_here(&self) -> std::ops::Range<u32> {
        self.round.map_or(0..self.rounds, |round| round..round + 1)
    }

    /// Every cell, in the order in which they are measured. A recording has its own number of tokens.
    #[must_use]
    pub fn cells(&self) -> Vec<Cell<'_>> {
        let mut cells = Vec::new();
        for source in &self.sources {
            let tokens = match source {
                Source::Made(_) => self.tokens.clone(),
                Source::File(recorded) => vec![recorded.tokens()],
            };
            for dispatcher in &self.dispatchers {
                for payload in &self.payloads {
                    cells.extend(tokens.iter().map(|tokens| Cell {
                        tokens: *tokens,
                        source,
                        dispatcher: *dispatcher,
                        payload: *payload,
                    }));
                }
            }
        }
        cells
    }

    /// What does not go together, in a sentence that says what would.
    ///
    /// # Errors
    /// The first thing that does not fit.
    pub fn check(&self, layout: &FrameworkLayout) -> Result<(), String> {
        let (ranks, world) = (layout.dims().ep as usize, layout.dims().world as usize);
        self.check_experts(ranks)?;
        if self.hidden < HIDDEN_MIN {
            return Err(format!(
                "hidden is {}, allowed are {HIDDEN_MIN} elements and more, which hold the proof of where a row comes from",
                self.hidden
            ));
        }
        if self.payloads.contains(&Payload::Fp8) && !self.hidden.is_multiple_of(SCALE_BLOCK) {
            return Err(format!(
                "fp8 has a scale for every {SCALE_BLOCK} elements, and hidden is {}; choose --dtype bf16 or f32",
                self.hidden
            ));
        }
        if self.payloads.contains(&Payload::Fp8)
            && self.dispatchers.contains(&Dispatcher::AllGather)
        {
            return Err(
                "the all-gather dispatcher sends tokens as they are; fp8 is for all-to-all, deduplicated and capacity"
                    .to_owned(),
            );
        }
        if let Some(tokens) = self
            .tokens
            .iter()
            .find(|tokens| **tokens > TOKENS_MAX / world)
        {
            let most = TOKENS_MAX / world;
            return Err(format!("{tokens} tokens a rank, allowed are 1 to {most}"));
        }
        let shape = self.shape(layout);
        for source in &self.sources {
            match source {
                Source::Made(workload) => workload
                    .check(shape, world)
                    .map_err(|error| format!("{workload}: {error}"))?,
                Source::File(recorded) => {
                    for step in 0..recorded.steps() {
                        let routings = recorded.routings(shape, world, step, 0);
                        routings.map_err(|error| error.to_string())?;
                    }
                }
            }
        }
        let cells = self.cells().len();
        if cells > CELLS_MAX {
            return Err(format!(
                "{cells} lines are asked for, allowed are {CELLS_MAX}"
            ));
        }
        Ok(())
    }

    fn check_experts(&self, ranks: usize) -> Result<(), String> {
        if !(1..=EXPERTS_MAX).contains(&self.experts) {
            return Err(format!(
                "{} experts, allowed are 1 to {EXPERTS_MAX}",
                self.experts
            ));
        }
        if !self.experts.is_multiple_of(ranks) {
            let fits: Vec<String> = (1..=self.experts)
                .filter(|ep| self.experts.is_multiple_of(*ep))
                .map(|ep| ep.to_string())
                .collect();
            return Err(format!(
                "{} experts cannot be dealt evenly to ep {ranks}; allowed are ep {}",
                self.experts,
                fits.join(", ")
            ));
        }
        if self.top_k == 0 || self.top_k > self.experts {
            return Err(format!(
                "top-k is {}, allowed are 1 to the {} experts",
                self.top_k, self.experts
            ));
        }
        Ok(())
    }

    /// The questions as the launcher counts them: one a cell and group.
    #[must_use]
    pub fn catalogue(&self, layout: &FrameworkLayout) -> Catalogue {
        let kind = GroupKind::EtpEp;
        let experts = KindGroups::new(kind.name(), &layout.expert_groups(kind));
        let question = |cell: &Cell<'_>| Question::Collective {
            collective: match cell.dispatcher {
                Dispatcher::AllGather => Collective::AllGatherV,
                Dispatcher::AllToAll | Dispatcher::Deduplicated => Collective::AllToAllV,
                Dispatcher::Capacity(_) => Collective::AllToAll,
            },
            dtype: match cell.payload {
                Payload::Bf16 => DType::Bf16,
                Payload::F32 => DType::F32,
                Payload::Fp8 => DType::U8,
            },
            count: cell.tokens * self.top_k * self.hidden,
        };
        let mut cases = Vec::new();
        for cell in self.cells() {
            cases.extend((0..experts.groups.len()).map(|group| Case {
                kind: 0,
                group,
                question: question(&cell),
            }));
        }
        Catalogue {
            kinds: vec![
                experts,
                KindGroups {
                    kind: WORLD_KIND.to_owned(),
                    groups: vec![(0..layout.dims().world).collect()],
                },
            ],
            cases,
        }
    }

    /// About how many bytes the buffers of a rank take.
    #[must_use]
    pub fn bytes_a_rank(&self) -> u64 {
        let tokens = self.cells().iter().map(|cell| cell.tokens).max();
        let tokens = tokens.unwrap_or(0);
        let row = 4 * self.hidden as u64;
        // Input, copies for the experts, what arrives, what goes back, and sums in f32.
        (tokens as u64 * row).saturating_mul(2 + 5 * self.top_k as u64)
    }
}

impl Source {
    /// The name that reports show.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::File(recorded) => format!("file:{}", recorded.file()),
            Self::Made(workload) => workload.to_string(),
        }
    }

    /// How many different routings there are to go through.
    #[must_use]
    pub fn routings(&self, shape: Shape) -> u64 {
        match self {
            Self::File(recorded) => recorded.steps() as u64,
            Self::Made(Workload::Balanced) => 1,
            Self::Made(Workload::Rotating { .. }) => shape.ranks as u64,
            Self::Made(_) => ROUTINGS,
        }
    }

    /// The routing of one source in a step.
    #[must_use]
    pub fn route(
        &self,
        shape: Shape,
        seed: u64,
        step: u64,
        rank: usize,
        world: usize,
        tokens: usize,
    ) -> Routing {
        match self {
            Self::Made(workload) => {
                Router::new(*workload, shape, seed, step).route(rank, world, tokens)
            }
            Self::File(recorded) => {
                let step = usize::try_from(step).unwrap_or(0);
                let routings = recorded
                    .routings(shape, world, step, seed)
                    .unwrap_or_default();
                // It was checked against this shape before the ranks were started.
                let mut routings = routings;
                if rank < routings.len() {
                    routings.swap_remove(rank)
                } else {
                    Routing::new(Vec::new(), shape.top_k, seed, rank)
                }
            }
        }
    }
}
