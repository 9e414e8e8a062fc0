//! What the benchmarks share; the benchmarks themselves lie in `benches/`.
//!
//! Run them with `cargo bench -p muster-benches`, one of them with `--bench all_reduce`. What they
//! measure, and on what machine it was measured, is told in `docs/performance.md`.

pub mod batches;
pub mod crew;
