//! How many elements each rank sends and receives in a cell, and which bytes count.
//!
//! Pure arithmetic. `docs/metrics.md` has the formulas with their sources; the tests compare them
//! with numbers worked out by hand.

use muster_comm::types::{Collective, Counting, Extent, Pattern};
use serde::{Deserialize, Serialize};

/// Most bytes that a member contributes in the exchange of entries: payload and counts of a slot.
const ENTRY_BYTES_MAX: usize = 16 << 10;

/// How the blocks of calls with uneven blocks differ.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
pub enum Split {
    /// All blocks are equal
    Even,
    /// Blocks of weight 2, 1, 0, 1 in turn: some double, some empty
    #[default]
    Uneven,
}

impl Split {
    /// The word that options and reports use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Even => "even",
            Self::Uneven => "uneven",
        }
    }

    /// The weight of block number `index`.
    const fn weight(self, index: usize) -> usize {
        match self {
            Self::Even => 1,
            Self::Uneven => [2, 1, 0, 1][index % 4],
        }
    }

    /// The weight of what member `from` has for member `to`: each row and each column of the matrix
    /// has all the weights, as far as there are as many members.
    const fn pair_weight(self, from: usize, to: usize) -> usize {
        self.weight(from + 3 * to)
    }
}

/// The buffers of one cell, on a group of `n` members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// The call.
    pub collective: Collective,
    /// Members of the group.
    pub n: usize,
    /// Bytes of an element.
    pub element: usize,
    /// Elements: of the buffer where it is one, of a block where there is one a member, of all
    /// blocks of the busiest member where blocks differ.
    pub count: usize,
    /// How blocks differ, where they may.
    pub split: Split,
    /// Member with a role of its own in rooted calls.
    pub root: usize,
}

impl Shape {
    /// The shape of a call whose buffers hold `bytes`, as nccl-tests counts them: rounded down to
    /// whole elements, and to whole blocks where there is one a member; at least one of them.
    #[must_use]
    pub fn of(
        collective: Collective,
        n: usize,
        element: usize,
        bytes: u64,
        split: Split,
        root: usize,
    ) -> Self {
        let elements = usize::try_from(bytes).unwrap_or(usize::MAX) / element;
        let least = usize::from(bytes > 0);
        let count = match collective.pattern() {
            Some(Pattern::Barrier) => 0,
            Some(pattern) if pattern.is_of_blocks() && !collective.has_lengths() => {
                (elements / n).max(least)
            }
            Some(_) | None => elements.max(least),
        };
        Self {
            collective,
            n,
            element,
            count,
            split,
            root: root % n,
        }
    }

    /// The count that reports show: `count` of nccl-tests, the elements of one block.
    #[must_use]
    pub const fn shown_count(&self) -> usize {
        self.count
    }

    /// Elements that each member has in calls whose parts differ by member.
    #[must_use]
    pub fn parts(&self) -> Vec<usize> {
        let sum: usize = (0..self.n).map(|index| self.split.weight(index)).sum();
        let part = |index| share(self.count, self.split.weight(index), sum);
        (0..self.n).map(part).collect()
    }

    /// Elements of the part that member `from` has for member `to`, or for all alike.
    #[must_use]
    pub fn part(&self, from: usize, to: usize) -> usize {
        let block = match self.collective.pattern().map(|pattern| pattern.send(true)) {
            Some(Extent::AllBlocks) => to,
            Some(Extent::Nothing | Extent::OwnBlock | Extent::Vector) | None => from,
        };
        match self.collective.counting() {
            Counting::Splits => self.pair(from, to),
            Counting::Blocks => self.parts()[block],
            Counting::Buffers | Counting::Messages | Counting::Objects | Counting::Uniform => {
                self.count
            }
        }
    }

    /// Elements that member `from` has for member `to` in `all_to_all_v`. The member with the most
    /// to send or to receive has about `count` elements.
    #[must_use]
    pub fn pair(&self, from: usize, to: usize) -> usize {
        let weight = |from, to| self.split.pair_weight(from, to);
        let all = 0..self.n;
        let busiest = all
            .clone()
            .map(|me| {
                let sends: usize = all.clone().map(|peer| weight(me, peer)).sum();
                let receives: usize = all.clone().map(|peer| weight(peer, me)).sum();
                sends.max(receives)
            })
            .max();
        share(self.count, weight(from, to), busiest.unwrap_or(1))
    }

    /// Elements of a member's send buffer, out of place.
    #[must_use]
    pub fn send_elements(&self, me: usize) -> usize {
        match self.collective.pattern() {
            // The one buffer counts as received.
            Some(_) if self.collective.has_one_buffer() => 0,
            Some(pattern) => {
                let pairs = (0..self.n).map(|to| self.pair(me, to));
                self.elements(pattern.send(me == self.root), me, pairs)
            }
            None if self.collective == Collective::Recv => 0,
            None => self.count,
        }
    }

    /// Elements of a member's receive buffer, out of place; of its only buffer in a broadcast.
    #[must_use]
    pub fn recv_elements(&self, me: usize) -> usize {
        match self.collective.pattern() {
            Some(pattern) => {
                let pairs = (0..self.n).map(|from| self.pair(from, me));
                self.elements(pattern.recv(me == self.root), me, pairs)
            }
            None if self.collective == Collective::Send => 0,
            None => self.count,
        }
    }

    /// Elements of a buffer of this extent. `pairs` are the parts of an exchange between this member and each other.
    fn elements(&self, extent: Extent, me: usize, pairs: impl Iterator<Item = usize>) -> usize {
        let differ = self.collective.has_lengths();
        match extent {
            Extent::Nothing => 0,
            Extent::OwnBlock if differ => self.parts()[me],
            Extent::AllBlocks if self.collective.has_splits() => pairs.sum(),
            Extent::AllBlocks if differ => self.parts().iter().sum(),
            Extent::AllBlocks => self.count * self.n,
            Extent::Vector | Extent::OwnBlock => self.count,
        }
    }

    /// The size that reports show, in bytes: the larger of the send and the receive buffer of the
    /// member that has the largest.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let largest = |me| self.send_elements(me).max(self.recv_elements(me));
        let elements = (0..self.n).map(largest).max().unwrap_or(0);
        (elements * self.element) as u64
    }

    /// Whether what every member contributes, with the counts of blocks where they differ, fits the exchange
    /// that begins a call over shared memory.
    #[must_use]
    pub fn fits_entry(&self) -> bool {
        let sent = if self.collective.has_one_buffer() {
            self.count
        } else {
            let sent = (0..self.n).map(|me| self.send_elements(me));
            sent.max().unwrap_or(0)
        };
        let counts = if self.collective.has_lengths() {
            self.n * size_of::<u64>()
        } else {
            0
        };
        sent.saturating_mul(self.element).saturating_add(counts) <= ENTRY_BYTES_MAX
    }

    /// Bytes that count for the bus bandwidth: [`Shape::bytes`] times the factor of nccl-tests; of
    /// `all_to_all_v` what the busiest member exchanges with others.
    #[must_use]
    pub fn bus_bytes(&self) -> f64 {
        match self.collective.pattern() {
            _ if self.collective.has_splits() => (self.busiest_exchange() * self.element) as f64,
            Some(pattern) => self.bytes() as f64 * pattern.bus_factor(self.n),
            None => self.bytes() as f64,
        }
    }

    /// Elements that the busiest member sends to others or receives from others.
    fn busiest_exchange(&self) -> usize {
        let exchanged = |me: usize| {
            let peers = (0..self.n).filter(move |peer| *peer != me);
            let sent: usize = peers.clone().map(|peer| self.pair(me, peer)).sum();
            let received: usize = peers.map(|peer| self.pair(peer, me)).sum();
            sent.max(received)
        };
        (0..self.n).map(exchanged).max().unwrap_or(0)
    }
}

/// `weight` of `sum` parts of `count` elements, rounded down; no part of something is lost to
/// rounding altogether.
fn share(count: usize, weight: usize, sum: usize) -> usize {
    let product = count as u128 * weight as u128;
    let whole = product / sum.max(1) as u128;
    // A part of `count` fits its type.
    let whole = usize::try_from(whole).unwrap_or(count);
    whole.max(usize::from(weight > 0 && count > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(collective: Collective, n: usize, bytes: u64) -> Shape {
        Shape::of(collective, n, 4, bytes, Split::Even, 0)
    }

    /// Bytes, count and bus bytes for 4096 bytes of f32 on four ranks, worked out by hand from the
    /// rules of nccl-tests.
    #[test]
    fn sizes_counts_and_bus_factors_are_those_of_nccl_tests() {
        for (collective, bytes, count, bus) in [
            (Collective::AllReduce, 4096, 1024, 6144.0),
            (Collective::AllGather, 4096, 256, 3072.0),
            (Collective::ReduceScatter, 4096, 256, 3072.0),
            (Collective::AllToAll, 4096, 256, 3072.0),
            (Collective::Broadcast, 4096, 1024, 4096.0),
            (Collective::Reduce, 4096, 1024, 4096.0),
            (Collective::Gather, 4096, 256, 3072.0),
            (Collective::Scatter, 4096, 256, 3072.0),
            (Collective::SendRecvBatch, 4096, 1024, 4096.0),
            (Collective::Barrier, 0, 0, 0.0),
        ] {
            let shape = shape(collective, 4, 4096);
            assert_eq!(shape.bytes(), bytes, "{collective}");
            assert_eq!(shape.shown_count(), count, "{collective}");
            assert!((shape.bus_bytes() - bus).abs() < 1e-9, "{collective}");
        }
    }

    #[test]
    fn sizes_are_rounded_to_whole_blocks_and_never_to_nothing() {
        assert_eq!(shape(Collective::AllReduce, 3, 10).bytes(), 8);
        assert_eq!(shape(Collective::AllGather, 3, 100).bytes(), 96);
        assert_eq!(shape(Collective::AllGather, 8, 8).bytes(), 32);
        assert_eq!(shape(Collective::AllReduce, 8, 1).bytes(), 4);
        assert_eq!(shape(Collective::AllReduce, 8, 0).bytes(), 0);
    }

    /// Weights on four members, from + 3 * to modulo 4 into 2, 1, 0, 1:
    /// `2 1 0 1 / 1 2 1 0 / 0 1 2 1 / 1 0 1 2`, so every sum is 4 and each diagonal 2.
    #[test]
    fn all_to_all_v_counts_the_busiest_rank() {
        let uneven = Shape::of(Collective::AllToAllV, 4, 4, 4096, Split::Uneven, 0);
        assert_eq!((uneven.pair(0, 0), uneven.pair(0, 2)), (512, 0));
        assert_eq!(uneven.pair(1, 0), 256);
        assert_eq!(uneven.bytes(), 4096);
        assert!((uneven.bus_bytes() - 2048.0).abs() < 1e-9);
        let even = Shape::of(Collective::AllToAllV, 4, 4, 4096, Split::Even, 0);
        assert_eq!(even.bytes(), 4096);
        assert!((even.bus_bytes() - 3072.0).abs() < 1e-9);
    }

    #[test]
    fn what_is_sent_is_what_is_received() {
        for n in 1..10 {
            for split in [Split::Even, Split::Uneven] {
                for bytes in [0, 1, 64, 1000, 65536] {
                    let shape = Shape::of(Collective::AllToAllV, n, 4, bytes, split, 0);
                    let sent: usize = (0..n).map(|me| shape.send_elements(me)).sum();
                    let received: usize = (0..n).map(|me| shape.recv_elements(me)).sum();
                    assert_eq!(sent, received);
                    let gather = Shape::of(Collective::AllGatherV, n, 4, bytes, split, 0);
                    let sent: usize = (0..n).map(|me| gather.send_elements(me)).sum();
                    assert_eq!(sent, gather.recv_elements(0));
                }
            }
        }
    }
}
