//! `all_reduce` of ordinary memory, between ranks that are threads.

use criterion::{Criterion, criterion_group, criterion_main};
use muster_benches::crew;
use muster_comm::types::ReduceOp;

fn all_reduce(criterion: &mut Criterion) {
    crew::sweep(criterion, "all_reduce", |group, sendbuf, recvbuf| {
        group.all_reduce(sendbuf, recvbuf, ReduceOp::Sum)
    });
}

criterion_group! {
    name = benches;
    config = crew::bounded();
    targets = all_reduce
}
criterion_main!(benches);
