//! The call of a case itself, on buffers with margins that nobody may touch.

use half::{bf16, f16};
use muster_comm::buffer::Element;
use muster_comm::collective::Communicator;
use muster_comm::error::CommError;
use muster_comm::types::{Collective, DType};
use muster_comm::world::RegionBuffer;

use crate::check::{Case, Lens, Memory};
use crate::support::Carved;

/// Byte of margins and of receive buffers before the call.
const FILL: u8 = 0xA5;

/// Elements before and behind each buffer that no call may touch. An odd number, so that buffers
/// are aligned for their type and no further.
const MARGIN: usize = 5;

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
        C::Scan | C::ExclusiveScan => count,
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
        C::Scan => comm.scan(give, take, op),
        C::ExclusiveScan => comm.exclusive_scan(give, take, op),
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
        C::AllReduce | C::Broadcast | C::Scan | C::ExclusiveScan => (count, 0, 0, bytes),
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
        C::Scan => comm.scan_in_place(all, op),
        C::ExclusiveScan => comm.exclusive_scan_in_place(all, op),
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
