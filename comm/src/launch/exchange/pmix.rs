//! A client of PMIx through the launcher's library: rank 0 puts one value, and the others get it as soon as it is there.
//!
//! No fence is needed: a server keeps a `PMIx_Get` until the value has come, so that a rank that never starts holds up
//! nobody here, and the rendezvous can name it. The layouts are those of the PMIx standard, versions 2 to 5 ("Data
//! Structures and Types"). It must not know what the value means.
//!
//! This is also the one place that takes an inherited descriptor by its number.

#![expect(
    unsafe_code,
    reason = "functions of another library, and a descriptor known by its number"
)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::transmute;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::ptr::{null, null_mut};
use std::time::Duration;

use crossbeam::channel;
use hccl_sys::loaded::Handle;

use super::{ExchangeError, waited_ms};
use crate::sync::{Clock, Deadline};
use crate::types::Rank;

/// The key of the value.
const KEY: &CStr = c"muster-rendezvous";
/// `PMIX_SUCCESS`.
const SUCCESS: c_int = 0;
/// `PMIX_ERR_NOT_FOUND`.
const NOT_FOUND: c_int = -46;
/// Pause before rank 0's place is asked for again.
const ASK_PAUSE: Duration = Duration::from_millis(20);
/// `PMIX_STRING`, the type of a value.
const STRING: u16 = 3;
/// `PMIX_GLOBAL`: for processes on this host and on others.
const GLOBAL: u8 = 3;

/// `pmix_proc_t`: a namespace of at most 255 bytes, and a rank in it.
#[derive(Clone)]
#[repr(C)]
struct Process {
    namespace: [c_char; 256],
    rank: u32,
}

const _: () = assert!(size_of::<Process>() == 260);

/// `pmix_value_t`: a type, and a union that begins at 8. What the library makes is never read beyond the pointer; what we
/// make is larger than the union of any version, because the library may copy the whole.
#[repr(C)]
struct Value {
    kind: u16,
    text: *const c_char,
    _room: [u64; 14],
}

type Init = unsafe extern "C" fn(*mut Process, *mut c_void, usize) -> c_int;
type Put = unsafe extern "C" fn(u8, *const c_char, *mut Value) -> c_int;
type Commit = unsafe extern "C" fn() -> c_int;
type Get = unsafe extern "C" fn(
    *const Process,
    *const c_char,
    *const c_void,
    usize,
    *mut *mut Value,
) -> c_int;
type Finalize = unsafe extern "C" fn(*const c_void, usize) -> c_int;
type ErrorString = unsafe extern "C" fn(c_int) -> *const c_char;

/// The functions that are used.
struct Library {
    init: Init,
    put: Put,
    commit: Commit,
    get: Get,
    finalize: Finalize,
    error_string: ErrorString,
}

/// Puts `value` if there is one, else gets that of rank 0.
///
/// The library may block for as long as it likes: it gets a thread of its own, which outlives the deadline if it must.
pub(super) fn exchange(
    places: &[PathBuf],
    rank: Rank,
    value: Option<&str>,
    deadline: Deadline,
) -> Result<String, ExchangeError> {
    let library = Library::load(places)?;
    let value = value.map(str::to_owned);
    let is_asking = value.is_none();
    let (sender, answer) = channel::bounded(2);
    let said = sender.clone();
    let thread = move || {
        let outcome = library.exchange((rank, value.as_deref()), deadline, || {
            // Fails only if nobody waits any more, as below.
            let _ = said.send(None);
        });
        let _ = sender.send(Some(outcome));
    };
    let spawned = std::thread::Builder::new()
        .name("muster-pmix".to_owned())
        .spawn(thread);
    spawned.map_err(|error| ExchangeError::Call {
        call: "the start of a thread",
        why: error.to_string(),
        code: error.raw_os_error().unwrap_or(0),
    })?;
    let mut is_connected = false;
    loop {
        match answer.recv_timeout(deadline.left()) {
            Ok(Some(outcome)) => return outcome,
            Ok(None) => is_connected = true,
            Err(_) if is_asking && is_connected => {
                let waited_ms = waited_ms(deadline);
                return Err(ExchangeError::RankZero { waited_ms });
            }
            Err(_) => {
                return Err(ExchangeError::Silent {
                    way: "PMIx",
                    asked: "PMIx_Init".to_owned(),
                    waited_ms: waited_ms(deadline),
                });
            }
        }
    }
}

impl Library {
    /// The first of these that is there.
    fn load(places: &[PathBuf]) -> Result<Self, ExchangeError> {
        let mut refusals = Vec::new();
        for place in places {
            match Handle::load(place).and_then(|handle| Self::of(&handle)) {
                Ok(library) => return Ok(library),
                Err(why) => refusals.push(why),
            }
        }
        let looked = refusals.join("; ");
        Err(ExchangeError::Library { looked })
    }

    fn of(handle: &Handle) -> Result<Self, String> {
        let find = |name: &str| {
            let address = handle.address(name);
            address.ok_or_else(|| format!("the library has no {name}"))
        };
        let (init, put) = (find("PMIx_Init")?, find("PMIx_Put")?);
        let (commit, get) = (find("PMIx_Commit")?, find("PMIx_Get")?);
        let (finalize, words) = (find("PMIx_Finalize")?, find("PMIx_Error_string")?);
        Ok(Self {
            // SAFETY: the function of this name has this signature in the PMIx standard from version 2, which is what
            // libpmix.so.2 stands for; the library is never unloaded. The same holds for those below.
            init: unsafe { transmute::<*mut c_void, Init>(init) },
            // SAFETY: as for the first.
            put: unsafe { transmute::<*mut c_void, Put>(put) },
            // SAFETY: as for the first.
            commit: unsafe { transmute::<*mut c_void, Commit>(commit) },
            // SAFETY: as for the first.
            get: unsafe { transmute::<*mut c_void, Get>(get) },
            // SAFETY: as for the first.
            finalize: unsafe { transmute::<*mut c_void, Finalize>(finalize) },
            // SAFETY: as for the first.
            error_string: unsafe { transmute::<*mut c_void, ErrorString>(words) },
        })
    }

    /// Connects, passes the value on and disconnects. `connected` is called in between.
    fn exchange(
        &self,
        (rank, value): (Rank, Option<&str>),
        deadline: Deadline,
        connected: impl FnOnce(),
    ) -> Result<String, ExchangeError> {
        let mut own = Process {
            namespace: [0; 256],
            rank: 0,
        };
        // SAFETY: the library writes one process, and takes no directives.
        let code = unsafe { (self.init)(&raw mut own, null_mut(), 0) };
        self.check("PMIx_Init", code)?;
        connected();
        let outcome = if own.rank == rank.0 {
            match value {
                Some(value) => self.put(value),
                None => self.get(&own, deadline),
            }
        } else {
            Err(ExchangeError::Call {
                call: "PMIx_Init",
                why: format!("it is rank {} and PMIX_RANK is {rank}", own.rank),
                code,
            })
        };
        // SAFETY: it was initialised above, and takes no directives. What it answers changes nothing any more.
        let _ = unsafe { (self.finalize)(null(), 0) };
        outcome
    }

    fn put(&self, value: &str) -> Result<String, ExchangeError> {
        // An endpoint has no zero in it.
        let text = CString::new(value).unwrap_or_default();
        let mut given = Value {
            kind: STRING,
            text: text.as_ptr(),
            _room: [0; 14],
        };
        // SAFETY: key and text are closed by zeros and outlive the call, which copies them.
        let code = unsafe { (self.put)(GLOBAL, KEY.as_ptr(), &raw mut given) };
        self.check("PMIx_Put", code)?;
        // SAFETY: the library is initialised.
        let code = unsafe { (self.commit)() };
        self.check("PMIx_Commit", code)?;
        Ok(value.to_owned())
    }

    /// What rank 0 has put. The library waits for it, but a daemon that hears the question before all of rank 0's answers that there is
    /// nothing: then it is asked again.
    fn get(&self, own: &Process, deadline: Deadline) -> Result<String, ExchangeError> {
        let first = Process {
            rank: 0,
            ..own.clone()
        };
        let mut got: *mut Value = null_mut();
        let code = loop {
            // SAFETY: process and key outlive the call, which writes one pointer and takes no directives.
            let code =
                unsafe { (self.get)(&raw const first, KEY.as_ptr(), null(), 0, &raw mut got) };
            if code != NOT_FOUND || deadline.passed() {
                break code;
            }
            Clock::pause(ASK_PAUSE);
        };
        self.check("PMIx_Get", code)?;
        if got.is_null() {
            return Err(Self::no_text());
        }
        // SAFETY: the call succeeded: it made a value, which is ours from now on, and every value begins with its type.
        let kind = unsafe { (*got).kind };
        if kind != STRING {
            return Err(Self::no_text());
        }
        // SAFETY: as above; a value of this type has a pointer there.
        let text = unsafe { (*got).text };
        if text.is_null() {
            return Err(Self::no_text());
        }
        // LEAK: not every version exports the function that frees a value; it is a few bytes, once.
        // SAFETY: a text of the library, closed with a zero, and never freed.
        let text = unsafe { CStr::from_ptr(text) };
        Ok(text.to_string_lossy().into_owned())
    }

    fn no_text() -> ExchangeError {
        ExchangeError::Place {
            way: "PMIx",
            said: "no text".to_owned(),
        }
    }

    fn check(&self, call: &'static str, code: c_int) -> Result<(), ExchangeError> {
        if code == SUCCESS {
            return Ok(());
        }
        // SAFETY: the function takes any code, and needs no initialisation.
        let words = unsafe { (self.error_string)(code) };
        let why = if words.is_null() {
            "unknown".to_owned()
        } else {
            // SAFETY: a constant text of the library, closed with a zero.
            let words = unsafe { CStr::from_ptr(words) };
            words.to_string_lossy().into_owned()
        };
        Err(ExchangeError::Call { call, why, code })
    }
}

/// A descriptor of our own for what the launcher handed down under this number. That one stays open.
pub(super) fn duplicate(number: i32) -> Result<OwnedFd, ExchangeError> {
    // SAFETY: the number is above 2 and was given to this process by its launcher for this use; if it is no descriptor, the
    // system says so. It is not closed here.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    borrowed
        .try_clone_to_owned()
        .map_err(|error| ExchangeError::Descriptor {
            asked: "init".to_owned(),
            why: error.to_string(),
        })
}
