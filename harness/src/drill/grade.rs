//! Compares what was said with what was done: the five assertions. Pure.
//!
//! 1. *detected*: every survivor returned a verdict of the expected class (or, in a control, nobody said
//!    anything and everything came out right);
//! 2. *in time*: the last of them within the bound;
//! 3. *culprits*: exactly those who are to blame;
//! 4. *same*: every field of the grammar is there, and the line is the same from all survivors, on their
//!    standard error, and from the launcher;
//! 5. *clean*: nothing is left, and the exit code is that of the class.

mod detected;
mod same;
#[cfg(test)]
mod tests;

use std::time::Duration;

use super::model::Assertion;
use super::plan::{Blamed, Expect, Outcome};
use super::told::{Failed, Said, Told, What};
use crate::exit::Exit;
use crate::world::Ended;

/// What was seen of a run.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// What ranks told.
    pub told: Vec<Told>,
    /// Lines of verdicts, with the rank that printed each; `None` is the launcher.
    pub verdicts: Vec<(Option<u32>, String)>,
    /// Other lines of the launcher.
    pub launcher_lines: Vec<String>,
    /// Whether there was a launcher of ours.
    pub has_launcher: bool,
    /// How the processes that the drill started ended.
    pub ends: Vec<End>,
    /// When the fault was done.
    pub injected_ns: Option<u64>,
    /// When no process of the run was left, where that is what counts.
    pub gone_ns: Option<u64>,
    /// Whom the fault struck, where that was not known before.
    pub struck: Option<Vec<u32>>,
    /// What went wrong with the fault itself.
    pub complaints: Vec<String>,
    /// What was left behind.
    pub leaks: Vec<String>,
    /// Number of ranks.
    pub world_size: u32,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Its rank; `None` is the launcher.
    pub rank: Option<u32>,
    /// How, and when; `None` where it had to be killed by the drill.
    pub how: Option<(Ended, u64)>,
}

/// The result.
#[derive(Clone, Debug, Default)]
pub struct Graded {
    /// The five assertions.
    pub assertions: Vec<Assertion>,
    /// Why those that do not hold do not.
    pub reasons: Vec<String>,
    /// From the fault to the last survivor's return.
    pub detected: Option<Duration>,
    /// What the survivors said.
    pub verdict: Option<Said>,
    /// Whether all survivors returned.
    pub survivors_returned: bool,
}

/// Grades a run.
#[must_use]
pub fn grade(expect: &Expect, seen: &Seen) -> Graded {
    let mut grader = Grader {
        expect,
        seen,
        graded: Graded::default(),
    };
    grader.assert("detected", Grader::detected);
    grader.assert("in time", Grader::in_time);
    grader.assert("culprits", Grader::culprits);
    grader.assert("same", Grader::same);
    grader.assert("clean", Grader::clean);
    grader.graded
}

struct Grader<'a> {
    expect: &'a Expect,
    seen: &'a Seen,
    graded: Graded,
}

impl Grader<'_> {
    fn assert(&mut self, name: &'static str, check: fn(&mut Self) -> Vec<String>) {
        let reasons = check(self);
        self.graded.assertions.push(Assertion {
            name: name.into(),
            holds: reasons.is_empty(),
        });
        self.graded.reasons.extend(reasons);
    }

    /// What a rank told first of this kind, and when.
    fn first<T>(&self, rank: u32, of: impl Fn(&What) -> Option<T>) -> Option<(u64, T)> {
        self.seen
            .told
            .iter()
            .filter(|told| told.rank == rank)
            .find_map(|told| Some((told.at_ns, of(&told.what)?)))
    }

    /// What a survivor returned, and when.
    fn returned(&self, rank: u32) -> Option<(u64, Failed)> {
        self.first(rank, |what| match what {
            What::Failed(failed) => Some((**failed).clone()),
            What::Refused { error, verdict, .. } => Some(Failed {
                error: error.clone(),
                is_usable: false,
                verdict: verdict.clone(),
            }),
            What::Arrived
            | What::Closed { .. }
            | What::Done
            | What::Joined
            | What::Marked
            | What::Noted { .. }
            | What::Usable
            | What::Working
            | What::Wrong { .. } => None,
        })
    }

    fn has_done(&self, rank: u32) -> bool {
        let done = |what: &What| (*what == What::Done).then_some(());
        self.first(rank, done).is_some()
    }

    fn in_time(&mut self) -> Vec<String> {
        let end = match &self.expect.outcome {
            Outcome::Report { .. } | Outcome::Well => return Vec::new(),
            Outcome::Gone => self.seen.gone_ns,
            Outcome::Interrupted => self
                .seen
                .ends
                .iter()
                .filter_map(|end| Some(end.how?.1))
                .max(),
            Outcome::Verdict { .. } => self
                .expect
                .survivors
                .iter()
                .filter_map(|rank| Some(self.returned(*rank)?.0))
                .max(),
        };
        let (Some(injected), Some(end)) = (self.seen.injected_ns, end) else {
            return vec!["the fault, or its detection, has no time".to_owned()];
        };
        let took = Duration::from_nanos(end.saturating_sub(injected));
        self.graded.detected = Some(took);
        if took <= self.expect.bound {
            return Vec::new();
        }
        vec![format!(
            "took {} ms, allowed are {}",
            took.as_millis(),
            self.expect.bound.as_millis()
        )]
    }

    fn culprits(&mut self) -> Vec<String> {
        let (class, blamed) = match &self.expect.outcome {
            Outcome::Verdict { class, blamed } => (*class, blamed),
            Outcome::Report { blamed, .. } => {
                let said = self.graded.verdict.as_ref();
                let named = said.map_or_else(Vec::new, |said| said.blamed.clone());
                let is_met = blamed.is_met_by(&named, self.seen.world_size);
                let whom = super::plan::ranks_in_words(&named);
                let wrong = (!is_met).then(|| format!("it blames {whom}, to blame is {blamed}"));
                return wrong.into_iter().collect();
            }
            Outcome::Gone | Outcome::Interrupted | Outcome::Well => return Vec::new(),
        };
        // Where the fault struck by chance, it is known by now whom. Both ends of a broken link are named;
        // of bytes that came wrong it cannot be told at which end.
        let struck = self.seen.struck.clone().map(|ends| {
            if class == Exit::Link {
                Blamed::Exactly(ends)
            } else {
                Blamed::Among(ends)
            }
        });
        let blamed = struck.as_ref().unwrap_or(blamed);
        let wrong = self.expect.survivors.iter().filter_map(|rank| {
            let said = self.returned(*rank)?.1.verdict?;
            (!blamed.is_met_by(&said.blamed, self.seen.world_size)).then(|| {
                let whom = super::plan::ranks_in_words(&said.blamed);
                format!("rank {rank} blames {whom}, to blame is {blamed}")
            })
        });
        wrong.collect()
    }

    fn clean(&mut self) -> Vec<String> {
        let mut reasons: Vec<String> = self
            .seen
            .leaks
            .iter()
            .map(|leak| format!("left behind: {leak}"))
            .collect();
        for told in &self.seen.told {
            if let What::Closed {
                descriptors_before,
                descriptors_after,
            } = told.what
                && descriptors_after > descriptors_before
            {
                reasons.push(format!(
                    "rank {} has {} descriptors more than before it joined",
                    told.rank,
                    descriptors_after - descriptors_before
                ));
            }
        }
        let Some(exit) = self.expect.exit else {
            return reasons;
        };
        for (rank, exit) in &self.expect.turned_away {
            let ended = Ended::Exited(exit.code().into());
            let is_so =
                |end: &End| end.rank == Some(*rank) && end.how.is_some_and(|(how, _)| how == ended);
            if !self.seen.ends.iter().any(is_so) {
                reasons.push(format!(
                    "rank {rank} does not end with code {}",
                    exit.code()
                ));
            }
        }
        for End { rank, how } in &self.seen.ends {
            if rank.is_some_and(|rank| !self.expect.survivors.contains(&rank)) {
                continue;
            }
            let name =
                rank.map_or_else(|| "the launcher".to_owned(), |rank| format!("rank {rank}"));
            match how {
                None => reasons.push(format!("{name} did not end")),
                Some((Ended::Exited(code), _)) if *code == i32::from(exit.code()) => {}
                Some((how, _)) => {
                    reasons.push(format!("{name} {how}, its code should be {}", exit.code()));
                }
            }
        }
        reasons
    }
}
