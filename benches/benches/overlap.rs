//! How much of an asynchronous call is hidden behind other work, and what asynchronous calls cost others.
//!
//! A rank has work of its own that takes about as long as the call. Four times are taken, each of the slowest rank:
//! the call alone, the work alone, the call made asynchronously and waited for at once, and both: the call is
//! started, the work is done, the call is waited for. What is hidden is what both together take less than one after
//! the other, as a part of the shorter one.
//!
//! The work is of two kinds. *Device*: the rank waits, as for an accelerator, and leaves its processor free.
//! *Processor*: the rank computes; what it and the call compete for cannot be hidden, only the call's waiting can.
//!
//! Last: a small blocking call on a communicator that never had an asynchronous one, and on one that had.

use std::error::Error;
use std::hint::black_box;
use std::io::Write;
use std::time::Duration;

use muster_comm::collective::Communicator;
use muster_comm::error::CommError;
use muster_comm::sync::Clock;
use muster_comm::types::ReduceOp;
use muster_comm::world::World;

/// Numbers of ranks.
const RANKS: [usize; 3] = [1, 2, 4];
/// Bytes of each rank's buffer.
const SIZES: [usize; 3] = [64 << 10, 1 << 20, 16 << 20];
/// Samples of each line.
const SAMPLES: usize = 41;
/// Small calls in a batch, and batches, of the last two lines.
const BATCH: u32 = 32;
const BATCHES: usize = 3000;

/// What a rank does beside the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Device,
    Processor,
}

/// Times of one line, in seconds.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    call: f64,
    work: f64,
    waited: f64,
    both: f64,
}

impl Times {
    /// The part of the shorter of both that is hidden behind the other.
    fn hidden(self) -> f64 {
        (self.call + self.work - self.both) / self.call.min(self.work)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let is_other = |arg: &String| !arg.starts_with("--") && !"overlap".contains(arg.as_str());
    if args.iter().any(is_other) {
        // A filter that means other benchmarks.
        return Ok(());
    }
    // `cargo test --benches` only wants to see that it works.
    let measures = args.iter().any(|arg| arg == "--bench");
    let samples = if measures { SAMPLES } else { 1 };
    let mut out = std::io::stdout();
    writeln!(
        out,
        "all_reduce f32 max, us on the slowest rank, medians of {samples} samples"
    )?;
    writeln!(
        out,
        "{:>5} {:>9}  {:<10} {:>9} {:>9} {:>9} {:>9} {:>7}",
        "ranks", "bytes", "work", "call", "work", "waited", "both", "hidden"
    )?;
    // A call of one rank in place is over at once: there is nothing to hide.
    for ranks in RANKS.into_iter().filter(|ranks| *ranks > 1) {
        for bytes in SIZES {
            for kind in [Kind::Device, Kind::Processor] {
                let all = World::threads(ranks, |world| line(&world, bytes, kind, samples))?;
                let times = all.into_iter().next().ok_or("no ranks")??;
                let us = |seconds: f64| seconds * 1e6;
                writeln!(
                    out,
                    "{ranks:>5} {bytes:>9}  {:<10} {:>9.1} {:>9.1} {:>9.1} {:>9.1} {:>5.0} %",
                    format!("{kind:?}").to_lowercase(),
                    us(times.call),
                    us(times.work),
                    us(times.waited),
                    us(times.both),
                    times.hidden() * 100.0
                )?;
            }
        }
    }
    let batches = if measures { BATCHES } else { 1 };
    writeln!(
        out,
        "\na blocking all_reduce of 8 bytes, us a call over batches of {BATCH}: least, 10 %, 50 %"
    )?;
    for ranks in RANKS {
        let all = World::threads(ranks, |world| beside(&world, batches))?;
        for (name, times) in ["never asynchronous", "after asynchronous calls"]
            .iter()
            .zip(all.into_iter().next().ok_or("no ranks")??)
        {
            let [least, tenth, middle] = times.map(|seconds| seconds * 1e6);
            writeln!(
                out,
                "{ranks:>5}  {name:<26} {least:>8.3} {tenth:>8.3} {middle:>8.3}"
            )?;
        }
    }
    Ok(())
}

/// Measures one line; the times are the same on all ranks.
fn line(world: &World, bytes: usize, kind: Kind, samples: usize) -> Result<Times, CommError> {
    let comm = world.everyone()?;
    // Another group for what is not measured.
    let control = world.group("control", comm.members())?;
    let mut buffer = vec![1.0_f32; bytes / size_of::<f32>()];
    let call = timed(&control, samples, || {
        comm.all_reduce_in_place(&mut buffer, ReduceOp::Max)
    })?;
    let amount = Amount::lasting(kind, call);
    let work = timed(&control, samples, || {
        amount.work();
        Ok(())
    })?;
    let mut lent = Some(buffer);
    let mut start_and = |between: &dyn Fn()| {
        let work = comm.all_reduce_async(lent.take().unwrap_or_default(), ReduceOp::Max);
        between();
        lent = Some(work.wait()?);
        Ok(())
    };
    let waited = timed(&control, samples, || start_and(&|| ()))?;
    let both = timed(&control, samples, || start_and(&|| amount.work()))?;
    Ok(Times {
        call,
        work,
        waited,
        both,
    })
}

/// The median over samples of the time of the slowest rank, in seconds.
fn timed(
    control: &Communicator,
    samples: usize,
    mut sample: impl FnMut() -> Result<(), CommError>,
) -> Result<f64, CommError> {
    sample()?;
    let mut times = Vec::with_capacity(samples);
    for _ in 0..samples {
        control.barrier()?;
        let start = Clock::now();
        sample()?;
        times.push(start.elapsed().as_secs_f64());
    }
    control.all_reduce_in_place(&mut times, ReduceOp::Max)?;
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

/// Work that takes a certain time.
#[derive(Clone, Copy, Debug)]
enum Amount {
    Waits(Duration),
    Computes(u64),
}

impl Amount {
    fn lasting(kind: Kind, seconds: f64) -> Self {
        if kind == Kind::Device {
            return Self::Waits(Duration::from_secs_f64(seconds));
        }
        /// Enough to read the clock around it.
        const TRIAL: u64 = 1 << 20;
        let mut fastest = Duration::MAX;
        for _ in 0..5 {
            let start = Clock::now();
            Self::Computes(TRIAL).work();
            fastest = fastest.min(start.elapsed());
        }
        let wanted = Duration::from_secs_f64(seconds).as_nanos();
        let steps = u128::from(TRIAL) * wanted / fastest.as_nanos().max(1);
        Self::Computes(u64::try_from(steps).unwrap_or(u64::MAX))
    }

    fn work(self) {
        match self {
            Self::Waits(time) => Clock::pause(time),
            Self::Computes(steps) => {
                let mut value = 1_u64;
                for step in 0..steps {
                    // A chain: each step waits for the one before.
                    value = black_box(value.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ step);
                }
            }
        }
    }
}

/// Small blocking calls, in seconds a call: before any asynchronous one, and after.
fn beside(world: &World, batches: usize) -> Result<[[f64; 3]; 2], CommError> {
    let control = world.everyone()?;
    let comms = [
        world.group("never", control.members())?,
        world.group("after", control.members())?,
    ];
    let [_, after] = &comms;
    for _ in 0..8 {
        after
            .all_reduce_async(vec![1.0_f32; 2], ReduceOp::Max)
            .wait()?;
    }
    let mut times = [Vec::new(), Vec::new()];
    // In turns, so that both see the same machine.
    for _ in 0..batches {
        for (comm, times) in comms.iter().zip(&mut times) {
            let mut buffer = [1.0_f32; 2];
            control.barrier()?;
            let start = Clock::now();
            for _ in 0..BATCH {
                comm.all_reduce_in_place(&mut buffer, ReduceOp::Max)?;
            }
            times.push(start.elapsed().as_secs_f64() / f64::from(BATCH));
        }
    }
    Ok(times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        [0, times.len() / 10, times.len() / 2].map(|place| times[place])
    }))
}
