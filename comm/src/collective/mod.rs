//! The public calls: one file a collective.
//!
//! A file says what the collective means (shapes, in-place rule, zero counts, order, errors, cost)
//! and checks the arguments; from here on the call is a request without type parameters. What
//! comes back wrong gets its context here and nowhere else.
//!
//! Common to all of them:
//! - `root` and `peer` are indices into the group's list of members.
//! - A call that is refused (`InvalidArgument`) has sent nothing, and the group stays usable: the
//!   rank may correct the call and make it again, and its peers never notice.
//! - A call ends by its deadline at the latest ([`Communicator::set_deadline`]).
//! - Calls on one communicator are made one after the other, in the same order on all ranks. Calls
//!   on different communicators are independent and may run at once, from several threads.

mod all_gather;
mod all_reduce;
mod all_to_all;
mod barrier;
mod broadcast;
mod buffers;
mod call;
mod cancel;
mod checks;
mod communicator;
mod gather;
mod litmus;
mod object;
mod point_to_point;
mod record;
mod reduce;
mod reduce_scatter;
pub mod reference;
mod rooted;
mod scan;
mod scatter;
mod tamper;
mod unread;
mod view;
mod way;
mod work;
mod worker;

use self::buffers::Buffers;
pub(crate) use self::call::Call;
pub use self::communicator::{Communicator, OBJECT_BYTES_MAX_DEFAULT};
pub use self::litmus::{LitmusCounts, LitmusError};
pub use self::object::{PackedObjects, UnpackedObjects};
pub use self::point_to_point::{BATCH_MAX, PointToPoint};
pub(crate) use self::rooted::Sides;
pub use self::tamper::{Tamper, TamperKind};
pub use self::view::{ViewCall, ViewCounts};
pub use self::work::Work;
