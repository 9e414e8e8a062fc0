//! What can be wrong with plans, and where.

use std::fmt;

use super::super::plan::{Links, Space};
use super::super::schedule::Wait;

/// Something wrong with the plans of a problem, and where it shows first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defect {
    /// The rank whose plan is wrong, or shows it.
    pub rank: usize,
    /// The round, counted from 0; none where the defect is not in one round.
    pub round: Option<usize>,
    /// The step within the round, counted from 0.
    pub step: Option<usize>,
    /// Whether it is wrong only when send and receive buffer are the same memory.
    pub in_place: bool,
    /// What is wrong.
    pub kind: DefectKind,
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.in_place {
            f.write_str("in an in-place call: ")?;
        }
        write!(f, "rank {}", self.rank)?;
        if let Some(round) = self.round {
            write!(f, " round {round}")?;
        }
        if let Some(step) = self.step {
            write!(f, " step {step}")?;
        }
        write!(f, ": {}", self.kind)
    }
}

impl std::error::Error for Defect {}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DefectKind {
    /// Two ranks reduce one element in different orders, so that they may differ in the last bit.
    #[error("element {element} is reduced in another order than on rank {other}")]
    Association {
        /// The element of the receive buffer.
        element: usize,
        /// The rank that does it otherwise.
        other: usize,
    },
    /// A step reaches past the end of a buffer.
    #[error("a span of {space:?} ends at element {end}, and the buffer has {limit}")]
    Bounds {
        /// The buffer.
        space: Space,
        /// Where the span ends.
        end: usize,
        /// Elements of the buffer.
        limit: usize,
    },
    /// PLAN-1: a step writes what another step of its round reads or writes.
    #[error("it writes element {element} of {space:?}, which step {other} of the round uses too")]
    Conflict {
        /// The other step.
        other: usize,
        /// The buffer, as the writer calls it.
        space: Space,
        /// The first element that both use.
        element: usize,
    },
    /// Ranks wait for one another.
    #[error("nobody can go on: {}", chain(waits))]
    Deadlock {
        /// Who waits where for whom.
        waits: Vec<Wait>,
    },
    /// A contribution goes into a sum that holds it already.
    #[error("the contribution of rank {contributor} to element {element} is counted twice")]
    Doubled {
        /// Whose contribution.
        contributor: usize,
        /// The element of its send buffer.
        element: usize,
    },
    /// A span without elements.
    #[error("a span has no elements")]
    EmptySpan,
    /// The two ends of a step differ in length.
    #[error("it reads {read} elements and writes {written}")]
    Lengths {
        /// Elements read.
        read: usize,
        /// Elements written.
        written: usize,
    },
    /// The ranks' plans are for different links, or hold steps that their links do not carry.
    #[error("a step or plan that needs direct links among plans for {links} links")]
    Links {
        /// The links of this rank's plan.
        links: Links,
    },
    /// An element of the result lacks a contribution.
    #[error("element {element} of the result lacks the contribution of rank {contributor}")]
    Lacks {
        /// The element of the receive buffer.
        element: usize,
        /// Whose contribution.
        contributor: usize,
    },
    /// A receive meets a send of another length.
    #[error(
        "recv of {received} elements from rank {peer} meets a send of {sent} (its round \
         {peer_round})"
    )]
    MessageLength {
        /// The sender.
        peer: usize,
        /// The sender's round.
        peer_round: usize,
        /// Elements sent.
        sent: usize,
        /// Elements that the receive is for.
        received: usize,
    },
    /// Elements that do not belong together are reduced.
    #[error("it combines element {left} of the send buffers with element {right}")]
    Mixed {
        /// Element of the left operand.
        left: usize,
        /// Element of the right operand.
        right: usize,
    },
    /// The plan says itself that it is not for in-place calls.
    #[error("the plan is not for in-place calls")]
    NotInPlace,
    /// A step reads and writes the same memory.
    #[error("it writes element {element} of {space:?}, which it reads itself")]
    OwnSource {
        /// The buffer written.
        space: Space,
        /// The first element in question.
        element: usize,
    },
    /// The problem holds what one rank knows, and a proof is about all of them.
    #[error("only the counts of this rank are known, so the plans of all cannot be checked")]
    PartialCounts,
    /// A plan for every rank is wanted.
    #[error("{got} plans for {n} ranks")]
    PlanCount {
        /// Plans given.
        got: usize,
        /// Ranks.
        n: usize,
    },
    /// PLAN-4: a peer's memory is read in the round in which the peer writes to it.
    #[error(
        "it reads element {element} of {space:?} of rank {peer}, who writes there in this round"
    )]
    Race {
        /// The peer.
        peer: usize,
        /// The buffer.
        space: Space,
        /// The first element in question.
        element: usize,
    },
    /// PLAN-3: a message is sent in a round of another number than that in which it is received.
    #[error("recv in round {mine} meets a send of rank {peer} in round {theirs}")]
    RoundNumber {
        /// The sender.
        peer: usize,
        /// The number of the receiver's round.
        mine: usize,
        /// The number of the sender's round.
        theirs: usize,
    },
    /// PLAN-2: ranks of a direct plan have different numbers of rounds.
    #[error("the plan has {rounds} rounds, and that of rank 0 has {first}")]
    Rounds {
        /// Rounds of this plan.
        rounds: usize,
        /// Rounds of the plan of rank 0.
        first: usize,
    },
    /// A step names this rank itself, or a rank that is not in the group.
    #[error("rank {peer} is no peer in a group of {n}")]
    Peer {
        /// The rank named.
        peer: usize,
        /// Ranks of the group.
        n: usize,
    },
    /// A reduction over no sources.
    #[error("it reduces no sources")]
    NoSources,
    /// Something is read before anything was put there.
    #[error("it reads element {element} of {space:?}, which holds nothing yet")]
    Undefined {
        /// The buffer.
        space: Space,
        /// The first element in question.
        element: usize,
    },
    /// PLAN-4: a peer's memory is read that the peer does not expose.
    #[error("it reads element {element} of {space:?} of rank {peer}, which is not exposed")]
    Unexposed {
        /// The peer.
        peer: usize,
        /// The buffer.
        space: Space,
        /// The first element of the span.
        element: usize,
    },
    /// A barrier lets a rank go that another has not reached.
    #[error("it leaves the barrier without having heard from rank {other}")]
    Unheard {
        /// The rank that may not have come.
        other: usize,
    },
    /// A receive that no send meets.
    #[error("recv of {len} elements from rank {from} meets no send")]
    UnmatchedRecv {
        /// The peer that should send.
        from: usize,
        /// Elements that the receive is for.
        len: usize,
    },
    /// A send that no receive meets.
    #[error("send of {len} elements to rank {to} meets no recv")]
    UnmatchedSend {
        /// The peer that should receive.
        to: usize,
        /// Elements sent.
        len: usize,
    },
    /// An element of the result that nothing was written to.
    #[error("element {element} of the result is never written")]
    Unwritten {
        /// The element of the receive buffer.
        element: usize,
    },
    /// A step writes to the send buffer.
    #[error("it writes to the send buffer")]
    WritesIn,
    /// An element of the result holds something else.
    #[error("element {element} of the result holds {got}, not {want}")]
    Wrong {
        /// The element of the receive buffer.
        element: usize,
        /// What should be there.
        want: String,
        /// What is there.
        got: String,
    },
}

fn chain(waits: &[Wait]) -> String {
    let waits: Vec<String> = waits
        .iter()
        .map(|wait| {
            format!(
                "rank {} in round {} waits for rank {}",
                wait.at.rank, wait.at.round, wait.peer
            )
        })
        .collect();
    waits.join(", ")
}
