//! From measurements to a selection table: which algorithm was best, how surely, from which size to which.
//!
//! Pure. Everything was measured beside `auto`, what the built-in rules choose.
//!
//! TUNE-1: a rule is written only where its algorithm was faster than the built-in choice in every round,
//! and by [`Tuning::margin`] in the median. What is not written stays with the built-in rules.
//! TUNE-2: a rule says nothing about numbers of ranks that were not measured, nor about larger buffers.

use std::fmt::Write as _;

use muster_comm::algo::ENTRY;
use muster_comm::types::Collective;
use serde::{Deserialize, Serialize};

use crate::bench::model::Record;
use crate::report::machine::Machine;
use crate::report::origin::Origin;
use crate::stats;

/// Version of the report's fields.
pub const SCHEMA_VERSION: u32 = 1;

/// The outcome of `tune`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TuneReport {
    /// Version of these fields: [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Program and version that wrote this.
    pub tool: String,
    /// `tune`.
    pub command: String,
    /// Where it ran.
    pub machine: Machine,
    /// When and how it ran.
    pub origin: Origin,
    /// Where buffers lay: `private` or `region`.
    pub memory: String,
    /// How often each cell was measured.
    pub rounds: u32,
    /// By how much an algorithm had to be faster than the built-in choice, in percent.
    pub margin_percent: f64,
    /// Sizes that were measured beside the built-in choice, over all calls and numbers of ranks.
    pub cells: u64,
    /// The rules, in the order of the table.
    pub rules: Vec<Rule>,
    /// The table itself.
    pub table: String,
}

/// A rule, and what it rests on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rule {
    /// The call.
    pub collective: String,
    /// What the ranks have in common: `direct` for shared memory, `message` for none.
    pub links: String,
    /// Ranks of the group.
    pub ranks: u32,
    /// The rule is for buffers of at least so many bytes; null for any.
    pub from_bytes: Option<u64>,
    /// And of at most so many; null for any.
    pub to_bytes: Option<u64>,
    /// The algorithm.
    pub algo: String,
    /// How much goes through staging at once, where that matters.
    pub segment: Option<u32>,
    /// What was measured, for each size.
    pub sizes: Vec<Measured>,
}

/// The best choice and the built-in one at a size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Measured {
    /// Bytes of the largest buffer of a rank.
    pub bytes: u64,
    /// Median time of a call by the algorithm of the rule, in microseconds.
    pub median_us: f64,
    /// The same by the built-in choice.
    pub built_in_us: f64,
    /// Which that was.
    pub built_in: String,
}

/// What it takes for a rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tuning {
    /// By how much faster it must be than the built-in choice, as a part of that one's time.
    pub margin: f64,
    /// Whether the ranks shared memory.
    pub direct: bool,
}

/// A way to carry out a call.
type Way<'a> = (&'a str, Option<u32>);

impl Tuning {
    /// The rules that the records of one number of ranks give. Records of one call stand together, with
    /// ascending sizes; `auto` is among them.
    #[must_use]
    pub fn rules(&self, records: &[Record]) -> Vec<Rule> {
        let mut calls: Vec<(&str, u32)> = Vec::new();
        for record in records {
            let call = (record.collective.as_str(), record.ranks);
            if !calls.contains(&call) {
                calls.push(call);
            }
        }
        let of = |(name, ranks): (&str, u32)| {
            let is_of =
                |record: &&Record| (record.collective.as_str(), record.ranks) == (name, ranks);
            let records: Vec<&Record> = records.iter().filter(is_of).collect();
            self.of_call(&records)
        };
        calls.into_iter().flat_map(of).collect()
    }

    fn of_call(&self, records: &[&Record]) -> Vec<Rule> {
        let mut sizes: Vec<u64> = records.iter().map(|record| record.bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let winners: Vec<Option<(Way<'_>, Measured)>> = sizes
            .iter()
            .map(|bytes| self.winner(records, *bytes))
            .collect();
        let Some(first) = records.first() else {
            return Vec::new();
        };
        let is_sized = first.collective != Collective::AllToAllV.name();
        if !is_sized {
            // No rank knows the sizes of the others: one algorithm for all of them, or none.
            return self.unsized_rule(first, winners).into_iter().collect();
        }
        let mut rules: Vec<Rule> = Vec::new();
        let mut last: Option<Way<'_>> = None;
        for (place, winner) in winners.into_iter().enumerate() {
            let Some((way, measured)) = winner else {
                last = None;
                continue;
            };
            let upper = sizes
                .get(place + 1)
                .map(|next| between(sizes[place], *next));
            let to_bytes = to_bytes(way, upper, sizes[place]);
            match rules.last_mut() {
                Some(rule) if last == Some(way) => {
                    rule.to_bytes = to_bytes;
                    rule.sizes.push(measured);
                }
                _ => {
                    let below = place.checked_sub(1).map(|below| sizes[below]);
                    let from = below.map(|below| between(below, sizes[place]) + 1);
                    rules.push(Rule {
                        from_bytes: from,
                        to_bytes,
                        ..self.rule(first, way, vec![measured])
                    });
                }
            }
            last = Some(way);
        }
        rules
    }

    fn rule(&self, record: &Record, (algo, segment): Way<'_>, sizes: Vec<Measured>) -> Rule {
        Rule {
            collective: record.collective.clone(),
            links: if self.direct { "direct" } else { "message" }.to_owned(),
            ranks: record.ranks,
            from_bytes: None,
            to_bytes: None,
            algo: algo.to_owned(),
            segment,
            sizes,
        }
    }

    fn unsized_rule(
        &self,
        record: &Record,
        winners: Vec<Option<(Way<'_>, Measured)>>,
    ) -> Option<Rule> {
        let all: Vec<(Way<'_>, Measured)> = winners.into_iter().collect::<Option<_>>()?;
        let (way, _) = *all.first()?;
        let is_one = all.iter().all(|(other, _)| *other == way);
        is_one.then(|| {
            let sizes = all.into_iter().map(|(_, measured)| measured).collect();
            self.rule(record, way, sizes)
        })
    }

    /// The best way at a size, where it is surely better than the built-in one (TUNE-1).
    fn winner<'a>(&self, records: &[&'a Record], bytes: u64) -> Option<(Way<'a>, Measured)> {
        let here: Vec<&Record> = records
            .iter()
            .copied()
            .filter(|record| record.bytes == bytes && record.unsupported.is_none())
            .collect();
        let built_in = here.iter().copied().find(|record| record.algo == "auto")?;
        let limit = built_in.latency_us.median * (1.0 - self.margin);
        let is_better = |record: &Record| {
            record.algo != "auto"
                && record.latency_us.median < limit
                && is_always_faster(record, built_in)
                && !is_the_same(record, built_in)
        };
        let best = here
            .into_iter()
            .filter(|record| is_better(record))
            .min_by(|one, other| one.latency_us.median.total_cmp(&other.latency_us.median))?;
        let measured = Measured {
            bytes,
            median_us: best.latency_us.median,
            built_in_us: built_in.latency_us.median,
            built_in: built_in.taken.clone().unwrap_or_default(),
        };
        Some(((best.algo.as_str(), best.segment), measured))
    }
}

/// Whether the built-in rules take just that way.
fn is_the_same(record: &Record, built_in: &Record) -> bool {
    record.segment.is_none() && built_in.taken.as_deref() == Some(record.algo.as_str())
}

/// Whether the median of each round is below that of the same round of the other.
fn is_always_faster(record: &Record, other: &Record) -> bool {
    let medians = |record: &Record| -> Vec<f64> {
        let of = |samples: &Vec<f64>| {
            let mut ascending = samples.clone();
            stats::sort(&mut ascending);
            stats::median(&ascending)
        };
        record.samples_us.iter().map(of).collect()
    };
    let (mine, theirs) = (medians(record), medians(other));
    !mine.is_empty() && mine.iter().zip(&theirs).all(|(mine, theirs)| mine < theirs)
}

/// Where two sizes part: their geometric middle.
fn between(lower: u64, upper: u64) -> u64 {
    let product = u128::from(lower) * u128::from(upper);
    u64::try_from(product.isqrt()).unwrap_or(u64::MAX)
}

/// Up to which size a way that is best at `bytes` is taken.
fn to_bytes((algo, _): Way<'_>, upper: Option<u64>, bytes: u64) -> Option<u64> {
    // A barrier has no sizes.
    let bound = (bytes > 0).then(|| upper.unwrap_or(bytes))?;
    // The entry does not carry what lies between two sizes for certain.
    Some(if algo == ENTRY.name { bytes } else { bound })
}

impl Rule {
    /// The line of the table, without what it rests on.
    #[must_use]
    pub fn line(&self) -> String {
        let mut conditions = format!("links={} n={}", self.links, self.ranks);
        if let Some(from) = self.from_bytes {
            let _ = write!(conditions, " bytes>={from}");
        }
        if let Some(to) = self.to_bytes {
            let _ = write!(conditions, " bytes<={}", size(to));
        }
        let segment = self.segment.map_or_else(String::new, |bytes| {
            format!(" segment={}", size(bytes.into()))
        });
        format!(
            "{:<16} {conditions:<46} -> {}{segment}",
            self.collective, self.algo
        )
    }

    /// What was measured, in words.
    fn grounds(&self) -> String {
        let of = |measured: &Measured| {
            format!(
                "{}: {} us, {} {} us",
                size(measured.bytes),
                short(measured.median_us),
                measured.built_in,
                short(measured.built_in_us)
            )
        };
        let all: Vec<String> = self.sizes.iter().map(of).collect();
        all.join("; ")
    }
}

/// The table: what was measured where, then a line for each rule, and above it what it rests on.
#[must_use]
pub fn table(report: &TuneReport) -> String {
    let machine = &report.machine;
    let mut text = format!(
        "# Selection rules measured by {} on {}.\n# {}, {} processors. Buffers in {} memory; {} rounds; a rule where an algorithm\n\
         # was faster than the built-in choice in every round, and by {} % in the median.\n",
        report.tool,
        report.origin.started_at,
        machine.cpu,
        machine.cpus,
        report.memory,
        report.rounds,
        report.margin_percent,
    );
    let _ = writeln!(text, "# {}", report.origin.command());
    if report.rules.is_empty() {
        text.push_str("# No rule: nowhere was anything surely faster than the built-in choice.\n");
    }
    for rule in &report.rules {
        let _ = writeln!(text, "\n# {}\n{}", rule.grounds(), rule.line());
    }
    text
}

/// A number of bytes as tables write it.
fn size(bytes: u64) -> String {
    match bytes {
        0 => "no bytes".to_owned(),
        bytes if bytes.is_multiple_of(1 << 20) => format!("{}MiB", bytes >> 20),
        bytes if bytes.is_multiple_of(1 << 10) => format!("{}KiB", bytes >> 10),
        bytes => bytes.to_string(),
    }
}

fn short(micros: f64) -> String {
    if micros < 100.0 {
        format!("{micros:.2}")
    } else {
        format!("{micros:.0}")
    }
}

#[cfg(test)]
mod tests {
    use muster_comm::algo::{Links, Table};

    use super::*;
    use crate::report::measured::Latency;

    /// Records of one size: the built-in choice first, then others, with the medians of two rounds.
    fn at(collective: &str, bytes: u64, ways: &[(&str, Option<u32>, [f64; 2])]) -> Vec<Record> {
        let record =
            |(place, (algo, segment, rounds)): (usize, &(&str, Option<u32>, [f64; 2]))| Record {
                collective: collective.to_owned(),
                algo: if place == 0 { "auto" } else { algo }.to_owned(),
                taken: Some((*algo).to_owned()),
                segment: *segment,
                ranks: 2,
                bytes,
                latency_us: Latency {
                    median: (rounds[0] + rounds[1]) / 2.0,
                    ..Latency::default()
                },
                samples_us: rounds.map(|median| vec![median]).to_vec(),
                ..Record::default()
            };
        ways.iter().enumerate().map(record).collect()
    }

    fn lines(records: &[Record]) -> Vec<String> {
        let tuning = Tuning {
            margin: 0.1,
            direct: true,
        };
        let words = |rule: Rule| {
            let line = rule.line();
            Table::with_overrides(&line).expect("a legal line");
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        tuning.rules(records).into_iter().map(words).collect()
    }

    #[test]
    fn only_what_is_surely_faster_than_the_built_in_choice_gets_a_rule() {
        let auto = ("entry", None, [10.0, 10.0]);
        for (other, is_rule) in [
            (("direct", None, [5.0, 5.0]), true),
            (("direct", None, [9.5, 9.5]), false),
            // Faster by far in one round and slower in the other.
            (("direct", None, [1.0, 11.0]), false),
            // The same under its own name.
            (("entry", None, [5.0, 5.0]), false),
        ] {
            let rules = lines(&at("all_reduce", 64, &[auto, other]));
            assert_eq!(!rules.is_empty(), is_rule, "{other:?}: {rules:?}");
        }
    }

    #[test]
    fn neighbouring_sizes_of_one_winner_are_one_rule_up_to_the_middle_of_the_next() {
        let slow = ("entry", None, [10.0, 10.0]);
        let fast = ("direct", None, [2.0, 2.0]);
        let cut = ("direct", Some(64 << 10), [1.0, 1.0]);
        let records = [
            at("all_reduce", 64, &[slow, ("direct", None, [20.0, 20.0])]),
            at("all_reduce", 1024, &[slow, fast]),
            at("all_reduce", 4096, &[slow, fast]),
            at("all_reduce", 1 << 20, &[slow, fast, cut]),
        ]
        .concat();
        assert_eq!(
            lines(&records),
            [
                "all_reduce links=direct n=2 bytes>=257 bytes<=64KiB -> direct",
                "all_reduce links=direct n=2 bytes>=65537 bytes<=1MiB -> direct segment=64KiB",
            ]
        );
    }

    #[test]
    fn the_entry_is_not_taken_beyond_what_was_measured() {
        let records = [
            at(
                "reduce",
                4096,
                &[("direct", None, [9.0, 9.0]), ("entry", None, [1.0, 1.0])],
            ),
            at("reduce", 1 << 20, &[("direct", None, [9.0, 9.0])]),
        ]
        .concat();
        assert_eq!(
            lines(&records),
            ["reduce links=direct n=2 bytes<=4KiB -> entry"]
        );
    }

    #[test]
    fn where_ranks_do_not_know_the_sizes_one_algorithm_must_be_best_at_all() {
        let slow = ("direct", None, [10.0, 10.0]);
        let fast = ("pairwise", None, [2.0, 2.0]);
        let once = [
            at("all_to_all_v", 64, &[slow, fast]),
            at(
                "all_to_all_v",
                4096,
                &[slow, ("pairwise", None, [20.0, 20.0])],
            ),
        ];
        assert_eq!(lines(&once.concat()), [""; 0]);
        let always = [
            at("all_to_all_v", 64, &[slow, fast]),
            at("all_to_all_v", 4096, &[slow, fast]),
        ];
        assert_eq!(
            lines(&always.concat()),
            ["all_to_all_v links=direct n=2 -> pairwise"]
        );
        let barrier = at("barrier", 0, &[slow, ("dissemination", None, [1.0, 1.0])]);
        assert_eq!(
            lines(&barrier),
            ["barrier links=direct n=2 -> dissemination"]
        );
    }

    #[test]
    fn the_table_says_what_it_rests_on_and_decides_as_it_says() {
        let slow = ("direct", None, [10.0, 10.0]);
        let records = at("all_reduce", 1 << 20, &[slow, ("ring", None, [2.0, 2.0])]);
        let tuning = Tuning {
            margin: 0.1,
            direct: true,
        };
        let report = TuneReport {
            schema_version: SCHEMA_VERSION,
            tool: "muster".to_owned(),
            command: "tune".to_owned(),
            machine: Machine::default(),
            origin: Origin::default(),
            memory: "private".to_owned(),
            rounds: 2,
            margin_percent: 10.0,
            cells: 1,
            rules: tuning.rules(&records),
            table: String::new(),
        };
        let text = table(&report);
        assert!(text.contains("# 1MiB: 2.00 us, direct 10.00 us"), "{text}");
        let table = Table::with_overrides(&text).expect("legal");
        let name = |n| {
            let chosen = table.select(Collective::AllReduce, 1 << 20, n, Links::Direct);
            chosen.expect("a rule fits").name
        };
        assert_eq!((name(2), name(3)), ("ring", "direct"));
    }
}
