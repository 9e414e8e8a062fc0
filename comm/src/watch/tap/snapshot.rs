//! A board at one moment, as plain data.

use crate::sync::Ordering::{Acquire, Relaxed};

use super::board::{
    Board, CAPTURED, COMMS, Comm, Kind, MAGIC, Mark, RING, State, UNKNOWN, VERSION, dtype_of,
    op_of, root_of,
};
use super::publish;
use crate::types::{Collective, DType, ReduceOp};
use crate::watch::report::CallCode;

/// Calls of a communicator that are read.
const CALLS_MAX: u64 = 256;

/// A process that uses HCCL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Its number, as it counts itself.
    pub pid: u32,
    /// Its rank in its job, where the launcher's variables say it.
    pub world_rank: Option<u32>,
    /// Ranks of its job, where they say it.
    pub world_size: Option<u32>,
    /// Its job.
    pub job: u64,
    /// Its communicators.
    pub groups: Vec<Group>,
    /// The first error of its device or of a communicator.
    pub error: Option<DeviceError>,
    /// Communicators that are not on the board.
    pub unwatched: u32,
    /// Whether the tap has stopped recording.
    pub is_disabled: bool,
}

/// An error of a device or of a communicator, as the vendor's libraries reported it to the tap or to the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceError {
    /// The vendor's number.
    pub code: i32,
    /// The key of the communicator that has it, where it is of one.
    pub key: Option<u64>,
    /// When it was seen, by the monotonic clock.
    pub seen_ns: u64,
}

/// A communicator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// The same for all members.
    pub key: u64,
    /// Its name.
    pub name: String,
    /// Members; 0 where unknown.
    pub size: u32,
    /// This member.
    pub rank: u32,
    /// Key of the communicator that it was made of.
    pub parent: Option<u64>,
    /// Ranks of the members in that, where known.
    pub members: Vec<u32>,
    /// Whether its creation has not returned.
    pub is_creating: bool,
    /// Whether it is destroyed, or was never made.
    pub is_gone: bool,
    /// When its creation was called.
    pub created_ns: u64,
    /// Collectives so far.
    pub entered: u64,
    /// The last calls, oldest first.
    pub calls: Vec<Call>,
}

/// A call on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// Number among all calls of the process.
    pub order: u64,
    /// Number among the communicator's collectives; of messages among those to or from the peer.
    pub seq: u64,
    /// What it is, as boards of muster show it.
    pub code: CallCode,
    /// The root, or the peer of a message.
    pub root: Option<u32>,
    /// The stream.
    pub stream: u64,
    /// When it was made.
    pub entered_ns: u64,
    /// When the vendor's library returned from it; `None` where it has not.
    pub returned_ns: Option<u64>,
    /// Whether the device was seen to have completed it.
    pub is_complete: bool,
    /// What the events of this very call say, if it has any.
    pub mark: Mark,
    /// Whether it was captured into a graph and not carried out.
    pub is_captured: bool,
    /// What the vendor's library returned.
    pub result: i32,
}

impl Call {
    /// Whether it goes between two members.
    #[must_use]
    pub fn is_message(&self) -> bool {
        self.code.is_point_to_point()
    }
}

/// Reads a board; `None` where it is none of this version.
#[must_use]
pub fn read(board: &Board) -> Option<Process> {
    process(board, calls)
}

/// The same without calls.
#[must_use]
pub(super) fn read_groups(board: &Board) -> Option<Process> {
    process(board, |_| Vec::new())
}

fn process(board: &Board, calls: impl Fn(&Comm) -> Vec<Call>) -> Option<Process> {
    if board.magic.load(Acquire) != MAGIC || board.version.load(Relaxed) != VERSION {
        return None;
    }
    let known = |number: u32| (number != UNKNOWN).then_some(number);
    let used = usize::try_from(board.comms_used.load(Relaxed))
        .ok()?
        .min(COMMS);
    Some(Process {
        pid: board.pid.load(Relaxed),
        world_rank: known(board.world_rank.load(Relaxed)),
        world_size: known(board.world_size.load(Relaxed)),
        job: board.job.load(Relaxed),
        groups: board.comms[..used]
            .iter()
            .filter_map(|comm| group(board, comm, &calls))
            .collect(),
        error: error(board),
        unwatched: board.unwatched.load(Relaxed),
        is_disabled: board.is_disabled.load(Relaxed) != 0,
    })
}

fn error(board: &Board) -> Option<DeviceError> {
    let seen_ns = board.error_ns.load(Acquire);
    let comm = usize::try_from(board.error_comm.load(Relaxed)).ok();
    let comm = comm.and_then(|slot| board.comms.get(slot));
    (seen_ns != 0).then(|| DeviceError {
        code: board.error.load(Relaxed).cast_signed(),
        key: comm.map(|comm| comm.key.load(Relaxed)),
        seen_ns,
    })
}

fn group(board: &Board, comm: &Comm, calls: impl Fn(&Comm) -> Vec<Call>) -> Option<Group> {
    // A slot that goes over to another communicator meanwhile is read the next time.
    publish::read_slot(&comm.state, &comm.generation, |state| {
        let state = State::of(state)?;
        let size = comm.size.load(Relaxed);
        let parent = usize::try_from(comm.parent.load(Relaxed)).ok();
        let parent = parent.and_then(|slot| board.comms.get(slot));
        let known = usize::try_from(comm.members_known.load(Relaxed)).unwrap_or(0);
        let members = comm.members.iter().take(known);
        let entered = comm.collectives.load(Acquire);
        Some(Group {
            key: comm.key.load(Relaxed),
            name: comm.name(),
            size: if size == UNKNOWN { 0 } else { size },
            rank: comm.rank.load(Relaxed),
            parent: parent.map(|parent| parent.key.load(Relaxed)),
            members: members.map(|member| member.load(Relaxed)).collect(),
            is_creating: state == State::Creating,
            is_gone: matches!(state, State::Destroying | State::Gone),
            created_ns: comm.created.entered_ns.load(Relaxed),
            entered,
            calls: calls(comm),
        })
    })
}

fn calls(comm: &Comm) -> Vec<Call> {
    let last = comm.calls.load(Acquire);
    let first = last.saturating_sub(CALLS_MAX - 1).max(1);
    let call = |ticket: u64| {
        let call = &comm.ring[usize::try_from(ticket).ok()? % RING];
        publish::read_call(&call.ticket, ticket, || {
            let code = call.code.load(Relaxed);
            let kind = Kind::of(code)?;
            let returned_ns = call.span.returned_ns.load(Acquire);
            Some(Call {
                order: call.order.load(Relaxed),
                seq: call.seq.load(Relaxed),
                code: code_of(kind, code, call.count.load(Relaxed)),
                root: root_of(code),
                stream: call.stream.load(Relaxed),
                entered_ns: call.span.entered_ns.load(Relaxed),
                returned_ns: (returned_ns != 0).then_some(returned_ns),
                is_complete: call.finished_ns.load(Relaxed) != 0,
                mark: Mark::of(call.mark.load(Acquire)),
                is_captured: call.flags.load(Relaxed) & CAPTURED != 0,
                result: call.result.load(Relaxed).cast_signed(),
            })
        })
    };
    (first..=last).filter_map(call).collect()
}

/// As boards of muster show the call.
fn code_of(kind: Kind, code: u64, count: u64) -> CallCode {
    let dtype = dtype_of(code)
        .and_then(data_type)
        .map_or(0, |dtype| dtype as u64);
    let op = op_of(code).and_then(reduce_op).map_or(0, |op| op as u64);
    let root = match (kind, root_of(code)) {
        (Kind::Send | Kind::Recv, _) | (_, None) => 0,
        (_, Some(root)) => u64::from(root) + 1,
    };
    CallCode {
        word: collective(kind) as u64 | dtype << 8 | op << 16 | root << 32,
        count,
    }
}

pub(super) fn collective(kind: Kind) -> Collective {
    match kind {
        Kind::AllReduce => Collective::AllReduce,
        Kind::Broadcast => Collective::Broadcast,
        Kind::Reduce => Collective::Reduce,
        Kind::AllGather => Collective::AllGather,
        Kind::AllGatherV => Collective::AllGatherV,
        Kind::ReduceScatter => Collective::ReduceScatter,
        Kind::ReduceScatterV => Collective::ReduceScatterV,
        Kind::Scatter => Collective::Scatter,
        Kind::AllToAll => Collective::AllToAll,
        Kind::AllToAllV => Collective::AllToAllV,
        Kind::Barrier => Collective::Barrier,
        Kind::Send => Collective::Send,
        Kind::Recv => Collective::Recv,
    }
}

/// The type that is HCCL's number, where muster has it.
pub(super) fn data_type(number: u8) -> Option<DType> {
    Some(match number {
        0 => DType::I8,
        1 => DType::I16,
        2 => DType::I32,
        3 => DType::F16,
        4 => DType::F32,
        5 => DType::I64,
        6 => DType::U64,
        7 => DType::U8,
        8 => DType::U16,
        9 => DType::U32,
        10 => DType::F64,
        11 => DType::Bf16,
        _ => return None,
    })
}

/// The reduction that is HCCL's number.
pub(super) fn reduce_op(number: u8) -> Option<ReduceOp> {
    [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min]
        .get(usize::from(number))
        .copied()
}
