//! The lines of a recording, as `docs/replay.md` describes them.

use serde::{Deserialize, Serialize};

/// Version of the format; a reader takes no other.
pub const FORMAT_VERSION: u32 = 1;

/// A line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case", deny_unknown_fields)]
pub enum Line {
    /// The first one.
    Recording(Header),
    /// A communicator is made; later lines name it by its number.
    Group {
        /// Its number in this file: 0, 1, …
        group: u64,
        /// The same for all members, in hexadecimal digits.
        key: String,
        /// Its name.
        name: String,
        /// World ranks.
        members: Vec<u32>,
    },
    /// A communicator is destroyed.
    Destroyed {
        /// Its number.
        group: u64,
    },
    /// A call begins.
    Call(CallLine),
    /// Calls are missing here.
    Lost {
        /// How many.
        calls: u64,
    },
    /// The last line of a rank that has left its world.
    End {
        /// Lines of calls.
        calls: u64,
        /// Calls that are missing.
        lost: u64,
        /// Checksum of all lines before this one.
        crc32: u32,
    },
}

/// Who recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// [`FORMAT_VERSION`].
    pub version: u32,
    /// World rank.
    pub rank: u32,
    /// Ranks of the world.
    pub world_size: u32,
    /// The job, in hexadecimal digits.
    pub job: String,
    /// When, in milliseconds since 1970.
    pub started_ms: u64,
}

/// A call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallLine {
    /// The communicator.
    pub group: u64,
    /// The number of the call on it.
    pub seq: u64,
    /// The thread that made it, from 1.
    pub thread: u32,
    /// A worker makes it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_async: bool,
    /// Microseconds since this thread's call before it had ended.
    pub pause_us: u64,
    /// The collective.
    pub call: String,
    /// What the program called, where that is made of several collectives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub called: Option<String>,
    /// Element type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<String>,
    /// Reduction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub op: Option<String>,
    /// Index of the root in the communicator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<u64>,
    /// Elements, of the vector or of each block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Elements of each rank's block.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counts: Vec<u64>,
    /// Elements to each member.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub send: Vec<u64>,
    /// Elements from each member.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recv: Vec<u64>,
    /// Messages between two members.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<MessageLine>,
}

/// A message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessageLine {
    /// Whether this rank sends it.
    pub sends: bool,
    /// Index of the other member.
    pub peer: u64,
    /// Element type.
    pub dtype: String,
    /// Elements.
    pub count: u64,
}
