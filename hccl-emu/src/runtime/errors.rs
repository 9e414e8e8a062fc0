//! Error codes of the runtime, and the texts that a client reads with `aclGetRecentErrMsg`.
//!
//! A call that fails leaves a line in its thread: title and code as the vendor prints them, then
//! `emulated:` and what was wrong with what. Lines are read latest first, and reading takes them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::CString;
use std::fmt;

/// Most lines that a thread keeps: older ones than that explain nothing any more.
const LINES_MAX: usize = 16;
/// Longest line, in bytes.
const LINE_BYTES_MAX: usize = 2048;

/// A result of the runtime (`aclError`); values from the facts, tested against them.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct AclError(pub i32);

/// Declares codes with their names, for output and for the test against the facts.
macro_rules! codes {
    ($($name:ident = $value:literal;)*) => {
        impl AclError {
            $(
                #[doc = concat!("`ACL_ERROR_", stringify!($name), "`")]
                pub const $name: Self = Self($value);
            )*

            /// All codes that the emulator gives, as (name, code).
            pub const ALL: &[(&'static str, Self)] = &[$((stringify!($name), Self($value))),*];
        }
    };
}

codes! {
    NONE = 0;
    INVALID_PARAM = 100_000;
    UNINITIALIZE = 100_001;
    REPEAT_INITIALIZE = 100_002;
    INVALID_FILE = 100_003;
    REPEAT_FINALIZE = 100_037;
    RT_PARAM_INVALID = 107_000;
    RT_INVALID_DEVICEID = 107_001;
    RT_CONTEXT_NULL = 107_002;
    RT_STREAM_CONTEXT = 107_003;
    RT_EVENT_TIMESTAMP_INVALID = 107_006;
    RT_STREAM_SUBSCRIBE = 107_011;
    RT_THREAD_SUBSCRIBE = 107_012;
    RT_STREAM_NO_CB_REG = 107_015;
    RT_INVALID_HANDLE = 107_017;
    RT_WAIT_TIMEOUT = 107_019;
    RT_TASK_TIMEOUT = 107_020;
    RT_SYSPARAMOPT_NOT_SET = 107_021;
    RT_DEVICE_TASK_ABORT = 107_022;
    RT_STREAM_ABORT = 107_023;
    BAD_ALLOC = 200_000;
    API_NOT_SUPPORT = 200_001;
    RT_FEATURE_NOT_SUPPORT = 207_000;
    RT_MEMORY_ALLOCATION = 207_001;
    RT_NO_DEVICE = 207_004;
    RT_NO_STREAM_RESOURCE = 207_008;
    RT_DEVICE_OOM = 207_018;
    INTERNAL_ERROR = 500_000;
    RT_INTERNAL_ERROR = 507_000;
    RT_STREAM_TASK_FULL = 507_002;
    RT_LOST_HEARTBEAT = 507_010;
    RT_REPORT_TIMEOUT = 507_012;
    RT_STREAM_SYNC_TIMEOUT = 507_046;
    RT_EVENT_SYNC_TIMEOUT = 507_047;
    RT_FFTS_PLUS_TIMEOUT = 507_048;
    RT_DEVICE_MEM_ERROR = 507_053;
    RT_SUSPECT_REMOTE_ERROR = 507_057;
    RT_DRV_INTERNAL_ERROR = 507_899;
    RT_SOCKET_CLOSE = 507_901;
}

impl AclError {
    /// The vendor's name of the code.
    #[must_use]
    pub fn name(self) -> String {
        match Self::ALL.iter().find(|(_, code)| *code == self) {
            Some((name, _)) => format!("ACL_ERROR_{name}"),
            None => format!("ACL_ERROR {}", self.0),
        }
    }
}

impl fmt::Debug for AclError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.0)
    }
}

/// The head of a line: a code such as `EE1001` with its title.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// Such as `EE1001`.
    pub code: &'static str,
    /// Such as `Invalid_Argument`.
    pub title: &'static str,
}

/// Labels of the runtime. The collectives have their own (`EI…`).
impl Label {
    /// A wrong argument of a runtime call.
    pub const ARGUMENT: Self = Self::new("EE1001", "Invalid_Argument");
    /// Something of the host or the environment is wrong.
    pub const ENVIRONMENT: Self = Self::new("EE1003", "Config_Error");
    /// Memory, streams or events are used up.
    pub const RESOURCE: Self = Self::new("EL0004", "Resource_Error_Insufficient_Device_Memory");
    /// A wait was not answered in time, or a task failed.
    pub const EXECUTION: Self = Self::new("EE9999", "Inner_Error");
    /// Not emulated, or not on this product.
    pub const UNSUPPORTED: Self = Self::new("EE1006", "Not_Supported");

    /// A label of one's own.
    #[must_use]
    pub const fn new(code: &'static str, title: &'static str) -> Self {
        Self { code, title }
    }
}

/// Why a call or a task of the runtime failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeError {
    /// What the client gets.
    pub code: AclError,
    /// Head of the line that it can read.
    pub label: Label,
    /// Rest of the line: lower case, both sides of what does not fit, no advice.
    pub text: String,
}

impl RuntimeError {
    /// An error with the label that goes with its code.
    #[must_use]
    pub fn new(code: AclError, text: impl Into<String>) -> Self {
        let label = match code {
            AclError::RT_MEMORY_ALLOCATION | AclError::RT_DEVICE_OOM | AclError::BAD_ALLOC => {
                Label::RESOURCE
            }
            AclError::RT_FEATURE_NOT_SUPPORT | AclError::API_NOT_SUPPORT => Label::UNSUPPORTED,
            AclError::RT_NO_DEVICE => Label::ENVIRONMENT,
            AclError(500_000..) => Label::EXECUTION,
            _ => Label::ARGUMENT,
        };
        Self {
            code,
            label,
            text: text.into(),
        }
    }

    /// A wrong argument: `ACL_ERROR_RT_PARAM_INVALID`.
    #[must_use]
    pub fn argument(text: impl Into<String>) -> Self {
        Self::new(AclError::RT_PARAM_INVALID, text)
    }
}

impl fmt::Display for RuntimeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.code, self.text)
    }
}

impl std::error::Error for RuntimeError {}

/// What one thread remembers of its errors.
#[derive(Default)]
struct Recent {
    lines: VecDeque<String>,
    /// The text that the last reader got: it stays valid until the next reading.
    read: Option<CString>,
    last: i32,
}

thread_local! {
    static RECENT: RefCell<Recent> = RefCell::new(Recent::default());
}

/// Leaves a line in the calling thread; `emulated:` and the vendor's form are added here.
pub fn report(label: Label, text: &str) {
    let mut line = format!(
        "[PID: {}] {} {}({}): emulated: {text}",
        std::process::id(),
        time_stamp(),
        label.title,
        label.code,
    );
    if line.len() > LINE_BYTES_MAX {
        let end = (0..=LINE_BYTES_MAX)
            .rev()
            .find(|at| line.is_char_boundary(*at));
        line.truncate(end.unwrap_or(0));
    }
    let line = line.replace('\0', " ");
    super::notice::failed(&line);
    // A thread that is ending has nobody left to read it.
    let _ = RECENT.try_with(|recent| {
        let mut recent = recent.borrow_mut();
        recent.lines.truncate(LINES_MAX - 1);
        recent.lines.push_front(line);
    });
}

/// Leaves the line and the code of a failed call in the calling thread, and gives back the code.
pub fn fail(error: &RuntimeError) -> AclError {
    report(error.label, &error.text);
    let _ = RECENT.try_with(|recent| recent.borrow_mut().last = error.code.0);
    error.code
}

/// Takes the calling thread's lines, latest first; null if there is nothing new.
///
/// The text belongs to the thread and stays valid until its next call of this function.
#[must_use]
pub fn take_recent() -> *const std::ffi::c_char {
    let taken = RECENT.try_with(|recent| {
        let mut recent = recent.borrow_mut();
        if recent.lines.is_empty() {
            return std::ptr::null();
        }
        let lines: Vec<String> = recent.lines.drain(..).collect();
        recent.read = CString::new(lines.join("\n")).ok();
        recent
            .read
            .as_ref()
            .map_or(std::ptr::null(), |text| text.as_ptr())
    });
    taken.unwrap_or(std::ptr::null())
}

/// The code of the calling thread's last failed call; forgets it if `clear`.
#[must_use]
pub fn last_error(clear: bool) -> AclError {
    let last = RECENT.try_with(|recent| {
        let mut recent = recent.borrow_mut();
        let last = recent.last;
        if clear {
            recent.last = 0;
        }
        last
    });
    AclError(last.unwrap_or(0))
}

/// The local time in the vendor's form, such as `2025-04-22-10:30:24.123.456`.
fn time_stamp() -> String {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    let seconds = libc::time_t::try_from(now.as_secs()).unwrap_or(0);
    let micros = now.subsec_micros();
    // SAFETY: all-zero is a valid `tm`: numbers and a null pointer.
    let mut parts: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live locals; `localtime_r` keeps neither.
    unsafe { libc::localtime_r(&raw const seconds, &raw mut parts) };
    format!(
        "{:04}-{:02}-{:02}-{:02}:{:02}:{:02}.{:03}.{:03}",
        parts.tm_year + 1900,
        parts.tm_mon + 1,
        parts.tm_mday,
        parts.tm_hour,
        parts.tm_min,
        parts.tm_sec,
        micros / 1000,
        micros % 1000
    )
}
