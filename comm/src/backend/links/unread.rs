//! Messages that came over the streams of a group and that no call of this rank has taken.

use super::open::{attach_ring, region_of};
use super::remote;
use super::{Links, Plane, describe, field_of};
use crate::backend::message::Direction;
use crate::context::{Context, Identity, Status, Unread};
use crate::error::verdict::CallId;
use crate::error::{ErrorKind, Field};
use crate::transport::frame::{FRAME_BYTES, Frame, FrameKind};
use crate::transport::{CallTag, Stream};
use crate::types::{DType, Rank};

impl Links {
    /// The first message that a peer has sent and no call has taken, or that this rank has sent in vain. `seq` is the number
    /// of this rank's last collective. The streams are not used again.
    pub(crate) fn unread(
        &mut self,
        context: &Context,
        group: &Identity,
        seq: u64,
    ) -> Option<Unread> {
        if let Some(net) = &context.net {
            net.listener.end(group.key);
        }
        self.make_places(group.len());
        let peers = (0..group.len()).filter(|peer| *peer != group.me);
        let planes = [Plane::Collective, Plane::PointToPoint];
        let found = peers
            .flat_map(|peer| planes.map(|plane| (peer, plane)))
            .find_map(|(peer, plane)| {
                let counters = &self.counters;
                let [sent, received] = [Direction::Send, Direction::Recv]
                    .map(|direction| counters.count(direction, peer));
                let held = self.plane(plane).get_mut(peer)?;
                // It stays: its end would look like a broken link to a peer that waits for another rank.
                let stream = match held {
                    Some(stream) => stream,
                    None => held.insert(never_taken(context, group, plane, peer)?),
                };
                if plane == Plane::PointToPoint && stream.kind().is_network() {
                    say_closed(stream.as_mut(), group.key, received);
                }
                let frame = last_look(stream.as_mut());
                let frame = frame.filter(|frame| frame.group == group.key)?;
                match (frame.kind, plane) {
                    (FrameKind::Data { .. }, Plane::Collective) => {
                        Some(self.of_collective(group, peer, &frame, seq))
                    }
                    (FrameKind::Data { .. }, Plane::PointToPoint) => {
                        self.of_message(group, peer, &frame)
                    }
                    (FrameKind::Closed, _) => {
                        let receiver = group.members[peer];
                        let is_lost = frame.seq < sent;
                        is_lost.then(|| sent_in_vain(group.key, context.rank, receiver))
                    }
                    (FrameKind::Abort { .. }, _) => None,
                }
            });
        let in_vain = |receiver| sent_in_vain(group.key, context.rank, receiver);
        found
            .or_else(|| {
                let streams = self.plane(Plane::PointToPoint).iter().enumerate();
                let has_lost = |stream: &Option<Box<dyn Stream>>| {
                    stream.as_ref().is_some_and(|stream| stream.has_lost())
                };
                let mut lost = streams.filter(|(_, stream)| has_lost(stream));
                lost.next().map(|(peer, _)| in_vain(group.members[peer]))
            })
            .or_else(|| {
                let mut rings = self.rings.iter();
                let receiver = rings.find_map(|ring| ring.unread_by(&context.status));
                receiver.map(in_vain)
            })
    }

    /// Whether messages of this rank lie in shared memory that a rank which is there may still read.
    pub(crate) fn is_unsettled(&self, status: &Status) -> bool {
        self.rings.iter().any(|ring| ring.is_unsettled(status))
    }

    /// A message of a collective that this rank made differently, or not at all.
    fn of_collective(&self, group: &Identity, peer: usize, frame: &Frame, seq: u64) -> Unread {
        let (sender, receiver) = (group.members[peer], group.members[group.me]);
        let words = |tag: CallTag| describe(&CallTag { algo: 0, ..tag });
        let calls = self.callsite_check.as_ref();
        if let Some((field, own)) = calls.and_then(|calls| calls.made_differently(frame)) {
            let call = CallId {
                key: group.key,
                seq: frame.seq,
            };
            return Unread {
                call,
                culprit: None,
                kind: ErrorKind::Mismatch {
                    field: field_of(field),
                    rank: receiver,
                    mine: words(own),
                    peer: sender,
                    theirs: words(frame.tag),
                },
            };
        }
        let sent = format!(
            "sent rank {receiver} a message of call {}, {}",
            frame.seq,
            words(frame.tag)
        );
        let taken = if frame.seq <= seq {
            format!("finished its call {} without receiving it", frame.seq)
        } else {
            format!("ended the group after call {seq}")
        };
        let call = frame.seq.saturating_add(1);
        unread((group.key, call), (sender, sent), (receiver, taken))
    }

    fn of_message(&self, group: &Identity, peer: usize, frame: &Frame) -> Option<Unread> {
        let received = self.counters.count(Direction::Recv, peer);
        let (sender, receiver) = (group.members[peer], group.members[group.me]);
        let sent = format!(
            "sent rank {receiver} message {}, {}",
            frame.seq,
            contents(&frame.tag)
        );
        let taken = match received {
            0 => "received none of its messages".to_owned(),
            1 => "received only its first message".to_owned(),
            more => format!("received only its first {more} messages"),
        };
        (frame.seq > received).then(|| unread((group.key, 0), (sender, sent), (receiver, taken)))
    }
}

/// What this rank sent to one that has ended the group with it unread.
pub(crate) fn sent_in_vain(key: u64, me: Rank, receiver: Rank) -> Unread {
    let sent = format!("sent rank {receiver} messages that still lie unread");
    let taken = "ended the group without receiving them".to_owned();
    unread((key, 0), (me, sent), (receiver, taken))
}

fn unread((key, seq): (u64, u64), sender: (Rank, String), receiver: (Rank, String)) -> Unread {
    Unread {
        call: CallId { key, seq },
        culprit: Some(receiver.0),
        kind: ErrorKind::Mismatch {
            field: Field::Sequence,
            rank: sender.0,
            mine: sender.1,
            peer: receiver.0,
            theirs: receiver.1,
        },
    }
}

/// What a message holds: `f32[8]`.
fn contents(tag: &CallTag) -> String {
    let dtype = DType::from_code(tag.dtype).map_or("?", DType::name);
    format!("{dtype}[{}]", tag.count)
}

/// A stream that a peer has made and that no call of this rank has asked for.
fn never_taken(
    context: &Context,
    group: &Identity,
    plane: Plane,
    peer: usize,
) -> Option<Box<dyn Stream>> {
    if peer > group.me {
        return None;
    }
    match region_of(context, group, peer) {
        // Ranks that share memory compare their calls before a collective goes over messages.
        Some(_) if plane == Plane::Collective => None,
        Some((island, local)) => attach_ring(group, island, plane, peer, local).ok()?,
        None => remote::take(context, group, plane, peer).ok()?,
    }
}

/// Tells the sender over a connection how many of its messages this rank has taken, before the last look: either this
/// look finds a message, or its sender learns that nobody takes it. Shared memory shows the sender as much by itself.
fn say_closed(stream: &mut dyn Stream, group: u64, received: u64) {
    let frame = Frame {
        group,
        seq: received,
        tag: CallTag::default(),
        mark: 0,
        kind: FrameKind::Closed,
    };
    // A peer that has no room for it does not read.
    let _ = stream.try_write(&frame.encode());
}

/// The first frame that lies unread in a stream which nobody reads any more. What this side tells of, the sender need not.
fn last_look(stream: &mut dyn Stream) -> Option<Frame> {
    let frame = next_frame(stream).or_else(|| {
        stream.stop_reading();
        next_frame(stream)
    })?;
    let mut rest = [0; 4096];
    while stream.try_read(&mut rest).is_ok_and(|len| len > 0) {}
    Some(frame)
}

/// The frame that comes next on a stream, if a whole one is here.
fn next_frame(stream: &mut dyn Stream) -> Option<Frame> {
    let mut header = [0; FRAME_BYTES];
    let mut done = 0;
    while done < FRAME_BYTES {
        match stream.try_read(&mut header[done..]) {
            Ok(0) | Err(_) => return None,
            Ok(len) => done += len,
        }
    }
    Frame::decode(&header).ok()
}
