//! The C side of an export: pointers that a caller passes, and the macro that declares exports.

use std::ffi::{CStr, c_char, c_void};

use crate::runtime::errors::{AclError, RuntimeError};

/// Where a C caller wants a value written.
///
/// It comes from C callers only, who promise that it is null or valid for writing one `T`.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Whether the caller passed nothing.
    pub(crate) fn absent(self) -> bool {
        self.0.is_null()
    }

    /// Writes `value`; `what` is the argument's name.
    pub(crate) fn set(self, what: &str, value: T) -> Result<(), RuntimeError> {
        if self.0.is_null() {
            return Err(null(what));
        }
        // SAFETY: by the promise of the type the pointer is valid for writing a `T`; C callers may
        // pass any alignment.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// That the pointer is there, before work is done for it.
    pub(crate) fn check(self, what: &str) -> Result<Self, RuntimeError> {
        if self.0.is_null() {
            Err(null(what))
        } else {
            Ok(self)
        }
    }

    /// Writes `values` one behind the other; the caller promises room for them.
    pub(crate) fn fill(self, what: &str, values: &[T]) -> Result<(), RuntimeError>
    where
        T: Copy,
    {
        if self.0.is_null() {
            return Err(null(what));
        }
        for (position, value) in values.iter().enumerate() {
            let place = self.0.wrapping_add(position);
            // SAFETY: the caller of the C function promises room for as many values as the function
            // is documented to write.
            unsafe { place.write_unaligned(*value) };
        }
        Ok(())
    }
}

/// A value that a C caller passes by pointer.
///
/// It comes from C callers only, who promise that it is null or valid for reading one `T`.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct In<T>(*const T);

impl<T: Copy> In<T> {
    /// The value; `what` is the argument's name.
    pub(crate) fn get(self, what: &str) -> Result<T, RuntimeError> {
        self.optional().ok_or_else(|| null(what))
    }

    /// The value, if one was passed.
    pub(crate) fn optional(self) -> Option<T> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: by the promise of the type the pointer is valid for reading a `T`.
        Some(unsafe { self.0.read_unaligned() })
    }
}

/// A text that a C caller passes.
///
/// It comes from C callers only, who promise that it is null or ends with a NUL.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct Text(*const c_char);

impl Text {
    /// The text, if one was passed; bytes that are no UTF-8 are replaced.
    pub(crate) fn get(self) -> Option<String> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: by the promise of the type the text ends with a NUL and lives during the call.
        let text = unsafe { CStr::from_ptr(self.0) };
        Some(text.to_string_lossy().into_owned())
    }
}

/// The error for a null pointer that may not be one.
pub(crate) fn null(what: &str) -> RuntimeError {
    RuntimeError::new(AclError::INVALID_PARAM, format!("{what} is null"))
}

/// A pointer of the caller as a number that can move to another thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address(pub(crate) *mut c_void);

// SAFETY: it is an address only; who follows it has to prove that it may.
unsafe impl Send for Address {}

impl Address {
    pub(crate) fn of(pointer: *const c_void) -> Self {
        Self(pointer.cast_mut())
    }
}

/// Declares exports: the body runs under [`crate::acl::guard::guard`], the export returns its code.
macro_rules! exports {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name($($argument: $type),*) -> i32 {
            crate::acl::guard::guard(stringify!($name), || $body).0
        }
    )*};
}

pub(crate) use exports;
