//! The algorithms of two levels.

use super::super::super::hierarchical;
use super::{Algorithm, Links};
use crate::types::Collective;

const NAME: &str = "hierarchical";

pub(super) const ALL_REDUCE: Algorithm = Algorithm {
    name: NAME,
    collectives: &[Collective::AllReduce],
    links: Links::Message,
    steps: &[
        "Within each host every rank reduces one slice (ring). Where hosts have unequal numbers of ranks, the \
         first rank of each reduces everything (binomial tree).",
        "The ranks with one slice, one of each host, reduce it between the hosts (halving and doubling).",
        "Within each host the slices are passed on (ring, or binomial tree).",
    ],
    good: "Ranks on several hosts, several on each: as little as possible crosses the network.",
    source: None,
    build: hierarchical::all_reduce,
};

pub(super) const REDUCE_SCATTER: Algorithm = Algorithm {
    name: NAME,
    collectives: &[Collective::ReduceScatter, Collective::ReduceScatterV],
    links: Links::Message,
    steps: &[
        "Within each host the rank with a place reduces the blocks for the ranks with the same place on all hosts (recursive \
         halving). Where hosts have unequal numbers of ranks, it reduces its share of the blocks for each other host.",
        "Between hosts these sums are reduced by the ranks that they are for (recursive halving, or one host after the \
         other).",
    ],
    good: "Ranks on several hosts, several on each: one sum of each host crosses the network for every block, and all \
           ranks carry their share.",
    source: None,
    build: hierarchical::reduce_scatter,
};

pub(super) const ALL_GATHER: Algorithm = Algorithm {
    name: NAME,
    collectives: &[Collective::AllGather, Collective::AllGatherV],
    links: Links::Message,
    steps: &[
        "The ranks with the same place on their hosts exchange their blocks (recursive doubling). Where hosts have \
         unequal numbers of ranks, each sends its block to every other host, in parts if that has more ranks.",
        "Within each host the ranks exchange all that they have (recursive doubling).",
    ],
    good: "Ranks on several hosts, several on each: a block crosses the network once for each host, and all ranks \
           carry their share.",
    source: None,
    build: hierarchical::all_gather,
};

pub(super) const BROADCAST: Algorithm = Algorithm {
    name: NAME,
    collectives: &[Collective::Broadcast],
    links: Links::Message,
    steps: &[
        "The root sends to one rank of each other host (binomial tree).",
        "These, and the root, send to the ranks of their hosts (binomial tree).",
    ],
    good: "Ranks on several hosts, several on each: the vector crosses the network once for each host.",
    source: None,
    build: hierarchical::broadcast,
};

pub(super) const REDUCE: Algorithm = Algorithm {
    name: NAME,
    collectives: &[Collective::Reduce],
    links: Links::Message,
    steps: &[
        "Within each host one rank, the root on its own, reduces everything (binomial tree).",
        "The root reduces what these ranks have (binomial tree).",
    ],
    good: "Ranks on several hosts, several on each: one vector of each host crosses the network.",
    source: None,
    build: hierarchical::reduce,
};
