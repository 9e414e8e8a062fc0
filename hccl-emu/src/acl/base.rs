//! Start and end, versions, errors, and small conversions that need no device.

use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::{MutexGuard, OnceLock, PoisonError};

use super::abi::{Out, Text, exports, null};
use super::guard::guard;
use crate::options::cann_version;
use crate::runtime::errors::{self, AclError, RuntimeError};
use crate::runtime::{notice, state, state::State};

/// Sizes of the fields of `aclCANNPackageVersion`.
const VERSION_BYTES: usize = 128;
const PART_BYTES: usize = 64;
/// The version of the ACL interface that `aclrtGetVersion` gives.
const ACL_VERSION: (i32, i32, i32) = (1, 16, 0);

/// `muster-emu VERSION, emulating CANN VERSION`: a symbol that only the emulator has. Who asks needs
/// no notice any more.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn muster_emu_version() -> *const c_char {
    static TEXT: OnceLock<CString> = OnceLock::new();
    notice::is_known();
    let text = TEXT.get_or_init(|| {
        let own = env!("CARGO_PKG_VERSION");
        let text = format!("muster-emu {own}, emulating CANN {}", state().cann());
        CString::new(text).unwrap_or_default()
    });
    text.as_ptr()
}

/// The lines of the calling thread's errors since the last call, latest first; null if none.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn aclGetRecentErrMsg() -> *const c_char {
    errors::take_recent()
}

/// The calling thread's last error code, which stays.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn aclrtPeekAtLastError(level: c_int) -> i32 {
    last_error("aclrtPeekAtLastError", level, false)
}

/// The calling thread's last error code, which is then forgotten.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn aclrtGetLastError(level: c_int) -> i32 {
    last_error("aclrtGetLastError", level, true)
}

fn last_error(call: &'static str, level: c_int, clear: bool) -> i32 {
    if level == 0 {
        return errors::last_error(clear).0;
    }
    guard(call, || {
        Err(RuntimeError::new(
            AclError::INVALID_PARAM,
            format!("level is {level}; allowed: 0 (thread)"),
        ))
    })
    .0
}

/// A client's own lines are not logged. In C it takes further arguments, which a callee may ignore.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn aclAppLog(
    _level: c_int,
    _function: *const c_char,
    _file: *const c_char,
    _line: u32,
    _format: *const c_char,
) {
}

/// Bytes of an element of an `aclDataType`; 0 for those that are none.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn aclDataTypeSize(kind: c_int) -> usize {
    match kind {
        // ACL_INT8, ACL_UINT8, ACL_BOOL.
        2 | 4 | 12 => 1,
        // ACL_FLOAT16, ACL_INT16, ACL_UINT16, ACL_BF16.
        1 | 6 | 7 | 27 => 2,
        // ACL_FLOAT, ACL_INT32, ACL_UINT32.
        0 | 3 | 8 => 4,
        // ACL_INT64, ACL_UINT64, ACL_DOUBLE.
        9..=11 => 8,
        _ => 0,
    }
}

/// Widens an `aclFloat16`, exactly.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn aclFloat16ToFloat(value: u16) -> f32 {
    half::f16::from_bits(value).to_f32()
}

/// Rounds to the nearest `aclFloat16`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn aclFloatToFloat16(value: f32) -> u16 {
    half::f16::from_f32(value).to_bits()
}

exports! {
    /// Starts the use of the runtime. A second call says that it is one, and counts.
    fn aclInit(config: Text) {
        state().options()?;
        if let Some(path) = config.get().filter(|path| !path.is_empty())
            && let Err(error) = std::fs::File::open(&path)
        {
            let text = format!("{path}: {error}");
            return Err(RuntimeError::new(AclError::INVALID_FILE, text));
        }
        let mut count = users(state());
        *count += 1;
        if *count > 1 {
            let text = "the runtime is already initialised in this process (harmless)";
            return Err(RuntimeError::new(AclError::REPEAT_INITIALIZE, text));
        }
        Ok(())
    }

    /// Ends the use of the runtime by all parts of the process.
    fn aclFinalize() {
        let mut count = users(state());
        if *count == 0 {
            let text = "the runtime is not initialised in this process";
            return Err(RuntimeError::new(AclError::REPEAT_FINALIZE, text));
        }
        *count = 0;
        Ok(())
    }

    /// Ends the use of the runtime by one part of the process, and says how many are left.
    fn aclFinalizeReference(left: Out<u64>) {
        let mut count = users(state());
        if *count == 0 {
            let text = "the runtime is not initialised in this process";
            return Err(RuntimeError::new(AclError::REPEAT_FINALIZE, text));
        }
        *count -= 1;
        if left.absent() { Ok(()) } else { left.set("refCount", *count) }
    }

    /// The version of the interface, which is not that of CANN.
    fn aclrtGetVersion(major: Out<i32>, minor: Out<i32>, patch: Out<i32>) {
        major.set("majorVersion", ACL_VERSION.0)?;
        minor.set("minorVersion", ACL_VERSION.1)?;
        patch.set("patchVersion", ACL_VERSION.2)
    }

    /// The version of a package of CANN as a number; all packages have the emulated one.
    fn aclsysGetVersionNum(package: Text, number: Out<i32>) {
        package.get().ok_or_else(|| null("pkgName"))?;
        let version = cann_version(state().cann()).and_then(|version| version.number());
        let missing = || {
            let text = format!("CANN {} has no version number: it has no third part", state().cann());
            RuntimeError::new(AclError::API_NOT_SUPPORT, text)
        };
        number.set("versionNum", version.ok_or_else(missing)?)
    }

    /// The version of a package of CANN as text, which says that it is emulated. The caller has
    /// 128 bytes of room.
    fn aclsysGetVersionStr(package: Text, text: Out<u8>) {
        package.get().ok_or_else(|| null("pkgName"))?;
        let version = format!("{}-emulated", state().cann());
        text.fill("versionStr", &padded::<VERSION_BYTES>(&version))
    }

    /// The version of a package of CANN in parts; the whole one says that it is emulated.
    fn aclsysGetCANNVersion(package: c_int, version: Out<PackageVersion>) {
        if !(0..=7).contains(&package) {
            let text = format!("package {package}; allowed: 0 to 7");
            return Err(RuntimeError::new(AclError::INVALID_PARAM, text));
        }
        version.set("version", PackageVersion::new(state().cann()))
    }

    /// Accepted, and never called: no kernel runs on an emulated device.
    fn aclrtSetExceptionInfoCallback(_callback: *const c_void) {
        Ok(())
    }

    /// Accepted, and never called.
    fn aclrtExceptionInfoCallbackRegister(callback: *const c_void) {
        if callback.is_null() { Err(null("callback")) } else { Ok(()) }
    }

    /// Accepted.
    fn aclrtExceptionInfoCallbackUnregister(callback: *const c_void) {
        if callback.is_null() { Err(null("callback")) } else { Ok(()) }
    }
}

/// `aclCANNPackageVersion`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct PackageVersion {
    version: [u8; VERSION_BYTES],
    major: [u8; PART_BYTES],
    minor: [u8; PART_BYTES],
    release: [u8; PART_BYTES],
    patch: [u8; PART_BYTES],
    reserved: [u8; VERSION_BYTES],
}

const _: () = assert!(size_of::<PackageVersion>() == 512);

impl PackageVersion {
    fn new(version: &str) -> Self {
        let mut parts = version.split('.');
        let mut part = || padded(parts.next().unwrap_or("0"));
        Self {
            version: padded(&format!("{version}-emulated")),
            major: part(),
            minor: part(),
            release: part(),
            patch: part(),
            reserved: [0; VERSION_BYTES],
        }
    }
}

/// `text` in a field of `N` bytes, cut so that a NUL stands behind it.
fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [0; N];
    let length = text.len().min(N - 1);
    field[..length].copy_from_slice(&text.as_bytes()[..length]);
    field
}

fn users(state: &State) -> MutexGuard<'_, u64> {
    state
        .process
        .initialized
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}
