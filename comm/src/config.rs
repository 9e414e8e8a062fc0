//! The one reader of the process environment.
//!
//! [`Environment::capture`] takes an immutable snapshot at start; everything else works on the
//! snapshot, so that a test passes pairs and never touches the process. Each variable that muster
//! itself reads is one [`Variable`] row with its default, its meaning and its parser;
//! `docs/environment.md` is tested against [`rows`].
//!
//! - `CONFIG-1`: no value of a variable ever appears in `Debug` output: any of them may be secret.
//! - `CONFIG-2`: a variable that is set to nothing counts as not set.
//! - `CONFIG-3`: a malformed value is an error that names variable, value and what is allowed.
//!
//! This module must not know what a launcher is; see [`crate::launch`].

mod parse;
mod rows;

use std::collections::BTreeMap;
use std::fmt;

#[cfg(test)]
pub(crate) use parse::interfaces as parse_interfaces;
pub use parse::{
    AlgoSource, CallSitesChoice, InterfaceNames, PeerReadsChoice, TCP_STREAMS_MAX, TransportChoice,
};
pub(crate) use parse::{decimal, is_host};
pub use rows::{
    ALGO, ASCEND_HOME_PATH, ASCEND_TOOLKIT_HOME, ATTEMPT, CALL_SITES, CHECKSUM, DEADLINE_S,
    DEVICE_MAP, DUMP_DIR, EMU_BOUNDS, EMU_CANN, EMU_CONNECT_TIMEOUT_MS, EMU_DEVICES,
    EMU_EXEC_TIMEOUT_MS, EMU_FAULT, EMU_MEMORY, EMU_POISON, EMU_SOC, HCCL_EXEC_TIMEOUT,
    HCCL_SO_PATH, HOME, IFNAME, ISA, JOB_ID, LAUNCHER_PID, LD_LIBRARY_PATH, LOCAL_RANK,
    LOCAL_WORLD_SIZE, NNODES, NO_COLOR, NODE_RANK, PEER_READS, PIN, RANK, RECORD_DIR, REGION_BYTES,
    RENDEZVOUS, Row, SECRET_FD, SECRET_FILE, SEED, TAP, TAP_DIR, TAP_EVENTS, TAP_JOB, TAP_STACKS,
    TCP_STREAMS, TORCH, TRANSPORT, Variable, WORLD_SIZE, XDG_RUNTIME_DIR, rows,
};

use hccl_sys::search::Places;

use crate::types::closest;

/// Longest part of a foreign value that a message repeats, in characters.
const SHOWN_CHARS_MAX: usize = 80;
/// Most ancestors that a snapshot remembers: launchers nest three or four deep.
const ANCESTORS_MAX: usize = 16;

/// One process above this one: which launcher's child we are where the environment does not say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ancestor {
    /// Process id.
    pub pid: u32,
    /// The kernel's name of the process, cut to 15 bytes.
    pub name: String,
    /// Start time in clock ticks since boot: with the pid it names one process for ever.
    pub started_ticks: u64,
}

/// An immutable snapshot of the process environment.
#[derive(Clone, Default)]
pub struct Environment {
    variables: BTreeMap<String, String>,
    not_text: Vec<String>,
    ancestors: Vec<Ancestor>,
    pid: Option<u32>,
}

impl Environment {
    /// The environment of this process now, and the processes above it.
    ///
    /// A variable whose value is not UTF-8 is remembered by name and reported when it is looked up.
    #[must_use]
    pub fn capture() -> Self {
        let mut variables = BTreeMap::new();
        let mut not_text = Vec::new();
        #[expect(clippy::disallowed_methods, reason = "this is comm::config")]
        let pairs = std::env::vars_os();
        for (name, value) in pairs {
            let Ok(name) = name.into_string() else {
                continue;
            };
            match value.into_string() {
                Ok(value) => {
                    variables.insert(name, value);
                }
                Err(_) => not_text.push(name),
            }
        }
        Self {
            variables,
            not_text,
            ancestors: ancestors(),
            pid: Some(std::process::id()),
        }
    }

    /// A snapshot made of `pairs`: for tests, and for a world that is described otherwise.
    #[must_use]
    pub fn from_pairs<N, V>(pairs: impl IntoIterator<Item = (N, V)>) -> Self
    where
        N: Into<String>,
        V: Into<String>,
    {
        Self {
            variables: pairs
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            not_text: Vec::new(),
            ancestors: Vec::new(),
            pid: None,
        }
    }

    /// The same snapshot with one of our variables set to this, whatever it was before: an option of a command wins over it.
    #[must_use]
    pub fn with<T>(mut self, row: &Row<T>, value: impl Into<String>) -> Self {
        let name = row.variable.name;
        self.not_text.retain(|known| known != name);
        self.variables.insert(name.to_owned(), value.into());
        self
    }

    /// The same snapshot under other parents, nearest first.
    #[must_use]
    pub fn with_ancestors(mut self, ancestors: Vec<Ancestor>) -> Self {
        self.ancestors = ancestors;
        self
    }

    /// The same snapshot taken by another process.
    #[must_use]
    pub fn with_pid(mut self, pid: u32) -> Self {
        self.pid = Some(pid);
        self
    }

    /// The process that the snapshot was taken in; `None` for one that was made of pairs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// The processes above this one, nearest first; empty where the system does not tell.
    #[must_use]
    pub fn ancestors(&self) -> &[Ancestor] {
        &self.ancestors
    }

    /// The text of a variable; `None` where it is not set or set to nothing.
    ///
    /// # Errors
    /// If the value is not UTF-8.
    pub fn text(&self, name: &str) -> Result<Option<&str>, ConfigError> {
        if self.not_text.iter().any(|known| known == name) {
            return Err(ConfigError::NotText {
                name: name.to_owned(),
            });
        }
        Ok(self
            .variables
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty()))
    }

    /// The value of one of our variables; `None` where it is not set or set to nothing.
    ///
    /// # Errors
    /// If the value is malformed.
    pub fn read<T>(&self, row: &Row<T>) -> Result<Option<T>, ConfigError> {
        let Some(value) = self.text(row.variable.name)? else {
            return Ok(None);
        };
        match (row.parse)(value) {
            Some(parsed) => Ok(Some(parsed)),
            None => Err(ConfigError::malformed(
                row.variable.name,
                value,
                row.variable.allowed,
            )),
        }
    }

    /// Where the variables say the vendor's libraries lie.
    ///
    /// # Errors
    /// If one of the variables is not UTF-8.
    pub fn vendor_places(&self) -> Result<Places, ConfigError> {
        Ok(Places {
            hccl_so_path: self.read(&HCCL_SO_PATH)?,
            ascend_home_path: self.read(&ASCEND_HOME_PATH)?,
            ascend_toolkit_home: self.read(&ASCEND_TOOLKIT_HOME)?,
            ld_library_path: self.read(&LD_LIBRARY_PATH)?,
            ..Places::default()
        })
    }

    /// The names of all variables that are set to something, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.variables
            .iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, _)| name.as_str())
    }

    /// What is odd but no error: `MUSTER_*` variables that muster does not know.
    #[must_use]
    pub fn warnings(&self) -> Vec<Warning> {
        let known = || rows().into_iter().map(|variable| variable.name);
        self.names()
            .filter(|name| name.starts_with("MUSTER_"))
            .filter(|name| known().all(|row| row != *name))
            .map(|name| Warning::UnknownVariable {
                name: shown(name),
                suggestion: closest(name, known().filter(|row| row.starts_with("MUSTER_"))),
            })
            .collect()
    }

    /// Parses every `MUSTER_*` variable, so that a slip is found at start and not in mid-run.
    ///
    /// # Errors
    /// All malformed variables, in the order of the table.
    pub fn check(&self) -> Result<(), Vec<ConfigError>> {
        let errors: Vec<ConfigError> = rows()
            .into_iter()
            .filter(|variable| variable.name.starts_with("MUSTER_"))
            .filter_map(|variable| match self.text(variable.name) {
                Err(error) => Some(error),
                Ok(Some(value)) if !(variable.accepts)(value) => Some(ConfigError::malformed(
                    variable.name,
                    value,
                    variable.allowed,
                )),
                Ok(_) => None,
            })
            .collect();
        if errors.is_empty() {
            Ok(())
        } else {
            Err(errors)
        }
    }
}

/// Names of our own variables and the number of the rest; no value (`CONFIG-1`).
impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ours: Vec<&str> = self
            .names()
            .filter(|name| name.starts_with("MUSTER_"))
            .collect();
        f.debug_struct("Environment")
            .field("variables", &self.variables.len())
            .field("muster", &ours)
            .field("ancestors", &self.ancestors)
            .finish_non_exhaustive()
    }
}

/// Why a variable cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The value does not parse.
    #[error("{name} is {value:?}; allowed: {allowed}")]
    Malformed {
        /// The variable.
        name: String,
        /// What it was set to, cut to a length that fits a line.
        value: String,
        /// What would have been understood.
        allowed: &'static str,
    },
    /// The value is not UTF-8.
    #[error("{name} is not UTF-8 text")]
    NotText {
        /// The variable.
        name: String,
    },
}

impl ConfigError {
    /// The error for a value that is not among what is `allowed`.
    #[must_use]
    pub fn malformed(name: &str, value: &str, allowed: &'static str) -> Self {
        Self::Malformed {
            name: name.to_owned(),
            value: shown(value),
            allowed,
        }
    }
}

/// What a user should know although nothing fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// A `MUSTER_*` variable that muster does not read.
    UnknownVariable {
        /// The variable as it was set.
        name: String,
        /// The variable that was probably meant.
        suggestion: Option<&'static str>,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownVariable { name, suggestion } => {
                write!(f, "{name} is no variable of muster and changes nothing")?;
                match suggestion {
                    Some(meant) => write!(f, " (did you mean {meant}?)"),
                    None => Ok(()),
                }
            }
        }
    }
}

/// `text`, cut to what a line of a message can hold.
pub(crate) fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The processes above this one, nearest first. Where `/proc` is missing or hidden: none.
fn ancestors() -> Vec<Ancestor> {
    let mut found = Vec::new();
    let mut next = parent_of("self").map(|(parent, _)| parent);
    while let Some(pid) = next.filter(|pid| *pid > 0 && found.len() < ANCESTORS_MAX) {
        let Some((parent, ancestor)) = parent_of(&pid.to_string()) else {
            break;
        };
        found.push(ancestor);
        next = Some(parent);
    }
    found
}

/// The parent's pid of a process under `/proc`, and the process itself.
fn parent_of(process: &str) -> Option<(u32, Ancestor)> {
    parse_stat(&std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

/// Reads `pid (name) state ppid … starttime …`; a name may hold spaces and parentheses.
fn parse_stat(stat: &str) -> Option<(u32, Ancestor)> {
    /// Position of the start time behind the name, counted from the state (proc(5), field 22).
    const STARTED: usize = 19;
    let (pid, rest) = stat.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let ancestor = Ancestor {
        pid: pid.parse().ok()?,
        name: name.to_owned(),
        started_ticks: fields.get(STARTED)?.parse().ok()?,
    };
    Some((fields.get(1)?.parse().ok()?, ancestor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_shows_no_value_of_any_variable() {
        let environment = Environment::from_pairs([
            ("MUSTER_SECRET_FILE", "/home/u/hush-hush"),
            ("AWS_SECRET_ACCESS_KEY", "hush-hush"),
            ("MUSTER_JOB_ID", "hush-hush"),
        ]);
        let debug = format!("{environment:?}");
        assert!(!debug.contains("hush"), "{debug}");
        assert!(debug.contains("MUSTER_JOB_ID"), "{debug}");
    }

    #[test]
    fn a_variable_set_to_nothing_counts_as_not_set() {
        let environment = Environment::from_pairs([("MUSTER_RANK", "")]);
        assert_eq!(environment.read(&RANK), Ok(None));
        assert_eq!(environment.check(), Ok(()));
    }

    #[test]
    fn an_unknown_variable_of_ours_is_reported_with_the_one_that_was_meant() {
        let environment = Environment::from_pairs([
            ("MUSTER_RNAK", "1"),
            ("MUSTER_WORLD_SIZE", "2"),
            ("MUSTERING", "x"),
        ]);
        let warnings = environment.warnings();
        assert_eq!(
            warnings,
            [Warning::UnknownVariable {
                name: "MUSTER_RNAK".to_owned(),
                suggestion: Some("MUSTER_RANK"),
            }]
        );
        assert!(
            warnings[0]
                .to_string()
                .ends_with("(did you mean MUSTER_RANK?)")
        );
    }

    #[test]
    fn a_malformed_value_is_named_with_what_is_allowed_and_cut_to_a_line() {
        let long = "9".repeat(5000);
        let environment =
            Environment::from_pairs([("MUSTER_RANK", long.as_str()), ("MUSTER_TRANSPORT", "rdma")]);
        let errors = environment.check().expect_err("two values are malformed");
        assert_eq!(errors.len(), 2);
        assert!(errors[0].to_string().len() < 300, "{}", errors[0]);
        assert_eq!(
            errors[1].to_string(),
            "MUSTER_TRANSPORT is \"rdma\"; allowed: auto, shm or tcp"
        );
    }

    #[test]
    fn the_search_for_the_vendor_is_told_what_the_variables_say() {
        let places = Environment::from_pairs([
            ("HCCL_SO_PATH", "/a/libhccl.so"),
            ("ASCEND_HOME_PATH", "/b"),
            ("ASCEND_TOOLKIT_HOME", ""),
            ("LD_LIBRARY_PATH", "/c:/d"),
        ])
        .vendor_places()
        .expect("text");
        assert_eq!(
            places.hccl_so_path.as_deref(),
            Some("/a/libhccl.so".as_ref())
        );
        assert_eq!(places.ascend_home_path.as_deref(), Some("/b".as_ref()));
        assert_eq!(places.ascend_toolkit_home, None);
        assert_eq!(places.ld_library_path.as_deref(), Some("/c:/d"));
        assert!(!places.installations.is_empty());
    }

    #[test]
    fn a_stat_line_is_read_whatever_the_process_is_called() {
        let tail = "S 41 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1000";
        for name in ["bash", "a b", "x) S 1", ""] {
            let (parent, ancestor) =
                parse_stat(&format!("42 ({name}) {tail}")).expect("a stat line");
            assert_eq!(parent, 41);
            assert_eq!(
                ancestor,
                Ancestor {
                    pid: 42,
                    name: name.to_owned(),
                    started_ticks: 987_654
                }
            );
        }
        assert_eq!(parse_stat("42 (bash) S"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn this_process_has_ancestors_and_they_lead_upwards() {
        let captured = Environment::capture();
        let parent = std::os::unix::process::parent_id();
        assert_eq!(captured.ancestors().first().map(|a| a.pid), Some(parent));
    }
}
