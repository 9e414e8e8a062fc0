//! Bytes between two ranks. Knows nothing of element types or collectives.

pub mod shm;
