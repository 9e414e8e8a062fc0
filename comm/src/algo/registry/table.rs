//! The table itself.

mod two_level;

use super::super::{bruck, direct, doubling, halving, pairwise, ring, scan, tree};
use super::{Algorithm, Links, Plan, Problem};
use crate::types::Collective;

const PATARASUK: &str = "Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009";
const THAKUR: &str = "Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in MPICH, 2005";
const RABENSEIFNER: &str = "Rabenseifner, Optimization of collective reduction operations, 2004";
const BRUCK: &str = "Bruck, Ho, Kipnis, Upfal and Weathersby, Efficient algorithms for all-to-all \
     communications in multiport message-passing systems, 1997";
const HENSGEN: &str =
    "Hensgen, Finkel and Manber, Two algorithms for barrier synchronization, 1988";
const BARNETT: &str = "Barnett, Gupta, Payne, Shuler, van de Geijn and Watts, Interprocessor collective communication \
     library (InterCom), 1994";

/// The way of small calls over shared memory: the contribution rides in the exchange that begins every call.
/// Written by hand in `backend::local`, because a plan would cost more than the call; the plans that it has here
/// say what it does. Not among [`ALGORITHMS`], for it has a size beyond which it cannot be carried out.
pub static ENTRY: Algorithm = Algorithm {
    name: "entry",
    collectives: &[
        Collective::AllGather,
        Collective::AllGatherV,
        Collective::AllReduce,
        Collective::AllToAll,
        Collective::Barrier,
        Collective::Broadcast,
        Collective::ExclusiveScan,
        Collective::Gather,
        Collective::GatherV,
        Collective::Reduce,
        Collective::ReduceScatter,
        Collective::ReduceScatterV,
        Collective::Scan,
        Collective::Scatter,
        Collective::ScatterV,
    ],
    links: Links::Direct,
    steps: &[
        "Every rank puts what it contributes into its entry, beside what the call is.",
        "Every rank waits for all entries, compares the calls, and makes its result of the contributions.",
    ],
    good: "All ranks share memory, and no rank contributes more than 16 KiB, counts of blocks included: one \
           synchronisation, and nothing else.",
    source: None,
    build: entry,
};

/// The plan of the direct algorithm with the fewest rounds.
fn entry(problem: &Problem, rank: usize) -> Plan {
    let is_alike = |collective: &Collective| collective.pattern() == Some(problem.pattern());
    ALGORITHMS
        .iter()
        .filter(|one| one.links == Links::Direct && one.collectives.iter().any(is_alike))
        .map(|one| (one.build)(problem, rank))
        .min_by_key(|plan| plan.rounds.len())
        .unwrap_or_else(|| unreachable!("a test finds a direct algorithm for each pattern"))
}

/// Every algorithm. The order within a collective is the order in which reports list them.
pub static ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: direct::ALL_REDUCE,
        collectives: &[Collective::AllReduce],
        links: Links::Direct,
        steps: &[
            "Every rank exposes its send buffer, except the slice that it will reduce itself.",
            "Rank i reads slice i of all send buffers in ascending rank order, in one pass, and \
             exposes the result.",
            "Every rank fetches the other slices from the ranks that reduced them.",
        ],
        good: "All ranks share memory, and there is enough data for three barriers not to matter.",
        source: None,
        build: direct::all_reduce,
    },
    Algorithm {
        name: "direct_small",
        collectives: &[Collective::AllReduce],
        links: Links::Direct,
        steps: &[
            "Every rank copies its send buffer into memory that its peers can read.",
            "Every rank reduces all copies in ascending rank order.",
        ],
        good: "All ranks share memory and the data is small: one barrier less than direct, at the \
               price of n times the work.",
        source: None,
        build: direct::all_reduce_small,
    },
    Algorithm {
        name: "ring",
        collectives: &[Collective::AllReduce],
        links: Links::Message,
        steps: &[
            "The vector is cut into n blocks.",
            "n - 1 times: each rank sends the sum of one block to the next rank and adds the one \
             that arrives to its own. Afterwards rank i holds the result of block i.",
            "n - 1 times: each rank sends the result of one block on to the next rank.",
        ],
        good: "Much data: no rank sends more than 2 (n - 1) / n of the vector, and only to its \
               neighbour. The number of rounds grows with n.",
        source: Some(PATARASUK),
        build: ring::all_reduce,
    },
    Algorithm {
        name: "recursive_doubling",
        collectives: &[Collective::AllReduce],
        links: Links::Message,
        steps: &[
            "Where n is no power of two, ranks at the front pair up and the odd one hands its \
             vector to the even one.",
            "For distance 1, 2, 4, …: ranks that far apart exchange all they have and reduce.",
            "The odd ranks of the first step get the result.",
        ],
        good: "Few elements: about log2 n exchanges, each of the whole vector.",
        source: Some(THAKUR),
        build: doubling::all_reduce,
    },
    Algorithm {
        name: "halving_doubling",
        collectives: &[Collective::AllReduce],
        links: Links::Message,
        steps: &[
            "The ranks split into two halves, again and again. Each time, a rank gives its partner \
             in the other half the sums of that half's blocks, and adds what it gets. A rank \
             without a partner gives its sums to the first rank of the upper half.",
            "The same way back: partners exchange their finished blocks.",
        ],
        good: "Middle sizes: as little data as the ring, in about 2 log2 n rounds. For any n.",
        source: Some(RABENSEIFNER),
        build: halving::all_reduce,
    },
    two_level::ALL_REDUCE,
    Algorithm {
        name: "direct",
        collectives: &[Collective::ReduceScatter, Collective::ReduceScatterV],
        links: Links::Direct,
        steps: &[
            "Every rank exposes its send buffer, except its own block.",
            "Rank i reads block i of all send buffers in ascending rank order, in one pass.",
        ],
        good: "All ranks share memory.",
        source: None,
        build: direct::reduce_scatter,
    },
    Algorithm {
        name: "ring",
        collectives: &[Collective::ReduceScatter, Collective::ReduceScatterV],
        links: Links::Message,
        steps: &[
            "n - 1 times: each rank sends the sum of one block to the next rank and adds the one \
             that arrives to its own. The sum of block i starts behind rank i and ends there.",
        ],
        good: "Much data in even blocks, and neighbours that are close.",
        source: Some(PATARASUK),
        build: ring::reduce_scatter,
    },
    Algorithm {
        name: "recursive_halving",
        collectives: &[Collective::ReduceScatter, Collective::ReduceScatterV],
        links: Links::Message,
        steps: &[
            "The ranks split into two halves, again and again. Each time, a rank gives its partner \
             in the other half the sums of that half's blocks, and adds what it gets. A rank \
             without a partner gives its sums to the first rank of the upper half.",
        ],
        good: "Small and middle sizes: about log2 n rounds, for any n.",
        source: Some(THAKUR),
        build: halving::reduce_scatter,
    },
    Algorithm {
        name: "pairwise",
        collectives: &[Collective::ReduceScatter, Collective::ReduceScatterV],
        links: Links::Message,
        steps: &[
            "In round k each rank sends the rank k places on that rank's block, and adds the \
             block that comes from k places back to its own.",
        ],
        good: "Very uneven blocks: nothing is forwarded. No scratch memory.",
        source: Some(THAKUR),
        build: pairwise::reduce_scatter,
    },
    two_level::REDUCE_SCATTER,
    Algorithm {
        name: "direct",
        collectives: &[Collective::AllGather, Collective::AllGatherV],
        links: Links::Direct,
        steps: &[
            "Every rank exposes its block.",
            "Every rank fetches all others, beginning with the next rank's.",
        ],
        good: "All ranks share memory.",
        source: None,
        build: direct::all_gather,
    },
    Algorithm {
        name: "ring",
        collectives: &[Collective::AllGather, Collective::AllGatherV],
        links: Links::Message,
        steps: &[
            "n - 1 times: each rank sends the next rank the block that it got last, its own \
                  first.",
        ],
        good: "Much data: every rank sends n - 1 blocks, and only to its neighbour.",
        source: Some(THAKUR),
        build: ring::all_gather,
    },
    Algorithm {
        name: "recursive_doubling",
        collectives: &[Collective::AllGather, Collective::AllGatherV],
        links: Links::Message,
        steps: &[
            "The ranks are split into halves until each is alone; from there upwards, partners in \
             two halves exchange all blocks of their halves. A rank without a partner gets them \
             from the first rank of the upper half.",
        ],
        good: "Small and middle sizes: about log2 n rounds, for any n.",
        source: Some(THAKUR),
        build: halving::all_gather,
    },
    Algorithm {
        name: "pairwise",
        collectives: &[Collective::AllGather, Collective::AllGatherV],
        links: Links::Message,
        steps: &[
            "In round k each rank sends its block k places on and gets one from k places \
                  back.",
        ],
        good: "Very uneven blocks: nothing is forwarded.",
        source: None,
        build: pairwise::all_gather,
    },
    two_level::ALL_GATHER,
    Algorithm {
        name: "direct",
        collectives: &[Collective::AllToAll, Collective::AllToAllV],
        links: Links::Direct,
        steps: &[
            "Every rank exposes its send buffer, except the block for itself.",
            "Every rank fetches its block from every other send buffer. An in-place call works on \
             a copy of the send buffer.",
        ],
        good: "All ranks share memory.",
        source: None,
        build: direct::all_to_all,
    },
    Algorithm {
        name: "pairwise",
        collectives: &[Collective::AllToAll, Collective::AllToAllV],
        links: Links::Message,
        steps: &[
            "In round k each rank sends the block for the rank k places on, and gets one from k \
             places back. An in-place call works on a copy of the send buffer.",
        ],
        good: "Much data, or uneven blocks: each block travels once.",
        source: Some(THAKUR),
        build: pairwise::all_to_all,
    },
    Algorithm {
        name: "bruck",
        collectives: &[Collective::AllToAll],
        links: Links::Message,
        steps: &[
            "For each binary digit of the distances: pack all blocks whose distance has the digit \
             set into one message, and send it that far on.",
            "Put the blocks in the order of the ranks that they come from.",
        ],
        good: "Small blocks: about log2 n messages, but half of all data in each.",
        source: Some(BRUCK),
        build: bruck::all_to_all,
    },
    two_level::ALL_TO_ALL,
    Algorithm {
        name: "direct",
        collectives: &[Collective::Broadcast],
        links: Links::Direct,
        steps: &[
            "The root exposes its buffer.",
            "Every other rank fetches it.",
        ],
        good: "All ranks share memory.",
        source: None,
        build: direct::broadcast,
    },
    Algorithm {
        name: "binomial_tree",
        collectives: &[Collective::Broadcast],
        links: Links::Message,
        steps: &["For distance …, 4, 2, 1: every rank that has the buffer sends it that far on."],
        good: "Small and middle sizes: about log2 n rounds, each of the whole buffer.",
        source: Some(THAKUR),
        build: tree::broadcast,
    },
    Algorithm {
        name: "scatter_ring",
        collectives: &[Collective::Broadcast],
        links: Links::Message,
        steps: &[
            "The root hands out n slices of the buffer down a binomial tree.",
            "n - 1 times: each rank sends the next rank the slice that it got last. Nothing goes \
             to the root.",
        ],
        good: "Much data: no rank sends more than about twice the buffer.",
        source: Some(BARNETT),
        build: ring::scatter_all_gather,
    },
    two_level::BROADCAST,
    Algorithm {
        name: "direct",
        collectives: &[Collective::Reduce],
        links: Links::Direct,
        steps: &[
            "Every rank but the root exposes its send buffer.",
            "The root reduces all of them in ascending rank order, in one pass.",
        ],
        good: "All ranks share memory and there is little data: the root does all the work.",
        source: None,
        build: direct::reduce,
    },
    Algorithm {
        name: "direct_sliced",
        collectives: &[Collective::Reduce],
        links: Links::Direct,
        steps: &[
            "Every rank exposes its send buffer, except the slice that it will reduce itself.",
            "Rank i reads slice i of all send buffers in ascending rank order, in one pass, and \
             exposes the result.",
            "The root fetches the other slices from the ranks that reduced them.",
        ],
        good: "All ranks share memory and there is much data: all ranks share the work, for one \
               barrier more.",
        source: None,
        build: direct::reduce_sliced,
    },
    Algorithm {
        name: "binomial_tree",
        collectives: &[Collective::Reduce],
        links: Links::Message,
        steps: &[
            "For distance 1, 2, 4, …: every second rank of those that are left (counted from the \
             root) sends its sum that far back and is done.",
        ],
        good: "Any size: about log2 n rounds, each of the whole vector.",
        source: Some(THAKUR),
        build: tree::reduce,
    },
    two_level::REDUCE,
    Algorithm {
        name: "direct",
        collectives: &[Collective::Scan, Collective::ExclusiveScan],
        links: Links::Direct,
        steps: &[
            "Every rank copies its send buffer into memory that its peers can read.",
            "Every rank reduces the copies of the ranks before it, in ascending rank order; for scan its own last.",
        ],
        good: "All ranks share memory. The last rank does most of the work.",
        source: None,
        build: scan::direct,
    },
    Algorithm {
        name: "linear",
        collectives: &[Collective::Scan, Collective::ExclusiveScan],
        links: Links::Message,
        steps: &[
            "The vector is cut into segments of 65536 elements, at most 64 of them.",
            "Segment after segment, each rank gets the result of the ranks before it, adds its own elements behind, and \
             sends that to the next rank.",
        ],
        good: "Few ranks, or much data. The elements are combined strictly in rank order, so that the result is that of \
               shared memory, bit by bit.",
        source: None,
        build: scan::linear,
    },
    Algorithm {
        name: "direct",
        collectives: &[Collective::Gather, Collective::GatherV],
        links: Links::Direct,
        steps: &[
            "Every rank but the root exposes its block.",
            "The root fetches all blocks.",
        ],
        good: "All ranks share memory.",
        source: None,
        build: direct::gather,
    },
    Algorithm {
        name: "binomial_tree",
        collectives: &[Collective::Gather, Collective::GatherV],
        links: Links::Message,
        steps: &[
            "For distance 1, 2, 4, …: every second rank of those that are left (counted from the \
             root) sends the blocks it has that far back and is done.",
        ],
        good: "Small blocks: the root receives about log2 n messages.",
        source: Some(THAKUR),
        build: tree::gather,
    },
    Algorithm {
        name: "linear",
        collectives: &[Collective::Gather, Collective::GatherV],
        links: Links::Message,
        steps: &["Every rank sends its block to the root, all in one round."],
        good: "Large or very uneven blocks: nothing is forwarded.",
        source: None,
        build: pairwise::gather,
    },
    two_level::GATHER,
    Algorithm {
        name: "direct",
        collectives: &[Collective::Scatter, Collective::ScatterV],
        links: Links::Direct,
        steps: &[
            "The root exposes its send buffer, except its own block.",
            "Every rank fetches its block.",
        ],
        good: "All ranks share memory.",
        source: None,
        build: direct::scatter,
    },
    Algorithm {
        name: "binomial_tree",
        collectives: &[Collective::Scatter, Collective::ScatterV],
        links: Links::Message,
        steps: &[
            "For distance …, 4, 2, 1: every rank that has blocks sends those of the ranks from \
             that far on.",
        ],
        good: "Small blocks: the root sends about log2 n messages.",
        source: Some(THAKUR),
        build: tree::scatter,
    },
    Algorithm {
        name: "linear",
        collectives: &[Collective::Scatter, Collective::ScatterV],
        links: Links::Message,
        steps: &["The root sends every rank its block, all in one round."],
        good: "Large or very uneven blocks: nothing is forwarded.",
        source: None,
        build: pairwise::scatter,
    },
    two_level::SCATTER,
    Algorithm {
        name: "direct",
        collectives: &[Collective::Barrier],
        links: Links::Direct,
        steps: &["One barrier over shared memory."],
        good: "All ranks share memory.",
        source: None,
        build: direct::barrier,
    },
    Algorithm {
        name: "dissemination",
        collectives: &[Collective::Barrier],
        links: Links::Message,
        steps: &[
            "For distance 1, 2, 4, …: every rank sends a token that far on and waits for the one \
             from that far back.",
        ],
        good: "Always: log2 n rounds, rounded up.",
        source: Some(HENSGEN),
        build: doubling::barrier,
    },
    two_level::BARRIER,
];
