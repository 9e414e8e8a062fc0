//! Rank tables of version 2.0: ranks with their networks, numbers as numbers.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Map, Value};

use super::audit::{AuditServer, Look};
use crate::types::MAX_WORLD_SIZE;

/// Goes through the ranks of a table.
pub(super) fn list(look: &mut Look, table: &Map<String, Value>) {
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
