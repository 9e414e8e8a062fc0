//! Control groups, networks, wires and tools of the system.

use std::process::{Command, Stdio};
use std::time::Duration;

use muster_comm::sync::{Clock, Deadline};

use super::{Done, go};
use crate::drill::cgroup::Group;
use crate::drill::clean;
use crate::drill::network::{Lacking, run};
use crate::drill::plan::{NetFault, Settings};
use crate::drill::process_group::{Stage, Trouble};
use crate::drill::wire::WireFault;
use crate::world::look;

/// Longest wait until a spoilt wire has met something to spoil, or a tool holds its process.
const TO_STRIKE: Duration = Duration::from_secs(10);
/// How often it is looked whether a process is gone.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Largest frame that gets through a narrow network, in bytes.
const NARROW: u32 = 1280;
/// What gets through a slow one, in Mbit/s.
const SLOW_MBIT: u32 = 2;

/// Moves a rank into a control group, and lets the ranks go on.
pub(super) fn control(
    stage: &mut Stage<'_>,
    rank: u32,
    controller: &str,
    settings: &Settings,
) -> Result<Done, Trouble> {
    let Some(pid) = stage.pid_of(rank) else {
        return Ok(Done::not_done("the rank has not told its process"));
    };
    let group = Group::make(controller, &stage.mark)?;
    group.take(pid)?;
    // Held from here on, so that it is removed whatever happens.
    stage.groups.push(group);
    let done = Done::now();
    for (names, value) in settings {
        // The two forms of control groups have different names for one setting.
        let tried = names.iter().map(|name| stage.groups[0].set(name, value));
        let refused: Vec<Lacking> = tried.filter_map(Result::err).collect();
        if refused.len() == names.len() {
            return Err(refused.into_iter().next().map_or_else(
                || Trouble::Lacking("a setting without a name".to_owned()),
                Trouble::from,
            ));
        }
    }
    go(stage)?;
    if controller == "memory" {
        // To fill it takes a while. The fault is that the kernel ends the process.
        let deadline = Deadline::after(TO_STRIKE);
        while look::is_alive(pid) && !deadline.passed() {
            Clock::pause(LOOK_EVERY);
        }
        return Ok(Done::now());
    }
    Ok(done)
}

pub(super) fn net(stage: &Stage<'_>, fault: &NetFault) -> Result<Done, Trouble> {
    let Some(network) = &stage.network else {
        return Ok(Done::not_done("the ranks have no network of their own"));
    };
    let done = Done::now();
    match fault {
        NetFault::None => {}
        NetFault::Cut(rank) => network.cut(&[*rank])?,
        NetFault::Deafen(rank) => network.deafen(*rank)?,
        NetFault::Down(rank) => network.take_down(*rank)?,
        NetFault::Narrow(rank) => network.narrow(*rank, NARROW)?,
        NetFault::Split(ranks) => network.split(ranks)?,
        NetFault::Throttle(rank) => network.throttle(*rank, SLOW_MBIT)?,
    }
    go(stage)?;
    Ok(done)
}

/// Resets a connection between a rank and another one.
pub(super) fn reset(stage: &Stage<'_>, rank: u32) -> Result<Done, Trouble> {
    let Some((own, theirs, peer)) = connection(stage, rank) else {
        return Ok(Done::not_done("the rank has no connection to another one"));
    };
    let filter = format!("( sport = :{own} and dport = :{theirs} )");
    let done = Done::now();
    run("ss", &["-K", "-t", "-n", "state", "established", &filter])?;
    let pid = stage.pid_of(rank).unwrap_or(0);
    if clean::connections_of(pid).contains(&(own, theirs)) {
        return Err(Trouble::Lacking(
            "ss may not close connections here".to_owned(),
        ));
    }
    let mut struck = vec![rank, peer];
    struck.sort_unstable();
    Ok(Done {
        struck: Some(struck),
        ..done
    })
}

/// A connection of a rank to another one: its two ports, and the other rank.
fn connection(stage: &Stage<'_>, rank: u32) -> Option<(u16, u16, u32)> {
    let own = clean::connections_of(stage.pid_of(rank)?);
    stage
        .ranks()
        .into_iter()
        .filter(|other| *other != rank)
        .find_map(|other| {
            let theirs = clean::connections_of(stage.pid_of(other)?);
            let (one, two) = own
                .iter()
                .find(|(one, two)| theirs.contains(&(*two, *one)))?;
            Some((*one, *two, other))
        })
}

pub(super) fn wire(stage: &mut Stage<'_>, rank: u32, fault: WireFault) -> Done {
    let Some(wires) = &stage.wires else {
        return Done::not_done("there is no wire between the ranks");
    };
    wires.spoil(rank, fault);
    let has_struck = |stage: &Stage<'_>| stage.wires.as_ref().and_then(|one| one.struck());
    stage.until(Deadline::after(TO_STRIKE), |stage| {
        has_struck(stage).is_some() || stage.is_over()
    });
    let Some((at_ns, port)) = has_struck(stage) else {
        // A wire that is only slow never strikes at one moment.
        return match fault {
            WireFault::Delay(_) | WireFault::Trickle => Done::now(),
            WireFault::Flip
            | WireFault::FlipHeader
            | WireFault::None
            | WireFault::Repeat
            | WireFault::Stall
            | WireFault::Truncate => Done::not_done("nothing went over the wire"),
        };
    };
    let at_port = |other: &u32| {
        let pid = stage.pid_of(*other).unwrap_or(0);
        clean::connections_of(pid)
            .iter()
            .any(|(own, _)| *own == port)
    };
    // A stall strikes all links of the rank alike.
    let one_link = fault != WireFault::Stall;
    let peer = stage
        .ranks()
        .into_iter()
        .find(|other| one_link && at_port(other));
    let struck = peer.map(|peer| {
        let mut both = vec![rank, peer];
        both.sort_unstable();
        both
    });
    Done {
        at_ns: Some(at_ns),
        struck,
        complaints: Vec::new(),
    }
}

/// Runs a tool against a rank until the end of the run.
pub(super) fn tool(stage: &mut Stage<'_>, rank: u32, words: &[&str]) -> Result<Done, Trouble> {
    let pid = stage.pid_of(rank).unwrap_or(0).to_string();
    let words: Vec<&str> = words
        .iter()
        .map(|word| if *word == "PID" { &pid } else { *word })
        .collect();
    let Some((program, rest)) = words.split_first() else {
        return Ok(Done::not_done("no tool is named"));
    };
    let tool = Command::new(program)
        .args(rest)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| Trouble::Lacking(format!("{program} cannot be run: {error}")))?;
    stage.tools.push(tool);
    let is_held = |_: &Stage<'_>| {
        std::fs::read_to_string(format!("/proc/{pid}/status"))
            .is_ok_and(|status| !status.contains("TracerPid:\t0"))
    };
    if stage.until(Deadline::after(TO_STRIKE), is_held) {
        Ok(Done::now())
    } else {
        Err(Trouble::Lacking(format!(
            "{program} does not get hold of a process here"
        )))
    }
}
