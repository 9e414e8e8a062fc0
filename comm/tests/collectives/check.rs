//! One case: its inputs, what the reference expects of it, and the call itself.

use std::fmt;
use std::sync::{Arc, Mutex};

use half::{bf16, f16};
use muster_comm::buffer::Element;
use muster_comm::collective::{Communicator, reference};
use muster_comm::error::CommError;
use muster_comm::types::{Collective, DType, Rank, ReduceOp};
use muster_comm::world::{RegionBuffer, World};

use crate::support::{Carved, Random, Setup, ranks};

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
    fn of_buffer(self, seed: u64, rank: usize, side: u64) -> Self {
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

/// Elements before and behind each buffer that no call may touch. An odd number, so that buffers
/// are aligned for their type and no further.
const MARGIN: usize = 5;
/// Byte of margins and of receive buffers before the call.
const FILL: u8 = 0xA5;

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
            (C::AllReduce | C::Reduce | C::Broadcast, Lens::Same(count))
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

/// Calls a function that is generic over the element with the type that a `DType` names.
macro_rules! with_element {
    ($dtype:expr, $function:ident($($argument:expr),* $(,)?)) => {
        match $dtype {
            DType::Bf16 => $function::<bf16>($($argument),*),
            DType::F16 => $function::<f16>($($argument),*),
            DType::F32 => $function::<f32>($($argument),*),
            DType::F64 => $function::<f64>($($argument),*),
            DType::I8 => $function::<i8>($($argument),*),
            DType::I16 => $function::<i16>($($argument),*),
            DType::I32 => $function::<i32>($($argument),*),
            DType::I64 => $function::<i64>($($argument),*),
            DType::U8 => $function::<u8>($($argument),*),
            DType::U16 => $function::<u16>($($argument),*),
            DType::U32 => $function::<u32>($($argument),*),
            DType::U64 => $function::<u64>($($argument),*),
        }
    };
}

/// A buffer with margins.
struct Guarded<T> {
    all: Place<T>,
    len: usize,
}

/// The elements of a buffer, wherever they lie.
enum Place<T> {
    Private(Vec<T>),
    Region(RegionBuffer<T>),
    Brought(Carved),
}

impl<T: Element> Place<T> {
    fn all(&self) -> &[T] {
        match self {
            Self::Private(all) => all,
            Self::Region(all) => all,
            Self::Brought(all) => bytemuck::cast_slice(all.bytes()),
        }
    }

    fn all_mut(&mut self) -> &mut [T] {
        match self {
            Self::Private(all) => all,
            Self::Region(all) => all,
            Self::Brought(all) => bytemuck::cast_slice_mut(all.bytes_mut()),
        }
    }
}

impl<T: Element> Guarded<T> {
    /// `len` elements of [`FILL`]; `side` tells the buffers of a rank apart.
    fn blank(comm: &Communicator, case: &Case, side: u64, len: usize) -> Self {
        let count = len + 2 * MARGIN;
        let mut all = match case.memory.of_buffer(case.seed, comm.rank(), side) {
            Memory::Private | Memory::Mixed => Place::Private(vec![T::zeroed(); count]),
            Memory::Region => Place::Region(comm.alloc(count).unwrap()),
            Memory::Brought => Place::Brought(Carved::new(count * size_of::<T>())),
        };
        bytemuck::cast_slice_mut::<T, u8>(all.all_mut()).fill(FILL);
        Self { all, len }
    }

    /// The elements in `bytes`.
    fn of(comm: &Communicator, case: &Case, side: u64, bytes: &[u8]) -> Self {
        let mut buffer = Self::blank(comm, case, side, bytes.len() / size_of::<T>());
        buffer.bytes_mut().copy_from_slice(bytes);
        buffer
    }

    fn get(&self) -> &[T] {
        &self.all.all()[MARGIN..][..self.len]
    }

    fn get_mut(&mut self) -> &mut [T] {
        &mut self.all.all_mut()[MARGIN..][..self.len]
    }

    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(self.get())
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(self.get_mut())
    }

    fn margins_are_whole(&self) -> bool {
        let all: &[u8] = bytemuck::cast_slice(self.all.all());
        let margin = MARGIN * size_of::<T>();
        let whole = |bytes: &[u8]| bytes.iter().all(|byte| *byte == FILL);
        whole(&all[..margin]) && whole(&all[all.len() - margin..])
    }
}

/// What a call left behind.
pub(crate) struct Outcome {
    /// The result.
    pub(crate) got: Vec<u8>,
    /// Memory that was touched and must not be.
    pub(crate) damage: Option<&'static str>,
}

/// Makes the call of `case` as this rank.
pub(crate) fn perform(
    comm: &Communicator,
    case: &Case,
    input: &[u8],
) -> Result<Outcome, CommError> {
    match (case.in_place, case.collective) {
        (_, Collective::Barrier) => comm.barrier().map(|()| Outcome {
            got: Vec::new(),
            damage: None,
        }),
        (true, _) | (_, Collective::Broadcast) => {
            with_element!(case.dtype, in_place(comm, case, input))
        }
        (false, _) => with_element!(case.dtype, out_of_place(comm, case, input)),
    }
}

fn out_of_place<T: Element>(
    comm: &Communicator,
    case: &Case,
    input: &[u8],
) -> Result<Outcome, CommError> {
    use Collective as C;
    let (n, me, root, op) = (comm.size(), comm.rank(), case.root, case.op);
    let send = Guarded::<T>::of(comm, case, 0, input);
    let (count, blocks) = match &case.lens {
        Lens::Same(count) => (*count, &[][..]),
        Lens::Blocks(blocks) => (0, &blocks[..]),
        Lens::Matrix(rows) => (0, &rows[me][..]),
    };
    let total: usize = blocks.iter().sum();
    let expect: Vec<usize> = match &case.lens {
        Lens::Matrix(rows) => rows.iter().map(|row| row[me]).collect(),
        Lens::Same(_) | Lens::Blocks(_) => Vec::new(),
    };
    let len = match case.collective {
        C::AllReduce | C::Reduce | C::ReduceScatter | C::Scatter => count,
        C::AllGather | C::Gather | C::AllToAll => n * count,
        C::ReduceScatterV | C::ScatterV => blocks[me],
        C::AllGatherV | C::GatherV => total,
        C::AllToAllV => expect.iter().sum(),
        other => panic!("{other} is no case"),
    };
    let mut recv = Guarded::<T>::blank(comm, case, 1, len);
    let (give, take) = (send.get(), recv.get_mut());
    match case.collective {
        C::AllReduce => comm.all_reduce(give, take, op),
        C::Reduce => comm.reduce(give, take, op, root),
        C::ReduceScatter => comm.reduce_scatter(give, take, op),
        C::ReduceScatterV => comm.reduce_scatter_v(give, blocks, take, op),
        C::AllGather => comm.all_gather(give, take),
        C::AllGatherV => comm.all_gather_v(give, take, blocks),
        C::Gather => comm.gather(give, take, root),
        C::GatherV => comm.gather_v(give, take, blocks, root),
        C::Scatter => comm.scatter(give, take, root),
        C::ScatterV => comm.scatter_v(give, blocks, take, root),
        C::AllToAll => comm.all_to_all(give, take),
        C::AllToAllV => comm.all_to_all_v(give, blocks, take, &expect),
        other => panic!("{other} is no case"),
    }?;
    let to_root = matches!(case.collective, C::Reduce | C::Gather | C::GatherV);
    let gets = !to_root || me == root;
    let damage = if send.bytes() != input {
        Some("the send buffer changed")
    } else if !send.margins_are_whole() || !recv.margins_are_whole() {
        Some("memory beside a buffer changed")
    } else if !gets && recv.bytes().iter().any(|byte| *byte != FILL) {
        Some("the receive buffer changed on a rank that gets nothing")
    } else {
        None
    };
    let got = if gets {
        recv.bytes().to_vec()
    } else {
        Vec::new()
    };
    Ok(Outcome { got, damage })
}

fn in_place<T: Element>(
    comm: &Communicator,
    case: &Case,
    input: &[u8],
) -> Result<Outcome, CommError> {
    use Collective as C;
    let Lens::Same(count) = case.lens else {
        panic!("{case:?}: only collectives with one count work in place");
    };
    let (n, me, root, op) = (comm.size(), comm.rank(), case.root, case.op);
    let bytes = count * size_of::<T>();
    // Where this rank's input lies before the call, and its result after.
    let own = me * bytes;
    let (len, from, to, size) = match case.collective {
        C::AllReduce | C::Broadcast => (count, 0, 0, bytes),
        C::Reduce => (count, 0, 0, if me == root { bytes } else { 0 }),
        C::ReduceScatter => (n * count, 0, own, bytes),
        C::AllGather => (n * count, own, 0, n * bytes),
        C::AllToAll => (n * count, 0, 0, n * bytes),
        C::Gather if me == root => (n * count, own, 0, n * bytes),
        C::Gather => (count, 0, 0, 0),
        C::Scatter if me == root => (n * count, 0, own, bytes),
        C::Scatter => (count, 0, 0, bytes),
        other => panic!("{other} has no in-place form"),
    };
    let mut buffer = Guarded::<T>::blank(comm, case, 0, len);
    buffer.bytes_mut()[from..from + input.len()].copy_from_slice(input);
    let before = buffer.bytes().to_vec();
    let all = buffer.get_mut();
    match case.collective {
        C::AllReduce => comm.all_reduce_in_place(all, op),
        C::Broadcast => comm.broadcast(all, root),
        C::Reduce => comm.reduce_in_place(all, op, root),
        C::ReduceScatter => comm.reduce_scatter_in_place(all, op),
        C::AllGather => comm.all_gather_in_place(all),
        C::AllToAll => comm.all_to_all_in_place(all),
        C::Gather => comm.gather_in_place(all, root),
        C::Scatter => comm.scatter_in_place(all, root),
        other => panic!("{other} has no in-place form"),
    }?;
    let after = buffer.bytes();
    let rest_is_whole = before[..to] == after[..to] && before[to + size..] == after[to + size..];
    let damage = if !buffer.margins_are_whole() {
        Some("memory beside the buffer changed")
    } else if rest_is_whole {
        None
    } else {
        Some("a part of the buffer changed that is not the result")
    };
    let got = after[to..to + size].to_vec();
    Ok(Outcome { got, damage })
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
pub(crate) const UNIFORM: [Collective; 8] = [
    Collective::AllReduce,
    Collective::Reduce,
    Collective::ReduceScatter,
    Collective::AllGather,
    Collective::AllToAll,
    Collective::Broadcast,
    Collective::Gather,
    Collective::Scatter,
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

/// The zero of a type, for tests that need a buffer and do not care what is in it.
pub(crate) fn zeroes<T: Element>(count: usize) -> Vec<T> {
    vec![T::zeroed(); count]
}
