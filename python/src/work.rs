//! Asynchronous calls: what Python waits for.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use muster_comm::collective;
use muster_comm::error::CommError;
use muster_comm::sync::Deadline;
use pyo3::exceptions::PyTimeoutError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use serde_bytes::ByteBuf;

use crate::buffer::release_left;
use crate::error;

/// How often a thread that waits looks for signals.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What a call gives back.
pub(crate) enum Output {
    /// Nothing: its results are in buffers.
    Nothing,
    /// An object.
    One(ByteBuf),
    /// An object of each rank.
    All(Vec<ByteBuf>),
}

impl Output {
    pub(crate) fn to_python(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(match self {
            Self::Nothing => py.None(),
            Self::One(bytes) => PyBytes::new(py, bytes).into_any().unbind(),
            Self::All(all) => {
                let all = all.iter().map(|bytes| PyBytes::new(py, bytes));
                PyList::new(py, all)?.into_any().unbind()
            }
        })
    }
}

enum State {
    Running(collective::Work<Output>),
    Ended(Result<Output, CommError>),
    /// Its waiter has failed.
    Lost,
}

/// An asynchronous call.
#[pyclass(frozen, module = "muster._muster")]
pub(crate) struct Work {
    state: Mutex<State>,
}

impl Work {
    pub(crate) fn new(work: collective::Work<Output>) -> Self {
        Self {
            state: Mutex::new(State::Running(work)),
        }
    }

    /// Waits a while; whether the call has ended.
    fn look(&self, longest: Duration) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (next, ended) = match std::mem::replace(&mut *state, State::Lost) {
            State::Running(work) => match work.wait_timeout(longest) {
                Ok(result) => (State::Ended(result), true),
                Err(work) => (State::Running(work), false),
            },
            ended => (ended, true),
        };
        *state = next;
        ended
    }
}

#[pymethods]
impl Work {
    /// Waits for the end of the call, at most `timeout` seconds.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let limit = timeout
            .map(Duration::try_from_secs_f64)
            .transpose()
            .map_err(|error| pyo3::exceptions::PyValueError::new_err(format!("timeout: {error}")))?
            .map(Deadline::after);
        loop {
            let slice = limit.map_or(LOOK_EVERY, |limit| limit.left().min(LOOK_EVERY));
            if py.detach(|| self.look(slice)) {
                break;
            }
            py.check_signals()?;
            if let Some(limit) = limit.filter(|limit| limit.left().is_zero()) {
                let text = format!("the call is still under way after {:.1?}", limit.budget());
                return Err(PyTimeoutError::new_err(text));
            }
        }
        release_left(py);
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match &*state {
            State::Ended(Ok(output)) => output.to_python(py),
            State::Ended(Err(failed)) => Err(error::of_call(py, failed)),
            State::Running(_) | State::Lost => Err(error::plain("the call has no result")),
        }
    }

    /// Whether the call has ended, well or not.
    fn is_done(&self, py: Python<'_>) -> bool {
        py.detach(|| self.look(Duration::ZERO))
    }
}
