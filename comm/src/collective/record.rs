//! What a recording holds of a call.

use crate::backend::links::Message;
use crate::backend::message::Direction;
use crate::backend::{Counts, Request};
use crate::collective::Call;
use crate::types::Collective;
use crate::watch::Place;
use crate::watch::record::{Lengths, Made, MessageLine};

/// Records a collective that begins, where calls are recorded.
#[inline]
pub(super) fn collective(place: &Place, seq: u64, request: &Request<'_>) {
    if let Some((recorder, maker)) = place.recorder(seq) {
        let list = |counts: &[usize]| counts.iter().map(|count| *count as u64).collect();
        let collective = request.collective;
        recorder.made(Made {
            maker,
            call: collective,
            called: request.called,
            dtype: (!collective.is_empty()).then_some(request.dtype),
            op: collective.reduces().then_some(request.op),
            root: collective.is_rooted().then_some(request.root),
            lengths: match request.counts {
                Counts::Uniform(count) => Lengths::One(count as u64),
                Counts::Blocks(counts) => Lengths::Blocks(list(counts)),
                Counts::Splits { send, recv } => Lengths::Splits(list(send), list(recv)),
            },
            messages: Vec::new(),
        });
    }
}

/// Records messages that begin.
pub(super) fn messages(place: &Place, seq: u64, call: Call, messages: &[Message]) {
    if let Some((recorder, maker)) = place.recorder(seq) {
        let line = |message: &Message| MessageLine {
            sends: message.direction == Direction::Send,
            peer: message.peer as u64,
            dtype: message.dtype.name().to_owned(),
            count: message.count as u64,
        };
        // A message from whichever rank sends one first is a receive from that rank.
        let collective = if call.collective == Collective::RecvAny {
            Collective::Recv
        } else {
            call.collective
        };
        recorder.made(Made {
            maker,
            call: collective,
            called: collective,
            dtype: None,
            op: None,
            root: None,
            lengths: Lengths::None,
            messages: messages.iter().map(line).collect(),
        });
    }
}
