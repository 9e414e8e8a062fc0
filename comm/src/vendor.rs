//! What the vendor's numbers and codes mean: names, classes, and what to do.
//!
//! Two ranges of numbers that never meet: HCCL's results (0 to 1041) and the runtime's errors (from
//! 100000 on). Texts of the vendor carry codes such as `EI0002`, which say more than the number.
//! Nothing here calls anything.

/// What kind of trouble a vendor's error is. It decides the exit code of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The call's arguments, or calls that do not fit the state of the library.
    Argument,
    /// The device is gone or does not answer any more.
    DeviceLost,
    /// An inner error, or one that no table knows.
    Internal,
    /// The path between two devices.
    Link,
    /// Device memory is used up.
    Memory,
    /// Streams, notifies, ports, devices or permissions of this host.
    Resource,
    /// The device waited for a peer until the vendor's own time limit.
    Timeout,
    /// This product or version cannot do it.
    Unsupported,
}

/// A number of the vendor.
struct Number {
    code: i32,
    name: &'static str,
    fault: Fault,
}

const fn number(code: i32, name: &'static str, fault: Fault) -> Number {
    Number { code, name, fault }
}

/// The numbers that a client of collectives may meet.
const NUMBERS: &[Number] = &[
    number(1, "HCCL_E_PARA", Fault::Argument),
    number(2, "HCCL_E_PTR", Fault::Argument),
    number(3, "HCCL_E_MEMORY", Fault::Memory),
    number(4, "HCCL_E_INTERNAL", Fault::Internal),
    number(5, "HCCL_E_NOT_SUPPORT", Fault::Unsupported),
    number(6, "HCCL_E_NOT_FOUND", Fault::Internal),
    number(7, "HCCL_E_UNAVAIL", Fault::Resource),
    number(8, "HCCL_E_SYSCALL", Fault::Internal),
    number(9, "HCCL_E_TIMEOUT", Fault::Timeout),
    number(10, "HCCL_E_OPEN_FILE_FAILURE", Fault::Resource),
    number(11, "HCCL_E_TCP_CONNECT", Fault::Link),
    number(12, "HCCL_E_ROCE_CONNECT", Fault::Link),
    number(13, "HCCL_E_TCP_TRANSFER", Fault::Link),
    number(14, "HCCL_E_ROCE_TRANSFER", Fault::Link),
    number(15, "HCCL_E_RUNTIME", Fault::Internal),
    number(16, "HCCL_E_DRV", Fault::Internal),
    number(17, "HCCL_E_PROFILING", Fault::Internal),
    number(18, "HCCL_E_CCE", Fault::Internal),
    number(19, "HCCL_E_NETWORK", Fault::Link),
    number(20, "HCCL_E_AGAIN", Fault::Argument),
    number(21, "HCCL_E_REMOTE", Fault::Link),
    number(22, "HCCL_E_SUSPENDING", Fault::Argument),
    number(23, "HCCL_E_OPRETRY_FAIL", Fault::Link),
    number(24, "HCCL_E_OOM", Fault::Memory),
    number(1041, "HCCL_E_IN_STATUS", Fault::Internal),
    number(100_000, "ACL_ERROR_INVALID_PARAM", Fault::Argument),
    number(100_001, "ACL_ERROR_UNINITIALIZE", Fault::Argument),
    number(100_002, "ACL_ERROR_REPEAT_INITIALIZE", Fault::Argument),
    number(100_037, "ACL_ERROR_REPEAT_FINALIZE", Fault::Argument),
    number(107_000, "ACL_ERROR_RT_PARAM_INVALID", Fault::Argument),
    number(107_001, "ACL_ERROR_RT_INVALID_DEVICEID", Fault::Resource),
    number(107_002, "ACL_ERROR_RT_CONTEXT_NULL", Fault::Argument),
    number(107_003, "ACL_ERROR_RT_STREAM_CONTEXT", Fault::Argument),
    number(107_019, "ACL_ERROR_RT_WAIT_TIMEOUT", Fault::Timeout),
    number(107_020, "ACL_ERROR_RT_TASK_TIMEOUT", Fault::Timeout),
    number(107_022, "ACL_ERROR_RT_DEVICE_TASK_ABORT", Fault::Internal),
    number(107_023, "ACL_ERROR_RT_STREAM_ABORT", Fault::Internal),
    number(200_000, "ACL_ERROR_BAD_ALLOC", Fault::Memory),
    number(200_001, "ACL_ERROR_API_NOT_SUPPORT", Fault::Unsupported),
    number(
        207_000,
        "ACL_ERROR_RT_FEATURE_NOT_SUPPORT",
        Fault::Unsupported,
    ),
    number(207_001, "ACL_ERROR_RT_MEMORY_ALLOCATION", Fault::Memory),
    number(207_004, "ACL_ERROR_RT_NO_DEVICE", Fault::Resource),
    number(207_008, "ACL_ERROR_RT_NO_STREAM_RESOURCE", Fault::Resource),
    number(207_018, "ACL_ERROR_RT_DEVICE_OOM", Fault::Memory),
    number(500_000, "ACL_ERROR_INTERNAL_ERROR", Fault::Internal),
    number(507_000, "ACL_ERROR_RT_INTERNAL_ERROR", Fault::Internal),
    number(507_001, "ACL_ERROR_RT_TS_ERROR", Fault::Internal),
    number(507_010, "ACL_ERROR_RT_LOST_HEARTBEAT", Fault::DeviceLost),
    number(507_012, "ACL_ERROR_RT_REPORT_TIMEOUT", Fault::Timeout),
    number(507_014, "ACL_ERROR_RT_AICORE_TIMEOUT", Fault::Timeout),
    number(507_015, "ACL_ERROR_RT_AICORE_EXCEPTION", Fault::Internal),
    number(507_017, "ACL_ERROR_RT_AICPU_TIMEOUT", Fault::Timeout),
    number(507_018, "ACL_ERROR_RT_AICPU_EXCEPTION", Fault::Internal),
    number(507_034, "ACL_ERROR_RT_VECTOR_CORE_TIMEOUT", Fault::Timeout),
    number(
        507_035,
        "ACL_ERROR_RT_VECTOR_CORE_EXCEPTION",
        Fault::Internal,
    ),
    number(507_046, "ACL_ERROR_RT_STREAM_SYNC_TIMEOUT", Fault::Timeout),
    number(507_047, "ACL_ERROR_RT_EVENT_SYNC_TIMEOUT", Fault::Timeout),
    number(507_048, "ACL_ERROR_RT_FFTS_PLUS_TIMEOUT", Fault::Timeout),
    number(507_053, "ACL_ERROR_RT_DEVICE_MEM_ERROR", Fault::DeviceLost),
    number(
        507_054,
        "ACL_ERROR_RT_HBM_MULTI_BIT_ECC_ERROR",
        Fault::DeviceLost,
    ),
    number(
        507_055,
        "ACL_ERROR_RT_SUSPECT_DEVICE_MEM_ERROR",
        Fault::DeviceLost,
    ),
    number(507_056, "ACL_ERROR_RT_LINK_ERROR", Fault::Link),
    number(507_057, "ACL_ERROR_RT_SUSPECT_REMOTE_ERROR", Fault::Link),
    number(507_899, "ACL_ERROR_RT_DRV_INTERNAL_ERROR", Fault::Internal),
    number(507_901, "ACL_ERROR_RT_SOCKET_CLOSE", Fault::DeviceLost),
    number(507_904, "ACL_ERROR_RT_COMM_OP_RETRY_FAIL", Fault::Link),
    number(507_915, "ACL_ERROR_RT_CCU_TIMEOUT", Fault::Timeout),
    number(507_916, "ACL_ERROR_RT_CCU_EXCEPTION", Fault::Internal),
];

/// A code that stands in the vendor's texts.
#[derive(Debug, PartialEq, Eq)]
pub struct Remark {
    /// The code: `EI0002`.
    pub code: &'static str,
    /// What it says about the trouble.
    pub fault: Fault,
    /// What happened, as a sentence fragment.
    pub meaning: &'static str,
    /// What to do, as a sentence fragment.
    pub remedy: &'static str,
}

const fn remark(
    code: &'static str,
    fault: Fault,
    meaning: &'static str,
    remedy: &'static str,
) -> Remark {
    Remark {
        code,
        fault,
        meaning,
        remedy,
    }
}

/// The codes that collectives raise.
pub const REMARKS: &[Remark] = &[
    remark(
        "EI0001",
        Fault::Argument,
        "a variable of the environment is out of range, or no network interface fits it",
        "correct the variable that the text names; `muster doctor` checks all of them",
    ),
    remark(
        "EI0002",
        Fault::Timeout,
        "a device waited for a peer until HCCL's execution timeout",
        "look at the rank that does not report this: it is the cause; else compare call, count and type between ranks",
    ),
    remark(
        "EI0003",
        Fault::Argument,
        "an argument of a collective call is not allowed",
        "correct the call that is named",
    ),
    remark(
        "EI0004",
        Fault::Argument,
        "the rank table cannot be read",
        "check the file with `muster ranktable`",
    ),
    remark(
        "EI0005",
        Fault::Argument,
        "ranks made one call with different arguments",
        "compare the two call sites: every rank of a group makes the same calls in the same order",
    ),
    remark(
        "EI0006",
        Fault::Link,
        "the link to a peer was not made in time",
        "see whether that rank reached the call and lives; then its device network (hccn_tool), TLS settings and ports",
    ),
    remark(
        "EI0007",
        Fault::Resource,
        "streams, notifies or queue pairs are used up",
        "use fewer communicators at a time",
    ),
    remark(
        "EI0008",
        Fault::Unsupported,
        "the ranks run different versions of HCCL",
        "install one CANN version on all hosts",
    ),
    remark(
        "EI0009",
        Fault::Link,
        "the device's network interface cannot be used",
        "check it with hccn_tool -i N -link -g, -ip -g and -ping",
    ),
    remark(
        "EI0010",
        Fault::Link,
        "devices of this server cannot reach each other directly",
        "set HCCL_INTRA_ROCE_ENABLE=1, or repair the links inside the server",
    ),
    remark(
        "EI0011",
        Fault::Memory,
        "device memory is used up",
        "lower HCCL_BUFFSIZE, or use fewer communicators at a time",
    ),
    remark(
        "EI0012",
        Fault::Link,
        "a copy between devices failed",
        "see whether the peer died or freed its buffer too early, then the links",
    ),
    remark(
        "EI0013",
        Fault::Link,
        "retransmission over RoCE was given up",
        "see whether the peer exited, then the network between the hosts",
    ),
    remark(
        "EI0014",
        Fault::Argument,
        "the rank table holds a wrong value",
        "check the file with `muster ranktable`",
    ),
    remark(
        "EI0015",
        Fault::Timeout,
        "some ranks did not come to the exchange of root information",
        "start all ranks in time; check HCCL_SOCKET_IFNAME and HCCL_CONNECT_TIMEOUT",
    ),
    remark(
        "EI0016",
        Fault::Argument,
        "a configuration value is not allowed, or TLS settings differ",
        "correct the value that is named, the same on all hosts",
    ),
    remark(
        "EI0017",
        Fault::Argument,
        "the rank table lacks a key",
        "check the file with `muster ranktable`",
    ),
    remark(
        "EI0018",
        Fault::Link,
        "retransmission over UB was given up",
        "see whether the peer exited, then the links",
    ),
    remark(
        "EI0019",
        Fault::Resource,
        "a host port is taken",
        "set HCCL_IF_BASE_PORT or HCCL_HOST_SOCKET_PORT_RANGE to free ports",
    ),
    remark(
        "EI0020",
        Fault::Resource,
        "a device port is taken",
        "set HCCL_NPU_SOCKET_PORT_RANGE, the same on all ranks",
    ),
    remark(
        "EJ0001",
        Fault::Resource,
        "the device is held by another process, or two ranks share it",
        "end the old process, wait 10 s, and give each rank a device of its own",
    ),
    remark(
        "EJ0002",
        Fault::Link,
        "the device's network port is down",
        "check cable and port with hccn_tool",
    ),
    remark(
        "EJ0003",
        Fault::Resource,
        "an address and port cannot be bound",
        "choose other ports with HCCL_IF_BASE_PORT",
    ),
    remark(
        "EJ0004",
        Fault::Argument,
        "the device's address does not pass the check",
        "compare hccn.conf with the rank table",
    ),
    remark(
        "EL0004",
        Fault::Memory,
        "device memory is used up",
        "free device memory, or use smaller buffers",
    ),
];

/// The vendor's name of a number: `HCCL_E_TIMEOUT`.
#[must_use]
pub fn name_of(code: i32) -> &'static str {
    find(code).map_or("unknown", |number| number.name)
}

/// What the codes in a text of the vendor say; the first known one counts.
#[must_use]
pub fn remark_in(text: &str) -> Option<&'static Remark> {
    REMARKS
        .iter()
        .filter_map(|remark| Some((text.find(remark.code)?, remark)))
        .min_by_key(|(at, _)| *at)
        .map(|(_, remark)| remark)
}

/// What kind of trouble an error with this number and text is.
#[must_use]
pub fn fault_of(code: i32, text: &str) -> Fault {
    let by_number = find(code).map_or(Fault::Internal, |number| number.fault);
    let vague = matches!(
        by_number,
        Fault::Internal | Fault::Resource | Fault::Timeout
    );
    // Inner errors and refused resources say why in their text only.
    match remark_in(text) {
        Some(remark) if vague => remark.fault,
        Some(_) | None => by_number,
    }
}

fn find(code: i32) -> Option<&'static Number> {
    NUMBERS.iter().find(|number| number.code == code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_codes_are_unique() {
        for (at, number) in NUMBERS.iter().enumerate() {
            let twice = |other: &Number| other.code == number.code || other.name == number.name;
            assert!(!NUMBERS[..at].iter().any(twice), "{}", number.name);
        }
        for (at, remark) in REMARKS.iter().enumerate() {
            assert!(!REMARKS[..at].iter().any(|other| other.code == remark.code));
            assert!(!remark.meaning.ends_with('.') && !remark.remedy.ends_with('.'));
        }
    }

    #[test]
    fn the_text_of_an_error_says_more_than_a_vague_number() {
        let text = "[PID: 7] Communication_Error_Timeout(EI0002): the wait of device 1 timed out";
        assert_eq!(fault_of(507_048, text), Fault::Timeout);
        assert_eq!(fault_of(4, "Get_Socket(EI0006): rank 3"), Fault::Link);
        assert_eq!(fault_of(7, "(EJ0003) bind failed"), Fault::Resource);
        assert_eq!(fault_of(4, "(EI0011)"), Fault::Memory);
        assert_eq!(fault_of(507_010, text), Fault::DeviceLost);
        assert_eq!(fault_of(99, ""), Fault::Internal);
        assert_eq!(name_of(9), "HCCL_E_TIMEOUT");
        assert_eq!(name_of(-5), "unknown");
    }

    #[test]
    fn the_first_code_in_a_text_counts() {
        let text = "EI0006: no socket; then EI0002";
        assert_eq!(remark_in(text).map(|remark| remark.code), Some("EI0006"));
        assert_eq!(remark_in("nothing"), None);
    }
}
