//! The fourth assertion: the line of the verdict is whole, and the same wherever it is said.

use super::super::plan::Outcome;
use super::Grader;

/// The fields of the grammar, in their order.
pub(super) const FIELDS: [&str; 8] = [
    " who=",
    " what=",
    " where=",
    " since=",
    " confidence=",
    " evidence=",
    " others=",
    " next=",
];

impl Grader<'_> {
    pub(super) fn same(&mut self) -> Vec<String> {
        let Outcome::Verdict { .. } = self.expect.outcome else {
            return Vec::new();
        };
        let Some(said) = self.graded.verdict.clone() else {
            return vec!["there is no line to compare".to_owned()];
        };
        let mut reasons = incomplete(&said.line);
        for rank in &self.expect.survivors {
            let returned = self.returned(*rank).and_then(|(_, failed)| failed.verdict);
            let Some(returned) = returned else {
                continue;
            };
            if self.expect.shared && returned.line != said.line {
                reasons.push(format!("rank {rank} returns another line"));
            }
            if !self.expect.shared {
                reasons.extend(incomplete(&returned.line));
            }
            reasons.extend(self.printed_by(Some(*rank), &returned.line));
        }
        if self.seen.has_launcher {
            reasons.extend(self.printed_by(None, &said.line));
        }
        reasons
    }

    /// Whether this rank, or the launcher, printed this line and no other verdict.
    fn printed_by(&self, who: Option<u32>, line: &str) -> Option<String> {
        let name = who.map_or_else(|| "the launcher".to_owned(), |rank| format!("rank {rank}"));
        let printed = self.seen.verdicts.iter().filter(|(by, _)| *by == who);
        let printed: Vec<&String> = printed.map(|(_, line)| line).collect();
        // Two processes may claim to be one rank; each prints one.
        let processes = self.seen.ends.iter().filter(|end| end.rank == who);
        let at_most = processes.count().max(1);
        if let Some(own) = printed.iter().find(|own| **own != line) {
            return Some(format!("{name} prints another line: {own}"));
        }
        match printed.len() {
            0 => Some(format!("{name} prints no verdict")),
            count if count > at_most => Some(format!("{name} prints {count} verdicts")),
            _ => None,
        }
    }
}

/// Fields of the grammar that a line lacks.
pub(super) fn incomplete(line: &str) -> Vec<String> {
    let mut at = 0;
    let mut reasons = Vec::new();
    for (number, field) in FIELDS.iter().enumerate() {
        let Some(found) = line[at..].find(field) else {
            reasons.push(format!("the line lacks{field}"));
            continue;
        };
        at += found + field.len();
        let end = FIELDS
            .get(number + 1)
            .and_then(|next| line[at..].find(next))
            .map_or(line.len(), |next| at + next);
        if line[at..end].trim().is_empty() {
            reasons.push(format!("the line says nothing in{field}"));
        }
    }
    reasons
}
