//! What the collectives of a recording would take by the cost model: predicted, never measured.

use std::collections::BTreeMap;

use muster_comm::algo::{
    Algorithm, Links, Matrix, Problem as Planned, ProblemError, algorithms_for, predict,
};
use muster_comm::types::Collective;
use serde::Serialize;

use super::program::{Action, Counts, Group, Program};
use crate::topology::{Machine, Reach};

/// What is assumed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WhatIf {
    /// The one algorithm that collectives take which have it; else the fastest by the model.
    algorithm: Option<String>,
    machine: Machine,
}

/// The words of a what-if, for help and messages.
pub const KEYS: &str = "algo=NAME, topology=FILE|PRESET, ranks-per-host=N, within-us=US, within-gbs=GB/S, between-us=US, between-gbs=GB/S";

impl WhatIf {
    /// Reads `key=value` pairs that commas part.
    ///
    /// # Errors
    /// What is wrong, and what is allowed.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut what = Self::default();
        let mut pairs: Vec<&str> = text.split(',').collect();
        // The others change the machine that it names.
        pairs.sort_by_key(|pair| !pair.starts_with("topology="));
        for pair in pairs {
            let wrong = || format!("{pair:?}; allowed are {KEYS}, parted by commas");
            let (key, value) = pair.split_once('=').ok_or_else(wrong)?;
            let positive = || {
                let number = value.parse::<f64>().ok();
                number
                    .filter(|number| number.is_finite() && *number > 0.0)
                    .ok_or_else(wrong)
            };
            let machine = &mut what.machine;
            match key {
                "algo" => {
                    let is_known = Collective::ALL
                        .into_iter()
                        .flat_map(algorithms_for)
                        .any(|algorithm| algorithm.name == value);
                    if !is_known {
                        return Err(format!(
                            "no algorithm is named {value:?}; muster plan list shows all"
                        ));
                    }
                    what.algorithm = Some(value.to_owned());
                }
                "ranks-per-host" => {
                    let ranks = value.parse().ok().filter(|ranks| *ranks > 0);
                    machine.set_ranks_per_host(ranks.ok_or_else(wrong)?);
                }
                "topology" => *machine = Machine::named(value)?,
                "within-us" => machine.set_latency(Reach::Within, positive()?),
                "within-gbs" => machine.set_bandwidth(Reach::Within, positive()?),
                "between-us" => machine.set_latency(Reach::Between, positive()?),
                "between-gbs" => machine.set_bandwidth(Reach::Between, positive()?),
                _ => return Err(wrong()),
            }
        }
        Ok(what)
    }
}

/// The predicted time of calls of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    /// The collective.
    pub collective: String,
    /// Ranks of the communicator.
    pub ranks: usize,
    /// Calls, each counted once for all its ranks.
    pub calls: u64,
    /// Predicted seconds of all of them.
    pub predicted_s: f64,
    /// The algorithms that they take, and how often.
    pub algorithms: BTreeMap<String, u64>,
}

/// What was predicted.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Price {
    /// By collective and number of ranks, the most expensive first.
    pub rows: Vec<Row>,
    /// Predicted seconds in collectives of the rank that has most.
    pub busiest_s: f64,
    /// That rank.
    pub busiest: usize,
    /// Calls that the model does not know: messages, groups of one.
    pub unknown: u64,
    /// The machine that was assumed.
    pub topology: String,
    /// Figures of it that nobody knows and that count nothing here: with any, times are lower bounds.
    pub not_known: Vec<String>,
}

/// Prices the collectives of a program.
///
/// # Errors
/// Where a call is too large for the planner.
pub fn price(program: &Program, what: &WhatIf) -> Result<Price, ProblemError> {
    let mut known: BTreeMap<String, Option<(&'static str, f64)>> = BTreeMap::new();
    let mut rows: BTreeMap<(String, usize), Row> = BTreeMap::new();
    let mut price = Price {
        topology: what.machine.name.clone(),
        not_known: what.machine.unknown.clone(),
        ..Price::default()
    };
    for (rank, own) in program.ranks.iter().enumerate() {
        let mut spent_s = 0.0;
        for step in own.threads.iter().flatten() {
            let group = &own.groups[step.group];
            let is_first = group
                .members
                .first()
                .is_some_and(|first| *first as usize == rank);
            let hosts = on_first_host(group, what.machine.topology.ranks_per_host());
            let key = format!("{} {hosts} {:?}", group.members.len(), step.action);
            let found = match known.get(&key) {
                Some(found) => *found,
                None => {
                    let found = predicted(&step.action, group.members.len(), hosts, what)?;
                    known.insert(key, found);
                    found
                }
            };
            let (Action::Collective { collective, .. }, Some((algorithm, seconds))) =
                (&step.action, found)
            else {
                price.unknown += 1;
                continue;
            };
            spent_s += seconds;
            if is_first {
                let key = (collective.name().to_owned(), group.members.len());
                let row = rows.entry(key.clone()).or_insert_with(|| Row {
                    collective: key.0,
                    ranks: key.1,
                    ..Row::default()
                });
                row.calls += 1;
                row.predicted_s += seconds;
                *row.algorithms.entry(algorithm.to_owned()).or_default() += 1;
            }
        }
        if spent_s > price.busiest_s {
            (price.busiest, price.busiest_s) = (rank, spent_s);
        }
    }
    price.rows = rows.into_values().collect();
    price
        .rows
        .sort_by(|one, other| other.predicted_s.total_cmp(&one.predicted_s));
    Ok(price)
}

/// Members on the host of the first: the model has equally many on each.
fn on_first_host(group: &Group, ranks_per_host: usize) -> usize {
    let host = |rank: &u32| *rank as usize / ranks_per_host;
    let first = group.members.first().map(host);
    let here = group
        .members
        .iter()
        .filter(|rank| Some(host(rank)) == first);
    here.count().max(1)
}

/// The algorithm and its time; none where the model knows neither.
fn predicted(
    action: &Action,
    n: usize,
    per_host: usize,
    what: &WhatIf,
) -> Result<Option<(&'static str, f64)>, ProblemError> {
    let Action::Collective {
        collective,
        dtype,
        root,
        counts,
        ..
    } = action
    else {
        return Ok(None);
    };
    if n == 1 || !collective.is_planned() {
        return Ok(None);
    }
    let problem = match counts {
        Counts::Uniform(count) => Planned::uniform(*collective, n, *count, *root)?,
        Counts::Blocks(counts) => Planned::uneven(*collective, n, counts, *root)?,
        Counts::Splits(rows) => Planned::all_to_all_v(Matrix::full(n, rows.concat())?),
    };
    let topology = what.machine.gathered(per_host);
    let fits = |algorithm: &&'static Algorithm| algorithm.links == Links::Message || n <= per_host;
    let all: Vec<_> = algorithms_for(*collective).filter(fits).collect();
    let wanted = all
        .iter()
        .filter(|algorithm| Some(algorithm.name) == what.algorithm.as_deref());
    let chosen: Vec<_> = match wanted.copied().collect::<Vec<_>>() {
        none if none.is_empty() => all,
        some => some,
    };
    let times = chosen.into_iter().filter_map(|algorithm| {
        let time = predict(algorithm, &problem, dtype.size(), &topology).ok()?;
        Some((algorithm.name, time.seconds))
    });
    Ok(times.min_by(|one, other| one.1.total_cmp(&other.1)))
}
