//! What the files of one side hold together.

use crate::compare::states::Measurement;
use crate::fail::Failure;
use crate::report::cause::Cause;
use crate::report::document::Document;
use crate::report::machine::Machine;

/// The files of one side, all of one command.
#[derive(Debug, Default)]
pub struct Side {
    /// Rows and looks at the machine.
    pub measured: Measurement,
    /// What times depend on beside the program, of each file with times.
    conditions: Vec<Vec<(&'static str, String)>>,
    /// Of each run that has one.
    pub verdicts: Vec<Cause>,
    /// Of the first run that says it.
    pub machine: Option<Machine>,
}

impl Side {
    /// Of files that all are of one command.
    ///
    /// # Errors
    /// A failure of class USAGE where there is nothing to compare.
    pub fn of(files: &[Box<dyn Document>]) -> Result<Self, Failure> {
        let mut side = Self::default();
        for file in files {
            let about = file.about();
            let Some(mut found) = file.comparable() else {
                return Err(Failure::usage(format!(
                    "a result of {} has nothing to compare: `compare` reads those of bench, moe and verify",
                    about.command
                )));
            };
            let timed = found.timed.as_mut();
            side.conditions
                .extend(timed.map(|timed| std::mem::take(&mut timed.conditions)));
            side.measured.add(found);
            side.verdicts.extend(about.verdict.cloned());
            side.machine = side.machine.or_else(|| about.machine.cloned());
        }
        Ok(side)
    }

    /// What differs between files of both sides and makes times incomparable; the first such file decides.
    #[must_use]
    pub fn differences(&self, new: &Self) -> Vec<String> {
        let Some(first) = self.conditions.first() else {
            return Vec::new();
        };
        let all = self.conditions.iter().chain(&new.conditions);
        let differs = all.map(|other| {
            let both = first.iter().zip(other).filter(|(base, new)| base != new);
            both.map(|((what, base), (_, new))| format!("{what} {base} and {new}"))
                .collect::<Vec<String>>()
        });
        differs
            .into_iter()
            .find(|all| !all.is_empty())
            .unwrap_or_default()
    }
}
