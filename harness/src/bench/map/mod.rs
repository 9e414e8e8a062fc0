//! Every pair of ranks, one after the other: who is slow, a host, a rank or a link.
//!
//! A pair is a group of two that sends and receives at once while all other ranks wait. `t` of a pair is the median of a round.
//! `slow` says who is slow.

mod slow;
#[cfg(test)]
mod tests;

use muster_comm::layout::FrameworkLayout;

pub use self::slow::verdict;
use crate::bench::model::Record;
use crate::out::escaped;
use crate::report::html::parts::{short, size};
use crate::stats;

/// All pairs of a world, as the names of kinds of groups.
#[must_use]
pub fn pairs(layout: &FrameworkLayout) -> Vec<String> {
    let ranks = layout.world_size();
    let of = |a: u32| (a + 1..ranks).map(move |b| format!("pair {a}-{b}"));
    (0..ranks).flat_map(of).collect()
}

/// The ranks of a kind that is a pair.
#[must_use]
pub fn pair(kind: &str) -> Option<[u32; 2]> {
    let (a, b) = kind.strip_prefix("pair ")?.split_once('-')?;
    Some([a.parse().ok()?, b.parse().ok()?])
}

/// The hosts of the ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    /// Their names, in the order of their first ranks; empty where they are not known.
    pub names: Vec<String>,
    /// The host of each rank.
    of: Vec<usize>,
}

impl Hosts {
    /// By the name of each rank's host.
    #[must_use]
    pub fn new(by_rank: &[String]) -> Self {
        let mut hosts = Self::default();
        for name in by_rank {
            let known = hosts.names.iter().position(|known| known == name);
            hosts.of.push(known.unwrap_or_else(|| {
                hosts.names.push(name.clone());
                hosts.names.len() - 1
            }));
        }
        hosts
    }

    /// The ranks on a host.
    fn ranks(&self, host: usize) -> impl Iterator<Item = u32> {
        let of = (0..).zip(&self.of);
        of.filter(move |(_, one)| **one == host)
            .map(|(rank, _)| rank)
    }

    /// The middle pair between any two hosts; none on the diagonal.
    #[must_use]
    pub fn between(&self, square: &Square) -> Square {
        let all = 0..self.names.len();
        let middle = |a: usize, b: usize| {
            let (ours, theirs) = (self.ranks(a), || self.ranks(b));
            let pairs = ours.flat_map(|one| theirs().map(move |other| (one, other)));
            let times: Vec<f64> = pairs
                .filter_map(|(one, other)| *square.get(one as usize)?.get(other as usize)?)
                .collect();
            (a != b && !times.is_empty()).then(|| stats::middle(&times))
        };
        all.clone()
            .map(|a| all.clone().map(|b| middle(a, b)).collect())
            .collect()
    }
}

/// The times of all pairs at one size, in microseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Map {
    /// Bytes that each of the two sends.
    pub bytes: u64,
    /// The median of all rounds, by both ranks; none on the diagonal and where nothing was measured.
    pub median_us: Square,
    rounds: Vec<Round>,
}

/// What one round measured, in microseconds.
#[derive(Clone, Debug, PartialEq)]
struct Round {
    median_us: Square,
    /// How far the mean lies above the median.
    pause_us: Square,
}

/// A figure for each pair.
pub type Square = Vec<Vec<Option<f64>>>;

/// The maps in a result, one for each size.
#[must_use]
pub fn maps(records: &[Record]) -> Vec<Map> {
    let mut maps: Vec<Map> = Vec::new();
    for record in records {
        let Some(ranks) = pair(&record.group).filter(|_| record.unsupported.is_none()) else {
            continue;
        };
        let empty = || vec![vec![None; record.world_size as usize]; record.world_size as usize];
        let at = maps.iter().position(|map| map.bytes == record.bytes);
        let at = at.unwrap_or_else(|| {
            maps.push(Map {
                bytes: record.bytes,
                median_us: empty(),
                rounds: vec![
                    Round {
                        median_us: empty(),
                        pause_us: empty(),
                    };
                    record.samples_us.len()
                ],
            });
            maps.len() - 1
        });
        let map = &mut maps[at];
        set(&mut map.median_us, ranks, record.latency_us.median);
        for (round, samples) in map.rounds.iter_mut().zip(&record.samples_us) {
            if !samples.is_empty() {
                let middle = stats::middle(samples);
                let mean = samples.iter().sum::<f64>() / samples.len() as f64;
                set(&mut round.median_us, ranks, middle);
                set(&mut round.pause_us, ranks, mean - middle);
            }
        }
    }
    maps
}

fn set(square: &mut Square, [a, b]: [u32; 2], us: f64) {
    let (a, b) = (a as usize, b as usize);
    for (row, column) in [(a, b), (b, a)] {
        if let Some(place) = square.get_mut(row).and_then(|row| row.get_mut(column)) {
            *place = Some(us);
        }
    }
}

/// A map for a terminal: figures where they fit, else how many times the usual time. Where there are several hosts, theirs too.
#[must_use]
pub fn picture(map: &Map, hosts: &Hosts, width: Option<usize>) -> String {
    let bytes = size(map.bytes);
    let ranks = format!(
        "median us of each pair, {bytes} each way\n{}",
        grid(&map.median_us, width)
    );
    if hosts.names.len() < 2 {
        return ranks;
    }
    let names = hosts.names.iter().enumerate();
    let names: Vec<String> = names
        .map(|(number, name)| format!("{number} {}", escaped(name)))
        .collect();
    format!(
        "{ranks}median us between hosts, {bytes} each way: {}\n{}",
        names.join(", "),
        grid(&hosts.between(&map.median_us), width)
    )
}

fn grid(square: &Square, width: Option<usize>) -> String {
    let ranks = square.len();
    let digits = ranks.saturating_sub(1).to_string().len();
    let fits = width.is_none_or(|width| digits + ranks * 7 <= width);
    let mut all: Vec<f64> = square.iter().flatten().flatten().copied().collect();
    stats::sort(&mut all);
    let usual = stats::median(&all);
    let cell = |us: &Option<f64>| match us {
        None if fits => format!("{:>7}", "-"),
        Some(us) if fits => format!("{:>7}", short(*us)),
        None => " ".to_owned(),
        Some(us) => sign(us / usual).to_owned(),
    };
    let line = |(rank, row): (usize, &Vec<Option<f64>>)| {
        let cells: String = row.iter().map(cell).collect();
        let space = if fits { "" } else { " " };
        format!("{rank:>digits$}{space}{cells}\n")
    };
    let head = if fits {
        let names: String = (0..ranks).map(|rank| format!("{rank:>7}")).collect();
        format!("{}{names}\n", " ".repeat(digits))
    } else {
        format!(
            "a sign a pair, by {} us, the middle one: . up to 1.1, - 1.3, + 1.6, x 2, # more\n",
            short(usual)
        )
    };
    let lines: String = square.iter().enumerate().map(line).collect();
    head + &lines
}

fn sign(times: f64) -> &'static str {
    const SIGNS: [(f64, &str); 4] = [(1.1, "."), (1.3, "-"), (1.6, "+"), (2.0, "x")];
    let found = SIGNS.iter().find(|(most, _)| times <= *most);
    found.map_or("#", |(_, sign)| sign)
}
