//! Why a text describes no faults, in words that say what is allowed.

use std::fmt;

use super::{FAULTS_MAX, KINDS};

/// Why a text describes no faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultError {
    /// There is no such kind.
    Kind {
        /// What was written.
        got: String,
        /// What may have been meant.
        suggestion: Option<&'static str>,
    },
    /// The kind has no such key.
    Key {
        /// The kind.
        kind: &'static str,
        /// What was written.
        got: String,
        /// The keys that it has.
        allowed: &'static [&'static str],
    },
    /// A key was given twice.
    Twice {
        /// The kind.
        kind: &'static str,
        /// The key.
        key: String,
    },
    /// A key that the kind needs was not given.
    Missing {
        /// The kind.
        kind: &'static str,
        /// The key.
        key: &'static str,
    },
    /// A value is none that the key can have.
    Value {
        /// The kind.
        kind: &'static str,
        /// The key.
        key: &'static str,
        /// What was written.
        got: String,
        /// What may be written.
        allowed: String,
    },
    /// A part is no `key=value`.
    Form {
        /// The part.
        got: String,
    },
    /// More than [`FAULTS_MAX`] faults.
    TooMany {
        /// How many.
        got: usize,
    },
}

impl fmt::Display for FaultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind { got, suggestion } => {
                write!(
                    f,
                    "no fault is called {got:?}; allowed: {}",
                    KINDS.join(", ")
                )?;
                match suggestion {
                    Some(suggestion) => write!(f, "; did you mean {suggestion}?"),
                    None => Ok(()),
                }
            }
            Self::Key { kind, got, allowed } => {
                write!(f, "{kind} has no {got:?}; allowed: {}", allowed.join(", "))
            }
            Self::Twice { kind, key } => write!(f, "{kind} has {key} twice"),
            Self::Missing { kind, key } => write!(f, "{kind} needs {key}"),
            Self::Value {
                kind,
                key,
                got,
                allowed,
            } => write!(f, "{key} of {kind} is {got:?}; allowed: {allowed}"),
            Self::Form { got } => write!(
                f,
                "{got:?} is no fault; the form is kind:key=value,key=value, several faults separated by ;"
            ),
            Self::TooMany { got } => write!(f, "{got} faults; at most {FAULTS_MAX} are allowed"),
        }
    }
}

impl std::error::Error for FaultError {}
