//! Whether processes of earlier jobs still hold devices.

use super::super::process::command;
use super::super::system::listed;
use super::super::{Finding, Problem, System};

/// Holders that are named one by one.
const SHOWN: usize = 8;

pub(super) fn judge(system: &System) -> Finding {
    if system.devices().is_empty() {
        return Finding::skip("no Ascend device");
    }
    let mut problems = Vec::new();
    let mut hidden = 0_u32;
    for process in system.processes() {
        hidden += u32::from(!process.visible);
        let mut nodes: Vec<&str> = process
            .open
            .iter()
            .map(String::as_str)
            .filter(|open| {
                open.strip_prefix("/dev/davinci")
                    .is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
            })
            .collect();
        nodes.sort_unstable();
        nodes.dedup();
        if nodes.is_empty() || problems.len() >= SHOWN {
            continue;
        }
        let orphan = process.parent == 1;
        let state = match process.state {
            'D' => ", stuck in the kernel",
            'T' | 't' => ", stopped",
            _ if orphan => ", whose parent is gone",
            _ => "",
        };
        let remedy = if process.state == 'D' {
            format!(
                "it cannot be killed until the driver answers: look at `npu-smi info` and dmesg; pid {}",
                process.pid
            )
        } else {
            format!(
                "if its job is over: kill {}, then wait 10 s for the device",
                process.pid
            )
        };
        problems.push(Problem::warn(
            format!(
                "{}{state} holds {}: a second job there ends with EJ0001",
                process.called(),
                listed(&nodes)
            ),
            format!(
                "/proc/{}/fd; {:?}",
                process.pid,
                command(system, process.pid)
            ),
            remedy,
        ));
    }
    Finding::of(problems, || {
        if hidden > 0 {
            return Finding::ok(
                "no process that can be seen holds a device",
                format!("the descriptors of {hidden} processes of other users cannot be seen"),
            );
        }
        Finding::ok("no process holds a device", "/proc/*/fd")
    })
}
