//! `cargo run --release -p xtask -- simulate`: plays the control plane in virtual time, as many runs as asked
//! for, a run a seed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::mpsc::channel;
use std::thread;

use muster_comm::simulate::{Broken, Fault, run};
use muster_comm::sync::{AtomicU64, Clock, Ordering};

use crate::Failure;

const HELP: &str = "allowed after simulate are --runs N (seeds from --first on, 100000 unless given), --first N (1), \
                    or --seed N (one run, told step by step)";
/// Broken runs that are told in full.
const TOLD_MAX: usize = 5;

/// What one thread has seen.
#[derive(Default)]
struct Tally {
    /// Runs, and those with a verdict.
    faults: BTreeMap<Fault, (u64, u64)>,
    events: u64,
    virtual_ms: u64,
    broken: Vec<Broken>,
    broken_count: u64,
}

pub(crate) fn command(words: &[&str]) -> Result<String, Failure> {
    let number = |text: &str| {
        text.parse::<u64>()
            .map_err(|_| Failure(format!("{text:?} is no number; {HELP}")))
    };
    let (mut runs, mut first) = (100_000, 1);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| Failure(HELP.to_owned()))?;
        match *word {
            "--runs" => runs = number(value)?,
            "--first" => first = number(value)?,
            "--seed" => return one(number(value)?),
            _ => return Err(Failure(format!("{word:?} is no option; {HELP}"))),
        }
    }
    many(first, runs)
}

/// One run with its log.
fn one(seed: u64) -> Result<String, Failure> {
    let (log, end) = match run(seed, true) {
        Ok(summary) => {
            let end = format!(
                "seed {seed}: {:?}, {} events in {} ms of virtual time, hash {:016x}",
                summary.fault, summary.events, summary.virtual_ms, summary.hash
            );
            (summary.log, Ok(end))
        }
        Err(broken) => (broken.log.clone(), Err(broken.to_string())),
    };
    let text = log.join("\n");
    match end {
        Ok(end) => Ok(format!("{text}\n{end}\n")),
        Err(end) => {
            // A reader that went away does not want to know.
            let _ = writeln!(std::io::stdout().lock(), "{text}");
            Err(Failure(end))
        }
    }
}

fn many(first: u64, runs: u64) -> Result<String, Failure> {
    let began = Clock::now();
    let next = AtomicU64::new(first);
    let (sender, tallies) = channel();
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                let mut tally = Tally::default();
                loop {
                    // Relaxed: a count; each seed is played by itself.
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed - first >= runs {
                        break;
                    }
                    tally.play(seed);
                }
                // The receiver lives as long as this scope.
                let _ = sender.send(tally);
            });
        }
    });
    drop(sender);
    let mut all = Tally::default();
    for tally in tallies {
        all.join(tally);
    }
    all.tell(first, runs, began.elapsed().as_secs_f64())
}

impl Tally {
    fn play(&mut self, seed: u64) {
        match run(seed, false) {
            Ok(summary) => {
                let (runs, verdicts) = self.faults.entry(summary.fault).or_default();
                *runs += 1;
                *verdicts += u64::from(summary.verdict.is_some());
                self.events += summary.events;
                self.virtual_ms += summary.virtual_ms;
            }
            Err(broken) => {
                self.broken_count += 1;
                if self.broken.len() < TOLD_MAX {
                    self.broken.push(*broken);
                }
            }
        }
    }

    fn join(&mut self, other: Self) {
        for (fault, (runs, verdicts)) in other.faults {
            let sum = self.faults.entry(fault).or_default();
            sum.0 += runs;
            sum.1 += verdicts;
        }
        self.events += other.events;
        self.virtual_ms += other.virtual_ms;
        self.broken_count += other.broken_count;
        self.broken.extend(other.broken);
    }

    fn tell(mut self, first: u64, runs: u64, seconds: f64) -> Result<String, Failure> {
        let mut text = format!("{:<12} {:>10} {:>13}\n", "fault", "runs", "with verdict");
        // Writing to a string cannot fail.
        for (fault, (runs, verdicts)) in &self.faults {
            let _ = writeln!(
                text,
                "{:<12} {runs:>10} {verdicts:>13}",
                format!("{fault:?}")
            );
        }
        let hours = self.virtual_ms / 3_600_000;
        let _ = writeln!(
            text,
            "{runs} runs from seed {first}, {} events, {hours} h of virtual time, in {seconds:.1} s",
            self.events
        );
        if self.broken_count == 0 {
            return Ok(text);
        }
        self.broken.sort_by_key(|broken| broken.seed);
        let _ = write!(text, "{} runs are broken", self.broken_count);
        for broken in self.broken.iter().take(TOLD_MAX) {
            let _ = write!(text, "\n  {broken}");
        }
        Err(Failure(text))
    }
}
