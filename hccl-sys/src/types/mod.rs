//! The vendor's types: enums, handles, structs and the numbers of its headers.
//!
//! Names are the vendor's, with a capital first letter for types. Enums are transparent numbers
//! that keep values unknown to this version; `name()` decodes them. All layouts are asserted when
//! this crate is compiled, and compared with the vendor's headers in `tests/abi.rs`.
//!
//! - `TYPES-1`: no Rust enum crosses the border to C.
//! - `TYPES-2`: a name, number, size or offset is marked with the headers that have it.

mod acl;
mod acl_error;
mod config;
mod config_row;
mod hccl;
pub(crate) mod newtype;

pub use acl::*;
pub use acl_error::AclError;
pub use config::{COMM_CONFIG_MAGIC, CommConfigHeader, HcclCommConfig};
pub use config_row::{CommConfigError, CommConfigField, CommConfigRow};
pub use hccl::*;
pub use newtype::Named;
