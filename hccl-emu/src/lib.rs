//! An emulator of HCCL and the Ascend runtime (CANN) for machines without an NPU.
//!
//! One shared library answers to `libhccl.so`, `libhcomm.so`, `libascendcl.so` and `libacl_rt.so`
//! with one shared state behind the vendor's export names, so that the whole device path, and
//! programs of third parties, run anywhere. Whatever it reports says that it is emulated.
