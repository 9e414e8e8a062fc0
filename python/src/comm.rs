//! Communicators: one entry for all calls on buffers, one for all calls with objects.

use std::sync::{Mutex, PoisonError};

use muster_comm::collective::{self, PointToPoint};
use muster_comm::error::CommError;
use muster_comm::types::{Collective, DType, ReduceOp, UnknownName};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::buffer::{Memory, Span, release_left};
use crate::request::Arguments;
use crate::site::Site;
use crate::work::{Output, Work};
use crate::{error, interrupt, world};

/// A group of ranks that make collective calls together.
#[pyclass(frozen, module = "muster._muster")]
pub(crate) struct Communicator {
    /// `None` once it is destroyed.
    inner: Mutex<Option<collective::Communicator>>,
    pub(crate) world: muster_comm::world::World,
}

impl Communicator {
    pub(crate) fn new(inner: collective::Communicator, world: muster_comm::world::World) -> Self {
        Self {
            inner: Mutex::new(Some(inner)),
            world,
        }
    }

    pub(crate) fn inner(&self) -> PyResult<collective::Communicator> {
        world::check_process()?;
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner
            .clone()
            .ok_or_else(|| error::plain("the communicator is destroyed"))
    }

    /// Makes calls now, or has the communicator's worker make them.
    fn make(
        py: Python<'_>,
        comm: &collective::Communicator,
        is_async: bool,
        site: Site,
        kept: Vec<Memory>,
        calls: impl FnOnce(&collective::Communicator) -> Result<Output, CommError> + Send + 'static,
    ) -> PyResult<Py<PyAny>> {
        release_left(py);
        if is_async {
            let work = site.at(|| {
                comm.start(move |comm| {
                    let result = site.at(|| calls(comm));
                    drop(kept);
                    result
                })
            });
            return Ok(Py::new(py, Work::new(work))?.into_any());
        }
        let result = py.detach(|| {
            let _blocking = interrupt::enter(comm);
            site.at(|| calls(comm))
        });
        for memory in kept {
            memory.release(py);
        }
        match result {
            Ok(output) => output.into_python(py, Some(comm)),
            Err(failed) => {
                py.check_signals()?;
                Err(error::of_call(py, &failed))
            }
        }
    }
}

#[pymethods]
impl Communicator {
    #[getter]
    fn name(&self) -> PyResult<String> {
        Ok(self.inner()?.name().to_owned())
    }

    #[getter]
    fn rank(&self) -> PyResult<usize> {
        Ok(self.inner()?.rank())
    }

    #[getter]
    fn size(&self) -> PyResult<usize> {
        Ok(self.inner()?.size())
    }

    #[getter]
    fn members(&self) -> PyResult<Vec<u32>> {
        Ok(self.inner()?.members().iter().map(|rank| rank.0).collect())
    }

    #[getter]
    fn deadline(&self) -> PyResult<f64> {
        Ok(self.inner()?.deadline().as_secs_f64())
    }

    #[setter]
    fn set_deadline(&self, seconds: f64) -> PyResult<()> {
        self.inner()?
            .set_deadline(world::seconds("deadline", seconds)?);
        Ok(())
    }

    /// How the last collective went; see the documentation in Python.
    #[getter]
    fn last_algorithm(&self, py: Python<'_>) -> PyResult<Option<&'static str>> {
        let comm = self.inner()?;
        Ok(py.detach(|| comm.last_algorithm()))
    }

    #[getter]
    fn shares_memory(&self) -> PyResult<bool> {
        Ok(self.inner()?.shares_memory())
    }

    /// The exception of the call that ended the group.
    #[getter]
    fn failure(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let failed = self.inner()?.failure();
        Ok(failed.map(|failed| error::of_call(py, &failed).into_value(py).into_any()))
    }

    fn set_object_bytes_max(&self, bytes: usize) -> PyResult<()> {
        self.inner()?.set_object_bytes_max(bytes);
        Ok(())
    }

    /// The call that `collective` names, on buffers.
    #[pyo3(signature = (collective, sendbuf, recvbuf, op, root, counts, recv_counts, is_async, code, line))]
    fn call<'py>(
        &self,
        py: Python<'py>,
        collective: &str,
        sendbuf: Option<&Bound<'py, PyAny>>,
        recvbuf: Option<&Bound<'py, PyAny>>,
        op: &str,
        root: usize,
        counts: Option<Vec<usize>>,
        recv_counts: Option<Vec<usize>>,
        is_async: bool,
        code: &Bound<'py, PyAny>,
        line: u32,
    ) -> PyResult<Py<PyAny>> {
        let comm = self.inner()?;
        let arguments = Arguments {
            collective: collective.parse::<Collective>().map_err(unknown)?,
            sendbuf,
            recvbuf,
            op: op.parse::<ReduceOp>().map_err(unknown)?,
            root,
            counts,
            recv_counts,
        };
        let (request, kept) = arguments.prepare(&comm)?;
        let site = Site::of(code, line);
        Self::make(py, &comm, is_async, site, kept, move |comm| {
            request.run(comm).map(|()| Output::Nothing)
        })
    }

    /// Several messages at once: (is it sent, the buffer, the peer).
    fn batch<'py>(
        &self,
        py: Python<'py>,
        messages: Vec<(bool, Bound<'py, PyAny>, usize)>,
        is_async: bool,
        code: &Bound<'py, PyAny>,
        line: u32,
    ) -> PyResult<Py<PyAny>> {
        let comm = self.inner()?;
        let mut kept = Vec::new();
        let mut spans: Vec<(bool, Span, usize)> = Vec::new();
        for (number, (is_send, buffer, peer)) in messages.iter().enumerate() {
            let memory = Memory::of(buffer, &format!("the buffer of message {number}"), !is_send)?;
            spans.push((*is_send, memory.span(), *peer));
            kept.push(memory);
        }
        let site = Site::of(code, line);
        Self::make(py, &comm, is_async, site, kept, move |comm| {
            let messages: Vec<_> = spans
                .into_iter()
                .map(|(is_send, span, peer)| match is_send {
                    true => PointToPoint::send_view(span.read(), peer),
                    false => PointToPoint::recv_view(span.write(), peer),
                })
                .collect();
            comm.batch_send_recv(&messages).map(|()| Output::Nothing)
        })
    }

    /// Reduces several buffers of one type in place, in one call.
    fn coalesced<'py>(
        &self,
        py: Python<'py>,
        buffers: Vec<Bound<'py, PyAny>>,
        op: &str,
        is_async: bool,
        code: &Bound<'py, PyAny>,
        line: u32,
    ) -> PyResult<Py<PyAny>> {
        let comm = self.inner()?;
        let op: ReduceOp = op.parse().map_err(unknown)?;
        let mut kept = Vec::new();
        let mut spans: Vec<Span> = Vec::new();
        for (number, buffer) in buffers.iter().enumerate() {
            let name = format!("buffers[{number}]");
            let memory = Memory::of(buffer, &name, true)?;
            memory.check_numbers(&name, op)?;
            let span = memory.span();
            let first = spans.first().unwrap_or(&span).dtype;
            if span.dtype != first {
                let ours = span.dtype;
                let what =
                    format!("{name} holds {ours}, and buffers[0] {first}; they must hold the same");
                return Err(PyTypeError::new_err(what));
            }
            spans.push(span);
            kept.push(memory);
        }
        let site = Site::of(code, line);
        Self::make(py, &comm, is_async, site, kept, move |comm| {
            let dtype = spans.first().map_or(DType::U8, |span| span.dtype);
            let mut views: Vec<_> = spans.into_iter().map(Span::write).collect();
            comm.all_reduce_views(&mut views, dtype, op)
                .map(|()| Output::Nothing)
        })
    }

    /// The call with objects that `collective` names. `objects` are this rank's, each in parts: one, or on the root of a
    /// scatter one for each rank.
    fn objects<'py>(
        &self,
        py: Python<'py>,
        collective: &str,
        objects: Vec<Vec<Bound<'py, PyAny>>>,
        root: usize,
        is_async: bool,
        code: &Bound<'py, PyAny>,
        line: u32,
    ) -> PyResult<Py<PyAny>> {
        let comm = self.inner()?;
        let collective: Collective = collective.parse().map_err(unknown)?;
        let mut kept = Vec::new();
        let mut each: Vec<Vec<Span>> = Vec::new();
        for object in &objects {
            let mut parts = Vec::new();
            for part in object {
                let memory = Memory::of(part, "a part of an object", false)?;
                parts.push(memory.span());
                kept.push(memory);
            }
            each.push(parts);
        }
        // Packed now: the program may change its objects once an asynchronous call has begun.
        let packed = py.detach(|| {
            let views = |parts: &Vec<Span>| parts.iter().map(|part| part.read()).collect();
            let each: Vec<Vec<_>> = each.iter().map(views).collect();
            comm.pack_objects(&each)
        });
        for memory in kept {
            memory.release(py);
        }
        let site = Site::of(code, line);
        Self::make(py, &comm, is_async, site, Vec::new(), move |comm| {
            Ok(match collective {
                Collective::AllGatherObject => Output::Objects(comm.all_gather_packed(packed)?),
                Collective::GatherObject => comm
                    .gather_packed(packed, root)?
                    .map_or(Output::Nothing, Output::Objects),
                Collective::BroadcastObject => {
                    Output::Objects(comm.broadcast_packed(packed, root)?)
                }
                _ => Output::Objects(comm.scatter_packed(packed, root)?),
            })
        })
    }

    /// Ends the call under way and all later ones with an error, here and on no other rank.
    fn cancel(&self, why: &str) -> PyResult<()> {
        self.inner()?.cancel(why);
        Ok(())
    }

    /// Destroys the group on this rank, when the calls under way have ended.
    fn destroy(&self, py: Python<'_>) {
        let inner = {
            let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            inner.take()
        };
        if world::check_process().is_ok() {
            py.detach(|| drop(inner));
        } else {
            // LEAK: what it holds belongs to the process that made it.
            std::mem::forget(inner);
        }
    }
}

fn unknown(error: UnknownName) -> PyErr {
    PyValueError::new_err(error.to_string())
}

impl Drop for Communicator {
    fn drop(&mut self) {
        if world::check_process().is_err() {
            let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            // LEAK: see `destroy`.
            std::mem::forget(inner.take());
            std::mem::forget(self.world.clone());
        }
    }
}
