//! Raw, dynamically loaded bindings to HCCL and the Ascend runtime (CANN).
//!
//! Nothing of the vendor is linked: on a machine without CANN this crate finds out so, and says
//! what it looked for. This crate knows C names and places of files; it must not know what the
//! calls are used for, and it reads no environment: callers pass what the variables say.

pub mod codes;
pub mod headers;
mod loaded;
pub mod search;
pub mod symbols;
pub mod types;
pub mod version;
