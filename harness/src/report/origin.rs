//! When, where and how a result came about: what somebody needs who gets the report and not the
//! machine.
//!
//! ORIGIN-1: of the environment only variables of a known list are kept, and none whose name speaks
//! of a secret.

use std::collections::BTreeMap;

use jiff::{Timestamp, Unit};
use muster_comm::config::{Environment, rows};
use serde::{Deserialize, Serialize};

use crate::doctor::vendor_variables;

/// Longest value of a variable, or word of a command line, that is kept, in characters.
const KEPT_CHARS_MAX: usize = 300;
/// Most words of a command line that are kept.
const WORDS_MAX: usize = 200;

/// Variables of others that change what is measured.
const OTHERS: [&str; 9] = [
    "GOMP_CPU_AFFINITY",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "OMP_NUM_THREADS",
    "OMP_PROC_BIND",
    "SLURM_JOB_ID",
    "SLURM_NTASKS",
    "LOCAL_WORLD_SIZE",
    "WORLD_SIZE",
];

/// Variables of ours that say nothing about the result, or more about the user than about it.
const LEFT_OUT: [&str; 4] = ["HOME", "XDG_RUNTIME_DIR", "NO_COLOR", "MUSTER_LAUNCHER_PID"];

/// Parts of names whose values are nobody's business.
const SECRET: [&str; 6] = ["SECRET", "TOKEN", "PASSWORD", "PASSWD", "CREDENTIAL", "KEY"];

/// When, where and how a result came about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Origin {
    /// When the run began: UTC, as in RFC 3339, whole seconds.
    pub started_at: String,
    /// Name of the host that reports.
    pub host: String,
    /// The command line, a word each.
    pub command_line: Vec<String>,
    /// Variables that were set and change what a run does, from a list of known ones; no secrets.
    pub environment: BTreeMap<String, String>,
}

impl Origin {
    /// This process, now.
    #[must_use]
    pub fn here(environment: &Environment) -> Self {
        let now = Timestamp::now();
        let names = rustix::system::uname();
        Self {
            started_at: now.round(Unit::Second).unwrap_or(now).to_string(),
            host: names.nodename().to_string_lossy().into_owned(),
            command_line: std::env::args_os()
                .take(WORDS_MAX)
                .map(|word| cut(&word.to_string_lossy()))
                .collect(),
            environment: known(environment),
        }
    }

    /// The command line as a shell takes it.
    #[must_use]
    pub fn command(&self) -> String {
        let words: Vec<String> = self.command_line.iter().map(|word| shell(word)).collect();
        words.join(" ")
    }
}

/// The variables of the list that are set (ORIGIN-1).
fn known(environment: &Environment) -> BTreeMap<String, String> {
    let rows = rows();
    let ours = rows.iter().map(|row| row.name);
    let names = ours
        .chain(vendor_variables().map(|row| row.name))
        .chain(OTHERS);
    names
        .filter(|name| !LEFT_OUT.contains(name) && !SECRET.iter().any(|part| name.contains(part)))
        .filter_map(|name| {
            let value = environment.text(name).ok().flatten()?;
            Some((name.to_owned(), cut(value)))
        })
        .collect()
}

fn cut(text: &str) -> String {
    if text.chars().count() <= KEPT_CHARS_MAX {
        return text.to_owned();
    }
    text.chars().take(KEPT_CHARS_MAX).chain(['…']).collect()
}

/// A word in quotes, where a shell would not take it as it is.
fn shell(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@+%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_variables_are_kept_and_no_secrets() {
        let environment = Environment::from_pairs([
            ("MUSTER_SEED", "7"),
            ("HCCL_CONNECT_TIMEOUT", "120"),
            ("MUSTER_SECRET_FILE", "where"),
            ("AWS_SECRET_ACCESS_KEY", "hidden"),
            ("HOME", "somebody"),
            ("PATH", "somewhere"),
        ]);
        let kept = known(&environment);
        let names: Vec<&str> = kept.keys().map(String::as_str).collect();
        assert_eq!(names, ["HCCL_CONNECT_TIMEOUT", "MUSTER_SEED"]);
    }

    #[test]
    fn a_command_line_can_be_pasted_into_a_shell() {
        let origin = Origin {
            command_line: ["muster", "bench", "it's", "", "a b", "-e", "64K"]
                .map(str::to_owned)
                .to_vec(),
            ..Origin::default()
        };
        assert_eq!(origin.command(), r"muster bench 'it'\''s' '' 'a b' -e 64K");
    }

    #[test]
    fn a_time_stamp_is_in_utc_and_ends_with_seconds() {
        let origin = Origin::here(&Environment::default());
        assert_eq!(origin.started_at.len(), "2026-01-02T03:04:05Z".len());
        assert!(origin.started_at.ends_with('Z'), "{}", origin.started_at);
    }
}
