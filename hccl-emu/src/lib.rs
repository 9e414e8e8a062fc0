//! An emulator of HCCL and the Ascend runtime (CANN) for machines without an NPU.
//!
//! One shared library answers to `libhccl.so`, `libhcomm.so`, `libascendcl.so` and `libacl_rt.so`
//! with one shared state behind the vendor's export names, so that the whole device path, and
//! programs of third parties, run anywhere. Whatever it reports says that it is emulated.
//!
//! - [`options`]: what a user can choose by `MUSTER_EMU_*`; no state, so that the tool can use it.
//! - [`runtime`]: the emulation of devices, memory, streams and events, in safe terms.
//! - [`fault`]: the grammar of `MUSTER_EMU_FAULT`, without state too.
//! - `hccl`: communicators and operators, with their exports.
//! - `acl`: the exports of the runtime, which only translate between C and [`runtime`].
//! - `unsupported`: names that exist so that programs start, and refuse to do anything.
//!
//! `docs/emulator.md` says for users what is emulated and what is not.

#![expect(
    unsafe_code,
    reason = "exports of a C ABI, and memory that is reached by raw pointers only"
)]
#![expect(
    clippy::cast_possible_truncation,
    reason = "sizes are u64 on the wire and in the books; usize is as wide, asserted below"
)]

const _: () = assert!(size_of::<usize>() == size_of::<u64>());

mod acl;
pub mod fault;
mod hccl;
pub mod options;
pub mod runtime;
mod unsupported;
