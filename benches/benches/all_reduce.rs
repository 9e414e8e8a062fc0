//! `all_reduce` of ordinary memory, between ranks that are threads.

use criterion::{Criterion, criterion_group, criterion_main};
use muster_benches::crew;
use muster_comm::types::ReduceOp;

/// What the built-in rules take between hosts.
const MESSAGES: &str = "
all_reduce  n<=2          -> recursive_doubling
all_reduce  bytes<16KiB   -> recursive_doubling
all_reduce  bytes<4MiB    -> halving_doubling
all_reduce                -> ring
";

fn all_reduce(criterion: &mut Criterion) {
    crew::sweep(
        criterion,
        "all_reduce",
        MESSAGES,
        |group, sendbuf, recvbuf| group.all_reduce(sendbuf, recvbuf, ReduceOp::Sum),
    );
}

criterion_group! {
    name = benches;
    config = crew::bounded();
    targets = all_reduce
}
criterion_main!(benches);
