//! The verdict: who, what, where and since when, in one line and in JSON with the same fields.

mod class;
mod layout;

use std::fmt;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

pub use self::class::Class;
use self::layout::Fields;
pub use self::layout::{COLUMNS, lay_out, wrap};
use super::kind::ErrorKind;

/// How sure the judge is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// Everything that it rests on was seen.
    Certain,
    /// Something could not be looked at.
    Likely,
}

/// A call that a verdict ends, on every rank that waits in it or makes a later one on its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CallId {
    /// Key of the group.
    pub key: u64,
    /// Number of the call on the group.
    pub seq: u64,
}

/// What went wrong between ranks: the first cause, the same on every rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Verdict {
    /// What kind of failure it is.
    pub class: Class,
    /// World ranks that are to blame, ascending.
    pub blamed: Vec<u32>,
    /// Those ranks: host, process, groups.
    pub who: String,
    /// The call that could not go on.
    pub what: String,
    /// What those ranks do instead, or how they ended, and the call site.
    #[serde(rename = "where")]
    pub place: String,
    /// Since when, in milliseconds since 1970 by the wall clock of the rank that waited longest.
    pub since_unix_ms: u64,
    /// How long that was when the verdict was given, in milliseconds.
    pub elapsed_ms: u64,
    /// How sure it is.
    pub confidence: Confidence,
    /// What it rests on.
    pub evidence: Vec<String>,
    /// Who waits, and where.
    pub others: String,
    /// What to do next.
    pub next: String,
    /// What failed later because of it.
    pub cascades: Vec<String>,
    /// The calls that it ends.
    pub ends: Vec<CallId>,
    /// The call that it is about, where that leaves the group usable, or is one on devices: the group on the host goes on.
    pub about: Option<CallId>,
    /// The error that the calls return.
    pub kind: ErrorKind,
}

impl Verdict {
    /// Whether ranks cannot go on after it, unless they give up the group.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.about.is_none() && !self.ends.is_empty()
    }

    /// Makes it end this call too.
    pub(crate) fn end(&mut self, call: CallId) {
        if !self.ends.contains(&call) {
            self.ends.push(call);
        }
    }

    /// The one line. Cascades are not in it: it is the same at any later time.
    #[must_use]
    pub fn line(&self) -> String {
        let confidence = match self.confidence {
            Confidence::Certain => "certain",
            Confidence::Likely => "likely",
        };
        let mut line = format!("VERDICT {}", self.class.name());
        // Writing to a string cannot fail.
        let _ = write!(
            line,
            " who={} what={} where={}",
            self.who, self.what, self.place
        );
        let _ = write!(
            line,
            " since={} (+{})",
            time_of_day(self.since_unix_ms),
            seconds(self.elapsed_ms)
        );
        let _ = write!(
            line,
            " confidence={confidence} evidence={}",
            self.evidence.join("; ")
        );
        let _ = write!(line, " others={} next={}", self.others, self.next);
        // Names come from programs and hosts: nothing of them may end the line or steer a terminal.
        line.chars()
            .map(|one| if one.is_control() { ' ' } else { one })
            .collect()
    }
}

impl Verdict {
    /// Reads a line; what it does not hold is empty. It is from the last 24 hours before this time.
    #[must_use]
    pub fn parse(line: &str, now_unix_ms: u64) -> Option<Self> {
        let fields = Fields::of(line)?;
        let (since, elapsed) = fields.since.strip_suffix(" s)")?.split_once(" (+")?;
        let today_ms = now_unix_ms - now_unix_ms % DAY_MS + day_ms(since)?;
        Some(Self {
            class: fields.class,
            blamed: ranks_in(fields.who),
            who: fields.who.to_owned(),
            what: fields.what.to_owned(),
            place: fields.place.to_owned(),
            since_unix_ms: if today_ms > now_unix_ms {
                today_ms.saturating_sub(DAY_MS)
            } else {
                today_ms
            },
            elapsed_ms: seconds_ms(elapsed)?,
            confidence: match fields.confidence {
                "certain" => Confidence::Certain,
                _ => Confidence::Likely,
            },
            evidence: fields.evidence.split("; ").map(str::to_owned).collect(),
            others: fields.others.to_owned(),
            next: fields.next.to_owned(),
            cascades: Vec::new(),
            ends: Vec::new(),
            about: None,
            kind: ErrorKind::Orphaned {
                why: fields.place.to_owned(),
            },
        })
    }
}

const DAY_MS: u64 = 86_400_000;
/// Ranks of a line that are read; no world has more.
const RANKS_MAX: usize = 16_384;

/// `12:03:02.512Z`, in milliseconds.
fn day_ms(text: &str) -> Option<u64> {
    let (clock, millis) = text.strip_suffix('Z')?.split_once('.')?;
    let seconds = clock
        .split(':')
        .try_fold(0, |sum, part| Some(sum * 60 + part.parse::<u64>().ok()?))?;
    Some(seconds * 1000 + millis.parse::<u64>().ok()?)
}

/// `2.5` or `0.113`, in milliseconds.
fn seconds_ms(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.')?;
    let scale = 10_u64.checked_pow(3_u32.checked_sub(u32::try_from(part.len()).ok()?)?)?;
    Some(whole.parse::<u64>().ok()? * 1000 + part.parse::<u64>().ok()? * scale)
}

/// The ranks of `rank 2 (n1, pid 7), rank 3 (n1, pid 8)` or of `ranks 0,1,3-5`.
fn ranks_in(who: &str) -> Vec<u32> {
    let number = |text: &str| text.parse::<u32>().ok();
    let Some(list) = who.strip_prefix("ranks ") else {
        let starts = who.strip_prefix("rank ").into_iter();
        let starts = starts.flat_map(|rest| rest.split("), rank "));
        return starts
            .filter_map(|part| number(part.split(' ').next()?))
            .collect();
    };
    let list = list.split(' ').next().unwrap_or_default();
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(number(first)?..=number(last)?)
    };
    let ranks = list.split(',').filter_map(range).flatten();
    ranks.take(RANKS_MAX).collect()
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line())
    }
}

/// A time of day in UTC.
fn time_of_day(unix_ms: u64) -> String {
    let (s, ms) = (unix_ms / 1000 % 86_400, unix_ms % 1000);
    format!("{:02}:{:02}:{:02}.{ms:03}Z", s / 3600, s / 60 % 60, s % 60)
}

/// A duration in seconds.
pub(crate) fn seconds(ms: u64) -> String {
    if ms < 1000 {
        format!("0.{ms:03} s")
    } else {
        format!("{}.{} s", ms / 1000, ms % 1000 / 100)
    }
}

/// `rank 2` or `ranks 0,1,3`, with runs of neighbours as `0-3`.
pub(crate) fn ranks(ranks: &[u32]) -> String {
    let mut sorted = ranks.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let mut parts: Vec<String> = Vec::new();
    let mut at = 0;
    while at < sorted.len() {
        let mut end = at;
        while end + 1 < sorted.len() && sorted[end + 1] == sorted[end] + 1 {
            end += 1;
        }
        if end > at + 1 {
            parts.push(format!("{}-{}", sorted[at], sorted[end]));
        } else {
            parts.extend(sorted[at..=end].iter().map(ToString::to_string));
        }
        at = end + 1;
    }
    let list = parts.join(",");
    if sorted.len() == 1 {
        format!("rank {list}")
    } else {
        format!("ranks {list}")
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::types::Rank;

    pub(crate) fn example() -> Verdict {
        Verdict {
            class: Class::NotJoined,
            blamed: vec![2],
            who: "rank 2 (n1, pid 4711; tp0 ep1)".to_owned(),
            what: "all_reduce #184 on tp0 f32[1048576] sum".to_owned(),
            place: "running user code".to_owned(),
            since_unix_ms: 43_384_512,
            elapsed_ms: 5010,
            confidence: Confidence::Certain,
            evidence: vec!["state R".to_owned(), "answers".to_owned()],
            others: "3 waiting: ranks 0,1,3".to_owned(),
            next: "look at rank 2's stack".to_owned(),
            cascades: Vec::new(),
            ends: Vec::new(),
            about: None,
            kind: ErrorKind::Stalled {
                waiting_for: vec![Rank(2)],
                waited_ms: 5010,
            },
        }
    }

    #[test]
    fn the_line_has_every_field_of_the_grammar_in_order() {
        let line = example().line();
        assert_eq!(
            line,
            "VERDICT NOT_JOINED who=rank 2 (n1, pid 4711; tp0 ep1) what=all_reduce #184 on tp0 \
             f32[1048576] sum where=running user code since=12:03:04.512Z (+5.0 s) \
             confidence=certain evidence=state R; answers others=3 waiting: ranks 0,1,3 \
             next=look at rank 2's stack"
        );
    }

    #[test]
    fn a_line_is_read_back_as_it_was_and_other_lines_are_none() {
        let mut verdict = example();
        // Since before midnight.
        for now_unix_ms in [43_400_000, 86_400_000 + 10] {
            let read = Verdict::parse(&verdict.line(), now_unix_ms).unwrap();
            assert_eq!(read.line(), verdict.line());
            assert_eq!(read.since_unix_ms + read.elapsed_ms / 5000, 43_384_513);
            assert_eq!(read.blamed, [2]);
        }
        verdict.elapsed_ms = 113;
        let read = Verdict::parse(&verdict.line(), 43_400_000).unwrap();
        assert_eq!(read.elapsed_ms, 113);
        for (who, blamed) in [
            (
                "rank 2 (n1, pid 7 = 1 in container ab), rank 9 (n1, pid 8)",
                vec![2, 9],
            ),
            ("ranks 0,1,3-5", vec![0, 1, 3, 4, 5]),
            ("no rank in particular", vec![]),
        ] {
            verdict.who = who.to_owned();
            let read = Verdict::parse(&verdict.line(), 43_400_000).unwrap();
            assert_eq!(read.blamed, blamed, "{who}");
        }
        for other in ["", "VERDICT", "VERDICT HOPE who=a what=b", "rank 2 is gone"] {
            assert_eq!(Verdict::parse(other, 43_400_000), None, "{other}");
        }
    }

    #[test]
    fn the_line_stays_one_line_and_the_json_has_the_same_fields() {
        let mut verdict = example();
        verdict.place = "a\nb\u{1b}[2J".to_owned();
        assert!(!verdict.line().contains(char::is_control));
        let json = serde_json::to_value(&verdict).unwrap();
        for field in [
            "class",
            "who",
            "what",
            "where",
            "since_unix_ms",
            "confidence",
            "evidence",
            "others",
            "next",
        ] {
            assert!(json.get(field).is_some(), "{field}");
        }
        assert_eq!(json["class"], "NOT_JOINED");
        assert_eq!(serde_json::from_value::<Verdict>(json).unwrap(), verdict);
    }

    #[test]
    fn ranks_are_listed_with_runs() {
        assert_eq!(ranks(&[2]), "rank 2");
        assert_eq!(ranks(&[3, 0, 1]), "ranks 0,1,3");
        assert_eq!(ranks(&[0, 1, 2, 5, 7, 8]), "ranks 0-2,5,7,8");
    }
}
