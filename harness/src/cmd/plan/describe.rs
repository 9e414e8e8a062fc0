//! `muster plan describe`: what each algorithm does, and what it costs as counted from its plans.

use std::fmt::Write as _;

use muster_comm::algo::cost::Cost;
use muster_comm::algo::select::BUILT_IN;
use muster_comm::algo::{
    ALGORITHMS, Algorithm, Links, Topology, algorithms_for, planned, predict, sweep,
};
use muster_comm::types::Collective;

use super::{Outcome, unfit};
use crate::fail::Failure;

/// Numbers of ranks for which plans are counted.
const COUNTED: [usize; 7] = [2, 3, 4, 7, 8, 16, 64];
/// Elements of the largest buffer per rank of the group: every n above divides what comes out, and
/// their powers of two do.
const ELEMENTS_PER_RANK: usize = 64;
/// Groups and sizes for which times are predicted.
const PREDICTED: [usize; 4] = [8, 64, 1024, 16_384];
const SIZES: [(&str, usize); 5] = [
    ("1 KiB", 1 << 10),
    ("64 KiB", 1 << 16),
    ("1 MiB", 1 << 20),
    ("64 MiB", 1 << 26),
    ("1 GiB", 1 << 30),
];

const INTRODUCTION: &str = "\
# Algorithms

<!-- Printed by `muster plan describe` from the registry of algorithms and from their plans. -->

A collective is carried out by a *plan*: for each rank, rounds of steps over its send buffer (`In`),
its receive buffer (`Out`) and scratch memory. Plans are data: the engine runs them, a checker proves
them, and the numbers below are counted from them.

    muster plan show all_reduce -n 8 --algo ring     draws one plan
    muster plan check                                proves all plans
    muster plan cost all_reduce -n 64                predicts times

## How to read the tables

*n* is the number of ranks. *S* is the size of the largest buffer of any rank: the vector for
`all_reduce`, `reduce` and `broadcast`, all blocks together for the other collectives.

- **rounds**: rounds in which any rank sends, or reads from a peer.
- **barriers**: barriers of the group, for algorithms over shared memory.
- **messages**: the most messages that one rank sends.
- **sent**, **read**: the most that one rank sends, or reads from its peers' memory, in units of S.
- **combined**, **copied**: the most that one rank combines with other elements, or copies within its
  own memory, in units of S.
- **scratch**: the most memory that one rank needs besides its buffers, in units of S.

An algorithm for `direct` links needs memory that all ranks of the group share. An algorithm for
`message` links runs anywhere. Every algorithm is proved for 1 to 33 ranks and for 64, for counts of
zero, for fewer elements than ranks and for uneven blocks, with separate buffers and in place.
";

const PREDICTIONS: &str = "
## Predicted times

These are the predictions of `muster plan cost` with its default figures: hosts of 8 ranks; 1 us and
8 GB/s for each rank within a host, 5 us and 25 GB/s between hosts. A message takes the latency plus its
bytes over the bandwidth. The model has no congestion and no protocol overhead. It shows how algorithms
scale and where they cross; it is no measurement. Groups of more than 256 ranks are predicted from the
plans of a few ranks, as if no peer kept them waiting. Bold marks the shortest time of each line.
";

const SELECTION: &str = "
## Selection

The first rule that fits decides. `muster plan table` prints the rules and their grammar. The user's own
rules come before these. A rule that cannot be carried out is an error.
";

pub(super) fn render() -> Result<Outcome, Failure> {
    page().map(Outcome::ok)
}

/// The whole page, in Markdown.
fn page() -> Result<String, Failure> {
    let mut text = INTRODUCTION.to_owned();
    let mut last: &[Collective] = &[];
    for algorithm in ALGORITHMS {
        if algorithm.collectives != last {
            last = algorithm.collectives;
            let names: Vec<String> = last.iter().map(|c| format!("`{c}`")).collect();
            let _ = writeln!(text, "\n## {}", names.join(", "));
        }
        describe(&mut text, algorithm)?;
    }
    text.push_str(PREDICTIONS);
    for collective in planned().filter(|collective| !collective.has_lengths()) {
        predictions(&mut text, collective)?;
    }
    text.push_str(SELECTION);
    let _ = writeln!(text, "\n```text\n{BUILT_IN}```");
    Ok(text)
}

// Writing to a string cannot fail.
fn describe(text: &mut String, algorithm: &Algorithm) -> Result<(), Failure> {
    let _ = writeln!(text, "\n### {}\n", algorithm.name);
    let _ = writeln!(text, "Links: {}. {}\n", algorithm.links, algorithm.good);
    for (number, step) in algorithm.steps.iter().enumerate() {
        let _ = writeln!(text, "{}. {step}", number + 1);
    }
    if let Some(source) = algorithm.source {
        let _ = writeln!(text, "\nSource: {source}.");
    }
    text.push_str(
        "\n| n | rounds | barriers | messages | sent | read | combined | copied | scratch |\n\
         |--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for n in COUNTED {
        let elements = n * ELEMENTS_PER_RANK;
        let problem = sweep::sized(algorithm.collectives[0], n, elements).map_err(unfit)?;
        let cost = Cost::of(&algorithm.plans(&problem, false).map_err(unfit)?);
        let share = |count: usize| share(count, problem.elements().unwrap_or(0));
        let _ = writeln!(
            text,
            "| {n} | {} | {} | {} | {} | {} | {} | {} | {} |",
            cost.rounds,
            cost.barriers,
            cost.messages_most,
            share(cost.sent_most),
            share(cost.pulled_most),
            share(cost.reduced_most),
            share(cost.copied_most),
            share(cost.scratch_most),
        );
    }
    Ok(())
}

/// A number of elements in units of the whole, with two digits behind the point.
fn share(count: usize, whole: usize) -> String {
    if whole == 0 {
        return "–".to_owned();
    }
    let hundredths = (count * 100 + whole / 2) / whole;
    match hundredths % 100 {
        0 => format!("{}", hundredths / 100),
        rest => format!("{}.{rest:02}", hundredths / 100),
    }
}

fn predictions(text: &mut String, collective: Collective) -> Result<(), Failure> {
    let algorithms: Vec<&Algorithm> = algorithms_for(collective).collect();
    let names: Vec<&str> = algorithms.iter().map(|a| a.name).collect();
    let _ = writeln!(text, "\n### {collective}\n");
    let _ = writeln!(text, "| n | S | {} |", names.join(" | "));
    let _ = writeln!(text, "|--:|--:|{}", "--:|".repeat(names.len()));
    let sizes = if collective.is_empty() {
        &SIZES[..1]
    } else {
        &SIZES[..]
    };
    let topology = Topology::default();
    for n in PREDICTED {
        for (name, bytes) in sizes {
            // Blocks of less than a byte a rank say nothing.
            if *bytes < n {
                continue;
            }
            let problem = sweep::sized(collective, n, *bytes).map_err(unfit)?;
            let mut times = Vec::new();
            for algorithm in &algorithms {
                let has_links = algorithm.links == Links::Message || n <= topology.ranks_per_host();
                times.push(if has_links {
                    Some(
                        predict(algorithm, &problem, 1, &topology)
                            .map_err(unfit)?
                            .seconds,
                    )
                } else {
                    None
                });
            }
            let least = times
                .iter()
                .flatten()
                .copied()
                .fold(f64::INFINITY, f64::min);
            let cells: Vec<String> = times.iter().map(|time| cell(*time, least)).collect();
            let size = if collective.is_empty() { "–" } else { name };
            let _ = writeln!(text, "| {n} | {size} | {} |", cells.join(" | "));
        }
    }
    Ok(())
}

fn cell(seconds: Option<f64>, least: f64) -> String {
    let Some(seconds) = seconds else {
        return "–".to_owned();
    };
    let time = if seconds < 1e-3 {
        format!("{:.1} us", seconds * 1e6)
    } else if seconds < 1.0 {
        format!("{:.2} ms", seconds * 1e3)
    } else {
        format!("{seconds:.2} s")
    };
    if seconds <= least {
        format!("**{time}**")
    } else {
        time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_describes_every_registered_algorithm_under_its_collectives() {
        let page = page().expect("made");
        for algorithm in ALGORITHMS {
            for collective in algorithm.collectives {
                let describes = |section: &str| {
                    let (heads, text) = section.split_once('\n').unwrap_or_default();
                    heads.contains(&format!("`{collective}`"))
                        && text.contains(&format!("\n### {}\n", algorithm.name))
                        && text.contains(algorithm.good)
                };
                assert!(
                    page.split("\n## ").any(describes),
                    "{} of {collective} is missing",
                    algorithm.name
                );
            }
        }
        assert!(page.ends_with(&format!("{BUILT_IN}```\n")));
    }
}
