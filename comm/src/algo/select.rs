//! Which algorithm to take: a table of rules that a person can read and overrule.
//!
//! One rule a line; the first rule that fits decides; `#` starts a comment:
//!
//! ```text
//! all_reduce   links=message  n<=16  bytes<64KiB  -> recursive_doubling
//! ```
//!
//! A rule names a collective, then any number of conditions, then an algorithm. Conditions:
//!
//! - `links=direct` (all ranks of the group share memory) or `links=message`;
//! - `n` compared with a number of ranks: `n=8`, `n<8`, `n<=8`, `n>8`, `n>=8`;
//! - `bytes` compared with the size of the largest buffer of any rank, in bytes or with a unit
//!   `KiB`, `MiB` or `GiB`: `bytes<64KiB`. Not for `all_to_all_v`, where no rank knows the sizes
//!   of the others, and ranks must agree on the algorithm.
//!
//! Rules of the user stand before the built-in ones. A rule that fits but names an algorithm that
//! the links cannot carry is an error; nothing is ever replaced in silence.

use super::plan::Links;
use super::registry::{Algorithm, find, planned};
use crate::types::{Collective, UnknownName, closest};

/// Most lines a table may have: far more than there are sensible rules, so that a wrong file is
/// noticed early.
pub const MAX_LINES: usize = 1000;

/// The built-in rules. The sizes are round figures for where latency stops to matter and bytes
/// begin to; where a machine was measured, an override says better.
pub const BUILT_IN: &str = "\
# collective      conditions                       -> algorithm
all_reduce        links=direct   bytes<=16KiB      -> direct_small
all_reduce        links=direct                     -> direct
all_reduce        n<=2                             -> recursive_doubling
all_reduce        bytes<16KiB                      -> recursive_doubling
all_reduce        bytes<4MiB                       -> halving_doubling
all_reduce                                         -> ring
reduce_scatter    links=direct                     -> direct
reduce_scatter    bytes<4MiB                       -> recursive_halving
reduce_scatter                                     -> ring
reduce_scatter_v  links=direct                     -> direct
reduce_scatter_v  bytes<256KiB                     -> recursive_halving
reduce_scatter_v                                   -> pairwise
all_gather        links=direct                     -> direct
all_gather        bytes<4MiB                       -> recursive_doubling
all_gather                                         -> ring
all_gather_v      links=direct                     -> direct
all_gather_v      bytes<256KiB                     -> recursive_doubling
all_gather_v                                       -> pairwise
all_to_all        links=direct                     -> direct
all_to_all        n>=8  bytes<64KiB                -> bruck
all_to_all                                         -> pairwise
all_to_all_v      links=direct                     -> direct
all_to_all_v                                       -> pairwise
broadcast         links=direct                     -> direct
broadcast         n>=8  bytes>=1MiB                -> scatter_ring
broadcast                                          -> binomial_tree
reduce            links=direct   bytes<=256KiB     -> direct
reduce            links=direct                     -> direct_sliced
reduce                                             -> binomial_tree
gather            links=direct                     -> direct
gather            bytes<1MiB                       -> binomial_tree
gather                                             -> linear
gather_v          links=direct                     -> direct
gather_v                                           -> linear
scatter           links=direct                     -> direct
scatter           bytes<1MiB                       -> binomial_tree
scatter                                            -> linear
scatter_v         links=direct                     -> direct
scatter_v                                          -> linear
barrier           links=direct                     -> direct
barrier                                            -> dissemination
";

/// A comparison with a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compare {
    Above,
    AtLeast,
    AtMost,
    Below,
    Equal,
}

impl Compare {
    /// The signs, longer ones first, so that the first that fits is the right one.
    const SIGNS: [(&'static str, Self); 5] = [
        ("<=", Self::AtMost),
        (">=", Self::AtLeast),
        ("<", Self::Below),
        (">", Self::Above),
        ("=", Self::Equal),
    ];

    fn holds(self, value: u64, limit: u64) -> bool {
        match self {
            Self::Above => value > limit,
            Self::AtLeast => value >= limit,
            Self::AtMost => value <= limit,
            Self::Below => value < limit,
            Self::Equal => value == limit,
        }
    }
}

/// One condition of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    Bytes(Compare, u64),
    Links(Links),
    Ranks(Compare, u64),
}

/// One line of a table.
#[derive(Clone, Debug)]
struct Rule {
    collective: Collective,
    conditions: Vec<Condition>,
    algorithm: &'static Algorithm,
    /// The line it stands on, and whether that is a line of the user's.
    line: usize,
    is_built_in: bool,
}

impl Rule {
    fn fits(&self, bytes: u64, n: usize, links: Links) -> bool {
        self.conditions.iter().all(|condition| match condition {
            Condition::Bytes(compare, limit) => compare.holds(bytes, *limit),
            Condition::Links(wanted) => *wanted == links,
            Condition::Ranks(compare, limit) => compare.holds(n as u64, *limit),
        })
    }
}

/// Rules that decide on an algorithm.
#[derive(Clone, Debug)]
pub struct Table {
    rules: Vec<Rule>,
}

impl Table {
    /// The built-in rules.
    ///
    /// # Panics
    /// Never: a test parses the text.
    #[must_use]
    pub fn built_in() -> Self {
        Self {
            rules: parse(BUILT_IN, true).expect("the built-in table is legal"),
        }
    }

    /// The rules of `text`, and behind them the built-in ones.
    ///
    /// # Errors
    /// [`TableError`], naming the line, what is wrong with it, and what would be understood.
    pub fn with_overrides(text: &str) -> Result<Self, TableError> {
        let mut rules = parse(text, false)?;
        rules.extend(Self::built_in().rules);
        Ok(Self { rules })
    }

    /// The algorithm for a collective over `n` ranks. `bytes` is the size of the largest buffer of
    /// any rank ([`super::Problem::elements`] times the size of an element); it does not matter
    /// for `all_to_all_v`.
    ///
    /// # Errors
    /// [`SelectError`] where no rule fits, or the one that does cannot be carried out.
    pub fn select(
        &self,
        collective: Collective,
        bytes: u64,
        n: usize,
        links: Links,
    ) -> Result<&'static Algorithm, SelectError> {
        let rule = self
            .rules
            .iter()
            .find(|rule| rule.collective == collective && rule.fits(bytes, n, links))
            .ok_or(SelectError::NoRule { collective })?;
        if rule.algorithm.links == Links::Direct && links == Links::Message {
            return Err(SelectError::NeedsDirectLinks {
                collective,
                algorithm: rule.algorithm.name,
                line: rule.line,
                is_built_in: rule.is_built_in,
            });
        }
        Ok(rule.algorithm)
    }
}

/// The algorithm that the built-in table gives; see [`Table::select`].
///
/// # Errors
/// As [`Table::select`].
pub fn select(
    collective: Collective,
    bytes: u64,
    n: usize,
    links: Links,
) -> Result<&'static Algorithm, SelectError> {
    static TABLE: std::sync::LazyLock<Table> = std::sync::LazyLock::new(Table::built_in);
    TABLE.select(collective, bytes, n, links)
}

/// Why no algorithm was selected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectError {
    /// The rule that fits names an algorithm for shared memory, and the ranks do not share any.
    #[error(
        "line {line} of the {} selection table gives {algorithm} for {collective}, which needs \
         shared memory between all ranks of the group; put links=direct into the rule",
        if *is_built_in { "built-in" } else { "user's" }
    )]
    NeedsDirectLinks {
        /// What was to be carried out.
        collective: Collective,
        /// The algorithm of the rule.
        algorithm: &'static str,
        /// The line of the rule.
        line: usize,
        /// Whether it is a built-in rule.
        is_built_in: bool,
    },
    /// Nothing in the table fits, because the call is not carried out by plans.
    #[error("no algorithm carries out {collective}")]
    NoRule {
        /// What was to be carried out.
        collective: Collective,
    },
}

/// A line of a selection table that is not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("selection table line {line}: {kind}")]
pub struct TableError {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong.
    pub kind: TableErrorKind,
}

/// What can be wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableErrorKind {
    /// A size where ranks cannot agree on one.
    #[error(
        "all_to_all_v cannot be selected by bytes: a rank knows its own counts only, and all must \
         take the same algorithm"
    )]
    BytesUnknown,
    /// A word that is no condition.
    #[error(
        "{got:?} is no condition; allowed are links=direct, links=message, and n or bytes with \
         =, <, <=, > or >= and a number (bytes also with KiB, MiB or GiB){}",
        meant(suggestion)
    )]
    Condition {
        /// The word.
        got: String,
        /// What it may have been meant to start with.
        suggestion: Option<&'static str>,
    },
    /// A direct algorithm for links that only carry messages.
    #[error("{algorithm} needs shared memory, so it cannot stand behind links=message")]
    Links {
        /// The algorithm.
        algorithm: &'static str,
    },
    /// More lines than any sensible table has.
    #[error("a table has at most {MAX_LINES} lines")]
    Long,
    /// An algorithm is missing, or there is more than one word behind the arrow.
    #[error("a rule ends with \"-> algorithm\", one word")]
    NoAlgorithm,
    /// A collective or algorithm that there is not.
    #[error("{error}{}", meant(&error.suggestion()))]
    Unknown {
        /// The word, and what would be understood.
        #[from]
        error: UnknownName,
    },
}

fn meant(suggestion: &Option<&'static str>) -> String {
    suggestion.map_or_else(String::new, |word| format!("; did you mean {word}?"))
}

fn parse(text: &str, is_built_in: bool) -> Result<Vec<Rule>, TableError> {
    let mut rules = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let at = |kind| TableError {
            line: index + 1,
            kind,
        };
        if index >= MAX_LINES {
            return Err(at(TableErrorKind::Long));
        }
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let (collective, conditions, algorithm) = parse_rule(line).map_err(at)?;
        rules.push(Rule {
            collective,
            conditions,
            algorithm,
            line: index + 1,
            is_built_in,
        });
    }
    Ok(rules)
}

fn parse_rule(
    line: &str,
) -> Result<(Collective, Vec<Condition>, &'static Algorithm), TableErrorKind> {
    let (left, right) = line.split_once("->").ok_or(TableErrorKind::NoAlgorithm)?;
    let mut words = left.split_whitespace();
    let collective = parse_collective(words.next().unwrap_or_default())?;
    let conditions = words.map(parse_condition).collect::<Result<Vec<_>, _>>()?;
    let mut names = right.split_whitespace();
    let (Some(name), None) = (names.next(), names.next()) else {
        return Err(TableErrorKind::NoAlgorithm);
    };
    let algorithm = find(collective, name)?;
    let by_bytes = conditions
        .iter()
        .any(|condition| matches!(condition, Condition::Bytes(..)));
    if by_bytes && collective == Collective::AllToAllV {
        return Err(TableErrorKind::BytesUnknown);
    }
    let for_messages = conditions.contains(&Condition::Links(Links::Message));
    if for_messages && algorithm.links == Links::Direct {
        return Err(TableErrorKind::Links {
            algorithm: algorithm.name,
        });
    }
    Ok((collective, conditions, algorithm))
}

fn parse_collective(word: &str) -> Result<Collective, TableErrorKind> {
    planned()
        .find(|collective| collective.name() == word)
        .ok_or_else(|| {
            UnknownName {
                what: "collective",
                got: word.to_owned(),
                known: planned().map(Collective::name).collect(),
            }
            .into()
        })
}

fn parse_condition(word: &str) -> Result<Condition, TableErrorKind> {
    let unknown = || TableErrorKind::Condition {
        got: word.to_owned(),
        suggestion: closest(
            word.split(['=', '<', '>']).next().unwrap_or_default(),
            ["bytes", "links", "n"],
        ),
    };
    if let Some(name) = word.strip_prefix("links=") {
        return Links::ALL
            .into_iter()
            .find(|links| links.name() == name)
            .map(Condition::Links)
            .ok_or_else(unknown);
    }
    let (subject, rest) = match word.strip_prefix("bytes") {
        Some(rest) => ("bytes", rest),
        None => ("n", word.strip_prefix('n').ok_or_else(unknown)?),
    };
    let (compare, number) = Compare::SIGNS
        .into_iter()
        .find_map(|(sign, compare)| Some((compare, rest.strip_prefix(sign)?)))
        .ok_or_else(unknown)?;
    if subject == "bytes" {
        let limit = parse_bytes(number).ok_or_else(unknown)?;
        Ok(Condition::Bytes(compare, limit))
    } else {
        let limit = number.parse().map_err(|_| unknown())?;
        Ok(Condition::Ranks(compare, limit))
    }
}

/// A number of bytes, with or without one of the units `B`, `KiB`, `MiB` and `GiB`; none where it
/// is not understood or leaves 64 bits.
#[must_use]
pub fn parse_bytes(word: &str) -> Option<u64> {
    const UNITS: [(&str, u64); 4] = [
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("B", 1),
    ];
    let (number, unit) = UNITS
        .into_iter()
        .find_map(|(name, unit)| Some((word.strip_suffix(name)?, unit)))
        .unwrap_or((word, 1));
    number.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_table_decides_every_case() {
        let table = Table::built_in();
        for collective in planned() {
            for links in Links::ALL {
                for n in [1, 2, 3, 8, 64, 10_000] {
                    for bytes in [0, 1, 16 << 10, 1 << 20, 1 << 33] {
                        let algorithm = table
                            .select(collective, bytes, n, links)
                            .expect("a rule fits");
                        assert!(algorithm.collectives.contains(&collective));
                        assert_eq!(algorithm.links, links, "{collective} {}", algorithm.name);
                    }
                }
            }
        }
        assert_eq!(
            select(Collective::Send, 1, 2, Links::Message).map(|a| a.name),
            Err(SelectError::NoRule {
                collective: Collective::Send
            })
        );
    }

    #[test]
    fn the_first_rule_that_fits_decides_and_the_users_rules_come_first() {
        let table = Table::with_overrides(
            "# mine\n\nall_reduce n<4 bytes<1KiB -> ring # small\nall_reduce n>=4 links=message -> ring\n",
        )
        .expect("legal");
        let name = |bytes, n, links| {
            table
                .select(Collective::AllReduce, bytes, n, links)
                .map(|a| a.name)
        };
        assert_eq!(name(1023, 3, Links::Direct), Ok("ring"));
        assert_eq!(name(1024, 3, Links::Message), Ok("recursive_doubling"));
        assert_eq!(name(8, 4, Links::Message), Ok("ring"));
        assert_eq!(name(8, 4, Links::Direct), Ok("direct_small"));
    }

    #[test]
    fn an_override_that_cannot_be_carried_out_is_an_error_and_not_another_algorithm() {
        let table = Table::with_overrides("\nbroadcast n>2 -> direct").expect("legal");
        let error = table
            .select(Collective::Broadcast, 8, 3, Links::Message)
            .map(|a| a.name)
            .expect_err("direct needs shared memory");
        assert_eq!(
            error,
            SelectError::NeedsDirectLinks {
                collective: Collective::Broadcast,
                algorithm: "direct",
                line: 2,
                is_built_in: false
            }
        );
        assert!(
            error.to_string().contains("line 2 of the user's"),
            "{error}"
        );
    }

    #[test]
    fn a_wrong_line_is_named_with_what_would_be_understood() {
        let error = |text: &str| Table::with_overrides(text).expect_err("not legal");
        let found = error("\n\nall_redcue -> ring");
        assert_eq!(found.line, 3);
        assert!(
            found.to_string().contains("did you mean all_reduce?"),
            "{found}"
        );
        let found = error("all_reduce -> rign").to_string();
        assert!(found.contains("did you mean ring?"), "{found}");
        let found = error("all_reduce byte<3 -> ring").to_string();
        assert!(found.contains("did you mean bytes?"), "{found}");
        for wrong in [
            "bytes<3MB",
            "bytes<",
            "n<x",
            "n",
            "links=shm",
            "n<-1",
            "bytes<99999999999GiB",
        ] {
            let found = error(&format!("all_reduce {wrong} -> ring"));
            assert!(
                matches!(found.kind, TableErrorKind::Condition { .. }),
                "{wrong}"
            );
        }
        for wrong in [
            "all_reduce ring",
            "all_reduce ->",
            "all_reduce -> ring ring",
            "->",
        ] {
            error(wrong);
        }
        assert_eq!(
            error("barrier links=message -> direct").kind,
            TableErrorKind::Links {
                algorithm: "direct"
            }
        );
        assert_eq!(
            error("all_to_all_v bytes<3 -> pairwise").kind,
            TableErrorKind::BytesUnknown
        );
        assert_eq!(
            error(&"\n".repeat(MAX_LINES + 1)).kind,
            TableErrorKind::Long
        );
    }
}
