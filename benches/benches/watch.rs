//! What watching costs: the same calls with the board and without it.
//!
//! The two take turns, so that whatever else the machine does meanwhile hits both. The quantiles are
//! those of `latency.rs`.

use std::error::Error;
use std::io::Write;
use std::time::Duration;

use muster_benches::batches::{measure, quantile, time_asked};
use muster_comm::types::ReduceOp;
use muster_comm::world::{ThreadOptions, World};

/// Ranks, bytes of each rank's buffer, and calls in one batch.
const CASES: [(usize, usize, u32); 4] =
    [(1, 8, 2048), (2, 8, 64), (2, 1 << 10, 64), (2, 64 << 10, 8)];
/// Time for each half of a line of the table.
const TIME: Duration = Duration::from_secs(3);
/// Turns that the two halves take.
const TURNS: u32 = 10;

fn main() -> Result<(), Box<dyn Error>> {
    let Some(time) = time_asked("watch", TIME) else {
        return Ok(());
    };
    let mut out = std::io::stdout();
    writeln!(
        out,
        "ns a call of all_reduce, of rank 0, without and with the board"
    )?;
    writeln!(
        out,
        "{:>5} {:>6} {:>10} {:>10} {:>8} {:>10} {:>10} {:>8} {:>8}",
        "ranks", "bytes", "least", "least", "diff", "10 %", "10 %", "diff", "batches"
    )?;
    for (ranks, bytes, batch) in CASES {
        line(&mut out, time, ranks, bytes, batch)?;
    }
    Ok(())
}

fn line(
    out: &mut impl Write,
    time: Duration,
    ranks: usize,
    bytes: usize,
    batch: u32,
) -> Result<(), Box<dyn Error>> {
    let bare = ThreadOptions {
        watched: false,
        ..ThreadOptions::default()
    };
    let timed = |options: &ThreadOptions| -> Result<Vec<Duration>, Box<dyn Error>> {
        let all = World::threads_with(ranks, options, |world| {
            measure(&world, time / TURNS, bytes, batch, |group, give, get| {
                group.all_reduce(give, get, ReduceOp::Sum)
            })
        })?;
        Ok(all.into_iter().next().ok_or("no ranks")??)
    };
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        without.extend(timed(&bare)?);
        with.extend(timed(&ThreadOptions::default())?);
    }
    without.sort_unstable();
    with.sort_unstable();
    let at = |batches: &[Duration], percent| quantile(batches, percent, batch) * 1e9;
    let (least, tenth) = (
        (at(&without, 0), at(&with, 0)),
        (at(&without, 10), at(&with, 10)),
    );
    writeln!(
        out,
        "{ranks:>5} {bytes:>6} {:>10.1} {:>10.1} {:>8.1} {:>10.1} {:>10.1} {:>8.1} {:>8}",
        least.0,
        least.1,
        least.1 - least.0,
        tenth.0,
        tenth.1,
        tenth.1 - tenth.0,
        with.len()
    )?;
    Ok(())
}
