//! The option that names a selection table, the same for all commands whose ranks select algorithms.

use std::path::PathBuf;

use clap::Args;
use muster_comm::config::Environment;
use muster_comm::world::{Selection, SelectionError};

use crate::fail::Failure;

/// Where the rules come from that select algorithms.
#[derive(Clone, Debug, Default, Args)]
pub struct Rules {
    /// Rules that select algorithms, such as `muster tune` writes [default: MUSTER_ALGO, else the built-in ones]
    #[arg(long = "table", value_name = "FILE")]
    file: Option<PathBuf>,
}

impl Rules {
    /// The rules in force: those of the option, else of the environment. Read by the launcher, so that a
    /// wrong line is found before a rank is started, and all ranks have the same.
    ///
    /// # Errors
    /// A failure of class USAGE, naming file and line.
    pub fn of(&self, environment: &Environment) -> Result<Selection, Failure> {
        match &self.file {
            Some(path) => Selection::of_file(path),
            None => Selection::of_environment(environment),
        }
        .map_err(|error| unusable(&error))
    }

    /// The file of the option, as an absolute path.
    ///
    /// # Errors
    /// As [`Self::of`], where it is not there or not legal.
    pub fn file(&self) -> Result<Option<PathBuf>, Failure> {
        let Some(path) = &self.file else {
            return Ok(None);
        };
        Selection::of_file(path).map_err(|error| unusable(&error))?;
        let absolute = path.canonicalize();
        absolute.map(Some).map_err(|error| {
            Failure::usage(format!("the selection table {}: {error}", path.display()))
        })
    }
}

/// The failure that a wrong table is.
#[must_use]
pub fn unusable(error: &SelectionError) -> Failure {
    Failure::usage(error.to_string())
        .with_help("`muster plan table` shows what lines may look like; --file FILE checks a table")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_goes_before_the_variable() {
        let environment = Environment::from_pairs([("MUSTER_ALGO", "all_reduce -> ring")]);
        let by_variable = Rules::default().of(&environment).expect("legal");
        assert_eq!(
            (by_variable.source.as_str(), by_variable.own_rules()),
            ("MUSTER_ALGO", 1)
        );
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("mine");
        std::fs::write(&path, "barrier -> dissemination\nbarrier -> direct\n").expect("written");
        let rules = Rules {
            file: Some(path.clone()),
        };
        let by_option = rules.of(&environment).expect("legal");
        assert_eq!(by_option.source, path.display().to_string());
        assert_eq!(by_option.own_rules(), 2);
        std::fs::write(&path, "\n\nbarrier -> rign\n").expect("written");
        let failure = rules.of(&environment).expect_err("no such algorithm");
        assert!(
            failure.message.contains("mine: selection table line 3"),
            "{}",
            failure.message
        );
    }
}
