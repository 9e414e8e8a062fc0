//! Which questions are asked of which group, in which order.
//!
//! Every rank and the launcher make this list from the same job, so a result needs no more than its
//! number to be understood, and a number without a result is a missing one.
//!
//! CASES-1: the list depends on nothing but the groups and the selection.
//! CASES-2: a rank that works through the cases it is a member of, in order, waits for nobody who
//! waits for it: kinds come one after the other, and within a kind a rank is in one group at most.

use muster_comm::layout::{Groups, Members};
use muster_comm::types::{Collective, DType, Pattern};
use serde::{Deserialize, Serialize};

/// The groups of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindGroups {
    /// Name of the kind: `tp`, `dp-cp`, …
    pub kind: String,
    /// World ranks of each group.
    pub groups: Vec<Vec<u32>>,
}

impl KindGroups {
    /// The groups of a kind by its name.
    #[must_use]
    pub fn new(kind: &str, groups: &Groups) -> Self {
        let numbers = |members: Members<'_>| members.iter().map(|rank| rank.0).collect();
        Self {
            kind: kind.to_owned(),
            groups: groups.iter().map(numbers).collect(),
        }
    }
}

/// The kind that stands for all ranks of the matrix.
pub const WORLD_KIND: &str = "world";

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Question {
    /// One collective with one element type and count, against the reference; in and out of place
    /// where it can be both, and with several reductions where it reduces.
    Collective {
        /// The call.
        collective: Collective,
        /// Element type.
        dtype: DType,
        /// Elements, as the call counts them.
        count: usize,
    },
    /// Groups of several kinds at work at the same time, from a thread each.
    InFlight,
    /// All groups destroyed and made again, without growth.
    Lifecycle,
    /// Every member names the same members in the same order, each for itself.
    Membership,
    /// One object collective with objects of one shape.
    Object {
        /// The call.
        collective: Collective,
        /// What the objects are like.
        shape: ObjectShape,
    },
}

/// What the objects of a check are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ObjectShape {
    /// Nothing in them.
    Empty,
    /// Hundreds of KiB on some ranks, little on others.
    LargeUneven,
    /// A small record.
    Small,
}

impl ObjectShape {
    /// Every shape.
    pub const ALL: [Self; 3] = [Self::Empty, Self::Small, Self::LargeUneven];

    /// About how many elements an object of this shape has, for the report.
    #[must_use]
    pub const fn count(self, index: usize) -> usize {
        match self {
            Self::Empty => 0,
            Self::Small => 4,
            // Every third member has a large one, of a size of its own.
            Self::LargeUneven => {
                if index.is_multiple_of(3) {
                    40_000 + 1000 * (index % 7)
                } else {
                    index % 5
                }
            }
        }
    }
}

/// A question to one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Index of the kind.
    pub kind: usize,
    /// Index of the group within the kind.
    pub group: usize,
    /// The question.
    pub question: Question,
}

/// What the user chose to look at; empty lists stand for the default choice.
#[derive(Clone, Copy, Debug)]
pub struct Selection<'a> {
    /// Element types.
    pub dtypes: &'a [DType],
    /// Numbers of elements.
    pub counts: &'a [usize],
    /// Calls; where some are named, nothing but these and the membership of groups is checked.
    pub calls: &'a [Collective],
}

/// All groups of a matrix and all questions to them.
#[derive(Clone, Debug)]
pub struct Catalogue {
    /// The kinds in the order in which they are worked through; the last one is [`WORLD_KIND`].
    pub kinds: Vec<KindGroups>,
    /// The cases, by number.
    pub cases: Vec<Case>,
}

/// Calls that move or reduce numbers, in the order in which they are checked: the barrier first. What is sent is received,
/// so `recv` is checked with `send`.
fn numeric() -> impl Iterator<Item = Collective> {
    let all = || Collective::ALL.into_iter();
    let rest =
        |call: &Collective| !call.is_empty() && !call.is_of_objects() && *call != Collective::Recv;
    all()
        .filter(|call| call.is_empty())
        .chain(all().filter(rest))
}

/// Calls that carry objects.
fn objects() -> impl Iterator<Item = Collective> {
    Collective::ALL
        .into_iter()
        .filter(|call| call.is_of_objects())
}

/// Elements of the sweep over all element types.
const COUNT_TYPICAL: usize = 1000;
/// Bytes of a buffer that is larger than any piece the library moves at once.
const BYTES_LARGE: usize = 5 << 18;
/// Element type of the sweep over counts.
const DTYPE_TYPICAL: DType = DType::F32;

impl Catalogue {
    /// The catalogue of a matrix.
    #[must_use]
    pub fn new(mut kinds: Vec<KindGroups>, world_size: u32, selection: Selection<'_>) -> Self {
        kinds.push(KindGroups {
            kind: WORLD_KIND.to_owned(),
            groups: vec![(0..world_size).collect()],
        });
        let mut cases = Vec::new();
        for (kind, groups) in kinds.iter().enumerate() {
            let known = kinds[..kind]
                .iter()
                .any(|earlier| earlier.groups == groups.groups);
            for (group, members) in groups.groups.iter().enumerate() {
                let depth = match members.len() {
                    0 | 1 => Depth::Alone,
                    _ if known => Depth::Again,
                    _ => Depth::Full,
                };
                let with_objects = matches!(groups.kind.as_str(), "dp" | "dp-cp");
                let mut questions = questions(members.len(), depth, with_objects, selection);
                if groups.kind == WORLD_KIND && !selection.calls.is_empty() {
                    questions = vec![Question::Membership];
                } else if groups.kind == WORLD_KIND {
                    questions = vec![
                        Question::Membership,
                        Question::InFlight,
                        Question::Lifecycle,
                    ];
                }
                cases.extend(questions.into_iter().map(|question| Case {
                    kind,
                    group,
                    question,
                }));
            }
        }
        Self { kinds, cases }
    }

    /// About how many bytes a rank needs at once for the buffers of its largest case: the inputs of
    /// all members, what it should receive, what it does, and copies of the like.
    #[must_use]
    pub fn bytes_a_rank(&self) -> u64 {
        let bytes = |case: &Case| {
            let (dtype, count) = (case.question.dtype()?, case.question.count()?);
            let buffers = self.members(case).len() + 6;
            (count as u64).checked_mul((dtype.size() * buffers) as u64)
        };
        self.cases.iter().filter_map(bytes).max().unwrap_or(0)
    }

    /// The members of a case's group.
    #[must_use]
    pub fn members(&self, case: &Case) -> &[u32] {
        &self.kinds[case.kind].groups[case.group]
    }

    /// The numbers of the cases that a rank takes part in, ascending.
    pub fn of_rank(&self, rank: u32) -> impl Iterator<Item = usize> {
        self.cases
            .iter()
            .enumerate()
            .filter(move |(_, case)| self.members(case).contains(&rank))
            .map(|(number, _)| number)
    }
}

/// How much is asked of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    /// The same ranks as a group of an earlier kind: the group is another one, the paths are not.
    Again,
    /// A single member: nothing moves.
    Alone,
    /// Everything.
    Full,
}

fn questions(
    members: usize,
    depth: Depth,
    with_objects: bool,
    selection: Selection<'_>,
) -> Vec<Question> {
    let mut questions = vec![Question::Membership];
    let is_asked = |call: &Collective| selection.calls.is_empty() || selection.calls.contains(call);
    for collective in numeric().filter(is_asked) {
        if collective.is_empty() {
            let (dtype, count) = (DTYPE_TYPICAL, 0);
            questions.push(Question::Collective {
                collective,
                dtype,
                count,
            });
            continue;
        }
        for (dtype, count) in shapes(collective, members, depth, selection) {
            questions.push(Question::Collective {
                collective,
                dtype,
                count,
            });
        }
    }
    if selection.calls.is_empty() && (with_objects || depth == Depth::Full) {
        for collective in objects() {
            for shape in ObjectShape::ALL {
                questions.push(Question::Object { collective, shape });
            }
        }
    }
    questions
}

/// The element types and counts that a collective is checked with.
fn shapes(
    collective: Collective,
    members: usize,
    depth: Depth,
    selection: Selection<'_>,
) -> Vec<(DType, usize)> {
    if !selection.dtypes.is_empty() || !selection.counts.is_empty() {
        let dtypes = or_default(selection.dtypes, &[DTYPE_TYPICAL]);
        let counts = or_default(selection.counts, &[COUNT_TYPICAL]);
        return dtypes
            .iter()
            .flat_map(|dtype| counts.iter().map(|count| (*dtype, *count)))
            .collect();
    }
    match depth {
        Depth::Alone => vec![(DTYPE_TYPICAL, COUNT_TYPICAL)],
        Depth::Again => vec![
            (DTYPE_TYPICAL, COUNT_TYPICAL + 1),
            (DType::Bf16, COUNT_TYPICAL),
        ],
        Depth::Full => {
            let large = BYTES_LARGE / DTYPE_TYPICAL.size();
            // What is counted a block is large when all blocks are.
            let is_of_blocks = collective.pattern().is_some_and(Pattern::is_of_blocks);
            let large = if is_of_blocks {
                large / members + 1
            } else {
                large + 1
            };
            let mut counts = vec![0, 1, members - 1, members + 1];
            if is_checked_large(collective) {
                counts.push(large);
            }
            counts.dedup();
            let sweep = counts.into_iter().map(|count| (DTYPE_TYPICAL, count));
            sweep
                .chain(DType::ALL.map(|dtype| (dtype, COUNT_TYPICAL)))
                .collect()
        }
    }
}

fn or_default<'a, T>(chosen: &'a [T], default: &'a [T]) -> &'a [T] {
    if chosen.is_empty() { default } else { chosen }
}

/// Whether the call is checked with a large buffer too: one of each way that data takes, because
/// sixteen ranks on two processors compute every expected buffer sixteen times.
fn is_checked_large(collective: Collective) -> bool {
    matches!(
        collective,
        Collective::AllGather
            | Collective::AllReduce
            | Collective::AllToAllV
            | Collective::Broadcast
            | Collective::ReduceScatter
            | Collective::Scan
            | Collective::Send
    )
}

impl Question {
    /// The word for the check in reports.
    #[must_use]
    pub const fn check(&self) -> &'static str {
        match self {
            Self::Collective { .. } => "collective",
            Self::InFlight => "in_flight",
            Self::Lifecycle => "lifecycle",
            Self::Membership => "membership",
            Self::Object { .. } => "object",
        }
    }

    /// The call that is checked, if the check is about one.
    #[must_use]
    pub const fn collective(&self) -> Option<Collective> {
        match self {
            Self::Collective { collective, .. } | Self::Object { collective, .. } => {
                Some(*collective)
            }
            Self::InFlight | Self::Lifecycle | Self::Membership => None,
        }
    }

    /// Whether no member can leave a call of the check before all have come to it.
    #[must_use]
    pub fn ends_together(&self) -> bool {
        matches!(self, Self::Collective { collective, count, .. } if collective.needs_everybody_with(*count as u64))
    }

    /// Element type, where there is one.
    #[must_use]
    pub const fn dtype(&self) -> Option<DType> {
        match self {
            Self::Collective {
                collective: Collective::Barrier,
                ..
            }
            | Self::InFlight
            | Self::Lifecycle
            | Self::Membership
            | Self::Object { .. } => None,
            Self::Collective { dtype, .. } => Some(*dtype),
        }
    }

    /// Number of elements, where there are any.
    #[must_use]
    pub const fn count(&self) -> Option<usize> {
        match self {
            Self::Collective {
                collective: Collective::Barrier,
                ..
            }
            | Self::InFlight
            | Self::Lifecycle
            | Self::Membership => None,
            Self::Collective { count, .. } => Some(*count),
            Self::Object { shape, .. } => Some(shape.count(0)),
        }
    }
}

#[cfg(test)]
mod tests;
