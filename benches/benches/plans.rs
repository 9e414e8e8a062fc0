//! Making plans: what a call pays once for each shape, before its communicator keeps the plan.
//!
//! The plan of one rank, for every algorithm of three collectives. Its length in elements changes nothing; the
//! number of ranks does.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use muster_benches::crew;
use muster_comm::algo::registry::algorithms_for;
use muster_comm::algo::sweep::sized;
use muster_comm::types::Collective;

const COLLECTIVES: [Collective; 3] = [
    Collective::AllReduce,
    Collective::AllGather,
    Collective::AllToAll,
];
/// Numbers of ranks.
const RANKS: [usize; 3] = [2, 8, 64];
/// Elements of each rank's buffer.
const ELEMENTS: usize = 1 << 16;

fn plans(criterion: &mut Criterion) {
    for collective in COLLECTIVES {
        let mut group = criterion.benchmark_group(format!("plan/{collective}"));
        for n in RANKS {
            let problem = sized(collective, n, ELEMENTS).expect("a problem of this size");
            let able = algorithms_for(collective).filter(|one| one.applies(&problem).is_ok());
            for algorithm in able {
                group.bench_function(BenchmarkId::new(algorithm.name, n), |bencher| {
                    bencher.iter(|| {
                        let plan = algorithm.plan(black_box(&problem), n - 1, false);
                        plan.expect("it applies")
                    });
                });
            }
        }
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = crew::bounded();
    targets = plans
}
criterion_main!(benches);
