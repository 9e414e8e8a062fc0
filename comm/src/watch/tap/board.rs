//! What a process tells of its HCCL calls, in shared memory: written by the tap, read by the tool.
//!
//! Every field is atomic. `publish` says when what stands here is valid. A communicator's slot keeps its place until it is destroyed and
//! all slots are taken.

use crate::sync::{AtomicU32, AtomicU64, Ordering};
use std::ffi::CStr;

/// First word of a board.
pub const MAGIC: u64 = u64::from_le_bytes(*b"mustrtap");
/// Version of this layout; a reader takes no other.
pub const VERSION: u32 = 5;
/// How the names of boards in `/dev/shm` begin; the user, the process and when it started follow.
pub const PREFIX: &str = "muster-tap-";
/// Communicators of a process that are watched at one time.
pub const COMMS: usize = 128;
/// Calls that are remembered of a communicator.
pub const RING: usize = 1024;
/// Numbers that are remembered of lists of counts.
pub const COUNTS: usize = 1 << 16;
/// Numbers of the longest lists of a call that are kept.
pub const LISTS_MAX: usize = COUNTS / 4;
/// Members whose ranks in the parent are kept.
pub const MEMBERS: usize = 1024;
/// Longest name of a communicator, its end included, as HCCL limits it.
pub const NAME_BYTES: usize = 128;
/// What the name of the file for Python stacks begins with.
pub const STACK_FILE: &CStr = c"muster-tap-stack";
/// A number that is not known.
pub const UNKNOWN: u32 = u32::MAX;

/// The whole board.
#[repr(C)]
#[derive(Debug)]
pub struct Board {
    /// [`MAGIC`], written last.
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// The process, as it numbers itself.
    pub pid: AtomicU32,
    /// Its rank among all processes of the job, as the launcher's variables say, or [`UNKNOWN`].
    pub world_rank: AtomicU32,
    /// Ranks of the job, or [`UNKNOWN`].
    pub world_size: AtomicU32,
    /// The inode of its PID namespace.
    pub namespace: AtomicU64,
    /// Which job it belongs to: boards of other jobs have another number.
    pub job: AtomicU64,
    /// Slots of `comms` that have been used.
    pub comms_used: AtomicU32,
    /// Communicators for which there was no slot: nothing is known of them.
    pub unwatched: AtomicU32,
    /// Whether the tap has stopped recording, after an error of its own.
    pub is_disabled: AtomicU32,
    /// Whether completion of calls is observed.
    pub has_events: AtomicU32,
    /// Number of the last call among all calls of the process.
    pub order: AtomicU64,
    /// The first error of the device or of a communicator that was seen: the vendor's number; 0 where there was none.
    pub error: AtomicU32,
    /// The slot of the communicator that has it, or [`UNKNOWN`].
    pub error_comm: AtomicU32,
    /// When it was seen; written last.
    pub error_ns: AtomicU64,
    /// The descriptor of the file that the process's Python stacks are written to; written before `stack_signal`.
    pub stack_file: AtomicU32,
    /// The signal that has them written; 0 where there is none.
    pub stack_signal: AtomicU32,
    /// Numbers of lists so far.
    pub counts_used: AtomicU64,
    /// The last lists of counts: number `n` is at `n % COUNTS`.
    pub counts: [AtomicU64; COUNTS],
    /// The communicators.
    pub comms: [Comm; COMMS],
}

/// A communicator's stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// Nobody uses the slot.
    Free = 0,
    /// The call that creates it has not returned.
    Creating = 1,
    /// It can be used.
    Live = 2,
    /// The call that destroys it has not returned.
    Destroying = 3,
    /// It is gone, or was never made.
    Gone = 4,
}

impl State {
    /// The state that this number means.
    #[must_use]
    pub fn of(number: u32) -> Option<Self> {
        [
            Self::Free,
            Self::Creating,
            Self::Live,
            Self::Destroying,
            Self::Gone,
        ]
        .into_iter()
        .find(|state| *state as u32 == number)
    }
}

/// A communicator of the process.
#[repr(C)]
#[derive(Debug)]
pub struct Comm {
    /// A [`State`].
    pub state: AtomicU32,
    /// How often the slot was used before.
    pub generation: AtomicU32,
    /// The same for all members: of the root information, the rank table, or the parent and the number of the child.
    pub key: AtomicU64,
    /// Members.
    pub size: AtomicU32,
    /// This member.
    pub rank: AtomicU32,
    /// The slot of the parent, or [`UNKNOWN`].
    pub parent: AtomicU32,
    /// Members that `members` has; 0 where they are not known.
    pub members_known: AtomicU32,
    /// When its creation was called and when that returned, by the monotonic clock; 0 where it has not.
    pub created: Span,
    /// When its destruction was called and when that returned.
    pub destroyed: Span,
    /// What the creation returned, as the bits of a signed number.
    pub result: AtomicU32,
    /// Calls inside `HcclGroupStart` and `HcclGroupEnd` that were not enqueued yet.
    pub grouped: AtomicU32,
    /// The name, ended by a zero.
    pub name: [AtomicU64; NAME_BYTES / 8],
    /// Ranks of the members in the parent.
    pub members: [AtomicU32; MEMBERS],
    /// Collectives so far.
    pub collectives: AtomicU64,
    /// Calls so far, messages included.
    pub calls: AtomicU64,
    /// The last calls: the call of ticket `n` is at `n % RING`.
    pub ring: [Call; RING],
}

/// When something was called and when that returned, in nanoseconds of the monotonic clock.
#[repr(C)]
#[derive(Debug)]
pub struct Span {
    /// When it was called.
    pub entered_ns: AtomicU64,
    /// When it returned; 0 where it has not.
    pub returned_ns: AtomicU64,
}

/// A call.
#[repr(C)]
#[derive(Debug)]
pub struct Call {
    /// Its number on the communicator, from 1; 0 where it is being written.
    pub ticket: AtomicU64,
    /// Its number among all calls of the process.
    pub order: AtomicU64,
    /// Its number among the collectives; of messages among those to or from the same peer.
    pub seq: AtomicU64,
    /// A [`Kind`], then a byte each for HCCL's number of the element type and of the reduction, each plus one; the upper
    /// half is the root or the peer plus one.
    pub code: AtomicU64,
    /// Elements.
    pub count: AtomicU64,
    /// A hash of the counts of calls that have one for each member, else 0.
    pub counts: AtomicU64,
    /// Where the lists of the call begin among the board's counts: those for each member, or what it sends to each
    /// member and then what it receives from each.
    pub lists_at: AtomicU64,
    /// Numbers of the lists; 0 where there are none, or too many.
    pub lists: AtomicU64,
    /// The stream.
    pub stream: AtomicU64,
    /// The thread, as the system numbers it.
    pub thread: AtomicU32,
    /// [`CAPTURED`] and [`GROUPED`]; from [`BATCH_SHIFT`] on the number of the batch or group among those of the thread, or 0.
    pub flags: AtomicU32,
    /// When it was called and when it returned.
    pub span: Span,
    /// When it was seen to be complete; 0 where it was not.
    pub finished_ns: AtomicU64,
    /// What it returned, as the bits of a signed number.
    pub result: AtomicU32,
    /// A [`Mark`].
    pub mark: AtomicU32,
}

/// What is known of a call from events of the tap on its stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Mark {
    /// Nothing: it has no events.
    #[default]
    None = 0,
    /// It has an event before it and one behind it. Nobody has asked yet.
    Set = 1,
    /// What is ahead of it on its stream is not complete: the device has not begun it.
    Behind = 2,
    /// The device has begun it.
    Begun = 3,
}

impl Mark {
    /// The mark that this number means.
    #[must_use]
    pub const fn of(number: u32) -> Self {
        match number {
            1 => Self::Set,
            2 => Self::Behind,
            3 => Self::Begun,
            _ => Self::None,
        }
    }
}

/// The stream was being captured: the call is recorded and not carried out.
pub const CAPTURED: u32 = 1;
/// The call is inside `HcclGroupStart` and `HcclGroupEnd`.
pub const GROUPED: u32 = 2;
/// The first bit of the number of a batch.
pub const BATCH_SHIFT: u32 = 8;

/// What a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// `HcclAllReduce`.
    AllReduce = 1,
    /// `HcclBroadcast`.
    Broadcast,
    /// `HcclReduce`.
    Reduce,
    /// `HcclAllGather`.
    AllGather,
    /// `HcclAllGatherV`.
    AllGatherV,
    /// `HcclReduceScatter`.
    ReduceScatter,
    /// `HcclReduceScatterV`.
    ReduceScatterV,
    /// `HcclScatter`.
    Scatter,
    /// `HcclAlltoAll`.
    AllToAll,
    /// `HcclAlltoAllV` and `HcclAlltoAllVC`.
    AllToAllV,
    /// `HcclBarrier`.
    Barrier,
    /// `HcclSend`, or an item of `HcclBatchSendRecv`.
    Send,
    /// `HcclRecv`, or an item of `HcclBatchSendRecv`.
    Recv,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 13] = [
        Self::AllReduce,
        Self::Broadcast,
        Self::Reduce,
        Self::AllGather,
        Self::AllGatherV,
        Self::ReduceScatter,
        Self::ReduceScatterV,
        Self::Scatter,
        Self::AllToAll,
        Self::AllToAllV,
        Self::Barrier,
        Self::Send,
        Self::Recv,
    ];

    /// The kind in a code.
    #[must_use]
    pub fn of(code: u64) -> Option<Self> {
        let byte = code.to_le_bytes()[0];
        Self::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }

    /// Whether it goes between two members.
    #[must_use]
    pub fn is_message(self) -> bool {
        matches!(self, Self::Send | Self::Recv)
    }
}

/// The code of a call.
#[must_use]
pub fn code(kind: Kind, dtype: Option<i32>, op: Option<i32>, root: Option<u32>) -> u64 {
    let byte = |number: Option<i32>| {
        let number = number.and_then(|number| u8::try_from(number).ok());
        number.map_or(0, |number| u64::from(number) + 1)
    };
    let root = root.map_or(0, |root| u64::from(root) + 1);
    u64::from(kind as u8) | byte(dtype) << 8 | byte(op) << 16 | root << 32
}

/// A hash of bytes, the same in every process.
#[must_use]
pub fn hash(bytes: &[u8], seed: u64) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(seed ^ 0xcbf2_9ce4_8422_2325, step)
}

/// The number of a job that its variable `MUSTER_TAP_JOB` names.
#[must_use]
pub fn job_of(name: &str) -> u64 {
    hash(name.as_bytes(), 1)
}

/// HCCL's number of the element type in a code.
#[must_use]
pub fn dtype_of(code: u64) -> Option<u8> {
    code.to_le_bytes()[1].checked_sub(1)
}

/// HCCL's number of the reduction in a code.
#[must_use]
pub fn op_of(code: u64) -> Option<u8> {
    code.to_le_bytes()[2].checked_sub(1)
}

/// The root or the peer in a code.
#[must_use]
pub fn root_of(code: u64) -> Option<u32> {
    u32::try_from((code >> 32).checked_sub(1)?).ok()
}

impl Comm {
    /// Writes the name.
    pub fn set_name(&self, name: &CStr) {
        let mut bytes = [0; NAME_BYTES];
        let given = name.to_bytes();
        let length = given.len().min(NAME_BYTES - 1);
        bytes[..length].copy_from_slice(&given[..length]);
        for (word, bytes) in self.name.iter().zip(bytes.chunks_exact(8)) {
            let bytes = bytes.try_into().unwrap_or_default();
            word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
        }
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> String {
        let words = self
            .name
            .iter()
            .map(|word| word.load(Ordering::Relaxed).to_le_bytes());
        let bytes: Vec<u8> = words.flatten().take_while(|byte| *byte != 0).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
