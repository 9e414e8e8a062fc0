//! What a run must have shown.

use std::collections::BTreeSet;

use super::plan::{Fault, Plan};
use super::rank::{Life, Player};
use super::stage::{COORDINATOR_HOST, Stage};
use crate::watch::verdict::{Class, Verdict};

pub(super) fn check(plan: &Plan, stage: &Stage<'_>) -> Result<(), String> {
    if plan.fault.ends_bring_up() {
        return early(plan, stage);
    }
    for player in &stage.players {
        if let Some(why) = &player.refused {
            return Err(format!("rank {} was refused: {why}", player.rank));
        }
    }
    let told: Vec<&Verdict> = stage
        .players
        .iter()
        .flat_map(|player| &player.told)
        .map(|(_, verdict)| verdict)
        .collect();
    let failed: Vec<usize> = stage
        .players
        .iter()
        .filter(|player| !player.failed.is_empty())
        .map(|player| player.rank)
        .collect();
    // Time can be up where nobody gets a processor, and nobody is to blame for that.
    let excuses =
        |verdict: &&Verdict| verdict.class == Class::Resource && verdict.blamed.is_empty();
    if plan.fault == Fault::Starved && !told.is_empty() && told.iter().all(excuses) {
        return same_for_all(stage);
    }
    // A mismatch is seen before it keeps anybody waiting.
    let may_be_early = stage.is_excused || plan.fault == Fault::Mismatched && !told.is_empty();
    if plan.fault.is_harmless() || stage.pressed.is_none() && !may_be_early {
        return match (told.first(), failed.first()) {
            (Some(verdict), _) => Err(format!(
                "a verdict, and nothing was wrong: {}",
                verdict.line()
            )),
            (None, Some(rank)) => Err(format!("rank {rank} failed, and nothing was wrong")),
            (None, None) => Ok(()),
        };
    }
    let Some(pressed) = &stage.pressed else {
        blame(plan, stage, &told)?;
        return if failed.is_empty() {
            Ok(())
        } else {
            same_for_all(stage)
        };
    };
    blame(plan, stage, &told)?;
    same_for_all(stage)?;
    in_time(plan, stage, pressed.since_us)
}

/// Bring-up has failed, for everybody and for the same reason.
fn early(plan: &Plan, stage: &Stage<'_>) -> Result<(), String> {
    let Some(why) = &stage.owner_failed else {
        return Err("bring-up did not fail".to_owned());
    };
    for player in stage.players.iter().filter(|player| player.has_joined) {
        if player.refused.as_ref() != Some(why) {
            return Err(format!(
                "rank {} heard {:?}, the owner {why:?}",
                player.rank, player.refused
            ));
        }
    }
    let name = match plan.fault {
        Fault::OtherWorld => format!("{}", plan.ranks + 1),
        _ => format!("{}", plan.culprit),
    };
    if why.contains(&name) {
        Ok(())
    } else {
        Err(format!("{name} is not named: {why}"))
    }
}

/// Class and culprits of every verdict that was told.
fn blame(plan: &Plan, stage: &Stage<'_>, told: &[&Verdict]) -> Result<(), String> {
    let class = match plan.fault {
        Fault::Killed | Fault::Exited => Class::PeerDead,
        Fault::Frozen if is_seen(plan, stage) => Class::PeerFrozen,
        // Somebody was there to look, and has left since.
        Fault::Frozen if had_neighbour(plan) && seen_frozen(told) => Class::PeerFrozen,
        // Nobody can look at its process: it does not come, for all that is known.
        Fault::Frozen => Class::NotJoined,
        Fault::Busy | Fault::Destroyed | Fault::Left => Class::NotJoined,
        Fault::Cut => Class::Link,
        Fault::Inverted => Class::Deadlock,
        Fault::Mismatched => Class::Mismatch,
        other => return Err(format!("{other:?} has no class")),
    };
    let blamed = stage.circle.clone().unwrap_or_else(|| plan.blamed());
    for verdict in told {
        let theirs: BTreeSet<usize> = verdict.blamed.iter().map(|rank| *rank as usize).collect();
        // One end of a broken path may have all it needs, and leave.
        let has_left = plan.fault == Fault::Cut
            && verdict.class == Class::NotJoined
            && theirs.len() == 1
            && theirs.is_subset(&blamed);
        if (verdict.class, &theirs) != (class, &blamed) && !has_left {
            return Err(format!(
                "not {} of {blamed:?}: {}",
                class.name(),
                verdict.line()
            ));
        }
    }
    Ok(())
}

/// Whoever failed has the verdict, and all have the same.
fn same_for_all(stage: &Stage<'_>) -> Result<(), String> {
    let mut first: Option<String> = None;
    for player in &stage.players {
        for failed in &player.failed {
            let Some(verdict) = &failed.verdict else {
                return Err(format!(
                    "rank {} failed in #{} of {} without a verdict: {}",
                    player.rank, failed.call.seq, failed.call.key, failed.kind
                ));
            };
            let line = verdict.line();
            let first = first.get_or_insert_with(|| line.clone());
            if *first != line {
                return Err(format!(
                    "rank {} was told {line}, another one {first}",
                    player.rank
                ));
            }
        }
    }
    let survivors = stage
        .players
        .iter()
        .filter(|player| player.life == Life::Left);
    if first.is_none() && survivors.count() > 0 {
        return Err("somebody was kept waiting, and nobody failed".to_owned());
    }
    Ok(())
}

/// Whether somebody could look at the culprit's process when the verdict was told: the coordinator, or a neighbour.
fn is_seen(plan: &Plan, stage: &Stage<'_>) -> bool {
    plan.hosts[plan.culprit] == COORDINATOR_HOST || has_neighbour(plan, stage)
}

/// Whether somebody on the culprit's host was still there to look at it.
fn has_neighbour(plan: &Plan, stage: &Stage<'_>) -> bool {
    let is_neighbour = |player: &Player| {
        player.rank != plan.culprit
            && plan.hosts[player.rank] == plan.hosts[plan.culprit]
            && !player.told.is_empty()
    };
    stage.players.iter().any(is_neighbour)
}

/// Whether somebody was on the culprit's host at first.
fn had_neighbour(plan: &Plan) -> bool {
    let mut others = (0..plan.ranks).filter(|rank| *rank != plan.culprit);
    others.any(|rank| plan.hosts[rank] == plan.hosts[plan.culprit])
}

fn seen_frozen(told: &[&Verdict]) -> bool {
    told.iter()
        .any(|verdict| verdict.class == Class::PeerFrozen)
}

/// The first verdict came within its bound.
fn in_time(plan: &Plan, stage: &Stage<'_>, pressed_us: u64) -> Result<(), String> {
    let bound_ms = match plan.fault {
        Fault::Killed | Fault::Exited => 250,
        // Over a network what it sent might still come.
        Fault::Left => 750,
        Fault::Frozen if is_seen(plan, stage) => 1500,
        // What rests on silence alone waits until the call's time is up, and then for news of that rank.
        Fault::Frozen => plan.deadline_us / 1000 + 4000,
        Fault::Destroyed | Fault::Inverted => 1000,
        Fault::Mismatched => 50,
        _ => plan.deadline_us / 1000 + 500,
    };
    // Messages take what the plan says, there and back and more than once.
    let bound_us = bound_ms * 1000 + 12 * plan.delay_us;
    let first = |player: &Player| player.told.first().map(|(at_us, _)| *at_us);
    let Some(told_us) = stage.players.iter().filter_map(first).min() else {
        return Err("there is no verdict".to_owned());
    };
    if told_us > pressed_us + bound_us {
        return Err(format!(
            "the verdict came {} ms after somebody was kept waiting, allowed are {} ms",
            (told_us - pressed_us) / 1000,
            bound_us / 1000
        ));
    }
    Ok(())
}
