//! What a check found: how bad it is, what is so, where that was seen, and what to do.

use serde::{Deserialize, Serialize};

/// How bad a finding is, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// A job will fail, hang, or not do what its settings say.
    Fail,
    /// A job may run, and this will hurt it sooner or later.
    Warn,
    /// As it should be.
    Ok,
    /// Nothing to judge here, or it could not be judged; the finding says which.
    Skip,
}

impl Status {
    /// The word of reports.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Ok => "ok",
            Self::Skip => "skip",
            Self::Warn => "warn",
        }
    }
}

/// One thing that a check has to say: three fragments without a final stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Problem {
    /// How bad it is.
    pub status: Status,
    /// What is so, naming the culprit.
    pub what: String,
    /// The value and the place where it was seen.
    pub evidence: String,
    /// A command or a setting; empty where nothing is to be done.
    pub remedy: String,
}

impl Problem {
    /// Something that will make a job fail.
    pub fn fail(
        what: impl Into<String>,
        evidence: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self::new(Status::Fail, what, evidence, remedy)
    }

    /// Something that may hurt.
    pub fn warn(
        what: impl Into<String>,
        evidence: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self::new(Status::Warn, what, evidence, remedy)
    }

    /// Something of this status.
    pub fn new(
        status: Status,
        what: impl Into<String>,
        evidence: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            status,
            what: what.into(),
            evidence: evidence.into(),
            remedy: remedy.into(),
        }
    }
}

/// All that one check has to say: at least one problem, or one line that all is well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    said: Vec<Problem>,
}

impl Finding {
    /// All is well.
    pub fn ok(what: impl Into<String>, evidence: impl Into<String>) -> Self {
        Problem::new(Status::Ok, what, evidence, "").into()
    }

    /// There is nothing to judge, or no way to; `why` says which.
    pub fn skip(why: impl Into<String>) -> Self {
        Problem::new(Status::Skip, why, "", "").into()
    }

    /// The problems, worst first, or `otherwise` where there are none.
    pub fn of(mut problems: Vec<Problem>, otherwise: impl FnOnce() -> Self) -> Self {
        if problems.is_empty() {
            return otherwise();
        }
        problems.sort_by_key(|problem| problem.status);
        Self { said: problems }
    }

    /// Everything that is said, worst first; never empty.
    #[must_use]
    pub fn said(&self) -> &[Problem] {
        &self.said
    }

    /// The worst of what is said.
    #[must_use]
    pub fn status(&self) -> Status {
        self.said
            .iter()
            .map(|problem| problem.status)
            .min()
            .unwrap_or(Status::Skip)
    }

    /// What is so, in one line.
    #[must_use]
    pub fn what(&self) -> String {
        self.join(|problem| &problem.what)
    }

    /// Where it was seen, in one line.
    #[must_use]
    pub fn evidence(&self) -> String {
        self.join(|problem| &problem.evidence)
    }

    /// What to do, in one line.
    #[must_use]
    pub fn remedy(&self) -> String {
        self.join(|problem| &problem.remedy)
    }

    fn join(&self, part: impl Fn(&Problem) -> &String) -> String {
        let mut parts: Vec<&str> = Vec::new();
        for problem in &self.said {
            let text = part(problem).as_str();
            if !text.is_empty() && !parts.contains(&text) {
                parts.push(text);
            }
        }
        parts.join("; ")
    }
}

impl From<Problem> for Finding {
    fn from(problem: Problem) -> Self {
        Self {
            said: vec![problem],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_comes_first_and_gives_the_status() {
        let finding = Finding::of(
            vec![Problem::warn("b", "1", "x"), Problem::fail("a", "2", "x")],
            || Finding::ok("fine", ""),
        );
        assert_eq!(finding.status(), Status::Fail);
        assert_eq!(finding.what(), "a; b");
        assert_eq!(finding.evidence(), "2; 1");
        assert_eq!(finding.remedy(), "x");
    }
}
