//! The way from a Rust result to what a C caller gets.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::runtime::errors::{self, AclError, RuntimeError};

/// Runs the body of an export; the error, if any, is left in the calling thread.
pub(crate) fn guard(
    call: &'static str,
    body: impl FnOnce() -> Result<(), RuntimeError>,
) -> AclError {
    let outcome = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        Err(RuntimeError::new(
            AclError::INTERNAL_ERROR,
            "the emulator panicked",
        ))
    });
    match outcome {
        Ok(()) => AclError::NONE,
        Err(error) => errors::fail(&RuntimeError {
            text: format!("{call}: {}", error.text),
            ..error
        }),
    }
}
