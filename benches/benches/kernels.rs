//! Reduction kernels against the scalar reference.
use criterion::{Criterion, criterion_group, criterion_main};

fn kernels(_c: &mut Criterion) {}

criterion_group!(benches, kernels);
criterion_main!(benches);
