//! One case: its inputs, what the reference expects of it, and whether it came.

use std::fmt;
use std::sync::{Arc, Mutex};

use half::{bf16, f16};
use muster_comm::buffer::Element;
use muster_comm::collective::{Communicator, reference};
use muster_comm::types::{Collective, DType, Rank, ReduceOp};
use muster_comm::world::World;

use crate::perform::perform;
use crate::support::{Random, Setup, ranks};

/// The lengths of the buffers of a case, in elements.
#[derive(Clone, Debug)]
pub(crate) enum Lens {
    /// What the collective calls count, the same everywhere.
    Same(usize),
    /// One block a rank.
    Blocks(Vec<usize>),
    /// What each rank sends to each.
    Matrix(Vec<Vec<usize>>),
}

/// Where the numbers come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inputs {
    /// Such that no order of reduction loses a bit.
    Exact,
    /// Any bit patterns: infinities, NaNs and subnormal numbers among them.
    Wild,
}

/// Where the buffers lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// In memory of the rank's own.
    Private,
    /// In the rank's region.
    Region,
    /// In memory that is older than the world.
    Brought,
    /// Every buffer of every rank somewhere else, by the seed of the case.
    Mixed,
}

impl Memory {
    pub(crate) const ALL: [Self; 4] = [Self::Private, Self::Region, Self::Brought, Self::Mixed];

    /// Where the buffer of one side of a rank lies.
    pub(crate) fn of_buffer(self, seed: u64, rank: usize, side: u64) -> Self {
        if self == Self::Mixed {
            Random::new(seed ^ side << 16 ^ rank as u64).pick(&Self::ALL[..3])
        } else {
            self
        }
    }
}

/// One call of all ranks of a group.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) collective: Collective,
    pub(crate) dtype: DType,
    /// Looked at where the collective reduces.
    pub(crate) op: ReduceOp,
    /// Looked at where the collective has one.
    pub(crate) root: usize,
    pub(crate) lens: Lens,
    pub(crate) in_place: bool,
    pub(crate) inputs: Inputs,
    pub(crate) memory: Memory,
    pub(crate) seed: u64,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.in_place { " in place" } else { "" };
        write!(f, "{}{place} {} {}", self.collective, self.dtype, self.op)?;
        write!(f, " root {} {:?}", self.root, self.lens)?;
        write!(f, " {:?} {:?}", self.inputs, self.memory)?;
        write!(f, " seed {:#x}", self.seed)
    }
}

impl Case {
    /// An exact, out-of-place case; the fields that matter to a test are set by it.
    pub(crate) fn new(collective: Collective, dtype: DType, lens: Lens, seed: u64) -> Self {
        Self {
            collective,
            dtype,
            op: ReduceOp::Sum,
            root: 0,
            lens,
            in_place: false,
            inputs: Inputs::Exact,
            memory: Memory::Private,
            seed,
        }
    }

    /// Elements that `rank` gives.
    fn give(&self, n: usize, rank: usize) -> usize {
        use Collective as C;
        match (self.collective, &self.lens) {
            (
                C::AllReduce | C::Reduce | C::Broadcast | C::Scan | C::ExclusiveScan,
                Lens::Same(count),
            )
            | (C::AllGather | C::Gather, Lens::Same(count)) => *count,
            (C::ReduceScatter | C::AllToAll, Lens::Same(count)) => n * count,
            (C::Scatter, Lens::Same(count)) if rank == self.root => n * count,
            (C::AllGatherV | C::GatherV, Lens::Blocks(counts)) => counts[rank],
            (C::ReduceScatterV, Lens::Blocks(counts)) => counts.iter().sum(),
            (C::ScatterV, Lens::Blocks(counts)) if rank == self.root => counts.iter().sum(),
            (C::AllToAllV, Lens::Matrix(rows)) => rows[rank].iter().sum(),
            _ => 0,
        }
    }

    /// The input of every rank.
    pub(crate) fn inputs(&self, n: usize) -> Vec<Vec<u8>> {
        let input = |rank: usize| {
            let (count, me) = (self.give(n, rank), Rank::from_index(rank));
            if !self.collective.reduces() {
                return reference::distinct_inputs(self.dtype, me, count, self.seed);
            }
            match self.inputs {
                Inputs::Exact => {
                    reference::exact_inputs(self.dtype, self.op, me, n, count, self.seed)
                }
                Inputs::Wild => wild(self.dtype, rank, count, self.seed),
            }
        };
        (0..n).map(input).collect()
    }

    /// What the reference says that every rank must hold.
    pub(crate) fn expected(&self, inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
        use Collective as C;
        let (dtype, op, root) = (self.dtype, self.op, Rank::from_index(self.root));
        match (self.collective, &self.lens) {
            (C::AllReduce, _) => reference::all_reduce(dtype, op, inputs),
            (C::Reduce, _) => reference::reduce(dtype, op, root, inputs),
            (C::Scan, _) => reference::scan(dtype, op, inputs),
            (C::ExclusiveScan, _) => reference::exclusive_scan(dtype, op, inputs),
            (C::ReduceScatter, _) => reference::reduce_scatter(dtype, op, inputs),
            (C::ReduceScatterV, Lens::Blocks(counts)) => {
                reference::reduce_scatter_v(dtype, op, counts, inputs)
            }
            (C::AllGather | C::AllGatherV, _) => reference::all_gather(inputs),
            (C::Gather | C::GatherV, _) => reference::gather(root, inputs),
            (C::Broadcast, _) => reference::broadcast(root, inputs),
            (C::Scatter, _) => reference::scatter(dtype, root, inputs),
            (C::ScatterV, Lens::Blocks(counts)) => {
                reference::scatter_v(dtype, root, counts, inputs)
            }
            (C::AllToAll, _) => reference::all_to_all(dtype, inputs),
            (C::AllToAllV, Lens::Matrix(rows)) => reference::all_to_all_v(dtype, rows, inputs),
            _ => vec![Vec::new(); inputs.len()],
        }
    }
}

/// Any bit patterns; every 16th element is one that reductions treat specially.
fn wild(dtype: DType, rank: usize, count: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed ^ (rank as u64) << 32);
    let mut bytes = Vec::with_capacity(count * dtype.size());
    for _ in 0..count {
        let bits = random.next();
        let special = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 0.0, -0.0, 1.0];
        let value = special[random.below(special.len())];
        let is_special = random.below(16) == 0;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "special values have all widths"
        )]
        match dtype {
            DType::Bf16 if is_special => bytes.extend(bf16::from_f64(value).to_ne_bytes()),
            DType::F16 if is_special => bytes.extend(f16::from_f64(value).to_ne_bytes()),
            DType::F32 if is_special => bytes.extend((value as f32).to_ne_bytes()),
            DType::F64 if is_special => bytes.extend(value.to_ne_bytes()),
            _ => bytes.extend(&bits.to_ne_bytes()[..dtype.size()]),
        }
    }
    bytes
}

/// Makes the call and compares; `Err` says what is wrong.
pub(crate) fn check(
    comm: &Communicator,
    case: &Case,
    input: &[u8],
    expected: &[u8],
) -> Result<(), String> {
    let outcome = perform(comm, case, input).map_err(|error| error.to_string())?;
    if let Some(damage) = outcome.damage {
        return Err(damage.to_owned());
    }
    match reference::first_difference(case.dtype, expected, &outcome.got) {
        None => Ok(()),
        Some(difference) => Err(difference.to_string()),
    }
}

/// A case with what all its ranks need, made by the first that comes and dropped by the last.
struct Shared {
    case: Case,
    data: Mutex<(usize, Option<Arc<Data>>)>,
}

struct Data {
    inputs: Vec<Vec<u8>>,
    expected: Vec<Vec<u8>>,
}

impl Shared {
    fn data(&self, n: usize) -> Arc<Data> {
        let mut data = self.data.lock().unwrap();
        let (users, place) = &mut *data;
        *users += 1;
        let made = Arc::clone(place.get_or_insert_with(|| {
            let inputs = self.case.inputs(n);
            let expected = self.case.expected(&inputs);
            Arc::new(Data { inputs, expected })
        }));
        if *users == n {
            *place = None;
        }
        made
    }
}

/// Runs all cases on one group of `n` ranks, and fails with every case that went wrong.
pub(crate) fn run(setup: &Setup, n: usize, cases: Vec<Case>) {
    let share = |case| Shared {
        case,
        data: Mutex::new((0, None)),
    };
    let cases: Vec<Shared> = cases.into_iter().map(share).collect();
    assert!(!cases.is_empty());
    let findings = ranks(n, setup, move |world| on_rank(&world, &cases));
    let findings: Vec<String> = findings.into_iter().flatten().collect();
    assert!(
        findings.is_empty(),
        "{n} ranks, {setup:?}:\n{}",
        findings.join("\n")
    );
}

fn on_rank(world: &World, cases: &[Shared]) -> Vec<String> {
    /// More would say nothing new.
    const FINDINGS_MAX: usize = 4;
    let comm = world.everyone().unwrap();
    let mut findings = Vec::new();
    for shared in cases {
        let data = shared.data(comm.size());
        let me = comm.rank();
        let checked = check(&comm, &shared.case, &data.inputs[me], &data.expected[me]);
        if let Err(what) = checked {
            findings.push(format!("rank {me}: {:?}: {what}", shared.case));
        }
        if findings.len() == FINDINGS_MAX || comm.failure().is_some() {
            break;
        }
    }
    findings
}

/// Collectives with one count.
pub(crate) const UNIFORM: [Collective; 10] = [
    Collective::AllReduce,
    Collective::Reduce,
    Collective::ReduceScatter,
    Collective::AllGather,
    Collective::AllToAll,
    Collective::Broadcast,
    Collective::Gather,
    Collective::Scatter,
    Collective::Scan,
    Collective::ExclusiveScan,
];

/// Collectives with a list of counts.
pub(crate) const UNEVEN: [Collective; 5] = [
    Collective::ReduceScatterV,
    Collective::AllGatherV,
    Collective::AllToAllV,
    Collective::GatherV,
    Collective::ScatterV,
];

/// Uneven lengths for `n` ranks with blocks of about `about` elements, of one of several kinds.
pub(crate) fn uneven(collective: Collective, n: usize, about: usize, random: &mut Random) -> Lens {
    let mut row = |lucky: usize| -> Vec<usize> {
        match random.below(5) {
            // One rank has everything.
            0 => (0..n)
                .map(|i| if i == lucky { n * about } else { 0 })
                .collect(),
            // Nobody has anything.
            1 => vec![0; n],
            // Some have nothing.
            2 => (0..n)
                .map(|_| random.below(2) * random.below(2 * about + 1))
                .collect(),
            // Steps.
            3 => (0..n).map(|i| (i * about).div_ceil(n)).collect(),
            _ => (0..n).map(|_| random.below(2 * about + 1)).collect(),
        }
    };
    if collective == Collective::AllToAllV {
        Lens::Matrix((0..n).map(|i| row((i + 1) % n)).collect())
    } else {
        Lens::Blocks(row(n - 1))
    }
}

/// One of the reductions that a collective takes of elements of this type.
pub(crate) fn any_op(collective: Collective, dtype: DType, random: &mut Random) -> ReduceOp {
    let ops: Vec<ReduceOp> = taken(collective, dtype).collect();
    match ops.as_slice() {
        [] => ReduceOp::Sum,
        ops => ops[random.below(ops.len())],
    }
}

/// The reductions that a collective takes of elements of this type.
pub(crate) fn taken(collective: Collective, dtype: DType) -> impl Iterator<Item = ReduceOp> {
    let ops = collective.ops().iter().copied();
    ops.filter(move |op| op.takes(dtype))
}

/// The zero of a type, for tests that need a buffer and do not care what is in it.
pub(crate) fn zeroes<T: Element>(count: usize) -> Vec<T> {
    vec![T::zeroed(); count]
}
