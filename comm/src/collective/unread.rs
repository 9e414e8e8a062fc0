//! What a communicator that is not used again has never received.

use super::communicator::Inner;
use crate::context::{HasUnread, Unread};

impl HasUnread for Inner {
    fn unread(&self) -> Option<Unread> {
        let status = &self.context.status;
        if self.failed.get().is_some() || status.notice(self.group.key).is_some() {
            return None;
        }
        // Where a call is under way it may still take what came.
        let mut host = self.host.try_lock().ok()?;
        host.unread(&self.context, &self.group)
    }

    fn is_unsettled(&self) -> bool {
        let host = self.host.try_lock();
        host.is_ok_and(|host| host.is_unsettled(&self.context.status))
    }
}
