//! The truth of a run: what may be said of it, and who must say something. It comes from what was planted,
//! from where the ranks were, and from playing the program in thought; never from what was said.
//!
//! TRUTH-1: where the library may or may not make a rank wait, both are right: whoever says nothing is not
//! blamed for it, and whoever speaks must say what is true.

mod claims;

use std::fmt;

use self::claims::claims;
use super::fault::{Fault, Planted};
use super::machine::{End, Mode, Outcome, play};
use super::scenario::{Launcher, Scenario, Way};
use crate::drill::actor::trace::At;
use crate::drill::plan::{Blamed, ranks_in_words};
use crate::exit::Exit;

/// A rank that began its wait less than this before the first verdict may have come too late to be heard.
const HEARD_NS: u64 = 50_000_000;

/// Most ranks that are listed one by one.
const WORDS_MAX: usize = 16;

/// Something that is true of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The classes under which it may be said.
    pub classes: Vec<Exit>,
    /// Whom it must blame.
    pub blamed: Blamed,
    /// Whether it may also blame nobody.
    pub or_nobody: bool,
}

impl Claim {
    fn new(classes: &[Exit], blamed: Blamed) -> Self {
        Self {
            classes: classes.to_vec(),
            blamed,
            or_nobody: false,
        }
    }
}

/// The truth of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Truth {
    /// What may be said; nothing where it is empty.
    pub claims: Vec<Claim>,
    /// Ranks that surely could not go on: each says a verdict.
    pub must_speak: Vec<u32>,
    /// Whether somebody must speak.
    pub must_be_told: bool,
    /// Whether the launcher must, also where no rank does.
    pub launcher_must: bool,
    /// Whether all say the same line: somebody lived who could tell them.
    pub shared: bool,
    /// Ranks of which nothing is expected.
    pub victims: Vec<u32>,
}

impl Truth {
    /// Adds claims that are not there yet.
    fn add(&mut self, claims: Vec<Claim>) {
        for claim in claims {
            if !self.claims.contains(&claim) {
                self.claims.push(claim);
            }
        }
    }
}

impl fmt::Display for Truth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, claim) in self.claims.iter().enumerate() {
            let classes: Vec<&str> = claim.classes.iter().map(|class| class.class()).collect();
            let between = if number == 0 { "" } else { ", or " };
            write!(f, "{between}{} {}", classes.join("|"), claim.blamed)?;
        }
        if self.claims.is_empty() {
            f.write_str("nothing may be said")?;
        }
        match self.must_speak.len() {
            0..=WORDS_MAX => write!(f, "; must speak: {}", ranks_in_words(&self.must_speak))?,
            many => write!(f, "; must speak: {many} ranks")?,
        }
        if self.must_be_told && self.must_speak.is_empty() {
            f.write_str("; somebody must speak")?;
        }
        if self.launcher_must {
            f.write_str("; the launcher must speak")?;
        }
        Ok(())
    }
}

/// What was seen of the ranks themselves, not of what they said.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// Where each rank was at the end.
    pub at: Vec<Option<At>>,
    /// Who has a world.
    pub joined: Vec<u32>,
    /// When the first rank returned with a failure.
    pub first_return_ns: Option<u64>,
    /// Whether a rank that was to go on soon was stopped for so long that it may be said to be: the drill itself got no processor.
    pub was_stopped: bool,
}

/// The truth of a run.
#[must_use]
pub fn truth(scenario: &Scenario, watched: &Watched) -> Truth {
    let halts = halts(scenario, watched);
    let outcomes = [Mode::Lax, Mode::Strict].map(|mode| play(&scenario.program, &halts, mode));
    let [lax, strict] = &outcomes;
    // Where nobody serves the rendezvous and no memory is shared, ranks cannot tell each other.
    let is_cut_off = scenario.way == Way::Net
        && scenario
            .planted
            .iter()
            .any(|one| one.victim == 0 && one.fault.stays_away());
    let mut truth = Truth {
        shared: !is_cut_off,
        must_speak: stuck(lax),
        victims: scenario
            .planted
            .iter()
            .filter(|one| one.fault.stays_away())
            .map(|one| one.victim)
            .collect(),
        ..Truth::default()
    };
    let is_wrong = outcomes
        .iter()
        .any(|outcome| !stuck(outcome).is_empty() || !outcome.contradictions.is_empty());
    for planted in &scenario.planted {
        if is_missing_at_start(planted, watched) {
            bring_up(scenario, planted, watched, &mut truth);
        } else if is_wrong {
            truth.add(claims(planted, &outcomes));
            let have_all_joined = watched.joined.len() == scenario.program.len();
            if planted.victim == 0 && planted.fault.is_death() && !have_all_joined {
                unserved(scenario, &mut truth);
            }
            if scenario.way == Way::Net && planted.fault.patience() == 1 {
                // Nobody can look at a process of another host.
                let classes = [Exit::Link, Exit::NotJoined];
                let exactly = Blamed::Exactly(vec![planted.victim]);
                truth.add(vec![Claim::new(&classes, exactly)]);
            }
        }
        alone(scenario, planted, watched, &mut truth);
    }
    let is_lost = scenario.fault == Fault::RecvLeftOut && !lax.lost.is_empty();
    let contradicts = !strict.contradictions.is_empty()
        && (scenario.fault.is_contradiction() || scenario.fault == Fault::OtherObject);
    if is_lost && truth.claims.is_empty() {
        for planted in &scenario.planted {
            truth.add(claims(planted, &outcomes));
        }
    }
    truth.must_be_told = is_lost || contradicts || !truth.must_speak.is_empty();
    if let [first, second] = scenario.planted.as_slice() {
        two(first, second, &halts, lax, watched, &mut truth);
    }
    if scenario.is_starved()
        && scenario
            .planted
            .iter()
            .any(|one| has_come_back(one, watched))
    {
        // Time in which ranks could not run counts against nobody, so it need not have been too late.
        truth.must_speak.clear();
        truth.must_be_told = false;
    }
    let victims = truth.victims.clone();
    truth.must_speak.retain(|rank| !victims.contains(rank));
    if scenario.launcher == Launcher::Mpirun {
        // It ends all ranks when one fails, before they can speak.
        truth.must_speak.clear();
        truth.launcher_must = false;
        truth.must_be_told &= !scenario.planted.iter().any(|one| one.fault.is_death());
    }
    truth
}

/// Whether a rank that stayed away has gone on in the end.
fn has_come_back(planted: &Planted, watched: &Watched) -> bool {
    let at = watched.at.get(planted.victim as usize).copied().flatten();
    let stays = matches!(planted.fault, Fault::Sleeps | Fault::Computes);
    stays
        && planted
            .halt
            .zip(at)
            .is_some_and(|(halt, at)| at.step > halt)
}

/// At which step each rank stops for good.
fn halts(scenario: &Scenario, watched: &Watched) -> Vec<Option<usize>> {
    let mut halts = vec![None; scenario.program.len()];
    for planted in scenario.planted.iter().filter(|one| one.fault.stays_away()) {
        let seen = watched.at.get(planted.victim as usize).copied().flatten();
        let seen = seen.map_or(0, |at| at.step);
        halts[planted.victim as usize] = Some(planted.halt.unwrap_or(seen));
    }
    halts
}

/// Ranks that do not get through.
fn stuck(outcome: &Outcome) -> Vec<u32> {
    let is_stuck = |end: &End| matches!(end, End::Blocked { .. } | End::Failed);
    let ends = (0..).zip(&outcome.ends);
    ends.filter(|(_, end)| is_stuck(end))
        .map(|(rank, _)| rank)
        .collect()
}

fn is_missing_at_start(planted: &Planted, watched: &Watched) -> bool {
    planted.fault.is_of_bring_up() && !watched.joined.contains(&planted.victim)
}

/// Nobody serves the rendezvous any more while ranks join: each finds that out alone.
fn unserved(scenario: &Scenario, truth: &mut Truth) {
    if scenario.launcher != Launcher::Run {
        truth.shared = false;
        truth.claims.push(Claim {
            classes: vec![Exit::PeerDead, Exit::RdvUnreachable],
            blamed: Blamed::Exactly(vec![0]),
            or_nobody: true,
        });
    }
}

/// A rank that never joined.
fn bring_up(scenario: &Scenario, planted: &Planted, watched: &Watched, truth: &mut Truth) {
    let victim = planted.victim;
    let class = planted.fault.class();
    let exactly = Blamed::Exactly(vec![victim]);
    truth
        .claims
        .push(Claim::new(&[class, Exit::RdvMissing], exactly));
    // It lets a stopped rank go on before it ends it, and that one comes to a rendezvous that is over.
    let comes_late =
        scenario.launcher == Launcher::Mpirun && planted.fault == Fault::BringUpStopped;
    if victim == 0 || comes_late {
        unserved(scenario, truth);
    }
    let others = (0..scenario.world_size()).filter(|rank| !watched.joined.contains(rank));
    truth
        .must_speak
        .retain(|rank| watched.joined.contains(rank));
    truth.must_speak.extend(others);
    truth.must_speak.sort_unstable();
}

/// What may be said of a rank that ended or stands still though nobody waits for it: by `muster run`, and of the rank that
/// serves the rendezvous by all.
fn alone(scenario: &Scenario, planted: &Planted, watched: &Watched, truth: &mut Truth) {
    if watched.was_stopped {
        let exactly = Blamed::Exactly(vec![planted.victim]);
        truth.add(vec![Claim::new(&[Exit::PeerFrozen], exactly)]);
    }
    let fault = planted.fault;
    let is_seen = fault.is_death() || fault == Fault::Stopped || fault == Fault::BringUpStopped;
    let is_served = planted.victim == 0 && fault.is_death();
    // It lets a stopped rank go on before it ends it, so where that was in the end says little.
    let has_gone_on = scenario.launcher == Launcher::Mpirun && fault == Fault::Stopped;
    if !is_seen || scenario.launcher != Launcher::Run && !is_served && !has_gone_on {
        return;
    }
    let len = scenario.program[planted.victim as usize].len();
    let at = watched.at.get(planted.victim as usize).copied().flatten();
    // It was over, or as good as over, when it was struck.
    let was_over = planted.halt.is_none() && at.is_some_and(|at| at.step >= len);
    let claim = Claim::new(&[fault.class()], Blamed::Exactly(vec![planted.victim]));
    truth.add(vec![claim]);
    truth.launcher_must |=
        scenario.launcher == Launcher::Run && fault != Fault::Exits0 && !was_over;
}

/// Of two faults the first is named, or both; the second alone only where the first was not to be known
/// before, or nobody waited for it.
fn two(
    first: &Planted,
    second: &Planted,
    halts: &[Option<usize>],
    lax: &Outcome,
    watched: &Watched,
    truth: &mut Truth,
) {
    let mut both = vec![first.victim, second.victim];
    both.sort_unstable();
    let classes = [first.fault.class(), second.fault.class()];
    let is_met = |one: &Planted| halts[one.victim as usize].is_some();
    if !truth.claims.is_empty() && is_met(first) && is_met(second) {
        truth
            .claims
            .push(Claim::new(&classes, Blamed::Exactly(both)));
    }
    let Some(told) = watched.first_return_ns else {
        return;
    };
    let waited = (0_u32..).zip(&lax.ends).any(|(rank, end)| {
        let End::Blocked { at, waits_for } = end else {
            return false;
        };
        let seen = watched.at.get(rank as usize).copied().flatten();
        let in_time = |seen: At| seen.step == *at && seen.since_ns + HEARD_NS < told;
        waits_for.iter().any(|wait| wait.rank == first.victim) && seen.is_some_and(in_time)
    });
    if waited && first.fault.patience() <= second.fault.patience() {
        let second = Blamed::Exactly(vec![second.victim]);
        truth.claims.retain(|claim| claim.blamed != second);
    }
}
