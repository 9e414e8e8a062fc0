//! Compares what was said with the truth of a run. Pure.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use super::fault::Fault;
use super::scenario::{Launcher, Scenario};
use super::truth::{Claim, Truth};
use crate::drill::grade::End;
use crate::drill::plan::{Blamed, ranks_in_words};
use crate::drill::told::{Told, What};
use crate::exit::Exit;
use crate::world::Ended;

/// How long a rank 0 that serves the rendezvous tells ranks that come late why bring-up has failed.
const LATE_RANKS: Duration = Duration::from_secs(3);
/// Reasons that are kept of a run.
const REASONS_MAX: usize = 12;
/// Longest time from the fault, and from the last one's wait, to the last survivor's return beyond the deadline.
const LATE: Duration = Duration::from_secs(2);

/// What was seen of a run.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// What ranks told.
    pub told: Vec<Told>,
    /// Lines of verdicts, with the rank that printed each; `None` is the launcher.
    pub verdicts: Vec<(Option<u32>, String)>,
    /// How the processes that the drill started ended; nothing for one that did not by itself.
    pub ends: Vec<End>,
    /// When the fault was there for the last of those who met it.
    pub fault_ns: Option<u64>,
    /// What was left behind.
    pub left: Vec<String>,
    /// Other programs want the processors too, beside the load that the drill makes.
    pub is_crowded: bool,
    /// As many threads want a processor that some get less than half of one.
    pub is_contended: bool,
}

/// The grades of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graded {
    /// Who could not go on was told, and nobody else; all data came out right.
    pub detected: bool,
    /// Every verdict has a class that is true.
    pub class: bool,
    /// Every verdict blames those who are to blame.
    pub culprit: bool,
    /// One line, everywhere, once.
    pub same: bool,
    /// It came in time.
    pub in_time: bool,
    /// From the fault to the last survivor's return.
    pub slowest: Option<Duration>,
    /// Why not all of these hold.
    pub reasons: Vec<String>,
    /// Nothing was left behind.
    pub clean: bool,
}

impl Graded {
    /// Whether all of it is as it must be.
    #[must_use]
    pub const fn is_exact(&self) -> bool {
        self.detected && self.class && self.culprit && self.same && self.in_time && self.clean
    }
}

/// A verdict by its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    class: Option<Exit>,
    blamed: Vec<u32>,
    is_certain: bool,
}

impl Line {
    /// Reads class and culprits.
    pub(super) fn read(line: &str) -> Self {
        let rest = line.strip_prefix("VERDICT ").unwrap_or(line);
        let name = rest.split(' ').next().unwrap_or_default();
        let class = Exit::ALL.into_iter().find(|exit| exit.class() == name);
        let who = rest.split_once(" who=").map_or("", |(_, rest)| rest);
        let who = who.split(" what=").next().unwrap_or_default();
        Self {
            class,
            blamed: ranks(who),
            is_certain: !rest.contains(" confidence=likely"),
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let class = self.class.map_or("an unknown class", Exit::class);
        write!(f, "{class} {}", ranks_in_words(&self.blamed))
    }
}

/// The ranks in a list such as `rank 2 (n1, pid 7), ranks 4,6-8`.
fn ranks(who: &str) -> Vec<u32> {
    let mut depth = 0_u32;
    let mut plain = String::new();
    for character in who.chars() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            other if depth == 0 => plain.push(other),
            _ => {}
        }
    }
    let mut ranks = BTreeSet::new();
    for list in plain.split("rank").skip(1) {
        let list = list.trim_start_matches('s').trim_start();
        let end = list.find(|one: char| !one.is_ascii_digit() && !",-".contains(one));
        for part in list[..end.unwrap_or(list.len())].split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            if let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) {
                ranks.extend(first..=last);
            }
        }
    }
    ranks.into_iter().collect()
}

/// Grades a run.
#[must_use]
pub fn grade(scenario: &Scenario, truth: &Truth, seen: &Seen) -> Graded {
    let mut grader = Grader {
        scenario,
        truth,
        seen,
        reasons: Vec::new(),
    };
    let detected = grader.check(Grader::detected);
    let class = grader.check(Grader::classes);
    let culprit = grader.check(Grader::culprits);
    let same = grader.check(Grader::same);
    let slowest = grader.slowest();
    let in_time = grader.check(|grader| grader.late(slowest));
    let clean = grader.check(|grader| grader.seen.left.clone());
    grader.reasons.truncate(REASONS_MAX);
    Graded {
        detected,
        class,
        culprit,
        same,
        in_time,
        slowest,
        reasons: grader.reasons,
        clean,
    }
}

struct Grader<'a> {
    scenario: &'a Scenario,
    truth: &'a Truth,
    seen: &'a Seen,
    reasons: Vec<String>,
}

impl Grader<'_> {
    fn check(&mut self, check: impl Fn(&Self) -> Vec<String>) -> bool {
        let reasons = check(self);
        let holds = reasons.is_empty();
        self.reasons.extend(reasons);
        holds
    }

    /// Lines that differ, each once.
    fn lines(&self) -> BTreeSet<&str> {
        self.seen
            .verdicts
            .iter()
            .map(|(_, line)| line.as_str())
            .collect()
    }

    fn has_spoken(&self, who: Option<u32>) -> bool {
        self.seen.verdicts.iter().any(|(by, _)| *by == who)
    }

    fn has_told(&self, rank: u32, is_it: impl Fn(&What) -> bool) -> bool {
        let mut told = self.seen.told.iter().filter(|told| told.rank == rank);
        told.any(|told| is_it(&told.what))
    }

    fn has_returned(&self, rank: u32) -> bool {
        self.has_told(rank, |what| {
            matches!(what, What::Failed(_) | What::Refused { .. })
        })
    }

    /// Whether a rank that waits for one victim may be ended by the launcher because of the other one.
    fn may_be_ended(&self) -> bool {
        self.scenario.launcher == Launcher::Run && self.scenario.planted.len() > 1
    }

    /// Whether a line says that a rank could not run, where that may be.
    fn is_starved(&self, line: &Line) -> bool {
        let may_be = self.scenario.is_starved() || self.seen.is_contended;
        may_be && line.class == Some(Exit::Resource)
    }

    /// Whether a line says what an mpirun does when a rank ends: it ends the others, and with rank 0 the rendezvous. The line must
    /// blame nobody, or say that the culprit is one of several.
    fn is_end_of_all(&self, line: &Line) -> bool {
        if self.scenario.launcher != Launcher::Mpirun || line.class != Some(Exit::PeerDead) {
            return false;
        }
        let is_among = |claim: &Claim| {
            let Blamed::Exactly(culprits) = &claim.blamed else {
                return false;
            };
            culprits.iter().all(|rank| line.blamed.contains(rank))
        };
        line.blamed.is_empty() || !line.is_certain && self.truth.claims.iter().any(is_among)
    }

    fn detected(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        for told in &self.seen.told {
            if let What::Wrong { call } = &told.what {
                reasons.push(format!(
                    "DATA: rank {} has a wrong result in {call}",
                    told.rank
                ));
            }
        }
        if self.truth.claims.is_empty() {
            let lines = self
                .lines()
                .into_iter()
                .filter(|line| !self.is_starved(&Line::read(line)));
            reasons.extend(lines.map(|line| format!("{} is a false alarm", Line::read(line))));
        }
        for rank in &self.truth.must_speak {
            if !self.has_returned(*rank) && !self.may_be_ended() {
                reasons.push(format!("rank {rank} could not go on and never returned"));
            } else if !self.has_spoken(Some(*rank)) {
                reasons.push(format!(
                    "rank {rank} could not go on and printed no verdict"
                ));
            }
        }
        let is_silent = self.seen.verdicts.is_empty();
        if is_silent && self.truth.must_be_told {
            reasons.push("nobody said anything".to_owned());
        }
        // An mpirun ends all ranks when one of them fails, and says nothing of ours.
        let is_foreign = self.scenario.launcher == Launcher::Mpirun;
        let may_be_cut = is_foreign && (!self.truth.claims.is_empty() || self.has_ended_all());
        if is_silent && !self.truth.must_be_told && !self.truth.launcher_must && !may_be_cut {
            reasons.extend(self.not_done());
        }
        reasons.extend(self.not_ended());
        reasons
    }

    /// Whether the launcher says that the job failed, of which a victim is the reason: that may have died after its last call.
    fn has_ended_all(&self) -> bool {
        let has_failed = |end: &End| {
            let how = end.how.as_ref().map(|(how, _)| how);
            end.rank.is_none() && how.is_some_and(|how| !how.is_success())
        };
        !self.truth.victims.is_empty() && self.seen.ends.iter().any(has_failed)
    }

    /// Where nothing is said all ranks come to their end.
    fn not_done(&self) -> Vec<String> {
        let ranks =
            (0..self.scenario.world_size()).filter(|rank| !self.truth.victims.contains(rank));
        let lacking = ranks.filter(|rank| !self.has_told(*rank, |what| *what == What::Done));
        lacking
            .map(|rank| format!("rank {rank} did not come to its end"))
            .collect()
    }

    fn not_ended(&self) -> Vec<String> {
        let is_victim =
            |rank: &Option<u32>| rank.is_some_and(|rank| self.truth.victims.contains(&rank));
        // A foreign launcher may wait for a victim that stands still.
        let is_excused = |end: &&End| {
            let is_foreign = self.scenario.launcher == Launcher::Mpirun;
            end.rank.is_none() && is_foreign && !self.truth.victims.is_empty()
        };
        let late = |end: &&End| end.how.is_none() && !is_victim(&end.rank) && !is_excused(end);
        let ends = self.seen.ends.iter().filter(late);
        ends.map(|end| match end.rank {
            None => "the launcher did not end by itself".to_owned(),
            Some(rank) => format!("rank {rank} did not end by itself"),
        })
        .collect()
    }

    fn classes(&self) -> Vec<String> {
        if self.truth.claims.is_empty() {
            return Vec::new();
        }
        let is_true = |line: &&str| {
            let line = Line::read(line);
            // On a busy host a rank may have ended before anybody heard its goodbye.
            let has_left = self.seen.is_crowded
                && self.scenario.fault == Fault::LeavesEarly
                && line.class == Some(Exit::PeerDead);
            if has_left {
                return false;
            }
            let mut claims = self.truth.claims.iter();
            let is_of = |class: Exit| claims.any(|claim| claim.classes.contains(&class));
            !line.class.is_some_and(is_of) && !self.is_starved(&line) && !self.is_end_of_all(&line)
        };
        let wrong = self.lines().into_iter().filter(is_true);
        wrong
            .map(|line| format!("the class of {} is not true", Line::read(line)))
            .collect()
    }

    fn culprits(&self) -> Vec<String> {
        if self.truth.claims.is_empty() {
            return Vec::new();
        }
        let is_false = |line: &&str| {
            let line = Line::read(line);
            let Some(class) = line.class else {
                return true;
            };
            let world_size = self.scenario.world_size();
            if self.is_end_of_all(&line) {
                return false;
            }
            // A wrong class is not held against the culprits as well.
            !self.truth.claims.iter().any(|claim| {
                claim.blamed.is_met_by(&line.blamed, world_size)
                    || claim.or_nobody && line.blamed.is_empty() && claim.classes.contains(&class)
            }) && !self.is_starved(&line)
        };
        let wrong = self.lines().into_iter().filter(is_false);
        wrong
            .map(|line| format!("the culprits of {} are not true", Line::read(line)))
            .collect()
    }

    fn same(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        let mut lines = self.lines();
        // Ranks that are in no world yet cannot agree on what to say of the rendezvous that mpirun has ended.
        lines.retain(|line| {
            let line = Line::read(line);
            !(line.blamed.is_empty() && self.is_end_of_all(&line))
        });
        if lines.len() > 1 && self.truth.shared {
            reasons.push(format!("{} lines differ", lines.len()));
        }
        for rank in 0..self.scenario.world_size() {
            let printed = self
                .seen
                .verdicts
                .iter()
                .filter(|(by, _)| *by == Some(rank));
            if printed.count() > 1 {
                reasons.push(format!("rank {rank} prints more than one verdict"));
            }
        }
        reasons.extend(self.launcher());
        reasons.extend(self.codes());
        reasons
    }

    /// What `muster run` must say: what its ranks say, and what it alone can see.
    fn launcher(&self) -> Option<String> {
        if self.scenario.launcher != Launcher::Run {
            return None;
        }
        let is_due = self.truth.launcher_must || !self.seen.verdicts.is_empty();
        (is_due && !self.has_spoken(None)).then(|| "the launcher prints no verdict".to_owned())
    }

    /// Exit codes are those of the classes that were said.
    fn codes(&self) -> Vec<String> {
        let said = |who: Option<u32>| {
            let mut verdicts = self.seen.verdicts.iter();
            let (_, line) = verdicts.find(|(by, _)| *by == who)?;
            Line::read(line).class
        };
        let mut reasons = Vec::new();
        for end in &self.seen.ends {
            let is_victim = end
                .rank
                .is_some_and(|rank| self.truth.victims.contains(&rank));
            let is_foreign = end.rank.is_none() && self.scenario.launcher == Launcher::Mpirun;
            let Some((how, _)) = end.how.filter(|_| !is_victim && !is_foreign) else {
                continue;
            };
            // A rank that the fault did not keep from its end has heard of it, and ended well.
            let is_done = end
                .rank
                .is_some_and(|rank| self.has_told(rank, |what| *what == What::Done));
            let class = said(end.rank).filter(|_| !is_done).unwrap_or(Exit::Ok);
            if how != Ended::Exited(class.code().into()) {
                let name = end
                    .rank
                    .map_or_else(|| "the launcher".to_owned(), |rank| format!("rank {rank}"));
                reasons.push(format!("{name} {how}, its code should be {}", class.code()));
            }
        }
        reasons
    }

    fn slowest(&self) -> Option<Duration> {
        let is_return = |told: &&Told| {
            self.truth.must_speak.contains(&told.rank)
                && matches!(told.what, What::Failed(_) | What::Refused { .. })
        };
        let last = self
            .seen
            .told
            .iter()
            .filter(is_return)
            .map(|told| told.at_ns)
            .max()?;
        let took = last.saturating_sub(self.seen.fault_ns?);
        Some(Duration::from_nanos(took))
    }

    fn late(&self, slowest: Option<Duration>) -> Vec<String> {
        let limit = if self.scenario.fault.is_of_bring_up() {
            self.scenario.bring_up.max(self.scenario.deadline) + LATE_RANKS
        } else {
            self.scenario.deadline
        };
        let is_starved = self.scenario.is_starved() || self.seen.is_crowded;
        let late = slowest.filter(|took| *took > limit + LATE && !is_starved);
        let late = late.map(|took| format!("took {} ms", took.as_millis()));
        late.into_iter().collect()
    }
}
