//! Where in the Python program a call is made: `train.py:62` in verdicts.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use muster_comm::watch::ProgramSite;
use pyo3::prelude::*;

/// Places that are told apart; beyond that calls have none. They are never freed.
const SITES_MAX: usize = 4096;

/// By code object and line. The code objects are kept, so that an address stands for one for ever.
static KNOWN: Mutex<Option<HashMap<(usize, u32), &'static ProgramSite>>> = Mutex::new(None);

/// The place of a call.
#[derive(Clone, Copy)]
pub(crate) struct Site(Option<&'static ProgramSite>);

impl Site {
    /// No place.
    pub(crate) const NONE: Self = Self(None);

    /// The line of this code object.
    pub(crate) fn of(code: &Bound<'_, PyAny>, line: u32) -> Self {
        Self::of_code(code.as_ptr() as usize, line, || {
            let file = code
                .getattr("co_filename")
                .and_then(|name| name.extract())
                .ok()?;
            // LEAK: see `KNOWN`.
            std::mem::forget(code.clone().unbind());
            Some(file)
        })
    }

    /// The line of the code object at this address. Where it is new, `file` keeps the object and says its file.
    pub(crate) fn of_code(code: usize, line: u32, file: impl FnOnce() -> Option<String>) -> Self {
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.get_or_insert_default();
        if let Some(site) = known.get(&(code, line)) {
            return Self(Some(site));
        }
        let Some(file) = (known.len() < SITES_MAX).then(file).flatten() else {
            return Self::NONE;
        };
        let site: &'static ProgramSite = Box::leak(Box::new(ProgramSite::new(file, line)));
        known.insert((code, line), site);
        Self(Some(site))
    }

    /// As a number that C can hold; 0 for none.
    pub(crate) fn address(self) -> usize {
        self.0.map_or(0, |site| std::ptr::from_ref(site) as usize)
    }

    /// A place that is known.
    pub(crate) fn known(site: &'static ProgramSite) -> Self {
        Self(Some(site))
    }

    /// Runs calls that are made there.
    pub(crate) fn at<R>(self, calls: impl FnOnce() -> R) -> R {
        match self.0 {
            Some(site) => site.at(calls),
            None => calls(),
        }
    }
}
