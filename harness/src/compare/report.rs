//! What `muster compare` writes: a comparison, and what was compared.

use serde::{Deserialize, Serialize};

use crate::TOOL;
use crate::compare::judge::Comparison;
use crate::exit::Exit;
use crate::report::machine::Machine;
use crate::report::origin::Origin;

/// Version of the fields.
pub const SCHEMA_VERSION: u32 = 1;

/// The outcome of `compare`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CompareReport {
    /// Version of these fields: [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Program and version that wrote this.
    pub tool: String,
    /// `compare`.
    pub command: String,
    /// The command whose results were compared.
    pub compared: String,
    /// Whether nothing became worse.
    pub passed: bool,
    /// The files of the base.
    pub base: Vec<String>,
    /// The files that were judged.
    pub new: Vec<String>,
    /// The machine of the results, where they say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<Machine>,
    /// When and how they were compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// Rows, remarks, class of the outcome.
    #[serde(flatten)]
    pub comparison: Comparison,
}

impl CompareReport {
    /// The report of a comparison of results of `command`, without files, machine and origin.
    #[must_use]
    pub fn new(command: &str, comparison: Comparison) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            tool: TOOL.to_owned(),
            command: "compare".to_owned(),
            compared: command.to_owned(),
            passed: comparison.class == Exit::Ok,
            base: Vec::new(),
            new: Vec::new(),
            machine: None,
            origin: None,
            comparison,
        }
    }
}
