//! Ranks that are threads of this process, and how Ctrl-C ends them.
//!
//! THREADS-1: the thread that asked for the ranks looks for signals while they work. A rank that sleeps or computes in
//! Python cannot be ended from outside: it goes on alone, and the call ends without it.
//!
//! The function of a rank runs on a daemon thread of Python. Python may end such a thread while the interpreter ends, and
//! it does so by unwinding the stack; no frame of Rust may be in it.

#![expect(unsafe_code, reason = "an exception for another thread of Python")]

use std::ffi::c_long;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use muster_comm::host_load::HostLoad;
use muster_comm::world::{self, ThreadOptions};
use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyTuple};

use crate::error;
use crate::world::{World, check_process, seconds};

/// How often the thread that waits looks for signals.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long ranks may take to end after Ctrl-C, as many times as there are threads for each processor.
const PATIENCE: Duration = Duration::from_millis(500);
/// How many times at most.
const CROWD_MAX: u32 = 20;
/// Functions that are told of a rank that goes on.
const TOLD_MAX: usize = 4;

/// What the ranks returned.
type Results = thread::Result<PyResult<Vec<Py<PyAny>>>>;

/// A rank's function has raised an exception, which stands elsewhere.
struct Raised;

/// What ranks have in common with who waits for them.
#[derive(Default)]
struct Ranks {
    raised: Mutex<Vec<PyErr>>,
    at_work: Mutex<Vec<AtWork>>,
}

/// A rank whose function has not returned.
struct AtWork {
    rank: u32,
    /// Python's number of its thread.
    ident: c_long,
    world: Py<World>,
}

/// Calls `body(world, done)` on `count` threads, each of which is one rank; what they told `done(result, error)`, in the
/// order of ranks.
#[pyfunction]
#[pyo3(signature = (count, body, deadline))]
pub(crate) fn threads(
    py: Python<'_>,
    count: usize,
    body: Py<PyAny>,
    deadline: Option<f64>,
) -> PyResult<Vec<Py<PyAny>>> {
    check_process()?;
    if count == 0 {
        return Err(PyValueError::new_err("a world has one rank or more"));
    }
    let mut options = ThreadOptions::default();
    if let Some(given) = deadline {
        options.deadline = seconds("deadline", given)?;
    }
    // The thread that imports it first is the one that Python waits for at its exit: this one, and no rank.
    py.import("threading")?;
    let ranks = Arc::new(Ranks::default());
    let (done, results) = channel();
    let results = Mutex::new(results);
    let of_threads = Arc::clone(&ranks);
    thread::Builder::new()
        .name("muster-threads".to_owned())
        .spawn(move || {
            let rank = |world| of_threads.work(world, &body);
            let results = catch_unwind(AssertUnwindSafe(|| {
                world::World::threads_with(count, &options, rank).map_err(error::plain)
            }));
            // Nobody waits any more after Ctrl-C.
            let _ = done.send(results);
        })
        .map_err(error::plain)?;
    let ended = loop {
        match py.detach(|| next(&results, LOOK_EVERY)) {
            Ok(ended) => break ended,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(error::plain("the threads of the ranks have no result"));
            }
        }
        if let Err(signal) = py.check_signals() {
            return Err(ranks.interrupt(py, signal, &results));
        }
    };
    py.check_signals()?;
    let mut raised = ranks.raised.lock().unwrap_or_else(PoisonError::into_inner);
    // The first is the cause of the others.
    if !raised.is_empty() {
        return Err(raised.swap_remove(0));
    }
    ended.unwrap_or_else(|panic| resume_unwind(panic))
}

/// What the ranks returned, if they do within this time.
fn next(results: &Mutex<Receiver<Results>>, limit: Duration) -> Result<Results, RecvTimeoutError> {
    let results = results.lock().unwrap_or_else(PoisonError::into_inner);
    results.recv_timeout(limit)
}

impl Ranks {
    /// Runs the function of a rank, and waits for what it gives.
    fn work(&self, world: world::World, body: &Py<PyAny>) -> Py<PyAny> {
        let rank = world.rank().0;
        let result = Python::attach(|py| {
            let world = Py::new(py, World::new(world))?;
            let (tell, told) = channel();
            let thread = start(py, rank, body, &world, tell)?;
            let entry = AtWork {
                rank,
                ident: thread.getattr("ident")?.extract()?,
                world: world.clone_ref(py),
            };
            self.at_work().push(entry);
            let told = Mutex::new(told);
            let result = py.detach(|| {
                let told = told.lock().unwrap_or_else(PoisonError::into_inner);
                told.recv()
            });
            self.at_work().retain(|one| one.rank != rank);
            world.get().leave_thread(py);
            result.unwrap_or_else(|_| Err(PyRuntimeError::new_err("the rank's thread has ended")))
        });
        result.unwrap_or_else(|error| {
            let mut raised = self.raised.lock().unwrap_or_else(PoisonError::into_inner);
            raised.push(error);
            drop(raised);
            // To the other ranks this one is gone.
            resume_unwind(Box::new(Raised))
        })
    }

    /// Whoever locks it has the GIL and keeps it, so that nobody waits for the lock.
    fn at_work(&self) -> std::sync::MutexGuard<'_, Vec<AtWork>> {
        self.at_work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the ranks because of a signal, for which Python raises `signal`; what is raised then.
    fn interrupt(
        &self,
        py: Python<'_>,
        signal: PyErr,
        results: &Mutex<Receiver<Results>>,
    ) -> PyErr {
        let worlds: Vec<Py<World>> = {
            let at_work = self.at_work();
            let exception = py.get_type::<PyKeyboardInterrupt>();
            for one in &*at_work {
                // SAFETY: the GIL is held, and the thread of this number is in Python, or in a call from it.
                unsafe { pyo3::ffi::PyThreadState_SetAsyncExc(one.ident, exception.as_ptr()) };
            }
            at_work.iter().map(|one| one.world.clone_ref(py)).collect()
        };
        // Asynchronous calls are under way too, and what waits for them looks for no exception.
        for world in &worlds {
            world.get().leave_thread_from_outside(py);
        }
        let crowd = u32::try_from(HostLoad::now().crowd())
            .map_or(CROWD_MAX, |crowd| crowd.clamp(1, CROWD_MAX));
        // What it gives is of no use any more.
        let _ = py.detach(|| next(results, PATIENCE * crowd));
        if !signal.is_instance_of::<PyKeyboardInterrupt>(py) {
            return signal;
        }
        let left: Vec<String> = {
            let at_work = self.at_work();
            let told = |one: &AtWork| format!("rank {}: {}", one.rank, place(py, one.ident));
            at_work.iter().map(told).collect()
        };
        if left.is_empty() {
            return signal;
        }
        let what = "Ctrl-C ended muster.threads; what a rank does in Python cannot be ended from outside, and goes on in";
        PyKeyboardInterrupt::new_err(format!("{what} {}", left.join(", ")))
    }
}

/// Starts the thread of Python that calls `body(world, done)`.
fn start<'py>(
    py: Python<'py>,
    rank: u32,
    body: &Py<PyAny>,
    world: &Py<World>,
    tell: Sender<PyResult<Py<PyAny>>>,
) -> PyResult<Bound<'py, PyAny>> {
    let done = move |arguments: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| {
        let (result, error): (Py<PyAny>, Option<Bound<'_, PyAny>>) = arguments.extract()?;
        // Nobody waits any more after Ctrl-C.
        let _ = tell.send(error.map_or(Ok(result), |error| Err(PyErr::from_value(error))));
        PyResult::Ok(())
    };
    let done = PyCFunction::new_closure(py, None, None, done)?;
    let options = PyDict::new(py);
    options.set_item("target", body)?;
    options.set_item("args", (world, done))?;
    options.set_item("name", format!("rank {rank}"))?;
    options.set_item("daemon", true)?;
    let thread = py
        .import("threading")?
        .call_method("Thread", (), Some(&options))?;
    thread.call_method0("start")?;
    Ok(thread)
}

/// Where a thread is in the program, innermost function first.
fn place(py: Python<'_>, ident: c_long) -> String {
    let frames = || -> PyResult<Vec<String>> {
        let frames = py.import("sys")?.call_method0("_current_frames")?;
        let mut frame = frames.get_item(ident)?;
        let mut told = Vec::new();
        while !frame.is_none() && told.len() < TOLD_MAX {
            let code = frame.getattr("f_code")?;
            let file: String = code.getattr("co_filename")?.extract()?;
            let name: String = code.getattr("co_name")?.extract()?;
            let line: u32 = frame.getattr("f_lineno")?.extract()?;
            if name == "_call_rank" && file.ends_with("muster/__init__.py") {
                break;
            }
            let file = file.rsplit('/').next().unwrap_or_default();
            told.push(format!("{name} ({file}:{line})"));
            frame = frame.getattr("f_back")?;
        }
        Ok(told)
    };
    frames().map_or_else(|_| "a function".to_owned(), |told| told.join(" < "))
}
