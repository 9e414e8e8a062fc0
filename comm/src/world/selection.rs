//! The selection table in force: from a file, from the environment, or the built-in one alone.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::algo::{Table, TableError};
use crate::config::{self, AlgoSource, ConfigError, Environment};

/// Largest selection table that is read from a file, in bytes: a wrong file is noticed before it
/// fills memory.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Rules that select algorithms, and where they came from.
#[derive(Clone, Debug)]
pub struct Selection {
    /// In words: `built in`, `MUSTER_ALGO`, or the name of a file.
    pub source: String,
    /// The rules as they were written; `None` where only the built-in ones are in force.
    pub text: Option<String>,
    /// The same, in front of the built-in ones.
    pub table: Option<Table>,
}

impl Selection {
    /// Nothing but the built-in rules.
    #[must_use]
    pub fn built_in() -> Self {
        Self {
            source: "built in".to_owned(),
            text: None,
            table: None,
        }
    }

    /// What the environment says: the rules of `MUSTER_ALGO`, where it is set.
    ///
    /// # Errors
    /// [`SelectionError`], naming the line that is wrong.
    pub fn of_environment(environment: &Environment) -> Result<Self, SelectionError> {
        match environment.read(&config::ALGO)? {
            None => Ok(Self::built_in()),
            Some(AlgoSource::Text(text)) if !text.contains("->") && Path::new(&text).is_file() => {
                Err(SelectionError::NoAt { path: text.into() })
            }
            Some(AlgoSource::Text(text)) => Self::of_text("MUSTER_ALGO".to_owned(), text),
            Some(AlgoSource::File(path)) => Self::of_file(&path),
        }
    }

    /// The rules of a file, such as `muster tune` writes.
    ///
    /// # Errors
    /// [`SelectionError`], naming the line that is wrong.
    pub fn of_file(path: &Path) -> Result<Self, SelectionError> {
        let unreadable = |source| SelectionError::Unreadable {
            path: path.to_owned(),
            source,
        };
        let mut text = String::new();
        File::open(path)
            .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text))
            .map_err(unreadable)?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(SelectionError::Long {
                path: path.to_owned(),
            });
        }
        Self::of_text(path.display().to_string(), text)
    }

    fn of_text(source: String, text: String) -> Result<Self, SelectionError> {
        match Table::with_overrides(&text) {
            Ok(table) => Ok(Self {
                source,
                text: Some(text),
                table: Some(table),
            }),
            Err(error) => Err(SelectionError::Rule {
                origin: source,
                error,
            }),
        }
    }

    /// Number of rules in front of the built-in ones.
    #[must_use]
    pub fn own_rules(&self) -> usize {
        self.table.as_ref().map_or(0, Table::own_rules)
    }
}

/// Why a selection table cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SelectionError {
    /// The variable is malformed.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A file that no selection table is as long as.
    #[error("{} is longer than {FILE_BYTES_MAX} bytes, which no selection table is", path.display())]
    Long {
        /// The file.
        path: PathBuf,
    },
    /// The variable holds the name of a file as if it were a rule.
    #[error("MUSTER_ALGO is the name of a file, want rules or @FILE: MUSTER_ALGO=@{}", path.display())]
    NoAt {
        /// The file.
        path: PathBuf,
    },
    /// A line makes no sense.
    #[error("{origin}: {error}")]
    Rule {
        /// `MUSTER_ALGO` or the name of a file.
        origin: String,
        /// The line, and what is wrong with it.
        #[source]
        error: TableError,
    },
    /// The file cannot be read.
    #[error("the selection table {} cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Selection, SelectionError> {
        Selection::of_environment(&Environment::from_pairs([("MUSTER_ALGO", text)]))
    }

    #[test]
    fn without_the_variable_only_the_built_in_rules_are_in_force() {
        let nothing = Environment::from_pairs([("MUSTER_RANK", "0")]);
        let selection = Selection::of_environment(&nothing).expect("nothing is wrong");
        assert_eq!(
            (selection.source.as_str(), selection.own_rules()),
            ("built in", 0)
        );
        assert!(selection.table.is_none());
        let selection = of("all_reduce -> ring\nbarrier -> dissemination").expect("legal");
        assert_eq!(
            (selection.source.as_str(), selection.own_rules()),
            ("MUSTER_ALGO", 2)
        );
    }

    #[test]
    fn what_is_wrong_is_said_with_source_and_line() {
        let error = of("\nall_reduce -> rign")
            .expect_err("no such algorithm")
            .to_string();
        assert!(
            error.starts_with("MUSTER_ALGO: selection table line 2"),
            "{error}"
        );
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rules");
        std::fs::write(&path, "all_reduce byte<3 -> ring\n").expect("written");
        let error = of(&format!("@{}", path.display()))
            .expect_err("not legal")
            .to_string();
        assert!(error.contains("rules: selection table line 1"), "{error}");
        let error = of(&path.display().to_string())
            .expect_err("no @")
            .to_string();
        assert!(
            error.ends_with(&format!("MUSTER_ALGO=@{}", path.display())),
            "{error}"
        );
        let error = of("@/nowhere/rules").expect_err("no such file").to_string();
        assert!(error.contains("/nowhere/rules cannot be read"), "{error}");
        std::fs::write(&path, "#".repeat(2 << 20)).expect("written");
        let error = of(&format!("@{}", path.display()))
            .expect_err("too long")
            .to_string();
        assert!(error.contains("longer than"), "{error}");
    }
}
