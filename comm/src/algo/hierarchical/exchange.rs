//! `all_to_all` of small blocks, gathered by pair of hosts.
//!
//! One rank of a host, another one for each other host, carries what goes there, and one rank there hands it out. So as many
//! messages cross as there are ordered pairs of hosts.

use std::collections::HashMap;

use super::super::builder::{Builder, input, output, scratch};
use super::super::plan::{Plan, Span};
use super::super::problem::Problem;
use super::Hosts;

/// `all_to_all` of equal blocks: to the rank that carries it, to the one that hands it out, and from there.
pub(in crate::algo) fn all_to_all(problem: &Problem, rank: usize) -> Plan {
    let (n, hosts) = (problem.n(), Hosts::of(problem));
    let count = problem.out_len(rank) / n;
    let (host, place) = hosts.place_of(rank);
    let near = &hosts.members[host];
    let peers = || near.iter().enumerate().filter(|(_, peer)| **peer != rank);
    let mut store = Store::of(n, rank, count);
    let pairing = Pairing {
        hosts: &hosts,
        host,
    };
    // Within the host: the block for the peer, and those for the hosts that it carries for.
    let first = |from: usize, to: usize, to_place: usize| -> Vec<Block> {
        let far = pairing.on(to_place).flat_map(|far| far.ranks);
        let blocks = std::iter::once(to).chain(far.copied());
        blocks.map(|to| (from, to)).collect()
    };
    store.exchange(
        peers().map(|(place, peer)| (*peer, first(rank, *peer, place))),
        peers().map(|(_, peer)| (*peer, first(*peer, rank, place))),
    );
    // Between hosts: all blocks from the ranks of one to those of the other.
    let all = |from: &[usize], to: &[usize]| -> Vec<Block> {
        let of = |from: &usize| to.iter().map(|to| (*from, *to)).collect::<Vec<_>>();
        from.iter().flat_map(of).collect()
    };
    store.exchange(
        (pairing.on(place)).map(|far| (far.carrier, all(near, far.ranks))),
        (pairing.back(place)).map(|far| (far.carrier, all(far.ranks, near))),
    );
    // Within the host: what has come from other hosts.
    let last = |to: usize, place: usize| -> Vec<Block> {
        let far = pairing.back(place).flat_map(|far| far.ranks);
        far.map(|from| (*from, to)).collect()
    };
    store.exchange(
        peers().map(|(_, peer)| (*peer, last(*peer, place))),
        peers().map(|(place, peer)| (*peer, last(rank, place))),
    );
    for from in 0..n {
        let came = store.place[&(from, rank)];
        store.plan.copy(came, output(from * count, count));
    }
    store.plan.end_round();
    store.plan.message_plan(store.used, true)
}

/// Who carries from one host to another: of both, the rank whose place tells how far apart they are.
struct Pairing<'a> {
    hosts: &'a Hosts,
    host: usize,
}

/// Another host, and its rank that carries what goes there or comes from there.
struct Far<'a> {
    ranks: &'a [usize],
    carrier: usize,
}

impl<'a> Pairing<'a> {
    /// The hosts to which the rank at a place carries.
    fn on(&self, place: usize) -> impl Iterator<Item = Far<'a>> + use<'a> {
        self.at(place, |distance, _| distance)
    }

    /// The hosts from which it does.
    fn back(&self, place: usize) -> impl Iterator<Item = Far<'a>> + use<'a> {
        self.at(place, |distance, hosts| hosts - distance)
    }

    fn at(
        &self,
        place: usize,
        on: fn(usize, usize) -> usize,
    ) -> impl Iterator<Item = Far<'a>> + use<'a> {
        let (hosts, host) = (self.hosts, self.host);
        let near = hosts.members[host].len();
        let distances = (1..hosts.count()).skip(place).step_by(near);
        distances.map(move |distance| {
            let ranks = &hosts.members[hosts.after(host, on(distance, hosts.count()))];
            Far {
                ranks,
                carrier: ranks[(distance - 1) % ranks.len()],
            }
        })
    }
}

/// A block by the rank that sends it and the rank that it is for.
type Block = (usize, usize);

/// The blocks that one rank has.
struct Store {
    plan: Builder,
    count: usize,
    place: HashMap<Block, Span>,
    /// Elements of scratch.
    used: usize,
}

impl Store {
    fn of(n: usize, rank: usize, count: usize) -> Self {
        let own = (0..n).map(|to| ((rank, to), input(to * count, count)));
        Self {
            plan: Builder::new(),
            count,
            place: own.collect(),
            used: 0,
        }
    }

    /// One message to each of some peers and one from each of some, of these blocks in this order. What does not lie
    /// together is copied together first.
    fn exchange(
        &mut self,
        sends: impl Iterator<Item = (usize, Vec<Block>)>,
        recvs: impl Iterator<Item = (usize, Vec<Block>)>,
    ) {
        let sends: Vec<(usize, Span)> = sends
            .map(|(to, blocks)| (to, self.together(&blocks)))
            .collect();
        self.plan.end_round();
        for (to, span) in sends {
            self.plan.send(to, span);
        }
        for (from, blocks) in recvs {
            let span = self.take(blocks.len());
            for (slot, block) in blocks.into_iter().enumerate() {
                let at = scratch(span.start + slot * self.count, self.count);
                self.place.insert(block, at);
            }
            self.plan.recv(from, span);
        }
        self.plan.end_round();
    }

    fn together(&mut self, blocks: &[Block]) -> Span {
        let mut runs: Vec<Span> = Vec::new();
        for block in blocks {
            let span = self.place[block];
            match runs.last_mut() {
                Some(run) if run.space == span.space && run.end() == span.start => {
                    run.len += span.len;
                }
                Some(_) | None => runs.push(span),
            }
        }
        if let [one] = runs[..] {
            return one;
        }
        let all = self.take(blocks.len());
        let mut at = all.start;
        for run in runs {
            self.plan.copy(run, scratch(at, run.len));
            at += run.len;
        }
        all
    }

    /// Scratch for so many blocks.
    fn take(&mut self, blocks: usize) -> Span {
        let span = scratch(self.used, blocks * self.count);
        self.used += span.len;
        span
    }
}
