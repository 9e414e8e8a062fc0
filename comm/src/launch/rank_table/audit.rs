//! A whole look at a rank table of any version: everything that is wrong with it, with its place.
//!
//! [`super::look`] reads what a rank needs of the versions that it can join by. Here nothing is
//! joined: a table of any version is gone through to its end, for `muster ranktable check` and
//! `muster doctor`. Pure: text in, findings out.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use serde_json::{Map, Value};

use super::{FINDINGS_MAX, Finding};
use crate::config::{decimal, shown};
use crate::types::{MAX_WORLD_SIZE, closest};

/// The form of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// The form before versions: groups of instances.
    Legacy,
    /// Servers with devices.
    V1_0,
    /// Servers with devices in super pods.
    V1_2,
    /// A list of ranks with their networks.
    V2_0,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Legacy => "legacy",
            Self::V1_0 => "1.0",
            Self::V1_2 => "1.2",
            Self::V2_0 => "2.0",
        })
    }
}

/// What was found in a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// Its form, where that can be told.
    pub version: Option<Version>,
    /// Its status says that it is complete.
    pub completed: bool,
    /// Number of ranks that it lists.
    pub ranks: u32,
    /// Servers, in order.
    pub servers: Vec<AuditServer>,
    /// All that is wrong, up to [`FINDINGS_MAX`].
    pub findings: Vec<Finding>,
    /// There is more than is told.
    pub cut: bool,
}

/// A server as a table lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditServer {
    /// Its address, else its id.
    pub host: String,
    /// Rank and physical device of each rank there, where ranks are written down.
    pub seats: Vec<(u32, u32)>,
}

/// A look under way: the findings so far, and what must be unique in the whole table.
#[derive(Debug, Default)]
pub(super) struct Look {
    pub(super) audit: Audit,
    ranks: BTreeMap<u32, String>,
    addresses: BTreeMap<IpAddr, String>,
}

impl Look {
    pub(super) fn find(&mut self, pointer: &str, what: String) {
        if self.audit.findings.len() >= FINDINGS_MAX {
            self.audit.cut = true;
            return;
        }
        self.audit.findings.push(Finding {
            pointer: pointer.to_owned(),
            what,
        });
    }

    pub(super) fn version(&mut self, table: &Map<String, Value>) -> Option<Version> {
        if table.contains_key("group_list") {
            return Some(Version::Legacy);
        }
        let text = table.get("version").and_then(Value::as_str);
        match text {
            Some("1.0") => return Some(Version::V1_0),
            Some("1.2") => return Some(Version::V1_2),
            Some("2.0") => return Some(Version::V2_0),
            _ => {}
        }
        let got = table.get("version").map_or_else(
            || "is missing".to_owned(),
            |value| format!("is {}", brief(value)),
        );
        self.find(
            "/version",
            format!("{got}; allowed: \"1.0\", \"1.2\" or \"2.0\""),
        );
        // The lists tell what was meant, so that the rest can be checked all the same.
        if table.contains_key("rank_list") {
            return Some(Version::V2_0);
        }
        let pods = table.contains_key("super_pod_list");
        let servers = table.contains_key("server_list");
        servers.then_some(if pods { Version::V1_2 } else { Version::V1_0 })
    }

    /// Whether the rest of the table is to be looked at.
    pub(super) fn status(&mut self, table: &Map<String, Value>, version: Option<Version>) -> bool {
        let status = table.get("status");
        match status.and_then(Value::as_str) {
            Some("completed") => self.audit.completed = true,
            Some("initializing") => return false,
            // Version 2.0 may do without.
            None if status.is_none() && version == Some(Version::V2_0) => {
                self.audit.completed = true;
            }
            _ => {
                let got = status.map_or_else(
                    || "is missing".to_owned(),
                    |value| format!("is {}", brief(value)),
                );
                let allowed = "allowed: \"completed\", or \"initializing\" while it is made";
                self.find("/status", format!("{got}; {allowed}"));
            }
        }
        true
    }

    /// A key that is not there, with the one that was probably meant.
    pub(super) fn missing(&mut self, object: &Map<String, Value>, at: &str, key: &str) {
        let others = object
            .keys()
            .map(String::as_str)
            .filter(|name| *name != key);
        let meant = closest(key, others).map(|name| format!("; there is {name:?}"));
        self.find(
            &format!("{at}/{key}"),
            format!("is missing{}", meant.unwrap_or_default()),
        );
    }

    /// A list that has at least one item.
    pub(super) fn list<'a>(
        &mut self,
        object: &'a Map<String, Value>,
        at: &str,
        key: &str,
    ) -> &'a [Value] {
        match object.get(key) {
            None => self.missing(object, at, key),
            Some(Value::Array(items)) if !items.is_empty() => return items,
            Some(Value::Array(_)) => self.find(&format!("{at}/{key}"), "is empty".to_owned()),
            Some(other) => {
                let what = format!("is {}; a list belongs here", brief(other));
                self.find(&format!("{at}/{key}"), what);
            }
        }
        &[]
    }

    /// An item of a list that must be an object.
    pub(super) fn object<'a>(
        &mut self,
        value: &'a Value,
        at: &str,
    ) -> Option<&'a Map<String, Value>> {
        let object = value.as_object();
        if object.is_none() {
            self.find(at, format!("is {}; an object belongs here", brief(value)));
        }
        object
    }

    /// Text that is not empty.
    pub(super) fn text<'a>(
        &mut self,
        object: &'a Map<String, Value>,
        at: &str,
        key: &str,
    ) -> Option<&'a str> {
        match object.get(key) {
            None => {
                self.missing(object, at, key);
                None
            }
            Some(Value::String(text)) if !text.is_empty() => Some(text),
            Some(other) => {
                let what = format!("is {}; a text belongs here", brief(other));
                self.find(&format!("{at}/{key}"), what);
                None
            }
        }
    }

    /// A whole number up to `max`: as text, or as a JSON number where `plain`.
    pub(super) fn number(
        &mut self,
        object: &Map<String, Value>,
        at: &str,
        key: &str,
        max: u32,
        plain: bool,
    ) -> Option<u32> {
        let Some(value) = object.get(key) else {
            self.missing(object, at, key);
            return None;
        };
        let (number, form) = if plain {
            (value.as_u64(), "a number without quotes")
        } else {
            (value.as_str().and_then(decimal), "a number in quotes")
        };
        let number = number.and_then(|number| u32::try_from(number).ok());
        let number = number.filter(|number| *number <= max);
        if number.is_none() {
            let what = format!("is {}; allowed: {form} from 0 to {max}", brief(value));
            self.find(&format!("{at}/{key}"), what);
        }
        number
    }

    /// A count that must be that of a list.
    pub(super) fn count(
        &mut self,
        object: &Map<String, Value>,
        at: &str,
        key: &str,
        listed: usize,
        plain: bool,
    ) {
        if listed == 0 {
            // The list itself has been told of.
            return;
        }
        let count = self.number(object, at, key, MAX_WORLD_SIZE, plain);
        if let Some(count) = count.filter(|count| *count as usize != listed) {
            let what = format!("is {count} where {listed} are listed");
            self.find(&format!("{at}/{key}"), what);
        }
    }

    /// An address; where it is not `needed` it may be missing or empty. No two devices share one.
    pub(super) fn address(
        &mut self,
        object: &Map<String, Value>,
        at: &str,
        key: &str,
        needed: bool,
    ) {
        let pointer = format!("{at}/{key}");
        let value = object.get(key);
        let empty = value.is_none_or(|value| value.as_str() == Some(""));
        if empty {
            if needed {
                let what = "is missing; with several servers every device needs its address";
                self.find(&pointer, what.to_owned());
            }
            return;
        }
        let parsed = value
            .and_then(Value::as_str)
            .and_then(|text| text.parse().ok());
        let Some(address): Option<IpAddr> = parsed else {
            let got = value.map(brief).unwrap_or_default();
            self.find(
                &pointer,
                format!("is {got}; an IPv4 or IPv6 address belongs here"),
            );
            return;
        };
        self.unique_address(address, &pointer, at);
    }

    fn unique_address(&mut self, address: IpAddr, pointer: &str, at: &str) {
        if let Some(first) = self.addresses.get(&address).cloned() {
            self.find(pointer, format!("is {address}, the address of {first} too"));
            return;
        }
        let other = self
            .addresses
            .iter()
            .next()
            .filter(|(other, _)| other.is_ipv4() != address.is_ipv4());
        if let Some((other, first)) = other {
            let what = format!("is {address} where {first} has {other}: one family for all");
            self.find(pointer, what);
        }
        self.addresses.insert(address, at.to_owned());
    }

    /// A port, where there is one.
    pub(super) fn port(&mut self, object: &Map<String, Value>, at: &str, key: &str) -> Option<u32> {
        object.get(key)?;
        let port = self.number(object, at, key, 65_535, false)?;
        if port == 0 {
            self.find(
                &format!("{at}/{key}"),
                "is 0; allowed: 1 to 65535".to_owned(),
            );
        }
        Some(port)
    }

    /// A rank, which no other may have.
    pub(super) fn rank(&mut self, rank: u32, pointer: &str, at: &str) {
        if let Some(first) = self.ranks.get(&rank).cloned() {
            self.find(pointer, format!("is {rank}, the rank of {first} too"));
            return;
        }
        self.ranks.insert(rank, at.to_owned());
    }

    /// Ranks must be 0 to W-1.
    pub(super) fn gaps(&mut self, pointer: &str) {
        self.audit.ranks = u32::try_from(self.ranks.len()).unwrap_or(u32::MAX);
        let gap = (0_u32..)
            .zip(self.ranks.keys())
            .find(|(expected, rank)| expected != *rank);
        if let Some((expected, rank)) = gap {
            let what =
                format!("has no rank {expected}, though it has {rank}: ranks are 0, 1, 2 ...");
            self.find(pointer, what);
        }
    }
}

/// A value in few characters.
pub(super) fn brief(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::Bool(_) | Value::Null | Value::Number(_) | Value::String(_) => {
            shown(&value.to_string())
        }
    }
}
