//! The report of `bench`: a record for each cell.
//!
//! Field names and their order are a contract with other programs; `schema_version` rises when one
//! changes its meaning or goes away. `docs/metrics.md` defines every figure.
//!
//! BENCH-1: a record is made of the samples of all ranks or not at all.
//! BENCH-2: a report has passed only if it has no verdict, has a record of every cell it planned, and
//! found no element wrong.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bench::machine::Machine;
use crate::bench::measured::Pulse;
use crate::exit::Exit;
use crate::report::model::{Cause, TOOL};
use crate::report::origin::Origin;

/// Version of the report's fields.
pub const SCHEMA_VERSION: u32 = 1;

/// Most samples of a record that are kept in the report, all rounds together. Quantiles are taken
/// from all samples, before.
pub const SAMPLES_KEPT_MAX: usize = 1000;

/// The outcome of `bench`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BenchReport {
    /// Version of these fields: [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Program and version that wrote this.
    pub tool: String,
    /// `bench`.
    pub command: String,
    /// What moved the data: `host` or `hccl`.
    pub backend: String,
    /// Whether the device was an emulated one. Such figures say nothing about hardware.
    pub emulated: bool,
    /// Whether everything asked for was measured and right.
    pub passed: bool,
    /// Whether something that was asked for was not measured.
    #[serde(default)]
    pub partial: bool,
    /// Seed of the inputs.
    pub seed: u64,
    /// Wall time of the run in microseconds.
    pub elapsed_us: u64,
    /// Where it ran.
    pub machine: Machine,
    /// When and how it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// How bytes were allowed to go: `auto`, `shm` or `tcp`.
    pub transport: String,
    /// Whether each rank kept to its share of the processors.
    #[serde(default)]
    pub pinned: bool,
    /// Where the rules came from that select algorithms: `built in`, `MUSTER_ALGO` or a file.
    #[serde(default)]
    pub rules: String,
    /// Calls before the timed ones, in each round.
    pub warm_ups: u32,
    /// How often each cell was measured, at different times.
    pub rounds: u32,
    /// Cells that were planned.
    pub cells_planned: u64,
    /// The cells that were measured, in the order of the plan.
    pub records: Vec<Record>,
    /// Looks at the machine during the run, in their order.
    pub machine_states: Vec<MachineState>,
    /// The cause, when the run failed.
    pub verdict: Option<Cause>,
}

/// A look at the machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MachineState {
    /// The round in which it was taken.
    pub round: u32,
    /// What the machine could do.
    #[serde(flatten)]
    pub pulse: Pulse,
}

/// One cell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Record {
    /// What was done: the name of a collective, `group_create` or `bring_up`.
    pub collective: String,
    /// Name of the algorithm, `auto` where the selection tables chose.
    pub algo: String,
    /// Ranks of one group.
    pub ranks: u32,
    /// Size as nccl-tests counts it.
    pub bytes: u64,
    /// Elements of the buffer, or of one block.
    pub count: u64,
    /// Element type, where there is one.
    pub dtype: Option<String>,
    /// Reduction, where there is one.
    pub op: Option<String>,
    /// Root, where there is one, as an index into the group.
    pub root: Option<u32>,
    /// Whether send and receive buffer were one.
    pub in_place: bool,
    /// Where buffers lay: `private`, `region` or `device`.
    pub memory: String,
    /// How uneven blocks differed, where blocks may.
    pub split: Option<String>,
    /// Kind of the group.
    pub group: String,
    /// Groups of the kind that worked at once.
    pub groups: u32,
    /// Ranks of the whole world.
    pub world_size: u32,
    /// Time of a call on the slowest rank.
    pub latency_us: Latency,
    /// `bytes` over the median time, in 1e9 bytes a second; null where there are no bytes.
    pub algbw_gbytes_per_s: Option<f64>,
    /// The same with the bus factor.
    pub busbw_gbytes_per_s: Option<f64>,
    /// Wrong elements that ranks found, all checks together; null where nothing was checked.
    pub wrong: Option<u64>,
    /// What was wrong first, in words.
    pub wrong_text: Option<String>,
    /// Why it was not measured, where the call cannot be carried out; all times are zero then.
    pub unsupported: Option<String>,
    /// Time of the first call in each round, on the slowest rank.
    pub cold_us: Vec<f64>,
    /// How far apart the ranks began their samples; null where their clocks cannot be compared.
    pub start_skew_us: Option<Skew>,
    /// Median time of a call by rank of the world, null for ranks in none of the groups.
    pub rank_median_us: Vec<Option<f64>>,
    /// Calls in each sample, in the last round.
    pub calls_per_sample: u32,
    /// Samples in all rounds, of which `samples_us` keeps a part.
    pub samples: u64,
    /// Times of a call on the slowest rank, a list for each round, in the order of time.
    pub samples_us: Vec<Vec<f64>>,
    /// How the last timed call went: the name of an algorithm, `entry` where the contribution rode in the
    /// exchange that begins a call, `straight` where ranks used each other's buffers in place, `copy` in a
    /// group of one; null where it was not a collective of the host backend.
    #[serde(default)]
    pub taken: Option<String>,
    /// Bytes that went through staging at once, where that was asked for.
    #[serde(default)]
    pub segment: Option<u32>,
}

/// Quantiles of the time of a call, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Latency {
    /// The least.
    pub min: f64,
    /// The middle one.
    pub median: f64,
    /// Nine in ten take no longer.
    pub p90: f64,
    /// 99 in a hundred take no longer.
    pub p99: f64,
    /// 999 in a thousand take no longer.
    pub p99_9: f64,
    /// The greatest.
    pub max: f64,
    /// The mean.
    pub mean: f64,
}

/// How far apart ranks began, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Skew {
    /// The middle one of all samples.
    pub median: f64,
    /// 99 in a hundred are no greater.
    pub p99: f64,
    /// The greatest.
    pub max: f64,
}

impl BenchReport {
    /// An empty report.
    #[must_use]
    pub fn new(backend: &str, seed: u64, transport: &str, warm_ups: u32, rounds: u32) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            tool: TOOL.to_owned(),
            command: "bench".to_owned(),
            backend: backend.to_owned(),
            emulated: false,
            passed: false,
            partial: false,
            seed,
            elapsed_us: 0,
            machine: Machine::here(),
            origin: None,
            transport: transport.to_owned(),
            pinned: false,
            rules: String::new(),
            warm_ups,
            rounds,
            cells_planned: 0,
            records: Vec::new(),
            machine_states: Vec::new(),
            verdict: None,
        }
    }

    /// Decides whether everything passed (BENCH-2).
    pub fn close(&mut self) {
        self.passed = self.exit() == Exit::Ok;
        let all_rounds = |record: &Record| {
            record.collective == "bring_up" || record.samples_us.len() >= self.rounds as usize
        };
        self.partial = (self.records.len() as u64) < self.cells_planned
            || !self.records.iter().all(all_rounds);
    }

    /// The cause where no cell could be carried out: a run that measured nothing has proved nothing.
    #[must_use]
    pub fn nothing_measured(&self) -> Option<Cause> {
        let Some(first) = self.records.first() else {
            return Some(Cause::new(Exit::Internal, "nothing was measured"));
        };
        let first = first.unsupported.as_ref()?;
        let is_refused = |record: &Record| record.unsupported.is_some();
        self.records
            .iter()
            .all(is_refused)
            .then(|| Cause::new(Exit::Resource, format!("nothing was measured: {first}")))
    }

    /// The class of the outcome.
    #[must_use]
    pub fn exit(&self) -> Exit {
        let is_wrong = |record: &Record| record.wrong.is_some_and(|wrong| wrong > 0);
        if let Some(verdict) = &self.verdict {
            verdict.class
        } else if self.records.iter().any(is_wrong) {
            Exit::Data
        } else if (self.records.len() as u64) < self.cells_planned {
            Exit::Internal
        } else {
            Exit::Ok
        }
    }
}
