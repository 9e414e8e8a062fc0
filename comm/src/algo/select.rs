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
//!   of the others, and ranks must agree on the algorithm;
//! - `hosts` compared with a number, or with `n`: over how many hosts the group is spread. `hosts>1 hosts<n` is
//!   true where several ranks share a host, and not all.
//!
//! The algorithm `entry` carries a contribution of up to 16 KiB in the exchange that begins every call over
//! shared memory. Behind an algorithm for shared memory, `segment=256KiB` says how much of a vector goes
//! through staging at once (16KiB to 1MiB, a power of two; 1MiB unless said).
//!
//! Rules of the user stand before the built-in ones. A rule that fits but names an algorithm that
//! the links cannot carry is an error; nothing is ever replaced in silence. The built-in rules do not name
//! `entry`: where no rule of the user fits, it is taken for what it can carry, save the larger contributions
//! that are sooner fetched from where they lie.

mod parse;

use parse::parse;

use super::plan::Links;
use super::registry::{Algorithm, choices_for};
use crate::types::{Collective, UnknownName};

/// Most lines a table may have: far more than there are sensible rules, so that a wrong file is
/// noticed early.
pub const MAX_LINES: usize = 1000;

/// Least and most bytes of a segment that a rule may ask for.
pub const SEGMENT_BYTES: std::ops::RangeInclusive<u64> = 16 << 10..=1 << 20;

/// The built-in rules. The sizes are round figures for where latency stops to matter and bytes
/// begin to; where a machine was measured, an override says better.
pub const BUILT_IN: &str = "\
# collective      conditions                       -> algorithm
all_reduce        links=direct   n=2  bytes>8KiB   -> direct
all_reduce        links=direct   bytes<=16KiB      -> direct_small
all_reduce        links=direct                     -> direct
all_reduce        hosts>1  hosts<n                 -> hierarchical
all_reduce        n<=2                             -> recursive_doubling
all_reduce        bytes<16KiB                      -> recursive_doubling
all_reduce        bytes<4MiB                       -> halving_doubling
all_reduce                                         -> ring
reduce_scatter    links=direct                     -> direct
reduce_scatter    hosts>1  hosts<n                 -> hierarchical
reduce_scatter    bytes<4MiB                       -> recursive_halving
reduce_scatter                                     -> ring
reduce_scatter_v  links=direct                     -> direct
reduce_scatter_v  hosts>1  hosts<n                 -> hierarchical
reduce_scatter_v  bytes<256KiB                     -> recursive_halving
reduce_scatter_v                                   -> pairwise
all_gather        links=direct                     -> direct
all_gather        hosts>1  hosts<n                 -> hierarchical
all_gather        bytes<4MiB                       -> recursive_doubling
all_gather                                         -> ring
all_gather_v      links=direct                     -> direct
all_gather_v      hosts>1  hosts<n                 -> hierarchical
all_gather_v      bytes<256KiB                     -> recursive_doubling
all_gather_v                                       -> pairwise
all_to_all        links=direct                     -> direct
all_to_all        hosts>1  hosts<n  bytes<256KiB   -> hierarchical
all_to_all        n>=8  bytes<64KiB                -> bruck
all_to_all                                         -> pairwise
all_to_all_v      links=direct                     -> direct
all_to_all_v                                       -> pairwise
broadcast         links=direct   n=2               -> direct segment=256KiB
broadcast         links=direct   n>=8 bytes>=64MiB -> direct
broadcast         links=direct                     -> direct segment=512KiB
broadcast         hosts>1  hosts<n                 -> hierarchical
broadcast         n>=8  bytes>=1MiB                -> scatter_ring
broadcast                                          -> binomial_tree
reduce            links=direct   bytes<=256KiB     -> direct
reduce            links=direct                     -> direct_sliced
reduce            hosts>1  hosts<n                 -> hierarchical
reduce                                             -> binomial_tree
scan              links=direct                     -> direct
scan                                               -> linear
exclusive_scan    links=direct                     -> direct
exclusive_scan                                     -> linear
gather            links=direct                     -> direct
gather            hosts>1  hosts<n  bytes<1MiB     -> hierarchical
gather            bytes<1MiB                       -> binomial_tree
gather                                             -> linear
gather_v          links=direct                     -> direct
gather_v          hosts>1  hosts<n  bytes<1MiB     -> hierarchical
gather_v                                           -> linear
scatter           links=direct                     -> direct
scatter           hosts>1  hosts<n  bytes<1MiB     -> hierarchical
scatter           bytes<1MiB                       -> binomial_tree
scatter                                            -> linear
scatter_v         links=direct                     -> direct
scatter_v         hosts>1  hosts<n  bytes<1MiB     -> hierarchical
scatter_v                                          -> linear
barrier           links=direct                     -> direct
barrier           hosts>1  hosts<n                 -> hierarchical
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
    /// Compared with a number, or with that of ranks.
    Hosts(Compare, Option<u64>),
    Links(Links),
    Ranks(Compare, u64),
}

/// One line of a table.
#[derive(Clone, Debug)]
struct Rule {
    collective: Collective,
    conditions: Vec<Condition>,
    algorithm: &'static Algorithm,
    /// Bytes of a segment, where the rule says.
    segment: Option<usize>,
    /// The line it stands on, and whether that is a line of the user's.
    line: usize,
    is_built_in: bool,
}

impl Rule {
    fn fits(&self, bytes: u64, spread: Spread) -> bool {
        let Spread { n, hosts, links } = spread;
        self.conditions.iter().all(|condition| match condition {
            Condition::Bytes(compare, limit) => compare.holds(bytes, *limit),
            Condition::Hosts(compare, limit) => {
                compare.holds(hosts as u64, limit.unwrap_or(n as u64))
            }
            Condition::Links(wanted) => *wanted == links,
            Condition::Ranks(compare, limit) => compare.holds(n as u64, *limit),
        })
    }
}

/// How the ranks of a group lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    /// Ranks.
    pub n: usize,
    /// Hosts that they are on.
    pub hosts: usize,
    /// What the links between them can carry.
    pub links: Links,
}

impl Spread {
    /// Ranks that share memory, on one host; or ranks with a host each.
    #[must_use]
    pub const fn plain(n: usize, links: Links) -> Self {
        let hosts = match links {
            Links::Direct => 1,
            Links::Message => n,
        };
        Self { n, hosts, links }
    }
}

/// What a rule decides.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// The algorithm.
    pub algorithm: &'static Algorithm,
    /// Bytes that go through staging at once, where the rule says; a power of two.
    pub segment: Option<usize>,
    /// The line of the rule in its table.
    pub line: usize,
    /// Whether the rule is one of the user's.
    pub is_own: bool,
}

impl Choice {
    /// What ranks compare before they touch data, so that different tables are found out: 0 where the
    /// built-in rules decide.
    #[must_use]
    pub fn mark(&self, collective: Collective) -> u8 {
        if !self.is_own {
            return 0;
        }
        let place = choices_for(collective).position(|one| std::ptr::eq(one, self.algorithm));
        let place = place.map_or(0, |place| place + 1) & 0xf;
        // 16 KiB is 1, 1 MiB is 7.
        let segment = self.segment.map_or(0, |bytes| bytes.trailing_zeros() - 13);
        u8::try_from(place).unwrap_or(0) | u8::try_from(segment).unwrap_or(0) << 4
    }
}

/// The algorithm that a [`Choice::mark`] stands for, in words; none where the built-in rules decided.
#[must_use]
pub fn marked(collective: Collective, mark: u8) -> Option<String> {
    let place = usize::from(mark & 0xf).checked_sub(1)?;
    let name = choices_for(collective).nth(place)?.name;
    Some(match u32::from(mark >> 4) {
        0 => name.to_owned(),
        code => format!("{name} segment={}KiB", 1_u64 << (code + 3)),
    })
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

    /// Rules of the user's in it.
    #[must_use]
    pub fn own_rules(&self) -> usize {
        self.rules.iter().filter(|rule| !rule.is_built_in).count()
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
        self.choose(collective, bytes, Spread::plain(n, links))
            .map(|choice| choice.algorithm)
    }

    /// As [`Self::select`], with all that the rule says, for ranks however they lie.
    ///
    /// # Errors
    /// As [`Self::select`].
    pub fn choose(
        &self,
        collective: Collective,
        bytes: u64,
        spread: Spread,
    ) -> Result<Choice, SelectError> {
        let rule = self
            .rules
            .iter()
            .find(|rule| rule.collective == collective && rule.fits(bytes, spread))
            .ok_or(SelectError::NoRule { collective })?;
        if rule.algorithm.links == Links::Direct && spread.links == Links::Message {
            return Err(SelectError::NeedsDirectLinks {
                collective,
                algorithm: rule.algorithm.name,
                line: rule.line,
                is_built_in: rule.is_built_in,
            });
        }
        Ok(Choice {
            algorithm: rule.algorithm,
            segment: rule.segment,
            line: rule.line,
            is_own: !rule.is_built_in,
        })
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
    choose(collective, bytes, Spread::plain(n, links)).map(|choice| choice.algorithm)
}

/// What the built-in table gives; see [`Table::choose`].
///
/// # Errors
/// As [`Table::select`].
pub fn choose(collective: Collective, bytes: u64, spread: Spread) -> Result<Choice, SelectError> {
    static TABLE: std::sync::LazyLock<Table> = std::sync::LazyLock::new(Table::built_in);
    TABLE.choose(collective, bytes, spread)
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
        "{got:?} is no condition; allowed are links=direct, links=message, and n, hosts or bytes with \
         =, <, <=, > or >= and a number (bytes also with KiB, MiB or GiB; hosts also with n){}",
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
    /// A segment that is not understood, or that an algorithm has not.
    #[error(
        "{got:?} is no segment of {algorithm}: an algorithm for shared memory that goes through staging may have \
         segment=SIZE behind it, a power of two from 16KiB to 1MiB"
    )]
    Segment {
        /// The algorithm.
        algorithm: &'static str,
        /// The word.
        got: String,
    },
    /// More lines than any sensible table has.
    #[error("a table has at most {MAX_LINES} lines")]
    Long,
    /// An algorithm is missing, or there are too many words behind the arrow.
    #[error("a rule ends with \"-> algorithm\", one word, or \"-> algorithm segment=SIZE\"")]
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
mod tests;
