//! Every pair of ranks, one after the other: who is slow, a rank or a link.
//!
//! A pair is a group of two that sends and receives at once while all other ranks wait. `t` of a pair is the median of a round.
//!
//! MAP-1: a rank is slow if its fastest pair is slower than usual, and a link if its pair is slower than both of its ranks explain.
//! A rank that does not run all the time, by a quota or other load, has slow calls among fast ones:
//! it pauses if means of its pairs lie further above their medians than usual.
//! MAP-2: what is named was slow in every round. Rounds lie apart in time, and each has a world of its own.
//! MAP-3: with fewer than four ranks nobody is named: two of three pairs share each rank, and none is usual.

use muster_comm::layout::FrameworkLayout;

use crate::bench::model::Record;
use crate::exit::Exit;
use crate::report::cause::{Cause, listed};
use crate::report::html::parts::{short, size};
use crate::stats;

/// How much slower than usual is slow, where ranks or links lie closer together.
const FACTOR: f64 = 1.3;
/// How many robust deviations above what is usual is slow.
const DEVIATIONS: f64 = 3.5;
/// Fewest ranks of which one can be told from the others.
const RANKS_MIN: usize = 4;
/// Most links that are named one by one.
const LINKS_NAMED_MAX: usize = 6;

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

/// Who is slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Rank(u32),
    /// A rank some of whose calls are slow.
    Pausing(u32),
    Link(u32, u32),
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

/// The verdict where something is slow.
#[must_use]
pub fn verdict(records: &[Record]) -> Option<Cause> {
    let maps = maps(records);
    let mut found: Vec<Slow> = maps.iter().flat_map(Map::slow).collect();
    found.sort_by_key(|slow| slow.part);
    let first = found.first()?;
    let mut ranks: Vec<u32> = Vec::new();
    let mut links: Vec<String> = Vec::new();
    for slow in &found {
        match slow.part {
            Part::Rank(rank) | Part::Pausing(rank) if !ranks.contains(&rank) => ranks.push(rank),
            Part::Link(a, b) if !links.contains(&format!("{a}-{b}")) => {
                links.push(format!("{a}-{b}"));
            }
            Part::Rank(_) | Part::Pausing(_) | Part::Link(..) => {}
        }
    }
    let mut what = Vec::new();
    if !ranks.is_empty() {
        let (word, is) = if ranks.len() == 1 {
            ("rank", "is")
        } else {
            ("ranks", "are")
        };
        what.push(format!("{word} {} {is} slow", listed(&ranks)));
    }
    if !links.is_empty() {
        let (word, is) = if links.len() == 1 {
            ("link", "is")
        } else {
            ("links", "are")
        };
        let more = links.len().saturating_sub(LINKS_NAMED_MAX);
        links.truncate(LINKS_NAMED_MAX);
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        what.push(format!("the {word} {}{more} {is} slow", links.join(", ")));
    }
    let times = first.us / first.usual_us;
    let mut cause = Cause::new(
        Exit::Slow,
        format!(
            "{}: {} times the usual time at {}",
            what.join("; "),
            short(times),
            size(first.bytes)
        ),
    );
    cause.blamed = ranks;
    cause.evidence = found.iter().map(Slow::in_words).collect();
    cause.next = Some(match first.part {
        Part::Rank(_) => "look at the processor of the rank: its clock, other load on it, the memory that it is near to".to_owned(),
        Part::Pausing(_) => "look at what keeps the rank from running: a quota of processor time (cpu.max of its cgroup), other load on its processors".to_owned(),
        Part::Link(..) => "look at what only these ranks share: cable, switch, socket; measure again with other ranks on the same hosts".to_owned(),
    });
    Some(cause)
}

impl Slow {
    fn in_words(&self) -> String {
        let (us, usual, bytes) = (short(self.us), short(self.usual_us), size(self.bytes));
        match self.part {
            Part::Rank(rank) => format!(
                "rank {rank}, {bytes}: its fastest pair takes {us} us, a usual rank's middle one {usual} us, in every round"
            ),
            Part::Pausing(rank) => format!(
                "rank {rank}, {bytes}: its calls take {us} us on average, a usual rank's {usual} us, in every round; most of them are as fast as usual"
            ),
            Part::Link(a, b) => format!(
                "link {a}-{b}, {bytes}: {us} us, {usual} us by what its ranks take with others, in every round"
            ),
        }
    }
}

impl Map {
    /// What was slow in every round.
    fn slow(&self) -> Vec<Slow> {
        let mut rounds = self.rounds.iter().map(Round::slow);
        let (Some(mut all), Some(usual)) = (rounds.next(), Usual::of(&self.median_us)) else {
            return Vec::new();
        };
        for again in rounds {
            all.retain(|part| again.contains(part));
        }
        let of = |part: Part| {
            let (us, usual_us) = self.times(part, &usual);
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
    fn times(&self, part: Part, usual: &Usual) -> (f64, f64) {
        match part {
            Part::Rank(rank) => {
                let row = self.median_us[rank as usize].iter().flatten();
                let fastest = row.copied().fold(f64::INFINITY, f64::min);
                (fastest, usual.middle.exp())
            }
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

impl Round {
    fn slow(&self) -> Vec<Part> {
        let mut all = slow(&self.median_us);
        let (Some(pauses), Some(usual)) = (self.pauses(), Usual::of(&self.median_us)) else {
            return all;
        };
        let middle = stats::middle(&pauses);
        let least = (FACTOR - 1.0) * usual.middle.exp();
        let limit = middle + (DEVIATIONS * stats::deviation(&pauses, middle)).max(least);
        let long = (0..).zip(&pauses).filter(|(_, pause)| **pause > limit);
        let long = long.filter(|(rank, _)| !all.contains(&Part::Rank(*rank)));
        let long: Vec<Part> = long.map(|(rank, _)| Part::Pausing(rank)).collect();
        all.extend(long);
        all
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

/// What is usual in a round; logarithms of microseconds.
struct Usual {
    /// The middle pair of each rank.
    ranks: Vec<f64>,
    /// The middle rank.
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

/// What is slow in one round.
fn slow(square: &Square) -> Vec<Part> {
    let Some(usual) = Usual::of(square) else {
        return Vec::new();
    };
    let limit = usual.middle + apart(&usual.ranks, usual.middle);
    let number = |index: usize| u32::try_from(index).unwrap_or(u32::MAX);
    let is_slow = |row: &[Option<f64>]| row.iter().flatten().all(|us| us.ln() > limit);
    let ranks: Vec<usize> = (0..square.len())
        .filter(|rank| is_slow(&square[*rank]))
        .collect();
    let mut rest = Vec::new();
    for (a, row) in square.iter().enumerate() {
        for (b, us) in row.iter().enumerate().skip(a + 1) {
            if let Some(us) = us
                && !ranks.contains(&a)
                && !ranks.contains(&b)
            {
                rest.push(((a, b), us.ln() - usual.explained(a, b)));
            }
        }
    }
    let residuals: Vec<f64> = rest.iter().map(|(_, residual)| *residual).collect();
    let middle = stats::middle(&residuals);
    let limit = middle + apart(&residuals, middle);
    let links = rest.iter().filter(|(_, residual)| *residual > limit);
    let links = links.map(|((a, b), _)| Part::Link(number(*a), number(*b)));
    let ranks = ranks.iter().map(|rank| Part::Rank(number(*rank)));
    ranks.chain(links).collect()
}

/// How far above the middle one figure is slow.
fn apart(figures: &[f64], middle: f64) -> f64 {
    (DEVIATIONS * stats::deviation(figures, middle)).max(FACTOR.ln())
}

/// A map for a terminal: figures where they fit, else how many times the usual time.
#[must_use]
pub fn picture(map: &Map, width: Option<usize>) -> String {
    let ranks = map.median_us.len();
    let digits = ranks.saturating_sub(1).to_string().len();
    let fits = width.is_none_or(|width| digits + ranks * 7 <= width);
    let mut all: Vec<f64> = map.median_us.iter().flatten().flatten().copied().collect();
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
    let lines: String = map.median_us.iter().enumerate().map(line).collect();
    format!(
        "median us of each pair, {} each way\n{head}{lines}",
        size(map.bytes)
    )
}

fn sign(times: f64) -> &'static str {
    const SIGNS: [(f64, &str); 4] = [(1.1, "."), (1.3, "-"), (1.6, "+"), (2.0, "x")];
    let found = SIGNS.iter().find(|(most, _)| times <= *most);
    found.map_or("#", |(_, sign)| sign)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::measured::Latency;

    /// Records of all pairs; `samples` says what one takes in a round.
    fn records_of(
        ranks: u32,
        rounds: u32,
        samples: impl Fn(u32, u32, u32) -> Vec<f64>,
    ) -> Vec<Record> {
        let all = (0..ranks).flat_map(|a| (a + 1..ranks).map(move |b| (a, b)));
        let record = |(a, b): (u32, u32)| {
            let samples_us: Vec<Vec<f64>> = (0..rounds).map(|round| samples(a, b, round)).collect();
            let mut all = samples_us.concat();
            stats::sort(&mut all);
            Record {
                group: format!("pair {a}-{b}"),
                bytes: 8,
                world_size: ranks,
                latency_us: Latency::of(&all),
                samples_us,
                ..Record::default()
            }
        };
        all.map(record).collect()
    }

    fn records(ranks: u32, rounds: u32, time: impl Fn(u32, u32, u32) -> f64) -> Vec<Record> {
        records_of(ranks, rounds, |a, b, round| vec![time(a, b, round)])
    }

    fn has(rank: u32, a: u32, b: u32) -> bool {
        a == rank || b == rank
    }

    #[test]
    fn a_rank_is_named_whose_pairs_all_are_slow() {
        let found = verdict(&records(
            8,
            3,
            |a, b, _| if has(3, a, b) { 20.0 } else { 10.0 },
        ));
        let found = found.expect("a verdict");
        assert_eq!((found.class, &found.blamed[..]), (Exit::Slow, &[3][..]));
        assert_eq!(
            found.text,
            "rank 3 is slow: 2.00 times the usual time at 8 B"
        );
        assert_eq!(found.evidence.len(), 1, "{found:?}");
    }

    /// One call of ten waits until the rank has a processor again.
    #[test]
    fn a_rank_is_named_that_does_not_run_all_the_time() {
        let pauses = |rank: u32, only: Option<u32>| {
            records_of(8, 3, move |a, b, round| {
                let base = if (a < 3) == (b < 3) { 10.0 } else { 16.0 };
                let is_long = has(rank, a, b) && only.is_none_or(|only| only == round);
                let mut samples = vec![base; 20];
                samples[3] += if is_long { 200.0 } else { 0.0 };
                samples[13] += if is_long { 180.0 } else { 8.0 };
                samples
            })
        };
        let found = verdict(&pauses(3, None)).expect("a verdict");
        assert_eq!((found.class, &found.blamed[..]), (Exit::Slow, &[3][..]));
        assert_eq!(found.evidence.len(), 1, "{found:?}");
        assert!(
            found.evidence[0].contains("on average") && found.evidence[0].contains("rank 3, 8 B"),
            "{found:?}"
        );
        assert_eq!(verdict(&pauses(3, Some(1))), None, "in one round");
        assert_eq!(verdict(&pauses(8, None)), None, "no rank");
    }

    #[test]
    fn a_link_is_named_that_its_ranks_do_not_explain() {
        let found = verdict(&records(
            6,
            3,
            |a, b, _| if (a, b) == (1, 4) { 30.0 } else { 10.0 },
        ));
        let found = found.expect("a verdict");
        assert_eq!(found.blamed, [] as [u32; 0]);
        assert!(
            found.text.starts_with("the link 1-4 is slow: 3.00 times"),
            "{found:?}"
        );
    }

    #[test]
    fn a_rank_and_a_link_without_it_are_both_named() {
        let time = |a, b, _| match (a, b) {
            _ if has(0, a, b) => 17.0,
            (5, 6) => 40.0,
            _ => 10.0,
        };
        let found = verdict(&records(8, 2, time)).expect("a verdict");
        assert!(
            found
                .text
                .starts_with("rank 0 is slow; the link 5-6 is slow"),
            "{found:?}"
        );
    }

    #[test]
    fn what_was_slow_in_one_round_only_is_not_named() {
        let time = |a, b, round| {
            if has(3, a, b) && round == 1 {
                90.0
            } else {
                10.0
            }
        };
        assert_eq!(verdict(&records(8, 3, time)), None);
    }

    /// Two sockets: pairs of different ones are slower, and nobody is to blame.
    #[test]
    fn sockets_are_no_fault_of_a_rank_or_a_link() {
        for near in [2, 3, 4, 6] {
            let time = |a, b, _| if (a < near) == (b < near) { 10.0 } else { 19.0 };
            assert_eq!(verdict(&records(8, 2, time)), None, "{near} of 8");
        }
    }

    #[test]
    fn with_three_ranks_nobody_is_named() {
        assert_eq!(
            verdict(&records(3, 2, |a, b, _| if has(0, a, b) {
                90.0
            } else {
                10.0
            })),
            None
        );
        assert_eq!(verdict(&records(2, 2, |_, _, _| 10.0)), None);
        assert_eq!(verdict(&[]), None);
    }

    /// Pairs whose times vary by chance: a tenth, now and then by half.
    #[test]
    fn noise_names_nobody() {
        let mut state = 5_u64;
        let mut random = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        let mut alarms = 0;
        for _ in 0..200 {
            let noise: Vec<f64> = (0..64 * 3)
                .map(|_| 1.0 + 0.2 * random() + if random() > 0.95 { 0.5 } else { 0.0 })
                .collect();
            let time =
                |a: u32, b: u32, round: u32| 10.0 * noise[((a * 8 + b) * 3 + round) as usize];
            alarms += usize::from(verdict(&records(8, 3, time)).is_some());
        }
        assert!(alarms <= 2, "{alarms} of 200");
    }

    #[test]
    fn a_picture_has_figures_where_they_fit_and_signs_elsewhere() {
        let records = records(6, 1, |a, b, _| if (a, b) == (1, 4) { 30.0 } else { 10.0 });
        let maps = maps(&records);
        let wide = picture(&maps[0], Some(80));
        assert!(
            wide.contains("\n1   10.0      -   10.0   10.0   30.0   10.0\n"),
            "{wide}"
        );
        let narrow = picture(&maps[0], Some(20));
        assert!(narrow.contains("\n1 . ..#.\n"), "{narrow}");
    }

    #[test]
    fn the_names_of_pairs_are_read_again() {
        let layout = "tp1@3"
            .parse::<muster_comm::layout::Matrix>()
            .expect("a matrix");
        let names = pairs(&layout.layout().expect("legal"));
        assert_eq!(names, ["pair 0-1", "pair 0-2", "pair 1-2"]);
        assert_eq!(pair(&names[2]), Some([1, 2]));
        assert_eq!(pair("ep"), None);
    }
}
