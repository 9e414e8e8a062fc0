//! The calls as C functions, for the torch backend: it is compiled against the user's torch and linked with nothing
//! of Rust, and gets this table in a capsule. `muster/shim/operation.hpp` declares the same layouts.
//!
//! CAPI-1: whoever changes a layout raises `VERSION`; the backend refuses a table of another version.
//! CAPI-2: no panic and no Python object crosses the table. Functions may be called on any thread, without the GIL.

#![expect(
    unsafe_code,
    reason = "a table of functions for C, and the pointers that it takes"
)]

use std::ffi::{CString, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use muster_comm::collective::{Communicator, PointToPoint};
use muster_comm::error::{CommError, ErrorKind};
use muster_comm::types::{Collective, DType, ReduceOp};
use muster_comm::watch::ProgramSite;
use muster_comm::world::World;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::buffer::Span;
use crate::channels::{Channels, short};
use crate::request::{Lengths, Request};
use crate::site::Site;
use crate::{comm, error, interrupt};

/// Of the layouts below.
const VERSION: u64 = 3;

/// A group as C holds it.
pub(crate) struct Group {
    comm: Communicator,
    world: World,
    channels: Channels,
}

/// One call.
#[repr(C)]
pub(crate) struct CCall {
    collective: u8,
    dtype: u8,
    op: u8,
    /// How many lists of counts there are: 0, 1 (blocks) or 2 (splits).
    lists: u8,
    tag: i32,
    /// Index of the root, or of the peer of a message.
    root: u64,
    count: u64,
    send: *const c_void,
    send_count: u64,
    recv: *mut c_void,
    recv_count: u64,
    /// Counts, one for each member.
    counts: *const u64,
    recv_counts: *const u64,
    /// What `site` gave, or null.
    site: *const c_void,
    /// Where the index of the sender goes, of a message from any of them.
    source: *mut u64,
}

/// Why a call failed.
pub(crate) struct CError {
    text: CString,
    class: CString,
}

type Done = extern "C" fn(*mut c_void, *mut CError);

/// The table.
#[repr(C)]
pub(crate) struct Table {
    version: u64,
    run: extern "C" fn(*const Group, *const CCall, u64, i64) -> *mut CError,
    start: extern "C" fn(*const Group, *const CCall, u64, i64, Done, *mut c_void),
    part:
        extern "C" fn(*const Group, *const c_char, *const u64, u64, *mut *mut CError) -> *mut Group,
    site: extern "C" fn(*const c_void, *const c_char, u32) -> *const c_void,
    awaits: extern "C" fn(*const Group, u32),
    cancel: extern "C" fn(*const Group, *const c_char),
    leave: extern "C" fn(*const Group),
    release: extern "C" fn(*mut Group),
    error_text: extern "C" fn(*const CError) -> *const c_char,
    error_class: extern "C" fn(*const CError) -> *const c_char,
    error_free: extern "C" fn(*mut CError),
}

static TABLE: Table = Table {
    version: VERSION,
    run,
    start,
    part,
    site,
    awaits,
    cancel,
    leave,
    release,
    error_text,
    error_class,
    error_free,
};

/// The table as a capsule.
#[pyfunction]
pub(crate) fn table(py: Python<'_>) -> PyResult<Bound<'_, PyCapsule>> {
    PyCapsule::new_with_value(py, &raw const TABLE as usize, c"muster.table")
}

/// A communicator as C holds it: an address that C releases.
#[pyfunction]
pub(crate) fn group(comm: &comm::Communicator) -> PyResult<usize> {
    let group = Group::new(comm.inner()?, comm.world.clone());
    Ok(Box::into_raw(Box::new(group)) as usize)
}

impl CError {
    fn of(failed: &CommError) -> *mut Self {
        let text = error::text_of(failed);
        let text = match failed.kind() {
            // Programs look for the word.
            ErrorKind::Stalled { .. } => {
                let timeout = failed.at().deadline;
                format!("the timeout of {timeout:.1?} has passed: {text}")
            }
            _ => text,
        };
        Self::new(error::class_of(failed), &text)
    }

    fn new(class: &str, text: &str) -> *mut Self {
        // Texts of ours have no zero bytes, nor have names that came as C strings.
        let c_string = |text: &str| CString::new(text.replace('\0', " ")).unwrap_or_default();
        Box::into_raw(Box::new(Self {
            text: c_string(text),
            class: c_string(class),
        }))
    }
}

/// A call that another thread may make. The owner of the addresses keeps them until it has ended.
struct Call {
    request: Request,
    tag: i64,
    site: Site,
    /// What a message from any of them needs besides.
    any: Option<AnySource>,
}

/// Where a message from any member may come from, and where it is said who sent it.
struct AnySource {
    channels: Vec<(u64, Communicator)>,
    source: usize,
}

impl AnySource {
    fn recv(&self, comm: &Communicator, request: &Request) -> Result<(), CommError> {
        let Some(span) = request.recv else {
            return Ok(());
        };
        let message = PointToPoint::recv_view(span.write(), 0);
        let channels: Vec<Communicator> = self.channels.iter().map(|one| one.1.clone()).collect();
        let at = comm.recv_any_view(&channels, message)?;
        let source = self.source as *mut u64;
        // SAFETY: the caller keeps the place until the call has ended.
        unsafe { source.write(self.channels[at].0) };
        Ok(())
    }
}

fn site_at(address: *const c_void) -> Site {
    if address.is_null() {
        return Site::NONE;
    }
    // SAFETY: it came from `site`, and places are never freed.
    Site::known(unsafe { &*address.cast::<ProgramSite>() })
}

fn list(at: *const u64, len: usize) -> Vec<usize> {
    // SAFETY: the caller gives as many counts as the group has members.
    let counts = unsafe { std::slice::from_raw_parts(at, len) };
    counts
        .iter()
        .map(|count| muster_comm::types::index(*count))
        .collect()
}

impl Call {
    fn of(call: &CCall, n: usize) -> Option<Self> {
        let dtype = DType::from_code(call.dtype)?;
        let span = |at: usize, count: u64| Span {
            address: at,
            count: muster_comm::types::index(count),
            dtype,
        };
        let lengths = match call.lists {
            0 => Lengths::Uniform(muster_comm::types::index(call.count)),
            1 => Lengths::Blocks(list(call.counts, n)),
            _ => Lengths::Splits(list(call.counts, n), list(call.recv_counts, n)),
        };
        let (send, recv) = (call.send as usize, call.recv as usize);
        Some(Self {
            request: Request {
                collective: Collective::from_code(call.collective)?,
                dtype,
                op: ReduceOp::from_code(call.op)?,
                root: muster_comm::types::index(call.root),
                lengths,
                send: (call.send_count != u64::MAX).then(|| span(send, call.send_count)),
                recv: (call.recv_count != u64::MAX).then(|| span(recv, call.recv_count)),
            },
            tag: call.tag.into(),
            site: site_at(call.site),
            any: (!call.source.is_null()).then(|| AnySource {
                channels: Vec::new(),
                source: call.source as usize,
            }),
        })
    }

    fn all(calls: *const CCall, count: u64, n: usize) -> Option<Vec<Self>> {
        let count = muster_comm::types::index(count);
        // SAFETY: the caller gives so many calls.
        let calls = unsafe { std::slice::from_raw_parts(calls, count) };
        calls.iter().map(|call| Self::of(call, n)).collect()
    }

    fn make(&self, comm: &Communicator) -> Result<(), CommError> {
        match &self.any {
            Some(any) => any.recv(comm, &self.request),
            None => self.request.run(comm),
        }
    }

    fn is_message(&self) -> bool {
        self.request.collective.is_of_messages()
    }
}

impl Group {
    fn new(comm: Communicator, world: World) -> Self {
        Self {
            channels: Channels::new(comm.clone(), world.clone()),
            comm,
            world,
        }
    }

    /// The communicator of a message, and the message as that has it.
    fn channel(&self, call: &mut Call) -> Result<Communicator, CommError> {
        if let Some(any) = &mut call.any {
            any.channels = self.channels.to_me(call.tag)?;
            return self.channels.any(call.tag);
        }
        let is_send = call.request.collective == Collective::Send;
        let (me, peer) = (self.comm.rank() as u64, call.request.root as u64);
        let (source, target) = if is_send { (me, peer) } else { (peer, me) };
        call.request.root = usize::from(is_send);
        self.channels.channel(source, target, call.tag)
    }
}

fn set_deadline(comm: &Communicator, timeout_ms: i64) {
    if let Ok(timeout @ 1..) = u64::try_from(timeout_ms) {
        comm.set_deadline(Duration::from_millis(timeout));
    }
}

fn run_all(comm: &Communicator, calls: &[Call], timeout_ms: i64) -> *mut CError {
    let result = catch_unwind(AssertUnwindSafe(|| {
        set_deadline(comm, timeout_ms);
        calls
            .iter()
            .try_for_each(|call| call.site.at(|| call.make(comm)))
    }));
    match result {
        Ok(Ok(())) => std::ptr::null_mut(),
        Ok(Err(failed)) => CError::of(&failed),
        Err(_) => CError::new(
            "INTERNAL",
            "a call of muster panicked; its message is on stderr",
        ),
    }
}

/// The calls, and the communicator that makes them.
fn prepare(
    group: &Group,
    calls: *const CCall,
    count: u64,
) -> Result<(Communicator, Vec<Call>), *mut CError> {
    let Some(mut calls) = Call::all(calls, count, group.comm.size()) else {
        return Err(CError::new(
            "UNSUPPORTED",
            "a call, an element type or a reduction that is not known",
        ));
    };
    match &mut calls[..] {
        [message] if message.is_message() => {
            let channel = group.channel(message);
            let channel = channel.map_err(|failed| CError::of(&failed))?;
            Ok((channel, calls))
        }
        _ => Ok((group.comm.clone(), calls)),
    }
}

fn group_at<'a>(group: *const Group) -> &'a Group {
    // SAFETY: it came from `group` or `part`, and C releases it when no call is under way on it any more.
    unsafe { &*group }
}

extern "C" fn run(
    group: *const Group,
    calls: *const CCall,
    count: u64,
    timeout_ms: i64,
) -> *mut CError {
    match prepare(group_at(group), calls, count) {
        Ok((comm, calls)) => {
            let _blocking = interrupt::enter(&comm);
            run_all(&comm, &calls, timeout_ms)
        }
        Err(error) => error,
    }
}

/// A pointer of the caller, on its way through the worker.
struct Data(*mut c_void);

// SAFETY: the caller's function takes it on any thread.
unsafe impl Send for Data {}

extern "C" fn start(
    group: *const Group,
    calls: *const CCall,
    count: u64,
    timeout_ms: i64,
    done: Done,
    data: *mut c_void,
) {
    match prepare(group_at(group), calls, count) {
        Ok((comm, calls)) => {
            let data = Data(data);
            let site = calls.first().map_or(Site::NONE, |call| call.site);
            let work = site.at(|| {
                comm.start(move |comm| {
                    let data = data;
                    done(data.0, run_all(comm, &calls, timeout_ms));
                    Ok(())
                })
            });
            // It goes on by itself, and `done` hears how it ends.
            drop(work);
        }
        Err(error) => done(data, error),
    }
}

extern "C" fn part(
    group: *const Group,
    name: *const c_char,
    members: *const u64,
    count: u64,
    error: *mut *mut CError,
) -> *mut Group {
    let group = group_at(group);
    // SAFETY: a name is a string that ends with zero.
    let name = unsafe { std::ffi::CStr::from_ptr(name) }.to_string_lossy();
    let all = group.comm.members();
    let outside = muster_comm::types::Rank(u32::MAX);
    let members: Vec<_> = list(members, muster_comm::types::index(count))
        .into_iter()
        .map(|index| all.get(index).copied().unwrap_or(outside))
        .collect();
    match group.world.group(&short(&name), &members) {
        Ok(comm) => Box::into_raw(Box::new(Group::new(comm, group.world.clone()))),
        Err(failed) => {
            // SAFETY: the caller gives a place for the error.
            unsafe { *error = CError::of(&failed) };
            std::ptr::null_mut()
        }
    }
}

/// A place of the program, by its code object, which the caller keeps for ever, and its line.
extern "C" fn site(code: *const c_void, file: *const c_char, line: u32) -> *const c_void {
    Site::of_code(code as usize, line, || {
        // SAFETY: a name is a string that ends with zero.
        let file = unsafe { std::ffi::CStr::from_ptr(file) };
        Some(file.to_string_lossy().into_owned())
    })
    .address() as *const c_void
}

/// The calling thread waits for calls that were started, or no longer does.
extern "C" fn awaits(group: *const Group, is_awaited: u32) {
    group_at(group).comm.set_awaited(is_awaited != 0);
}

extern "C" fn leave(group: *const Group) {
    if crate::world::check_process_quietly() {
        group_at(group).world.leave();
    }
}

extern "C" fn cancel(group: *const Group, why: *const c_char) {
    let group = group_at(group);
    // SAFETY: a reason is a string that ends with zero.
    let why = unsafe { std::ffi::CStr::from_ptr(why) }.to_string_lossy();
    group.comm.cancel(&why);
    group.channels.cancel(&why);
}

extern "C" fn release(group: *mut Group) {
    if crate::world::check_process_quietly() {
        // SAFETY: it came from `group` or `part`, and C releases it once.
        drop(unsafe { Box::from_raw(group) });
    }
}

extern "C" fn error_text(error: *const CError) -> *const c_char {
    // SAFETY: it came from this table and is not freed yet.
    unsafe { &*error }.text.as_ptr()
}

extern "C" fn error_class(error: *const CError) -> *const c_char {
    // SAFETY: as above.
    unsafe { &*error }.class.as_ptr()
}

extern "C" fn error_free(error: *mut CError) {
    // SAFETY: it came from this table, and C frees it once.
    drop(unsafe { Box::from_raw(error) });
}
