//! What is measured in one world: axes, and the cells that they span.
//!
//! PLAN-1: every rank and the launcher make the same list of cells from the same plan and layout,
//! so a number says which cell is meant.

use muster_comm::algo::select::parse_bytes;
use muster_comm::algo::{Links, algorithms_for};
use muster_comm::layout::{GroupKind, Layout};
use muster_comm::types::{Collective, DType, ReduceOp};
use serde::{Deserialize, Serialize};

use crate::bench::shape::{Shape, Split};
use crate::check::cases::{Case, Catalogue, KindGroups, ObjectShape, Question, WORLD_KIND};

/// Most cells of one world: a sweep of more is a mistake, and would run for hours.
pub const CELLS_MAX: usize = 20_000;

/// What is done again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// Nothing, in a world that comes up and ends.
    BringUp,
    /// A call.
    Collective(Collective),
    /// A group is made, its members meet for the first time, and it is destroyed.
    GroupCreate,
}

impl What {
    /// The name that options and reports use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BringUp => "bring_up",
            Self::Collective(collective) => collective.name(),
            Self::GroupCreate => "group_create",
        }
    }

    /// Whether it moves or reduces numbers, so that it has sizes and element types.
    #[must_use]
    pub const fn has_numbers(self) -> bool {
        match self {
            Self::Collective(collective) => {
                !matches!(collective, Collective::Barrier) && !carries_objects(collective)
            }
            Self::BringUp | Self::GroupCreate => false,
        }
    }

    /// Whether it has sizes.
    #[must_use]
    pub const fn has_sizes(self) -> bool {
        match self {
            Self::Collective(collective) => !matches!(collective, Collective::Barrier),
            Self::BringUp | Self::GroupCreate => false,
        }
    }
}

/// Whether a call carries objects rather than numbers.
#[must_use]
pub const fn carries_objects(collective: Collective) -> bool {
    matches!(
        collective,
        Collective::AllGatherObject
            | Collective::BroadcastObject
            | Collective::GatherObject
            | Collective::ScatterObject
    )
}

/// Whether a call can be made out of place (first) and in place (second).
#[must_use]
pub const fn places(collective: Collective) -> (bool, bool) {
    match collective {
        Collective::AllGather
        | Collective::AllReduce
        | Collective::AllToAll
        | Collective::Gather
        | Collective::Reduce
        | Collective::ReduceScatter
        | Collective::Scatter => (true, true),
        // The one buffer is input on the root and output elsewhere.
        Collective::Broadcast => (false, true),
        Collective::AllGatherObject
        | Collective::AllGatherV
        | Collective::AllToAllV
        | Collective::Barrier
        | Collective::BroadcastObject
        | Collective::GatherObject
        | Collective::GatherV
        | Collective::Recv
        | Collective::ReduceScatterV
        | Collective::ScatterObject
        | Collective::ScatterV
        | Collective::Send
        | Collective::SendRecvBatch => (true, false),
    }
}

/// Out of place, in place, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Places {
    /// Both, where the call has both
    Both,
    /// In place, where the call has that
    In,
    /// Out of place, where the call has that
    Out,
}

/// Where buffers lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Memory {
    /// Ordinary memory of the process.
    Private,
    /// The rank's shared region, which peers of the host reach without a copy.
    Region,
}

impl Memory {
    /// The word that options and reports use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::Region => "region",
        }
    }
}

/// When a cell has been measured often enough.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stop {
    /// Timed calls of each round, if a number was asked for; then nothing else counts.
    pub calls: Option<u32>,
    /// Longest time for a cell, all rounds together, in milliseconds.
    pub time_ms: u64,
    /// Half the width of the median's 95 % interval, as a part of the median, at which it is known
    /// well enough; 0 for never.
    pub confidence: f64,
}

/// The axes of one world's cells, and how each is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// What is measured.
    pub what: Vec<What>,
    /// Sizes in bytes, as nccl-tests counts them.
    pub sizes: Vec<u64>,
    /// Element types.
    pub dtypes: Vec<DType>,
    /// Reductions.
    pub ops: Vec<ReduceOp>,
    /// Root of rooted calls, as an index into the group.
    pub root: usize,
    /// Algorithms by name; `auto` leaves the choice to the tables, `all` stands for every one that
    /// the call has.
    pub algos: Vec<String>,
    /// Out of place, in place or both.
    pub places: Places,
    /// Where buffers lie.
    pub memories: Vec<Memory>,
    /// How uneven blocks differ.
    pub split: Split,
    /// Kinds of groups; all groups of a kind work at once.
    pub groups: Vec<String>,
    /// Calls before the timed ones, in each round.
    pub warm_ups: u32,
    /// When a cell has been measured often enough.
    pub stop: Stop,
    /// How often the whole list is gone through.
    pub rounds: u32,
    /// The one round that this world is for; all of them where it stays together.
    pub round: Option<u32>,
    /// Calls whose result is checked, in each cell; 0 for none.
    pub checks: u32,
    /// Whether ranks may use algorithms that need shared memory.
    pub direct: bool,
}

/// One thing that is measured: a line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// What is done.
    pub what: What,
    /// Buffers, where there are any.
    pub shape: Shape,
    /// Element type.
    pub dtype: DType,
    /// Reduction, where the call reduces.
    pub op: ReduceOp,
    /// Name of the algorithm; `None` leaves the choice to the tables.
    pub algo: Option<&'static str>,
    /// Whether send and receive buffer are one.
    pub in_place: bool,
    /// Where buffers lie.
    pub memory: Memory,
    /// Index of the kind of group in [`Plan::kinds`].
    pub kind: usize,
}

impl Cell {
    /// The call, where it is one.
    #[must_use]
    pub const fn collective(&self) -> Option<Collective> {
        match self.what {
            What::Collective(collective) => Some(collective),
            What::BringUp | What::GroupCreate => None,
        }
    }
}

impl Plan {
    /// The groups of each kind that is measured.
    #[must_use]
    pub fn kinds(&self, layout: &Layout) -> Vec<KindGroups> {
        let of = |name: &String| {
            let groups = match name.parse::<GroupKind>() {
                Ok(kind) => layout
                    .groups(kind)
                    .iter()
                    .map(|members| members.iter().map(|rank| rank.0).collect())
                    .collect(),
                // The only name that is no kind of the layout.
                Err(_) => vec![(0..layout.dims().world).collect()],
            };
            KindGroups {
                kind: name.clone(),
                groups,
            }
        };
        self.groups.iter().map(of).collect()
    }

    /// All cells, in the order in which they are measured. Sizes that round to the same buffers are
    /// one cell.
    #[must_use]
    pub fn cells(&self, layout: &Layout) -> Vec<Cell> {
        let mut cells: Vec<Cell> = Vec::new();
        for (kind, groups) in self.kinds(layout).iter().enumerate() {
            let n = groups.groups.iter().map(Vec::len).max().unwrap_or(1);
            for what in &self.what {
                match *what {
                    What::BringUp => {}
                    What::GroupCreate => {
                        cells.push(self.plain(*what, Collective::Barrier, n, kind));
                    }
                    What::Collective(collective) => {
                        let before = cells.len();
                        self.cells_of(collective, n, kind, &mut cells);
                        let mut seen = before;
                        while seen < cells.len() {
                            if cells[before..seen].contains(&cells[seen]) {
                                cells.remove(seen);
                            } else {
                                seen += 1;
                            }
                        }
                    }
                }
            }
        }
        cells
    }

    fn plain(&self, what: What, collective: Collective, n: usize, kind: usize) -> Cell {
        Cell {
            what,
            shape: Shape::of(collective, n, 1, 0, self.split, 0),
            dtype: DType::U8,
            op: ReduceOp::Sum,
            algo: None,
            in_place: false,
            memory: Memory::Private,
            kind,
        }
    }

    fn cells_of(&self, collective: Collective, n: usize, kind: usize, cells: &mut Vec<Cell>) {
        let what = What::Collective(collective);
        let algos = self.algos_of(collective, n);
        if !what.has_numbers() {
            for bytes in if what.has_sizes() {
                &self.sizes[..]
            } else {
                &[0]
            } {
                for algo in &algos {
                    let shape = Shape::of(collective, n, 1, *bytes, self.split, self.root);
                    cells.push(Cell {
                        shape,
                        algo: *algo,
                        ..self.plain(what, collective, n, kind)
                    });
                }
            }
            return;
        }
        let (out, inside) = places(collective);
        let places: Vec<bool> = match self.places {
            Places::Both => [(out, false), (inside, true)]
                .into_iter()
                .filter_map(|(has, place)| has.then_some(place))
                .collect(),
            Places::In => vec![inside],
            Places::Out => vec![!out],
        };
        let ops = if collective.reduces() {
            &self.ops[..]
        } else {
            &[ReduceOp::Sum]
        };
        for dtype in &self.dtypes {
            for op in ops {
                for memory in &self.memories {
                    for in_place in &places {
                        for bytes in &self.sizes {
                            for algo in &algos {
                                cells.push(Cell {
                                    what,
                                    shape: Shape::of(
                                        collective,
                                        n,
                                        dtype.size(),
                                        *bytes,
                                        self.split,
                                        self.root,
                                    ),
                                    dtype: *dtype,
                                    op: *op,
                                    algo: *algo,
                                    in_place: *in_place,
                                    memory: *memory,
                                    kind,
                                });
                            }
                        }
                    }
                }
            }
        }
    }

    /// The algorithms of one call, as far as this world can carry them out.
    fn algos_of(&self, collective: Collective, n: usize) -> Vec<Option<&'static str>> {
        let mut chosen: Vec<Option<&'static str>> = Vec::new();
        for name in &self.algos {
            if name == "auto" {
                chosen.push(None);
                continue;
            }
            let fitting = algorithms_for(collective)
                .filter(|algorithm| name == "all" || algorithm.name == name)
                .filter(|algorithm| self.direct || algorithm.links == Links::Message)
                .filter(|_| n > 1);
            for algorithm in fitting {
                if !chosen.contains(&Some(algorithm.name)) {
                    chosen.push(Some(algorithm.name));
                }
            }
        }
        chosen
    }

    /// The questions of the harness's common machinery that stand for the cells: one for each cell
    /// and group, in the order of the cells, so that progress and verdicts can name them.
    #[must_use]
    pub fn catalogue(&self, layout: &Layout) -> Catalogue {
        let kinds = self.kinds(layout);
        let mut cases = Vec::new();
        for cell in self.cells(layout) {
            let question = match cell.what {
                What::Collective(collective) if carries_objects(collective) => Question::Object {
                    collective,
                    shape: ObjectShape::Small,
                },
                What::Collective(collective) => Question::Collective {
                    collective,
                    dtype: cell.dtype,
                    count: cell.shape.count,
                },
                What::BringUp | What::GroupCreate => Question::Lifecycle,
            };
            cases.extend((0..kinds[cell.kind].groups.len()).map(|group| Case {
                kind: cell.kind,
                group,
                question,
            }));
        }
        let mut kinds = kinds;
        kinds.push(KindGroups {
            kind: WORLD_KIND.to_owned(),
            groups: vec![(0..layout.dims().world).collect()],
        });
        Catalogue { kinds, cases }
    }

    /// The rounds of this world.
    #[must_use]
    pub fn rounds_here(&self) -> std::ops::Range<u32> {
        self.round.map_or(0..self.rounds, |round| round..round + 1)
    }

    /// About how many bytes a rank needs at once.
    #[must_use]
    pub fn bytes_a_rank(&self, layout: &Layout) -> u64 {
        let bytes = |cell: &Cell| cell.shape.bytes().saturating_mul(2);
        self.cells(layout).iter().map(bytes).max().unwrap_or(0)
    }
}

/// A size: a whole number with or without one of B, K, M, G, KiB, MiB, GiB behind it; all of them
/// are powers of 1024.
///
/// # Errors
/// In words: what is allowed.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let spelt = match text.chars().last() {
        Some('k' | 'K') => format!("{}KiB", &text[..text.len() - 1]),
        Some('m' | 'M') => format!("{}MiB", &text[..text.len() - 1]),
        Some('g' | 'G') => format!("{}GiB", &text[..text.len() - 1]),
        _ => text.to_owned(),
    };
    parse_bytes(&spelt).ok_or_else(|| {
        "a size is a whole number of bytes with or without K, M, G, KiB, MiB or GiB (powers of 1024)"
            .to_owned()
    })
}

/// The sizes from `begin` to `end`, each by `factor` larger than the one before, or by `step` where
/// there is one. `end` is reached only if the steps lead there.
#[must_use]
pub fn sweep(begin: u64, end: u64, factor: u64, step: Option<u64>) -> Vec<u64> {
    let next = |size: u64| match step {
        Some(step) => size.checked_add(step),
        // From zero no factor leads away.
        None => size.checked_mul(factor).filter(|next| *next > size),
    };
    std::iter::successors(Some(begin), |size| next(*size))
        .take_while(|size| *size <= end)
        .take(CELLS_MAX)
        .collect()
}

#[cfg(test)]
mod tests {
    use muster_comm::layout::Matrix;

    use super::*;

    fn plan(what: &[What]) -> Plan {
        Plan {
            what: what.to_vec(),
            sizes: vec![8, 1024],
            dtypes: vec![DType::F32],
            ops: vec![ReduceOp::Sum],
            root: 0,
            algos: vec!["auto".to_owned()],
            places: Places::Out,
            memories: vec![Memory::Private],
            split: Split::Uneven,
            groups: vec![WORLD_KIND.to_owned()],
            warm_ups: 1,
            stop: Stop {
                calls: None,
                time_ms: 1,
                confidence: 0.0,
            },
            rounds: 1,
            round: None,
            checks: 1,
            direct: true,
        }
    }

    fn layout(matrix: &str) -> Layout {
        matrix
            .parse::<Matrix>()
            .expect("a matrix")
            .layout()
            .expect("legal")
    }

    #[test]
    fn sizes_have_the_suffixes_of_nccl_tests() {
        for (text, bytes) in [
            ("8", 8),
            ("8B", 8),
            ("64K", 65536),
            ("64k", 65536),
            ("1MiB", 1 << 20),
            ("2G", 2 << 30),
            ("0", 0),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for bad in [
            "",
            "K",
            "-1",
            "1.5M",
            "8 apples",
            "99999999999999999999",
            "1é",
            "20000000000G",
        ] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sweeps_go_by_factor_or_by_step_and_end() {
        assert_eq!(sweep(8, 64, 2, None), [8, 16, 32, 64]);
        assert_eq!(sweep(8, 100, 4, None), [8, 32]);
        assert_eq!(sweep(8, 30, 2, Some(10)), [8, 18, 28]);
        assert_eq!(sweep(0, 8, 2, None), [0]);
        assert_eq!(sweep(8, 64, 1, None), [8]);
        assert_eq!(sweep(9, 8, 2, None), [0_u64; 0]);
    }

    #[test]
    fn sizes_that_round_to_the_same_buffers_are_one_cell() {
        let mut plan = plan(&[What::Collective(Collective::AllGather)]);
        plan.sizes = vec![8, 16, 32, 64];
        let cells = plan.cells(&layout("tp8"));
        let bytes: Vec<u64> = cells.iter().map(|cell| cell.shape.bytes()).collect();
        assert_eq!(bytes, [32, 64]);
    }

    #[test]
    fn all_stands_for_every_algorithm_that_the_links_can_carry() {
        let mut plan = plan(&[What::Collective(Collective::AllReduce)]);
        plan.sizes = vec![8];
        plan.algos = vec!["auto".to_owned(), "all".to_owned()];
        let with_memory = plan.cells(&layout("tp2")).len();
        assert_eq!(
            with_memory,
            1 + algorithms_for(Collective::AllReduce).count()
        );
        plan.direct = false;
        let without = plan.cells(&layout("tp2"));
        assert!(without.len() > 2 && without.len() < with_memory);
        assert!(
            without
                .iter()
                .all(|cell| !cell.algo.is_some_and(|name| name.starts_with("direct")))
        );
    }

    #[test]
    fn groups_of_a_kind_are_measured_at_once_and_named_one_by_one() {
        let mut plan = plan(&[
            What::Collective(Collective::Barrier),
            What::Collective(Collective::Broadcast),
            What::Collective(Collective::AllGatherObject),
            What::GroupCreate,
        ]);
        plan.groups = vec!["ep".to_owned()];
        let layout = layout("tp2ep4");
        let cells = plan.cells(&layout);
        // One barrier, no broadcast out of place but two sizes all the same, two objects, one group.
        let names: Vec<&str> = cells.iter().map(|cell| cell.what.name()).collect();
        assert_eq!(
            names,
            [
                "barrier",
                "broadcast",
                "broadcast",
                "all_gather_object",
                "all_gather_object",
                "group_create"
            ]
        );
        assert!(cells[1].in_place, "a broadcast has one buffer");
        assert_eq!(cells[0].shape.n, 4);
        assert_eq!(plan.catalogue(&layout).cases.len(), 2 * cells.len());
    }
}
