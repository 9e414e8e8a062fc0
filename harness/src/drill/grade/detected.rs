//! The first assertion: that it was detected, or in a control that all is well.
//!
//! What survivors returned counts, and where no rank is there to return anything, what the launcher says.

use super::super::plan::Outcome;
use super::super::told::{Said, Told, What};
use super::Grader;

impl Grader<'_> {
    pub(super) fn detected(&mut self) -> Vec<String> {
        let mut reasons: Vec<String> = self.seen.told.iter().filter_map(wrong).collect();
        reasons.extend(self.seen.complaints.iter().cloned());
        match &self.expect.outcome {
            Outcome::Report { class, .. } => reasons.extend(self.reported(class.class())),
            Outcome::Verdict { class, .. } => reasons.extend(self.survivors_say(class.class())),
            Outcome::Well => reasons.extend(self.all_is_well()),
            Outcome::Gone => {
                self.graded.survivors_returned = self.seen.gone_ns.is_some();
                if self.seen.gone_ns.is_none() {
                    reasons.push("processes are still there".to_owned());
                }
            }
            Outcome::Interrupted => {
                self.graded.survivors_returned = true;
                let says = |line: &String| line.contains("INTERRUPTED");
                if !self.seen.launcher_lines.iter().any(says) {
                    reasons.push("the launcher does not say that it was interrupted".to_owned());
                }
            }
        }
        for word in &self.expect.words {
            let has = |line: &String| line.contains(word.as_str());
            let said = self.graded.verdict.as_ref();
            if !said.is_some_and(|said| has(&said.line))
                && !self.seen.launcher_lines.iter().any(has)
            {
                reasons.push(format!("nobody says {word:?}"));
            }
        }
        reasons
    }

    fn survivors_say(&mut self, class: &str) -> Vec<String> {
        let mut reasons = Vec::new();
        self.graded.survivors_returned = true;
        for rank in &self.expect.survivors {
            let Some((_, failed)) = self.returned(*rank) else {
                self.graded.survivors_returned = false;
                let instead = if self.has_done(*rank) {
                    "ended well"
                } else {
                    "did not return"
                };
                reasons.push(format!("rank {rank} {instead}"));
                continue;
            };
            let Some(said) = failed.verdict else {
                reasons.push(format!("rank {rank} has no verdict: {}", failed.error));
                continue;
            };
            if said.class != class {
                reasons.push(format!("rank {rank} says {} for {class}", said.class));
            }
            self.graded.verdict.get_or_insert(said);
            if self.expect.usable && self.first(*rank, usable).is_none() {
                reasons.push(format!("the group is of no use to rank {rank} afterwards"));
            }
        }
        if self.graded.verdict.is_none() {
            // What the launcher says is worth showing where no rank says anything.
            let line = self.seen.verdicts.first().map(|(_, line)| line.clone());
            reasons.extend(line);
        }
        reasons
    }

    /// The verdict of the document that the launcher prints.
    fn reported(&mut self, class: &str) -> Vec<String> {
        let text = self.seen.launcher_lines.join("\n");
        let document: Option<serde_json::Value> = text.find('{').and_then(|start| {
            let end = text.rfind('}')?;
            serde_json::from_str(&text[start..=end]).ok()
        });
        let verdict = document.as_ref().and_then(|one| one.get("verdict"));
        let Some(verdict) = verdict.filter(|verdict| !verdict.is_null()) else {
            return vec!["the document has no verdict".to_owned()];
        };
        self.graded.survivors_returned = true;
        let text = |field: &str| {
            let value = verdict.get(field).and_then(serde_json::Value::as_str);
            value.unwrap_or_default().to_owned()
        };
        let blamed = verdict
            .get("blamed")
            .cloned()
            .and_then(|ranks| serde_json::from_value(ranks).ok());
        let said = Said {
            class: text("class"),
            blamed: blamed.unwrap_or_default(),
            line: text("text"),
        };
        let wrong = (said.class != class).then(|| format!("it says {} for {class}", said.class));
        self.graded.verdict = Some(said);
        wrong.into_iter().collect()
    }

    fn all_is_well(&mut self) -> Vec<String> {
        let mut reasons = Vec::new();
        self.graded.survivors_returned = true;
        for rank in &self.expect.survivors {
            if let Some((_, failed)) = self.returned(*rank) {
                reasons.push(format!("rank {rank} failed: {}", failed.error));
                self.graded.verdict = self.graded.verdict.take().or(failed.verdict);
            } else if !self.has_done(*rank) {
                self.graded.survivors_returned = false;
                reasons.push(format!("rank {rank} did not come to its end"));
            }
        }
        // Who is turned away may say so.
        let is_ours =
            |by: &Option<u32>| by.is_none_or(|rank| self.expect.survivors.contains(&rank));
        let mut verdicts = self.seen.verdicts.iter().filter(|(by, _)| is_ours(by));
        let verdict = verdicts.next();
        reasons.extend(verdict.map(|(_, line)| format!("a false alarm: {line}")));
        reasons
    }
}

fn usable(what: &What) -> Option<()> {
    (*what == What::Usable).then_some(())
}

fn wrong(told: &Told) -> Option<String> {
    let What::Wrong { call } = &told.what else {
        return None;
    };
    Some(format!("rank {} got wrong data from {call}", told.rank))
}
