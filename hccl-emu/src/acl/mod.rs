//! The exports of the runtime, `acl*`: they translate between C and [`crate::runtime`].
//!
//! Every export goes through [`guard`]: an error becomes its code and a line for
//! `aclGetRecentErrMsg`, and a panic becomes an internal error instead of crossing into C.
//!
//! - `abi`: what C callers pass. - `base`: start and end, versions, errors.
//! - `device`, `context`, `memory`, `copy`, `virt`, `stream`, `event`: as they are called.
//! - `features`: what the chip and the software on it can do.
//! - `operator`: operators by name, of which few need no kernel.

pub(crate) mod abi;
mod base;
mod context;
mod copy;
mod device;
mod event;
mod features;
pub(crate) mod guard;
mod memory;
mod operator;
mod stream;
mod virt;
