//! Calls timed in short batches, for benchmarks that a busy machine must not spoil.
//!
//! Where nothing disturbs a batch it shows what the call costs, and the quantiles over many batches show
//! how often that is so. Criterion's means take in whatever else ran meanwhile.

use std::time::Duration;

use muster_comm::collective::Communicator;
use muster_comm::error::CommError;
use muster_comm::sync::Clock;
use muster_comm::world::World;

/// How long the benchmark `name` is to measure where `full` is its time, by the arguments of this
/// process; `None` where they filter for other benchmarks.
#[must_use]
pub fn time_asked(name: &str, full: Duration) -> Option<Duration> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let is_other = |arg: &String| !arg.starts_with("--") && !name.contains(arg.as_str());
    if args.iter().any(is_other) {
        return None;
    }
    // `cargo test --benches` only wants to see that it works.
    let measures = args.iter().any(|arg| arg == "--bench");
    Some(if measures { full } else { Duration::ZERO })
}

/// The times of batches of `batch` calls on buffers of `bytes`, until `time` has passed on rank 0.
///
/// # Errors
/// Those of the calls.
pub fn measure(
    world: &World,
    time: Duration,
    bytes: usize,
    batch: u32,
    call: impl Fn(&Communicator, &[f32], &mut [f32]) -> Result<(), CommError>,
) -> Result<Vec<Duration>, CommError> {
    let group = world.everyone()?;
    let count = bytes / size_of::<f32>();
    let sendbuf = vec![1.0_f32; count];
    let mut recvbuf = vec![0.0_f32; count];
    let mut batches = Vec::new();
    let begin = Clock::now();
    let mut more = [1_u8];
    while more == [1] {
        // Rank 0 says when it is enough, outside of what is timed.
        more = [u8::from(begin.elapsed() < time)];
        group.broadcast(&mut more, 0)?;
        group.barrier()?;
        let start = Clock::now();
        for _ in 0..batch {
            call(&group, &sendbuf, &mut recvbuf)?;
        }
        batches.push(start.elapsed());
    }
    Ok(batches)
}

/// Seconds of a call at a quantile of batches that are sorted, of `batch` calls each.
///
/// # Panics
/// Where there are no batches.
#[must_use]
pub fn quantile(sorted: &[Duration], percent: usize, batch: u32) -> f64 {
    let one = sorted[(sorted.len() - 1) * percent / 100];
    one.as_secs_f64() / f64::from(batch)
}
