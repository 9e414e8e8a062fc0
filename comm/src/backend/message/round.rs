//! One round: its messages, each as far as it is.
//!
//! - ROUND-1: messages of one direction between two ranks go one after the other, in the order of
//!   the steps; everything else progresses side by side.
//! - ROUND-2: a pass touches each message at most once and moves a bounded number of bytes, so no
//!   peer starves another.

use std::ops::Range;

use super::memory::{BOUNCE_BYTES, Memory};
use super::{
    CallsiteCheck, Direction, MessageCall, MessageError, StepField, Streams, Wait, stream_to,
};
use crate::algo::plan::{Span, Step};
use crate::sabotage::{self, Sabotage};
use crate::transport::frame::{FRAME_BYTES, Frame, FrameKind};
use crate::transport::stream::{LinkError, Stream};

/// Payload up to this length is copied behind its frame, so that a small message is one write.
const STAGED_MAX: usize = 4096 - FRAME_BYTES;
/// Most bytes that all messages of a round may have staged; later ones go without.
const STAGE_MAX: usize = 1 << 20;
/// Most bytes that one message moves in one pass.
const PIECE_MAX: usize = 256 * 1024;

/// A message to a peer.
#[derive(Debug)]
struct Sending {
    peer: usize,
    span: Span,
    /// The message to the same peer that must go first.
    after: Option<usize>,
    /// Where the frame, and perhaps the payload, lies in the stage; what is left of it.
    staged: Range<usize>,
    /// Staged bytes in all.
    staged_bytes: usize,
    /// Bytes of payload that are sent from where they lie, once the stage is through.
    direct_from: usize,
    sent: usize,
    bytes: usize,
}

impl Sending {
    fn is_complete(&self) -> bool {
        self.staged.is_empty() && self.sent == self.bytes
    }

    fn is_begun(&self) -> bool {
        self.sent > self.direct_from || self.staged.len() < self.staged_bytes
    }

    /// Moves one piece; returns whether anything moved.
    fn push(&mut self, stream: &mut dyn Stream, memory: &Memory) -> Result<bool, LinkError> {
        let mut moved = false;
        if !self.staged.is_empty() {
            let len = stream.try_write(memory.staged(self.staged.clone()))?;
            self.staged.start += len;
            moved = len > 0;
        }
        if self.staged.is_empty() && self.sent < self.bytes {
            let piece = memory.source(&self.span, self.sent).first(PIECE_MAX);
            let len = stream.write_from(piece)?;
            self.sent += len;
            moved |= len > 0;
        }
        Ok(moved)
    }

    fn wait(&self) -> Wait {
        let through = self.staged_bytes - self.staged.len();
        let staged_payload = through.saturating_sub(FRAME_BYTES);
        Wait {
            peer: self.peer,
            direction: Direction::Send,
            bytes_done: (staged_payload + self.sent - self.direct_from) as u64,
            bytes: self.bytes as u64,
        }
    }
}

/// A message from a peer.
#[derive(Debug)]
struct Receiving {
    peer: usize,
    span: Span,
    /// For a reducing receive: whether what is received is the left operand.
    reduce_first: Option<bool>,
    /// The message from the same peer that must come first.
    after: Option<usize>,
    header: [u8; FRAME_BYTES],
    header_done: usize,
    received: usize,
    bytes: usize,
    /// Bytes of an element whose rest is still to come.
    carry: [u8; 8],
    carried: usize,
    /// What the sender stated, and what arrived so far.
    checksum: Option<(u32, crc32fast::Hasher)>,
    complete: bool,
}

impl Receiving {
    /// Moves one piece; returns whether anything moved.
    fn pull(
        &mut self,
        stream: &mut dyn Stream,
        call: &MessageCall,
        round: usize,
        memory: &mut Memory,
        callsite_check: &mut CallsiteCheck,
    ) -> Result<bool, MessageError> {
        let mut moved = false;
        if self.header_done < FRAME_BYTES {
            let len = self
                .read_header(stream)
                .map_err(|error| self.link_error(error))?;
            if self.header_done < FRAME_BYTES {
                return Ok(len > 0);
            }
            if !self.accept(call, round, callsite_check)? {
                self.header_done = 0;
                return Ok(true);
            }
            moved = true;
        }
        if self.received < self.bytes {
            let len = match self.reduce_first {
                None => self.read_payload(stream, memory),
                Some(first) => self.reduce_payload(stream, memory, first),
            };
            moved |= len.map_err(|error| self.link_error(error))? > 0;
        }
        if self.received == self.bytes {
            self.verify()?;
            self.complete = true;
        }
        Ok(moved)
    }

    fn link_error(&self, error: LinkError) -> MessageError {
        MessageError::Link {
            peer: self.peer,
            error,
        }
    }

    fn read_header(&mut self, stream: &mut dyn Stream) -> Result<usize, LinkError> {
        let len = stream.try_read(&mut self.header[self.header_done..])?;
        self.header_done += len;
        Ok(len)
    }

    /// Compares the frame with what this rank expects; says whether it is a message.
    fn accept(
        &mut self,
        call: &MessageCall,
        round: usize,
        callsite_check: &mut CallsiteCheck,
    ) -> Result<bool, MessageError> {
        let peer = self.peer;
        let frame =
            Frame::decode(&self.header).map_err(|error| MessageError::Frame { peer, error })?;
        let contents = match frame.kind {
            FrameKind::Abort { origin, reason } => Err(MessageError::aborted(peer, origin, reason)),
            // The peer ends the group. Its goodbye ends this call too, and says more.
            FrameKind::Closed => return Ok(false),
            FrameKind::Data {
                round,
                payload,
                checksum,
            } => Ok((round, payload, checksum)),
        };
        let at = |what, mine, theirs| {
            Err(MessageError::OutOfStep {
                peer,
                what,
                mine,
                theirs,
            })
        };
        if frame.group != call.group {
            return at(StepField::Group, call.group, frame.group);
        }
        let differs = call.tag.difference(&frame.tag);
        if frame.seq == call.seq {
            callsite_check.notice(peer, call, &frame)?;
            if let Some(field) = differs {
                return Err(MessageError::Mismatch {
                    peer,
                    field,
                    mine: call.tag,
                    theirs: frame.tag,
                });
            }
        }
        let (their_round, payload, checksum) = contents?;
        let is_expected = frame.seq == call.seq && u64::from(their_round) == round as u64;
        if !is_expected && callsite_check.is_repeated(peer, call, &frame) {
            return Err(MessageError::repeated(peer, &frame, their_round));
        }
        if frame.seq != call.seq {
            return Err(MessageError::other_call(peer, call, &frame, callsite_check));
        }
        if !is_expected {
            return at(StepField::Round, round as u64, u64::from(their_round));
        }
        callsite_check.take(peer, frame.seq, their_round);
        if payload != self.bytes as u64 {
            return Err(MessageError::Length {
                peer,
                round,
                mine: self.bytes as u64,
                theirs: payload,
            });
        }
        self.checksum = checksum.map(|stated| (stated, crc32fast::Hasher::new()));
        Ok(true)
    }

    /// Reads straight into the buffer.
    fn read_payload(
        &mut self,
        stream: &mut dyn Stream,
        memory: &mut Memory,
    ) -> Result<usize, LinkError> {
        let target = memory.target(&self.span, self.received).first(PIECE_MAX);
        let len = stream.read_into(target)?;
        if let Some((_, hasher)) = &mut self.checksum {
            memory.hash(hasher, &self.span, self.received, len);
        }
        self.received += len;
        Ok(len)
    }

    /// Reads a piece into the bounce buffer and reduces the whole elements in it.
    fn reduce_payload(
        &mut self,
        stream: &mut dyn Stream,
        memory: &mut Memory,
        first: bool,
    ) -> Result<usize, LinkError> {
        let size = memory.work().size();
        let carried = self.carried;
        let room = (self.bytes - self.received).min(BOUNCE_BYTES - carried);
        let bounce = memory.bounce();
        bounce[..carried].copy_from_slice(&self.carry[..carried]);
        let len = stream.try_read(&mut bounce[carried..carried + room])?;
        if let Some((_, hasher)) = &mut self.checksum {
            hasher.update(&bounce[carried..carried + len]);
        }
        let (whole, rest) = ((carried + len) / size, (carried + len) % size);
        self.carry[..rest].copy_from_slice(&bounce[whole * size..whole * size + rest]);
        self.carried = rest;
        memory.reduce_bounced(&self.span, (self.received - carried) / size, whole, first);
        self.received += len;
        Ok(len)
    }

    fn verify(&mut self) -> Result<(), MessageError> {
        let Some((stated, hasher)) = self.checksum.take() else {
            return Ok(());
        };
        let computed = hasher.finalize();
        if stated == computed {
            return Ok(());
        }
        Err(MessageError::Checksum {
            peer: self.peer,
            stated,
            computed,
        })
    }

    fn wait(&self) -> Wait {
        Wait {
            peer: self.peer,
            direction: Direction::Recv,
            bytes_done: self.received as u64,
            bytes: self.bytes as u64,
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Round {
    at: usize,
    sends: Vec<Sending>,
    recvs: Vec<Receiving>,
    sends_left: usize,
    recvs_left: usize,
    local_due: bool,
}

impl Round {
    /// Sets up the messages of round `at`; the round before must be complete.
    pub(super) fn enter(
        &mut self,
        at: usize,
        steps: &[Step],
        call: &MessageCall,
        memory: &mut Memory,
    ) {
        self.at = at;
        self.sends.clear();
        self.recvs.clear();
        self.local_due = false;
        memory.clear_stage();
        for step in steps {
            match step {
                Step::Send { to, src } => self.add_send(*to, *src, call, memory),
                Step::Recv { from, dst } => self.add_recv(*from, *dst, None, memory),
                Step::RecvReduce {
                    from,
                    dst,
                    recv_first,
                } => self.add_recv(*from, *dst, Some(*recv_first), memory),
                Step::Copy { .. } | Step::Reduce { .. } => self.local_due = true,
                // Refused when the run was made.
                Step::Expose { .. } | Step::Pull { .. } | Step::PullReduce { .. } => {}
            }
        }
        self.sends_left = self.sends.len();
        self.recvs_left = self.recvs.len();
    }

    fn add_send(&mut self, peer: usize, span: Span, call: &MessageCall, memory: &mut Memory) {
        let bytes = memory.bytes(&span);
        let checksum = call.checksum.then(|| memory.checksum(&span));
        let frame = Frame {
            group: call.group,
            seq: call.seq,
            tag: call.tag,
            mark: call.mark,
            kind: FrameKind::Data {
                round: u32::try_from(self.at).expect("the run refuses longer plans")
                    + u32::from(sabotage::is(Sabotage::Chunk)),
                payload: bytes as u64,
                checksum,
            },
        };
        let small = bytes <= STAGED_MAX && memory.stage_bytes() + bytes <= STAGE_MAX;
        let staged = memory.stage(&frame.encode(), small.then_some(&span));
        let direct_from = if small { bytes } else { 0 };
        self.sends.push(Sending {
            peer,
            span,
            after: self.sends.iter().rposition(|before| before.peer == peer),
            staged_bytes: staged.len(),
            staged,
            direct_from,
            sent: direct_from,
            bytes,
        });
    }

    fn add_recv(&mut self, peer: usize, span: Span, reduce_first: Option<bool>, memory: &Memory) {
        self.recvs.push(Receiving {
            peer,
            span,
            reduce_first,
            after: self.recvs.iter().rposition(|before| before.peer == peer),
            header: [0; FRAME_BYTES],
            header_done: 0,
            received: 0,
            bytes: memory.bytes(&span),
            carry: [0; 8],
            carried: 0,
            checksum: None,
            complete: false,
        });
    }

    /// Whether the round has local steps that have not run; they have after this.
    pub(super) fn take_local(&mut self) -> bool {
        std::mem::take(&mut self.local_due)
    }

    /// Whether all messages are through.
    pub(super) fn is_complete(&self) -> bool {
        self.sends_left == 0 && self.recvs_left == 0
    }

    /// Gives every message one chance to move; returns whether any did.
    pub(super) fn pass(
        &mut self,
        call: &MessageCall,
        memory: &mut Memory,
        callsite_check: &mut CallsiteCheck,
        streams: &mut Streams,
    ) -> Result<bool, MessageError> {
        let mut moved = false;
        if self.sends_left > 0 {
            moved |= self.pass_sends(memory, streams)?;
        }
        if self.recvs_left > 0 {
            moved |= self.pass_recvs(call, memory, callsite_check, streams)?;
        }
        Ok(moved)
    }

    fn pass_sends(&mut self, memory: &Memory, streams: &mut Streams) -> Result<bool, MessageError> {
        let mut moved = false;
        for i in 0..self.sends.len() {
            if !self.may_send(i) {
                continue;
            }
            let sending = &mut self.sends[i];
            let stream = stream_to(streams, sending.peer)?;
            match sending.push(stream, memory) {
                Ok(some) => moved |= some,
                Err(error) => {
                    let peer = sending.peer;
                    return Err(self.last_word(peer, stream, error));
                }
            }
            self.sends_left -= usize::from(sending.is_complete());
        }
        Ok(moved)
    }

    fn pass_recvs(
        &mut self,
        call: &MessageCall,
        memory: &mut Memory,
        callsite_check: &mut CallsiteCheck,
        streams: &mut Streams,
    ) -> Result<bool, MessageError> {
        let mut moved = false;
        for i in 0..self.recvs.len() {
            if !self.may_recv(i) {
                continue;
            }
            let receiving = &mut self.recvs[i];
            let stream = stream_to(streams, receiving.peer)?;
            moved |= receiving.pull(stream, call, self.at, memory, callsite_check)?;
            self.recvs_left -= usize::from(receiving.complete);
        }
        Ok(moved)
    }

    /// Whether send `i` is under way and not behind another one.
    fn may_send(&self, i: usize) -> bool {
        let free = |i: usize| self.sends[i].is_complete();
        !free(i) && self.sends[i].after.is_none_or(free)
    }

    /// Whether receive `i` is under way and not behind another one.
    fn may_recv(&self, i: usize) -> bool {
        let free = |i: usize| self.recvs[i].complete;
        !free(i) && self.recvs[i].after.is_none_or(free)
    }

    /// A peer that gives up says so before it closes, so what it said is looked at before a failed
    /// send is reported. The call is lost either way; bytes may be consumed.
    fn last_word(&self, peer: usize, stream: &mut dyn Stream, error: LinkError) -> MessageError {
        let failed = MessageError::Link { peer, error };
        let under_way = (0..self.recvs.len())
            .find(|i| self.recvs[*i].peer == peer && self.may_recv(*i))
            .map(|i| &self.recvs[i]);
        let (mut header, mut done) = match under_way {
            Some(recv) if recv.header_done == FRAME_BYTES => return failed,
            Some(recv) => (recv.header, recv.header_done),
            None => ([0; FRAME_BYTES], 0),
        };
        while done < FRAME_BYTES {
            match stream.try_read(&mut header[done..]) {
                Ok(0) | Err(_) => return failed,
                Ok(len) => done += len,
            }
        }
        match Frame::decode(&header).map(|frame| frame.kind) {
            Ok(FrameKind::Abort { origin, reason }) => MessageError::aborted(peer, origin, reason),
            Ok(FrameKind::Closed | FrameKind::Data { .. }) | Err(_) => failed,
        }
    }

    /// The messages that are under way and not behind another one.
    pub(super) fn waits(&self) -> impl Iterator<Item = Wait> + '_ {
        let sends = (0..self.sends.len())
            .filter(|i| self.may_send(*i))
            .map(|i| self.sends[i].wait());
        let recvs = (0..self.recvs.len())
            .filter(|i| self.may_recv(*i))
            .map(|i| self.recvs[i].wait());
        recvs.chain(sends)
    }

    /// Whether no part of any message has come.
    pub(super) fn has_nothing(&self) -> bool {
        self.recvs.iter().all(|recv| recv.header_done == 0)
    }

    /// Whether part of a message to this peer is gone and the rest is not.
    pub(super) fn is_inside_message_to(&self, peer: usize) -> bool {
        self.sends
            .iter()
            .any(|send| send.peer == peer && send.is_begun() && !send.is_complete())
    }
}
