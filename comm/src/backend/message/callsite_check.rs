//! Where the peers of a message call make it, and whether that says that a call was left out.

use std::collections::VecDeque;

use super::{MessageCall, MessageError};
use crate::transport::frame::{CallTag, Frame, FrameKind, TagField};
use crate::types::Collective;
use crate::watch::{CallsiteHistory, Mark};

/// What is known of each peer that sends to this rank.
#[derive(Debug, Default)]
pub(crate) struct CallsiteCheck {
    peers: Vec<Option<Peer>>,
    /// The last calls of this rank.
    own: VecDeque<OwnCall>,
    /// The last message of each peer that was taken: number of the call, and round in it.
    taken: Vec<Option<(u64, u32)>>,
}

/// Calls of this rank that are remembered, for peers that sent nothing to it in them.
const OWN_MAX: usize = 64;

/// A call of this rank.
#[derive(Debug)]
struct OwnCall {
    seq: u64,
    mark: Mark,
    tag: CallTag,
}

#[derive(Debug)]
struct Peer {
    /// Of this rank and the peer.
    trail: CallsiteHistory,
    /// The call up to which it goes.
    seq: u64,
}

impl MessageError {
    /// The peer said that the call is given up.
    pub(super) const fn aborted(peer: usize, origin: u32, reason: u32) -> Self {
        Self::PeerAborted {
            peer,
            origin,
            reason,
        }
    }

    /// A frame that was here before.
    pub(super) fn repeated(peer: usize, frame: &Frame, round: u32) -> Self {
        let seq = frame.seq;
        Self::Repeated { peer, seq, round }
    }

    /// A frame of another call than the one that this rank is in.
    pub(super) fn other_call(
        peer: usize,
        call: &MessageCall,
        frame: &Frame,
        callsite_check: &CallsiteCheck,
    ) -> Self {
        if let Some((field, own)) = callsite_check.made_differently(frame) {
            return Self::Mismatch {
                peer,
                field,
                mine: own,
                theirs: frame.tag,
            };
        }
        let (mine, theirs, tag) = (call.seq, frame.seq, frame.tag);
        Self::OtherCall {
            peer,
            mine,
            theirs,
            tag,
        }
    }
}

impl CallsiteCheck {
    /// One that pays attention to this many ranks.
    pub(crate) fn of(ranks: usize) -> Self {
        Self {
            peers: (0..ranks).map(|_| None).collect(),
            own: VecDeque::with_capacity(OWN_MAX),
            taken: vec![None; ranks],
        }
    }

    /// A call of this rank begins.
    pub(crate) fn begin(&mut self, seq: u64, mark: Mark, tag: CallTag) {
        if self.own.len() == OWN_MAX {
            self.own.pop_front();
        }
        self.own.push_back(OwnCall { seq, mark, tag });
    }

    /// Where this rank made the call of a frame, as far as it remembers, and made it differently: in what, and how.
    pub(crate) fn made_differently(&self, frame: &Frame) -> Option<(TagField, CallTag)> {
        let own = self.own.iter().find(|own| own.seq == frame.seq)?;
        Some((own.tag.difference(&frame.tag)?, own.tag))
    }

    /// A message of a peer is taken.
    pub(super) fn take(&mut self, peer: usize, seq: u64, round: u32) {
        if let Some(taken) = self.taken.get_mut(peer) {
            *taken = Some((seq, round));
        }
    }

    /// Whether a frame that is not the one expected was here before: messages between two ranks come in
    /// the order of calls and rounds, so nobody sends an earlier one by right.
    pub(super) fn is_repeated(&self, peer: usize, call: &MessageCall, frame: &Frame) -> bool {
        let FrameKind::Data { round, .. } = frame.kind else {
            return false;
        };
        // Messages outside collectives are counted by peer, without a gap.
        if call.tag.collective == Collective::SendRecvBatch as u8 {
            return frame.seq < call.seq;
        }
        let taken = self.taken.get(peer).copied().flatten();
        taken.is_some_and(|last| (frame.seq, round) <= last)
    }

    /// Takes note of the first frame of a peer in this call.
    pub(super) fn notice(
        &mut self,
        peer: usize,
        call: &MessageCall,
        frame: &Frame,
    ) -> Result<(), MessageError> {
        let Some(known) = self.peers.get_mut(peer) else {
            return Ok(());
        };
        let known = known.get_or_insert_with(|| Peer {
            trail: CallsiteHistory::new(2),
            seq: 0,
        });
        if known.seq >= call.seq || call.mark == 0 {
            return Ok(());
        }
        // In calls in which the peer sent nothing to this rank it is taken to have been where this rank
        // was.
        let between = self
            .own
            .iter()
            .filter(|own| (known.seq + 1..call.seq).contains(&own.seq));
        between.for_each(|own| known.trail.together(own.mark));
        known.seq = call.seq;
        let differs = call.tag.difference(&frame.tag).is_some();
        let (mine, theirs) = (Mark(call.mark), Mark(frame.mark));
        if mine == theirs && !differs {
            known.trail.together(mine);
            return Ok(());
        }
        let is_barrier = |tag: &CallTag| tag.collective == Collective::Barrier as u8;
        let slip = known
            .trail
            .apart([mine, theirs].into_iter(), differs, is_barrier(&call.tag));
        slip.map_or(Ok(()), |slip| {
            Err(MessageError::Slipped {
                peer,
                slip,
                mine: call.tag,
                theirs: frame.tag,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::DType;

    fn call(collective: Collective, seq: u64) -> MessageCall {
        MessageCall {
            rank: 0,
            ranks: 2,
            contributors: 2,
            group: 9,
            seq,
            tag: CallTag {
                collective: collective as u8,
                dtype: DType::F32 as u8,
                op: 0,
                algo: 1,
                root: CallTag::NO_ROOT,
                count: 8,
                count_hash: 0,
            },
            mark: 0,
            dtype: DType::F32,
            op: None,
            checksum: false,
        }
    }

    fn frame(call: &MessageCall, seq: u64, round: u32) -> Frame {
        Frame {
            group: call.group,
            seq,
            tag: call.tag,
            mark: 0,
            kind: FrameKind::Data {
                round,
                payload: 32,
                checksum: None,
            },
        }
    }

    #[test]
    fn a_frame_of_an_earlier_call_is_compared_with_what_this_rank_made_then() {
        let reduce = |root| MessageCall {
            tag: CallTag {
                root,
                ..call(Collective::Reduce, 4).tag
            },
            ..call(Collective::Reduce, 4)
        };
        let (own, theirs, now) = (reduce(0), reduce(1), call(Collective::Barrier, 5));
        let mut callsite_check = CallsiteCheck::of(2);
        for call in [&own, &now] {
            callsite_check.begin(call.seq, Mark(0), call.tag);
        }
        let found = MessageError::other_call(1, &now, &frame(&theirs, 4, 0), &callsite_check);
        let wanted = MessageError::Mismatch {
            peer: 1,
            field: TagField::Root,
            mine: own.tag,
            theirs: theirs.tag,
        };
        assert_eq!(found, wanted);
        // What was made alike, or is not remembered, is only another call.
        for (made, seq) in [(&own, 4), (&theirs, 3)] {
            let found = MessageError::other_call(1, &now, &frame(made, seq, 0), &callsite_check);
            assert!(matches!(found, MessageError::OtherCall { .. }), "{found:?}");
        }
    }

    #[test]
    fn what_was_taken_before_is_a_repetition_and_what_was_not_is_none() {
        let call = call(Collective::AllGather, 7);
        let mut callsite_check = CallsiteCheck::of(2);
        let is_repeated = |callsite_check: &CallsiteCheck, seq, round| {
            callsite_check.is_repeated(1, &call, &frame(&call, seq, round))
        };
        // A call of the peer that this rank never took anything of: the two are out of step.
        assert!(!is_repeated(&callsite_check, 6, 0));
        callsite_check.take(1, 6, 2);
        assert!(is_repeated(&callsite_check, 6, 2));
        assert!(is_repeated(&callsite_check, 6, 1));
        assert!(is_repeated(&callsite_check, 5, 3));
        assert!(!is_repeated(&callsite_check, 6, 3));
        assert!(!is_repeated(&callsite_check, 8, 0));
    }

    #[test]
    fn messages_outside_collectives_are_counted_without_a_gap() {
        let call = call(Collective::SendRecvBatch, 7);
        let callsite_check = CallsiteCheck::default();
        assert!(callsite_check.is_repeated(1, &call, &frame(&call, 6, 0)));
        assert!(!callsite_check.is_repeated(1, &call, &frame(&call, 8, 0)));
    }
}
