//! The rank of a drill: joins a world as any program does, and does its steps.
//!
//! What it does wrong it does for real. It knows its own steps only (DRILL-1).

mod calls;
mod litmus;
mod steps;
pub mod trace;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use muster_comm::config::Environment;
use muster_comm::sync::{Clock, Deadline};
use muster_comm::world::{BringUpError, JoinOptions, World};

use self::steps::Player;
use self::trace::Trace;
use super::script::Part;
use super::told::{Said, Told, What};
use crate::exit::Exit;
use crate::fail::Failure;
use crate::run::joined;

/// Name of the file in the drill's folder that holds the parts.
pub const PARTS: &str = "parts.json";
/// Name of the file whose appearance says go on.
pub const GO: &str = "go";

/// Time in which the descriptors of a world that has ended must be closed. A resolver that does not answer
/// keeps one for as long as the system's own patience lasts.
const SETTLE: Duration = Duration::from_secs(15);

/// Plays the part of this number, or, where none is given, that of this process's rank.
///
/// # Errors
/// Where the part cannot be read.
pub fn play(folder: &Path, number: Option<usize>) -> Result<Exit, Failure> {
    let environment = Environment::capture();
    let part = part(folder, number, &environment)?;
    let trace = Trace::open(&part, folder);
    let descriptors_before = descriptors();
    Clock::pause(Duration::from_millis(part.late_ms));
    Told::say(part.rank, What::Arrived);
    let code = match join(&environment, &part) {
        Ok(world) => {
            Told::say(part.rank, What::Joined);
            // What is left of the world ends in there, with what serves it.
            Player::new(&part, world, folder, trace.as_ref()).run()
        }
        Err(refused) => {
            let code = refused.code;
            let what = What::Refused {
                error: refused.error,
                code,
                verdict: refused.verdict,
            };
            Told::say(part.rank, what);
            i32::from(code)
        }
    };
    let what = What::Closed {
        descriptors_before,
        descriptors_after: settled(descriptors_before),
    };
    Told::say(part.rank, what);
    Ok(Exit::from_code(code).unwrap_or(Exit::Internal))
}

fn part(folder: &Path, number: Option<usize>, environment: &Environment) -> Result<Part, Failure> {
    let file: PathBuf = folder.join(PARTS);
    let bad = |why: String| Failure::internal(format!("{}: {why}", file.display()));
    let text = std::fs::read_to_string(&file).map_err(|error| bad(error.to_string()))?;
    let parts: Vec<Part> = serde_json::from_str(&text).map_err(|error| bad(error.to_string()))?;
    let found = match number {
        Some(number) => parts.into_iter().nth(number),
        None => {
            let identity = joined::identity(environment, None)?;
            let rank = identity.map_or(0, |identity| identity.rank.0);
            parts.into_iter().find(|part| part.rank == rank)
        }
    };
    found.ok_or_else(|| bad("no such part".to_owned()))
}

/// Why a rank could not join.
struct Refused {
    code: u8,
    error: String,
    verdict: Option<Said>,
}

impl Refused {
    fn new(code: u8, error: impl ToString) -> Self {
        Self {
            code,
            error: error.to_string(),
            verdict: None,
        }
    }
}

impl From<BringUpError> for Refused {
    fn from(error: BringUpError) -> Self {
        Self {
            verdict: error.verdict().as_ref().map(Said::of),
            ..Self::new(error.exit_code(), error)
        }
    }
}

/// Joins, or says with which code and in which words that failed.
fn join(environment: &Environment, part: &Part) -> Result<World, Refused> {
    let identity = joined::identity(environment, None)
        .map_err(|failure| Refused::new(failure.exit.code(), failure.message))?
        .ok_or_else(|| Refused::new(Exit::Usage.code(), "no launcher started this rank"))?;
    let mut options = JoinOptions::from_identity(environment, &identity)
        .map_err(|error| Refused::new(error.exit_code(), error))?;
    options.bring_up = Duration::from_millis(part.bring_up_ms);
    options.checksum = part.checksum;
    options.advertise = part
        .advertise
        .map(|port| (Ipv4Addr::LOCALHOST, port).into());
    Ok(World::serve_and_join(options)?)
}

/// Descriptors that are open once the threads of the world have ended, which nobody waits for.
fn settled(before: usize) -> usize {
    let deadline = Deadline::after(SETTLE);
    loop {
        let now = descriptors();
        if now <= before || deadline.passed() {
            return now;
        }
        Clock::pause(Duration::from_millis(2));
    }
}

/// Descriptors that are open in this process.
fn descriptors() -> usize {
    // One of them is the folder itself, each time.
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}
