//! What may be said because of each fault that others meet in their calls.

use super::super::fault::{Fault, Planted};
use super::super::machine::{End, Outcome};
use super::{Claim, stuck};
use crate::drill::plan::Blamed;
use crate::exit::Exit;

/// One of the two sides, where there are only two; otherwise the odd one.
fn odd(victim: u32, group: &[u32]) -> Blamed {
    if group.len() == 2 {
        Blamed::Among(group.to_vec())
    } else {
        Blamed::Exactly(vec![victim])
    }
}

/// What may be said because of a fault that others meet in their calls.
pub(super) fn claims(planted: &Planted, outcomes: &[Outcome; 2]) -> Vec<Claim> {
    let Planted {
        fault,
        victim,
        group,
        ..
    } = planted;
    let class = fault.class();
    let everyone = || -> Vec<u32> { (0..).zip(&outcomes[0].ends).map(|(rank, _)| rank).collect() };
    match fault {
        Fault::OtherCount
        | Fault::OtherDtype
        | Fault::OtherOp
        | Fault::OtherRoot
        | Fault::OtherCollective => differing(planted, &outcomes[0]),
        Fault::OtherObject => {
            let classes = [Exit::Mismatch, Exit::Data];
            let mut claims = vec![Claim::new(&classes, odd(*victim, group))];
            // Where the victim alone decodes, it cannot know better than that the others are wrong.
            if outcomes[0]
                .ends
                .iter()
                .filter(|end| **end == End::Failed)
                .count()
                == 1
            {
                claims.push(Claim::new(&classes, Blamed::Among(group.clone())));
            }
            claims
        }
        Fault::RecvLeftOut => {
            let classes = [Exit::Mismatch, Exit::NotJoined];
            let mut claims = vec![Claim::new(&classes, Blamed::Among(group.clone()))];
            // A sender whose message does not fit waits for the receiver, and the receiver may wait for it elsewhere.
            let mut pair = group.clone();
            pair.sort_unstable();
            claims.push(Claim::new(&[Exit::Deadlock], Blamed::Exactly(pair)));
            claims.extend(circle(*victim, outcomes));
            claims
        }
        Fault::LeavesEarly => {
            // Messages that it has not received may be what is seen first.
            let classes = [class, Exit::Mismatch];
            let mut claims = vec![Claim::new(&classes, Blamed::Exactly(vec![*victim]))];
            claims.extend(pairs(*victim, &everyone()));
            claims
        }
        Fault::DestroysEarly => {
            // As above.
            let classes = [class, Exit::Mismatch];
            let mut claims = vec![Claim::new(&classes, Blamed::Exactly(vec![*victim]))];
            claims.extend(pairs(*victim, &everyone()));
            // Where the others have made the group again, and the victim never will.
            claims.extend(circle(*victim, outcomes));
            claims
        }
        Fault::Skips | Fault::Extra | Fault::Inverts => outcomes
            .iter()
            .flat_map(|outcome| shifted(planted, outcome))
            .collect(),
        Fault::Healthy | Fault::Stalled => Vec::new(),
        Fault::Killed
        | Fault::Terminated
        | Fault::Segfault
        | Fault::Exits0
        | Fault::Exits7
        | Fault::Panics
        | Fault::Stopped
        | Fault::Sleeps
        | Fault::Computes
        | Fault::BringUpKilled
        | Fault::BringUpStopped
        | Fault::Missing
        | Fault::TwoFaults => vec![Claim::new(&[class], Blamed::Exactly(vec![*victim]))],
    }
}

/// What may be said of one call that the victim makes differently.
fn differing(planted: &Planted, outcome: &Outcome) -> Vec<Claim> {
    let (victim, group, class) = (planted.victim, &planted.group, planted.fault.class());
    let mut claims = vec![Claim::new(&[class], odd(victim, group))];
    let stuck = stuck(outcome);
    if stuck.iter().filter(|rank| group.contains(rank)).count() <= 1 {
        // One member alone is left with it; the others are through and have left, and their boards are gone. Of the two calls
        // that it has seen any may be the odd one.
        claims.extend(pairs(victim, group));
    }
    claims
}

/// That the calls of the victim and of another rank of the group differ.
fn pairs(victim: u32, group: &[u32]) -> impl Iterator<Item = Claim> {
    let others = group.iter().filter(move |other| **other != victim);
    others.map(move |other| {
        let pair = vec![victim.min(*other), victim.max(*other)];
        Claim::new(&[Exit::Mismatch], Blamed::Exactly(pair))
    })
}

/// What may be said of calls that are no longer in step.
fn shifted(planted: &Planted, outcome: &Outcome) -> Vec<Claim> {
    let victim = planted.victim;
    let mut claims = Vec::new();
    if planted.fault != Fault::Inverts && !stuck(outcome).is_empty() {
        // By the places in the program it may be seen although the calls fit.
        claims.push(Claim::new(&[Exit::Mismatch], odd(victim, &planted.group)));
        // A message of it that another one never received.
        claims.extend(pairs(victim, &planted.group));
    }
    if planted.fault == Fault::Skips && outcome.ends[victim as usize] == End::Done {
        // It gets through, and another one has a call for it left.
        claims.push(Claim::new(
            &[Exit::NotJoined],
            Blamed::Exactly(vec![victim]),
        ));
    }
    for found in &outcome.contradictions {
        claims.push(Claim::new(&[Exit::Mismatch], odd(victim, &found.ranks)));
        // Where two calls only are known, any of them may be the odd one.
        claims.extend(pairs(victim, &found.ranks));
    }
    // Of a call that the victim made alone the library may need any member.
    let left_behind = outcome.left_behind.iter();
    let left_behind = left_behind.filter(|(caller, _)| *caller == victim);
    let mut gone: Vec<u32> = left_behind.map(|(_, gone)| *gone).collect();
    for end in &outcome.ends {
        let End::Blocked { waits_for, .. } = end else {
            continue;
        };
        let is_gone = |rank: u32| outcome.ends[rank as usize] == End::Done;
        let waits_for = waits_for
            .iter()
            .filter(|wait| wait.has_destroyed || is_gone(wait.rank));
        gone.extend(waits_for.map(|wait| wait.rank));
    }
    if !gone.is_empty() {
        gone.sort_unstable();
        gone.dedup();
        // Whoever left or destroyed the group that the victim is late for is innocent of it, but that
        // they are gone is what can be seen.
        claims.push(Claim::new(&[Exit::NotJoined], Blamed::Among(gone)));
    }
    claims.extend(circle(victim, std::slice::from_ref(outcome)));
    claims
}

/// That there is a circle, where there may be one.
fn circle(victim: u32, outcomes: &[Outcome]) -> Option<Claim> {
    let claim = Claim::new(&[Exit::Deadlock], Blamed::CircleThrough(victim));
    outcomes.iter().any(has_circle).then_some(claim)
}

/// Whether ranks wait for each other in a circle.
fn has_circle(outcome: &Outcome) -> bool {
    let next = |rank: u32| match &outcome.ends[rank as usize] {
        End::Blocked { waits_for, .. } => waits_for
            .iter()
            .filter(|wait| !wait.has_destroyed)
            .map(|wait| wait.rank)
            .collect::<Vec<u32>>(),
        End::Done | End::Failed | End::Halted => Vec::new(),
    };
    // Those who wait for nobody who waits are taken away, again and again; a circle is what stays.
    let mut left = stuck(outcome);
    loop {
        let keeps = |rank: &u32| next(*rank).iter().any(|other| left.contains(other));
        let kept: Vec<u32> = left.iter().copied().filter(keeps).collect();
        if kept.len() == left.len() {
            return !left.is_empty();
        }
        left = kept;
    }
}
