//! The algorithms there are.
//!
//! One table, one entry an algorithm. What is said here of an algorithm appears in
//! `muster plan show` and `muster plan describe`; its costs do not stand here, they are counted
//! from its plans.

mod table;

use super::builder::{Builder, input, output};
use super::plan::{Links, Plan};
use super::problem::Problem;
use super::shape::Matrix;
use super::stage;
use crate::types::{Collective, Over, Source, UnknownName};
pub use table::{ALGORITHMS, ENTRY};

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
        if let Some(own) = problem.matrix().and_then(Matrix::owner)
            && own != rank
        {
            return Err(PlanError::OtherRank { rank, own });
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
    let len = match problem.pattern().source() {
        // Nobody stands before the only rank.
        Source::Reduction(Over::Before) => 0,
        Source::Each
        | Source::Nobody
        | Source::Reduction(Over::All | Over::UpTo)
        | Source::Root => problem.in_len(0).min(problem.out_len(0)),
    };
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
    /// The plan of a rank from what another rank knows.
    #[error("only the counts of rank {own} are known, so there is no plan for rank {rank}")]
    OtherRank {
        /// The rank whose plan was asked for.
        rank: usize,
        /// The rank whose counts are known.
        own: usize,
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

/// What a selection table may name for a collective: its algorithms, and [`ENTRY`] where that carries it.
pub fn choices_for(collective: Collective) -> impl Iterator<Item = &'static Algorithm> {
    let entry = ENTRY.collectives.contains(&collective).then_some(&ENTRY);
    algorithms_for(collective).chain(entry)
}

/// The choice for `collective` with this name; see [`choices_for`].
///
/// # Errors
/// [`UnknownName`] with the names that the collective has.
pub fn find_choice(collective: Collective, name: &str) -> Result<&'static Algorithm, UnknownName> {
    choices_for(collective)
        .find(|algorithm| algorithm.name == name)
        .ok_or_else(|| UnknownName {
            what: "algorithm",
            got: name.to_owned(),
            known: choices_for(collective).map(|a| a.name).collect(),
        })
}

/// The collectives that are carried out by plans, in the order in which reports list them.
pub fn planned() -> impl Iterator<Item = Collective> {
    Collective::ALL
        .into_iter()
        .filter(|collective| algorithms_for(*collective).next().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_planned_collective_has_a_message_and_a_direct_algorithm_with_names_of_its_own() {
        let planned: Vec<Collective> = planned().collect();
        assert_eq!(planned.len(), 16);
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
            pairwise.plan(&problem, 0, false),
            Err(PlanError::OtherRank { rank: 0, own: 1 })
        );
        assert_eq!(
            pairwise.plan(&problem, 1, true),
            Err(PlanError::UnequalCounts { rank: 1 })
        );
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_names_of_the_collective() {
        let error = find(Collective::Barrier, "ring").expect_err("no such barrier");
        assert_eq!(error.known, ["direct", "dissemination", "hierarchical"]);
    }
}
