//! An asynchronous call on a device.

use std::fmt;
use std::sync::Arc;

use super::Inner;
use super::run::Open;
use crate::device::stream::{Event, Stream};
use crate::error::CommError;

/// A call that was given to a stream.
///
/// Dropping it neither cancels the call nor frees its memory: the stream holds that until the call
/// has ended.
pub struct DeviceWork {
    inner: Arc<Inner>,
    open: Open,
    event: Event,
    stream: Stream,
}

impl fmt::Debug for DeviceWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceWork")
            .field("collective", &self.open.call.collective)
            .field("seq", &self.open.seq)
            .finish_non_exhaustive()
    }
}

impl DeviceWork {
    pub(super) fn new(inner: Arc<Inner>, open: Open, event: Event, stream: Stream) -> Self {
        Self {
            inner,
            open,
            event,
            stream,
        }
    }

    /// Whether the call has ended on this device. Never waits. `false` also where that cannot be
    /// told any more.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self.event.has_come(), Ok(true))
    }

    /// The event behind the call, for streams that are to wait for it.
    #[must_use]
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// Waits for the end of the call on this device, which its own deadline bounds; that began when
    /// the call was made.
    ///
    /// # Errors
    /// The error of the call: what the device reported, or the verdict on why it does not end.
    pub fn wait(self) -> Result<(), CommError> {
        self.inner.finish(&self.open, &self.stream)
    }
}
