//! Latency of small calls, told so that a busy machine can measure it too: in short batches.

use std::error::Error;
use std::io::Write;
use std::time::Duration;

use muster_benches::batches::{measure, quantile, time_asked};
use muster_benches::crew::Call;
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
    let Some(time) = time_asked("latency", TIME) else {
        return Ok(());
    };
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

fn line(
    out: &mut impl Write,
    time: Duration,
    name: &str,
    ranks: usize,
    bytes: usize,
    call: Call,
) -> Result<(), Box<dyn Error>> {
    let all = World::threads(ranks, |world| measure(&world, time, bytes, BATCH, call))?;
    let mut batches = all.into_iter().next().ok_or("no ranks")??;
    batches.sort_unstable();
    let at = |percent: usize| quantile(&batches, percent, BATCH) * 1e6;
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
