//! Errors of muster as exceptions: all that they know as plain fields. The classes are in `muster/errors.py`.

use muster_comm::error::verdict::{Class, Verdict};
use muster_comm::error::{CommError, ErrorKind};
use muster_comm::world::{BringUpError, FromEnvError};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The class of a call's error, as the exception is called after it.
pub(crate) fn class_of(error: &CommError) -> &'static str {
    if let Some(verdict) = error.verdict() {
        return verdict.class.name();
    }
    let rank = error.at().rank;
    match error.kind() {
        ErrorKind::InvalidArgument { .. } => "INVALID_ARGUMENT",
        ErrorKind::Unsupported { .. } => "UNSUPPORTED",
        ErrorKind::PeerAborted { origin, .. } if *origin == rank => "CANCELLED",
        kind => Class::of(kind, rank.0).0.name(),
    }
}

/// The whole of a call's error in words: its message, and the line of the verdict where there is one.
pub(crate) fn text_of(error: &CommError) -> String {
    match error.verdict() {
        Some(verdict) => format!("{error}\n{}", verdict.line()),
        None => error.to_string(),
    }
}

/// The exception of a failed call.
pub(crate) fn of_call(py: Python<'_>, error: &CommError) -> PyErr {
    let fields = PyDict::new(py);
    let at = error.at();
    let filled = (|| {
        fields.set_item("group", &*at.group)?;
        fields.set_item("rank", at.rank.0)?;
        fields.set_item("collective", at.collective.name())?;
        fields.set_item("seq", at.seq)?;
        fields.set_item("recoverable", error.is_recoverable())?;
        fields.set_item("help", error.help())?;
        PyResult::Ok(())
    })();
    if let Err(error) = filled {
        return error;
    }
    make(
        py,
        class_of(error),
        &text_of(error),
        error.verdict(),
        &fields,
    )
}

/// The exception of a rank that could not join.
pub(crate) fn of_bring_up(py: Python<'_>, error: &BringUpError) -> PyErr {
    let verdict = error.verdict();
    let class = verdict
        .as_ref()
        .map_or("LAUNCH", |verdict| verdict.class.name());
    let text = match &verdict {
        Some(verdict) => format!("{error}\n{}", verdict.line()),
        None => error.to_string(),
    };
    let fields = PyDict::new(py);
    if let Err(error) = fields.set_item("help", error.help()) {
        return error;
    }
    make(py, class, &text, verdict.as_ref(), &fields)
}

/// The exception of an environment that leads to no world.
pub(crate) fn of_environment(py: Python<'_>, error: &FromEnvError) -> PyErr {
    if let FromEnvError::BringUp(error) = error {
        return of_bring_up(py, error);
    }
    launch(py, &format!("{error}; {}", error.help()))
}

/// The exception of a start that says too little, or contradicts itself.
pub(crate) fn launch(py: Python<'_>, text: &str) -> PyErr {
    make(py, "LAUNCH", text, None, &PyDict::new(py))
}

/// A failure that is no call's.
pub(crate) fn plain(text: impl ToString) -> PyErr {
    PyRuntimeError::new_err(text.to_string())
}

fn make(
    py: Python<'_>,
    class: &str,
    text: &str,
    verdict: Option<&Verdict>,
    fields: &Bound<'_, PyDict>,
) -> PyErr {
    let verdict = verdict.map(|verdict| {
        let json = serde_json::to_string(verdict).unwrap_or_else(|_| "{}".to_owned());
        (json, verdict.line())
    });
    let made = py
        .import("muster.errors")
        .and_then(|errors| errors.call_method1("_make", (class, text, verdict, fields)));
    match made {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}
