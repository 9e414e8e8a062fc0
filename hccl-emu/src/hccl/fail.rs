//! How a call or a task of the collectives fails: result, label, text.
//!
//! - `FAIL-1`: every failed call leaves a line that the calling thread can read with
//!   `aclGetRecentErrMsg`, under the vendor's code and title.

use std::panic::{AssertUnwindSafe, catch_unwind};

use hccl_sys::types::HcclResult;

use crate::runtime::errors::{AclError, Label, RuntimeError, report};

/// A variable of the environment is out of range.
pub(crate) const EI0001: Label = Label::new("EI0001", "Config_Error_Invalid_Environment_Variable");
/// A device waited too long for a peer.
pub(crate) const EI0002: Label = Label::new("EI0002", "Communication_Error_Timeout");
/// A wrong argument.
pub(crate) const EI0003: Label = Label::new(
    "EI0003",
    "Invalid_Argument_Collective_Communication_Operator",
);
/// A rank table that cannot be read or parsed.
pub(crate) const EI0004: Label = Label::new("EI0004", "File_Operation_Error_Parse");
/// Arguments differ between ranks.
pub(crate) const EI0005: Label = Label::new("EI0005", "Invalid_Argument");
/// No link to a peer.
pub(crate) const EI0006: Label = Label::new("EI0006", "Communication_Error_Get_Socket");
/// Something of the host is used up.
pub(crate) const EI0007: Label = Label::new("EI0007", "Resource_Error");
/// Versions differ between ranks.
pub(crate) const EI0008: Label = Label::new("EI0008", "Package_Error_Incorrect_HCCL_Version");
/// Device memory is used up.
pub(crate) const EI0011: Label = Label::new("EI0011", "Resource_Error_Insufficient_Device_Memory");
/// Data does not get through to a peer.
pub(crate) const EI0012: Label = Label::new("EI0012", "Execution_Error_SDMA");
/// Retransmission to a peer is exhausted.
pub(crate) const EI0013: Label = Label::new("EI0013", "Execution_Error_ROCE_CQE");
/// A value in a rank table.
pub(crate) const EI0014: Label = Label::new("EI0014", "Config_Error_Ranktable");
/// Ranks did not come to the exchange.
pub(crate) const EI0015: Label = Label::new("EI0015", "Communication_Error_Ranktable_Detect");
/// A value of a configuration.
pub(crate) const EI0016: Label = Label::new("EI0016", "Config_Error");
/// A key that a rank table lacks.
pub(crate) const EI0017: Label = Label::new("EI0017", "Config_Error_Ranktable");
/// A host port that cannot be bound, from CANN 9 on.
pub(crate) const EI0019: Label = Label::new("EI0019", "Communication_Error_Bind_IP_Port");
/// A device that another process, or another rank, holds.
pub(crate) const EJ0001: Label = Label::new("EJ0001", "Environment_Error_Device_In_Use");
/// A host port that cannot be bound, before CANN 9.
pub(crate) const EJ0003: Label = Label::new("EJ0003", "Communication_Error_Bind_IP_Port");

/// The path to a peer broke while both sides live: `ACL_ERROR_RT_LINK_ERROR`.
pub(crate) const RT_LINK_ERROR: AclError = AclError(507_056);

/// A failed call.
#[derive(Clone, Debug)]
pub(crate) struct Fail {
    /// What the caller gets.
    pub(crate) result: HcclResult,
    /// Head of the line that it can read.
    pub(crate) label: Label,
    /// Rest of the line.
    pub(crate) text: String,
}

/// Runs the body of an export: an error becomes its number and a line of the calling thread
/// (`FAIL-1`), a panic an internal error.
pub(crate) fn answer(call: &'static str, body: impl FnOnce() -> Answer) -> HcclResult {
    let outcome = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        Err(Fail::new(
            HcclResult::HCCL_E_INTERNAL,
            Label::EXECUTION,
            format!("{call}: the emulator panicked"),
        ))
    });
    match outcome {
        Ok(()) => HcclResult::HCCL_SUCCESS,
        Err(fail) => fail.report(),
    }
}

/// What every call gives before it becomes a number.
pub(crate) type Answer<T = ()> = Result<T, Fail>;

impl Fail {
    pub(crate) fn new(result: HcclResult, label: Label, text: impl Into<String>) -> Self {
        Self {
            result,
            label,
            text: text.into(),
        }
    }

    /// A value that the argument cannot have.
    pub(crate) fn para(text: impl Into<String>) -> Self {
        Self::new(HcclResult::HCCL_E_PARA, EI0003, text)
    }

    /// A null pointer.
    pub(crate) fn null(call: &str, argument: &str) -> Self {
        Self::new(
            HcclResult::HCCL_E_PTR,
            EI0003,
            format!("{call}: {argument} is a null pointer"),
        )
    }

    /// Something that the product, or the emulator, does not do.
    pub(crate) fn unsupported(text: impl Into<String>) -> Self {
        Self::new(HcclResult::HCCL_E_NOT_SUPPORT, EI0003, text)
    }

    /// A call of the runtime failed.
    pub(crate) fn runtime(error: &RuntimeError) -> Self {
        let text = format!("{} ({})", error.text, error.code.0);
        Self::new(HcclResult::HCCL_E_RUNTIME, error.label, text)
    }

    /// The same, said of `call`.
    pub(crate) fn under(self, call: &str) -> Self {
        let text = format!("{call}: {}", self.text);
        Self { text, ..self }
    }

    /// Leaves the line in the calling thread and gives the number.
    pub(crate) fn report(&self) -> HcclResult {
        report(self.label, &self.text);
        self.result
    }
}

/// The error of a task, which a synchronisation of its stream returns.
pub(crate) fn task_error(code: AclError, label: Label, text: impl Into<String>) -> RuntimeError {
    RuntimeError {
        code,
        label,
        text: text.into(),
    }
}
