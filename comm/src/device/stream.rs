//! Streams and events, and what the work on them holds.
//!
//! - `QUEUE-1`: what a stream was given holds its memory until the stream is known to be past it.
//! - `QUEUE-2`: the end of a stream waits a bounded time. What is still under way then keeps its
//!   memory for ever, and is counted ([`super::Leaks`]).

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::error::DeviceError;
use super::leaks;
use super::library::Device;
use super::library::RuntimeCalls;
use super::memory::Storage;
use super::vendor_call::Handle;
use crate::buffer::Element;
use crate::sync::{AtomicBool, Deadline, Ordering, lock};

/// Time that the end of a stream gives the work on it.
const FAREWELL: Duration = Duration::from_millis(500);
/// First and longest look at a stream while waiting: short, so that a call that ends soon is seen
/// soon; bounded, so that the fate of peers is noticed.
const LOOK_FIRST: Duration = Duration::from_millis(2);
const LOOK_MAX: Duration = Duration::from_millis(20);

/// A queue of work on a device, done in order. Cheap to clone; all clones are one stream.
#[derive(Clone)]
pub struct Stream {
    inner: Arc<Inner>,
}

struct Inner {
    device: Device,
    handle: Handle,
    held: Mutex<VecDeque<Held>>,
    /// Whether a task of it failed or was dropped: nothing is known of its end any more.
    is_broken: AtomicBool,
}

/// What some work holds.
struct Held {
    /// Recorded behind the work; without one the work ends with a wait for the whole stream.
    event: Option<Event>,
    what: Keep,
}

/// Memory that work on a device uses.
pub(crate) struct Keep {
    storages: Vec<Arc<Storage>>,
    /// Host memory of transfers, and whatever else must stay.
    others: Vec<Box<dyn Any + Send>>,
}

impl Keep {
    pub(crate) fn new(storages: Vec<Arc<Storage>>) -> Self {
        Self {
            storages,
            others: Vec::new(),
        }
    }

    /// Leaves everything to the device.
    fn leak(self) {
        for storage in self.storages {
            leaks::count_buffer(storage.bytes());
            #[expect(
                clippy::mem_forget,
                reason = "LEAK: the device may still use it, and nothing tells when it stops"
            )]
            std::mem::forget(storage);
        }
        for other in self.others {
            leaks::count_buffer(0);
            #[expect(
                clippy::mem_forget,
                reason = "LEAK: the device may still use it, and nothing tells when it stops"
            )]
            std::mem::forget(other);
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream of {}", self.inner.device)
    }
}

impl Stream {
    /// A new stream.
    ///
    /// # Errors
    /// As the vendor says: a device has a limited number of them (1024 to 2048).
    pub fn new(device: &Device) -> Result<Self, DeviceError> {
        let _here = device.enter()?;
        let handle = device.calls().create_stream()?;
        Ok(Self {
            inner: Arc::new(Inner {
                device: device.clone(),
                handle,
                held: Mutex::default(),
                is_broken: AtomicBool::new(false),
            }),
        })
    }

    /// Its device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// Waits until everything that was given to the stream before has ended.
    ///
    /// # Errors
    /// [`DeviceError::Stalled`] when `timeout` has passed; the work goes on. Errors of the work come
    /// out here, as those of the vendor.
    pub fn synchronize(&self, timeout: Duration) -> Result<(), DeviceError> {
        let deadline = Deadline::after(timeout);
        let mut look = LOOK_FIRST;
        loop {
            if self.look(look.min(deadline.left()))? {
                return Ok(());
            }
            if deadline.passed() {
                return Err(DeviceError::Stalled {
                    what: format!("a stream of {}", self.inner.device),
                    waited: deadline.elapsed(),
                });
            }
            look = (look * 2).min(LOOK_MAX);
        }
    }

    /// Makes later work of this stream wait for an event of another one.
    ///
    /// # Errors
    /// As the vendor says.
    pub fn wait_for(&self, event: &Event) -> Result<(), DeviceError> {
        let _here = self.inner.device.enter()?;
        // SAFETY: both are alive; the stream holds the event below.
        unsafe {
            self.calls()
                .await_event_on(self.inner.handle, event.inner.handle)
        }?;
        self.hold(Keep {
            storages: Vec::new(),
            others: vec![Box::new(event.clone())],
        });
        Ok(())
    }

    /// One look of at most `time`: whether the stream has run empty.
    pub(crate) fn look(&self, time: Duration) -> Result<bool, DeviceError> {
        let _here = self.inner.device.enter()?;
        // What is held now has ended if the stream is empty afterwards; what another thread adds
        // meanwhile has not.
        let held = lock(&self.inner.held).len();
        // SAFETY: the stream is alive as long as this handle to it.
        match unsafe { self.calls().await_stream(self.inner.handle, time) } {
            Ok(true) => {
                let ended: Vec<Held> = {
                    let mut all = lock(&self.inner.held);
                    let ended = held.min(all.len());
                    all.drain(..ended).collect()
                };
                drop(ended);
                Ok(true)
            }
            Ok(false) => Ok(false),
            Err(error) => {
                self.set_broken();
                Err(error)
            }
        }
    }

    /// Gives work to the stream, which holds `storages` until it has ended.
    pub(crate) fn enqueue(
        &self,
        storages: Vec<Arc<Storage>>,
        work: impl FnOnce(&RuntimeCalls, Handle) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let _here = self.inner.device.enter()?;
        work(self.calls(), self.inner.handle)?;
        self.hold(Keep::new(storages));
        Ok(())
    }

    /// Holds memory until the stream has run empty once.
    pub(crate) fn hold(&self, what: Keep) {
        self.add(Held { event: None, what });
    }

    /// Holds memory until the stream has gone past an event that was just recorded in it.
    pub(crate) fn hold_until(&self, event: Event, what: Keep) {
        self.add(Held {
            event: Some(event),
            what,
        });
    }

    fn add(&self, held: Held) {
        let ended = {
            let mut all = lock(&self.inner.held);
            all.push_back(held);
            // In order: what lies before an event that has come has ended with it.
            let past = all
                .iter()
                .rposition(|held| held.event.as_ref().is_some_and(Event::has_come_quietly));
            past.map(|last| all.drain(..=last).collect::<Vec<_>>())
        };
        drop(ended);
    }

    /// Records a new event behind everything given so far.
    ///
    /// # Errors
    /// As the vendor says.
    pub fn record(&self) -> Result<Event, DeviceError> {
        let _here = self.inner.device.enter()?;
        let event = Event::new(&self.inner.device)?;
        // SAFETY: both are alive and of this device.
        unsafe {
            self.calls()
                .record_event(event.inner.handle, self.inner.handle)
        }?;
        Ok(event)
    }

    /// Drops what is queued, where the runtime can do that, and believes nothing of the stream any
    /// more: what was under way keeps its memory for ever.
    pub(crate) fn abort(&self) {
        self.set_broken();
        if let Ok(_here) = self.inner.device.enter() {
            // SAFETY: the stream is alive. If it cannot be aborted it stays as it is.
            let _ = unsafe { self.calls().abort_stream(self.inner.handle) };
        }
    }

    fn set_broken(&self) {
        // SYNC: pairs with the Acquire in `Inner::drop`.
        self.inner.is_broken.store(true, Ordering::Release);
    }

    pub(crate) fn handle(&self) -> Handle {
        self.inner.handle
    }

    /// Whether two handles are one stream.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    fn calls(&self) -> &RuntimeCalls {
        self.inner.device.calls()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let calls = self.device.calls();
        let Ok(_here) = self.device.enter() else {
            leaks::count_handle();
            leak_all(&self.held);
            return;
        };
        // SYNC: pairs with the Release in `set_broken`.
        let is_broken = self.is_broken.load(Ordering::Acquire);
        // SAFETY: this is the last handle to the stream.
        let ended = !is_broken
            && matches!(
                unsafe { calls.await_stream(self.handle, FAREWELL) },
                Ok(true)
            );
        if !ended {
            leak_all(&self.held);
        }
        // SAFETY: this is the last handle to the stream; by force where work may be left in it.
        let destroyed = unsafe { calls.destroy_stream(self.handle, !ended) };
        if destroyed.is_err() {
            leaks::count_handle();
        }
    }
}

fn leak_all(held: &Mutex<VecDeque<Held>>) {
    for held in std::mem::take(&mut *lock(held)) {
        held.what.leak();
    }
}

/// A mark in a stream: it has come when everything before it has ended. Cheap to clone.
#[derive(Clone)]
pub struct Event {
    inner: Arc<EventInner>,
}

struct EventInner {
    device: Device,
    handle: Handle,
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event of {}", self.inner.device)
    }
}

impl Event {
    fn new(device: &Device) -> Result<Self, DeviceError> {
        let handle = device.calls().create_event()?;
        Ok(Self {
            inner: Arc::new(EventInner {
                device: device.clone(),
                handle,
            }),
        })
    }

    /// Whether it has come. Never waits.
    ///
    /// # Errors
    /// As the vendor says.
    pub fn has_come(&self) -> Result<bool, DeviceError> {
        let _here = self.inner.device.enter()?;
        // SAFETY: the event is alive and was recorded when it was made.
        unsafe { self.inner.device.calls().has_come(self.inner.handle) }
    }

    /// Time on the device between an earlier event and this one.
    ///
    /// # Errors
    /// `InvalidArgument` where one of them has not come; else as the vendor says.
    pub fn time_since(&self, earlier: &Self) -> Result<Duration, DeviceError> {
        if !(self.has_come()? && earlier.has_come()?) {
            return Err(DeviceError::InvalidArgument {
                what: "an event".to_owned(),
                got: "one that has not come".to_owned(),
                want: "two that have".to_owned(),
            });
        }
        let _here = self.inner.device.enter()?;
        let calls = self.inner.device.calls();
        // SAFETY: both are alive and have come.
        let millis = unsafe { calls.elapsed_ms(earlier.inner.handle, self.inner.handle) }?;
        Ok(Duration::from_secs_f32((millis / 1000.0).max(0.0)))
    }

    /// Whether it is known to have come; an error says nothing.
    fn has_come_quietly(&self) -> bool {
        matches!(self.has_come(), Ok(true))
    }
}

impl Drop for EventInner {
    fn drop(&mut self) {
        let destroyed = self.device.enter().and_then(|_here| {
            // SAFETY: this is the last handle to the event; a stream that waits for it holds one.
            unsafe { self.device.calls().destroy_event(self.handle) }
        });
        if destroyed.is_err() {
            leaks::count_handle();
        }
    }
}

/// A copy between host and device that is under way, with the host memory in it.
#[derive(Debug)]
pub struct Transfer<T> {
    stream: Stream,
    event: Event,
    /// Shared with what the stream holds: a transfer that is dropped frees nothing under a copy.
    memory: Arc<Mutex<Vec<T>>>,
}

impl<T: Element> Transfer<T> {
    pub(super) fn enqueue(
        stream: &Stream,
        memory: Vec<T>,
        storage: Arc<Storage>,
        work: impl FnOnce(&RuntimeCalls, Handle) -> Result<(), DeviceError>,
    ) -> Result<Self, DeviceError> {
        let _here = stream.inner.device.enter()?;
        if !memory.is_empty() {
            work(stream.calls(), stream.inner.handle)?;
        }
        let memory = Arc::new(Mutex::new(memory));
        let keep = Keep {
            storages: vec![storage],
            others: vec![Box::new(Arc::clone(&memory))],
        };
        let event = match stream.record() {
            Ok(event) => event,
            Err(error) => {
                stream.hold(keep);
                return Err(error);
            }
        };
        stream.hold_until(event.clone(), keep);
        Ok(Self {
            stream: stream.clone(),
            event,
            memory,
        })
    }

    /// Whether the copy has ended.
    ///
    /// # Errors
    /// As the vendor says.
    pub fn is_done(&self) -> Result<bool, DeviceError> {
        self.event.has_come()
    }

    /// Waits for the copy and gives the host memory back.
    ///
    /// # Errors
    /// [`DeviceError::Stalled`] when `timeout` has passed: the memory then stays with the stream.
    pub fn wait(self, timeout: Duration) -> Result<Vec<T>, DeviceError> {
        let deadline = Deadline::after(timeout);
        let mut look = LOOK_FIRST;
        while !self.event.has_come()? {
            if deadline.passed() {
                return Err(DeviceError::Stalled {
                    what: format!("a copy on {}", self.stream.device()),
                    waited: deadline.elapsed(),
                });
            }
            // Errors of the stream come out here, and its end is waited for without spinning.
            self.stream.look(look.min(deadline.left()))?;
            look = (look * 2).min(LOOK_MAX);
        }
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(std::mem::take(&mut *memory))
    }
}
