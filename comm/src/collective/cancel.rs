//! Ending the calls of a communicator from outside of them.

use super::Communicator;
use crate::context::Notice;
use crate::error::ErrorKind;

impl Communicator {
    /// Ends the call that is under way on this communicator, and every later one, with an error.
    ///
    /// May be called from any thread, never waits, and sends nothing: the other members are not
    /// told, and wait in their calls as they would for a rank that is silent; a verdict says `why`. The calls here end
    /// with `PeerAborted` whose origin is this rank, within some milliseconds. What peers may still
    /// read or write is kept, as after every failure.
    ///
    /// The group cannot be used again; a new one with the same members can be made.
    pub fn cancel(&self, why: &str) {
        let inner = &*self.inner;
        inner.place.cancel(why);
        inner.context.status.set_notice(Notice {
            key: inner.group.key,
            // Before every call, so that it ends all of them.
            seq: 0,
            origin: inner.context.rank.0,
            kind: ErrorKind::Orphaned {
                why: why.to_owned(),
            },
        });
    }

    /// Says that this thread waits, from now on or no longer, for asynchronous calls of this communicator by other means than
    /// [`Work::wait`](super::Work::wait): verdicts then know what holds it up. One thread at a time.
    pub fn set_awaited(&self, is_awaited: bool) {
        if is_awaited {
            // It lasts until it is taken back below.
            let _kept = std::mem::ManuallyDrop::new(self.inner.place.awaits());
        } else {
            drop(self.inner.place.awaits());
        }
    }
}
