//! Ranks that are threads, kept for a whole benchmark.
//!
//! Between samples the ranks sleep in a channel, so that nothing but the sample itself competes
//! for processors. A sample begins with a few calls that are not timed: they wake every rank, and
//! touch every page that the timed calls need.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, SamplingMode, Throughput};
use muster_comm::algo::Table;
use muster_comm::collective::Communicator;
use muster_comm::error::CommError;
use muster_comm::sync::Clock;
use muster_comm::world::{ThreadOptions, World};

/// Numbers of ranks: one for each processor of a small machine, and more ranks than processors.
const RANKS: [usize; 2] = [2, 8];
/// Bytes of each rank's buffer.
const SIZES: [usize; 5] = [8, 4 << 10, 64 << 10, 1 << 20, 16 << 20];
/// Calls in front of each sample.
const WARM_UPS: u64 = 3;
/// From this size on all samples have the same number of calls: linear sampling would take minutes.
const FLAT_FROM: usize = 1 << 20;

/// One call of the collective that is measured, out of place: send buffer, receive buffer.
pub type Call = fn(&Communicator, &[f32], &mut [f32]) -> Result<(), CommError>;

/// Criterion with limits that keep one collective under a minute, analysis included.
#[must_use]
pub fn bounded() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_millis(1200))
        .sample_size(15)
        .without_plots()
}

/// Measures `call` for all numbers of ranks and all sizes, once through shared memory and once, as
/// `rules` choose algorithms, by messages.
///
/// The time of a sample is that of its slowest rank, divided by the number of calls. The throughput
/// is buffer bytes over time (`algbw` of `docs/metrics.md`).
///
/// # Panics
/// Where `rules` are not rules.
pub fn sweep(criterion: &mut Criterion, name: &str, rules: &str, call: Call) {
    let table = Table::with_overrides(rules).expect("the rules of the benchmark");
    for (links, algo_table) in [("shm", None), ("messages", Some(table))] {
        let options = ThreadOptions {
            algo_table,
            ..ThreadOptions::default()
        };
        for ranks in RANKS {
            let mut group = criterion.benchmark_group(format!("{name}/f32/{links}/n={ranks}"));
            for bytes in SIZES {
                one(&mut group, ranks, &options, bytes, call);
            }
            group.finish();
        }
    }
}

fn one(
    group: &mut BenchmarkGroup<'_, WallTime>,
    ranks: usize,
    options: &ThreadOptions,
    bytes: usize,
    call: Call,
) {
    group.throughput(Throughput::Bytes(bytes as u64));
    group.sampling_mode(if bytes < FLAT_FROM {
        SamplingMode::Auto
    } else {
        SamplingMode::Flat
    });
    thread::scope(|scope| {
        let mut crew = None;
        group.bench_function(BenchmarkId::from_parameter(bytes), |bencher| {
            // Made here, so that a filter on the command line costs no ranks.
            let crew = crew.get_or_insert_with(|| Crew::gather(scope, ranks, options, bytes, call));
            bencher.iter_custom(|calls| crew.run(calls));
        });
    });
}

/// Ranks that wait for a number of calls to make.
struct Crew {
    /// Dropped to send the ranks home.
    orders: Vec<Sender<u64>>,
    times: Receiver<Duration>,
}

impl Crew {
    fn gather<'scope>(
        scope: &'scope thread::Scope<'scope, '_>,
        ranks: usize,
        options: &'scope ThreadOptions,
        bytes: usize,
        call: Call,
    ) -> Self {
        let (orders, inboxes): (Vec<_>, Vec<_>) = (0..ranks).map(|_| channel()).unzip();
        let inboxes: Mutex<Vec<_>> = Mutex::new(inboxes.into_iter().map(Some).collect());
        let (report, times) = channel();
        scope.spawn(move || {
            let take = |rank: usize| {
                let mut inboxes = inboxes.lock().unwrap_or_else(PoisonError::into_inner);
                inboxes[rank].take().expect("each rank takes its own inbox")
            };
            let body = |world: World| {
                let inbox = take(world.rank().index());
                let report = report.clone();
                serve(&world, bytes, call, &inbox, &report).expect("the collective works");
            };
            World::threads_with(ranks, options, body).expect("there is shared memory");
        });
        Self { orders, times }
    }

    /// The time of the slowest rank.
    fn run(&self, calls: u64) -> Duration {
        for order in &self.orders {
            order.send(calls).expect("the rank is there");
        }
        self.orders
            .iter()
            .map(|_| self.times.recv().expect("every rank reports"))
            .max()
            .unwrap_or_default()
    }
}

fn serve(
    world: &World,
    bytes: usize,
    call: Call,
    inbox: &Receiver<u64>,
    report: &Sender<Duration>,
) -> Result<(), CommError> {
    let group = world.everyone()?;
    let count = bytes / size_of::<f32>();
    // Ones: sums stay small and normal, however often they are made.
    let sendbuf = vec![1.0_f32; count];
    let mut recvbuf = vec![0.0_f32; count];
    for calls in inbox {
        for _ in 0..WARM_UPS {
            call(&group, &sendbuf, &mut recvbuf)?;
        }
        group.barrier()?;
        let start = Clock::now();
        for _ in 0..calls {
            call(&group, &sendbuf, &mut recvbuf)?;
        }
        // The owner of the receiver waits for all reports.
        let _ = report.send(start.elapsed());
    }
    Ok(())
}
