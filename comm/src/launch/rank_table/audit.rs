//! A whole look at a rank table of any version: everything that is wrong with it, with its place.
//!
//! [`super::look`] reads what a rank needs of the versions that it can join by. Here nothing is
//! joined: a table of any version is gone through to its end, for `muster ranktable check` and
//! `muster doctor`. Pure: text in, findings out.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use serde_json::{Map, Value};

use super::{FINDINGS_MAX, Finding, legacy};
use crate::config::{decimal, shown};
use crate::types::{MAX_WORLD_SIZE, closest};

/// Longest id of a server.
const SERVER_ID_CHARS_MAX: usize = 64;

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

/// Goes through the text of a table. Of one that is still being made nothing but that is told.
#[must_use]
pub fn audit(text: &str) -> Audit {
    let mut look = Look::default();
    let table: Value = match serde_json::from_str(text) {
        Ok(table) => table,
        Err(error) => {
            look.find("", format!("is no JSON: {error}"));
            return look.audit;
        }
    };
    let Some(table) = table.as_object() else {
        look.find("", "is no JSON object".to_owned());
        return look.audit;
    };
    let version = look.version(table);
    look.audit.version = version;
    if !look.status(table, version) {
        return look.audit;
    }
    match version {
        Some(Version::Legacy) => legacy::groups(&mut look, table),
        Some(Version::V1_0) => servers(&mut look, table, false),
        Some(Version::V1_2) => servers(&mut look, table, true),
        Some(Version::V2_0) => rank_list(&mut look, table),
        None => {}
    }
    look.audit
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

    fn version(&mut self, table: &Map<String, Value>) -> Option<Version> {
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
    fn status(&mut self, table: &Map<String, Value>, version: Option<Version>) -> bool {
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
    fn missing(&mut self, object: &Map<String, Value>, at: &str, key: &str) {
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
    fn port(&mut self, object: &Map<String, Value>, at: &str, key: &str) -> Option<u32> {
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
    fn rank(&mut self, rank: u32, pointer: &str, at: &str) {
        if let Some(first) = self.ranks.get(&rank).cloned() {
            self.find(pointer, format!("is {rank}, the rank of {first} too"));
            return;
        }
        self.ranks.insert(rank, at.to_owned());
    }

    /// Ranks must be 0 to W-1.
    fn gaps(&mut self, pointer: &str) {
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
        other => shown(&other.to_string()),
    }
}

/// Versions 1.0 and 1.2.
fn servers(look: &mut Look, table: &Map<String, Value>, pods: bool) {
    let list = look.list(table, "", "server_list");
    look.count(table, "", "server_count", list.len(), false);
    let mut ids: BTreeMap<String, String> = BTreeMap::new();
    for (index, server) in list.iter().enumerate() {
        let at = format!("/server_list/{index}");
        let Some(server) = look.object(server, &at) else {
            continue;
        };
        let id = look.text(server, &at, "server_id").unwrap_or_default();
        if id.chars().count() > SERVER_ID_CHARS_MAX {
            let what = format!("is longer than {SERVER_ID_CHARS_MAX} characters");
            look.find(&format!("{at}/server_id"), what);
        }
        if !id.is_empty() {
            if let Some(first) = ids.get(id) {
                let what = format!("is {id:?}, the id of {first} too");
                look.find(&format!("{at}/server_id"), what);
            }
            ids.entry(id.to_owned()).or_insert_with(|| at.clone());
        }
        if let Some(host) = server
            .get("host_ip")
            .filter(|host| host.as_str() != Some(""))
        {
            let legal = host
                .as_str()
                .is_some_and(|text| text.parse::<IpAddr>().is_ok());
            if !legal {
                let what = format!("is {}; an IPv4 or IPv6 address belongs here", brief(host));
                look.find(&format!("{at}/host_ip"), what);
            }
        }
        devices(look, server, &at, list.len() > 1, pods);
    }
    look.gaps("/server_list");
    if pods {
        super_pods(look, table, &ids);
    }
}

fn devices(look: &mut Look, server: &Map<String, Value>, at: &str, several: bool, pods: bool) {
    let mut ids: BTreeMap<u32, String> = BTreeMap::new();
    let mut ports: BTreeMap<u32, String> = BTreeMap::new();
    let mut seats = Vec::new();
    for (index, device) in look.list(server, at, "device").iter().enumerate() {
        let at = format!("{at}/device/{index}");
        let Some(device) = look.object(device, &at) else {
            continue;
        };
        let id = look.number(device, &at, "device_id", MAX_WORLD_SIZE, false);
        if let Some(id) = id {
            if let Some(first) = ids.get(&id) {
                let what = format!("is {id}, the device of {first} too");
                look.find(&format!("{at}/device_id"), what);
            }
            ids.entry(id).or_insert_with(|| at.clone());
        }
        look.address(device, &at, "device_ip", several);
        look.port(device, &at, "device_port");
        if let Some(port) = look.port(device, &at, "host_port") {
            if let Some(first) = ports.get(&port) {
                let what = format!("is {port}, the port of {first} on this server too");
                look.find(&format!("{at}/host_port"), what);
            }
            ports.entry(port).or_insert_with(|| at.clone());
        }
        if pods {
            look.number(device, &at, "super_device_id", u32::MAX, false);
            look.address(device, &at, "backup_device_ip", false);
            look.port(device, &at, "backup_device_port");
        }
        if let Some(rank) = look.number(device, &at, "rank_id", MAX_WORLD_SIZE, false) {
            look.rank(rank, &format!("{at}/rank_id"), &at);
            seats.push((rank, id.unwrap_or(0)));
        }
    }
    let mut sorted: Vec<u32> = seats.iter().map(|(rank, _)| *rank).collect();
    sorted.sort_unstable();
    sorted.dedup();
    // HCCL wants the ranks of a server to follow each other.
    if let Some(&[before, behind]) = sorted.windows(2).find(|pair| pair[1] > pair[0] + 1) {
        let what = format!("has ranks {before} and {behind} and none between");
        look.find(&format!("{at}/device"), what);
    }
    let host = ["host_ip", "server_id"]
        .iter()
        .find_map(|key| server.get(*key)?.as_str().filter(|text| !text.is_empty()));
    look.audit.servers.push(AuditServer {
        host: host.unwrap_or_default().to_owned(),
        seats,
    });
}

fn super_pods(look: &mut Look, table: &Map<String, Value>, ids: &BTreeMap<String, String>) {
    let mut pods: BTreeMap<String, String> = BTreeMap::new();
    let mut placed: BTreeMap<String, String> = BTreeMap::new();
    for (index, pod) in look.list(table, "", "super_pod_list").iter().enumerate() {
        let at = format!("/super_pod_list/{index}");
        let Some(pod) = look.object(pod, &at) else {
            continue;
        };
        if let Some(id) = look.text(pod, &at, "super_pod_id") {
            if let Some(first) = pods.get(id) {
                let what = format!("is {id:?}, the id of {first} too");
                look.find(&format!("{at}/super_pod_id"), what);
            }
            pods.entry(id.to_owned()).or_insert_with(|| at.clone());
        }
        for (index, server) in look.list(pod, &at, "server_list").iter().enumerate() {
            let at = format!("{at}/server_list/{index}");
            let Some(server) = look.object(server, &at) else {
                continue;
            };
            let Some(id) = look.text(server, &at, "server_id") else {
                continue;
            };
            let pointer = format!("{at}/server_id");
            if !ids.contains_key(id) {
                look.find(
                    &pointer,
                    format!("is {id:?}, which /server_list does not hold"),
                );
            }
            if let Some(first) = placed.get(id) {
                look.find(&pointer, format!("is {id:?}, which {first} holds too"));
            }
            placed.entry(id.to_owned()).or_insert_with(|| at.clone());
        }
    }
    for (id, at) in ids {
        if !placed.contains_key(id) {
            let what = format!("lacks the server {id:?} of {at}");
            look.find("/super_pod_list", what);
        }
    }
}

/// Version 2.0: ranks with their networks, numbers as numbers.
fn rank_list(look: &mut Look, table: &Map<String, Value>) {
    let list = look.list(table, "", "rank_list");
    look.count(table, "", "rank_count", list.len(), true);
    let mut seats: BTreeMap<(String, &str, u32), String> = BTreeMap::new();
    let mut servers: BTreeMap<String, Vec<(u32, u32)>> = BTreeMap::new();
    for (index, rank) in list.iter().enumerate() {
        let at = format!("/rank_list/{index}");
        let Some(object) = look.object(rank, &at) else {
            continue;
        };
        let id = look.number(object, &at, "rank_id", MAX_WORLD_SIZE, true);
        if let Some(id) = id {
            look.rank(id, &format!("{at}/rank_id"), &at);
        }
        let server = levels(look, object, &at);
        let mut device = 0;
        // The device comes last, and stays.
        for key in ["local_id", "device_id"] {
            let Some(number) = look.number(object, &at, key, MAX_WORLD_SIZE, true) else {
                continue;
            };
            let seat = (server.clone(), key, number);
            if let Some(first) = seats.get(&seat) {
                let what = format!("is {number}, that of {first} on the same server too");
                look.find(&format!("{at}/{key}"), what);
            }
            seats.entry(seat).or_insert_with(|| at.clone());
            device = number;
        }
        let here = servers.entry(server).or_default();
        here.extend(id.map(|id| (id, device)));
    }
    look.gaps("/rank_list");
    look.audit.servers = servers
        .into_iter()
        .map(|(host, seats)| AuditServer { host, seats })
        .collect();
}

/// The networks of a rank; gives back the instance of its innermost one, which is its server.
fn levels(look: &mut Look, rank: &Map<String, Value>, at: &str) -> String {
    let mut layers: BTreeMap<u32, String> = BTreeMap::new();
    for (index, level) in look.list(rank, at, "level_list").iter().enumerate() {
        let at = format!("{at}/level_list/{index}");
        let Some(level) = look.object(level, &at) else {
            continue;
        };
        let instance = look.text(level, &at, "net_instance_id").unwrap_or_default();
        look.text(level, &at, "net_type");
        if let Some(layer) = look.number(level, &at, "net_layer", 255, true) {
            if layers.contains_key(&layer) {
                let what = format!("is {layer}, which this rank has twice");
                look.find(&format!("{at}/net_layer"), what);
            }
            layers.insert(layer, instance.to_owned());
        }
        let addresses = level.get("rank_addr_list").and_then(Value::as_array);
        if addresses.is_none() {
            look.missing(level, &at, "rank_addr_list");
        }
        for (index, item) in addresses.into_iter().flatten().enumerate() {
            let at = format!("{at}/rank_addr_list/{index}");
            if let Some(item) = look.object(item, &at) {
                rank_address(look, item, &at);
            }
        }
    }
    layers.into_values().next().unwrap_or_default()
}

fn rank_address(look: &mut Look, item: &Map<String, Value>, at: &str) {
    let kind = look.text(item, at, "addr_type").unwrap_or_default();
    let Some(text) = look.text(item, at, "addr") else {
        return;
    };
    let pointer = format!("{at}/addr");
    match (kind, text.parse::<IpAddr>()) {
        ("IPV4", Ok(IpAddr::V4(_))) | ("IPV6", Ok(IpAddr::V6(_))) => {}
        ("IPV4" | "IPV6", _) => {
            let what = format!("is {text:?}, which is no address of type {kind}");
            look.find(&pointer, what);
        }
        // Other kinds of networks have addresses that are no IP addresses.
        _ => {}
    }
    if item.get("ports").is_some_and(|ports| !ports.is_array()) {
        look.find(&format!("{at}/ports"), "is no list".to_owned());
    }
}
