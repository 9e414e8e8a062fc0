//! What every rank of a matrix is told: the matrix, what to do, and how long to wait.

use std::time::Duration;

use muster_comm::algo::{ENTRY, Links, choices_for, find_choice, planned};
use muster_comm::layout::{FrameworkLayout, Layout, MatrixFault};
use muster_comm::processors::Bind;
use muster_comm::types::Collective;
use serde::{Deserialize, Serialize};

use super::work::Work;
use crate::check::inject::Inject;

/// A layout by its sizes, with the name under which reports know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatrixSpec {
    /// The name: `tp2ep4@8`, or `mindspeed-rl-12/train` for a phase of a preset.
    pub name: String,
    /// Number of ranks.
    pub world_size: u32,
    /// The sizes of its axes.
    pub sizes: Sizes,
}

/// The sizes of a layout, framework by framework.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sizes {
    /// Of Megatron-LM.
    Megatron {
        /// Tensor parallel size.
        tp: u32,
        /// Context parallel size.
        cp: u32,
        /// Pipeline parallel size.
        pp: u32,
        /// Expert parallel size.
        ep: u32,
        /// Expert tensor parallel size, where it is not that of `tp`.
        etp: Option<u32>,
        /// Order of the axes.
        order: String,
    },
    /// Of another framework: the layout in one word.
    Other(String),
}

impl MatrixSpec {
    /// The sizes of a layout, under a name.
    #[must_use]
    pub fn of(name: impl Into<String>, layout: &FrameworkLayout) -> Self {
        let sizes = match layout {
            FrameworkLayout::Megatron(layout) => {
                let dims = layout.dims();
                Sizes::Megatron {
                    tp: dims.tp,
                    cp: dims.cp,
                    pp: dims.pp,
                    ep: dims.ep,
                    etp: layout.etp_given().then_some(dims.etp),
                    order: layout.order().to_owned(),
                }
            }
            FrameworkLayout::Verl(_) | FrameworkLayout::Vllm(_) => Sizes::Other(layout.to_string()),
        };
        Self {
            name: name.into(),
            world_size: layout.world_size(),
            sizes,
        }
    }

    /// The layout.
    ///
    /// # Errors
    /// The rule that the sizes break.
    pub fn layout(&self) -> Result<FrameworkLayout, MatrixFault> {
        match &self.sizes {
            Sizes::Megatron {
                tp,
                cp,
                pp,
                ep,
                etp,
                order,
            } => {
                let builder = Layout::builder()
                    .world(self.world_size)
                    .tp(*tp)
                    .cp(*cp)
                    .pp(*pp)
                    .ep(*ep)
                    .order(order.clone());
                let layout = match etp {
                    Some(etp) => builder.etp(*etp).build(),
                    None => builder.build(),
                };
                layout
                    .map(FrameworkLayout::from)
                    .map_err(|error| MatrixFault::Illegal(Box::new(error)))
            }
            Sizes::Other(text) => FrameworkLayout::other(text).unwrap_or(Err(MatrixFault::Empty)),
        }
    }
}

/// How bytes go between the ranks of one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Shared memory within a host, TCP between hosts
    Auto,
    /// Shared memory only
    Shm,
    /// TCP even between ranks of one host
    Tcp,
}

impl Transport {
    /// The word that options and the environment use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Shm => "shm",
            Self::Tcp => "tcp",
        }
    }
}

/// One matrix. Every rank gets the same, and derives the same list of cases from it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// The axes and the world size.
    pub matrix: MatrixSpec,
    /// What its ranks do.
    pub work: Work,
    /// Time that each call is given, in milliseconds.
    pub deadline_ms: u64,
    /// How bytes go.
    pub transport: Transport,
    /// Faults to plant.
    pub inject: Vec<Inject>,
    /// Seed of the inputs.
    pub seed: u64,
    /// Whether the groups are on their devices, and how.
    pub hccl: Option<Hccl>,
    /// Processors that each rank is bound to; `None` as the environment says.
    pub bind: Option<Bind>,
    /// Rules that select algorithms, in front of the built-in ones.
    pub rules: Option<String>,
}

/// Which way the calls of a matrix are made to go, so that each is proved and not only the one that the library
/// would choose.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forced {
    /// The algorithm of every call that has it; the other calls are left out.
    pub algo: Option<String>,
    /// Vector instructions, by name.
    pub isa: Option<String>,
    /// Whether buffers lie in the region that local ranks share.
    pub region: bool,
}

/// Most bytes for which `entry` is asked: what a rank contributes is no more, and the counts of 128 ranks fit
/// beside it.
const ENTRY_ASKED_MAX: &str = "15KiB";

impl Forced {
    /// Every algorithm by name, in the order of the collectives. `direct` says whether ranks share memory.
    #[must_use]
    pub fn all_algorithms(direct: bool) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for algorithm in planned().flat_map(choices_for) {
            let fits = direct || algorithm.links == Links::Message;
            if fits && !names.iter().any(|name| name == algorithm.name) {
                names.push(algorithm.name.to_owned());
            }
        }
        names
    }

    /// The calls that the algorithm carries out; none where no algorithm is forced.
    #[must_use]
    pub fn calls(&self) -> Vec<Collective> {
        let has = |name: &String| {
            planned()
                .filter(|collective| find_choice(*collective, name).is_ok())
                .collect()
        };
        self.algo.as_ref().map(has).unwrap_or_default()
    }

    /// Rules that force the algorithm, to stand before all others.
    #[must_use]
    pub fn rules(&self) -> Option<String> {
        let name = self.algo.as_deref()?;
        let rule = |collective: Collective| {
            let direct = find_choice(collective, name)
                .is_ok_and(|algorithm| algorithm.links == Links::Direct);
            let links = if direct { "links=direct" } else { "" };
            let bytes = if name == ENTRY.name {
                format!("bytes<={ENTRY_ASKED_MAX}")
            } else {
                String::new()
            };
            format!("{collective} {links} {bytes} -> {name}\n")
        };
        Some(self.calls().into_iter().map(rule).collect())
    }

    /// What the name of a matrix has behind it: `+region+ring+avx2`.
    #[must_use]
    pub fn suffix(&self) -> String {
        let region = self.region.then_some("region");
        let parts = [region, self.algo.as_deref(), self.isa.as_deref()];
        let part = |part: &str| format!("+{part}");
        parts.into_iter().flatten().map(part).collect()
    }
}

/// How groups are checked on their devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hccl {
    /// How long a device waits for its peers before the vendor reports an error, in milliseconds;
    /// `None` where the user's own HCCL_EXEC_TIMEOUT holds.
    pub exec_timeout_ms: Option<u64>,
}

impl Job {
    /// A job without faults, devices and rules of its own.
    #[must_use]
    pub fn new(matrix: MatrixSpec, work: Work, deadline: Duration) -> Self {
        Self {
            matrix,
            work,
            deadline_ms: u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX),
            transport: Transport::Auto,
            inject: Vec::new(),
            seed: 1,
            hccl: None,
            bind: None,
            rules: None,
        }
    }

    /// Whether ranks are bound to processors.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        self.bind.is_some_and(|bind| bind != Bind::None)
    }

    /// Time that each call is given.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        Duration::from_millis(self.deadline_ms)
    }

    /// The faults that `rank` has to plant while this matrix runs.
    pub fn faults_of(&self, rank: u32) -> impl Iterator<Item = &Inject> {
        // The way that is forced stands behind the name of the matrix.
        let matrix = self.matrix.name.split('+').next();
        self.inject.iter().filter(move |inject| {
            inject.rank == rank
                && inject
                    .matrix
                    .as_deref()
                    .is_none_or(|name| Some(name) == matrix)
        })
    }
}
