//! Latency of small calls, told so that a busy machine can measure it too.
//!
//! Criterion's means take in whatever else ran meanwhile. Here calls are timed in short batches:
//! where nothing disturbs a batch it shows what the call costs, and the quantiles over many batches
//! show how often that is so.

use std::error::Error;
use std::io::Write;
use std::time::Duration;

use muster_comm::collective::Communicator;
use muster_comm::error::CommError;
use muster_comm::sync::Clock;
use muster_comm::types::ReduceOp;
use muster_comm::world::World;

/// Numbers of ranks.
const RANKS: [usize; 4] = [1, 2, 4, 8];
/// Bytes of each rank's buffer.
const SIZES: [usize; 3] = [8, 1 << 10, 4 << 10];
/// Calls in one batch: some tens of microseconds, less than a time slice.
const BATCH: u32 = 32;
/// Time for each line of the table.
const TIME: Duration = Duration::from_millis(1500);

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args
        .iter()
        .any(|arg| !arg.starts_with("--") && !"latency".contains(arg.as_str()))
    {
        // A filter that means other benchmarks.
        return Ok(());
    }
    // `cargo test --benches` only wants to see that it works.
    let measures = args.iter().any(|arg| arg == "--bench");
    let time = if measures { TIME } else { Duration::ZERO };
    let mut out = std::io::stdout();
    writeln!(out, "us a call, over batches of {BATCH} calls, of rank 0")?;
    writeln!(
        out,
        "{:<12} {:>5} {:>6} {:>9} {:>9} {:>9} {:>9}",
        "collective", "ranks", "bytes", "least", "10 %", "50 %", "batches"
    )?;
    for ranks in RANKS {
        line(&mut out, time, "barrier", ranks, 0, |group, _, _| {
            group.barrier()
        })?;
        for bytes in SIZES {
            line(
                &mut out,
                time,
                "all_reduce",
                ranks,
                bytes,
                |group, give, get| group.all_reduce(give, get, ReduceOp::Sum),
            )?;
        }
        line(
            &mut out,
            time,
            "all_to_all",
            ranks,
            4 << 10,
            |group, give, get| group.all_to_all(give, get),
        )?;
    }
    Ok(())
}

type Call = fn(&Communicator, &[f32], &mut [f32]) -> Result<(), CommError>;

fn line(
    out: &mut impl Write,
    time: Duration,
    name: &str,
    ranks: usize,
    bytes: usize,
    call: Call,
) -> Result<(), Box<dyn Error>> {
    let all = World::threads(ranks, |world| measure(&world, time, bytes, call))?;
    let mut batches = all.into_iter().next().ok_or("no ranks")??;
    batches.sort_unstable();
    let at = |percent: usize| {
        let batch = batches[(batches.len() - 1) * percent / 100];
        batch.as_secs_f64() * 1e6 / f64::from(BATCH)
    };
    writeln!(
        out,
        "{name:<12} {ranks:>5} {bytes:>6} {:>9.3} {:>9.3} {:>9.3} {:>9}",
        at(0),
        at(10),
        at(50),
        batches.len()
    )?;
    Ok(())
}

fn measure(
    world: &World,
    time: Duration,
    bytes: usize,
    call: Call,
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
        for _ in 0..BATCH {
            call(&group, &sendbuf, &mut recvbuf)?;
        }
        batches.push(start.elapsed());
    }
    Ok(batches)
}
