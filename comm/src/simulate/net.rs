//! What is to happen, in the order of virtual time; and connections, which delay and keep their order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::transport::sim::draw::Draw;

/// Something that happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A rank connects and introduces itself.
    Arrive(usize),
    /// A frame of a connection comes to the coordinator.
    ToDesk(u64, Vec<u8>),
    /// A connection comes to its end, as the coordinator sees it.
    EndAtDesk(u64),
    /// A frame comes to a rank.
    ToRank(usize, Vec<u8>),
    /// The coordinator has closed a rank's connection.
    EndAtRank(usize),
    /// The launcher saw a process end.
    Reaped(usize),
    /// The coordinator looks at the time.
    Tick,
    /// A rank looks whether it can go on.
    Go(usize),
    /// A rank sees that another one has entered a call of a group.
    Seen {
        rank: usize,
        by: usize,
        group: usize,
        seq: u64,
    },
    /// The fault strikes.
    Strike,
    /// It is over.
    Relent,
    /// The process that serves is stopped.
    ServerStops,
    /// It goes on.
    ServerGoesOn,
}

impl Event {
    /// Its kind, for the hash.
    pub(super) fn code(&self) -> u64 {
        match self {
            Self::Arrive(_) => 1,
            Self::ToDesk(..) => 2,
            Self::EndAtDesk(_) => 3,
            Self::ToRank(..) => 4,
            Self::EndAtRank(_) => 5,
            Self::Reaped(_) => 6,
            Self::Tick => 7,
            Self::Go(_) => 8,
            Self::Seen { .. } => 9,
            Self::Strike => 10,
            Self::Relent => 11,
            Self::ServerStops => 12,
            Self::ServerGoesOn => 13,
        }
    }

    /// Whom it happens to and how much it says, for the hash.
    pub(super) fn subject(&self) -> u64 {
        match self {
            Self::Arrive(rank) | Self::EndAtRank(rank) | Self::Reaped(rank) | Self::Go(rank) => {
                *rank as u64
            }
            Self::ToDesk(token, frame) => *token << 32 | frame.len() as u64,
            Self::ToRank(rank, frame) => (*rank as u64) << 32 | frame.len() as u64,
            Self::EndAtDesk(token) => *token,
            Self::Seen { rank, by, .. } => (*rank * 64 + *by) as u64,
            Self::Tick | Self::Strike | Self::Relent | Self::ServerStops | Self::ServerGoesOn => 0,
        }
    }
}

/// The future.
#[derive(Debug, Default)]
pub(super) struct Future {
    heap: BinaryHeap<Reverse<Entry>>,
    count: u64,
}

#[derive(Debug, PartialEq, Eq)]
struct Entry {
    at_us: u64,
    /// Decides between events of the same moment.
    lot: u64,
    count: u64,
    event: Event,
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_us, self.lot, self.count).cmp(&(other.at_us, other.lot, other.count))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Future {
    pub(super) fn push(&mut self, at_us: u64, lot: u64, event: Event) {
        self.count += 1;
        self.heap.push(Reverse(Entry {
            at_us,
            lot,
            count: self.count,
            event,
        }));
    }

    pub(super) fn pop(&mut self) -> Option<(u64, Event)> {
        self.heap
            .pop()
            .map(|Reverse(entry)| (entry.at_us, entry.event))
    }
}

/// One direction of a connection: frames come in order, each after a delay of its own.
#[derive(Clone, Debug, Default)]
pub(super) struct Pipe {
    /// When the last frame comes.
    pub(super) last_us: u64,
    /// Nothing comes through until then.
    pub(super) clogged_until_us: u64,
}

impl Pipe {
    /// When what is sent now comes.
    pub(super) fn arrival(&mut self, now_us: u64, delay_us: u64, draw: &mut Draw) -> u64 {
        let at_us = now_us + 1 + draw.up_to(delay_us);
        self.last_us = at_us.max(self.last_us + 1).max(self.clogged_until_us);
        self.last_us
    }
}
