//! Writes the generated files of the repository (`docs/algorithms.md`, …).
//! `cargo run -p xtask` writes, `cargo run -p xtask -- --check` only compares.

fn main() {}
