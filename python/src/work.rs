//! Asynchronous calls: what Python waits for.

use std::mem;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use muster_comm::collective::{self, Communicator, UnpackedObjects};
use muster_comm::error::CommError;
use muster_comm::sync::Deadline;
use pyo3::exceptions::PyTimeoutError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::block::Block;
use crate::buffer::release_left;
use crate::error;

/// How often a thread that waits looks for signals.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What a call gives back.
pub(crate) enum Output {
    /// Nothing: its results are in buffers.
    Nothing,
    /// Objects of other ranks.
    Objects(UnpackedObjects),
}

impl Output {
    /// `None`, or objects: the memory in which they lie, if Python has to keep it, and of each object its parts.
    /// These are bytes, or else where they lie in the memory. `comm` gets memory back that is not kept.
    pub(crate) fn into_python(
        self,
        py: Python<'_>,
        comm: Option<&Communicator>,
    ) -> PyResult<Py<PyAny>> {
        let Self::Objects(objects) = self else {
            return Ok(py.None());
        };
        // An object in one part is small, or has to be decoded whole.
        if objects.objects.iter().any(|parts| parts.len() > 1) {
            let places = objects.objects.iter().map(|parts| {
                let places = parts.iter().map(|part| (part.start, part.end));
                places.collect::<Vec<_>>()
            });
            let places = PyList::new(py, places.collect::<Vec<_>>())?;
            let block = Py::new(py, Block::received(objects.memory))?;
            return Ok((block, places).into_pyobject(py)?.into_any().unbind());
        }
        let parts = objects.objects.iter().map(|parts| {
            let bytes = parts.iter().map(|part| &objects.memory[part.clone()]);
            PyList::new(py, bytes.map(|bytes| PyBytes::new(py, bytes)))
        });
        let parts = parts.collect::<PyResult<Vec<_>>>()?;
        let parts = PyList::new(py, parts)?;
        if let Some(comm) = comm {
            comm.give_back(objects);
        }
        Ok((py.None(), parts).into_pyobject(py)?.into_any().unbind())
    }
}

enum State {
    Running(collective::Work<Output>),
    Ended(Box<Result<Output, CommError>>),
    /// Its result is Python's already.
    Told(Py<PyAny>),
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
        let (next, ended) = match mem::replace(&mut *state, State::Lost) {
            State::Running(work) => match work.wait_timeout(longest) {
                Ok(result) => (State::Ended(Box::new(result)), true),
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
            // An exception for this thread, as Ctrl-C is for a rank of `muster.threads`, is raised where Python code runs.
            py.eval(c"None", None, None)?;
            if let Some(limit) = limit.filter(|limit| limit.left().is_zero()) {
                let text = format!("the call is still under way after {:.1?}", limit.budget());
                return Err(PyTimeoutError::new_err(text));
            }
        }
        release_left(py);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match mem::replace(&mut *state, State::Lost) {
            State::Ended(ended) => match *ended {
                Ok(output) => {
                    let told = output.into_python(py, None)?;
                    *state = State::Told(told.clone_ref(py));
                    Ok(told)
                }
                Err(failed) => {
                    let told = error::of_call(py, &failed);
                    *state = State::Ended(Box::new(Err(failed)));
                    Err(told)
                }
            },
            State::Told(told) => {
                *state = State::Told(told.clone_ref(py));
                Ok(told)
            }
            other @ (State::Running(_) | State::Lost) => {
                *state = other;
                Err(error::plain("the call has no result"))
            }
        }
    }

    /// Whether the call has ended, well or not.
    fn is_done(&self, py: Python<'_>) -> bool {
        py.detach(|| self.look(Duration::ZERO))
    }
}
