//! Whether HCCL's list of peers is there and can be read.

use std::net::IpAddr;

use serde_json::Value;

use super::super::network::addresses;
use super::super::{Finding, Problem, System};

const DISABLE: &str = "HCCL_WHITELIST_DISABLE";
const FILE: &str = "HCCL_WHITELIST_FILE";
const REMEDY: &str = "unset HCCL_WHITELIST_DISABLE, or write a file {\"host_ip\":[...],\"device_ip\":[...]} and name it in HCCL_WHITELIST_FILE";

pub(super) fn judge(system: &System) -> Finding {
    let file = system.text(FILE);
    if system.text(DISABLE) != Some("0") {
        return match file {
            Some(file) => Problem::warn(
                format!("{FILE} is set and has no effect: {DISABLE} is not 0"),
                format!("{FILE}={file}"),
                format!("export {DISABLE}=0, or unset {FILE}"),
            )
            .into(),
            None => Finding::skip("no whitelist is in use"),
        };
    }
    let Some(file) = file else {
        return Problem::fail(
            format!("{DISABLE} is 0 and {FILE} is not set: every peer is refused"),
            format!("{DISABLE}=0"),
            REMEDY,
        )
        .into();
    };
    let list = match read(system, file) {
        Ok(list) => list,
        Err(problem) => return problem.into(),
    };
    let mut problems = wrong_entries(file, &list);
    let hosts: Vec<IpAddr> = list
        .get("host_ip")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|item| item.as_str()?.parse().ok())
        .collect();
    let own = addresses(system);
    if problems.is_empty()
        && !own.is_empty()
        && !own.iter().any(|(address, _)| hosts.contains(address))
    {
        problems.push(Problem::fail(
            format!(
                "the whitelist {file} holds no address of this host, so its own ranks are refused"
            ),
            format!("{file}: /host_ip"),
            "add this host's address to /host_ip",
        ));
    }
    Finding::of(problems, || {
        Finding::ok(
            format!("the whitelist {file} is right"),
            format!("{} host addresses", hosts.len()),
        )
    })
}

fn read(system: &System, file: &str) -> Result<Value, Problem> {
    let text = system.try_read(file).map_err(|error| {
        Problem::fail(
            format!("the whitelist {file} cannot be read"),
            format!("{FILE}={file}: {error}"),
            REMEDY,
        )
    })?;
    serde_json::from_str(&text).map_err(|error| {
        Problem::fail(
            format!("the whitelist {file} is no JSON"),
            format!("{file}: {error}"),
            REMEDY,
        )
    })
}

/// Lists that are missing, and entries that are no addresses.
fn wrong_entries(file: &str, list: &Value) -> Vec<Problem> {
    let mut problems = Vec::new();
    for key in ["host_ip", "device_ip"] {
        let items = list.get(key).and_then(Value::as_array);
        if items.is_none() {
            problems.push(Problem::fail(
                format!("the whitelist {file} has no list /{key}"),
                format!("{file}: /{key}"),
                REMEDY,
            ));
        }
        for (place, item) in items.into_iter().flatten().enumerate() {
            if item
                .as_str()
                .is_none_or(|text| text.parse::<IpAddr>().is_err())
            {
                problems.push(Problem::fail(
                    format!("the whitelist {file} holds {item} where an address belongs"),
                    format!("{file}: /{key}/{place}"),
                    "write addresses as text: \"10.0.0.5\"",
                ));
            }
        }
    }
    problems
}
