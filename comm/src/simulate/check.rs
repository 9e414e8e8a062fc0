//! What a run must have shown.

use std::collections::{BTreeMap, BTreeSet};

use super::rank::{Life, Player};
use super::scenario::{Fault, Scenario, Seat};
use super::sim_world::Stage;
use crate::error::verdict::{Class, Verdict};

pub(super) fn check(plan: &Scenario, stage: &Stage<'_>) -> Result<(), String> {
    if plan.fault.ends_bring_up() {
        return early(plan, stage);
    }
    for player in &stage.players {
        if let Some(why) = &player.refused {
            return Err(format!("rank {} was refused: {why}", player.rank));
        }
    }
    for player in &stage.players {
        let lines: BTreeSet<String> = player.told.iter().map(|(_, one)| one.line()).collect();
        if lines.len() > if has_two_faults(plan) { 2 } else { 1 } {
            return Err(format!("rank {} printed {lines:?}", player.rank));
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
    if failed.is_empty() && !has_waiter(plan, stage) {
        // The culprit and the rank that serves were stopped, and all others had done their work.
        return Ok(());
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
    is_noticed(stage)?;
    in_time(plan, stage, pressed.since_us)
}

/// Bring-up has failed, for everybody and for the same reason.
fn early(plan: &Scenario, stage: &Stage<'_>) -> Result<(), String> {
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
fn blame(plan: &Scenario, stage: &Stage<'_>, told: &[&Verdict]) -> Result<(), String> {
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
        // Where nobody judged for all ranks, those who cannot look at the culprit know that a rank which serves does not
        // answer, and else nothing.
        let names_nobody =
            plan.seat == Seat::Launcher && verdict.class == Class::Internal && theirs.is_empty();
        let names_server = plan.seat == Seat::Rank(plan.culprit)
            && (verdict.class, &theirs) == (Class::NotJoined, &blamed);
        let is_unseen = is_unjudged(plan) && !all_see(plan) && (names_nobody || names_server);
        // A rank that serves and is stopped keeps others waiting too.
        let is_server = has_two_faults(plan)
            && matches!(
                verdict.class,
                Class::PeerDead | Class::PeerFrozen | Class::NotJoined
            )
            && !theirs.is_empty()
            && theirs
                .iter()
                .all(|rank| *rank == 0 || blamed.contains(rank));
        // One end of a broken path may have all it needs, and leave.
        let has_left = plan.fault == Fault::Cut
            && verdict.class == Class::NotJoined
            && theirs.len() == 1
            && theirs.is_subset(&blamed);
        if (verdict.class, &theirs) != (class, &blamed) && !has_left && !is_unseen && !is_server {
            return Err(format!(
                "not {} of {blamed:?}: {}",
                class.name(),
                verdict.line()
            ));
        }
    }
    Ok(())
}

/// Whether ranks may have had to judge by themselves: who serves the rendezvous was stopped, or has ended.
fn is_unjudged(plan: &Scenario) -> bool {
    plan.server_stop.is_some() || plan.seat == Seat::Rank(plan.culprit)
}

/// Whether a rank that serves is stopped, beside the fault.
fn has_two_faults(plan: &Scenario) -> bool {
    plan.server_stop.is_some() && plan.seat != Seat::Launcher
}

/// Whether a rank that was not stopped for good had work left, where two were stopped.
fn has_waiter(plan: &Scenario, stage: &Stage<'_>) -> bool {
    let is_for_good = plan.server_stop.is_some_and(|stop| stop.lasts_us.is_none());
    let is_out = |rank: usize| rank == plan.culprit || is_for_good && plan.seat == Seat::Rank(rank);
    let mut players = stage.players.iter();
    !has_two_faults(plan)
        || players
            .any(|player| !is_out(player.rank) && player.step < plan.programs[player.rank].len())
}

/// Whether every rank can look at the culprit, and at the process that serves.
fn all_see(plan: &Scenario) -> bool {
    (0..plan.ranks).all(|rank| {
        let rank = Seat::Rank(rank);
        plan.sees(rank, Seat::Rank(plan.culprit)) && plan.sees(rank, plan.seat)
    })
}

/// Whoever failed has the verdict, and all have the same. Where nobody judges for all ranks that is so for those who see each
/// other.
fn same_for_all(stage: &Stage<'_>) -> Result<(), String> {
    let plan = stage.plan;
    if !is_unjudged(plan) {
        return same_for(stage, |_| true);
    }
    let ranks = || (0..plan.ranks).map(Seat::Rank);
    let sees_all = |one: Seat| ranks().all(|other| plan.sees(one, other));
    let goes_on = plan.server_stop.is_some_and(|stop| stop.lasts_us.is_some());
    if goes_on && !ranks().all(sees_all) {
        // The first of their verdicts that the server finds then becomes that of all who have none.
        return (0..plan.ranks).try_for_each(|one| same_for(stage, |other| other == one));
    }
    (0..plan.ranks)
        .try_for_each(|one| same_for(stage, |other| plan.sees(Seat::Rank(one), Seat::Rank(other))))
}

fn same_for(stage: &Stage<'_>, is_in: impl Fn(usize) -> bool) -> Result<(), String> {
    let mut lines: BTreeMap<Vec<u32>, String> = BTreeMap::new();
    for player in stage.players.iter().filter(|player| is_in(player.rank)) {
        for failed in &player.failed {
            let Some(verdict) = &failed.verdict else {
                return Err(format!(
                    "rank {} failed in #{} of {} without a verdict: {}",
                    player.rank, failed.call.seq, failed.call.key, failed.kind
                ));
            };
            let line = verdict.line();
            // Two faults may be told one by one.
            let fault = verdict.blamed.iter().copied();
            let fault = fault.filter(|_| has_two_faults(stage.plan)).collect();
            let first = lines.entry(fault).or_insert_with(|| line.clone());
            if *first != line {
                return Err(format!(
                    "rank {} was told {line}, another one {first}",
                    player.rank
                ));
            }
        }
    }
    Ok(())
}

/// Somebody failed.
fn is_noticed(stage: &Stage<'_>) -> Result<(), String> {
    let mut players = stage.players.iter();
    if players.all(|player| player.failed.is_empty())
        && stage.players.iter().any(|player| player.life == Life::Left)
    {
        return Err("somebody was kept waiting, and nobody failed".to_owned());
    }
    Ok(())
}

/// Whether somebody could look at the culprit's process when the verdict was told: the coordinator, or a neighbour.
fn is_seen(plan: &Scenario, stage: &Stage<'_>) -> bool {
    let culprit = Seat::Rank(plan.culprit);
    plan.seat != culprit && plan.sees(plan.seat, culprit) || has_neighbour(plan, stage)
}

/// Whether somebody on the culprit's host was still there to look at it.
fn has_neighbour(plan: &Scenario, stage: &Stage<'_>) -> bool {
    let is_neighbour = |player: &Player| {
        player.rank != plan.culprit
            && plan.sees(Seat::Rank(player.rank), Seat::Rank(plan.culprit))
            && !player.told.is_empty()
    };
    stage.players.iter().any(is_neighbour)
}

/// Whether somebody was on the culprit's host at first.
fn had_neighbour(plan: &Scenario) -> bool {
    let mut others = (0..plan.ranks).filter(|rank| *rank != plan.culprit);
    others.any(|rank| plan.sees(Seat::Rank(rank), Seat::Rank(plan.culprit)))
}

fn seen_frozen(told: &[&Verdict]) -> bool {
    told.iter()
        .any(|verdict| verdict.class == Class::PeerFrozen)
}

/// The first verdict came within its bound.
fn in_time(plan: &Scenario, stage: &Stage<'_>, pressed_us: u64) -> Result<(), String> {
    // Whoever serves may be the one that waits.
    let stop = plan.server_stop.and_then(|stop| stop.lasts_us);
    let stopped_ms = stop.map_or(0, |us| us / 1000);
    let bound_ms = match plan.fault {
        // It is looked at by ranks that wait, once they have heard nothing of the arbiter for a second.
        Fault::Killed | Fault::Exited | Fault::Frozen if is_unjudged(plan) && all_see(plan) => {
            3000 + stopped_ms
        }
        // A rank that sees neither waits until its call's time is up, and then for news.
        Fault::Killed | Fault::Exited | Fault::Frozen if is_unjudged(plan) => {
            plan.deadline_us / 1000 + 9000 + stopped_ms
        }
        Fault::Killed | Fault::Exited => 250,
        // Over a network what it sent might still come.
        Fault::Left => 750,
        // A complaint comes every 250 ms; the first finds that it does not answer, and from the second on it is looked at for a
        // second. The coordinator looks at the time every 10 ms.
        Fault::Frozen if is_seen(plan, stage) => 1550,
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
