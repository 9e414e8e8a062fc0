//! `muster groups`: prints which ranks form which group, for people or for programs, and how two layouts differ.
//!
//! Starts no rank and touches no device: numbers in, lists out. The arithmetic is the library's
//! [`layout`](muster_comm::layout); this file chooses what to show.
//!
//! GROUPS-CMD-1: with `--format json` nothing but one JSON document is written. GROUPS-CMD-2: an
//! illegal layout writes nothing.

mod diff;
mod json;
mod mindspeed;
mod table;

use std::borrow::Cow;
use std::io::{self, BufWriter, Write};

use clap::{Args, Subcommand};
use muster_comm::layout::{
    DEFAULT_ORDER, FrameworkLayout, GroupBackend, Groups, Layout, LayoutError, Matrix, MatrixError,
    MatrixFault, MegatronVersion, MindSpeedError, NewGroup, Preset, SequenceOptions,
};
use muster_comm::types::{Rank, UnknownName};
use serde::Serialize;
use serde::ser::Serializer;

use crate::cmd::saving::Form;
use crate::cmd::values::{did_you_mean, presets};
use crate::exit::Exit;
use crate::fail::Failure;

/// Version of the JSON document's fields.
const SCHEMA_VERSION: u32 = 1;

/// Print the process groups that Megatron-LM (and MindSpeed), vLLM or verl would make
#[derive(Args, Clone, Debug, Default)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  \
    muster groups --world-size 8 --tp 2 --ep 4\n  \
    muster groups --world-size 8 --tp 2 --ep 4 --etp 1 --rank 3\n  \
    muster groups --matrix tp3ep4 --format json\n  \
    muster groups --matrix vllm0.18:tp4dp4          vLLM with vllm-ascend 0.18\n  \
    muster groups --matrix verl:sp8tp2@16           the device meshes of verl\n  \
    muster groups diff vllm0.13:tp2pp2dp2 vllm0.18:tp2pp2dp2\n  \
    muster groups --preset twinkle-8"
)]
pub struct GroupsArgs {
    #[command(subcommand)]
    command: Option<GroupsCommand>,
    /// Number of ranks
    #[arg(long, value_name = "W", allow_negative_numbers = true,
          required_unless_present_any = ["matrix", "preset"])]
    pub world_size: Option<i64>,
    /// Tensor parallel size
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub tp: Option<i64>,
    /// Pipeline parallel size
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub pp: Option<i64>,
    /// Context parallel size
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub cp: Option<i64>,
    /// Expert parallel size
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub ep: Option<i64>,
    /// Expert tensor parallel size [default: tp, as in Megatron]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub etp: Option<i64>,
    /// Expected data parallel size; it follows from the others
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub dp: Option<i64>,
    /// Axes, the fastest changing first [default: tp-cp-ep-dp-pp]
    #[arg(long, value_name = "AXES")]
    pub order: Option<String>,
    /// A matrix instead of sizes: tp2ep4, tp2cp2ep2@8, vllm0.18:tp4dp4, verl:sp8tp2@16
    #[arg(long, value_name = "MATRIX",
          conflicts_with_all = ["world_size", "tp", "pp", "cp", "ep", "dp", "preset"])]
    pub matrix: Option<String>,
    /// A named list of layouts instead of sizes: qwen3-30b-a3b-8, twinkle-8
    #[arg(long, value_name = "NAME", value_parser = presets(), hide_possible_values = true,
          conflicts_with_all = ["world_size", "tp", "pp", "cp", "ep", "etp", "dp", "order"])]
    pub preset: Option<&'static Preset>,
    /// Table for people or JSON for programs
    #[arg(long, value_enum, default_value_t)]
    pub format: Form,
    /// Show every group, one a line
    #[arg(long)]
    pub all: bool,
    /// Show only the groups of this rank
    #[arg(long, value_name = "R", conflicts_with = "sequence")]
    pub rank: Option<u32>,
    /// Show every new_group call in sequence: that of Megatron 0.12 or 0.15, or of vLLM's version in the matrix
    #[arg(long, value_name = "VERSION", num_args = 0..=1, value_parser = megatron_version)]
    pub sequence: Option<Option<MegatronVersion>>,
    /// MindSpeed hybrid context parallelism: ranks of a Ulysses group
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub ulysses_degree: Option<i64>,
    /// MindSpeed double ring: ranks of an inner ring
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub cp_window_size: Option<i64>,
    /// MindSpeed context parallelism: second communicators for send/receive overlap
    #[arg(long)]
    pub send_recv_overlap: bool,
    /// Attention heads, checked against the Ulysses degree
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub attention_heads: Option<i64>,
    /// MindSpeed 2-D tensor parallelism: first factor of tp
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        requires = "tp_y"
    )]
    pub tp_x: Option<i64>,
    /// MindSpeed 2-D tensor parallelism: second factor of tp
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        requires = "tp_x"
    )]
    pub tp_y: Option<i64>,
    /// MindSpeed tp-extend-ep: this many experts, whole, over tp*ep ranks
    #[arg(long, value_name = "EXPERTS", allow_negative_numbers = true)]
    pub tp_extend_ep: Option<i64>,
}

#[derive(Clone, Debug, Subcommand)]
enum GroupsCommand {
    /// Print which groups of two layouts differ; exit code 1 if any does
    Diff(diff::DiffArgs),
}

/// Why no groups were printed. All but [`GroupsError::Write`] are faults of the command line.
#[derive(Debug, thiserror::Error)]
pub enum GroupsError {
    /// The layout breaks a rule.
    #[error("illegal layout: {0}")]
    Layout(#[from] LayoutError),
    /// The matrix could not be read.
    #[error("{0}")]
    Matrix(#[from] MatrixError),
    /// An option that only Megatron's layouts have.
    #[error("{0} is for layouts of Megatron, and {1} is none")]
    MegatronOnly(&'static str, String),
    /// A MindSpeed feature does not fit the layout.
    #[error("{0}")]
    MindSpeed(#[from] MindSpeedError),
    /// A preset has an illegal layout.
    #[error("illegal layout: {0}")]
    Preset(#[from] MatrixFault),
    /// The rank is not in the world.
    #[error("rank {rank} is not in a world of {world_size}; ranks: 0 to {}", world_size - 1)]
    NoSuchRank {
        /// The rank that was asked for.
        rank: u32,
        /// Number of ranks.
        world_size: u32,
    },
    /// A preset or phase that does not exist.
    #[error("{0}{meant}", meant = did_you_mean(.0.suggestion()))]
    UnknownName(#[from] UnknownName),
    /// Layouts of different worlds have no groups in common.
    #[error("the layouts have {} and {} ranks; compare two of the same world", .0[0], .0[1])]
    WorldsDiffer([u32; 2]),
    /// Megatron's versions make groups in different sequences.
    #[error("--sequence needs a version of Megatron: 0.12 or 0.15")]
    SequenceOfNoVersion,
    /// The result could not be written.
    #[error("the groups could not be written: {0}")]
    Write(#[from] io::Error),
}

impl From<GroupsError> for Failure {
    fn from(error: GroupsError) -> Self {
        let exit = match error {
            GroupsError::Write(_) => Exit::Resource,
            GroupsError::Layout(_)
            | GroupsError::Matrix(_)
            | GroupsError::MegatronOnly(..)
            | GroupsError::MindSpeed(_)
            | GroupsError::NoSuchRank { .. }
            | GroupsError::Preset(_)
            | GroupsError::SequenceOfNoVersion
            | GroupsError::UnknownName(_)
            | GroupsError::WorldsDiffer(_) => Exit::Usage,
        };
        Self::new(exit, error.to_string())
    }
}

/// Prints the groups that `args` ask for, or how two layouts differ. A reader that goes away early is no error.
///
/// # Errors
/// An illegal layout, matrix, preset, feature or rank, before anything is written; or a failure
/// to write.
pub fn run(args: &GroupsArgs, out: &mut dyn Write) -> Result<Exit, GroupsError> {
    // A large world is megabytes of small pieces.
    let mut out = BufWriter::new(out);
    let mut exit = Exit::Ok;
    let written = if let Some(GroupsCommand::Diff(args)) = &args.command {
        let difference = diff::Difference::of(args)?;
        if !difference.is_none() {
            exit = Exit::FailedCell;
        }
        difference.write(&mut out)
    } else {
        let views = views(args)?;
        match args.format {
            Form::Json => json::write(args, &views, &mut out),
            Form::Table => table::write(args, &views, &mut out),
        }
    };
    match written.and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(exit),
        result => Ok(result.map(|()| exit)?),
    }
}

/// One layout and everything to be shown of it.
struct View {
    /// Name of the phase, if it is part of a preset.
    phase: Option<&'static str>,
    /// Further facts about the phase, for people.
    remarks: Vec<String>,
    layout: FrameworkLayout,
    entries: Vec<Entry>,
    calls: Option<Vec<Call>>,
}

/// One call of `new_group`.
struct Call {
    name: Cow<'static, str>,
    backend: GroupBackend,
    ranks: Vec<Rank>,
}

/// Groups of one name.
struct Entry {
    name: &'static str,
    meaning: &'static str,
    lists: Lists,
}

/// Groups, or the travelling routes of MindSpeed, which differ in shape.
enum Lists {
    Groups(Groups),
    Routes(Vec<Vec<Rank>>),
}

impl Lists {
    fn len(&self) -> usize {
        match self {
            Self::Groups(groups) => groups.len(),
            Self::Routes(routes) => routes.len(),
        }
    }

    fn get(&self, index: usize) -> Option<Vec<Rank>> {
        match self {
            Self::Groups(groups) => groups.get(index).map(|group| group.to_vec()),
            Self::Routes(routes) => routes.get(index).cloned(),
        }
    }

    fn iter(&self) -> impl Iterator<Item = Vec<Rank>> + '_ {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// Position and members of the list that holds a rank.
    fn holding(&self, rank: Rank) -> Option<(usize, Vec<Rank>)> {
        self.iter()
            .enumerate()
            .find(|(_, members)| members.contains(&rank))
    }
}

impl Serialize for Lists {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Groups(groups) => groups.serialize(serializer),
            Self::Routes(routes) => routes.serialize(serializer),
        }
    }
}

fn views(args: &GroupsArgs) -> Result<Vec<View>, GroupsError> {
    let Some(preset) = args.preset else {
        return Ok(vec![view(args, layout(args)?)?]);
    };
    let mut views = Vec::new();
    for phase in preset.phases()? {
        let mut remarks = Vec::new();
        if let (Some(experts), Some(each)) = (phase.experts, phase.experts_per_rank()) {
            remarks.push(format!("{experts} experts: {each} a rank"));
        }
        if phase.reload {
            remarks.push("all groups are destroyed and made again at every switch".to_owned());
        }
        views.push(View {
            phase: Some(phase.name),
            remarks,
            ..view(args, phase.layout)?
        });
    }
    Ok(views)
}

fn layout(args: &GroupsArgs) -> Result<FrameworkLayout, GroupsError> {
    let matrix: Option<Matrix> = args.matrix.as_ref().map(|text| text.parse()).transpose()?;
    let mut builder = match &matrix {
        Some(matrix) => match matrix.builder() {
            Some(builder) => builder,
            None if args.etp.is_some() => {
                return Err(GroupsError::MegatronOnly("--etp", matrix.to_string()));
            }
            None if args.order.is_some() => {
                return Err(GroupsError::MegatronOnly("--order", matrix.to_string()));
            }
            None => return Ok(matrix.layout()?),
        },
        None => {
            let builder = Layout::builder()
                .tp(args.tp.unwrap_or(1))
                .pp(args.pp.unwrap_or(1))
                .cp(args.cp.unwrap_or(1))
                .ep(args.ep.unwrap_or(1));
            match args.world_size {
                Some(world) => builder.world(world),
                None => builder,
            }
        }
    };
    if let Some(dp) = args.dp {
        builder = builder.dp(dp);
    }
    if let Some(etp) = args.etp {
        builder = builder.etp(etp);
    }
    let order = args.order.as_deref().unwrap_or(DEFAULT_ORDER);
    Ok(builder.order(order).build()?.into())
}

fn view(args: &GroupsArgs, layout: FrameworkLayout) -> Result<View, GroupsError> {
    let mut entries: Vec<Entry> = layout
        .named_groups()
        .into_iter()
        .map(|kind| entry(kind.name, kind.meaning, kind.groups))
        .collect();
    match &layout {
        FrameworkLayout::Megatron(layout) => mindspeed::add(args, layout, &mut entries)?,
        FrameworkLayout::Verl(_) | FrameworkLayout::Vllm(_) => mindspeed::refuse(args, &layout)?,
    }
    if let Some(rank) = args.rank {
        let world_size = layout.world_size();
        if rank >= world_size {
            return Err(GroupsError::NoSuchRank { rank, world_size });
        }
    }
    let calls = args
        .sequence
        .map(|version| calls(&layout, version))
        .transpose()?;
    Ok(View {
        phase: None,
        remarks: Vec::new(),
        layout,
        entries,
        calls,
    })
}

/// The calls of `new_group` in sequence.
fn calls(
    layout: &FrameworkLayout,
    version: Option<MegatronVersion>,
) -> Result<Vec<Call>, GroupsError> {
    match (layout, version) {
        (FrameworkLayout::Megatron(_), None) => Err(GroupsError::SequenceOfNoVersion),
        (FrameworkLayout::Megatron(layout), Some(version)) => {
            let calls = layout.creation_sequence(version, &SequenceOptions::default())?;
            let call = |call: NewGroup| Call {
                name: call.megatron_name,
                backend: call.backend,
                ranks: call.ranks,
            };
            Ok(calls.into_iter().map(call).collect())
        }
        (FrameworkLayout::Verl(_) | FrameworkLayout::Vllm(_), Some(_)) => Err(
            GroupsError::MegatronOnly("the version of --sequence", layout.to_string()),
        ),
        (FrameworkLayout::Verl(_) | FrameworkLayout::Vllm(_), None) => {
            let mut calls = Vec::new();
            for named in layout.named_groups() {
                for group in named.groups.iter() {
                    let call = |backend| Call {
                        name: Cow::Borrowed(named.name),
                        backend,
                        ranks: group.to_vec(),
                    };
                    calls.push(call(GroupBackend::Default));
                    // vLLM makes a twin of each group; torch's meshes do not.
                    let twin = layout.vllm().map(|_| call(GroupBackend::Gloo));
                    calls.extend(twin);
                }
            }
            Ok(calls)
        }
    }
}

fn entry(name: &'static str, meaning: &'static str, groups: Groups) -> Entry {
    Entry {
        name,
        meaning,
        lists: Lists::Groups(groups),
    }
}

fn megatron_version(text: &str) -> Result<MegatronVersion, String> {
    MegatronVersion::ALL
        .into_iter()
        .find(|version| version.name() == text)
        .ok_or_else(|| "known versions: 0.12, 0.15".to_owned())
}

#[cfg(test)]
mod tests;
