//! Runs drills, one after the other.

use std::sync::Arc;
use std::time::Duration;

use muster_comm::sync::{Clock, Deadline};

use super::catalogue::{Drill, life};
use super::clean::{self, Before};
use super::grade::{End, Graded, Seen, grade};
use super::injection::{self, Done};
use super::model::{Expected, Run, RunOutcome};
use super::plan::{Injection, Outcome, Plan, Setting};
use super::process_group::{Child, Stage, Trouble, Who};
use super::told::What;
use crate::exit::Exit;
use crate::fail::Failure;
use crate::random::Draws;
use crate::world::Ended;
use crate::world::signals::Interrupts;

/// Longest time that a run may take beside the deadline of its calls.
const RUN_BOUND: Duration = Duration::from_secs(30);
/// Time for what was printed last to be heard.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How often it is looked whether all processes are gone.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Which run of which drill.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// The drill.
    pub drill: &'static Drill,
    /// Where.
    pub setting: Setting,
    /// Which repetition, from 1.
    pub repetition: u32,
    /// Seed of the suite.
    pub seed: u64,
    /// Number of this run among all.
    pub number: u64,
}

/// Carries a run out. `None` where somebody asked the drill to stop.
///
/// # Errors
/// Where the drill's own means fail, such as a process that cannot be started.
pub fn run(turn: &Turn, interrupts: &Arc<Interrupts>) -> Result<Option<Run>, Failure> {
    let started = Clock::now();
    let mut draws = draws(turn);
    let plan = (turn.drill.plan)(&turn.setting, &mut draws);
    let before = Before::look();
    let mut stage = Stage::new(turn.number, turn.setting, Some(interrupts))?;
    let mut seen = match watch(&plan, turn, &mut stage, &mut draws, &before) {
        Ok(seen) => seen,
        Err(Trouble::Lacking(why)) => {
            let run = blank(turn, &plan);
            return Ok(Some(Run {
                reasons: vec![why],
                ..run
            }));
        }
        Err(Trouble::Failed(failure)) => return Err(failure),
    };
    if stage.interrupted {
        return Ok(None);
    }
    drop(stage);
    if plan.deed == Injection::KillAll {
        seen.leaks.extend(once_more(turn, interrupts)?);
    }
    seen.leaks.extend(before.own_leak());
    let graded = grade(&plan.expect, &seen);
    let elapsed = Clock::now().duration_since(started);
    Ok(Some(result(turn, &plan, graded, seen, elapsed)))
}

/// Starts the processes, does the deed, and waits for the end.
fn watch(
    plan: &Plan,
    turn: &Turn,
    stage: &mut Stage<'_>,
    draws: &mut Draws,
    before: &Before,
) -> Result<Seen, Trouble> {
    stage.start(plan)?;
    let bound = Deadline::after(plan.deadline + RUN_BOUND);
    // Once one has joined, those who serve the others listen.
    stage.until(bound, |stage| {
        stage.is_over() || stage.told.iter().any(|told| told.what == What::Joined)
    });
    let ports = clean::ports_of(&clean::marked(&stage.mark));
    let done = injection::perform(plan, &turn.setting, stage, draws)?;
    let gone_ns = (plan.expect.outcome == Outcome::Gone).then(|| gone(stage));
    let survivors = &plan.expect.survivors;
    let is_over = stage.until(bound, |stage| stage.is_over_for(survivors));
    stage.release();
    // Who cannot be asked, such as a rank that was stopped or cut off, need not end by itself.
    stage.end_others(survivors);
    stage.until(Deadline::after(LAST_WORDS), Stage::is_over);
    stage.until(Deadline::after(LAST_WORDS), Stage::is_quiet);
    let mut leaks = before.leaks(&stage.mark, &ports);
    if !is_over {
        leaks.insert(0, "the run, which did not end by itself".to_owned());
        stage.end();
    }
    leaks.extend(stage.remove());
    Ok(seen(plan, turn, stage, done, gone_ns.flatten(), leaks))
}

/// Starts a world that works where another one was killed; says what is wrong with it.
fn once_more(turn: &Turn, interrupts: &Arc<Interrupts>) -> Result<Vec<String>, Failure> {
    let mut draws = draws(turn);
    let plan = life::quiet(&turn.setting, &mut draws);
    let mut stage = Stage::new(turn.number, turn.setting, Some(interrupts))?;
    let started = stage.start(&plan);
    if let Err(Trouble::Failed(failure)) = started {
        return Err(failure);
    }
    stage.until(Deadline::after(RUN_BOUND), Stage::is_over);
    let is_well = |child: &Child| matches!(child.ended, Some((Ended::Exited(0), _)));
    Ok(if stage.children.iter().all(is_well) {
        Vec::new()
    } else {
        vec!["something that keeps the next run from working".to_owned()]
    })
}

/// When no process of a run is left.
fn gone(stage: &Stage<'_>) -> Option<u64> {
    let deadline = Deadline::after(RUN_BOUND);
    while !clean::marked(&stage.mark).is_empty() {
        if deadline.passed() {
            return None;
        }
        Clock::pause(LOOK_EVERY);
    }
    Some(Clock::nanos())
}

fn seen(
    plan: &Plan,
    turn: &Turn,
    stage: &Stage<'_>,
    done: Done,
    gone_ns: Option<u64>,
    leaks: Vec<String>,
) -> Seen {
    let marks = stage.told.iter().filter(|told| told.what == What::Marked);
    // A contradiction is there when the last of those who are told of it has come.
    let survivors = &plan.expect.survivors;
    let arrivals = stage
        .told
        .iter()
        .filter(|told| told.what == What::Arrived && survivors.contains(&told.rank));
    let last_mark = marks.map(|told| told.at_ns).max();
    let last_mark = last_mark.or_else(|| arrivals.map(|told| told.at_ns).max());
    let verdicts = stage
        .lines
        .iter()
        .filter(|line| line.text.starts_with("VERDICT "))
        .map(|line| (line.rank, line.text.clone()))
        .collect();
    let of_launcher = stage.lines.iter().filter(|line| line.rank.is_none());
    Seen {
        told: stage.told.clone(),
        verdicts,
        launcher_lines: of_launcher.map(|line| line.text.clone()).collect(),
        has_launcher: stage
            .children
            .iter()
            .any(|child| child.who == Who::Launcher),
        ends: stage
            .children
            .iter()
            .map(|child| End {
                rank: child.rank,
                how: child.ended,
            })
            .collect(),
        injected_ns: done.at_ns.or(last_mark),
        struck: done.struck,
        complaints: done.complaints,
        gone_ns,
        leaks,
        world_size: turn.setting.world_size,
    }
}

/// Everything that this run leaves to chance.
fn draws(turn: &Turn) -> Draws {
    let name = turn.drill.name.bytes().fold(0_u64, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(byte.into())
    });
    Draws::of(&[
        turn.seed,
        name,
        turn.setting.transport as u64,
        turn.setting.world_size.into(),
        turn.repetition.into(),
    ])
}

/// A run that has not taken place.
fn blank(turn: &Turn, plan: &Plan) -> Run {
    let (class, blamed) = match &plan.expect.outcome {
        Outcome::Gone => ("GONE", "nobody".to_owned()),
        Outcome::Interrupted => (Exit::Interrupted.class(), "nobody".to_owned()),
        Outcome::Well => (Exit::Ok.class(), "nobody".to_owned()),
        Outcome::Report { class, blamed } | Outcome::Verdict { class, blamed } => {
            (class.class(), blamed.to_string())
        }
    };
    Run {
        id: turn.drill.id.into(),
        name: turn.drill.name.into(),
        control: turn.drill.is_control,
        first_wave: turn.drill.first_wave,
        transport: turn.setting.transport,
        world_size: turn.setting.world_size,
        repetition: turn.repetition,
        injected: plan.injected.clone(),
        expected: Expected {
            class: class.into(),
            blamed,
            exit_code: plan.expect.exit.map(Exit::code),
        },
        verdict: None,
        detected_ms: None,
        bound_ms: plan.expect.bound.as_secs_f64() * 1e3,
        survivors_returned: false,
        assertions: Vec::new(),
        leaks: Vec::new(),
        outcome: RunOutcome::Skipped,
        passed: false,
        reasons: Vec::new(),
        notes: Vec::new(),
        elapsed_ms: 0,
    }
}

fn result(turn: &Turn, plan: &Plan, graded: Graded, seen: Seen, elapsed: Duration) -> Run {
    let passed = graded.assertions.iter().all(|assertion| assertion.holds);
    let mut notes = Vec::new();
    for told in &seen.told {
        if let What::Noted { text } = &told.what {
            notes.push(text.clone());
        }
    }
    Run {
        verdict: graded.verdict,
        detected_ms: graded.detected.map(|time| time.as_secs_f64() * 1e3),
        survivors_returned: graded.survivors_returned,
        assertions: graded.assertions,
        leaks: seen.leaks,
        outcome: if passed {
            RunOutcome::Passed
        } else {
            RunOutcome::Failed
        },
        passed,
        reasons: graded.reasons,
        notes,
        elapsed_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
        ..blank(turn, plan)
    }
}
