//! What is done to the ranks from outside.

mod outside;
mod strangers;

use std::time::Duration;

use muster_comm::sync::{Clock, Deadline};
use rustix::process::Signal;

use super::actor::GO;
use super::plan::{Injection, Plan, Setting};
use super::process_group::{Child, Stage, Trouble, Who};
use super::told::What;
use crate::fail::Failure;
use crate::random::Draws;

/// Longest wait until all ranks are at work.
const TO_WORK: Duration = Duration::from_secs(30);
/// A deed that has a victim strikes within this time of a rank's work, at a moment by chance.
const MOMENT_MS: usize = 120;

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// When it was done; `None` where ranks tell the moment, or it does not matter.
    pub at_ns: Option<u64>,
    /// Whom it struck, where that was not known before.
    pub struck: Option<Vec<u32>>,
    /// What went wrong, of the deed or of its effect.
    pub complaints: Vec<String>,
}

impl Done {
    fn now() -> Self {
        Self {
            at_ns: Some(Clock::nanos()),
            ..Self::default()
        }
    }

    fn not_done(why: &str) -> Self {
        Self {
            complaints: vec![why.to_owned()],
            ..Self::default()
        }
    }
}

/// Waits for the right moment and does it.
///
/// # Errors
/// Where this machine lacks what it takes.
pub fn perform(
    plan: &Plan,
    setting: &Setting,
    stage: &mut Stage<'_>,
    draws: &mut Draws,
) -> Result<Done, Trouble> {
    if plan.deed == Injection::None {
        return Ok(Done::default());
    }
    let everybody = setting.world_size as usize;
    let at_work = |stage: &Stage<'_>| count(stage, &What::Working) >= everybody || stage.is_over();
    if !stage.until(Deadline::after(TO_WORK), at_work) || stage.is_over() {
        return Ok(Done::not_done("the ranks never came to work"));
    }
    stage.pause(Duration::from_millis(draws.below(MOMENT_MS) as u64));
    match &plan.deed {
        Injection::None => Ok(Done::default()),
        Injection::Signal { rank, signal } => Ok(signal_rank(stage, *rank, *signal)),
        Injection::Stall { ranks, ms } => {
            let done = Done::now();
            for rank in ranks {
                stage.signal_rank(*rank, Signal::STOP);
            }
            stage.pause(Duration::from_millis(*ms));
            for rank in ranks {
                stage.signal_rank(*rank, Signal::CONT);
            }
            Ok(done)
        }
        Injection::Launcher { signals, pause_ms } => {
            let done = Done::now();
            for signal in signals {
                signal_launcher(stage, *signal);
                stage.pause(Duration::from_millis(*pause_ms));
            }
            Ok(done)
        }
        Injection::KillAll => {
            let done = Done::now();
            signal_launcher(stage, Signal::KILL.as_raw());
            for rank in setting.all() {
                stage.signal_rank(rank, Signal::KILL);
            }
            Ok(done)
        }
        Injection::Control {
            rank,
            controller,
            settings,
        } => outside::control(stage, *rank, controller, settings),
        Injection::Net(fault) => outside::net(stage, fault),
        Injection::Reset { rank } => outside::reset(stage, *rank),
        Injection::Tool { rank, words } => outside::tool(stage, *rank, words),
        Injection::Wire { rank, fault } => Ok(outside::wire(stage, *rank, *fault)),
        Injection::Garbage { said, at_once } => {
            let complaints = strangers::talk(stage, said, *at_once);
            go(stage)?;
            Ok(Done {
                complaints,
                ..Done::now()
            })
        }
    }
}

fn signal_rank(stage: &Stage<'_>, rank: u32, signal: i32) -> Done {
    let done = Done::now();
    let sent = named(signal).is_some_and(|signal| stage.signal_rank(rank, signal));
    if sent {
        done
    } else {
        Done::not_done("the rank could not be sent a signal")
    }
}

fn signal_launcher(stage: &Stage<'_>, signal: i32) {
    let launcher = |child: &Child| child.who == Who::Launcher;
    let launcher = stage.children.iter().position(launcher);
    if let (Some(launcher), Some(signal)) = (launcher, named(signal)) {
        stage.signal_child(launcher, signal);
    }
}

/// Tells the ranks that wait for it to go on.
fn go(stage: &Stage<'_>) -> Result<(), Trouble> {
    let file = stage.path().join(GO);
    std::fs::write(&file, "")
        .map_err(|error| Trouble::Failed(Failure::resource(format!("{}: {error}", file.display()))))
}

fn count(stage: &Stage<'_>, what: &What) -> usize {
    stage.told.iter().filter(|told| told.what == *what).count()
}

/// A signal by its number.
fn named(signal: i32) -> Option<Signal> {
    Signal::from_named_raw(signal)
}
