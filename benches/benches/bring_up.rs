//! Bring-up of worlds whose ranks are processes: from before the first process is started until
//! the last rank is through its first barrier.
//!
//! This program starts itself again for each rank, as `muster verify` does. Ranks tell when they
//! reached each stage by a clock that all processes of a machine share, so the table shows where
//! the time goes. Give numbers of ranks as arguments to measure only those:
//! `cargo bench -p muster-benches --bench bring_up -- 8 64`.

use std::error::Error;
use std::ffi::OsString;
use std::fmt;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use muster_comm::rendezvous::{Coordinator, CoordinatorEvent, CoordinatorOptions, Secret};
use muster_comm::sync::Deadline;
use muster_comm::world::World;
use muster_harness::world::{Ended, Event, Ranks, Spawn, limits, ranks, tether};
use rustix::time::{ClockId, clock_gettime};

/// Numbers of ranks unless the command line names others.
const WORLDS: [u32; 5] = [2, 8, 16, 64, 256];
/// Most ranks that the command line may ask for.
const WORLD_MAX: u32 = 1024;
/// Worlds of one size are measured this often, large ones fewer times.
const ROUNDS: u32 = 21;
const ROUNDS_MIN: u32 = 5;
/// From this number of ranks on there are fewer rounds.
const SMALL: u32 = 8;
/// First argument of a rank's process; the launcher's process id follows.
const RANK: &str = "__rank";
/// Longest time that a world gets.
const BOUND: Duration = Duration::from_secs(60);

/// What one rank tells: three moments and its processor time, in nanoseconds.
const STAMPS: usize = 4;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let texts: Vec<_> = args.iter().filter_map(|arg| arg.to_str()).collect();
    let outcome = match *texts {
        [RANK, launcher] => rank(launcher),
        _ => launcher(&texts),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Where stderr is closed there is nobody to tell.
            let _ = writeln!(std::io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

/// One rank: joins, meets the others once, and tells when.
fn rank(launcher: &str) -> Result<(), Box<dyn Error>> {
    let started = now(ClockId::Monotonic);
    tether::tie_to(launcher.parse()?).map_err(|failure| failure.to_string())?;
    let world = World::from_env()?;
    let joined = now(ClockId::Monotonic);
    world.everyone()?.barrier()?;
    let met = now(ClockId::Monotonic);
    let stamps = [started, joined, met, now(ClockId::ProcessCPUTime)];
    world.report(&stamps.map(u64::to_le_bytes).concat())?;
    world.leave();
    Ok(())
}

fn now(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // Neither clock is ever negative.
    let unsigned = |part: i64| u64::try_from(part).unwrap_or(0);
    unsigned(time.tv_sec) * 1_000_000_000 + unsigned(time.tv_nsec)
}

/// Measures every world and prints a line for each.
fn launcher(args: &[&str]) -> Result<(), Box<dyn Error>> {
    let mut worlds = Vec::new();
    for arg in args.iter().filter(|arg| !arg.starts_with("--")) {
        match arg.parse() {
            Ok(ranks @ 1..=WORLD_MAX) => worlds.push(ranks),
            Ok(ranks) => return Err(format!("1 to {WORLD_MAX} ranks, got {ranks}").into()),
            // A filter, as `cargo bench` gives it to all benchmarks.
            Err(_) if "bring_up".contains(arg) => {}
            Err(_) => return Ok(()),
        }
    }
    let measures = args.contains(&"--bench");
    if worlds.is_empty() {
        // `cargo test --benches` only wants to see that it works.
        worlds.extend(if measures { &WORLDS[..] } else { &WORLDS[..1] });
    }
    let mut out = std::io::stdout();
    writeln!(out, "ms from the first start, of the last rank: median")?;
    writeln!(
        out,
        "{:>6} {:>6} {:>9} {:>9} {:>9} {:>9} {:>17} {:>12}",
        "ranks", "rounds", "started", "in main", "joined", "barrier", "least-most", "cpu ms/rank"
    )?;
    for ranks in worlds {
        let rounds = (ROUNDS * SMALL / ranks.max(SMALL)).max(ROUNDS_MIN);
        // One more than is counted: the first one brings files and code into memory.
        bring_up(ranks)?;
        let times: Vec<_> = (0..rounds)
            .map(|_| bring_up(ranks))
            .collect::<Result<_, _>>()?;
        let middle = |pick: fn(&Times) -> u64| {
            let mut all: Vec<u64> = times.iter().map(pick).collect();
            all.sort_unstable();
            (all[0], all[all.len() / 2], all[all.len() - 1])
        };
        let met = middle(|times| times.met);
        writeln!(
            out,
            "{ranks:>6} {rounds:>6} {:>9} {:>9} {:>9} {:>9} {:>17} {:>12}",
            Millis(middle(|times| times.spawned).1),
            Millis(middle(|times| times.started).1),
            Millis(middle(|times| times.joined).1),
            Millis(met.1),
            format!("{}-{}", Millis(met.0), Millis(met.2)),
            Millis(middle(|times| times.cpu).1 / u64::from(ranks)),
        )?;
    }
    Ok(())
}

/// One bring-up: nanoseconds from its beginning until the last rank had come so far.
#[derive(Debug, Default)]
struct Times {
    /// Every process was started, as the launcher saw it.
    spawned: u64,
    /// Every rank was in `main`.
    started: u64,
    /// Every rank had joined.
    joined: u64,
    /// Every rank was through the barrier.
    met: u64,
    /// Processor time of all ranks together, until then.
    cpu: u64,
}

/// Starts a world, and ends it.
fn bring_up(world_size: u32) -> Result<Times, Box<dyn Error>> {
    let failed = |failure: muster_harness::fail::Failure| failure.to_string();
    limits::make_room_for_descriptors(world_size).map_err(failed)?;
    let begin = now(ClockId::Monotonic);
    let since = |moment: u64| moment.saturating_sub(begin);
    let secret = Secret::random()?;
    let launcher = std::process::id().to_string();
    let options = CoordinatorOptions::new(secret.clone(), "bring-up", world_size);
    let coordinator = Coordinator::start(options)?;
    let address = format!("tcp://{}", coordinator.address());
    let env = [
        ("MUSTER_RENDEZVOUS", address.as_str()),
        ("MUSTER_JOB_ID", "bring-up"),
        ("MUSTER_LAUNCHER_PID", &launcher),
    ];
    let program = ranks::own_program();
    let spawn = Spawn {
        program: &program,
        args: &[RANK, &launcher].map(OsString::from),
        world_size,
        env: &env.map(|(name, value)| (name.to_owned(), value.to_owned())),
        secret: secret.expose(),
        printer: None,
        torch: false,
    };
    let mut ranks = Ranks::<Event>::start(&spawn, None).map_err(failed)?;
    let mut times = Times {
        spawned: since(now(ClockId::Monotonic)),
        ..Times::default()
    };
    let deadline = Deadline::after(BOUND);
    let events = coordinator.events();
    let mut reports = 0;
    while reports < world_size {
        match events.next(deadline) {
            Some(CoordinatorEvent::Report { bytes, .. }) => {
                let [started, joined, met, cpu] = stamps(&bytes)?;
                times.started = times.started.max(since(started));
                times.joined = times.joined.max(since(joined));
                times.met = times.met.max(since(met));
                times.cpu += cpu;
                reports += 1;
            }
            Some(CoordinatorEvent::Failed(error)) => return Err(error.into()),
            Some(CoordinatorEvent::Lost { rank, reason }) => {
                return Err(lost(&ranks, rank.0, &reason.to_string()).into());
            }
            Some(_) => {}
            None => return Err(format!("{reports} of {world_size} ranks came").into()),
        }
    }
    while !ranks.all_ended() {
        match ranks.next(deadline) {
            Some(Event::Ended { rank, how }) => {
                if how != Ended::Exited(0) {
                    return Err(lost(&ranks, rank, &format!("{how:?}")).into());
                }
                ranks.note_end(rank, how);
            }
            Some(Event::Interrupted) => {}
            None => return Err("the ranks do not end".into()),
        }
    }
    Ok(times)
}

fn stamps(bytes: &[u8]) -> Result<[u64; STAMPS], Box<dyn Error>> {
    let mut stamps = [0; STAMPS];
    let (words, []) = bytes.as_chunks::<8>() else {
        return Err("a report that is no list of stamps".into());
    };
    for (stamp, word) in stamps.iter_mut().zip(words) {
        *stamp = u64::from_le_bytes(*word);
    }
    Ok(stamps)
}

fn lost<E: From<Event> + Send + 'static>(ranks: &Ranks<E>, rank: u32, how: &str) -> String {
    let said = ranks
        .processes()
        .iter()
        .find(|process| process.rank() == rank)
        .map(|process| process.output(|capture| capture.lines().join("\n")));
    format!("rank {rank} {how}: {}", said.unwrap_or_default())
}

/// Nanoseconds, shown as milliseconds.
struct Millis(u64);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{}", self.0 / 1_000_000, self.0 / 100_000 % 10);
        f.pad(&text)
    }
}
