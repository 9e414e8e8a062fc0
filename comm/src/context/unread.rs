//! Messages that peers have sent and that this rank has never received, as seen when it leaves the world.
//!
//! A small message needs no receiver to be sent: where the call that would receive it is left out, nobody
//! waits for anything. So a rank looks at the streams of each group when that is destroyed, and at those of
//! all others when it says goodbye. It tells of them only then: a rank that destroys its groups because it
//! fails has a better reason not to have received something.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::error::ErrorKind;
use crate::error::verdict::CallId;
use crate::types::Rank;

/// A message that nobody has received.
#[derive(Clone, Debug)]
pub(crate) struct Unread {
    /// The call after that of the message; number 0 for a message outside collectives.
    pub(crate) call: CallId,
    /// Who has not received it, where no more is known; `None` where sender and receiver made the call differently.
    pub(crate) culprit: Option<Rank>,
    /// The mismatch of its sender and its receiver.
    pub(crate) kind: ErrorKind,
}

/// A group that may have unread messages.
pub(crate) trait HasUnread: Send + Sync {
    /// The first unread message. The group is not used again.
    fn unread(&self) -> Option<Unread>;
    /// Whether it has sent messages that a rank which is there may still read.
    fn is_unsettled(&self) -> bool;
}

/// The groups of a rank.
#[derive(Debug, Default)]
pub(crate) struct Groups(Mutex<Known>);

#[derive(Default)]
struct Known {
    live: Vec<Weak<dyn HasUnread>>,
    /// Of groups that were destroyed.
    first: Option<Unread>,
}

impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Known")
            .field("first", &self.first)
            .finish_non_exhaustive()
    }
}

impl Groups {
    /// A group was made.
    pub(crate) fn add<G: HasUnread + 'static>(&self, group: &Arc<G>) {
        let mut known = self.lock();
        if known.live.len() == known.live.capacity() {
            known.live.retain(|group| group.strong_count() > 0);
        }
        let group = Arc::downgrade(group);
        known.live.push(group);
    }

    /// A group that is being destroyed leaves this behind.
    pub(crate) fn note(&self, unread: Unread) {
        self.lock().first.get_or_insert(unread);
    }

    /// Whether a group has sent messages that a rank which is there may still read.
    pub(super) fn is_unsettled(&self) -> bool {
        let live: Vec<_> = self.lock().live.iter().filter_map(Weak::upgrade).collect();
        live.iter().any(|group| group.is_unsettled())
    }

    pub(super) fn first(&self) -> Option<Unread> {
        let (first, live) = {
            let mut known = self.lock();
            (known.first.clone(), std::mem::take(&mut known.live))
        };
        let groups = || live.iter().filter_map(Weak::upgrade);
        first.or_else(|| groups().find_map(|group| group.unread()))
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
