//! Carries one random run out: starts it, strikes, waits for its end, and looks at what came of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use muster_comm::sync::{Clock, Deadline};
use rustix::process::Signal;

use super::fault::{Act, When};
use super::grade::{Graded, Seen, grade};
use super::machine::{End as Place, Mode, play};
use super::scenario::{Launcher, Scenario};
use super::truth::{Truth, Watched, truth};
use crate::drill::actor::trace::At;
use crate::drill::clean;
use crate::drill::grade::End;
use crate::drill::process_group::{Stage, Trouble, Who};
use crate::drill::told::What;
use crate::fail::Failure;
use crate::world::signals::Interrupts;

/// How often it is looked where a rank is that is about to be struck.
const LOOK_EVERY: Duration = Duration::from_micros(500);
/// Longest time for a rank to come to the step at which it is struck.
const TO_STRIKE: Duration = Duration::from_secs(20);
/// Time beyond all deadlines after which a run is over whether it is or not.
const BEYOND: Duration = Duration::from_secs(8);
/// How many times that long is waited besides on a crowded machine.
const SLOW: u32 = 5;
/// Load average that ranks of a drill make by themselves, at most.
const OWN_LOAD: f64 = 6.0;
/// Load average from which on everything is waited for longer.
const CROWDED: f64 = 20.0;
/// A rank that is stopped for so long may be said to be.
const STOPPED_AFTER: Duration = Duration::from_secs(1);
/// Time for what was printed last to be heard, and for what is killed to be gone.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Record {
    /// What it was.
    pub scenario: Scenario,
    /// What is true of it.
    pub truth: Truth,
    /// The lines that were said, and by whom.
    pub said: Vec<(Option<u32>, String)>,
    /// Its grades.
    pub graded: Graded,
    /// Load average of the machine at its end: on a crowded one late is not wrong.
    pub load_average: f64,
    /// Why it could not be carried out.
    pub skipped: Option<String>,
    /// Where its files are kept.
    pub kept: Option<PathBuf>,
}

/// Carries a run out. `None` where somebody asked the drill to stop.
///
/// # Errors
/// Where the drill's own means fail.
pub fn run(
    scenario: Scenario,
    number: u64,
    interrupts: &Arc<Interrupts>,
    keep: Option<&Path>,
) -> Result<Option<Record>, Failure> {
    let mut stage = Stage::new(number, scenario.setting(), Some(interrupts))?;
    let mut record = Record {
        scenario,
        truth: Truth::default(),
        said: Vec::new(),
        graded: Graded::default(),
        load_average: 0.0,
        skipped: None,
        kept: None,
    };
    let scenario = &record.scenario;
    match stage.start(&scenario.plan()) {
        Ok(()) => {}
        Err(Trouble::Lacking(why)) => {
            record.skipped = Some(why);
            return Ok(Some(record));
        }
        Err(Trouble::Failed(failure)) => return Err(failure),
    }
    let mut held = Vec::new();
    let (struck_ns, was_stopped) = strike(scenario, &mut stage, &mut held);
    await_end(scenario, &mut stage);
    if stage.interrupted {
        return Ok(None);
    }
    let watched = Watched {
        was_stopped,
        ..watched(scenario, &stage)
    };
    let truth = truth(scenario, &watched);
    let ends = stage.children.iter().map(|child| End {
        rank: child.rank,
        how: child.ended,
    });
    let mut seen = Seen {
        ends: ends.collect(),
        ..Seen::default()
    };
    stage.until(Deadline::after(LAST_WORDS), |stage| {
        stage.is_quiet() || !stage.is_over()
    });
    seen.left = left(scenario, &truth, &stage);
    drop(held);
    stage.end();
    stage.until(Deadline::after(LAST_WORDS), Stage::is_over);
    stage.until(Deadline::after(LAST_WORDS), Stage::is_quiet);
    seen.left.extend(stage.remove());
    seen.told.clone_from(&stage.told);
    seen.verdicts = stage
        .lines
        .iter()
        .filter(|line| is_verdict(&line.text))
        .map(|line| (line.rank, line.text.clone()))
        .collect();
    if scenario.launcher == Launcher::Mpirun && stage.told.is_empty() && stage.lines.is_empty() {
        record.skipped = Some("mpirun started no rank".to_owned());
        return Ok(Some(record));
    }
    seen.fault_ns = fault_ns(scenario, &stage, &watched, struck_ns);
    record.load_average = load_average();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    seen.is_contended = record.load_average >= 2.0 * processors as f64;
    seen.is_crowded = record.load_average > f64::from(scenario.load) + OWN_LOAD;
    record.graded = grade(scenario, &truth, &seen);
    record.truth = truth;
    record.said = seen.verdicts;
    if let Some(keep) = keep.filter(|_| !record.graded.is_exact()) {
        record.kept = keep_files(&stage, keep, &record.scenario)?;
    }
    Ok(Some(record))
}

/// Threads that want a processor: now, or as the kernel averages them over a minute, whichever is more.
fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let mut words = text.split(' ');
    let average: Option<f64> = words.next().and_then(|word| word.parse().ok());
    let ready = words.nth(2).and_then(|word| word.split('/').next());
    let ready: Option<f64> = ready.and_then(|count| count.parse().ok());
    average.unwrap_or(0.0).max(ready.unwrap_or(0.0))
}

/// Does what is done from outside; gives back when the last of it was, and whether a rank was stopped for so long that it may be said to be.
fn strike(
    scenario: &Scenario,
    stage: &mut Stage<'_>,
    held: &mut Vec<std::os::fd::OwnedFd>,
) -> (Option<u64>, bool) {
    let (mut struck, mut was_stopped) = (None, false);
    for strike in &scenario.strikes {
        let deadline = Deadline::after(TO_STRIKE * scenario.load.clamp(1, 6));
        loop {
            let is_time = match strike.when {
                When::AtOnce => true,
                When::Arrives(rank) => stage.pid_of(rank).is_some(),
                When::Begins { rank, step } => {
                    At::read(stage.path(), rank).is_some_and(|at| at.step >= step)
                }
            };
            if is_time || stage.is_over() || stage.interrupted || deadline.passed() {
                break;
            }
            stage.pause(LOOK_EVERY);
        }
        stage.pause(Duration::from_micros(strike.delay_us));
        let begun = Clock::nanos();
        struck = Some(begun);
        act(strike.act, stage, held);
        let took = Duration::from_nanos(Clock::nanos() - begun);
        was_stopped |= matches!(strike.act, Act::Stall { .. }) && took >= STOPPED_AFTER;
    }
    (struck, was_stopped)
}

fn act(act: Act, stage: &mut Stage<'_>, held: &mut Vec<std::os::fd::OwnedFd>) {
    match act {
        Act::HoldDescriptors { rank } => {
            let pid = stage.pid_of(rank);
            held.extend(pid.map(clean::descriptors_of).unwrap_or_default());
        }
        Act::Launcher { signal } => {
            let launcher = stage
                .children
                .iter()
                .position(|child| child.who == Who::Launcher);
            if let (Some(launcher), Some(signal)) = (launcher, Signal::from_named_raw(signal)) {
                stage.signal_child(launcher, signal);
            }
        }
        Act::Signal { rank, signal } => {
            if let Some(signal) = Signal::from_named_raw(signal) {
                stage.signal_rank(rank, signal);
            }
        }
        Act::Stall { rank, ms } => {
            stage.signal_rank(rank, Signal::STOP);
            stage.pause(Duration::from_millis(ms));
            stage.signal_rank(rank, Signal::CONT);
        }
    }
}

/// Waits until all who can end by themselves have done so.
fn await_end(scenario: &Scenario, stage: &mut Stage<'_>) {
    let wait = scenario
        .deadline
        .max(scenario.bring_up.min(scenario.deadline * 2))
        + Duration::from_millis(200) * scenario.world_size();
    let away = scenario.planted.iter().filter(|one| one.fault.stays_away());
    let victims: Vec<u32> = away.map(|one| one.victim).collect();
    let survivors: Vec<u32> = (0..scenario.world_size())
        .filter(|rank| !victims.contains(rank))
        .collect();
    // Who joined late counts from there.
    let everybody = scenario.world_size() as usize;
    stage.until(Deadline::after(scenario.bring_up + BEYOND), |stage| {
        stage.is_over_for(&survivors)
            || stage
                .told
                .iter()
                .filter(|told| told.what == What::Joined)
                .count()
                == everybody
    });
    // A foreign launcher may wait for ranks that stand still for ever.
    let closed = |stage: &Stage<'_>, rank: &u32| {
        let mut told = stage.told.iter().filter(|told| told.rank == *rank);
        told.any(|told| matches!(told.what, What::Closed { .. }))
    };
    let is_foreign = scenario.launcher == Launcher::Mpirun && !victims.is_empty();
    let is_over = |stage: &Stage<'_>| {
        stage.is_over_for(&survivors)
            || is_foreign && survivors.iter().all(|rank| closed(stage, rank))
    };
    stage.until(Deadline::after(wait + BEYOND), is_over);
    if scenario.is_starved() || load_average() > CROWDED {
        stage.until(Deadline::after(BEYOND * SLOW), is_over);
    }
    // It hands on what ranks print, and is killed next.
    let mut told = stage.told.iter();
    let is_told =
        told.any(|told| matches!(&told.what, What::Failed(failed) if failed.verdict.is_some()));
    if is_foreign && is_told {
        stage.until(Deadline::after(LAST_WORDS), |stage| {
            stage.is_over() || stage.lines.iter().any(|line| is_verdict(&line.text))
        });
    }
}

fn is_verdict(line: &str) -> bool {
    line.starts_with("VERDICT ")
}

fn watched(scenario: &Scenario, stage: &Stage<'_>) -> Watched {
    let joined = stage.told.iter().filter(|told| told.what == What::Joined);
    let mut joined: Vec<u32> = joined.map(|told| told.rank).collect();
    let at: Vec<Option<At>> = (0..scenario.world_size())
        .map(|rank| At::read(stage.path(), rank))
        .collect();
    // The line may be lost with the rank.
    joined.extend(
        (0..)
            .zip(&at)
            .filter(|(_, at)| at.is_some())
            .map(|(rank, _)| rank),
    );
    joined.sort_unstable();
    joined.dedup();
    let failed = stage
        .told
        .iter()
        .filter(|told| matches!(told.what, What::Failed(_)));
    Watched {
        first_return_ns: failed.map(|told| told.at_ns).min(),
        at,
        joined,
        was_stopped: false,
    }
}

/// When the fault was there, and those who had to find it all waited.
fn fault_ns(
    scenario: &Scenario,
    stage: &Stage<'_>,
    watched: &Watched,
    struck_ns: Option<u64>,
) -> Option<u64> {
    let marks = stage.told.iter().filter(|told| told.what == What::Marked);
    let marked = marks.map(|told| told.at_ns).max();
    let arrived = stage.told.iter().filter(|told| told.what == What::Arrived);
    let arrived = arrived.map(|told| told.at_ns).max();
    let begun = struck_ns.max(marked).or(arrived)?;
    let mut halts = vec![None; scenario.program.len()];
    for planted in &scenario.planted {
        let at = watched.at[planted.victim as usize];
        halts[planted.victim as usize] = at.map(|at| at.step);
    }
    let outcome = play(&scenario.program, &halts, Mode::Lax);
    let waits = outcome
        .ends
        .iter()
        .zip(&watched.at)
        .filter_map(|(end, at)| {
            let at = (*at)?;
            matches!(end, Place::Blocked { at: step, .. } if at.step == *step)
                .then_some(at.since_ns)
        });
    waits.chain([begun]).max()
}

/// Processes and files that should be gone.
fn left(scenario: &Scenario, truth: &Truth, stage: &Stage<'_>) -> Vec<String> {
    if !stage.is_over() || scenario.launcher == Launcher::Mpirun {
        // Victims that are stopped, and ranks of a foreign launcher, are ended by the drill.
        return Vec::new();
    }
    let deadline = Deadline::after(LAST_WORDS);
    loop {
        let mut left = clean::marked(&stage.mark);
        left.retain(|pid| {
            let is_victim = |rank: &&u32| stage.pid_of(**rank) == Some(*pid);
            scenario.launcher == Launcher::Run || !truth.victims.iter().any(|rank| is_victim(&rank))
        });
        if left.is_empty() || deadline.passed() {
            return left
                .iter()
                .map(|pid| format!("left behind: process {pid}"))
                .collect();
        }
        Clock::pause(LOOK_EVERY);
    }
}

/// Keeps what a run was and what was printed.
fn keep_files(
    stage: &Stage<'_>,
    folder: &Path,
    scenario: &Scenario,
) -> Result<Option<PathBuf>, Failure> {
    use std::fmt::Write as _;
    let name = scenario
        .case
        .map_or_else(|| scenario.seed.to_string(), ToOwned::to_owned);
    let own = folder.join(format!("{}-{name}", scenario.fault.name()));
    let failed = |error: std::io::Error| Failure::resource(format!("{}: {error}", own.display()));
    std::fs::create_dir_all(&own).map_err(failed)?;
    let parts = stage.path().join(crate::drill::actor::PARTS);
    std::fs::copy(&parts, own.join(crate::drill::actor::PARTS)).map_err(failed)?;
    let mut text = String::new();
    for line in &stage.lines {
        let who = line
            .rank
            .map_or_else(|| "launcher".to_owned(), |rank| format!("rank {rank}"));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{who}: {}", line.text);
    }
    for told in &stage.told {
        let _ = writeln!(
            text,
            "told at {} by rank {}: {:?}",
            told.at_ns, told.rank, told.what
        );
    }
    for rank in 0..scenario.world_size() {
        let _ = writeln!(
            text,
            "rank {rank} was at {:?}",
            At::read(stage.path(), rank)
        );
    }
    for child in &stage.children {
        let _ = writeln!(
            text,
            "{:?} of rank {:?} ended {:?}",
            child.who, child.rank, child.ended
        );
    }
    let _ = writeln!(text, "{scenario:?}");
    std::fs::write(own.join("lines.txt"), text).map_err(failed)?;
    Ok(Some(own))
}
