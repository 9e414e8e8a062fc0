//! Why a run failed, as every result says it.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::exit::Exit;
use crate::out::escaped;

/// Why a run failed: one cause, the first one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "Verdict"))]
pub struct Cause {
    /// Class of the cause; see the table of exit codes.
    pub class: Exit,
    /// The number the program exits with.
    pub exit_code: u8,
    /// Name of the matrix, if one ran.
    pub matrix: Option<String>,
    /// World ranks that are to blame, ascending; empty where nobody is.
    pub blamed: Vec<u32>,
    /// One line for people.
    pub text: String,
    /// What the verdict rests on, a line each.
    pub evidence: Vec<String>,
    /// What to do next.
    pub next: Option<String>,
    /// The same in the grammar of `docs/verdicts.md`, where the ranks' arbiter found it: who, what,
    /// where, since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<Box<muster_comm::error::verdict::Verdict>>,
}

impl Cause {
    /// A cause of a class, without a culprit so far.
    #[must_use]
    pub fn new(class: Exit, text: impl Into<String>) -> Self {
        Self {
            class,
            exit_code: class.code(),
            matrix: None,
            blamed: Vec::new(),
            text: text.into(),
            evidence: Vec::new(),
            next: None,
            found: None,
        }
    }
}

impl Cause {
    /// Evidence and next step for a terminal, a line each.
    #[must_use]
    pub fn evidence_and_next(&self) -> String {
        let mut text = String::new();
        for line in &self.evidence {
            let _ = writeln!(text, "  evidence: {}", escaped(line));
        }
        if let Some(next) = &self.next {
            let _ = writeln!(text, "  next: {}", escaped(next));
        }
        text
    }
}

/// Ranks as text: runs of neighbours become `0-7`.
#[must_use]
pub fn listed(ranks: &[u32]) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut at = 0;
    while let Some(first) = ranks.get(at).copied() {
        let mut last = first;
        let mut end = at + 1;
        while let Some(next) = ranks.get(end).copied()
            && last.checked_add(1) == Some(next)
        {
            last = next;
            end += 1;
        }
        // Two neighbours read better apart.
        if end - at >= 3 {
            parts.push(format!("{first}-{last}"));
        } else {
            parts.extend(ranks.iter().take(end).skip(at).map(u32::to_string));
        }
        at = end;
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_ranks_are_folded() {
        assert_eq!(listed(&[]), "");
        assert_eq!(listed(&[3]), "3");
        assert_eq!(listed(&[0, 1]), "0, 1");
        assert_eq!(listed(&[0, 1, 2, 3, 8, 9, 10, 12]), "0-3, 8-10, 12");
        assert_eq!(listed(&[u32::MAX]), u32::MAX.to_string());
    }
}
