//! `muster plan show`: one algorithm, drawn.

use std::fmt::Write as _;

use clap::{Args, ValueEnum};
use muster_comm::algo::check::check;
use muster_comm::algo::{Algorithm, Cost, Links, Plan, Problem, Proof, draw, find, select};
use muster_comm::types::{Collective, Pattern};
use serde_json::json;

use super::{Outcome, SCHEMA_VERSION, document, parse_collective, unfit};
use crate::cmd::values::did_you_mean;
use crate::fail::Failure;

/// Most ranks whose plans are shown: more can be drawn by nobody and checked only slowly.
const RANKS_MAX: u32 = 1024;
/// Most ranks of which every step is shown unless asked for.
const RANKS_IN_FULL: usize = 8;
/// Size of the elements for which an algorithm is selected.
const ELEMENT_BYTES: u64 = 4;

/// Options of `muster plan show`.
#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    /// The collective: all_reduce, all_to_all_v, …
    #[arg(value_parser = parse_collective)]
    collective: Collective,

    /// Number of ranks
    #[arg(short, long = "ranks", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(RANKS_MAX)))]
    n: u32,

    /// The algorithm [default: the one that the built-in table selects]
    #[arg(long, value_name = "NAME")]
    algo: Option<String>,

    /// Elements of the vector, or of each block [default: 4 a rank]
    #[arg(long, value_name = "COUNT")]
    count: Option<usize>,

    /// Elements of each block, for the v forms: one a rank, or one a cell of the matrix, row by row
    #[arg(
        long,
        value_name = "COUNTS",
        value_delimiter = ',',
        conflicts_with = "count"
    )]
    counts: Vec<usize>,

    /// The root of a rooted collective [default: 0]
    #[arg(long, value_name = "RANK")]
    root: Option<usize>,

    /// Links for which an algorithm is selected
    #[arg(long, value_enum, default_value_t = LinksArg::Message)]
    links: LinksArg,

    /// Show the plans of calls whose send and receive buffers are the same memory
    #[arg(long)]
    in_place: bool,

    /// Show the steps of this rank only; may be given more than once
    #[arg(long, value_name = "RANK")]
    rank: Vec<usize>,

    /// How to show them
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// What ranks have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LinksArg {
    /// All ranks share memory
    Direct,
    /// Ranks send messages
    Message,
}

/// How plans are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Rounds by ranks, and every step
    Text,
    /// A Mermaid sequence diagram
    Mermaid,
    /// An SVG picture
    Svg,
    /// One JSON document
    Json,
}

/// Everything about one algorithm for one problem.
struct Shown {
    problem: Problem,
    algorithm: &'static Algorithm,
    plans: Vec<Plan>,
    proof: Proof,
}

pub(super) fn render(args: &ShowArgs) -> Result<Outcome, Failure> {
    let problem = args.problem()?;
    if let Some(rank) = args.rank.iter().find(|rank| **rank >= problem.n()) {
        return Err(Failure::usage(format!(
            "--rank {rank} is not in a group of {}; ranks are 0 to {}",
            problem.n(),
            problem.n() - 1
        )));
    }
    let algorithm = args.algorithm(&problem)?;
    let plans = algorithm.plans(&problem, args.in_place).map_err(unfit)?;
    let proof = check(&problem, &plans)
        .map_err(|fault| Failure::internal(format!("{}: {fault}", algorithm.name)))?;
    let shown = Shown {
        problem,
        algorithm,
        plans,
        proof,
    };
    let text = match args.format {
        Format::Text => shown.text(&args.rank),
        Format::Mermaid => draw::mermaid(&shown.plans).map_err(unfit)?,
        Format::Svg => draw::svg(&shown.plans, &shown.title()).map_err(unfit)?,
        Format::Json => document(&shown.json()),
    };
    Ok(Outcome::ok(text))
}

impl ShowArgs {
    fn problem(&self) -> Result<Problem, Failure> {
        let n = self.n as usize;
        let root = match self.root {
            Some(root) if !self.collective.is_rooted() => {
                return Err(Failure::usage(format!(
                    "--root {root} is given, and {} has no root",
                    self.collective
                )));
            }
            root => root.unwrap_or(0),
        };
        let is_of_blocks = self.collective.pattern().is_some_and(Pattern::is_of_blocks);
        let count = self.count.unwrap_or(if is_of_blocks { 4 } else { 4 * n });
        let problem = if self.collective.has_lengths() {
            let cells = if self.collective.has_splits() {
                n * n
            } else {
                n
            };
            let same = vec![count; cells];
            let counts = if self.counts.is_empty() {
                &same
            } else {
                &self.counts
            };
            if counts.len() != cells {
                return Err(Failure::usage(format!(
                    "--counts has {} numbers; {} of {n} ranks has {cells} counts",
                    counts.len(),
                    self.collective
                )));
            }
            Problem::uneven(self.collective, n, counts, root)
        } else if self.counts.is_empty() {
            Problem::uniform(self.collective, n, count, root)
        } else {
            return Err(Failure::usage(format!(
                "--counts is given, and {} has one count for all; use --count",
                self.collective
            )));
        };
        problem.map_err(unfit)
    }

    fn algorithm(&self, problem: &Problem) -> Result<&'static Algorithm, Failure> {
        if let Some(name) = &self.algo {
            return find(self.collective, name).map_err(|error| {
                let meant = did_you_mean(error.suggestion());
                Failure::usage(format!("{error}{meant}"))
            });
        }
        let links = match self.links {
            LinksArg::Direct => Links::Direct,
            LinksArg::Message => Links::Message,
        };
        let bytes = problem.elements().unwrap_or(0) as u64 * ELEMENT_BYTES;
        select(self.collective, bytes, problem.n(), links).map_err(unfit)
    }
}

impl Shown {
    fn title(&self) -> String {
        let mut title = format!(
            "{}, {}, {} ranks",
            self.problem.collective(),
            self.algorithm.name,
            self.problem.n()
        );
        if let Some(elements) = self.problem.elements().filter(|elements| *elements > 0) {
            // Writing to a string cannot fail.
            let _ = write!(title, ", {elements} elements");
        }
        if let Some(root) = self.problem.root() {
            let _ = write!(title, ", root {root}");
        }
        title
    }

    fn text(&self, ranks: &[usize]) -> String {
        let cost = Cost::of(&self.plans);
        let mut text = format!("{}\n\n", self.title());
        for (number, step) in self.algorithm.steps.iter().enumerate() {
            let _ = writeln!(text, "{}. {step}", number + 1);
        }
        let _ = writeln!(text, "\nGood for: {}", self.algorithm.good);
        if let Some(source) = self.algorithm.source {
            let _ = writeln!(text, "Source: {source}");
        }
        let _ = writeln!(
            text,
            "Cost: {} rounds, at most {} elements sent and {} read from peers by one rank, {} of \
             scratch, {} barriers",
            cost.rounds, cost.sent_most, cost.pulled_most, cost.scratch_most, cost.barriers
        );
        let _ = writeln!(
            text,
            "Proof: proved for all ranks, for {}\n",
            if self.proof.in_place {
                "separate buffers and in place"
            } else {
                "separate buffers"
            }
        );
        let n = self.problem.n();
        let everybody: Vec<usize> = (0..n).collect();
        let shown = match ranks {
            [] if n <= RANKS_IN_FULL => &everybody,
            [] => &everybody[..1],
            ranks => ranks,
        };
        text.push_str(&draw::text(&self.plans, shown));
        if ranks.is_empty() && n > RANKS_IN_FULL {
            let _ = writeln!(text, "\nThe steps of other ranks: --rank R");
        }
        text
    }

    fn json(&self) -> serde_json::Value {
        let cost = Cost::of(&self.plans);
        json!({
            "schema_version": SCHEMA_VERSION,
            "tool": crate::TOOL,
            "collective": self.problem.collective(),
            "algo": self.algorithm.name,
            "links": self.algorithm.links,
            "n": self.problem.n(),
            "elements": self.problem.elements(),
            "root": self.problem.root(),
            "proved": {
                "in_place": self.proof.in_place,
                "messages": self.proof.messages,
                "elements": self.proof.elements,
            },
            "cost": {
                "rounds": cost.rounds,
                "barriers": cost.barriers,
                "sent_most": cost.sent_most,
                "sent_total": cost.sent_total,
                "pulled_most": cost.pulled_most,
                "scratch_most": cost.scratch_most,
            },
            "plans": self.plans,
        })
    }
}
