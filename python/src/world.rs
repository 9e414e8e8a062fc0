//! The world: how a rank joins, and groups.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use muster_comm::config::Environment;
use muster_comm::rendezvous::Secret;
use muster_comm::sync::{AtomicBool, Ordering};
use muster_comm::types::Rank;
use muster_comm::world::{self, JoinOptions, ServedBy};
use pyo3::exceptions::{PyMemoryError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::block::Block;
use crate::comm::Communicator;
use crate::{error, stack};

/// Whether this process was forked from one that had a world.
static FORKED: AtomicBool = AtomicBool::new(false);

/// A forked child has copies of the parent's connections and none of its threads.
#[pyfunction]
pub(crate) fn forked() {
    // Relaxed: a forked child has one thread.
    FORKED.store(true, Ordering::Relaxed);
}

/// Refuses calls in a forked child.
pub(crate) fn check_process() -> PyResult<()> {
    // Relaxed: see `forked`.
    if FORKED.load(Ordering::Relaxed) {
        let why = "this process was forked after its parent had joined a world, whose connections and threads belong \
                   to the parent: fork before muster.init(), or start processes with multiprocessing's \"spawn\"";
        return Err(PyRuntimeError::new_err(why));
    }
    Ok(())
}

/// Whether this is the process that joined, for those who may not raise exceptions.
pub(crate) fn check_process_quietly() -> bool {
    // Relaxed: see `forked`.
    !FORKED.load(Ordering::Relaxed)
}

/// A time in seconds.
pub(crate) fn seconds(name: &str, seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|error| PyValueError::new_err(format!("{name} is {seconds}: {error}")))
}

/// All ranks of a job, seen from one of them.
#[pyclass(frozen, module = "muster._muster")]
pub(crate) struct World {
    /// `None` after this rank has left.
    inner: Mutex<Option<world::World>>,
}

impl World {
    pub(crate) fn new(inner: world::World) -> Self {
        Self {
            inner: Mutex::new(Some(inner)),
        }
    }

    fn inner(&self) -> PyResult<world::World> {
        check_process()?;
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner
            .clone()
            .ok_or_else(|| error::plain("this rank has left the world"))
    }
}

#[pymethods]
impl World {
    #[getter]
    fn rank(&self) -> PyResult<u32> {
        Ok(self.inner()?.rank().0)
    }

    #[getter]
    fn size(&self) -> PyResult<usize> {
        Ok(self.inner()?.size())
    }

    /// A communicator for these ranks, in this order.
    fn group(&self, py: Python<'_>, name: &str, ranks: Vec<u32>) -> PyResult<Communicator> {
        let world = self.inner()?;
        let members: Vec<Rank> = ranks.into_iter().map(Rank).collect();
        let group = world.group(name, &members);
        let group = group.map_err(|failed| error::of_call(py, &failed))?;
        Ok(Communicator::new(group, world))
    }

    /// So many zeroed bytes of this rank's region.
    fn alloc(&self, bytes: usize) -> PyResult<Block> {
        let buffer = self.inner()?.alloc::<u8>(bytes);
        let buffer = buffer.map_err(|error| {
            let advice = "MUSTER_REGION_BYTES sets the size of the region";
            PyMemoryError::new_err(format!("{error}; {advice}"))
        })?;
        Ok(Block::region(buffer))
    }

    /// Says goodbye.
    fn leave(&self, py: Python<'_>) {
        let inner = {
            let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            inner.take()
        };
        if check_process().is_err() {
            // LEAK: it belongs to the process that joined.
            std::mem::forget(inner);
            return;
        }
        py.detach(|| {
            if let Some(world) = inner {
                world.leave();
            }
        });
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if check_process().is_err() {
            let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            // LEAK: it belongs to the process that joined.
            std::mem::forget(inner.take());
        }
    }
}

/// Joins the world that the launcher's environment describes.
#[pyfunction]
#[pyo3(signature = (deadline))]
pub(crate) fn join_environment(py: Python<'_>, deadline: Option<f64>) -> PyResult<World> {
    check_process()?;
    stack::prepare(py);
    let deadline = deadline
        .map(|given| seconds("deadline", given))
        .transpose()?;
    let joined = py.detach(|| match deadline {
        None => world::World::from_env(),
        Some(deadline) => world::World::from_env_with(|options| options.deadline = deadline),
    });
    joined
        .map(World::new)
        .map_err(|failed| error::of_environment(py, &failed))
}

/// Joins the world that meets at `endpoint`; rank 0 serves it. With `bind`, rank 0 takes a free port of that address
/// instead, and `tell` is called with the endpoint.
#[pyfunction]
#[pyo3(signature = (rank, world_size, secret, endpoint, bind, tell, deadline, bring_up, source))]
pub(crate) fn join(
    py: Python<'_>,
    rank: i64,
    world_size: i64,
    secret: &[u8],
    endpoint: Option<&str>,
    bind: Option<&str>,
    tell: Option<Py<PyAny>>,
    deadline: Option<f64>,
    bring_up: Option<f64>,
    source: String,
) -> PyResult<World> {
    check_process()?;
    stack::prepare(py);
    let at = endpoint.unwrap_or("127.0.0.1:1");
    let at = at
        .parse()
        .map_err(|error| PyValueError::new_err(format!("endpoint: {error}")))?;
    let options = JoinOptions {
        source,
        served_by: ServedBy::Rank(Rank(0)),
        ..JoinOptions::new(at, Secret::from_text(secret), rank, world_size)
    };
    let mut options = options
        .with_settings(&Environment::capture())
        .map_err(|failed| error::of_environment(py, &failed))?;
    if let Some(given) = deadline {
        options.deadline = seconds("deadline", given)?;
    }
    if let Some(given) = bring_up {
        options.bring_up = seconds("bring_up", given)?;
    }
    let bind = bind
        .map(str::parse::<IpAddr>)
        .transpose()
        .map_err(|error| PyValueError::new_err(format!("bind: {error}")))?;
    let mut told = Ok(());
    let joined = py.detach(|| match (bind, tell) {
        (Some(bind), Some(tell)) => world::World::serve_at_and_join(options, bind, |address| {
            told = Python::attach(|py| tell.call1(py, (address.to_string(),)).map(|_| ()));
        }),
        _ => world::World::serve_and_join(options),
    });
    told?;
    joined
        .map(World::new)
        .map_err(|failed| error::of_bring_up(py, &failed))
}

impl World {
    /// The rank is a thread that ends, whether it has left or not.
    pub(crate) fn leave_thread(&self, py: Python<'_>) {
        let inner = {
            let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            inner.take()
        };
        py.detach(|| drop(inner));
    }
    /// Ends the calls of a rank that is a thread, under way and later.
    pub(crate) fn leave_thread_from_outside(&self, py: Python<'_>) {
        let inner = {
            let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            inner.clone()
        };
        py.detach(|| {
            if let Some(world) = inner {
                world.leave();
            }
        });
    }
}
