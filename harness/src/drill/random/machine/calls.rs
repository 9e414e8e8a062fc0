//! What calls on a group need of each other, and what contradicts what.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "most kinds of steps and calls are alike here"
)]

use super::{Contradiction, Group, Mode, State, What};
use crate::drill::script::{CallKind, CallSpec, Kind, MessageSpec};

/// A message, by what both sides must agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Letter {
    count: usize,
    dtype: Kind,
}

impl Letter {
    /// That of a batch.
    pub(super) fn of(message: &MessageSpec) -> Self {
        Self {
            count: message.count,
            dtype: Kind::I32,
        }
    }
}

impl Group {
    /// Enters a deed; gives back where it stands: its number, or those of its messages.
    pub(super) fn enter(&mut self, member: usize, what: &What) -> Vec<usize> {
        match what {
            What::Call(call) => match letter(call) {
                Some((is_sent, letter)) => vec![self.post(member, call.peer, is_sent, letter)],
                None => {
                    self.entered[member].push(call.clone());
                    vec![self.entered[member].len() - 1]
                }
            },
            What::Messages(messages) => messages
                .iter()
                .map(|(message, letter)| self.post(member, message.peer, message.is_sent, *letter))
                .collect(),
        }
    }

    fn post(&mut self, member: usize, peer: usize, is_sent: bool, letter: Letter) -> usize {
        let posted = if is_sent {
            self.sent.entry((member, peer)).or_default()
        } else {
            self.asked.entry((peer, member)).or_default()
        };
        posted.push(letter);
        posted.len() - 1
    }

    /// Where a deed that was entered stands.
    pub(super) fn state(&self, member: usize, what: &What, place: &[usize], mode: Mode) -> State {
        match what {
            What::Call(call) => match letter(call) {
                Some((is_sent, letter)) => {
                    let messages = [(call.peer, is_sent, letter)];
                    self.state_of_messages(member, messages.into_iter(), place, mode)
                }
                None => self.state_of_call(member, call, place.first().copied(), mode),
            },
            What::Messages(messages) => {
                let messages = messages
                    .iter()
                    .map(|(message, letter)| (message.peer, message.is_sent, *letter));
                self.state_of_messages(member, messages, place, mode)
            }
        }
    }

    fn state_of_messages(
        &self,
        member: usize,
        messages: impl Iterator<Item = (usize, bool, Letter)>,
        place: &[usize],
        mode: Mode,
    ) -> State {
        let mut missing = Vec::new();
        for (number, (peer, is_sent, letter)) in messages.enumerate() {
            let other = if is_sent {
                self.asked.get(&(member, peer))
            } else {
                self.sent.get(&(peer, member))
            };
            let place = place.get(number);
            let other = place.and_then(|place| other?.get(*place));
            match other {
                // A sender need not learn what became of its message.
                _ if is_sent && mode == Mode::Lax => {}
                Some(other) if *other == letter => {}
                Some(_) => return State::Contradicted,
                None => missing.push(peer),
            }
        }
        if missing.is_empty() {
            State::Over
        } else {
            State::Waits(missing)
        }
    }

    fn state_of_call(
        &self,
        member: usize,
        call: &CallSpec,
        place: Option<usize>,
        mode: Mode,
    ) -> State {
        let Some(place) = place else {
            // Behind a call that never comes to anybody.
            return State::Waits(Vec::new());
        };
        let others = (0..self.members.len()).filter(|other| *other != member);
        let needed: Vec<usize> = match mode {
            Mode::Lax => others.filter(|other| needs(call, member, *other)).collect(),
            Mode::Strict => others.collect(),
        };
        let mut missing = Vec::new();
        for other in needed {
            match self.entered[other].get(place) {
                None => missing.push(other),
                Some(theirs) if contradicts((member, call), (other, theirs)) => {
                    return State::Contradicted;
                }
                Some(theirs) if decodes(call, member, other) && call.object != theirs.object => {
                    return State::Contradicted;
                }
                Some(_) => {}
            }
        }
        if missing.is_empty() {
            State::Over
        } else {
            State::Waits(missing)
        }
    }

    /// Who is in the contradiction that a rank has met.
    pub(super) fn contradiction(
        &self,
        rank: usize,
        what: &What,
        place: Option<&[usize]>,
    ) -> Contradiction {
        let messages: Vec<usize> = match what {
            What::Messages(messages) => messages.iter().map(|(message, _)| message.peer).collect(),
            What::Call(call) => letter(call).map(|_| call.peer).into_iter().collect(),
        };
        if messages.is_empty() {
            let place = place.and_then(|place| place.first().copied()).unwrap_or(0);
            let calls: Vec<&CallSpec> = self
                .entered
                .iter()
                .filter_map(|calls| calls.get(place))
                .collect();
            let is_object = calls.windows(2).all(|pair| pair[0].kind == pair[1].kind)
                && calls.iter().any(|call| call.object != calls[0].object);
            return Contradiction {
                ranks: self.members.clone(),
                is_object,
            };
        }
        let mut ranks: Vec<u32> = messages.iter().map(|peer| self.members[*peer]).collect();
        ranks.extend(self.members.iter().filter(|one| **one as usize == rank));
        Contradiction {
            ranks,
            is_object: false,
        }
    }

    /// Sender and receiver of messages that nobody asked for.
    pub(super) fn lost(&self) -> Vec<(u32, u32)> {
        let is_lost = |((from, to), sent): (&(usize, usize), &Vec<Letter>)| {
            let asked = self.asked.get(&(*from, *to)).map_or(0, Vec::len);
            (asked < sent.len()).then(|| (self.members[*from], self.members[*to]))
        };
        self.sent.iter().filter_map(is_lost).collect()
    }

    /// Each member that made a call, and each other one that destroyed the group before it came to that call.
    pub(super) fn left_behind(&self) -> Vec<(u32, u32)> {
        let made = |member: usize| self.entered[member].len();
        let all = 0..self.members.len();
        let of = |gone: usize| {
            let behind = all.clone().filter(move |one| made(*one) > made(gone));
            behind.map(move |one| (self.members[one], self.members[gone]))
        };
        self.destroyed.iter().flat_map(|gone| of(*gone)).collect()
    }
}

/// The message that a call is, and whether it is sent.
fn letter(call: &CallSpec) -> Option<(bool, Letter)> {
    let letter = Letter {
        count: call.count,
        dtype: call.dtype,
    };
    match call.kind {
        CallKind::Send => Some((true, letter)),
        CallKind::Recv => Some((false, letter)),
        _ => None,
    }
}

/// Whether a member's result depends on the other one's having come.
fn needs(call: &CallSpec, member: usize, other: usize) -> bool {
    let is_root = call.peer == member;
    match call.kind {
        // Lengths are exchanged by all.
        CallKind::AllGatherObject
        | CallKind::Barrier
        | CallKind::BroadcastObject
        | CallKind::GatherObject => true,
        CallKind::AllToAllV => call.recv_counts.get(other).is_some_and(|count| *count > 0),
        _ if call.count == 0 => false,
        CallKind::Broadcast | CallKind::Scatter => call.peer == other,
        CallKind::Gather | CallKind::Reduce => is_root,
        _ => true,
    }
}

/// Whether a member decodes an object of the other one.
fn decodes(call: &CallSpec, member: usize, other: usize) -> bool {
    match call.kind {
        CallKind::AllGatherObject => true,
        CallKind::BroadcastObject => call.peer == other,
        CallKind::GatherObject => call.peer == member,
        _ => false,
    }
}

/// Whether the calls of two members cannot be one.
fn contradicts((member, own): (usize, &CallSpec), (other, theirs): (usize, &CallSpec)) -> bool {
    let kind = |call: &CallSpec| match call.kind {
        CallKind::AllReduceAsync => CallKind::AllReduce,
        kind => kind,
    };
    if kind(own) != kind(theirs) {
        return true;
    }
    let has_root = is_rooted(own.kind);
    let has_elements = !matches!(
        own.kind,
        CallKind::AllGatherObject
            | CallKind::Barrier
            | CallKind::BroadcastObject
            | CallKind::GatherObject
    );
    if own.kind == CallKind::AllToAllV {
        let fits = |from: &CallSpec, to: usize, into: &CallSpec, of: usize| {
            from.send_counts.get(to) == into.recv_counts.get(of)
        };
        return own.dtype != theirs.dtype
            || !fits(own, other, theirs, member)
            || !fits(theirs, member, own, other);
    }
    has_root && own.peer != theirs.peer
        || has_elements && (own.count != theirs.count || own.dtype != theirs.dtype)
        || reduces(own.kind) && own.takes_max != theirs.takes_max
}

/// Whether a kind of call has a root.
#[must_use]
pub fn is_rooted(kind: CallKind) -> bool {
    matches!(
        kind,
        CallKind::Broadcast
            | CallKind::BroadcastObject
            | CallKind::Gather
            | CallKind::GatherObject
            | CallKind::Reduce
            | CallKind::Scatter
    )
}

/// Whether a kind of call reduces.
#[must_use]
pub fn reduces(kind: CallKind) -> bool {
    matches!(
        kind,
        CallKind::AllReduce | CallKind::AllReduceAsync | CallKind::Reduce | CallKind::ReduceScatter
    )
}
