//! What a rank is told to do: steps, as data that travels in a file.

use serde::{Deserialize, Serialize};

/// The part of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Its rank; several parts may claim one.
    pub rank: u32,
    /// Variables of the launch contract that differ from those of an honest rank.
    pub claims: Vec<(String, String)>,
    /// Milliseconds that it waits before it joins.
    pub late_ms: u64,
    /// Milliseconds that the ranks may take to find each other.
    pub bring_up_ms: u64,
    /// Whether its messages carry checksums.
    pub checksum: bool,
    /// The port under which others find its links, where that is not its own.
    pub advertise: Option<u16>,
    /// Whether it writes down at which step it is, for a drill that looks when it strikes.
    pub traced: bool,
    /// What it does once it has joined.
    pub steps: Vec<Step>,
}

/// One thing that a rank does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Sends and receives several messages at once.
    Batch {
        /// The group.
        group: String,
        /// The messages.
        messages: Vec<MessageSpec>,
    },
    /// Makes a call on a group.
    Call {
        /// The group.
        group: String,
        /// The call.
        call: CallSpec,
        /// Which of the places in the program it is made at.
        place: Place,
    },
    /// Starts a process that outlives its parent, if nobody ends it.
    Child,
    /// Gives a group up.
    Destroy {
        /// The group.
        group: String,
    },
    /// Ends with this code, without a word to anybody.
    Exit {
        /// The code.
        code: i32,
    },
    /// Takes memory and writes to it until the kernel ends the process.
    Hoard,
    /// Says goodbye.
    Leave,
    /// Looks whether memory keeps its order between this rank and the other one of a group.
    Litmus {
        /// The group.
        group: String,
        /// For how long, in milliseconds.
        ms: u64,
    },
    /// Makes a group.
    Make {
        /// Its name.
        name: String,
        /// Its members.
        members: Vec<u32>,
    },
    /// Tells the drill that the fault is done now.
    Mark,
    /// Breaks an assertion.
    Panic {
        /// Whether in a thread of its own, after which the rank goes on.
        in_thread: bool,
    },
    /// Does nothing for a while.
    Pause {
        /// How long, in milliseconds.
        ms: u64,
    },
    /// Prints without end, or much.
    Print {
        /// What.
        what: PrintSpec,
    },
    /// Sends itself a signal.
    Raise {
        /// The signal's number.
        signal: i32,
    },
    /// Ignores requests to stop from here on.
    Resist,
    /// Does nothing, busily, for a while.
    Spin {
        /// How long, in milliseconds.
        ms: u64,
    },
    /// Starts an asynchronous call on a group.
    Start {
        /// The group.
        group: String,
        /// The call.
        call: CallSpec,
        /// Under which number it is waited for.
        work: u32,
    },
    /// From here on a mismatch is no reason to end; the calls after it must come out right.
    Tolerate,
    /// Waits for an asynchronous call.
    Wait {
        /// The number under which it was started.
        work: u32,
    },
    /// Waits until the drill says go on.
    WaitForGo,
    /// Makes this many calls and looks at their results; tells the drill when the first are done.
    Work {
        /// The group.
        group: String,
        /// How many.
        calls: u32,
    },
}

/// Places in the program at which the same call can be made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// One.
    #[default]
    First,
    /// Another one.
    Second,
    /// A third one.
    Third,
}

/// A call and its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallSpec {
    /// The kind of call.
    pub kind: CallKind,
    /// Elements.
    pub count: usize,
    /// The element type.
    pub dtype: Kind,
    /// Whether a reduction takes the maximum rather than the sum.
    pub takes_max: bool,
    /// The root, or the peer of a message.
    pub peer: usize,
    /// What goes to each rank, for `AllToAllV`.
    pub send_counts: Vec<usize>,
    /// What comes from each rank, for `AllToAllV`.
    pub recv_counts: Vec<usize>,
    /// What a call of objects gives.
    pub object: ObjectSpec,
    /// Whether its buffers lie in memory that local peers reach.
    pub in_region: bool,
}

/// One message of a batch, of `i32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageSpec {
    /// Whether it is sent, and not received.
    pub is_sent: bool,
    /// The other rank's number in the group.
    pub peer: usize,
    /// Elements.
    pub count: usize,
}

/// Kinds of calls that drills make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CallKind {
    /// `all_gather`.
    AllGather,
    /// `all_gather_object`.
    AllGatherObject,
    /// `all_reduce` in place.
    AllReduce,
    /// `all_reduce_async`, waited for at once.
    AllReduceAsync,
    /// `all_to_all`.
    AllToAll,
    /// `all_to_all_v`.
    AllToAllV,
    /// `barrier`.
    Barrier,
    /// `broadcast`.
    Broadcast,
    /// `broadcast_object`.
    BroadcastObject,
    /// `gather`.
    Gather,
    /// `gather_object`.
    GatherObject,
    /// `recv`.
    Recv,
    /// `reduce`.
    Reduce,
    /// `reduce_scatter`.
    ReduceScatter,
    /// `scatter`.
    Scatter,
    /// `send`.
    Send,
}

/// Element types that drills use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// `f32`.
    F32,
    /// `f64`.
    F64,
    /// `i32`.
    I32,
    /// `i64`.
    I64,
}

/// Objects that drills exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ObjectSpec {
    /// One that is larger than the limit.
    Huge,
    /// One of another type than the others expect.
    Other,
    /// One of the type that all expect, with as many bytes as the call has elements.
    #[default]
    Usual,
}

/// Things that ranks print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PrintSpec {
    /// Control characters, and bytes that are no text.
    Control,
    /// More than anybody wants to read.
    Flood,
}

impl CallSpec {
    /// An `all_reduce` with a sum.
    #[must_use]
    pub fn all_reduce(dtype: Kind, count: usize) -> Self {
        Self {
            kind: CallKind::AllReduce,
            count,
            dtype,
            takes_max: false,
            peer: 0,
            send_counts: Vec::new(),
            recv_counts: Vec::new(),
            object: ObjectSpec::Usual,
            in_region: false,
        }
    }

    /// The same call of another kind.
    #[must_use]
    pub fn of_kind(self, kind: CallKind) -> Self {
        Self { kind, ..self }
    }

    /// The same call with another root or peer.
    #[must_use]
    pub fn with_peer(self, peer: usize) -> Self {
        Self { peer, ..self }
    }

    /// The same call with another object.
    #[must_use]
    pub fn with_object(self, object: ObjectSpec) -> Self {
        Self { object, ..self }
    }

    /// The same call with the maximum for the sum.
    #[must_use]
    pub fn with_max(self) -> Self {
        Self {
            takes_max: true,
            ..self
        }
    }

    /// An `all_to_all_v` with these parts.
    #[must_use]
    pub fn all_to_all_v(send_counts: Vec<usize>, recv_counts: Vec<usize>) -> Self {
        Self {
            send_counts,
            recv_counts,
            ..Self::all_reduce(Kind::I32, 0).of_kind(CallKind::AllToAllV)
        }
    }
}

impl Step {
    /// A call on the group of all ranks.
    #[must_use]
    pub fn call(call: CallSpec) -> Self {
        Self::call_on("world", call)
    }

    /// A call on a group.
    #[must_use]
    pub fn call_on(group: &str, call: CallSpec) -> Self {
        Self::Call {
            group: group.to_owned(),
            call,
            place: Place::First,
        }
    }

    /// Calls on the group of all ranks.
    #[must_use]
    pub fn work(calls: u32) -> Self {
        Self::Work {
            group: "world".to_owned(),
            calls,
        }
    }
}
