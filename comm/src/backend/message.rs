//! Runs the message rounds of one [`Plan`] over byte streams, without ever waiting.
//!
//! A [`MessageRun`] is what one rank does in one call. [`MessageRun::poll`] moves whatever can move
//! and says whether the call is done, has moved or is blocked; the caller owns the loop around it,
//! the waiting and the deadline. In one round all messages progress together, so it does not
//! matter that every rank sends before anybody receives.
//!
//! Every message is a frame and its payload. The frame is compared with this rank's own call before
//! a byte of payload is taken: ranks that were called differently get an error that names both
//! sides ([`MessageError::Mismatch`], [`MessageError::OutOfStep`]).
//!
//! This file knows plans, element types and streams; it knows no communicator and no clock.
//!
//! Invariants:
//! - MESSAGE-1: payload goes to its buffer only under a frame that fits the call.
//! - MESSAGE-2: nothing outside the spans of the plan is read or written; they were checked against
//!   the buffers when the run was made.
//! - MESSAGE-3: after an error a run stays failed, and nothing more is sent but the abort.
//! - MESSAGE-4: the result depends on the plan and the inputs, never on timing or on the transport.

#![expect(
    unsafe_code,
    reason = "the buffers of a run are raw, because their owner may share them with peers"
)]

mod callsite_check;
mod memory;
mod round;

use std::sync::Arc;

pub(crate) use self::callsite_check::CallsiteCheck;
use self::memory::Memory;
pub use self::memory::{Buffers, PlanFault, Workspace};
use self::round::Round;
use crate::algo::plan::{Links, Plan, Step};
use crate::transport::frame::{CallTag, Frame, FrameError, FrameKind, TagField};
use crate::transport::stream::{LinkError, Stream};
use crate::types::{DType, ReduceOp};
use crate::watch::Slip;

/// The streams of a group, one place a rank; the own place and peers never met stay empty.
pub type Streams = [Option<Box<dyn Stream>>];

/// One call, as this rank makes it.
#[derive(Clone, Copy, Debug)]
pub struct MessageCall {
    /// This rank's index in the group.
    pub rank: usize,
    /// Number of ranks in the group.
    pub ranks: usize,
    /// Number of ranks whose elements a reduction combines for this one: what an average divides by.
    pub contributors: usize,
    /// The key that all ranks of the group derive.
    pub group: u64,
    /// The number of the call within the group.
    pub seq: u64,
    /// What must be equal on all ranks.
    pub tag: CallTag,
    /// Where in the program the call is made, as 24 bits; 0 for unknown.
    pub mark: u32,
    /// Type of the elements that the plan counts.
    pub dtype: DType,
    /// The reduction; needed if the plan reduces. Must be given for all ranks of a reducing
    /// collective alike, for those too whose own plan only sends: it decides whether halves travel
    /// as f32.
    pub op: Option<ReduceOp>,
    /// Whether messages carry a checksum of their payload. A receiver checks what it is sent.
    pub checksum: bool,
}

/// What a poll has achieved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Nothing could move: wait for the streams named by [`MessageRun::waits`].
    Blocked,
    /// The call is complete: the receive buffer holds its result, and the send buffer is free.
    Done,
    /// Bytes moved or a round ended; poll again.
    Moved,
}

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the peer to this rank.
    Recv,
    /// From this rank to the peer.
    Send,
}

/// One message of the current round that is not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The other rank, as an index into the group.
    pub peer: usize,
    /// Which way the message goes.
    pub direction: Direction,
    /// Bytes of payload that went through.
    pub bytes_done: u64,
    /// Bytes of payload of the message.
    pub bytes: u64,
}

/// Where a run stands: "round 7 of 14, waiting for rank 2".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The round, from 0; equal to `rounds` once done.
    pub round: usize,
    /// Number of rounds.
    pub rounds: usize,
    /// The messages of this round that are not complete.
    pub waits: Vec<Wait>,
}

/// One rank's part of one call, under way. See the module.
#[derive(Debug)]
pub struct MessageRun {
    plan: Arc<Plan>,
    call: MessageCall,
    memory: Memory,
    /// The round that is under way, and how far it is.
    at: usize,
    round: Round,
    callsite_check: CallsiteCheck,
    done: bool,
    failed: Option<MessageError>,
}

impl MessageRun {
    /// Prepares a run; nothing is sent before the first poll.
    ///
    /// `workspace` is memory of an earlier run ([`MessageRun::into_workspace`]) or a new one.
    ///
    /// # Safety
    /// Until the run is dropped or done:
    /// - the send buffer is readable and nobody in this process writes it,
    /// - the receive buffer is readable and writable and nobody else in this process touches it.
    ///
    /// The two may overlap, as the in-place rule of the collective says.
    ///
    /// # Errors
    /// [`MessageError::Plan`] if the plan does not fit the call, [`MessageError::NoMemory`].
    pub unsafe fn new(
        plan: Arc<Plan>,
        call: MessageCall,
        buffers: Buffers,
        workspace: Workspace,
    ) -> Result<Self, MessageError> {
        check_peers(&plan, &call)?;
        // SAFETY: the caller's promise about the buffers is the same, and the run keeps the memory.
        let memory = unsafe { Memory::new(&plan, &call, buffers, workspace) }?;
        let mut run = Self {
            plan,
            call,
            memory,
            at: 0,
            round: Round::default(),
            callsite_check: CallsiteCheck::default(),
            done: false,
            failed: None,
        };
        run.enter();
        Ok(run)
    }

    /// Has the run look at where its peers make their calls; gives back what it looked with before.
    pub(crate) fn set_heed(&mut self, callsite_check: CallsiteCheck) -> CallsiteCheck {
        std::mem::replace(&mut self.callsite_check, callsite_check)
    }

    /// Moves whatever can move now.
    ///
    /// # Errors
    /// [`MessageError`]; the same one from then on.
    pub fn poll(&mut self, streams: &mut Streams) -> Result<Progress, MessageError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let progress = self.advance(streams);
        if let Err(error) = progress {
            self.failed = Some(error);
        }
        progress
    }

    /// Where the run stands.
    #[must_use]
    pub fn position(&self) -> Position {
        Position {
            round: self.at,
            rounds: self.plan.rounds.len(),
            waits: self.waits().collect(),
        }
    }

    /// The messages of this round that are not complete and not queued behind another one.
    ///
    /// Allocates nothing: it may be asked before every wait.
    pub fn waits(&self) -> impl Iterator<Item = Wait> + '_ {
        self.round.waits()
    }

    /// Whether no part of a message has come yet.
    #[must_use]
    pub(crate) fn has_nothing(&self) -> bool {
        self.at == 0 && !self.done && self.round.has_nothing()
    }

    /// The round that is under way, from 0, and the number of rounds.
    #[must_use]
    pub fn rounds(&self) -> (usize, usize) {
        (self.at, self.plan.rounds.len())
    }

    /// Tells all peers that this rank gives the call up, as far as that is possible at once.
    ///
    /// Where a message is half sent, nothing can follow it, so that stream is reset; on the others
    /// the abort takes the place of the next message. Keep the streams for a moment afterwards:
    /// closing a TCP connection with unread bytes discards what is underway.
    pub fn abort(&mut self, streams: &mut Streams, origin: u32, reason: u32) {
        let frame = Frame {
            group: self.call.group,
            seq: self.call.seq,
            tag: self.call.tag,
            mark: self.call.mark,
            kind: FrameKind::Abort { origin, reason },
        };
        let bytes = frame.encode();
        for (peer, stream) in streams.iter_mut().enumerate() {
            let Some(stream) = stream else { continue };
            let whole = !self.round.is_inside_message_to(peer)
                && stream.try_write(&bytes) == Ok(bytes.len());
            if !whole {
                stream.reset();
            }
        }
        let aborted = MessageError::aborted(self.call.rank, origin, reason);
        self.failed.get_or_insert(aborted);
    }

    /// Ends the run and gives its memory back for the next one.
    #[must_use]
    pub fn into_workspace(self) -> Workspace {
        self.memory.into_workspace()
    }

    fn advance(&mut self, streams: &mut Streams) -> Result<Progress, MessageError> {
        let mut moved = false;
        loop {
            let Some(steps) = self.plan.rounds.get(self.at) else {
                if !self.done {
                    self.memory.finish();
                    self.done = true;
                }
                return Ok(Progress::Done);
            };
            moved |= self.round.pass(
                &self.call,
                &mut self.memory,
                &mut self.callsite_check,
                streams,
            )?;
            if self.round.take_local() {
                run_local(&self.memory, &steps.steps);
                moved = true;
            }
            if !self.round.is_complete() {
                break;
            }
            self.at += 1;
            self.enter();
            moved = true;
        }
        Ok(if moved {
            Progress::Moved
        } else {
            Progress::Blocked
        })
    }

    /// Sets the messages of the round up.
    fn enter(&mut self) {
        if let Some(round) = self.plan.rounds.get(self.at) {
            // The round of staging has no messages, and no number.
            let number = self.at.saturating_sub(self.plan.staged.into());
            self.round
                .enter(number, &round.steps, &self.call, &mut self.memory);
        }
    }
}

/// The steps of a round that need no peer.
fn run_local(memory: &Memory, steps: &[Step]) {
    for step in steps {
        match step {
            Step::Copy { src, dst } => memory.copy(src, dst),
            Step::Reduce {
                src,
                dst,
                src_first,
            } => memory.reduce(src, dst, *src_first),
            Step::Send { .. }
            | Step::Recv { .. }
            | Step::RecvReduce { .. }
            | Step::Expose { .. }
            | Step::Pull { .. }
            | Step::PullReduce { .. } => {}
        }
    }
}

/// Whether every step is a message to another rank of the group, or needs nobody.
fn check_peers(plan: &Plan, call: &MessageCall) -> Result<(), MessageError> {
    let refuse = |round: usize, what| Err(MessageError::Plan { round, what });
    if u32::try_from(plan.rounds.len()).is_err() {
        return refuse(plan.rounds.len(), PlanFault::Rounds);
    }
    // Such a plan counts on a barrier after each round, whatever its steps.
    if plan.links == Links::Direct {
        return refuse(plan.rounds.len(), PlanFault::DirectStep);
    }
    for (at, round) in plan.rounds.iter().enumerate() {
        for step in &round.steps {
            let peer = match step {
                Step::Send { to, .. } => *to,
                Step::Recv { from, .. } | Step::RecvReduce { from, .. } => *from,
                Step::Copy { .. } | Step::Reduce { .. } => continue,
                Step::Expose { .. } | Step::Pull { .. } | Step::PullReduce { .. } => {
                    return refuse(at, PlanFault::DirectStep);
                }
            };
            if peer >= call.ranks || peer == call.rank {
                return refuse(at, PlanFault::Peer);
            }
        }
    }
    Ok(())
}

/// Why a run cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The payload is not what the sender sent.
    #[error(
        "payload of rank {peer} has checksum {computed:#010x}, the sender stated {stated:#010x}"
    )]
    Checksum {
        /// The sender.
        peer: usize,
        /// What the sender computed.
        stated: u32,
        /// What arrived.
        computed: u32,
    },
    /// What came from a peer is no frame.
    #[error("rank {peer} sent no frame: {error}")]
    Frame {
        /// The sender.
        peer: usize,
        /// What is wrong with it.
        error: FrameError,
    },
    /// Sender and receiver of one message plan different lengths.
    #[error("rank {peer} sends {theirs} bytes in round {round}, this rank expects {mine}")]
    Length {
        /// The sender.
        peer: usize,
        /// The round.
        round: usize,
        /// What this rank expects.
        mine: u64,
        /// What the peer sends.
        theirs: u64,
    },
    /// The link to a peer failed.
    #[error("link to rank {peer}: {error}")]
    Link {
        /// The peer.
        peer: usize,
        /// How.
        error: LinkError,
    },
    /// A peer was called differently.
    #[error("{field} differs from rank {peer}: this rank has {mine:?}, the peer has {theirs:?}")]
    Mismatch {
        /// The peer.
        peer: usize,
        /// The most telling field in which the calls differ.
        field: TagField,
        /// This rank's call.
        mine: CallTag,
        /// The peer's call.
        theirs: CallTag,
    },
    /// A peer, or this rank, has left calls out, by where in the program they are.
    #[error("out of step with rank {peer}: {slip:?}")]
    Slipped {
        /// The peer.
        peer: usize,
        /// How; member 0 is this rank, member 1 the peer.
        slip: Slip,
        /// This rank's call.
        mine: CallTag,
        /// The peer's call.
        theirs: CallTag,
    },
    /// The plan needs a peer to which there is no stream.
    #[error("there is no link to rank {peer}")]
    NoLink {
        /// The peer.
        peer: usize,
    },
    /// The run needs memory that the system does not give.
    #[error("no memory for {bytes} bytes of scratch")]
    NoMemory {
        /// Bytes asked for.
        bytes: usize,
    },
    /// A peer is in another call.
    #[error("rank {peer} is at call {theirs}, this rank at {mine}")]
    OtherCall {
        /// The peer.
        peer: usize,
        /// Number of this rank's call.
        mine: u64,
        /// Number of the peer's call.
        theirs: u64,
        /// The peer's call.
        tag: CallTag,
    },
    /// A peer is in another group, or elsewhere in this call.
    #[error("rank {peer} is at {what} {theirs}, this rank at {mine}")]
    OutOfStep {
        /// The peer.
        peer: usize,
        /// What differs.
        what: StepField,
        /// This rank's.
        mine: u64,
        /// The peer's.
        theirs: u64,
    },
    /// A peer, or this rank itself, gave the call up.
    #[error("rank {peer} gave up after rank {origin} failed (reason {reason})")]
    PeerAborted {
        /// Who said so.
        peer: usize,
        /// Where it began, as far as the peer knows.
        origin: u32,
        /// A number that the layers above agree on.
        reason: u32,
    },
    /// A message that was taken before has come once more.
    #[error("the message of rank {peer} in call {seq}, round {round}, came once more")]
    Repeated {
        /// The sender.
        peer: usize,
        /// Its call.
        seq: u64,
        /// The round.
        round: u32,
    },
    /// The plan does not fit the call: a fault of whoever made it.
    #[error("round {round} of the plan {what}")]
    Plan {
        /// The round; the number of rounds for the plan as a whole.
        round: usize,
        /// What is wrong.
        what: PlanFault,
    },
}

/// What ranks can be out of step in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum StepField {
    /// The group key.
    #[error("group")]
    Group,
    /// The round of the plan.
    #[error("round")]
    Round,
}

/// The stream to a peer.
fn stream_to(
    streams: &mut Streams,
    peer: usize,
) -> Result<&mut (dyn Stream + 'static), MessageError> {
    let Some(Some(stream)) = streams.get_mut(peer) else {
        return Err(MessageError::NoLink { peer });
    };
    Ok(stream.as_mut())
}
