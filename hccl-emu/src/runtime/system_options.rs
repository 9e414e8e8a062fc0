//! Options that clients set for a process or a context and read again; none has an effect here.

use std::sync::{Mutex, PoisonError};

use super::errors::{AclError, RuntimeError};

/// How many options there are: deterministic sums, debug kernels, strong consistency.
const OPTIONS: usize = 3;

/// The options of a process or a context, each set or not.
#[derive(Debug, Default)]
pub struct SystemOptions(Mutex<[Option<i64>; OPTIONS]>);

impl SystemOptions {
    /// Keeps a value.
    ///
    /// # Errors
    /// If there is no such option.
    pub fn set(&self, option: i32, value: i64) -> Result<(), RuntimeError> {
        let at = index(option)?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[at] = Some(value);
        Ok(())
    }

    /// The value that was set last, if one was.
    ///
    /// # Errors
    /// If there is no such option.
    pub fn get(&self, option: i32) -> Result<Option<i64>, RuntimeError> {
        let at = index(option)?;
        Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner)[at])
    }
}

fn index(option: i32) -> Result<usize, RuntimeError> {
    usize::try_from(option)
        .ok()
        .filter(|at| *at < OPTIONS)
        .ok_or_else(|| {
            let text = format!("option {option}; allowed: 0 to {}", OPTIONS - 1);
            RuntimeError::new(AclError::INVALID_PARAM, text)
        })
}
