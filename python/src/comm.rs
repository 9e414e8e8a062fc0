//! Communicators: one entry for all calls on buffers, one for all calls with objects.

use std::sync::{Mutex, PoisonError};

use muster_comm::collective::{self, PointToPoint};
use muster_comm::error::CommError;
use muster_comm::types::{Collective, ReduceOp};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde_bytes::ByteBuf;

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
            Ok(output) => output.to_python(py),
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
        let unknown =
            |error: muster_comm::types::UnknownName| PyValueError::new_err(error.to_string());
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

    /// The call with objects that `collective` names. `objects` are this rank's, encoded: one, or on the root of a
    /// scatter one for each rank.
    fn objects<'py>(
        &self,
        py: Python<'py>,
        collective: &str,
        objects: Option<Vec<Vec<u8>>>,
        root: usize,
        is_async: bool,
        code: &Bound<'py, PyAny>,
        line: u32,
    ) -> PyResult<Py<PyAny>> {
        let comm = self.inner()?;
        let collective: Collective =
            collective
                .parse()
                .map_err(|error: muster_comm::types::UnknownName| {
                    PyValueError::new_err(error.to_string())
                })?;
        let objects: Option<Vec<ByteBuf>> =
            objects.map(|all| all.into_iter().map(ByteBuf::from).collect());
        let site = Site::of(code, line);
        Self::make(py, &comm, is_async, site, Vec::new(), move |comm| {
            let all = objects.unwrap_or_default();
            let none = ByteBuf::new();
            let one = all.first().unwrap_or(&none);
            Ok(match collective {
                Collective::AllGatherObject => Output::All(comm.all_gather_object(one)?),
                Collective::GatherObject => comm
                    .gather_object(one, root)?
                    .map_or(Output::Nothing, Output::All),
                Collective::BroadcastObject => {
                    Output::One(comm.broadcast_object(all.first(), root)?)
                }
                _ => Output::One(comm.scatter_object(&all, root)?),
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
