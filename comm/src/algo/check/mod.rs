//! The checker: proves that the plans of all ranks together do what their problem asks for.
//!
//! It runs the plans with symbols instead of numbers: each element of the send buffers is a symbol
//! of its own, a reduction is a tree of symbols, and in the end every element of every receive
//! buffer must hold exactly what the collective says. On the way it shows PLAN-1 to PLAN-4 of
//! [`super::plan`](mod@super::plan), and
//!
//! - CHECK-1: every output element holds each contribution that it should, exactly once;
//! - CHECK-2: an element that several ranks have is reduced in the same order on all of them;
//! - CHECK-3: nothing is read before it was written, nothing is out of bounds, and the send buffer
//!   is never written;
//! - CHECK-4: the plans come to their end when every send waits for its receive;
//! - CHECK-5: no rank leaves a barrier without having heard from all others.
//!
//! Elements that are treated alike are one run, so the work grows with the number of steps and
//! not with the number of elements.

mod defect;
mod expect;
mod memory;
mod rules;
mod run;

pub use self::defect::{Defect, DefectKind};
pub use super::schedule::{At, Wait};

use super::plan::{Links, Plan, Step};
use super::problem::Problem;
use super::schedule::{self, Matching, Mismatch, Stop};
use super::shape::Matrix;
use rules::Map;
use run::Symbols;

/// What was proved, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Ranks.
    pub n: usize,
    /// Rounds of the longest plan.
    pub rounds: usize,
    /// Messages of all ranks.
    pub messages: usize,
    /// Elements in all messages.
    pub elements: usize,
    /// Whether in-place calls were proved too: all plans allow them, and so does the problem.
    pub in_place: bool,
}

/// Proves `plans`, one for each rank, for calls with separate buffers, and for in-place calls
/// where all plans say that they allow them.
///
/// # Errors
/// The first [`Defect`].
pub fn check(problem: &Problem, plans: &[Plan]) -> Result<Proof, Defect> {
    let proof = check_apart(problem, plans)?;
    let allowed = plans.iter().all(|plan| plan.in_place)
        && (0..problem.n()).all(|rank| problem.in_place(rank).is_some());
    if !allowed {
        return Ok(proof);
    }
    check_in_place(problem, plans)
}

/// Proves `plans` for calls with separate buffers only.
///
/// # Errors
/// The first [`Defect`].
pub fn check_apart(problem: &Problem, plans: &[Plan]) -> Result<Proof, Defect> {
    check_calls(problem, plans, false)
}

/// Proves `plans` for in-place calls only.
///
/// # Errors
/// The first [`Defect`]; [`DefectKind::NotInPlace`] where a plan or the problem does not allow them.
pub fn check_in_place(problem: &Problem, plans: &[Plan]) -> Result<Proof, Defect> {
    check_calls(problem, plans, true).map_err(|defect| Defect {
        in_place: true,
        ..defect
    })
}

fn check_calls(problem: &Problem, plans: &[Plan], in_place: bool) -> Result<Proof, Defect> {
    check_shape(problem, plans)?;
    if in_place && let Some(rank) = plans.iter().position(|plan| !plan.in_place) {
        return Err(of_rank(rank, DefectKind::NotInPlace));
    }
    let map =
        Map::of(problem, plans, in_place).ok_or_else(|| of_rank(0, DefectKind::NotInPlace))?;
    for (rank, plan) in plans.iter().enumerate() {
        check_plan(&map, rank, plan)?;
    }
    let matching = Matching::of(plans).map_err(|mismatch| unmatched(plans, mismatch))?;
    let mut symbols = Symbols::new(problem, plans, &map);
    schedule::run(plans, &matching, &mut symbols).map_err(stopped)?;
    expect::check_results(problem, &symbols)?;
    check_numbers(plans, &matching)?;
    Ok(Proof {
        n: problem.n(),
        rounds: plans
            .iter()
            .map(|plan| plan.rounds.len())
            .max()
            .unwrap_or(0),
        messages: matching.messages,
        elements: matching.elements,
        in_place,
    })
}

/// Whether there is a plan a rank, all for the same links, and with equally many rounds where
/// there are barriers between them.
fn check_shape(problem: &Problem, plans: &[Plan]) -> Result<(), Defect> {
    let n = problem.n();
    if let Some(own) = problem.matrix().and_then(Matrix::owner) {
        return Err(of_rank(own, DefectKind::PartialCounts));
    }
    if plans.len() != n {
        let got = plans.len();
        return Err(of_rank(got.min(n - 1), DefectKind::PlanCount { got, n }));
    }
    let first = &plans[0];
    for (rank, plan) in plans.iter().enumerate() {
        if plan.links != first.links {
            let links = Links::Message;
            return Err(of_rank(rank, DefectKind::Links { links }));
        }
        if plan.links == Links::Direct && plan.rounds.len() != first.rounds.len() {
            let kind = DefectKind::Rounds {
                rounds: plan.rounds.len(),
                first: first.rounds.len(),
            };
            return Err(of_rank(rank, kind));
        }
    }
    Ok(())
}

fn check_plan(map: &Map, rank: usize, plan: &Plan) -> Result<(), Defect> {
    for (number, round) in plan.rounds.iter().enumerate() {
        let defect = |step, kind| Defect {
            rank,
            round: Some(number),
            step: Some(step),
            in_place: false,
            kind,
        };
        for (step, what) in round.steps.iter().enumerate() {
            rules::check_step(map, rank, plan.links, what).map_err(|kind| defect(step, kind))?;
        }
        rules::check_round(map, rank, round).map_err(|(step, kind)| defect(step, kind))?;
    }
    Ok(())
}

/// Whether the two ends of every message stand in rounds of one number, as PLAN-3 wants.
fn check_numbers(plans: &[Plan], matching: &Matching) -> Result<(), Defect> {
    let number = |place: At| {
        let staged = usize::from(plans[place.rank].staged);
        place.round.saturating_sub(staged)
    };
    for (recv, step) in schedule::all_steps(plans) {
        let is_recv = matches!(step, Step::Recv { .. } | Step::RecvReduce { .. });
        let send = matching.partner(recv).filter(|_| is_recv);
        if let Some(send) = send.filter(|send| number(*send) != number(recv)) {
            let kind = DefectKind::RoundNumber {
                peer: send.rank,
                mine: number(recv),
                theirs: number(send),
            };
            return Err(at(recv, kind));
        }
    }
    Ok(())
}

fn of_rank(rank: usize, kind: DefectKind) -> Defect {
    Defect {
        rank,
        round: None,
        step: None,
        in_place: false,
        kind,
    }
}

fn at(place: At, kind: DefectKind) -> Defect {
    Defect {
        rank: place.rank,
        round: Some(place.round),
        step: Some(place.step),
        in_place: false,
        kind,
    }
}

fn unmatched(plans: &[Plan], mismatch: Mismatch) -> Defect {
    let len = |place: At| {
        let step = &plans[place.rank].rounds[place.round].steps[place.step];
        step.message_len().unwrap_or(0)
    };
    match mismatch {
        Mismatch::Lengths {
            send,
            recv,
            sent,
            received,
        } => at(
            recv,
            DefectKind::MessageLength {
                peer: send.rank,
                peer_round: send.round,
                sent,
                received,
            },
        ),
        Mismatch::NoSend { recv, from } => at(
            recv,
            DefectKind::UnmatchedRecv {
                from,
                len: len(recv),
            },
        ),
        Mismatch::NoRecv { send, to } => at(send, DefectKind::UnmatchedSend { to, len: len(send) }),
    }
}

fn stopped(stop: Stop<Defect>) -> Defect {
    match stop {
        Stop::Observed(defect) => defect,
        Stop::Deadlock(waits) => match waits.first() {
            Some(first) => at(first.at, DefectKind::Deadlock { waits }),
            None => of_rank(0, DefectKind::Deadlock { waits }),
        },
    }
}
