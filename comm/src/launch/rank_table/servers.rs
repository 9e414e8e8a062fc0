//! Rank tables of versions 1.0 and 1.2: servers with devices, and super pods of servers.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Map, Value};

use super::audit::{AuditServer, Look, brief};
use crate::types::MAX_WORLD_SIZE;

/// Longest id of a server.
const SERVER_ID_CHARS_MAX: usize = 64;

/// Goes through the servers of a table, and its super pods where it has them.
pub(super) fn list(look: &mut Look, table: &Map<String, Value>, pods: bool) {
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
