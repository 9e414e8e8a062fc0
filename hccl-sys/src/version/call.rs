//! Versions that the loaded libraries state themselves, from CANN 8.5 on.

#![expect(unsafe_code, reason = "functions of the runtime are called")]

use std::ffi::{CStr, CString, c_char};
use std::fmt;

use crate::symbols::{Api, MissingSymbol};
use crate::types::AclError;

/// Bytes for an answer; the runtime writes at most 128.
const ANSWER_BYTES: usize = 1024;

/// Why a library did not state a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// The call is not there, as before CANN 8.5.
    Missing(MissingSymbol),
    /// The name of the package holds a zero.
    Name,
    /// The call failed.
    Refused(AclError),
    /// The answer is not closed, or no UTF-8.
    Unreadable,
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(missing) => missing.fmt(f),
            Self::Name => f.write_str("the name of the package holds a zero"),
            Self::Refused(error) => write!(f, "the version was refused: {error}"),
            Self::Unreadable => f.write_str("the version stated is no readable text"),
        }
    }
}

impl std::error::Error for CallError {}

/// What `aclsysGetVersionStr` states for a package: `runtime`, `hccl`, `hcomm`, `driver`, ...
///
/// # Errors
/// See [`CallError`].
pub fn package_version(api: &Api, package: &str) -> Result<String, CallError> {
    let ask = api
        .acl()
        .aclsysGetVersionStr()
        .map_err(CallError::Missing)?;
    let mut name = CString::new(package)
        .map_err(|_| CallError::Name)?
        .into_bytes_with_nul();
    let mut answer = [0_u8; ANSWER_BYTES];
    // SAFETY: the name is closed with a zero and writable, as the signature asks; the answer has
    // room for eight times what the runtime writes; both live for the whole call.
    let result = unsafe {
        ask(
            name.as_mut_ptr().cast::<c_char>(),
            answer.as_mut_ptr().cast::<c_char>(),
        )
    };
    result.check().map_err(CallError::Refused)?;
    let text = CStr::from_bytes_until_nul(&answer).map_err(|_| CallError::Unreadable)?;
    text.to_str()
        .map(str::to_owned)
        .map_err(|_| CallError::Unreadable)
}

/// What `aclrtGetVersion` states: the version of the runtime's interface, not that of CANN.
///
/// # Errors
/// See [`CallError`].
pub fn api_version(api: &Api) -> Result<[i32; 3], CallError> {
    let ask = api.acl().aclrtGetVersion().map_err(CallError::Missing)?;
    let [mut major, mut minor, mut patch] = [0; 3];
    // SAFETY: three places for one number each, which live for the whole call.
    let result = unsafe { ask(&raw mut major, &raw mut minor, &raw mut patch) };
    result.check().map_err(CallError::Refused)?;
    Ok([major, minor, patch])
}
