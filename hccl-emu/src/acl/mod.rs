//! The exports of the runtime, `acl*`: they translate between C and [`crate::runtime`].
//!
//! Every export goes through [`guard`]: an error becomes its code and a line for
//! `aclGetRecentErrMsg`, and a panic becomes an internal error instead of crossing into C.

mod base;
pub(crate) mod guard;
