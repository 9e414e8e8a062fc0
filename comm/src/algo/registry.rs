//! The algorithms there are.
//!
//! One table, one entry an algorithm. What is said here of an algorithm appears in
//! `muster plan show` and in `docs/algorithms.md`; its costs do not stand here, they are counted
//! from its plans.

use super::builder::{Builder, input, output};
use super::plan::{Links, Plan};
use super::problem::Problem;
use super::{bruck, direct, doubling, halving, pairwise, ring, stage, tree};
use crate::types::{Collective, UnknownName};

/// One way to carry out one collective (or its twin with uneven blocks).
#[derive(Clone, Copy)]
pub struct Algorithm {
    /// The name, unique among the algorithms of a collective.
    pub name: &'static str,
    /// The collectives it carries out.
    pub collectives: &'static [Collective],
    /// The links it needs. A message algorithm runs on direct links too.
    pub links: Links,
    /// What happens, as numbered steps.
    pub steps: &'static [&'static str],
    /// When it is the one to take.
    pub good: &'static str,
    /// Where it was first described, if it was.
    pub source: Option<&'static str>,
    build: fn(&Problem, usize) -> Plan,
}

impl Algorithm {
    /// Whether it can carry out `problem`.
    ///
    /// # Errors
    /// [`PlanError`], saying what it lacks.
    pub fn applies(&self, problem: &Problem) -> Result<(), PlanError> {
        if !self.collectives.contains(&problem.collective()) {
            return Err(PlanError::Collective {
                algorithm: self.name,
                wanted: problem.collective(),
                known: self.collectives,
            });
        }
        let partial = problem.matrix().is_some_and(|matrix| !matrix.is_full());
        if partial && self.links == Links::Direct {
            return Err(PlanError::NeedsAllCounts {
                algorithm: self.name,
            });
        }
        Ok(())
    }

    /// The plan of `rank`. With `in_place` it is right for calls whose send and receive buffers
    /// are the same memory (and for others too); direct plans need the same choice on every rank.
    ///
    /// # Errors
    /// [`PlanError`], saying what does not fit.
    pub fn plan(&self, problem: &Problem, rank: usize, in_place: bool) -> Result<Plan, PlanError> {
        self.applies(problem)?;
        if rank >= problem.n() {
            return Err(PlanError::RankRange {
                rank,
                n: problem.n(),
            });
        }
        if in_place && problem.in_place(rank).is_none() {
            return Err(PlanError::UnequalCounts { rank });
        }
        if problem.n() == 1 {
            return Ok(alone(problem, self.links));
        }
        let plan = (self.build)(problem, rank);
        if in_place && !plan.in_place {
            return Ok(stage::staged(problem, rank, plan));
        }
        Ok(plan)
    }

    /// The plans of all ranks, in rank order.
    ///
    /// # Errors
    /// As [`Self::plan`].
    pub fn plans(&self, problem: &Problem, in_place: bool) -> Result<Vec<Plan>, PlanError> {
        (0..problem.n())
            .map(|rank| self.plan(problem, rank, in_place))
            .collect()
    }
}

impl std::fmt::Debug for Algorithm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Algorithm")
            .field("name", &self.name)
            .field("collectives", &self.collectives)
            .field("links", &self.links)
            .finish_non_exhaustive()
    }
}

/// The plan of a group of one: what it sends is what it receives.
fn alone(problem: &Problem, links: Links) -> Plan {
    let mut plan = Builder::new();
    let len = problem.in_len(0).min(problem.out_len(0));
    plan.copy(input(0, len), output(0, len));
    plan.end_round();
    match links {
        Links::Direct => plan.direct_plan(0, true),
        Links::Message => plan.message_plan(0, true),
    }
}

/// Why an algorithm makes no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The algorithm is one of another collective.
    #[error("{algorithm} carries out {}, not {wanted}", names(known))]
    Collective {
        /// The algorithm.
        algorithm: &'static str,
        /// What was asked for.
        wanted: Collective,
        /// What it can do.
        known: &'static [Collective],
    },
    /// A direct algorithm reads where its peers' blocks lie, so it needs everybody's counts.
    #[error("{algorithm} needs the counts of all ranks, and only those of one are known")]
    NeedsAllCounts {
        /// The algorithm.
        algorithm: &'static str,
    },
    /// A rank that is not in the group.
    #[error("rank {rank} is not in a group of {n}; ranks are 0 to {}", n - 1)]
    RankRange {
        /// The rank.
        rank: usize,
        /// Ranks of the group.
        n: usize,
    },
    /// An in-place `all_to_all_v` on a rank that does not get back as much as it sends.
    #[error("rank {rank} receives other counts than it sends, so its buffers cannot be one")]
    UnequalCounts {
        /// The rank.
        rank: usize,
    },
}

fn names(collectives: &[Collective]) -> String {
    let names: Vec<&str> = collectives.iter().map(|c| c.name()).collect();
    names.join(" and ")
}

/// The algorithms of one collective, direct ones first.
pub fn algorithms_for(collective: Collective) -> impl Iterator<Item = &'static Algorithm> {
    ALGORITHMS
        .iter()
        .filter(move |algorithm| algorithm.collectives.contains(&collective))
}

/// The algorithm of `collective` with this name.
///
/// # Errors
/// [`UnknownName`] with the names that the collective has.
pub fn find(collective: Collective, name: &str) -> Result<&'static Algorithm, UnknownName> {
    algorithms_for(collective)
        .find(|algorithm| algorithm.name == name)
        .ok_or_else(|| UnknownName {
            what: "algorithm",
            got: name.to_owned(),
            known: algorithms_for(collective).map(|a| a.name).collect(),
        })
}

/// The collectives that are carried out by plans, in the order in which reports list them.
pub fn planned() -> impl Iterator<Item = Collective> {
    Collective::ALL
        .into_iter()
        .filter(|collective| algorithms_for(*collective).next().is_some())
}

const PATARASUK: &str = "Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009";
const THAKUR: &str = "Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in MPICH, 2005";
const RABENSEIFNER: &str = "Rabenseifner, Optimization of collective reduction operations, 2004";
const BRUCK: &str = "Bruck, Ho, Kipnis, Upfal and Weathersby, Efficient algorithms for all-to-all \
     communications in multiport message-passing systems, 1997";
const HENSGEN: &str =
    "Hensgen, Finkel and Manber, Two algorithms for barrier synchronization, 1988";
const BARNETT: &str = "Barnett, Gupta, Payne, Shuler, van de Geijn and Watts, Interprocessor collective communication \
     library (InterCom), 1994";

/// Every algorithm. The order within a collective is the order in which reports list them.
pub static ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "direct",
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
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algo::Matrix;

    #[test]
    fn every_planned_collective_has_a_message_and_a_direct_algorithm_with_names_of_its_own() {
        let planned: Vec<Collective> = planned().collect();
        assert_eq!(planned.len(), 14);
        for collective in planned {
            let mut names: Vec<_> = algorithms_for(collective).map(|a| a.name).collect();
            for links in Links::ALL {
                assert!(
                    algorithms_for(collective).any(|a| a.links == links),
                    "{collective}"
                );
            }
            let all = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(
                names.len(),
                all,
                "{collective} has two algorithms of one name"
            );
        }
    }

    #[test]
    fn a_direct_all_to_all_v_with_only_local_counts_is_refused() {
        let matrix = Matrix::local(1, vec![1, 2], vec![4, 2]).expect("legal");
        let problem = Problem::all_to_all_v(matrix);
        let direct = find(Collective::AllToAllV, "direct").expect("registered");
        assert_eq!(
            direct.plan(&problem, 1, false),
            Err(PlanError::NeedsAllCounts {
                algorithm: "direct"
            })
        );
        let pairwise = find(Collective::AllToAllV, "pairwise").expect("registered");
        assert!(pairwise.plan(&problem, 1, false).is_ok());
        assert_eq!(
            pairwise.plan(&problem, 1, true),
            Err(PlanError::UnequalCounts { rank: 1 })
        );
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_names_of_the_collective() {
        let error = find(Collective::Barrier, "ring").expect_err("no such barrier");
        assert_eq!(error.known, ["direct", "dissemination"]);
    }
}
