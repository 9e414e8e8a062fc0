//! The plan: an algorithm as data.
//!
//! A [`Plan`] is what ONE rank does in ONE collective, as rounds of steps over spans of three
//! buffers. It knows element counts, never element types, addresses or links. The plans of all
//! ranks together are checked by `check`, priced by `cost`, drawn by `draw` and run by the engine
//! of the host backend.
//!
//! Invariants, proved by the checker for every registered algorithm:
//! - PLAN-1: the steps of one round touch disjoint memory, except that several may read one span.
//!   So a round may be run in any order, and the engine may overlap its steps. An `Expose` touches
//!   nothing: it takes effect when its round is complete, and generators put it last. A `Copy`
//!   whose two ends are the same memory (an in-place call) is no step at all.
//! - PLAN-2: a round begins when the round before it is complete on this rank. A plan for
//!   [`Links::Message`] needs no more than that. In a plan for [`Links::Direct`] a round begins
//!   when EVERY rank of the group has completed the round before, all ranks have equally many
//!   rounds (empty ones where a rank has nothing to do), and the plan ends on no rank before all
//!   have completed their last round: one barrier of the engine after each round.
//! - PLAN-3: messages between an ordered pair of ranks are matched in the order of rounds, and in
//!   the order of steps within a round. Both ends stand in rounds of one number, which the message
//!   carries. A send may wait for its receive (rendezvous semantics).
//! - PLAN-4: a span that was exposed in round k is readable by peers from round k+1 on, until its
//!   owner writes to it. No peer reads an element in the round in which its owner writes it, or
//!   after that, unless it was exposed anew.

use serde::Serialize;

/// What the plan's steps need of the links between the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Links {
    /// All ranks of the group share memory: `Expose`, `Pull` and `PullReduce` may be used.
    Direct,
    /// Messages only.
    Message,
}

impl Links {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::Direct, Self::Message];

    /// The word used in selection tables and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Message => "message",
        }
    }
}

impl std::fmt::Display for Links {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// Which buffer a span lies in. With an in-place call, `In` and `Out` are the same memory for the
/// collectives whose buffers are equal in length; plans must say whether they allow that
/// (see [`Plan::in_place`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Space {
    /// The send buffer; never written.
    In,
    /// The receive buffer.
    Out,
    /// Memory of the plan's own, [`Plan::scratch`] elements, undefined at the start.
    Scratch,
}

/// A run of elements in one of the three buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct PeerSpan {
    /// The peer, as an index into the group.
    pub peer: usize,
    /// The span, in the PEER's buffers. It must lie within one span that the peer exposed.
    pub span: Span,
}

/// One step. Peers are indices into the group.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "step", rename_all = "snake_case")]
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
    /// Lets peers read this span from the next round on (shared memory only). It shows what the
    /// span holds when the round is complete, so it may stand beside the step that fills it.
    Expose {
        /// The span; readable until this rank writes to it.
        span: Span,
    },
    /// Copies from a peer's exposed memory (shared memory only).
    Pull {
        /// Read.
        src: PeerSpan,
        /// Written; as long as `src`.
        dst: Span,
    },
    /// Combines spans of several ranks in the order given, `((a op b) op c) op …`, in one pass
    /// over the elements (shared memory only).
    PullReduce {
        /// Read, left to right. A source whose peer is this rank is read from its own buffers and
        /// need not be exposed; in an in-place call it may be the same memory as `dst`.
        srcs: Vec<PeerSpan>,
        /// Written.
        dst: Span,
    },
}

impl Step {
    /// Elements of the message that the step sends or receives; none for other steps.
    #[must_use]
    pub const fn message_len(&self) -> Option<usize> {
        match self {
            Self::Send { src, .. } => Some(src.len),
            Self::Recv { dst, .. } | Self::RecvReduce { dst, .. } => Some(dst.len),
            Self::Copy { .. }
            | Self::Expose { .. }
            | Self::Pull { .. }
            | Self::PullReduce { .. }
            | Self::Reduce { .. } => None,
        }
    }
}

/// One round: steps that may run in any order and overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Round {
    /// The steps.
    pub steps: Vec<Step>,
}

/// What one rank does in one collective.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Plan {
    /// The rounds, in order.
    pub rounds: Vec<Round>,
    /// Elements of scratch memory that the plan needs.
    pub scratch: usize,
    /// Whether the plan stays right when the send buffer and the receive buffer are the same
    /// memory (in the sense of the collective's in-place rule, see [`super::Problem`]).
    pub in_place: bool,
    /// What the steps need of the links, and so where the barriers of PLAN-2 stand.
    pub links: Links,
    /// Whether the first round is a copy of the send buffer that ranks whose buffers are apart do not
    /// make. Rounds are counted without it where they are compared between ranks.
    pub staged: bool,
}
