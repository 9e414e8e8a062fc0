//! Criterion benchmarks; everything lives in `benches/`. Run them with `cargo bench -p muster-benches`.
