//! The plan: an algorithm as data.
//!
//! A [`Plan`] is what ONE rank does in ONE collective, as rounds of steps over spans of three
//! buffers. It knows element counts, never element types, addresses or links. The plans of all
//! ranks together are checked by `check`, priced by `cost`, drawn by
//! `draw` and run by the engine of the host backend.
//!
//! Invariants, proved by the checker for every registered algorithm:
//! - PLAN-1: the steps of one round touch disjoint memory, except that several may read one span.
//!   So a round may be run in any order, and the engine may overlap its steps.
//! - PLAN-2: a round begins when the round before it is complete on this rank. Message rounds need
//!   no more than that; a round that holds a direct step begins when every rank of the group has
//!   completed the round before (the engine's barrier of rounds).
//! - PLAN-3: messages between an ordered pair of ranks are matched in the order of rounds, and in
//!   the order of steps within a round. A send may wait for its receive (rendezvous semantics).
//! - PLAN-4: a span that was exposed in round k is readable by peers from round k+1 to the end of
//!   the plan and is not written by its owner in that time.

/// Which buffer a span lies in. With an in-place call, `In` and `Out` are the same memory for the
/// collectives whose buffers are equal in length; plans must say whether they allow that
/// (see [`Plan::in_place`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Space {
    /// The send buffer; never written.
    In,
    /// The receive buffer.
    Out,
    /// Memory of the plan's own, [`Plan::scratch`] elements, undefined at the start.
    Scratch,
}

/// A run of elements in one of the three buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The buffer.
    pub space: Space,
    /// First element.
    pub start: usize,
    /// Number of elements; steps with a length of zero are not put into plans.
    pub len: usize,
}

impl Span {
    /// The `len` elements of `space` from element `start` on.
    #[must_use]
    pub const fn new(space: Space, start: usize, len: usize) -> Self {
        Self { space, start, len }
    }

    /// One past the last element.
    #[must_use]
    pub const fn end(&self) -> usize {
        self.start + self.len
    }

    /// Whether two spans share an element.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.space == other.space && self.start < other.end() && other.start < self.end()
    }
}

/// A part of a peer's exposed memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerSpan {
    /// The peer, as an index into the group.
    pub peer: usize,
    /// The span, in the PEER's buffers. It must lie within one span that the peer exposed.
    pub span: Span,
}

/// One step. Peers are indices into the group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Copies within this rank.
    Copy {
        /// Read.
        src: Span,
        /// Written; as long as `src`.
        dst: Span,
    },
    /// `dst = src op dst` or `dst = dst op src` within this rank.
    Reduce {
        /// Read.
        src: Span,
        /// Read and written; as long as `src`.
        dst: Span,
        /// Whether `src` is the left operand (it holds the contributions of lower ranks).
        src_first: bool,
    },
    /// A message to a peer.
    Send {
        /// The receiver.
        to: usize,
        /// What is sent.
        src: Span,
    },
    /// A message from a peer.
    Recv {
        /// The sender.
        from: usize,
        /// Where it goes.
        dst: Span,
    },
    /// A message from a peer, combined with what is there.
    RecvReduce {
        /// The sender.
        from: usize,
        /// Read and written.
        dst: Span,
        /// Whether the received elements are the left operand.
        recv_first: bool,
    },
    /// Lets peers read this span from the next round on (shared memory only).
    Expose {
        /// The span; constant until the plan ends.
        span: Span,
    },
    /// Copies from a peer's exposed memory (shared memory only).
    Pull {
        /// Read.
        src: PeerSpan,
        /// Written; as long as `src`.
        dst: Span,
    },
    /// Combines spans of several ranks in the order given, in one pass (shared memory only).
    PullReduce {
        /// Read, left to right. A source whose peer is this rank is read from its own buffers and
        /// need not be exposed.
        srcs: Vec<PeerSpan>,
        /// Written.
        dst: Span,
    },
}

/// One round: steps that may run in any order and overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Round {
    /// The steps.
    pub steps: Vec<Step>,
}

/// What one rank does in one collective.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    /// The rounds, in order.
    pub rounds: Vec<Round>,
    /// Elements of scratch memory that the plan needs.
    pub scratch: usize,
    /// Whether the plan stays right when the send buffer and the receive buffer are the same
    /// memory (in the sense of the collective's in-place rule).
    pub in_place: bool,
}
