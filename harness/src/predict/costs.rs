//! What was measured of a machine: the cost of each term, by ranks and hosts. It is the part `calls` of a topology file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::call::{Call, Place, Route};
use super::fit::{Line, fit};
use super::terms::TERMS;
use super::work::Work;
use crate::bench::model::Record;

/// What calls cost on a machine that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calls {
    /// When, where and under which load.
    pub measured: Measured,
    /// Costs of worlds of so many ranks.
    pub worlds: Vec<Costs>,
}

/// Where figures come from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// When it began, UTC.
    pub at: String,
    /// The processor.
    pub cpu: String,
    /// Processors that the program could use.
    pub processors: usize,
    /// Mean load of the last minute, before and after.
    pub load: [f64; 2],
    /// Program and version.
    pub tool: String,
}

/// The costs of a world.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// Its ranks.
    pub ranks: usize,
    /// Its hosts.
    pub hosts: u32,
    /// Whether the ranks of a host share memory; else they are joined by TCP.
    pub shares_memory: bool,
    /// Whether its ranks read each other's ordinary memory by system call.
    pub may_read: bool,
    /// Calls that were measured for it.
    pub lines: usize,
    /// Median relative error of these calls, which the costs were fitted to.
    pub fitted_error: f64,
    /// Costs by term: microseconds for an occurrence, nanoseconds for a byte. A term that is absent was not measured.
    pub costs: BTreeMap<String, f64>,
}

/// A predicted call.
#[derive(Clone, Debug)]
pub struct Predicted {
    /// Its time in microseconds.
    pub us: f64,
    /// How it would go.
    pub route: Route,
    /// The term that costs most.
    pub bound: &'static str,
}

impl Calls {
    /// Checks what parsing does not: names and figures.
    ///
    /// # Errors
    /// What is wrong, with its place.
    pub fn check(&self) -> Result<(), String> {
        if self.worlds.is_empty() {
            return Err("calls.worlds is empty".to_owned());
        }
        for (place, world) in self.worlds.iter().enumerate() {
            let at = format!("calls.worlds[{place}]");
            if world.ranks < 2 || world.hosts == 0 || world.hosts as usize > world.ranks {
                return Err(format!(
                    "{at}: {} ranks on {} hosts, allowed are 2 ranks and more on at most as many hosts",
                    world.ranks, world.hosts
                ));
            }
            for (name, cost) in &world.costs {
                if !TERMS.iter().any(|term| term.name == name) {
                    let names = TERMS.map(|term| term.name).join(", ");
                    return Err(format!(
                        "{at}.costs: there is no term {name:?}; terms are {names}"
                    ));
                }
                if !(cost.is_finite() && *cost >= 0.0) {
                    return Err(format!(
                        "{at}.costs.{name} is {cost}, allowed are numbers from 0"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Predicts a call of a group of these members.
    ///
    /// # Errors
    /// What the model does not know: the call, the number of ranks, or the cost of a term.
    pub fn predict(
        &self,
        call: &Call,
        place: &Place,
        members: &[u32],
    ) -> Result<Predicted, String> {
        let of_place = |world: &&Costs| {
            (world.hosts, world.shares_memory) == (place.host_count(), place.shares_memory)
        };
        let mut place = place.clone();
        place.may_read = self
            .worlds
            .iter()
            .filter(of_place)
            .any(|world| world.may_read);
        let place = &place;
        let (work, route) = Work::of(call, place, members)?;
        let ranks = place.hosts.len();
        let mut fitting: Vec<&Costs> = self.worlds.iter().filter(of_place).collect();
        fitting.sort_by_key(|world| world.ranks);
        let upper = fitting.iter().position(|world| world.ranks >= ranks);
        let missing = || {
            let known: Vec<String> = fitting
                .iter()
                .map(|world| world.ranks.to_string())
                .collect();
            let known = if known.is_empty() {
                "none".to_owned()
            } else {
                known.join(", ")
            };
            format!(
                "worlds of {ranks} ranks on {} hosts were not measured (of such: {known}); measure them with muster tune --model",
                place.host_count()
            )
        };
        let upper = upper.ok_or_else(missing)?;
        let (us, bound) = fitting[upper].price(&work)?;
        if fitting[upper].ranks == ranks {
            return Ok(Predicted { us, route, bound });
        }
        let lower = upper
            .checked_sub(1)
            .map(|lower| fitting[lower])
            .ok_or_else(missing)?;
        let log = |ranks: usize| (ranks as f64).ln();
        let part = (log(ranks) - log(lower.ranks)) / (log(fitting[upper].ranks) - log(lower.ranks));
        let (below, _) = lower.price(&work)?;
        let us = (below.ln() * (1.0 - part) + us.ln() * part).exp();
        Ok(Predicted { us, route, bound })
    }
}

impl Calls {
    /// With the worlds of an earlier file that are not in this one.
    #[must_use]
    pub fn beside(mut self, before: Self) -> Self {
        let key = |world: &Costs| (world.ranks, world.hosts, world.shares_memory);
        let known: Vec<_> = self.worlds.iter().map(key).collect();
        let others = before
            .worlds
            .into_iter()
            .filter(|world| !known.contains(&key(world)));
        self.worlds.extend(others);
        self.worlds.sort_by_key(key);
        self
    }

    /// The cost of a term in the smallest world that has it, on one host or on several.
    #[must_use]
    pub fn cost(&self, term: &str, is_between: bool) -> Option<f64> {
        let of_kind = |world: &&Costs| (world.hosts > 1) == is_between;
        let mut all: Vec<&Costs> = self.worlds.iter().filter(of_kind).collect();
        all.sort_by_key(|world| world.ranks);
        all.iter().find_map(|world| world.costs.get(term)).copied()
    }
}

impl Costs {
    /// Fits the costs of a world to what was measured in it.
    #[must_use]
    pub fn fitted(records: &[Record], place: &Place) -> Self {
        let members: Vec<u32> = (0..).take(place.hosts.len()).collect();
        let mut place = place.clone();
        place.may_read = records
            .iter()
            .any(|record| record.taken.as_deref() == Some("read"));
        let place = &place;
        let line = |record: &Record| {
            let is_timed = record.unsupported.is_none() && record.latency_us.median > 0.0;
            let (work, _) = Work::of(&Call::of(record).ok()?, place, &members).ok()?;
            is_timed.then_some(Line {
                counts: work.0,
                time: record.latency_us.median,
            })
        };
        let lines: Vec<Line<{ TERMS.len() }>> = records.iter().filter_map(line).collect();
        let found = fit(&lines);
        let named = TERMS.iter().zip(found).filter_map(|(term, cost)| {
            let unit = if term.is_of_bytes { 1e3 } else { 1.0 };
            Some((term.name.to_owned(), rounded(cost? * unit)))
        });
        let mut world = Self {
            ranks: place.hosts.len(),
            hosts: place.host_count(),
            shares_memory: place.shares_memory,
            may_read: place.may_read,
            lines: lines.len(),
            fitted_error: 0.0,
            costs: named.collect(),
        };
        let error = |line: &Line<{ TERMS.len() }>| {
            let (us, _) = world.price(&Work(line.counts)).ok()?;
            Some((us / line.time - 1.0).abs())
        };
        let mut errors: Vec<f64> = lines.iter().filter_map(error).collect();
        crate::stats::sort(&mut errors);
        world.fitted_error = if errors.is_empty() {
            0.0
        } else {
            rounded(crate::stats::median(&errors))
        };
        world
    }

    /// Microseconds of some work, and the term that costs most of them.
    fn price(&self, work: &Work) -> Result<(f64, &'static str), String> {
        let mut sum = 0.0;
        let mut most = (0.0, "call");
        for (term, count) in TERMS.iter().zip(work.0) {
            if count <= 0.0 {
                continue;
            }
            let cost = self.costs.get(term.name).ok_or_else(|| {
                format!(
                    "the cost of {} ({}) was not measured for worlds of {} ranks on {} hosts; give it as {} in the file",
                    term.name, term.meaning, self.ranks, self.hosts, term.name
                )
            })?;
            let unit = if term.is_of_bytes { 1e-3 } else { 1.0 };
            let us = cost * unit * count;
            sum += us;
            if us > most.0 {
                most = (us, term.name);
            }
        }
        Ok((sum, most.1))
    }
}

/// Six digits, which is more than anything here is known to.
fn rounded(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}
