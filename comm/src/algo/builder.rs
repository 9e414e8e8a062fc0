//! Puts plans together: rounds in order, steps without elements left out.
//!
//! Generators describe every exchange, also of empty blocks; both ends of a message know its
//! length, so leaving out empty ones here never leaves one end waiting.

use super::plan::{Links, PeerSpan, Plan, Round, Space, Span, Step};

/// A span of the send buffer.
pub(super) const fn input(start: usize, len: usize) -> Span {
    Span::new(Space::In, start, len)
}

/// A span of the receive buffer.
pub(super) const fn output(start: usize, len: usize) -> Span {
    Span::new(Space::Out, start, len)
}

/// A span of the plan's own memory.
pub(super) const fn scratch(start: usize, len: usize) -> Span {
    Span::new(Space::Scratch, start, len)
}

/// A span of a peer's memory.
pub(super) const fn of_peer(peer: usize, span: Span) -> PeerSpan {
    PeerSpan { peer, span }
}

/// A plan in the making. Steps go into the current round until [`Builder::end_round`].
#[derive(Debug)]
pub(super) struct Builder {
    rounds: Vec<Round>,
    current: Vec<Step>,
    exposed: Vec<Step>,
}

impl Builder {
    pub(super) fn new() -> Self {
        Self {
            rounds: Vec::new(),
            current: Vec::new(),
            exposed: Vec::new(),
        }
    }

    pub(super) fn copy(&mut self, src: Span, dst: Span) {
        debug_assert_eq!(src.len, dst.len, "a copy has two ends of one length");
        if src.len > 0 {
            self.current.push(Step::Copy { src, dst });
        }
    }

    pub(super) fn reduce(&mut self, src: Span, dst: Span, src_first: bool) {
        debug_assert_eq!(src.len, dst.len, "a reduction has two ends of one length");
        if src.len > 0 {
            self.current.push(Step::Reduce {
                src,
                dst,
                src_first,
            });
        }
    }

    pub(super) fn send(&mut self, to: usize, src: Span) {
        if src.len > 0 {
            self.current.push(Step::Send { to, src });
        }
    }

    pub(super) fn recv(&mut self, from: usize, dst: Span) {
        if dst.len > 0 {
            self.current.push(Step::Recv { from, dst });
        }
    }

    pub(super) fn recv_reduce(&mut self, from: usize, dst: Span, recv_first: bool) {
        if dst.len > 0 {
            self.current.push(Step::RecvReduce {
                from,
                dst,
                recv_first,
            });
        }
    }

    /// Exposes `span` when the current round is complete.
    pub(super) fn expose(&mut self, span: Span) {
        if span.len > 0 {
            self.exposed.push(Step::Expose { span });
        }
    }

    pub(super) fn pull(&mut self, peer: usize, src: Span, dst: Span) {
        debug_assert_eq!(src.len, dst.len, "a pull has two ends of one length");
        if src.len > 0 {
            self.current.push(Step::Pull {
                src: of_peer(peer, src),
                dst,
            });
        }
    }

    /// Reduces the same-length spans of `srcs`, left to right, into `dst`.
    pub(super) fn pull_reduce(&mut self, srcs: Vec<PeerSpan>, dst: Span) {
        if dst.len > 0 {
            self.current.push(Step::PullReduce { srcs, dst });
        }
    }

    /// Ends the current round, also an empty one: rounds of all ranks stay aligned, so that a
    /// round has one number for everybody.
    pub(super) fn end_round(&mut self) {
        let mut steps = std::mem::take(&mut self.current);
        steps.append(&mut self.exposed);
        self.rounds.push(Round { steps });
    }

    /// Ends rounds until there are so many, so that ranks with fewer stay aligned.
    pub(super) fn end_rounds_up_to(&mut self, rounds: usize) {
        while self.rounds.len() < rounds {
            self.end_round();
        }
    }

    /// Rounds that have ended.
    pub(super) fn rounds(&self) -> usize {
        self.rounds.len()
    }

    /// The plan for message links.
    pub(super) fn message_plan(self, scratch: usize, in_place: bool) -> Plan {
        self.plan(scratch, in_place, Links::Message)
    }

    /// The plan for shared memory.
    pub(super) fn direct_plan(self, scratch: usize, in_place: bool) -> Plan {
        self.plan(scratch, in_place, Links::Direct)
    }

    fn plan(self, scratch: usize, in_place: bool, links: Links) -> Plan {
        debug_assert!(
            self.current.is_empty() && self.exposed.is_empty(),
            "the last round was ended"
        );
        Plan {
            rounds: self.rounds,
            scratch,
            in_place,
            links,
            staged: false,
        }
    }
}
