//! Machines that predictions are for: read from files, or presets by name. It must not know commands.
//!
//! A figure that nobody knows is null in a file. It counts nothing, so times are lower bounds, and
//! everything that shows them says which figures are missing.

use std::path::Path;

use muster_comm::algo::Problem;
use muster_comm::algo::cost::{Level, Topology};
use serde::{Deserialize, Serialize};

use crate::fail::Failure;
use crate::predict::costs::Calls;

/// Version of the files.
const VERSION: u32 = 1;
/// Presets: names and files.
const PRESETS: [(&str, &str); 2] = [
    ("atlas-800t-a2", include_str!("topology/atlas-800t-a2.json")),
    (
        "atlas-a3-superpod",
        include_str!("topology/atlas-a3-superpod.json"),
    ),
];

/// A machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Its name.
    pub name: String,
    /// What the cost model uses of it.
    pub topology: Topology,
    /// Figures that are not known, in words.
    pub unknown: Vec<String>,
    /// What calls cost, where `muster tune --model` measured them.
    pub calls: Option<Calls>,
}

/// Which links an option is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Between hosts, all levels.
    Between,
    /// Within a host.
    Within,
}

/// A file, before it is checked.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    schema_version: u32,
    name: String,
    levels: Vec<Links>,
    barrier_us: Option<f64>,
    memory_gbytes_per_s: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    calls: Option<Calls>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Links {
    name: String,
    ranks: Option<usize>,
    latency_us: Option<f64>,
    gbytes_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pair_gbytes_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ports_per_host: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    oversubscription: Option<f64>,
    /// For readers.
    source: Option<String>,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            name: "round figures".to_owned(),
            topology: Topology::default(),
            unknown: Vec::new(),
            calls: None,
        }
    }
}

impl Machine {
    /// The preset of this name, else the machine that the file describes.
    ///
    /// # Errors
    /// What is wrong, and what is allowed.
    pub fn named(word: &str) -> Result<Self, String> {
        let text = match preset(word) {
            Ok(text) => text.to_owned(),
            Err(presets) => std::fs::read_to_string(word)
                .map_err(|error| format!("{word}: {error}; {presets}"))?,
        };
        Self::parse(&text).map_err(|error| format!("{word}: {error}"))
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let file: File = serde_json::from_str(text).map_err(|error| error.to_string())?;
        file.machine()
    }

    /// Sets the ranks of a host; parts of several hosts keep their number of hosts.
    pub fn set_ranks_per_host(&mut self, ranks: usize) {
        let before = self.topology.ranks_per_host();
        for level in &mut self.topology.levels {
            level.ranks = level.ranks.map(|held| (held / before).max(1) * ranks);
        }
    }

    fn levels(&mut self, reach: Reach) -> &mut [Level] {
        let levels = &mut self.topology.levels;
        match reach {
            Reach::Within => &mut levels[..1],
            Reach::Between => &mut levels[1..],
        }
    }

    /// Sets a latency, in microseconds.
    pub fn set_latency(&mut self, reach: Reach, us: f64) {
        let mut names = Vec::new();
        for level in self.levels(reach) {
            level.latency_s = us * 1e-6;
            names.push(format!("latency of {}", level.name));
        }
        self.unknown.retain(|what| !names.contains(what));
    }

    /// Sets a bandwidth, in GB/s.
    pub fn set_bandwidth(&mut self, reach: Reach, gbytes_per_s: f64) {
        let mut names = Vec::new();
        for level in self.levels(reach) {
            level.bytes_per_s = gbytes_per_s * 1e9;
            level.pair_bytes_per_s = f64::INFINITY;
            names.push(format!("bandwidth of {}", level.name));
        }
        self.unknown.retain(|what| !names.contains(what));
    }

    /// Members of a group on the host of the first, and the links among them.
    #[must_use]
    pub fn of_group(&self, members: &[usize]) -> (usize, Topology) {
        let whole = self.topology.ranks_per_host();
        let first = members.first().map(|rank| rank / whole);
        let here = members.iter().filter(|rank| Some(*rank / whole) == first);
        let per_host = here.count().max(1);
        (per_host, self.gathered(per_host))
    }

    /// The links of a group of which `per_host` ranks are on each host: outer parts hold fewer of its ranks, too.
    #[must_use]
    pub fn gathered(&self, per_host: usize) -> Topology {
        let whole = self.topology.ranks_per_host();
        let mut topology = self.topology.clone();
        for level in &mut topology.levels {
            level.ranks = level.ranks.map(|ranks| ranks / whole * per_host);
        }
        topology
    }

    /// Figures that are not known and that a group of `n` ranks needs; `topology` has its links.
    pub fn unknown_among(&self, n: usize, topology: &Topology) -> impl Iterator<Item = String> {
        let outermost = topology
            .levels
            .iter()
            .position(|level| level.ranks.is_none_or(|ranks| ranks >= n));
        let beyond: Vec<String> = topology
            .levels
            .iter()
            .skip(outermost.map_or(usize::MAX, |place| place + 1))
            .map(|level| format!(" of {}", level.name))
            .collect();
        let unknown = self.unknown.iter().filter(|_| n > 1);
        let needed: Vec<String> = unknown
            .filter(|what| !beyond.iter().any(|name| what.ends_with(name)))
            .cloned()
            .collect();
        needed.into_iter()
    }

    /// The problem on the hosts of this machine.
    #[must_use]
    pub fn spread(&self, problem: Problem) -> Problem {
        self.spread_over(problem, self.topology.ranks_per_host())
    }

    /// The problem on hosts of `per_host` ranks of the group.
    #[must_use]
    pub fn spread_over(&self, problem: Problem, per_host: usize) -> Problem {
        let host = |rank| u32::try_from(rank / per_host).unwrap_or(u32::MAX);
        let hosts: Vec<u32> = (0..problem.n()).map(host).collect();
        problem.with_hosts(hosts.into())
    }
}

impl File {
    /// The file of a machine whose calls were measured. What they say of its links stands there too; what they do not is not known.
    #[must_use]
    pub fn measured(calls: Calls) -> Self {
        let at = &calls.measured.at;
        let of = |name: &str, path: &str, ranks, is_between| {
            let cost = |what: &str| calls.cost(&format!("{path}_{what}"), is_between);
            let latency = cost("round").zip(cost("message"));
            let above_none = |value: f64| (value > 0.0).then_some(value);
            Links {
                name: name.to_owned(),
                ranks,
                latency_us: latency.and_then(|(round, message)| above_none(round + message)),
                gbytes_per_s: cost("byte").and_then(above_none).map(|ns| 1.0 / ns),
                pair_gbytes_per_s: None,
                ports_per_host: None,
                oversubscription: None,
                source: Some(format!(
                    "muster tune --model, {at}: {path}_round, {path}_message, {path}_byte"
                )),
            }
        };
        let a_host = |hosts: bool| {
            let of_kind = calls
                .worlds
                .iter()
                .filter(|world| (world.hosts > 1) == hosts);
            of_kind
                .map(|world| world.ranks / world.hosts as usize)
                .max()
        };
        let ranks = a_host(true).or_else(|| a_host(false)).unwrap_or(1);
        let positive = |value: Option<f64>| value.filter(|value| *value > 0.0);
        let entry = calls.cost("call", false).zip(calls.cost("entry", false));
        let barrier_us = positive(entry.map(|(call, entry)| call + entry));
        Self {
            schema_version: VERSION,
            name: format!(
                "{}, {} processors",
                calls.measured.cpu, calls.measured.processors
            ),
            levels: vec![
                of("host", "ring", Some(ranks), false),
                of("network", "net", None, true),
            ],
            barrier_us,
            memory_gbytes_per_s: positive(calls.cost("memory_8m", false)).map(|ns| 1.0 / ns),
            calls: Some(calls),
        }
    }

    /// The text of the file.
    ///
    /// # Errors
    /// A failure of class INTERNAL if it cannot be written as JSON, which none can cause.
    pub fn text(&self) -> Result<String, Failure> {
        let text = serde_json::to_string_pretty(self);
        let text = text.map_err(|error| Failure::internal(error.to_string()))?;
        Ok(text + "\n")
    }

    /// The measured calls of a file, where it is there and has some.
    #[must_use]
    pub fn read_calls(path: &Path) -> Option<Calls> {
        let text = std::fs::read_to_string(path).ok()?;
        serde_json::from_str::<Self>(&text).ok()?.calls
    }

    fn machine(self) -> Result<Machine, String> {
        if self.schema_version != VERSION {
            let got = self.schema_version;
            return Err(format!("schema_version is {got}, allowed is {VERSION}"));
        }
        let per_host = match self.levels.first() {
            Some(Links {
                ranks: Some(ranks), ..
            }) if *ranks > 0 => *ranks,
            _ => return Err("levels: the first needs ranks, the ranks of a host".to_owned()),
        };
        self.calls.as_ref().map_or(Ok(()), Calls::check)?;
        let mut unknown = Vec::new();
        let mut before = 1;
        let count = self.levels.len();
        let mut levels = Vec::new();
        for (place, links) in self.levels.into_iter().enumerate() {
            let at = format!("levels[{place}] ({})", links.name);
            match links.ranks {
                None if place + 1 < count => {
                    return Err(format!("{at}: only the last has no ranks"));
                }
                Some(ranks) if ranks == 0 || !ranks.is_multiple_of(before) => {
                    return Err(format!(
                        "{at}: ranks is {ranks}, allowed are multiples of {before}"
                    ));
                }
                Some(ranks) => before = ranks,
                None => {}
            }
            levels.push(links.level(&at, per_host, &mut unknown)?);
        }
        let mut known = |value, what: &str, none| match value {
            Some(value) => positive("the file", what, value),
            None => {
                unknown.push(
                    what.replace("_us", "")
                        .replace("_gbytes_per_s", " bandwidth"),
                );
                Ok(none)
            }
        };
        let barrier_s = known(self.barrier_us, "barrier_us", 0.0)? * 1e-6;
        let memory = known(
            self.memory_gbytes_per_s,
            "memory_gbytes_per_s",
            f64::INFINITY,
        )?;
        Ok(Machine {
            name: self.name,
            topology: Topology {
                levels,
                barrier_s,
                memory_bytes_per_s: memory * 1e9,
            },
            unknown,
            calls: self.calls,
        })
    }
}

impl Links {
    fn level(self, at: &str, per_host: usize, unknown: &mut Vec<String>) -> Result<Level, String> {
        if self.latency_us.is_none() {
            unknown.push(format!("latency of {}", self.name));
        }
        if self.gbytes_per_s.is_none() {
            unknown.push(format!("bandwidth of {}", self.name));
        }
        let latency_us = self
            .latency_us
            .map_or(Ok(0.0), |us| positive(at, "latency_us", us))?;
        let rate = |what, value: Option<f64>| match value {
            Some(value) => positive(at, what, value),
            None => Ok(f64::INFINITY),
        };
        let port = rate("gbytes_per_s", self.gbytes_per_s)?;
        let pair = rate("pair_gbytes_per_s", self.pair_gbytes_per_s)?;
        let ports = self.ports_per_host.unwrap_or(per_host).min(per_host);
        if ports == 0 {
            return Err(format!(
                "{at}: ports_per_host is 0, allowed are numbers above 0"
            ));
        }
        let shared = self.oversubscription.unwrap_or(1.0);
        if !(shared.is_finite() && shared >= 1.0) {
            return Err(format!(
                "{at}: oversubscription is {shared}, allowed are numbers from 1"
            ));
        }
        let share = ports as f64 / per_host as f64 / shared;
        Ok(Level {
            pair_bytes_per_s: pair * 1e9,
            ..Level::new(
                &self.name,
                self.ranks,
                latency_us * 1e-6,
                port * share * 1e9,
            )
        })
    }
}

fn positive(at: &str, what: &str, value: f64) -> Result<f64, String> {
    if value.is_finite() && value > 0.0 {
        Ok(value)
    } else {
        Err(format!(
            "{at}: {what} is {value}, allowed are numbers above 0, or null where it is not known"
        ))
    }
}

/// The file of a preset.
///
/// # Errors
/// The names of all.
pub fn preset(word: &str) -> Result<&'static str, String> {
    let names = || PRESETS.map(|(name, _)| name).join(", ");
    PRESETS
        .iter()
        .find(|(name, _)| *name == word)
        .map(|(_, text)| *text)
        .ok_or_else(|| format!("presets are {}", names()))
}

/// The line about figures that are not known; none where all are.
#[must_use]
pub fn lower_bounds(unknown: &[String]) -> Option<String> {
    (!unknown.is_empty()).then(|| {
        format!(
            "Lower bounds: these are not known and count nothing:\n  {}\nGive them in a topology file (`muster plan topology NAME` \
             prints that of a preset), or latencies and bandwidths as options of this command",
            unknown.join(",\n  ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_legal_and_say_what_is_not_known() {
        for (name, _) in PRESETS {
            let machine = Machine::named(name).expect(name);
            assert!(
                machine
                    .unknown
                    .iter()
                    .any(|what| what.starts_with("latency of "))
            );
        }
    }

    #[test]
    fn a_wrong_file_is_answered_with_the_place() {
        let of = |levels: &str| {
            format!(
                r#"{{"schema_version":1,"name":"x","levels":[{levels}],"barrier_us":1,"memory_gbytes_per_s":9}}"#
            )
        };
        let wrong = |levels| Machine::parse(&of(levels)).expect_err("wrong");
        assert!(wrong(r#"{"name":"a"}"#).contains("ranks of a host"));
        assert!(wrong(r#"{"name":"a","ranks":8,"gbytes_per_s":-1}"#).contains("levels[0] (a)"));
        assert!(
            wrong(r#"{"name":"a","ranks":8},{"name":"b","ranks":12}"#).contains("multiples of 8")
        );
        assert!(wrong(r#"{"name":"a","ranks":8,"speed":1}"#).contains("line 1"));
        let text = of(r#"{"name":"a","ranks":8,"latency_us":1,"gbytes_per_s":50},
            {"name":"nic","latency_us":5,"gbytes_per_s":25,"ports_per_host":4,"oversubscription":2}"#);
        let machine = Machine::parse(&text).expect("legal");
        assert!(machine.unknown.is_empty());
        assert!((machine.topology.levels[1].bytes_per_s - 6.25e9).abs() < 1.0);
    }
}
