//! Who is slow in a map: what slow pairs have in common.
//!
//! MAP-1: a rank is slow if its fastest pair is slower than usual, and a link if its pair is slower than both of its ranks explain.
//! With few ranks a slow link makes a rank seem slow whose other pairs are a little slower by chance: so a link that stands out
//! among all pairs of its ranks is slow whatever they seem.
//! A rank that does not run all the time, by a quota or other load, has slow calls among fast ones:
//! it pauses if means of its pairs lie further above their medians than usual.
//! MAP-2: what is named was slow in every round. Rounds lie apart in time, and each has a world of its own.
//! MAP-3: with fewer than four ranks nobody is named: two of three pairs share each rank, and none is usual.
//! MAP-4: hosts are told from each other by their middle pairs as ranks are by their pairs, from four hosts on. What a host or the
//! link of two hosts explains is not said of links of ranks; where some ranks of a host are slow and others are not, it is not the host.

use super::{Hosts, Map, Round, Square, maps};
use crate::bench::model::Record;
use crate::exit::Exit;
use crate::out::escaped;
use crate::report::cause::{Cause, listed};
use crate::report::html::parts::{short, size};
use crate::stats;

/// How much slower than usual is slow, where ranks or links lie closer together.
const FACTOR: f64 = 1.3;
/// How many robust deviations above what is usual is slow.
const DEVIATIONS: f64 = 3.5;
/// How many times slower than all other pairs of its ranks a link is slow although one of its ranks seems to be.
const OUTSTANDING: f64 = 2.0;
/// Fewest ranks of which one can be told from the others.
const RANKS_MIN: usize = 4;
/// Most links that are named one by one.
const LINKS_NAMED_MAX: usize = 6;

/// Who is slow, in the order in which a verdict names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    /// A host, by its number.
    Host(usize),
    Rank(u32),
    /// A rank some of whose calls are slow.
    Pausing(u32),
    /// What is between two hosts.
    HostLink(usize, usize),
    Link(u32, u32),
}

impl Part {
    /// The rank that it is.
    const fn rank(self) -> Option<u32> {
        match self {
            Self::Rank(rank) | Self::Pausing(rank) => Some(rank),
            Self::Host(_) | Self::HostLink(..) | Self::Link(..) => None,
        }
    }
}

/// A part that is slow at one size.
#[derive(Clone, Debug, PartialEq)]
struct Slow {
    part: Part,
    bytes: u64,
    /// Time of its pairs, and what is usual.
    us: f64,
    usual_us: f64,
}

/// The verdict where something is slow.
#[must_use]
pub fn verdict(records: &[Record], hosts: &Hosts) -> Option<Cause> {
    let maps = maps(records);
    let mut found: Vec<Slow> = maps.iter().flat_map(|map| map.slow(hosts)).collect();
    found.sort_by_key(|slow| slow.part);
    let first = found.first()?;
    let times = first.us / first.usual_us;
    let mut cause = Cause::new(
        Exit::Slow,
        format!(
            "{}: {} times the usual time at {}",
            named(&found, hosts).join("; "),
            short(times),
            size(first.bytes)
        ),
    );
    cause.blamed = blamed(&found, hosts);
    cause.evidence = found.iter().map(|slow| slow.in_words(hosts)).collect();
    cause.next = Some(match first.part {
        Part::Host(_) => "look at what only this host has: its network interface and cable, other load on it",
        Part::Rank(_) => "look at the processor of the rank: its clock, other load on it, the memory that it is near to",
        Part::Pausing(_) => "look at what keeps the rank from running: a quota of processor time (cpu.max of its cgroup), other load on its processors",
        Part::HostLink(..) => "look at what only these hosts share: cables, switches; measure again with other hosts",
        Part::Link(..) => "look at what only these ranks share: cable, switch, socket; measure again with other ranks on the same hosts",
    }.to_owned());
    Some(cause)
}

/// The ranks that are slow, and those of hosts that are.
fn blamed(found: &[Slow], hosts: &Hosts) -> Vec<u32> {
    let mut ranks: Vec<u32> = Vec::new();
    for slow in found {
        match slow.part {
            Part::Host(host) => ranks.extend(hosts.ranks(host)),
            Part::Rank(rank) | Part::Pausing(rank) => ranks.push(rank),
            Part::HostLink(..) | Part::Link(..) => {}
        }
    }
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}

/// What is slow, in words: hosts, ranks, links.
fn named(found: &[Slow], hosts: &Hosts) -> Vec<String> {
    let parts = || found.iter().map(|slow| slow.part);
    let slow: Vec<u32> = parts().filter_map(Part::rank).collect();
    // All ranks of a host, and not all that there are: it is the host.
    let is_whole = |host: &usize| {
        let is_slow = |rank: u32| slow.contains(&rank);
        parts().any(|part| part == Part::Host(*host))
            || (hosts.names.len() > 1 && hosts.ranks(*host).all(is_slow))
    };
    let whole: Vec<usize> = (0..hosts.names.len()).filter(is_whole).collect();
    let mut ranks: Vec<u32> = slow
        .iter()
        .copied()
        .filter(|rank| {
            !whole
                .iter()
                .any(|host| hosts.of.get(*rank as usize) == Some(host))
        })
        .collect();
    ranks.sort_unstable();
    ranks.dedup();
    let mut links: Vec<String> = Vec::new();
    for part in parts() {
        let link = match part {
            Part::HostLink(a, b) => format!("{}-{}", name(hosts, a), name(hosts, b)),
            Part::Link(a, b) => format!("{a}-{b}"),
            Part::Host(_) | Part::Rank(_) | Part::Pausing(_) => continue,
        };
        if !links.contains(&link) {
            links.push(link);
        }
    }
    let mut what = Vec::new();
    let host = |host: &usize| {
        let ranks: Vec<u32> = hosts.ranks(*host).collect();
        let word = if ranks.len() == 1 { "rank" } else { "ranks" };
        format!(
            "host {} ({word} {}) is slow",
            name(hosts, *host),
            listed(&ranks)
        )
    };
    what.extend(whole.iter().map(host));
    if !ranks.is_empty() {
        let (word, is) = number(ranks.len(), ["rank", "ranks"]);
        what.push(format!("{word} {} {is} slow", listed(&ranks)));
    }
    if !links.is_empty() {
        let (word, is) = number(links.len(), ["link", "links"]);
        let more = links.len().saturating_sub(LINKS_NAMED_MAX);
        links.truncate(LINKS_NAMED_MAX);
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        what.push(format!("the {word} {}{more} {is} slow", links.join(", ")));
    }
    what
}

fn number(count: usize, [one, several]: [&str; 2]) -> (&str, &'static str) {
    if count == 1 {
        (one, "is")
    } else {
        (several, "are")
    }
}

fn name(hosts: &Hosts, host: usize) -> String {
    hosts
        .names
        .get(host)
        .map(|name| escaped(name))
        .unwrap_or_default()
}

impl Slow {
    fn in_words(&self, hosts: &Hosts) -> String {
        let (us, usual, bytes) = (short(self.us), short(self.usual_us), size(self.bytes));
        match self.part {
            Part::Host(host) => format!(
                "host {}, {bytes}: its middle pair with the fastest other host takes {us} us, a usual host's {usual} us, in every round",
                name(hosts, host)
            ),
            Part::Rank(rank) => format!(
                "rank {rank}, {bytes}: its fastest pair takes {us} us, a usual rank's middle one {usual} us, in every round"
            ),
            Part::Pausing(rank) => format!(
                "rank {rank}, {bytes}: its calls take {us} us on average, a usual rank's {usual} us, in every round; most of them are as fast as usual"
            ),
            Part::HostLink(a, b) => format!(
                "link {}-{}, {bytes}: its middle pair takes {us} us, {usual} us by what its hosts take with others, in every round",
                name(hosts, a),
                name(hosts, b)
            ),
            Part::Link(a, b) => format!(
                "link {a}-{b}, {bytes}: {us} us, {usual} us by what its ranks take with others, in every round"
            ),
        }
    }
}

impl Map {
    /// What was slow in every round.
    fn slow(&self, hosts: &Hosts) -> Vec<Slow> {
        let mut rounds = self.rounds.iter().map(|round| round.slow(hosts));
        let (Some(mut all), Some(usual)) = (rounds.next(), Usual::of(&self.median_us)) else {
            return Vec::new();
        };
        for again in rounds {
            all.retain(|part| again.contains(part));
        }
        let of = |part: Part| {
            let (us, usual_us) = self.times(part, &usual, hosts);
            Slow {
                part,
                bytes: self.bytes,
                us,
                usual_us,
            }
        };
        all.into_iter().map(of).collect()
    }

    /// Time of a part and what is usual, in microseconds.
    fn times(&self, part: Part, usual: &Usual, hosts: &Hosts) -> (f64, f64) {
        let between = || hosts.between(&self.median_us);
        let of_hosts =
            |us: &dyn Fn(&Usual) -> f64| Usual::of(&between()).map_or(0.0, |usual| us(&usual));
        match part {
            Part::Rank(rank) => (fastest(&self.median_us[rank as usize]), usual.middle.exp()),
            Part::Host(host) => (
                fastest(&between()[host]),
                of_hosts(&|usual| usual.middle.exp()),
            ),
            Part::Pausing(rank) => {
                let rounds: Vec<Vec<f64>> = self.rounds.iter().filter_map(Round::pauses).collect();
                let mean = |of: &dyn Fn(&Vec<f64>) -> f64| {
                    rounds.iter().map(of).sum::<f64>() / rounds.len().max(1) as f64
                };
                let middle = mean(&|pauses| stats::middle(pauses));
                let own = mean(&|pauses| pauses[rank as usize]);
                let usual_us = usual.middle.exp() + 2.0 * middle;
                (usual_us - middle + own, usual_us)
            }
            Part::HostLink(a, b) => (
                between()[a][b].unwrap_or(0.0),
                of_hosts(&|usual| usual.explained(a, b).exp()),
            ),
            Part::Link(a, b) => {
                let (a, b) = (a as usize, b as usize);
                (
                    self.median_us[a][b].unwrap_or(0.0),
                    usual.explained(a, b).exp(),
                )
            }
        }
    }
}

fn fastest(row: &[Option<f64>]) -> f64 {
    row.iter().flatten().copied().fold(f64::INFINITY, f64::min)
}

impl Round {
    fn slow(&self, hosts: &Hosts) -> Vec<Part> {
        let number = |index: usize| u32::try_from(index).unwrap_or(u32::MAX);
        let (ranks, links) = slow(&self.median_us);
        let mut all: Vec<Part> = ranks
            .into_iter()
            .map(|rank| Part::Rank(number(rank)))
            .collect();
        let (whole, between) = slow_hosts(&self.median_us, hosts, &all);
        // What is between hosts may be slow by fits and starts.
        let is_host = |host: usize| {
            whole.contains(&host) || between.iter().any(|(a, b)| host == *a || host == *b)
        };
        let pausing = self.pausing(&all).into_iter().filter(|part| {
            let rank = part.rank().and_then(|rank| hosts.of.get(rank as usize));
            !rank.is_some_and(|host| is_host(*host))
        });
        let pausing: Vec<Part> = pausing.collect();
        all.extend(pausing);
        let host_of = |rank: usize| hosts.of.get(rank).copied();
        let is_explained = |a: usize, b: usize| {
            let (Some(a), Some(b)) = (host_of(a), host_of(b)) else {
                return false;
            };
            let is_slow = whole.contains(&a) || whole.contains(&b);
            a != b && (is_slow || between.contains(&(a.min(b), a.max(b))))
        };
        let links = links.into_iter().filter(|(a, b)| !is_explained(*a, *b));
        all.extend(links.map(|(a, b)| Part::Link(number(a), number(b))));
        all.extend(whole.iter().map(|host| Part::Host(*host)));
        all.extend(between.iter().map(|(a, b)| Part::HostLink(*a, *b)));
        all
    }

    /// The ranks that do not run all the time, but for those that are slow.
    fn pausing(&self, slow: &[Part]) -> Vec<Part> {
        let (Some(pauses), Some(usual)) = (self.pauses(), Usual::of(&self.median_us)) else {
            return Vec::new();
        };
        let middle = stats::middle(&pauses);
        let least = (FACTOR - 1.0) * usual.middle.exp();
        let limit = middle + (DEVIATIONS * stats::deviation(&pauses, middle)).max(least);
        let long = (0..).zip(&pauses).filter(|(_, pause)| **pause > limit);
        let long = long.filter(|(rank, _)| !slow.contains(&Part::Rank(*rank)));
        long.map(|(rank, _)| Part::Pausing(rank)).collect()
    }

    /// What each rank adds to the calls of its pairs by pausing, where the two of a pair add up: least squares over all pairs.
    fn pauses(&self) -> Option<Vec<f64>> {
        let ranks = self.pause_us.len();
        if ranks < RANKS_MIN {
            return None;
        }
        let sum_of = |row: &Vec<Option<f64>>| {
            let pauses: Vec<f64> = row.iter().flatten().copied().collect();
            (pauses.len() + 1 == ranks).then(|| pauses.iter().sum::<f64>())
        };
        let sums = self.pause_us.iter().map(sum_of);
        let sums = sums.collect::<Option<Vec<f64>>>()?;
        let total = sums.iter().sum::<f64>() / (2 * (ranks - 1)) as f64;
        Some(
            sums.iter()
                .map(|sum| (sum - total) / (ranks - 2) as f64)
                .collect(),
        )
    }
}

/// The hosts that are slow, and pairs of them, but for what single ranks of theirs explain.
fn slow_hosts(
    square: &Square,
    hosts: &Hosts,
    slow_ranks: &[Part],
) -> (Vec<usize>, Vec<(usize, usize)>) {
    let ranks: Vec<u32> = slow_ranks.iter().filter_map(|part| part.rank()).collect();
    let has_slow = |host: usize| hosts.ranks(host).any(|rank| ranks.contains(&rank));
    let is_whole = |host: usize| hosts.ranks(host).all(|rank| ranks.contains(&rank));
    let (mut whole, mut between) = slow(&hosts.between(square));
    whole.retain(|host| !has_slow(*host) || is_whole(*host));
    between.retain(|(a, b)| !has_slow(*a) && !has_slow(*b));
    (whole, between)
}

/// What is usual in a round; logarithms of microseconds.
struct Usual {
    /// The middle pair of each rank or host.
    ranks: Vec<f64>,
    /// The middle one of them.
    middle: f64,
}

impl Usual {
    /// None where there are too few ranks, or one was not measured.
    fn of(square: &Square) -> Option<Self> {
        if square.len() < RANKS_MIN {
            return None;
        }
        let middle_of = |row: &Vec<Option<f64>>| {
            let times: Vec<f64> = row.iter().flatten().map(|us| us.ln()).collect();
            (!times.is_empty()).then(|| stats::middle(&times))
        };
        let ranks = square.iter().map(middle_of).collect::<Option<Vec<f64>>>()?;
        Some(Self {
            middle: stats::middle(&ranks),
            ranks,
        })
    }

    /// What the ranks of a pair explain.
    fn explained(&self, a: usize, b: usize) -> f64 {
        self.ranks[a] + self.ranks[b] - self.middle
    }
}

/// The rows that are slow in one round, and the single cells.
fn slow(square: &Square) -> (Vec<usize>, Vec<(usize, usize)>) {
    let Some(usual) = Usual::of(square) else {
        return (Vec::new(), Vec::new());
    };
    let limit = usual.middle + apart(&usual.ranks, usual.middle);
    let is_slow = |row: &[Option<f64>]| row.iter().flatten().all(|us| us.ln() > limit);
    let ranks: Vec<usize> = (0..square.len())
        .filter(|rank| is_slow(&square[*rank]))
        .collect();
    let (mut rest, mut links) = (Vec::new(), Vec::new());
    for (a, row) in square.iter().enumerate() {
        for (b, us) in row.iter().enumerate().skip(a + 1) {
            let Some(us) = us else { continue };
            match (ranks.contains(&a), ranks.contains(&b)) {
                (false, false) => rest.push(((a, b), us.ln() - usual.explained(a, b))),
                (true, true) => {}
                (true, false) | (false, true) => {
                    if *us > OUTSTANDING * slowest_other(square, a, b) {
                        links.push((a, b));
                    }
                }
            }
        }
    }
    let residuals: Vec<f64> = rest.iter().map(|(_, residual)| *residual).collect();
    let middle = stats::middle(&residuals);
    let limit = middle + apart(&residuals, middle);
    let slow = rest.iter().filter(|(_, residual)| *residual > limit);
    links.extend(slow.map(|(pair, _)| *pair));
    links.sort_unstable();
    (ranks, links)
}

/// The slowest pair of two ranks, but for theirs.
fn slowest_other(square: &Square, a: usize, b: usize) -> f64 {
    let others = |rank: usize, but: usize| {
        let row = square[rank].iter().enumerate();
        row.filter(move |(other, _)| *other != but)
            .filter_map(|(_, us)| *us)
    };
    others(a, b).chain(others(b, a)).fold(0.0, f64::max)
}

/// How far above the middle one figure is slow.
fn apart(figures: &[f64], middle: f64) -> f64 {
    (DEVIATIONS * stats::deviation(figures, middle)).max(FACTOR.ln())
}
