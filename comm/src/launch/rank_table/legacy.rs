//! The rank table from before versions: groups of instances, ranks by their order.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::audit::{AuditServer, Look};
use crate::types::MAX_WORLD_SIZE;

/// Goes through the groups of a table.
pub(super) fn groups(look: &mut Look, table: &Map<String, Value>) {
    let groups = look.list(table, "", "group_list");
    look.count(table, "", "group_count", groups.len(), false);
    let mut ranks = 0_usize;
    for (index, group) in groups.iter().enumerate() {
        let at = format!("/group_list/{index}");
        let Some(group) = look.object(group, &at) else {
            continue;
        };
        look.text(group, &at, "group_name");
        let instances = look.list(group, &at, "instance_list");
        look.count(group, &at, "instance_count", instances.len(), false);
        let servers = |instance: &Value| {
            let server = instance.get("server_id").and_then(Value::as_str);
            server.unwrap_or_default().to_owned()
        };
        let first = instances.first().map(servers);
        let several = instances
            .iter()
            .any(|instance| Some(servers(instance)) != first);
        let mut seats: BTreeMap<(String, u32), String> = BTreeMap::new();
        let mut pods: BTreeMap<String, String> = BTreeMap::new();
        let mut devices = 0;
        for (index, instance) in instances.iter().enumerate() {
            let at = format!("{at}/instance_list/{index}");
            let Some(instance) = look.object(instance, &at) else {
                continue;
            };
            if let Some(pod) = look.text(instance, &at, "pod_name") {
                if let Some(first) = pods.get(pod) {
                    let what = format!("is {pod:?}, the name of {first} too");
                    look.find(&format!("{at}/pod_name"), what);
                }
                pods.entry(pod.to_owned()).or_insert_with(|| at.clone());
            }
            let server = look.text(instance, &at, "server_id").unwrap_or_default();
            devices += self::devices(look, instance, &at, server, several, &mut seats);
        }
        look.count(group, &at, "device_count", devices, false);
        ranks += devices;
    }
    look.audit.ranks = u32::try_from(ranks).unwrap_or(u32::MAX);
}

/// Goes through the devices of an instance; gives back how many there are.
fn devices(
    look: &mut Look,
    instance: &Map<String, Value>,
    at: &str,
    server: &str,
    several: bool,
    seats: &mut BTreeMap<(String, u32), String>,
) -> usize {
    let devices = look.list(instance, at, "devices");
    for (index, device) in devices.iter().enumerate() {
        let at = format!("{at}/devices/{index}");
        let Some(device) = look.object(device, &at) else {
            continue;
        };
        if let Some(id) = look.number(device, &at, "device_id", MAX_WORLD_SIZE, false) {
            let seat = (server.to_owned(), id);
            if let Some(first) = seats.get(&seat) {
                let what = format!("is {id}, the device of {first} too");
                look.find(&format!("{at}/device_id"), what);
            }
            seats.entry(seat).or_insert_with(|| at.clone());
        }
        look.address(device, &at, "device_ip", several);
    }
    look.audit.servers.push(AuditServer {
        host: server.to_owned(),
        seats: Vec::new(),
    });
    devices.len()
}
