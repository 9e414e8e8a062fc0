//! Reduction kernels of every family of instructions that this CPU has.
//!
//! The throughput counts the bytes of all sources. 4 KiB lies in the first-level cache, 1 MiB a
//! source in the second or third. A whole run takes about 20 seconds; for figures to quote, give a
//! filter and `--measurement-time`.
#![expect(
    unsafe_code,
    reason = "kernels work on raw memory, and so do their benchmarks"
)]

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use muster_comm::kernel::{Isa, Kernels};
use muster_comm::types::{DType, ReduceOp};

/// Length of one source in bytes.
const SIZES: [usize; 2] = [4 << 10, 1 << 20];
/// Numbers of sources.
const SOURCES: [usize; 2] = [2, 8];

fn reduce_n(c: &mut Criterion) {
    for dtype in [DType::F32, DType::Bf16, DType::I32] {
        for ranks in SOURCES {
            let mut group = c.benchmark_group(format!("reduce_n/{dtype}/sum/n={ranks}"));
            for bytes in SIZES {
                group.throughput(Throughput::Bytes((ranks * bytes) as u64));
                for kernels in Isa::supported().filter_map(|isa| Kernels::new(isa).ok()) {
                    let id = BenchmarkId::new(kernels.isa().name(), bytes);
                    // Zeros: no sum overflows, and none is subnormal.
                    let inputs = vec![vec![0u8; bytes]; ranks];
                    let srcs: Vec<_> = inputs.iter().map(|input| input.as_ptr()).collect();
                    let mut output = vec![0u8; bytes];
                    let dst = output.as_mut_ptr();
                    let count = bytes / dtype.size();
                    group.bench_function(id, |bencher| {
                        bencher.iter(|| {
                            let (srcs, op) = (black_box(&srcs), ReduceOp::Sum);
                            // SAFETY: all buffers hold `bytes` bytes, and `dst` is one of its own.
                            unsafe { kernels.reduce_n(dtype, op, srcs, dst, count, 1) }
                        });
                    });
                }
            }
            group.finish();
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(300))
        .sample_size(20)
        .without_plots();
    targets = reduce_n
}
criterion_main!(benches);
