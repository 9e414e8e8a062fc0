//! Whether the rank table is right, whole, and speaks of this process.

use std::net::IpAddr;

use muster_comm::launch::rank_table::{Audit, audit};

use super::super::network::addresses;
use super::super::system::count;
use super::super::{Finding, Problem, System};

/// Findings that are shown one by one.
const SHOWN: usize = 10;
const FILE: &str = "RANK_TABLE_FILE";

pub(super) fn judge(system: &System) -> Finding {
    let Some(path) = system.text(FILE) else {
        return Finding::skip("RANK_TABLE_FILE is not set");
    };
    let place = system.path(path);
    if place.is_symlink() {
        return Problem::fail(
            format!("the rank table {path} is a link, and torch_npu then goes on without it"),
            format!("{FILE}={path}"),
            format!("export {FILE}=$(readlink -f {path})"),
        )
        .into();
    }
    let text = match system.try_read(path) {
        Ok(text) => text,
        Err(error) => {
            return Problem::fail(
                format!("the rank table {path} cannot be read: {error}"),
                format!("{FILE}={path}"),
                "name a file that exists, or unset RANK_TABLE_FILE; `muster ranktable write` makes one",
            )
            .into();
        }
    };
    let audit = audit(&text);
    let mut problems: Vec<Problem> = audit
        .findings
        .iter()
        .take(SHOWN)
        .map(|finding| {
            Problem::fail(
                format!("the rank table is wrong: {finding}"),
                format!("{path}#{}", finding.pointer),
                format!("mend it, or make it anew with `muster ranktable write`; all of it: muster ranktable check {path}"),
            )
        })
        .collect();
    if audit.findings.len() > SHOWN {
        problems.push(Problem::fail(
            format!(
                "{} more places of the rank table are wrong",
                audit.findings.len() - SHOWN
            ),
            path,
            format!("muster ranktable check {path}"),
        ));
    }
    if !audit.completed && audit.findings.is_empty() {
        problems.push(Problem::warn(
            format!("the rank table {path} is still being made (status initializing)"),
            format!("{path}#/status"),
            "wait for the job operator to complete it; if it never does, look at the operator's log",
        ));
    }
    if audit.findings.is_empty() && audit.completed {
        problems.extend(against_variables(system, &audit, path));
    }
    Finding::of(problems, || {
        let version = audit.version.map(|version| version.to_string());
        Finding::ok(
            format!(
                "the rank table is right: {} on {}",
                count(audit.ranks, "rank"),
                count(audit.servers.len() as u64, "server")
            ),
            format!("{path}, version {}", version.unwrap_or_default()),
        )
    })
}

/// What the variables beside the table say otherwise.
fn against_variables(system: &System, audit: &Audit, path: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    let number = |name: &str| system.text(name).and_then(|text| text.parse::<u32>().ok());
    if let Some(size) = number("RANK_SIZE").filter(|size| *size != audit.ranks) {
        problems.push(Problem::fail(
            format!(
                "RANK_SIZE is {size} and the rank table has {}",
                count(audit.ranks, "rank")
            ),
            format!("RANK_SIZE={size}; {path}"),
            format!(
                "export RANK_SIZE={}, or take the table of this job",
                audit.ranks
            ),
        ));
    }
    let Some(rank) = number("RANK_ID") else {
        return problems;
    };
    if rank >= audit.ranks {
        problems.push(Problem::fail(
            format!(
                "RANK_ID {rank} is not in the rank table, which has ranks 0 to {}",
                audit.ranks.saturating_sub(1)
            ),
            format!("RANK_ID={rank}; {path}"),
            "set RANK_ID to a rank of the table, or take the table of this job",
        ));
        return problems;
    }
    let is_mine = |(other, _): &(u32, u32)| *other == rank;
    let server = audit
        .servers
        .iter()
        .find(|server| server.seats.iter().any(is_mine));
    let own = addresses(system);
    if let Some(server) = server
        && let Ok(address) = server.host.parse::<IpAddr>()
        && !own.is_empty()
        && !own.iter().any(|(known, _)| *known == address)
    {
        problems.push(Problem::fail(
            format!(
                "the rank table puts rank {rank} on {address}, which is no address of this host"
            ),
            format!("RANK_ID={rank}; {path}"),
            "start this rank on that server, or set RANK_ID to a rank of this one",
        ));
    }
    problems
}
