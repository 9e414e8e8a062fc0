//! Collectives of one block a rank, for everybody: `all_gather`, `reduce_scatter`, and `_v`.
//!
//! Every block crosses once to each host that needs it, and all ranks of a host carry their share: a block goes
//! between ranks of one place on their hosts. Where hosts are uneven, a block for a larger host is cut, so that more of its
//! ranks take part. [`Shares`] are what the ranks of one host carry. `reduce_scatter` is the way of `all_gather` backwards.

use super::super::builder::{Builder, input, output, scratch};
use super::super::halving;
use super::super::plan::{Plan, Span};
use super::super::problem::Problem;
use super::super::shape::Blocks;
use super::Hosts;

/// Blocks of fewer elements on average are packed: a message more would take longer than copying them does.
const PACKED_BELOW: usize = 1024;

/// `all_gather`, `_v`: between hosts each rank gets its share of the other hosts' blocks, within hosts all of them.
pub(in crate::algo) fn all_gather(problem: &Problem, rank: usize) -> Plan {
    let (hosts, blocks) = (Hosts::of(problem), problem.the_blocks());
    let (host, place) = hosts.place_of(rank);
    let mut shares = Shares::of(&hosts, blocks, host);
    let is_packed = is_packed(blocks);
    if is_packed {
        shares.pack();
    }
    let own = input(0, blocks.len(rank));
    let mut plan = Builder::new();
    plan.copy(own, output(blocks.start(rank), own.len));
    if is_packed {
        plan.copy(own, shares.block(rank));
    }
    plan.end_round();
    if hosts.is_even() {
        halving::gather(&mut plan, &hosts.rail(place), host, |first, end| {
            shares.spans(|piece| piece.holder == place && (first..end).contains(&piece.host))
        });
    } else {
        for distance in 1..hosts.count() {
            for (to, start, len) in hosts.carriers(blocks, rank, hosts.after(host, distance)) {
                plan.send(to, input(start, len));
            }
        }
        for piece in shares.pieces.iter().filter(|piece| piece.holder == place) {
            if piece.host != host {
                plan.recv(piece.block, piece.kept);
            }
        }
        plan.end_round();
    }
    let within = plan.rounds() + hosts.most_rounds(halving::gather_rounds);
    halving::gather(&mut plan, &hosts.near(host), place, |first, end| {
        shares.spans(|piece| (first..end).contains(&piece.holder))
    });
    plan.end_rounds_up_to(within);
    if is_packed {
        for piece in shares.pieces.iter().filter(|piece| piece.block != rank) {
            plan.copy(piece.kept, output(piece.start, piece.kept.len));
        }
        plan.end_round();
    }
    plan.message_plan(shares.scratch, true)
}

/// `reduce_scatter`, `_v`: within hosts each rank reduces its share of all blocks; the ranks that these are for reduce what
/// the hosts have.
pub(in crate::algo) fn reduce_scatter(problem: &Problem, rank: usize) -> Plan {
    let (hosts, blocks) = (Hosts::of(problem), problem.the_blocks());
    let (host, place) = hosts.place_of(rank);
    let near = hosts.members[host].len();
    let (first, end) = halving::kept(near, place);
    let is_even = hosts.is_even();
    let is_packed = is_packed(blocks);
    let mut shares = Shares::of(&hosts, blocks, host);
    if is_packed {
        shares.pack();
    } else {
        // The rest is sent from where it is, as all of it is by a rank that has its host to itself.
        let only_own = near == 1 && !is_even;
        shares.keep(|piece| {
            (first..end).contains(&piece.holder) && (!only_own || piece.host == host)
        });
    }
    let mut plan = Builder::new();
    for piece in &shares.pieces {
        let there = input(piece.start, piece.kept.len);
        if there != piece.kept {
            plan.copy(there, piece.kept);
        }
    }
    plan.end_round();
    let within = plan.rounds() + hosts.most_rounds(halving::scatter_rounds);
    halving::scatter(&mut plan, &hosts.near(host), place, |first, end| {
        shares.spans(|piece| (first..end).contains(&piece.holder))
    });
    plan.end_rounds_up_to(within);
    let own = shares.block(rank);
    if is_even {
        halving::scatter(&mut plan, &hosts.rail(place), host, |first, end| {
            shares.spans(|piece| piece.holder == place && (first..end).contains(&piece.host))
        });
    } else {
        for distance in 1..hosts.count() {
            let to = hosts.after(host, distance);
            let carried = |piece: &&Piece| piece.holder == place && piece.host == to;
            for piece in shares.pieces.iter().filter(carried) {
                plan.send(piece.block, piece.kept);
            }
            let from = hosts.after(host, hosts.count() - distance);
            for (carrier, start, len) in hosts.carriers(blocks, rank, from) {
                let sum = Span::new(own.space, own.start + start, len);
                plan.recv_reduce(carrier, sum, from < host);
            }
            plan.end_round();
        }
    }
    plan.copy(own, output(0, own.len));
    plan.end_round();
    plan.message_plan(shares.scratch, true)
}

fn is_packed(blocks: &Blocks) -> bool {
    blocks.total() / blocks.count() < PACKED_BELOW
}

/// A block, or a part of one, that one rank of a host carries.
struct Piece {
    /// The rank whose block it is, and its host.
    block: usize,
    host: usize,
    /// Where it starts among the elements of all blocks.
    start: usize,
    /// The place of the rank that carries it.
    holder: usize,
    /// Where that rank has it, and any other rank of the host that has it.
    kept: Span,
}

/// What the ranks of one host carry: all blocks, each once.
struct Shares {
    /// Those that follow one another and are wanted together are one message.
    pieces: Vec<Piece>,
    /// Elements of scratch.
    scratch: usize,
}

impl Shares {
    /// Those of `host`, in the order of ranks and where they are to lie in the end.
    fn of(hosts: &Hosts, blocks: &Blocks, host: usize) -> Self {
        let mut pieces = Vec::with_capacity(blocks.count());
        for block in 0..blocks.count() {
            for (carrier, start, len) in hosts.carriers(blocks, block, host) {
                let start = blocks.start(block) + start;
                pieces.push(Piece {
                    block,
                    host: hosts.place_of(block).0,
                    start,
                    holder: hosts.place_of(carrier).1,
                    kept: output(start, len),
                });
            }
        }
        Self { pieces, scratch: 0 }
    }

    /// Lays them into scratch so that what is sent together lies together.
    fn pack(&mut self) {
        self.pieces.sort_by_key(|piece| (piece.holder, piece.host));
        self.keep(|_| true);
    }

    /// Lays the wanted ones into scratch; the others are in the send buffer.
    fn keep(&mut self, wanted: impl Fn(&Piece) -> bool) {
        for piece in &mut self.pieces {
            let len = piece.kept.len;
            if wanted(piece) {
                piece.kept = scratch(self.scratch, len);
                self.scratch += len;
            } else {
                piece.kept = input(piece.start, len);
            }
        }
    }

    /// Where a block lies that is carried by its own rank.
    fn block(&self, rank: usize) -> Span {
        let found = self.pieces.iter().find(|piece| piece.block == rank);
        found.map_or(scratch(0, 0), |piece| piece.kept)
    }

    /// Where the wanted ones lie.
    fn spans(&self, wanted: impl Fn(&Piece) -> bool) -> Vec<Span> {
        let mut spans: Vec<Span> = Vec::new();
        let mut goes_on = false;
        for piece in &self.pieces {
            let is_wanted = wanted(piece);
            match spans.last_mut() {
                Some(last) if is_wanted && goes_on => last.len += piece.kept.len,
                Some(_) | None if is_wanted => spans.push(piece.kept),
                Some(_) | None => {}
            }
            goes_on = is_wanted;
        }
        spans
    }
}
