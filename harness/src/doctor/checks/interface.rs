//! Whether the interface that HCCL will take exists and is up.

use super::super::network::{Choice, Interface, interfaces, used};
use super::super::system::listed;
use super::super::{Finding, Problem, System};

pub(super) fn judge(system: &System) -> Finding {
    let all = interfaces(system);
    if all.is_empty() {
        return Finding::skip("/sys/class/net lists no interface");
    }
    let seen = listed(all.iter().map(Interface::shown));
    let Some(text) = system.text("HCCL_SOCKET_IFNAME") else {
        return by_default(system, seen);
    };
    let evidence = format!("HCCL_SOCKET_IFNAME={text}; there are {seen}");
    let best = all.iter().find(|interface| {
        interface.is_up() && !interface.is_loopback() && !interface.addresses.is_empty()
    });
    let remedy = best.map_or_else(
        || "bring an interface up: ip link set NAME up".to_owned(),
        |best| exactly(&best.name),
    );
    let Some(choice) = Choice::parse(text) else {
        return Problem::fail(
            format!("HCCL_SOCKET_IFNAME is {text:?}, which names no interfaces"),
            evidence,
            remedy,
        )
        .into();
    };
    let taken: Vec<_> = all
        .iter()
        .filter(|interface| choice.takes(&interface.name))
        .collect();
    let problem = problem_with(&taken, &choice.absent(&all), text, evidence, remedy);
    Finding::of(problem.into_iter().collect(), || {
        Finding::ok(
            format!(
                "HCCL takes {}",
                listed(taken.iter().map(|interface| interface.shown()))
            ),
            format!("HCCL_SOCKET_IFNAME={text}"),
        )
    })
}

/// A line to copy that names one interface.
fn exactly(name: &str) -> String {
    format!(
        "export HCCL_SOCKET_IFNAME=={name} (with the second = exactly this one; without it all whose names begin so)"
    )
}

/// What is wrong with the interfaces that a choice takes; `absent` are names that none has.
fn problem_with(
    taken: &[&Interface],
    absent: &[&str],
    text: &str,
    evidence: String,
    remedy: String,
) -> Option<Problem> {
    let names = listed(taken.iter().map(|interface| &interface.name));
    let has_address =
        |interface: &&&Interface| interface.is_up() && !interface.addresses.is_empty();
    let Some(first) = taken.first() else {
        let what = if absent.is_empty() {
            format!("HCCL_SOCKET_IFNAME={text} leaves no interface, and HCCL fails with EI0001")
        } else {
            format!(
                "no interface is called {} as HCCL_SOCKET_IFNAME says, and HCCL fails with EI0001",
                listed(absent)
            )
        };
        return Some(Problem::fail(what, evidence, remedy));
    };
    if !taken.iter().any(|interface| interface.is_up()) {
        return Some(Problem::fail(
            format!("{names}, which HCCL_SOCKET_IFNAME names, is down"),
            evidence,
            format!("ip link set {} up, or {remedy}", first.name),
        ));
    }
    if taken.iter().find(has_address).is_none() {
        return Some(Problem::fail(
            format!("{names}, which HCCL_SOCKET_IFNAME names, has no address"),
            evidence,
            remedy,
        ));
    }
    if taken.iter().all(|interface| interface.is_loopback()) {
        return Some(Problem::warn(
            "HCCL_SOCKET_IFNAME leaves only loopback: other hosts are out of reach",
            evidence,
            remedy,
        ));
    }
    (!absent.is_empty()).then(|| {
        Problem::warn(
            format!(
                "no interface is called {}, of those that HCCL_SOCKET_IFNAME names",
                listed(absent)
            ),
            evidence,
            remedy,
        )
    })
}

fn by_default(system: &System, seen: String) -> Finding {
    if system.text("HCCL_IF_IP").is_some() {
        return Finding::skip("HCCL_IF_IP is set and wins over interfaces");
    }
    let Some(first) = used(system).into_iter().next() else {
        return Problem::warn(
            "no interface is up and has an address, so HCCL fails with EI0001",
            format!("there are {seen}"),
            "bring an interface up: ip link set NAME up",
        )
        .into();
    };
    let is_docker = first.name.starts_with("docker");
    if system.wants_hccl() && (is_docker || first.is_loopback()) {
        return Problem::warn(
            format!(
                "HCCL would take {}, which other hosts cannot reach",
                first.name
            ),
            format!("HCCL_SOCKET_IFNAME is not set; there are {seen}"),
            format!(
                "bring the interface between the hosts up and name it: {}",
                exactly("eth0")
            ),
        )
        .into();
    }
    Finding::ok(
        format!(
            "{} would be taken: HCCL_SOCKET_IFNAME is not set",
            first.shown()
        ),
        format!("/sys/class/net: {seen}"),
    )
}
