//! What is measured in one world: axes, and the cells that they span.
//!
//! SWEEP-1: every rank and the launcher make the same list of cells from the same plan and layout,
//! so a number says which cell is meant.

mod sizes;
mod what;

use std::collections::HashSet;

use muster_comm::algo::{ENTRY, Links, choices_for, find};
use muster_comm::layout::FrameworkLayout;
use muster_comm::types::{Collective, DType, ReduceOp};
use serde::{Deserialize, Serialize};

pub use self::sizes::{parse_size, sweep};
pub use self::what::{What, places};
use crate::bench::map;
use crate::bench::shape::{Shape, Split};
use crate::check::cases::{Case, Catalogue, KindGroups, ObjectShape, Question, WORLD_KIND};

/// Most cells of one world: a sweep of more is a mistake, and would run for hours.
pub const CELLS_MAX: usize = 20_000;

/// Times that a world is brought up, where no number is given.
const BRING_UPS_DEFAULT: u32 = 20;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Memory {
    /// Memory of the rank's device.
    Device,
    /// Ordinary memory of the process.
    Private,
    /// The rank's shared region, which peers on the host access without a copy.
    Region,
}

impl Memory {
    /// The word that options and reports use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
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
pub struct Sweep {
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
    /// Bytes of a segment for algorithms that go through staging, 0 for their own choice.
    #[serde(default)]
    pub segments: Vec<u32>,
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
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
    /// Bytes of a segment, 0 for the algorithm's own choice.
    pub segment: u32,
    /// Whether send and receive buffer are one.
    pub in_place: bool,
    /// Where buffers lie.
    pub memory: Memory,
    /// Index of the kind of group in [`Sweep::kinds`].
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

impl Sweep {
    /// The groups of each kind that is measured.
    #[must_use]
    pub fn kinds(&self, layout: &FrameworkLayout) -> Vec<KindGroups> {
        let of = |name: &String| {
            let kind = |groups: Vec<Vec<u32>>| KindGroups {
                kind: name.clone(),
                groups,
            };
            match (map::pair(name), layout.groups(name)) {
                (Some(pair), _) => kind(vec![pair.to_vec()]),
                (None, Some(groups)) => KindGroups::new(name, &groups),
                // The only other name that is no kind of Megatron's layouts.
                (None, None) => kind(vec![(0..layout.world_size()).collect()]),
            }
        };
        self.groups.iter().map(of).collect()
    }

    /// All cells, in the order in which they are measured. Sizes that round to the same buffers are
    /// one cell.
    #[must_use]
    pub fn cells(&self, layout: &FrameworkLayout) -> Vec<Cell> {
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
                        let (mut all, mut seen) = (Vec::new(), HashSet::new());
                        self.cells_of(collective, n, kind, &mut all);
                        cells.extend(all.into_iter().filter(|cell| seen.insert(cell.clone())));
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
            segment: 0,
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
        // Of the reductions that are asked for those that the call takes; the options say that there is one.
        let is_taken = |op: &ReduceOp| collective.ops().contains(op);
        let ops: Vec<ReduceOp> = if collective.reduces() {
            self.ops.iter().copied().filter(is_taken).collect()
        } else {
            vec![ReduceOp::Sum]
        };
        for dtype in &self.dtypes {
            for op in &ops {
                for memory in &self.memories {
                    for in_place in &places {
                        for bytes in &self.sizes {
                            let (element, root) = (dtype.size(), self.root);
                            let shape = Shape::of(collective, n, element, *bytes, self.split, root);
                            for algo in algos.iter().filter(|algo| self.wants(**algo, &shape)) {
                                let segments = self.segments_of(collective, *algo, &shape);
                                cells.extend(segments.map(|segment| Cell {
                                    what,
                                    shape,
                                    dtype: *dtype,
                                    op: *op,
                                    algo: *algo,
                                    segment,
                                    in_place: *in_place,
                                    memory: *memory,
                                    kind,
                                }));
                            }
                        }
                    }
                }
            }
        }
    }

    /// Whether an algorithm is to be measured with a shape: of all there are, the entry only with what it
    /// carries. Asked for by name, it says itself what it does not.
    fn wants(&self, algo: Option<&str>, shape: &Shape) -> bool {
        algo != Some(ENTRY.name)
            || self.algos.iter().any(|name| name == ENTRY.name)
            || shape.fits_entry()
    }

    /// The segments with which an algorithm is measured: those that cut the shape at all.
    fn segments_of(
        &self,
        collective: Collective,
        algo: Option<&str>,
        shape: &Shape,
    ) -> impl Iterator<Item = u32> {
        let found = algo.and_then(|name| find(collective, name).ok());
        let is_staged = found.is_some_and(|found| found.links == Links::Direct);
        let bytes = shape.bytes();
        let asked = self.segments.iter().copied();
        let cut = asked
            .filter(move |segment| *segment == 0 || (is_staged && u64::from(*segment) < bytes));
        let cut: Vec<u32> = cut.collect();
        if cut.is_empty() { vec![0] } else { cut }.into_iter()
    }

    /// The algorithms of one call, as far as this world can carry them out.
    fn algos_of(&self, collective: Collective, n: usize) -> Vec<Option<&'static str>> {
        let mut chosen: Vec<Option<&'static str>> = Vec::new();
        for name in &self.algos {
            if name == "auto" {
                chosen.push(None);
                continue;
            }
            let fitting = choices_for(collective)
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
    pub fn catalogue(&self, layout: &FrameworkLayout) -> Catalogue {
        let kinds = self.kinds(layout);
        let mut cases = Vec::new();
        for cell in self.cells(layout) {
            let question = match cell.what {
                What::Collective(collective) if collective.is_of_objects() => Question::Object {
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

    /// How often a world is brought up, warm-ups included.
    #[must_use]
    pub fn bring_ups(&self) -> u32 {
        if !self.what.contains(&What::BringUp) {
            return 0;
        }
        self.stop.calls.unwrap_or(BRING_UPS_DEFAULT) + self.warm_ups.min(2)
    }

    /// The rounds of this world.
    #[must_use]
    pub fn rounds_here(&self) -> std::ops::Range<u32> {
        self.round.map_or(0..self.rounds, |round| round..round + 1)
    }

    /// About how many bytes a rank needs at once.
    #[must_use]
    pub fn bytes_a_rank(&self, layout: &FrameworkLayout) -> u64 {
        let bytes = |cell: &Cell| cell.shape.bytes().saturating_mul(2);
        self.cells(layout).iter().map(bytes).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use muster_comm::layout::Matrix;

    use super::*;

    fn plan(what: &[What]) -> Sweep {
        Sweep {
            what: what.to_vec(),
            sizes: vec![8, 1024],
            dtypes: vec![DType::F32],
            ops: vec![ReduceOp::Sum],
            root: 0,
            algos: vec!["auto".to_owned()],
            segments: Vec::new(),
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

    fn layout(matrix: &str) -> FrameworkLayout {
        matrix
            .parse::<Matrix>()
            .expect("a matrix")
            .layout()
            .expect("legal")
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
        assert_eq!(with_memory, 1 + choices_for(Collective::AllReduce).count());
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
