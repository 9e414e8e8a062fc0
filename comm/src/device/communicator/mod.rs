//! Collectives over the memory of NPUs, by HCCL.
//!
//! A [`DeviceCommunicator`] has the methods of a [`Communicator`] with device memory in the place
//! of slices. Blocking calls run on the communicator's own stream; [`DeviceCommunicator::on`] gives
//! the asynchronous ones on a stream of the program's, whose result is a [`DeviceWork`].
//!
//! # Order
//!
//! All ranks make the same calls on a communicator in the same order. Calls of one communicator are
//! ordered on the device too, whatever streams they are given to: a call on another stream than the
//! one before waits for it. What else runs on a stream is ordered by the stream.
//!
//! # When a call does not end
//!
//! At its deadline, or when the device reports an error, a rank asks all others what they gave their
//! devices and what became of it. From the answers all ranks come to one verdict: who did not
//! enqueue the call, who enqueued another one, or whose device neither completed nor complained.
//! Then the communicator is given up: streams are aborted, memory that a device may still use is
//! left to it ([`super::Leaks`]), nothing waits for the vendor without a bound.
//!
//! # Objects
//!
//! Objects go over the host, never over a device: use the methods of
//! [`DeviceCommunicator::host`].
//!
//! - `DEVICE-1`: a call that the vendor refused for its arguments takes no number; the ranks stay in
//!   step.
//! - `DEVICE-2`: work holds the memory that it uses, until it has ended or for ever.
//! - `DEVICE-3`: every rank holds the same stall reports when it judges, and so comes to the same
//!   verdict.

mod bench;
mod calls;
mod create;
mod inquest;
mod messages;
mod on_stream;
mod op_log;
mod prepare;
mod run;
mod work;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub use self::messages::DeviceMessage;
pub use self::on_stream::OnStream;
pub use self::work::DeviceWork;

use self::bench::Bench;

use crate::collective::{Call, Communicator};
use crate::context::Identity;
use crate::device::error::DeviceError;
use crate::device::library::{Device, Engine, support};
use crate::device::stream::Stream;
use crate::device::vendor_thread::Ticket;
use crate::error::{CommError, ErrorKind};
use crate::sync::{Deadline, lock};
use crate::types::{Collective, DType, Rank, ReduceOp};
use crate::watch::judge::Scene;
use crate::watch::{Place, Standing};

/// A group of ranks that make collective calls on the memory of their devices together. Made by
/// [`Communicator::on_device`].
///
/// Cheap to clone; all clones are one communicator. Dropping the last one destroys it on this rank,
/// which takes a bounded time; work that was not waited for keeps its memory until it has ended.
#[derive(Clone)]
pub struct DeviceCommunicator {
    inner: Arc<Inner>,
}

/// When the asynchronous error was last asked for, and the question under way.
type AsyncQuestion = (Option<Deadline>, Option<Ticket<Result<(), DeviceError>>>);

struct Inner {
    /// The user's group.
    host: Communicator,
    /// The same ranks, for what they tell each other here.
    desk: Communicator,
    device: Device,
    // Before the stream: the communicator is destroyed first.
    engine: Engine,
    stream: Stream,
    bench: Arc<Bench>,
    /// Hosts and processes of the ranks.
    scene: Scene,
    /// What its calls are to watching: a group beside that of `desk`, with a place on the board, and the calls that stand
    /// there, by their number.
    group: Identity,
    place: Place,
    standing: Mutex<Vec<(u64, Standing)>>,
    /// The stream of the last call.
    last: Mutex<Option<Stream>>,
    /// The error that ended the communicator, if one did.
    failed: Mutex<Option<CommError>>,
    /// Calls are given to the device one at a time.
    turn: Mutex<()>,
    async_question: Mutex<AsyncQuestion>,
    checked: bool,
    one_host: bool,
    is_sub: bool,
    exec_timeout: Option<Duration>,
}

impl fmt::Debug for DeviceCommunicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceCommunicator")
            .field("group", &self.inner.host.name())
            .field("device", &self.inner.device)
            .field("bench", &self.inner.bench)
            .finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.bench.close();
        let is_idle = self
            .stream
            .look(Duration::ZERO)
            .is_ok_and(|is_empty| is_empty);
        if lock(&self.failed).is_some() || !is_idle && self.bench.op_log().open_ms().is_some() {
            // The vendor must not be waited for; see `Engine::drop`.
            self.engine.set_broken();
        }
    }
}

impl DeviceCommunicator {
    /// The name of its group.
    #[must_use]
    pub fn name(&self) -> &str {
        self.inner.host.name()
    }

    /// This rank's index in the group.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.inner.host.rank()
    }

    /// Number of ranks in the group.
    #[must_use]
    pub fn size(&self) -> usize {
        self.inner.host.size()
    }

    /// The members' world ranks, in the order of the group.
    #[must_use]
    pub fn members(&self) -> &[Rank] {
        self.inner.host.members()
    }

    /// This rank's device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// The group's host communicator: objects, barriers and host memory go over it.
    #[must_use]
    pub fn host(&self) -> &Communicator {
        &self.inner.host
    }

    /// The communicator's own stream, on which blocking calls run. Copies that were enqueued on it
    /// come before them.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        &self.inner.stream
    }

    /// How long each call may take from now on. Applies to this rank only; the members should
    /// agree, or the most impatient one ends the call for all.
    pub fn set_deadline(&self, deadline: Duration) {
        self.inner.desk.set_deadline(deadline);
    }

    /// How long each call may take.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        self.inner.desk.deadline()
    }

    /// How long a device waits for its peers before the vendor reports an error, where that is
    /// known. It should lie below [`DeviceCommunicator::deadline`]: then the device whose peers
    /// complain and that itself does not is known to be the cause.
    #[must_use]
    pub fn exec_timeout(&self) -> Option<Duration> {
        self.inner.exec_timeout
    }

    /// The error that ended the communicator, if one did: every later call returns it at once.
    #[must_use]
    pub fn failure(&self) -> Option<CommError> {
        lock(&self.inner.failed).clone()
    }

    /// An error of this rank's device outside of a call, such as one of a copy, as an error of this
    /// group about `collective`. The group stays usable.
    #[must_use]
    pub fn error_of(&self, collective: Collective, kind: ErrorKind) -> CommError {
        let deadline = Deadline::after(self.deadline());
        let call = Call::bare(collective);
        self.inner.error(call, kind, 0, deadline, true)
    }

    /// The refusal of a call that no product takes, such as [`Collective::Scan`].
    #[must_use]
    pub fn lacking(&self, collective: Collective) -> CommError {
        self.error_of(
            collective,
            support::lacking(self.inner.device.soc(), collective),
        )
    }

    /// Whether this product takes a call with this type and reduction; the refusal names what it
    /// does take. Calls ask this themselves before they do anything.
    ///
    /// # Errors
    /// `Unsupported`.
    pub fn supports(
        &self,
        collective: Collective,
        dtype: DType,
        op: Option<ReduceOp>,
    ) -> Result<(), ErrorKind> {
        support::check(self.inner.device.soc(), collective, Some(dtype), op)
    }

    /// The calls that return at once and run on `stream`.
    #[must_use]
    pub fn on<'a>(&'a self, stream: &'a Stream) -> OnStream<'a> {
        OnStream::new(self, stream)
    }
}
