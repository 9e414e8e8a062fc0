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
        "Within each host every rank reduces one slice (recursive halving). Where there is little, the first rank of each host \
         reduces everything, rank after rank; also (binomial tree) where hosts have unequal numbers of ranks.",
        "The ranks with one slice, one of each host, reduce it between the hosts (halving and doubling).",
        "Within each host the slices are passed on (recursive doubling, at once, or binomial tree).",
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

pub(super) const ALL_TO_ALL: Algorithm = Algorithm {
    name: NAME,
    collectives: &[Collective::AllToAll],
    links: Links::Message,
    steps: &[
        "Within each host every rank gives every other its block, and the blocks for the hosts that the other carries for.",
        "Between each two hosts one rank of the one sends all blocks to one rank of the other.",
        "Within each host these ranks hand out what has come.",
    ],
    good: "Small blocks on several hosts: one message for each ordered pair of hosts crosses the network.",
    source: None,
    build: hierarchical::all_to_all,
};

pub(super) const GATHER: Algorithm = Algorithm {
    name: NAME,
    collectives: &[Collective::Gather, Collective::GatherV],
    links: Links::Message,
    steps: &[
        "Within each host every rank sends its block to one rank, the root on its own host.",
        "These ranks send the blocks of their hosts to the root.",
    ],
    good: "Small blocks on several hosts: the root receives a message from each host, and not from each rank.",
    source: None,
    build: hierarchical::gather,
};

pub(super) const SCATTER: Algorithm = Algorithm {
    name: NAME,
    collectives: &[Collective::Scatter, Collective::ScatterV],
    links: Links::Message,
    steps: &[
        "The root sends to one rank of each other host the blocks of that host.",
        "These ranks, and the root, send the blocks to the ranks of their hosts.",
    ],
    good: "Small blocks on several hosts: the root sends a message to each host, and not to each rank.",
    source: None,
    build: hierarchical::scatter,
};

pub(super) const BARRIER: Algorithm = Algorithm {
    name: NAME,
    collectives: &[Collective::Barrier],
    links: Links::Message,
    steps: &[
        "Within each host one rank hears from all others.",
        "For distance 1, 2, 4, …: each of these ranks sends a token that many hosts on and waits for the one from that many hosts back.",
        "Within each host these ranks tell the others.",
    ],
    good: "Ranks on several hosts, several on each: few messages cross the network.",
    source: None,
    build: hierarchical::barrier,
};
