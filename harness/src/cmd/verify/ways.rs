//! The ways in which `verify` makes every call go: memory, algorithm, instructions.

use clap::{Args, ValueEnum};
use muster_comm::kernel::{Isa, Kernels};
use muster_comm::types::closest;

use crate::fail::Failure;
use crate::run::job::{Forced, Transport};

/// Options that force paths, each of which is proved by itself.
#[derive(Debug, Args)]
pub(super) struct Ways {
    /// Where buffers lie; `both` runs every matrix twice
    #[arg(long, value_enum, default_value_t = MemoryKind::Private)]
    memory: MemoryKind,

    /// Algorithms that calls must use, separated by commas: auto, all, or names from `muster plan show`
    ///
    /// Every matrix runs once for each. Calls without the algorithm are left out of that run, and
    /// one that goes another way fails.
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "auto"
    )]
    algo: Vec<String>,

    /// Vector instructions, separated by commas: best, all, or scalar, avx2, avx512, avx512_bf16, neon, neon_bf16 [default: MUSTER_ISA, else best]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    isa: Vec<String>,
}

/// Where buffers lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum MemoryKind {
    /// Ordinary memory and region memory, one after the other
    Both,
    /// Ordinary memory of the process
    Private,
    /// The rank's shared region, which peers on the host access without a copy
    Region,
}

impl Ways {
    /// Whether anything is forced.
    #[must_use]
    pub(super) fn is_any(&self) -> bool {
        let is_auto = self.algo.iter().all(|name| name == "auto");
        self.memory != MemoryKind::Private || !is_auto || !self.isa.is_empty()
    }

    /// Every combination, in the order of the options.
    ///
    /// # Errors
    /// A failure of class USAGE for a name that there is not, or that cannot be had here.
    pub(super) fn all(&self, transport: Transport) -> Result<Vec<Forced>, Failure> {
        let direct = transport != Transport::Tcp;
        let memories: &[bool] = match self.memory {
            MemoryKind::Both => &[false, true],
            MemoryKind::Private => &[false],
            MemoryKind::Region => &[true],
        };
        if !direct && memories.contains(&true) {
            return Err(Failure::usage(
                "--memory region needs shared memory, which --transport tcp forbids",
            ));
        }
        let (algos, isas) = (self.algos(direct)?, self.isas()?);
        let mut all = Vec::new();
        for region in memories {
            for algo in &algos {
                for isa in &isas {
                    all.push(Forced {
                        algo: algo.clone(),
                        isa: isa.clone(),
                        region: *region,
                    });
                }
            }
        }
        Ok(all)
    }

    fn algos(&self, direct: bool) -> Result<Vec<Option<String>>, Failure> {
        let known = Forced::all_algorithms(direct);
        let mut chosen: Vec<Option<String>> = Vec::new();
        for name in &self.algo {
            let found = match name.trim() {
                "auto" => vec![None],
                "all" => known.iter().cloned().map(Some).collect(),
                name if known.iter().any(|known| known == name) => vec![Some(name.to_owned())],
                name => return Err(unknown("algorithm", name, &known)),
            };
            chosen.extend(found);
        }
        Ok(chosen)
    }

    fn isas(&self) -> Result<Vec<Option<String>>, Failure> {
        let here: Vec<String> = Isa::ALL
            .into_iter()
            .filter(|isa| Kernels::new(*isa).is_ok())
            .map(|isa| isa.name().to_owned())
            .collect();
        if self.isa.is_empty() {
            return Ok(vec![None]);
        }
        let mut chosen: Vec<Option<String>> = Vec::new();
        for name in &self.isa {
            let found = match name.trim() {
                "best" => vec![Some(Kernels::best().isa().name().to_owned())],
                "all" => here.iter().cloned().map(Some).collect(),
                name if here.iter().any(|known| known == name) => vec![Some(name.to_owned())],
                name => {
                    return Err(unknown(
                        "family of instructions that this processor has",
                        name,
                        &here,
                    ));
                }
            };
            chosen.extend(found);
        }
        Ok(chosen)
    }
}

fn unknown(what: &str, got: &str, known: &[String]) -> Failure {
    let meant = closest(got, known.iter().map(String::as_str));
    let failure = Failure::usage(format!(
        "{got:?} is no {what}; there is {}",
        known.join(", ")
    ));
    match meant {
        Some(meant) => failure.with_help(format!("did you mean {meant}?")),
        None => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ways(memory: MemoryKind, algo: &[&str], isa: &[&str]) -> Ways {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Ways {
            memory,
            algo: words(algo),
            isa: words(isa),
        }
    }

    #[test]
    fn without_options_there_is_one_way_and_nothing_is_forced() {
        let ways = ways(MemoryKind::Private, &["auto"], &[]);
        assert!(!ways.is_any());
        assert_eq!(
            ways.all(Transport::Auto).expect("legal"),
            [Forced::default()]
        );
        assert_eq!(Forced::default().suffix(), "");
        assert_eq!(Forced::default().rules(), None);
    }

    #[test]
    fn all_combinations_are_run_and_named() {
        let ways = ways(MemoryKind::Both, &["auto", "ring"], &["scalar"]);
        assert!(ways.is_any());
        let all = ways.all(Transport::Auto).expect("legal");
        let names: Vec<String> = all.iter().map(Forced::suffix).collect();
        assert_eq!(
            names,
            [
                "+scalar",
                "+ring+scalar",
                "+region+scalar",
                "+region+ring+scalar"
            ]
        );
    }

    #[test]
    fn every_algorithm_has_calls_and_rules_that_a_table_takes() {
        let all = ways(MemoryKind::Private, &["all"], &[])
            .all(Transport::Auto)
            .expect("legal");
        assert!(all.len() > 10, "{all:?}");
        for forced in &all {
            assert!(!forced.calls().is_empty(), "{forced:?}");
            let rules = forced.rules().expect("it is forced");
            let table = muster_comm::algo::Table::with_overrides(&rules).expect(&rules);
            assert_eq!(table.own_rules(), forced.calls().len());
        }
        let over_tcp = ways(MemoryKind::Private, &["all"], &[]).all(Transport::Tcp);
        assert!(over_tcp.expect("legal").len() < all.len());
    }

    #[test]
    fn what_cannot_be_had_is_refused() {
        for (wrong, transport, word) in [
            (
                ways(MemoryKind::Private, &["rign"], &[]),
                Transport::Auto,
                "rign",
            ),
            (
                ways(MemoryKind::Private, &["entry"], &[]),
                Transport::Tcp,
                "entry",
            ),
            (
                ways(MemoryKind::Private, &["auto"], &["sse2"]),
                Transport::Auto,
                "sse2",
            ),
            (
                ways(MemoryKind::Region, &["auto"], &[]),
                Transport::Tcp,
                "--memory region",
            ),
        ] {
            let failure = wrong.all(transport).expect_err(word);
            assert!(failure.message.contains(word), "{}", failure.message);
        }
    }
}
