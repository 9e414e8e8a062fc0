//! What the vendor's numbers and codes mean to a run: what kind of trouble they are.
//!
//! Two ranges of numbers that never meet: HCCL's results (0 to 1041) and the runtime's errors (from
//! 100000 on). Texts of the vendor carry codes such as `EI0002`, which say more than the number.
//! Names, meanings and remedies stand in `hccl-sys`. Nothing here calls anything.

use hccl_sys::codes;
pub use hccl_sys::codes::VendorCode;
use hccl_sys::types::{AclError, HcclResult};

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

/// The vendor's name of a number: `HCCL_E_TIMEOUT`.
#[must_use]
pub fn name_of(code: i32) -> &'static str {
    HcclResult(code)
        .name()
        .or_else(|| AclError(code).name())
        .unwrap_or("unknown")
}

/// What the codes in a text of the vendor say; the first one that tells a kind of trouble counts.
#[must_use]
pub fn remark_in(text: &str) -> Option<&'static VendorCode> {
    let mut known = codes::find(text).into_iter();
    known.find(|known| fault_of_remark(known).is_some())
}

/// What kind of trouble an error with this number and text is.
#[must_use]
pub fn fault_of(code: i32, text: &str) -> Fault {
    let by_number = fault_of_result(HcclResult(code))
        .or_else(|| fault_of_error(AclError(code)))
        .unwrap_or(Fault::Internal);
    let vague = matches!(
        by_number,
        Fault::Internal | Fault::Resource | Fault::Timeout
    );
    // Inner errors and refused resources say why in their text only.
    match remark_in(text).and_then(fault_of_remark) {
        Some(fault) if vague => fault,
        Some(_) | None => by_number,
    }
}

/// What to do about an error of the vendor: by the code in its text, else by its kind.
#[must_use]
pub fn help(code: i32, detail: &str) -> &'static str {
    if let Some(remark) = remark_in(detail) {
        return remark.remedy;
    }
    match fault_of(code, detail) {
        Fault::Argument => "correct the call that is named",
        Fault::DeviceLost => "look at the device (npu-smi info, dmesg) and restart all ranks",
        Fault::Internal => "read the vendor's log (ascend/log in the home folder)",
        Fault::Link => "check the links of the devices (hccn_tool), and restart all ranks",
        Fault::Memory => {
            "free device memory: smaller buffers, fewer communicators, lower HCCL_BUFFSIZE"
        }
        Fault::Resource => "see who holds the device or port, or raise the limit",
        Fault::Timeout => "look at the rank that does not report a timeout: it is the cause",
        Fault::Unsupported => "use a call that this product and CANN version have",
    }
}

/// The results of HCCL that are no inner errors.
const fn fault_of_result(result: HcclResult) -> Option<Fault> {
    Some(match result {
        HcclResult::HCCL_E_PARA
        | HcclResult::HCCL_E_PTR
        | HcclResult::HCCL_E_AGAIN
        | HcclResult::HCCL_E_SUSPENDING => Fault::Argument,
        HcclResult::HCCL_E_TCP_CONNECT
        | HcclResult::HCCL_E_ROCE_CONNECT
        | HcclResult::HCCL_E_TCP_TRANSFER
        | HcclResult::HCCL_E_ROCE_TRANSFER
        | HcclResult::HCCL_E_NETWORK
        | HcclResult::HCCL_E_REMOTE
        | HcclResult::HCCL_E_OPRETRY_FAIL => Fault::Link,
        HcclResult::HCCL_E_MEMORY | HcclResult::HCCL_E_OOM => Fault::Memory,
        HcclResult::HCCL_E_UNAVAIL | HcclResult::HCCL_E_OPEN_FILE_FAILURE => Fault::Resource,
        HcclResult::HCCL_E_TIMEOUT => Fault::Timeout,
        HcclResult::HCCL_E_NOT_SUPPORT => Fault::Unsupported,
        _ => return None,
    })
}

/// The errors of the runtime that a client of collectives may meet and that are no inner ones.
const fn fault_of_error(error: AclError) -> Option<Fault> {
    Some(match error {
        AclError::ACL_ERROR_INVALID_PARAM
        | AclError::ACL_ERROR_UNINITIALIZE
        | AclError::ACL_ERROR_REPEAT_INITIALIZE
        | AclError::ACL_ERROR_REPEAT_FINALIZE
        | AclError::ACL_ERROR_RT_PARAM_INVALID
        | AclError::ACL_ERROR_RT_CONTEXT_NULL
        | AclError::ACL_ERROR_RT_STREAM_CONTEXT => Fault::Argument,
        AclError::ACL_ERROR_RT_LOST_HEARTBEAT
        | AclError::ACL_ERROR_RT_DEVICE_MEM_ERROR
        | AclError::ACL_ERROR_RT_HBM_MULTI_BIT_ECC_ERROR
        | AclError::ACL_ERROR_RT_SUSPECT_DEVICE_MEM_ERROR
        | AclError::ACL_ERROR_RT_SOCKET_CLOSE => Fault::DeviceLost,
        AclError::ACL_ERROR_RT_LINK_ERROR
        | AclError::ACL_ERROR_RT_SUSPECT_REMOTE_ERROR
        | AclError::ACL_ERROR_RT_COMM_OP_RETRY_FAIL => Fault::Link,
        AclError::ACL_ERROR_BAD_ALLOC
        | AclError::ACL_ERROR_RT_MEMORY_ALLOCATION
        | AclError::ACL_ERROR_RT_DEVICE_OOM => Fault::Memory,
        AclError::ACL_ERROR_RT_INVALID_DEVICEID
        | AclError::ACL_ERROR_RT_NO_DEVICE
        | AclError::ACL_ERROR_RT_NO_STREAM_RESOURCE => Fault::Resource,
        AclError::ACL_ERROR_RT_WAIT_TIMEOUT
        | AclError::ACL_ERROR_RT_TASK_TIMEOUT
        | AclError::ACL_ERROR_RT_REPORT_TIMEOUT
        | AclError::ACL_ERROR_RT_AICORE_TIMEOUT
        | AclError::ACL_ERROR_RT_AICPU_TIMEOUT
        | AclError::ACL_ERROR_RT_VECTOR_CORE_TIMEOUT
        | AclError::ACL_ERROR_RT_STREAM_SYNC_TIMEOUT
        | AclError::ACL_ERROR_RT_EVENT_SYNC_TIMEOUT
        | AclError::ACL_ERROR_RT_FFTS_PLUS_TIMEOUT
        | AclError::ACL_ERROR_RT_CCU_TIMEOUT => Fault::Timeout,
        AclError::ACL_ERROR_API_NOT_SUPPORT | AclError::ACL_ERROR_RT_FEATURE_NOT_SUPPORT => {
            Fault::Unsupported
        }
        _ => return None,
    })
}

/// The codes in texts that tell a kind of trouble: those of collectives, and of memory.
fn fault_of_remark(remark: &VendorCode) -> Option<Fault> {
    Some(match remark.code {
        "EI0001" | "EI0003" | "EI0004" | "EI0005" | "EI0014" | "EI0016" | "EI0017" | "EJ0004" => {
            Fault::Argument
        }
        "EI0006" | "EI0009" | "EI0010" | "EI0012" | "EI0013" | "EI0018" | "EJ0002" => Fault::Link,
        "EI0011" | "EL0004" => Fault::Memory,
        "EI0007" | "EI0019" | "EI0020" | "EJ0001" | "EJ0003" => Fault::Resource,
        "EI0002" | "EI0015" => Fault::Timeout,
        "EI0008" => Fault::Unsupported,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_of_collectives_tells_a_kind_of_trouble() {
        for known in codes::CODES {
            let of_collectives = known.code.starts_with("EI") || known.code.starts_with("EJ");
            let tells = fault_of_remark(known).is_some();
            assert_eq!(tells, of_collectives || known.code == "EL0004", "{known:?}");
        }
    }

    #[test]
    fn no_result_of_hccl_is_an_error_of_the_runtime() {
        for named in HcclResult::VALUES.iter().filter(|named| named.value != 0) {
            assert!(
                AclError::VALUES
                    .iter()
                    .all(|error| error.value != named.value)
            );
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
        assert_eq!(fault_of(507_048, "EE9999, then EI0006"), Fault::Link);
        assert_eq!(name_of(507_048), "ACL_ERROR_RT_FFTS_PLUS_TIMEOUT");
        assert_eq!(name_of(-5), "unknown");
    }

    #[test]
    fn the_first_code_in_a_text_counts() {
        let text = "EI0006: no socket; then EI0002";
        assert_eq!(remark_in(text).map(|remark| remark.code), Some("EI0006"));
        assert_eq!(remark_in("nothing"), None);
        assert_eq!(remark_in("EE9999 alone"), None);
    }
}
