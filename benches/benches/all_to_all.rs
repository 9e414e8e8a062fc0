//! `all_to_all` of ordinary memory, between ranks that are threads. The size is that of a rank's
//! whole buffer. At 8 bytes there are fewer elements than 8 ranks: those send nothing and meet.

use criterion::{Criterion, criterion_group, criterion_main};
use muster_benches::crew;

/// What the built-in rules take between hosts.
const MESSAGES: &str = "
all_to_all  n>=8  bytes<64KiB  -> bruck
all_to_all                     -> pairwise
";

fn all_to_all(criterion: &mut Criterion) {
    crew::sweep(
        criterion,
        "all_to_all",
        MESSAGES,
        |group, sendbuf, recvbuf| {
            let whole = sendbuf.len() - sendbuf.len() % group.size();
            group.all_to_all(&sendbuf[..whole], &mut recvbuf[..whole])
        },
    );
}

criterion_group! {
    name = benches;
    config = crew::bounded();
    targets = all_to_all
}
criterion_main!(benches);
