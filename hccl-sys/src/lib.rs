//! Raw, dynamically loaded bindings to HCCL and the Ascend runtime (CANN).
//!
//! Nothing of the vendor is linked: on a machine without CANN this crate finds out so, and says
//! what it looked for. This crate knows C names and places of files; it must not know what the
//! calls are used for, and it reads no environment: callers pass what the variables say.
//!
//! ```
//! use hccl_sys::search::Places;
//! use hccl_sys::symbols::Api;
//!
//! let api = Api::load(&Places::default());
//! match api.acl().aclrtGetDeviceCount() {
//!     Ok(device_count) => {
//!         let mut count = 0;
//!         // Sound: one number is written to a place that lives for the whole call.
//!         let result = unsafe { device_count(&raw mut count) };
//!         println!("{count} devices ({result})");
//!     }
//!     Err(missing) => println!("{missing}"),
//! }
//! for capability in api.capabilities() {
//!     println!("{}: {:?}", capability.row.name, capability.found);
//! }
//! ```

pub mod codes;
pub mod headers;
pub mod loaded;
pub mod search;
pub mod symbols;
pub mod types;
pub mod version;
