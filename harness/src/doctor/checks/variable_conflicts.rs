//! Whether variables of the vendor's stack contradict each other.

use super::super::{Finding, Problem, System};

/// Defaults, in seconds.
const EXEC_TIMEOUT: u64 = 1836;
const EVENT_TIMEOUT: u64 = 1868;
/// torch_npu warns below this many seconds.
const CONNECT_TIMEOUT_LOW: u64 = 300;
/// Most ranks of an expert group for which vllm-ascend takes its fused dispatch.
const FUSED_MC2_RANKS_MAX: u64 = 64;

pub(super) fn judge(system: &System) -> Finding {
    let problems: Vec<Problem> = [
        intra, timeouts, connect, ports, interface, tables, old_names, blocking, aiv, fused,
    ]
    .iter()
    .filter_map(|rule| rule(system))
    .collect();
    Finding::of(problems, || {
        Finding::ok("no two variables contradict each other", "environment")
    })
}

fn intra(system: &System) -> Option<Problem> {
    let pcie = system.text("HCCL_INTRA_PCIE_ENABLE");
    let roce = system.text("HCCL_INTRA_ROCE_ENABLE");
    let shown = |value: Option<&str>| value.unwrap_or("not set").to_owned();
    let wrong = match (pcie, roce) {
        (Some("1"), Some("1")) => "both are 1",
        (Some("0"), None) => "PCIe is switched off and RoCE is not switched on",
        (None, Some("0")) => "RoCE is switched off and PCIe is not switched on",
        _ => return None,
    };
    Some(Problem::fail(
        format!(
            "HCCL_INTRA_PCIE_ENABLE and HCCL_INTRA_ROCE_ENABLE leave no way within a server: {wrong}"
        ),
        format!(
            "HCCL_INTRA_PCIE_ENABLE {}, HCCL_INTRA_ROCE_ENABLE {}",
            shown(pcie),
            shown(roce)
        ),
        "unset both for PCIe, or export HCCL_INTRA_PCIE_ENABLE=0 HCCL_INTRA_ROCE_ENABLE=1 for RoCE",
    ))
}

fn timeouts(system: &System) -> Option<Problem> {
    let read = |name: &str| system.text(name).and_then(|text| text.parse::<u64>().ok());
    let (exec, event) = (read("HCCL_EXEC_TIMEOUT"), read("HCCL_EVENT_TIMEOUT"));
    if exec.is_none() && event.is_none() {
        return None;
    }
    let evidence = format!(
        "HCCL_EXEC_TIMEOUT {}, HCCL_EVENT_TIMEOUT {}",
        exec.map_or_else(
            || format!("not set ({EXEC_TIMEOUT})"),
            |value| value.to_string()
        ),
        event.map_or_else(
            || format!("not set ({EVENT_TIMEOUT})"),
            |value| value.to_string()
        ),
    );
    let (exec, event) = (exec.unwrap_or(EXEC_TIMEOUT), event.unwrap_or(EVENT_TIMEOUT));
    if exec == 0 {
        return Some(Problem::warn(
            "HCCL_EXEC_TIMEOUT is 0: a collective that hangs will hang for ever",
            evidence,
            "export HCCL_EXEC_TIMEOUT=1836, or shorter to see a hang early",
        ));
    }
    // Without the end of an event's wait there is nothing to be ordered.
    (event != 0 && event <= exec).then(|| {
        Problem::fail(
            format!("HCCL_EVENT_TIMEOUT ({event} s) must exceed HCCL_EXEC_TIMEOUT ({exec} s): else torch_npu gives up before HCCL can name the rank"),
            evidence,
            format!("export HCCL_EVENT_TIMEOUT={}", exec + 32),
        )
    })
}

fn connect(system: &System) -> Option<Problem> {
    let text = system.text("HCCL_CONNECT_TIMEOUT")?;
    let seconds: u64 = text.parse().ok()?;
    (120..CONNECT_TIMEOUT_LOW).contains(&seconds).then(|| {
        Problem::warn(
            format!("HCCL_CONNECT_TIMEOUT of {seconds} s is short where ranks reach their first collective minutes apart"),
            format!("HCCL_CONNECT_TIMEOUT={text}; torch_npu warns below {CONNECT_TIMEOUT_LOW}"),
            "export HCCL_CONNECT_TIMEOUT=1800",
        )
    })
}

fn ports(system: &System) -> Option<Problem> {
    let host = system.text("HCCL_HOST_SOCKET_PORT_RANGE");
    let device = system.text("HCCL_NPU_SOCKET_PORT_RANGE");
    if host.is_some() && device.is_none() {
        return Some(Problem::warn(
            "HCCL_HOST_SOCKET_PORT_RANGE is set and HCCL_NPU_SOCKET_PORT_RANGE is not: processes that share a device meet at its port 16666",
            "HCCL_NPU_SOCKET_PORT_RANGE is not set",
            "export HCCL_NPU_SOCKET_PORT_RANGE=auto on all ranks",
        ));
    }
    let base = system.text("HCCL_IF_BASE_PORT");
    if let (Some(host), Some(base)) = (host, base) {
        return Some(Problem::warn(
            "HCCL_IF_BASE_PORT has no effect where HCCL_HOST_SOCKET_PORT_RANGE is set",
            format!("HCCL_IF_BASE_PORT={base}, HCCL_HOST_SOCKET_PORT_RANGE={host}"),
            "unset one of the two",
        ));
    }
    None
}

fn interface(system: &System) -> Option<Problem> {
    let address = system.text("HCCL_IF_IP");
    if let (Some(address), Some(name)) = (address, system.text("HCCL_SOCKET_IFNAME")) {
        return Some(Problem::warn(
            "HCCL_SOCKET_IFNAME has no effect where HCCL_IF_IP is set",
            format!("HCCL_IF_IP={address}, HCCL_SOCKET_IFNAME={name}"),
            "unset HCCL_IF_IP; HCCL_SOCKET_IFNAME can be the same on all hosts",
        ));
    }
    let family = system.text("HCCL_SOCKET_FAMILY")?;
    let address = address?;
    let is_v6 = address.contains(':');
    ((family == "AF_INET6") != is_v6).then(|| {
        Problem::fail(
            format!("HCCL_IF_IP {address} is not of the family {family} of HCCL_SOCKET_FAMILY"),
            format!("HCCL_IF_IP={address}, HCCL_SOCKET_FAMILY={family}"),
            format!(
                "export HCCL_SOCKET_FAMILY={}",
                if is_v6 { "AF_INET6" } else { "AF_INET" }
            ),
        )
    })
}

fn tables(system: &System) -> Option<Problem> {
    let table = ["RANK_TABLE_FILE", "RANK_ID", "RANK_SIZE"]
        .into_iter()
        .find(|name| system.text(name).is_some())?;
    let chief = ["CM_CHIEF_IP", "CM_WORKER_SIZE"]
        .into_iter()
        .find(|name| system.text(name).is_some())?;
    Some(Problem::fail(
        format!("{table} and {chief} are two ways to number ranks, and exclude each other"),
        format!("{table} and {chief} are both set"),
        "unset the RANK_ variables or the CM_ variables",
    ))
}

fn old_names(system: &System) -> Option<Problem> {
    ["ASYNC_ERROR_HANDLING", "BLOCKING_WAIT", "DESYNC_DEBUG"]
        .into_iter()
        .find_map(|name| {
            let (old, new) = (format!("HCCL_{name}"), format!("TORCH_HCCL_{name}"));
            let (first, second) = (system.text(&old)?, system.text(&new)?);
            (first != second).then(|| {
                Problem::fail(
                    format!("{old} and {new} are one setting by two names, and differ"),
                    format!("{old}={first}, {new}={second}"),
                    format!("unset {old}, the old name"),
                )
            })
        })
}

fn blocking(system: &System) -> Option<Problem> {
    let is = |name: &str, value: &str| system.text(name) == Some(value);
    if is("ASCEND_LAUNCH_BLOCKING", "1") {
        return Some(Problem::warn(
            "ASCEND_LAUNCH_BLOCKING is 1: every operator is waited for, and TASK_QUEUE_ENABLE is off",
            "ASCEND_LAUNCH_BLOCKING=1",
            "unset ASCEND_LAUNCH_BLOCKING; it is for finding the operator that fails",
        ));
    }
    let waits = ["TORCH_HCCL_BLOCKING_WAIT", "HCCL_BLOCKING_WAIT"]
        .into_iter()
        .find(|name| is(name, "1"))?;
    Some(Problem::warn(
        format!("{waits} is 1, so torch_npu has no watchdog and a hang is told by nobody"),
        format!("{waits}=1"),
        format!("unset {waits}"),
    ))
}

fn aiv(system: &System) -> Option<Problem> {
    let exec: u64 = system.text("HCCL_EXEC_TIMEOUT")?.parse().ok()?;
    let mode = system.text("HCCL_OP_EXPANSION_MODE")?;
    (mode.eq_ignore_ascii_case("AIV") && exec > 1091).then(|| {
        Problem::warn(
            format!("in the mode AIV HCCL_EXEC_TIMEOUT is at most 1091 s, not {exec} s"),
            format!("HCCL_EXEC_TIMEOUT={exec}, HCCL_OP_EXPANSION_MODE={mode}"),
            "export HCCL_EXEC_TIMEOUT=1091",
        )
    })
}

fn fused(system: &System) -> Option<Problem> {
    let switch = system.text("VLLM_ASCEND_ENABLE_FUSED_MC2")?;
    let ranks: u64 = system.text("WORLD_SIZE")?.parse().ok()?;
    (switch != "0" && ranks > FUSED_MC2_RANKS_MAX).then(|| {
        Problem::warn(
            format!(
                "vllm-ascend takes its fused dispatch up to EP={FUSED_MC2_RANKS_MAX}, and an expert group of all {ranks} ranks is larger"
            ),
            format!("VLLM_ASCEND_ENABLE_FUSED_MC2={switch}, WORLD_SIZE={ranks}"),
            "see which expert groups the job has: muster groups --matrix vllm0.18:tp4dp32, with its own sizes",
        )
    })
}
