//! What dispatch and combine would take on a machine that is not here: predicted by the cost model, never measured.
//!
//! Routing is balanced: each rank sends each other one as much. So the exchanges have equal blocks, and algorithms of the calls
//! with equal blocks carry them.

mod document;

use std::collections::HashMap;

use muster_comm::algo::cost::{Plans, Topology};
use muster_comm::algo::{Links, algorithms_for, sweep as plans_of};
use muster_comm::layout::{FrameworkLayout, GroupKind};
use muster_comm::types::{Collective, Rank};
use serde::{Deserialize, Serialize};

use super::dispatch::Dispatcher;
use super::layer::Payload;
use super::model::Model;
use super::workload::Shape;
use crate::topology::Machine;

/// Version of the report's fields.
pub const SCHEMA_VERSION: u32 = 1;
/// Elements of a block for which plans pack blocks together, and for which they do not.
const BLOCKS: [usize; 2] = [64, 4096];
/// Bytes of a weight, and of the number of an expert.
const BESIDE_BYTES: f64 = 4.0;

/// The outcome of `moe --predict`. No figure in it was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Prediction {
    /// Version of these fields.
    pub schema_version: u32,
    /// Program and version that wrote this.
    pub tool: String,
    /// `moe_predict`.
    pub command: String,
    /// Always: nothing was checked that could fail.
    pub passed: bool,
    /// Always: no figure was measured.
    pub predicted: bool,
    /// The machine that it is for.
    pub topology: String,
    /// The layer.
    pub model: Model,
    /// Figures of the machine that are not known and count nothing: with any, all times are lower bounds.
    pub unknown: Vec<String>,
    /// The lines.
    pub rows: Vec<Row>,
}

/// One line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Row {
    /// Expert parallel size.
    pub ep: u32,
    /// Ranks of the world.
    pub world_size: u32,
    /// Tokens of a rank.
    pub tokens: u64,
    /// How tokens go.
    pub dispatcher: String,
    /// What goes.
    pub dtype: String,
    /// To the experts.
    pub dispatch: Part,
    /// Back.
    pub combine: Part,
    /// Both.
    pub predicted_us: f64,
    /// Whether no other dispatcher is faster for the same size, tokens and type.
    pub wins: bool,
    /// Whether something that these times need is not known, so that they are lower bounds.
    pub is_lower_bound: bool,
}

/// One way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Part {
    /// Its time, in microseconds.
    pub predicted_us: f64,
    /// Bytes of tokens that a rank sends, its own share included.
    pub bytes: f64,
    /// The algorithm that is fastest for the tokens.
    pub algorithm: String,
    /// What bounds it: latency, the links of a level, memory or the barrier.
    pub bound: String,
    /// All algorithms for the tokens, the fastest first.
    pub algorithms: Vec<Priced>,
    /// Its phases.
    pub phases: Vec<Phase>,
}

/// An algorithm and its time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Priced {
    /// The algorithm.
    pub algorithm: String,
    /// Its time, in microseconds.
    pub predicted_us: f64,
}

/// A phase and its time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Phase {
    /// The phase, as `moe` measures it.
    pub phase: String,
    /// Its time, in microseconds.
    pub predicted_us: f64,
}

/// What is to be predicted.
#[derive(Debug)]
pub struct Asked<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// The layer.
    pub model: &'a Model,
    /// A layout for each expert parallel size.
    pub layouts: &'a [FrameworkLayout],
    /// Tokens of a rank.
    pub tokens: &'a [usize],
    /// How tokens go.
    pub dispatchers: &'a [Dispatcher],
    /// What goes.
    pub payloads: &'a [Payload],
}

/// Plans of all algorithms of a call for a group, with blocks of one of [`BLOCKS`] elements.
type Made = Vec<(&'static str, Plans)>;

/// Prices calls; plans are made once for each group.
struct Pricer<'a> {
    machine: &'a Machine,
    made: HashMap<(Collective, usize, usize, usize), Made>,
}

/// A group: its size and its links.
#[derive(Clone, Debug)]
struct Group {
    n: usize,
    per_host: usize,
    topology: Topology,
}

impl Asked<'_> {
    /// Predicts all lines.
    ///
    /// # Errors
    /// What does not fit.
    pub fn predict(&self) -> Result<Prediction, String> {
        let mut pricer = Pricer {
            machine: self.machine,
            made: HashMap::new(),
        };
        let mut rows = Vec::new();
        let mut needed: Vec<String> = Vec::new();
        for layout in self.layouts {
            let of = |kind| layout.expert_group_of(kind, Rank(0));
            let groups = [GroupKind::Ep, GroupKind::Etp, GroupKind::EtpEp]
                .map(|kind| Group::of(self.machine, &of(kind)));
            let unknown = groups
                .iter()
                .flat_map(|group| self.machine.unknown_among(group.n, &group.topology));
            let unknown: Vec<String> = unknown.collect();
            for what in &unknown {
                if !needed.contains(what) {
                    needed.push(what.clone());
                }
            }
            for payload in self.payloads {
                for tokens in self.tokens {
                    let first = rows.len();
                    for dispatcher in self.dispatchers {
                        let layer = Layer {
                            model: self.model,
                            shape: Shape {
                                experts: self.model.experts,
                                top_k: self.model.top_k,
                                ranks: layout.dims().ep as usize,
                            },
                            groups: &groups,
                            tokens: *tokens,
                            payload: *payload,
                        };
                        let mut row = layer.row(*dispatcher, &mut pricer)?;
                        row.world_size = layout.dims().world;
                        row.is_lower_bound = !unknown.is_empty();
                        rows.push(row);
                    }
                    mark_winner(&mut rows[first..]);
                }
            }
        }
        Ok(Prediction {
            schema_version: SCHEMA_VERSION,
            tool: crate::TOOL.to_owned(),
            command: "moe_predict".to_owned(),
            passed: true,
            predicted: true,
            topology: self.machine.name.clone(),
            model: self.model.clone(),
            unknown: needed,
            rows,
        })
    }
}

fn mark_winner(rows: &mut [Row]) {
    let best = rows
        .iter()
        .map(|row| row.predicted_us)
        .fold(f64::INFINITY, f64::min);
    for row in rows {
        row.wins = row.predicted_us <= best;
    }
}

impl Group {
    fn of(machine: &Machine, members: &[Rank]) -> Self {
        let members: Vec<usize> = members.iter().map(|rank| rank.index()).collect();
        let (per_host, topology) = machine.of_group(&members);
        Self {
            n: members.len().max(1),
            per_host,
            topology,
        }
    }
}

/// A layer for some tokens of each rank.
struct Layer<'a> {
    model: &'a Model,
    shape: Shape,
    /// EP, ETP and both.
    groups: &'a [Group; 3],
    tokens: usize,
    payload: Payload,
}

impl Layer<'_> {
    fn row(&self, dispatcher: Dispatcher, pricer: &mut Pricer<'_>) -> Result<Row, String> {
        let (dispatch, combine) = match dispatcher {
            Dispatcher::AllGather => self.gathered(pricer)?,
            Dispatcher::AllToAll | Dispatcher::Capacity(_) | Dispatcher::Deduplicated => {
                self.exchanged(dispatcher, pricer)?
            }
        };
        Ok(Row {
            ep: u32::try_from(self.shape.ranks).unwrap_or(u32::MAX),
            tokens: self.tokens as u64,
            dispatcher: dispatcher.to_string(),
            dtype: self.payload.name().to_owned(),
            predicted_us: dispatch.predicted_us + combine.predicted_us,
            dispatch,
            combine,
            ..Row::default()
        })
    }

    /// Rows that a rank sends, and numbers beside each.
    fn rows(&self, dispatcher: Dispatcher) -> (f64, f64) {
        let (tokens, top_k) = (self.tokens as f64, self.shape.top_k as f64);
        match dispatcher {
            Dispatcher::Capacity(_) => {
                let capacity = dispatcher.capacity(self.shape, self.tokens).unwrap_or(0);
                ((capacity * self.shape.experts) as f64, 1.0)
            }
            // Balanced tokens choose experts of as many ranks as they can.
            Dispatcher::Deduplicated => (tokens * top_k.min(self.shape.ranks as f64), 2.0 * top_k),
            Dispatcher::AllGather | Dispatcher::AllToAll => (tokens * top_k, 1.0),
        }
    }

    /// Rows to the ranks of the experts, and back.
    fn exchanged(
        &self,
        dispatcher: Dispatcher,
        pricer: &mut Pricer<'_>,
    ) -> Result<(Part, Part), String> {
        let [ep, etp, both] = self.groups;
        let (rows, beside) = self.rows(dispatcher);
        let hidden = self.model.hidden;
        let (there, back) = (
            self.payload.dispatch_bytes(hidden) as f64,
            self.payload.combine_bytes(hidden) as f64,
        );
        let block = |bytes: f64| bytes / ep.n as f64;
        let mut out = Sum::new(rows * there);
        if !matches!(dispatcher, Dispatcher::Capacity(_)) {
            // Megatron-LM's tells how much each expert gets, the other how much each rank.
            let counts = match dispatcher {
                Dispatcher::Deduplicated => self.shape.ranks,
                Dispatcher::AllGather | Dispatcher::AllToAll | Dispatcher::Capacity(_) => {
                    self.shape.experts
                }
            };
            out.add(
                "counts",
                &pricer.price(Collective::AllGather, both, (counts * 8) as f64)?,
            );
        }
        out.copy("permute", 2.0 * rows * there, ep);
        out.tokens(pricer.price(Collective::AllToAll, ep, block(rows * there))?);
        out.add(
            "probs",
            &pricer.price(
                Collective::AllToAll,
                ep,
                block(rows * beside * BESIDE_BYTES),
            )?,
        );
        let mut home = Sum::new(rows * back);
        if etp.n > 1 {
            let gathered =
                pricer.price(Collective::AllGather, etp, rows * (there + BESIDE_BYTES))?;
            out.add("etp-gather", &gathered);
            let reduced =
                pricer.price(Collective::ReduceScatter, etp, rows * hidden as f64 * 4.0)?;
            home.add("etp-reduce", &reduced);
        }
        home.tokens(pricer.price(Collective::AllToAll, ep, block(rows * back))?);
        home.copy("unpermute", 2.0 * rows * back, ep);
        Ok((out.part(), home.part()))
    }

    /// All tokens to all ranks, and sums back.
    fn gathered(&self, pricer: &mut Pricer<'_>) -> Result<(Part, Part), String> {
        let both = &self.groups[2];
        let tokens = self.tokens as f64;
        let (hidden, experts) = (self.model.hidden, self.shape.experts as f64);
        let row = self.payload.dispatch_bytes(hidden) as f64;
        let mut out = Sum::new(tokens * row);
        out.add("counts", &pricer.price(Collective::AllGather, both, 8.0)?);
        out.add(
            "probs",
            &pricer.price(Collective::AllGather, both, tokens * experts)?,
        );
        let weights = tokens * experts * BESIDE_BYTES;
        out.add(
            "probs",
            &pricer.price(Collective::AllGather, both, weights)?,
        );
        out.tokens(pricer.price(Collective::AllGather, both, tokens * row)?);
        let sums = tokens * hidden as f64 * 4.0;
        let mut home = Sum::new(sums);
        home.tokens(pricer.price(Collective::ReduceScatter, both, sums)?);
        Ok((out.part(), home.part()))
    }
}

/// The times of a call by all algorithms, the fastest first, and what bounds that.
#[derive(Clone, Debug, Default)]
struct Times {
    all: Vec<Priced>,
    bound: String,
}

impl Times {
    fn us(&self) -> f64 {
        self.all.first().map_or(0.0, |best| best.predicted_us)
    }
}

impl Pricer<'_> {
    /// A call of a group with blocks of so many bytes.
    fn price(
        &mut self,
        collective: Collective,
        group: &Group,
        block: f64,
    ) -> Result<Times, String> {
        if group.n == 1 || block <= 0.0 {
            return Ok(Times::default());
        }
        let elements = BLOCKS[usize::from(block >= BLOCKS[1] as f64)];
        let key = (collective, group.n, group.per_host, elements);
        if !self.made.contains_key(&key) {
            let made = self.plans(collective, group, elements)?;
            self.made.insert(key, made);
        }
        let Some(made) = self.made.get(&key) else {
            return Ok(Times::default());
        };
        let bytes = block / elements as f64;
        let time = |plans: &Plans| plans.predict(bytes, &group.topology).seconds * 1e6;
        let mut all: Vec<(Priced, &Plans)> = made
            .iter()
            .map(|(name, plans)| {
                let priced = Priced {
                    algorithm: (*name).to_owned(),
                    predicted_us: time(plans),
                };
                (priced, plans)
            })
            .collect();
        all.sort_by(|(one, _), (other, _)| one.predicted_us.total_cmp(&other.predicted_us));
        let bound = all
            .first()
            .map(|(_, plans)| plans.bound(bytes, &group.topology));
        Ok(Times {
            bound: bound.unwrap_or_default(),
            all: all.into_iter().map(|(priced, _)| priced).collect(),
        })
    }

    fn plans(
        &self,
        collective: Collective,
        group: &Group,
        elements: usize,
    ) -> Result<Made, String> {
        let problem = plans_of::sized(collective, group.n, group.n * elements)
            .map_err(|error| error.to_string())?;
        let problem = self.machine.spread_over(problem, group.per_host);
        let fits = |links| links == Links::Message || group.n <= group.per_host;
        algorithms_for(collective)
            .filter(|algorithm| fits(algorithm.links))
            .map(|algorithm| {
                let plans = Plans::of(algorithm, &problem).map_err(|error| error.to_string())?;
                Ok((algorithm.name, plans))
            })
            .collect()
    }
}

/// The phases of one way, added up.
struct Sum {
    part: Part,
    /// The longest phase so far.
    longest: f64,
}

impl Sum {
    fn new(bytes: f64) -> Self {
        Self {
            part: Part {
                bytes,
                ..Part::default()
            },
            longest: 0.0,
        }
    }

    fn phase(&mut self, phase: &str, us: f64, bound: &str) {
        self.part.predicted_us += us;
        if us > self.longest {
            self.longest = us;
            bound.clone_into(&mut self.part.bound);
        }
        self.part.phases.push(Phase {
            phase: phase.to_owned(),
            predicted_us: us,
        });
    }

    fn add(&mut self, phase: &str, times: &Times) {
        self.phase(phase, times.us(), &times.bound);
    }

    fn tokens(&mut self, times: Times) {
        self.add("tokens", &times);
        let best = times.all.first().map(|best| best.algorithm.clone());
        self.part.algorithm = best.unwrap_or_default();
        self.part.algorithms = times.all;
    }

    /// Bytes that a rank copies within its memory.
    fn copy(&mut self, phase: &str, bytes: f64, group: &Group) {
        let us = bytes / group.topology.memory_bytes_per_s * 1e6;
        self.phase(phase, us, "memory");
    }

    fn part(self) -> Part {
        self.part
    }
}

#[cfg(test)]
mod tests;
