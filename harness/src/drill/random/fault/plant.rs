//! Puts a fault into a program.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a fault concerns a few of many kinds of steps"
)]

use super::{Act, Fault, Planted, Strike, When};
use crate::drill::random::machine::{End, Mode, play};
use crate::drill::random::machine::{is_rooted, reduces};
use crate::drill::random::program::Program;
use crate::drill::random::scenario::Scenario;
use crate::drill::script::{CallKind, CallSpec, Kind, ObjectSpec, Step};
use crate::random::Draws;

/// Signals by their numbers.
const KILL: i32 = 9;
const SEGV: i32 = 11;
const TERM: i32 = 15;
const STOP: i32 = 19;
/// Longest time from the moment that a victim is at its step to the strike, in microseconds.
const DELAY_US: usize = 10_000;
/// Longest time from a rank's start to a strike at its bring-up, in microseconds.
const BRING_UP_US: usize = 60_000;
/// Longest time between two faults, in microseconds.
const BETWEEN_US: usize = 5_000;
/// Tries to find two calls whose exchange matters.
const TRIES: usize = 20;
/// How much longer than the deadline of the others' calls a rank stays away, in milliseconds.
const BEYOND_MS: u64 = 4_000;

/// Puts a fault into a scenario that has none; false where its program has no place for it.
pub fn plant(scenario: &mut Scenario, fault: Fault, draws: &mut Draws) -> bool {
    let deadline = u64::try_from(scenario.deadline.as_millis()).unwrap_or(u64::MAX);
    let ms = deadline.saturating_add(BEYOND_MS);
    let planted = match fault {
        Fault::Healthy => return true,
        Fault::Killed | Fault::Terminated | Fault::Stopped | Fault::Stalled => {
            strike(scenario, fault, draws)
        }
        Fault::TwoFaults => two(scenario, draws),
        Fault::BringUpKilled | Fault::BringUpStopped => {
            let rank = any_rank(scenario, draws);
            let signal = signal_of(fault);
            scenario.strikes.push(Strike {
                when: When::Arrives(rank),
                delay_us: draws.below(BRING_UP_US) as u64,
                act: Act::Signal { rank, signal },
            });
            note(scenario, fault, rank, None, Vec::new())
        }
        Fault::Missing => {
            let rank = any_rank(scenario, draws);
            scenario.missing = Some(rank);
            note(scenario, fault, rank, Some(0), Vec::new())
        }
        Fault::Segfault => itself(scenario, fault, draws, Step::Raise { signal: SEGV }),
        Fault::Exits0 => itself(scenario, fault, draws, Step::Exit { code: 0 }),
        Fault::Exits7 => itself(scenario, fault, draws, Step::Exit { code: 7 }),
        Fault::Panics => itself(scenario, fault, draws, Step::Panic { in_thread: false }),
        Fault::Sleeps => itself(scenario, fault, draws, Step::Pause { ms }),
        Fault::Computes => itself(scenario, fault, draws, Step::Spin { ms }),
        Fault::LeavesEarly => leaves(scenario, draws),
        Fault::DestroysEarly => destroys(scenario, draws),
        Fault::OtherCount
        | Fault::OtherDtype
        | Fault::OtherOp
        | Fault::OtherRoot
        | Fault::OtherCollective
        | Fault::OtherObject => other(scenario, fault, draws),
        Fault::Skips | Fault::Extra => number_of_calls(scenario, fault, draws),
        Fault::Inverts => inverts(scenario, draws),
        Fault::RecvLeftOut => recv_left_out(scenario, draws),
    };
    planted.is_some()
}

fn note(
    scenario: &mut Scenario,
    fault: Fault,
    victim: u32,
    halt: Option<usize>,
    group: Vec<u32>,
) -> Option<()> {
    scenario.planted.push(Planted {
        fault,
        victim,
        halt,
        group,
    });
    Some(())
}

fn any_rank(scenario: &Scenario, draws: &mut Draws) -> u32 {
    u32::try_from(draws.below(scenario.program.len())).unwrap_or(0)
}

fn signal_of(fault: Fault) -> i32 {
    match fault {
        Fault::Stopped | Fault::BringUpStopped => STOP,
        Fault::Terminated => TERM,
        _ => KILL,
    }
}

/// First step behind the groups that every rank makes at its start.
fn first_step(program: &[Step]) -> usize {
    let is_make = |step: &Step| matches!(step, Step::Make { .. });
    program
        .iter()
        .position(|step| !is_make(step))
        .unwrap_or(program.len())
}

fn any_step(scenario: &Scenario, rank: u32, draws: &mut Draws) -> usize {
    let program = &scenario.program[rank as usize];
    let first = first_step(program);
    first + draws.below((program.len() - first).max(1))
}

fn strike(scenario: &mut Scenario, fault: Fault, draws: &mut Draws) -> Option<()> {
    let rank = any_rank(scenario, draws);
    let step = any_step(scenario, rank, draws);
    let act = if fault == Fault::Stalled {
        let ms = 300 + draws.below(500) as u64;
        Act::Stall { rank, ms }
    } else {
        let signal = signal_of(fault);
        Act::Signal { rank, signal }
    };
    scenario.strikes.push(Strike {
        when: When::Begins { rank, step },
        delay_us: draws.below(DELAY_US) as u64,
        act,
    });
    note(scenario, fault, rank, None, Vec::new())
}

fn two(scenario: &mut Scenario, draws: &mut Draws) -> Option<()> {
    if scenario.program.len() < 3 {
        return None;
    }
    const FAULTS: [Fault; 3] = [Fault::Killed, Fault::Stopped, Fault::Terminated];
    let first = FAULTS[draws.below(3)];
    strike(scenario, first, draws)?;
    let before = scenario.planted[0].victim;
    let rank = loop {
        let rank = any_rank(scenario, draws);
        if rank != before {
            break rank;
        }
    };
    let second = FAULTS[draws.below(3)];
    scenario.strikes.push(Strike {
        when: When::AtOnce,
        delay_us: draws.below(BETWEEN_US) as u64,
        act: Act::Signal {
            rank,
            signal: signal_of(second),
        },
    });
    note(scenario, second, rank, None, Vec::new())
}

/// The victim does it itself, at some step.
fn itself(scenario: &mut Scenario, fault: Fault, draws: &mut Draws, step: Step) -> Option<()> {
    let rank = any_rank(scenario, draws);
    let at = any_step(scenario, rank, draws);
    let program = &mut scenario.program[rank as usize];
    program.splice(at..at, [Step::Mark, step]);
    note(scenario, fault, rank, Some(at + 1), Vec::new())
}

fn leaves(scenario: &mut Scenario, draws: &mut Draws) -> Option<()> {
    let rank = any_rank(scenario, draws);
    let at = any_step(scenario, rank, draws);
    let program = &mut scenario.program[rank as usize];
    let started = works(&program[..at]);
    program.truncate(at);
    program.extend(started.into_iter().map(|work| Step::Wait { work }));
    program.push(Step::Mark);
    note(scenario, Fault::LeavesEarly, rank, None, Vec::new())
}

/// Asynchronous calls that are started in these steps and not waited for.
fn works(steps: &[Step]) -> Vec<u32> {
    let mut started = Vec::new();
    for step in steps {
        match step {
            Step::Start { work, .. } => started.push(*work),
            Step::Wait { work } => started.retain(|one| one != work),
            _ => {}
        }
    }
    started
}

fn members(program: &Program, name: &str) -> Vec<u32> {
    let of = |step: &Step| match step {
        Step::Make {
            name: made,
            members,
        } if made == name => Some(members.clone()),
        _ => None,
    };
    let made = program.iter().flatten().find_map(of);
    made.unwrap_or_else(|| (0..).take(program.len()).collect())
}

fn destroys(scenario: &mut Scenario, draws: &mut Draws) -> Option<()> {
    let victim = any_rank(scenario, draws);
    let at = any_step(scenario, victim, draws);
    let program = &scenario.program[victim as usize];
    // The next group that it would use, and so one that others are likely to use with it.
    let next = program[at..].iter().find_map(|step| match step {
        Step::Call { group, .. } | Step::Batch { group, .. } if group != "world" => {
            Some(group.clone())
        }
        _ => None,
    })?;
    let mut steps = program[..at].to_vec();
    let under_way = works(&steps);
    steps.extend(under_way.iter().map(|work| Step::Wait { work: *work }));
    steps.push(Step::Mark);
    steps.push(Step::Destroy {
        group: next.clone(),
    });
    let mut gone = under_way;
    for step in &program[at..] {
        match step {
            Step::Start { group, work, .. } if *group == next => gone.push(*work),
            Step::Call { group, .. } | Step::Batch { group, .. } | Step::Destroy { group }
                if *group == next => {}
            Step::Make { name, .. } if *name == next => {}
            Step::Wait { work } if gone.contains(work) => {}
            step => steps.push(step.clone()),
        }
    }
    let group = members(&scenario.program, &next);
    scenario.program[victim as usize] = steps;
    note(scenario, Fault::DestroysEarly, victim, None, group)
}

/// The call that a step makes, and on which group.
fn call_of(step: &Step) -> Option<(&str, &CallSpec)> {
    match step {
        Step::Call { group, call, .. } | Step::Start { group, call, .. } => Some((group, call)),
        _ => None,
    }
}

fn is_message(call: &CallSpec) -> bool {
    matches!(call.kind, CallKind::Recv | CallKind::Send)
}

fn is_object(call: &CallSpec) -> bool {
    matches!(
        call.kind,
        CallKind::AllGatherObject | CallKind::BroadcastObject | CallKind::GatherObject
    )
}

/// A victim and one of its steps with a collective of at least two ranks that is fit for a fault.
fn any_call(
    scenario: &Scenario,
    draws: &mut Draws,
    fits: impl Fn(&Step, &CallSpec) -> bool,
) -> Option<(u32, usize, Vec<u32>)> {
    let order = draws.permutation(scenario.program.len());
    for rank in order {
        let program = &scenario.program[rank];
        let fitting: Vec<(usize, Vec<u32>)> = program
            .iter()
            .enumerate()
            .filter_map(|(at, step)| {
                let (group, call) = call_of(step)?;
                let members = members(&scenario.program, group);
                let is_fit = members.len() > 1 && !is_message(call) && fits(step, call);
                is_fit.then_some((at, members))
            })
            .collect();
        if !fitting.is_empty() {
            let (at, members) = fitting[draws.below(fitting.len())].clone();
            return Some((u32::try_from(rank).unwrap_or(0), at, members));
        }
    }
    None
}

fn other(scenario: &mut Scenario, fault: Fault, draws: &mut Draws) -> Option<()> {
    let fits = |_: &Step, call: &CallSpec| {
        let has_elements = call.count > 0 && call.kind != CallKind::Barrier && !is_object(call);
        let splits = call.kind == CallKind::AllToAllV;
        match fault {
            Fault::OtherCount => has_elements && !splits,
            Fault::OtherDtype | Fault::OtherCollective => has_elements,
            Fault::OtherOp => has_elements && reduces(call.kind),
            Fault::OtherRoot => has_elements && is_rooted(call.kind),
            _ => is_object(call),
        }
    };
    let (victim, at, group) = any_call(scenario, draws, fits)?;
    let program = &mut scenario.program[victim as usize];
    let (Step::Call { call, .. } | Step::Start { call, .. }) = &mut program[at] else {
        return None;
    };
    match fault {
        Fault::OtherCount => call.count += 1 + draws.below(call.count),
        Fault::OtherDtype => {
            call.dtype = match call.dtype {
                Kind::F32 => Kind::I32,
                Kind::F64 => Kind::I64,
                Kind::I32 => Kind::F32,
                Kind::I64 => Kind::F64,
            }
        }
        Fault::OtherOp => call.takes_max = !call.takes_max,
        Fault::OtherRoot => {
            call.peer = (call.peer + 1 + draws.below(group.len() - 1)) % group.len();
        }
        Fault::OtherCollective => {
            const KINDS: [CallKind; 5] = [
                CallKind::AllReduce,
                CallKind::AllGather,
                CallKind::Barrier,
                CallKind::Broadcast,
                CallKind::Reduce,
            ];
            let kinds: Vec<CallKind> = KINDS
                .into_iter()
                .filter(|kind| *kind != call.kind)
                .collect();
            call.kind = kinds[draws.below(kinds.len())];
        }
        _ => call.object = ObjectSpec::Other,
    }
    program.insert(at, Step::Mark);
    note(scenario, fault, victim, None, group)
}

fn number_of_calls(scenario: &mut Scenario, fault: Fault, draws: &mut Draws) -> Option<()> {
    let blocks = |step: &Step, _: &CallSpec| matches!(step, Step::Call { .. });
    let (victim, at, group) = any_call(scenario, draws, blocks)?;
    let program = &mut scenario.program[victim as usize];
    if fault == Fault::Skips {
        program[at] = Step::Mark;
    } else {
        let again = program[at].clone();
        program.splice(at..at, [Step::Mark, again]);
    }
    note(scenario, fault, victim, None, group)
}

fn inverts(scenario: &mut Scenario, draws: &mut Draws) -> Option<()> {
    let healthy = scenario.program.clone();
    let mut last = None;
    for _ in 0..TRIES {
        let blocks = |step: &Step, _: &CallSpec| matches!(step, Step::Call { .. });
        let (victim, at, group) = any_call(scenario, draws, blocks)?;
        let program = &scenario.program[victim as usize];
        let (own, _) = call_of(&program[at])?;
        let is_other = |step: &Step| matches!(step, Step::Call { group, call, .. } if group != own && !is_message(call));
        // Only pauses lie between: anything else may be about one of the two groups.
        let next = program[at + 1..]
            .iter()
            .position(|step| !matches!(step, Step::Pause { .. }))
            .map(|next| at + 1 + next)
            .filter(|next| is_other(&program[*next]));
        let Some(next) = next else {
            continue;
        };
        let mut group = group;
        group.extend(members(&scenario.program, call_of(&program[next])?.0));
        let mut changed = healthy.clone();
        changed[victim as usize].swap(at, next);
        changed[victim as usize].insert(at, Step::Mark);
        let outcome = play(&changed, &vec![None; changed.len()], Mode::Lax);
        let matters = outcome.ends.iter().any(|end| *end != End::Done);
        last = Some((victim, changed, group));
        if matters {
            break;
        }
    }
    let (victim, changed, group) = last?;
    scenario.program = changed;
    note(scenario, Fault::Inverts, victim, None, group)
}

fn recv_left_out(scenario: &mut Scenario, draws: &mut Draws) -> Option<()> {
    let order = draws.permutation(scenario.program.len());
    for rank in order {
        let batches = scenario.program[rank].iter().enumerate();
        let batches: Vec<usize> = batches
            .filter(|(_, step)| matches!(step, Step::Batch { .. }))
            .map(|(at, _)| at)
            .collect();
        if batches.is_empty() {
            continue;
        }
        let at = batches[draws.below(batches.len())];
        let Step::Batch { group, messages } = &mut scenario.program[rank][at] else {
            continue;
        };
        let name = group.clone();
        let sender = messages.iter().find(|one| !one.is_sent)?.peer;
        messages.retain(|one| one.is_sent);
        scenario.program[rank].insert(at, Step::Mark);
        let victim = u32::try_from(rank).unwrap_or(0);
        let sender = *members(&scenario.program, &name).get(sender)?;
        return note(
            scenario,
            Fault::RecvLeftOut,
            victim,
            None,
            vec![victim, sender],
        );
    }
    None
}
