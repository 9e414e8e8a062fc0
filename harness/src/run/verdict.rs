//! From what is known at the end of a matrix to one cause.
//!
//! Pure: facts in, verdict out. The first failing rank is the cause; ranks that failed because it
//! did are evidence, never culprits.

use muster_comm::error::ErrorKind;
use muster_comm::error::verdict as watch;
use muster_comm::watch::ToOwner;
use muster_comm::watch::judge::Fate;

use crate::check::collect::{Collector, RankState};
use crate::check::message::Failed;
use crate::exit::Exit;
use crate::report::cause::{Cause, listed};
use crate::world::Ended;

/// Ranks whose own words are kept as evidence.
const WITNESSES_MAX: usize = 8;

/// A rank's process that ended before its work was done, and not by our hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Death {
    /// World rank.
    pub rank: u32,
    /// How it ended: `was killed by signal 9 (SIGKILL)`.
    pub how: String,
    /// Class of the end, where the rank's own exit code tells it better than that it is dead.
    pub exit: Option<Exit>,
    /// What it said at last: its panic, or its error.
    pub said: Option<String>,
    /// The same as ranks judge it.
    pub fate: Fate,
}

/// Why the ranks never found each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BringUp {
    /// Class of the error.
    pub exit: Exit,
    /// The error in words.
    pub text: String,
    /// What to do next.
    pub help: String,
}

/// What the launcher saw besides the messages of ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// A signal asked us to stop.
    pub interrupted: bool,
    /// The ranks never found each other.
    pub bring_up: Option<BringUp>,
    /// Ranks that died, in the order in which that was seen.
    pub deaths: Vec<Death>,
    /// Nothing was heard for longer than any call may take; the time in seconds.
    pub silence_s: Option<u64>,
    /// Ranks whose processes did not run when somebody waited for them, with the kernel's state.
    pub frozen: Vec<(u32, char)>,
    /// What the arbiter of the ranks found first.
    pub found: Option<Box<watch::Verdict>>,
    /// A program's rank that did not run when the first one ended badly.
    pub stopped: Option<watch::Verdict>,
    /// Programs' ranks that do not run hold up the end of the job.
    pub last: Option<watch::Verdict>,
}

impl Facts {
    /// What the arbiter found, where it is the cause. It saw all ranks, so it knows better than any of them.
    fn final_found(&self, has_failed: bool) -> Option<&watch::Verdict> {
        // After a mismatch the group may be usable, and after a failure on devices that on the host is: ranks go on after
        // such a verdict, unless one of them failed because of it.
        let found = self.found.as_deref();
        found.filter(|found| found.is_final() || has_failed)
    }

    /// Takes in what the arbiter says to the owner of the coordinator. What is to be printed is given back.
    pub fn hear(&mut self, told: ToOwner) -> Option<Remark> {
        match told {
            ToOwner::Suspect(line) => Some(Remark::Suspect(line)),
            ToOwner::Starved(line) => Some(Remark::Starved(line)),
            ToOwner::Verdict(verdict) => {
                // One that leaves the group usable gives way to one that does not, and the first stays
                // first when it is told again with what followed from it.
                let same = |known: &watch::Verdict| known.line() == verdict.line();
                let is_better = self
                    .found
                    .as_ref()
                    .is_none_or(|known| !known.is_final() || same(known));
                if is_better {
                    self.found = Some(verdict);
                }
                None
            }
        }
    }
}

/// A line of the arbiter's before anything has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remark {
    /// Who gets no processor.
    Starved(String),
    /// Who is waited for.
    Suspect(String),
}

/// The cause of a failure of programs, or `None` where they did their work or were interrupted. `told` is what is known of
/// the first rank that ended badly.
#[must_use]
pub fn judge_programs(
    facts: &Facts,
    first: Option<Ended>,
    told: impl FnOnce(&Death) -> watch::Verdict,
) -> Option<watch::Verdict> {
    if facts.interrupted {
        return None;
    }
    // A verdict without evidence gives way to what was seen of a process.
    let has_seen = matches!(first, Some(Ended::Signaled(_))) || facts.stopped.is_some();
    let is_vague = |found: &watch::Verdict| found.class == watch::Class::Internal;
    facts
        .final_found(!facts.deaths.is_empty())
        .filter(|found| !(has_seen && is_vague(found)))
        .or(facts.last.as_ref())
        .cloned()
        .or_else(|| facts.deaths.first().map(told))
}

/// The cause of a failure of jobs, or `None` where every rank did its work.
#[must_use]
pub fn judge(facts: &Facts, collector: &Collector) -> Option<Cause> {
    let mut verdict = interrupted(facts, collector)
        .or_else(|| bring_up(facts))
        .or_else(|| device(facts, collector))
        .or_else(|| found(facts, collector))
        .or_else(|| dead(facts, collector))
        .or_else(|| frozen(facts))
        .or_else(|| failed(collector, |_| true))
        .or_else(|| silent(facts, collector))?;
    for (rank, said) in witnesses(collector) {
        let line = format!("rank {rank}: {said}");
        if verdict.evidence.len() < WITNESSES_MAX && !verdict.evidence.contains(&line) {
            verdict.evidence.push(line);
        }
    }
    verdict.blamed.sort_unstable();
    verdict.blamed.dedup();
    Some(verdict)
}

fn interrupted(facts: &Facts, collector: &Collector) -> Option<Cause> {
    let (answers, expected) = collector.progress();
    facts.interrupted.then(|| {
        Cause::new(
            Exit::Interrupted,
            format!("interrupted by a signal after {answers} of {expected} answers of ranks"),
        )
    })
}

fn bring_up(facts: &Facts) -> Option<Cause> {
    // A rank that died is the better cause: the bring-up failed because of it.
    let error = facts
        .bring_up
        .as_ref()
        .filter(|_| facts.deaths.is_empty())?;
    let mut verdict = Cause::new(error.exit, error.text.clone());
    verdict.next = Some(error.help.clone());
    // The same, with the ranks that it names.
    if let Some(found) = &facts.found {
        verdict.blamed.clone_from(&found.blamed);
    }
    Some(verdict)
}

/// A failure on devices, in the words of the first rank that met it. Where the ranks have not told one verdict on it, the
/// arbiter sees no more than that a rank, or one that waits for its device, does not come.
fn device(facts: &Facts, collector: &Collector) -> Option<Cause> {
    let found = facts.found.as_deref()?;
    if !is_of_device(&found.kind) && found.class != watch::Class::NotJoined {
        return None;
    }
    let is_wanted = |failed: &Failed| failed.kind.as_ref().is_some_and(is_of_device);
    let mut verdict = failed(collector, is_wanted)?;
    if is_of_device(&found.kind) {
        verdict.found = Some(Box::new(found.clone()));
    } else {
        verdict.evidence.push(found.line());
    }
    Some(verdict)
}

fn is_of_device(kind: &ErrorKind) -> bool {
    let cause = kind.first_cause().1;
    matches!(
        cause,
        ErrorKind::DeviceStalled { .. } | ErrorKind::Vendor { .. }
    )
}

/// What the arbiter found.
fn found(facts: &Facts, collector: &Collector) -> Option<Cause> {
    let found = facts.final_found(collector.has_failure())?;
    let exit = Exit::from(found.class);
    let during = match found.blamed.as_slice() {
        [rank] => last_case(*rank, collector),
        _ => String::new(),
    };
    let mut verdict = Cause::new(exit, format!("{}: {}{during}", found.who, found.place));
    verdict.blamed.clone_from(&found.blamed);
    verdict.next = Some(found.next.clone());
    verdict.evidence.extend(found.cascades.iter().cloned());
    for death in &facts.deaths {
        let said = death.said.as_deref().unwrap_or(&death.how);
        verdict
            .evidence
            .push(format!("rank {}: {said}", death.rank));
    }
    verdict.found = Some(Box::new(found.clone()));
    Some(verdict)
}

fn dead(facts: &Facts, collector: &Collector) -> Option<Cause> {
    let first = facts.deaths.first()?;
    let during = last_case(first.rank, collector);
    let rank = first.rank;
    let text = match (&first.said, first.exit) {
        // It said itself why it gave up, so how its process ended adds nothing.
        (Some(said), Some(_)) => format!("rank {rank}: {said}"),
        (Some(said), None) => format!("rank {rank} {said}{during}"),
        (None, _) => format!("rank {rank} {}{during}", first.how),
    };
    let mut verdict = Cause::new(first.exit.unwrap_or_else(|| first.fate.class.into()), text);
    verdict.blamed = vec![rank];
    for other in facts.deaths.iter().skip(1) {
        verdict
            .evidence
            .push(format!("rank {} {} after it", other.rank, other.how));
    }
    verdict.next = Some(first.fate.hint.clone());
    Some(verdict)
}

/// Which case a dead rank was in, as far as its answers tell.
fn last_case(rank: u32, collector: &Collector) -> String {
    collector
        .next_case(rank)
        .and_then(|number| collector.describe(number))
        .map_or_else(String::new, |case| format!(", last seen before {case}"))
}

fn frozen(facts: &Facts) -> Option<Cause> {
    let (rank, state) = facts.frozen.first()?;
    let what = match state {
        'T' => "stopped by a signal",
        't' => "stopped by a debugger",
        _ => "stuck in the kernel",
    };
    let mut verdict = Cause::new(
        Exit::PeerFrozen,
        format!("rank {rank} exists but does not run: {what} (state {state})"),
    );
    verdict.blamed = facts.frozen.iter().map(|(rank, _)| *rank).collect();
    verdict.next = Some(
        "continue it with `kill -CONT`, or find out what it waits for in the kernel".to_owned(),
    );
    Some(verdict)
}

/// The rank whose error explains the others: the first one that does not point at another rank's.
fn failed(collector: &Collector, wanted: impl Fn(&Failed) -> bool) -> Option<Cause> {
    let mut failures: Vec<(u32, &RankState, &Failed)> = (0..)
        .zip(collector.ranks())
        .filter_map(|(rank, state)| Some((rank, state, state.failed.as_ref()?)))
        .filter(|(_, _, failed)| wanted(failed))
        .collect();
    failures.sort_by_key(|(_, state, failed)| (is_echo(failed), state.failed_order));
    let (rank, _, failed) = failures.first()?;
    let (exit, blamed) = match &failed.kind {
        Some(kind) => class_of(*rank, kind),
        None => (
            Exit::from_code(failed.exit.into()).unwrap_or(Exit::Internal),
            vec![*rank],
        ),
    };
    let during = failed
        .case
        .and_then(|number| collector.describe(number))
        .map_or_else(String::new, |case| format!(" (checking {case})"));
    let mut verdict = Cause::new(exit, format!("rank {rank}: {}{during}", failed.text));
    verdict.blamed = blamed;
    verdict.next.clone_from(&failed.help);
    Some(verdict)
}

/// Whether an error only says that another rank failed.
fn is_echo(failed: &Failed) -> bool {
    matches!(
        failed.kind,
        Some(
            ErrorKind::PeerAborted { .. }
                | ErrorKind::PeerClosed { .. }
                | ErrorKind::Orphaned { .. }
        )
    )
}

/// Class and culprits of an error that `rank` met.
fn class_of(rank: u32, kind: &ErrorKind) -> (Exit, Vec<u32>) {
    // The launcher is here, so somebody has cancelled the calls.
    if matches!(kind.first_cause().1, ErrorKind::Orphaned { .. }) {
        return (Exit::Interrupted, Vec::new());
    }
    let (class, blamed) = watch::Class::of(kind, rank);
    (class.into(), blamed)
}

fn silent(facts: &Facts, collector: &Collector) -> Option<Cause> {
    let garbled = (0_u32..)
        .zip(collector.ranks())
        .find_map(|(rank, state)| Some((rank, state.garbled.as_ref()?)));
    if let Some((rank, what)) = garbled {
        let mut verdict = Cause::new(
            Exit::Internal,
            format!("rank {rank} reported nonsense: {what}"),
        );
        verdict.blamed = vec![rank];
        return Some(verdict);
    }
    let silent = collector.silent();
    if silent.is_empty() {
        return None;
    }
    let text = match facts.silence_s {
        Some(seconds) => format!(
            "nothing heard from rank {} for {seconds} s",
            listed(&silent)
        ),
        None => format!("rank {} ended without a result", listed(&silent)),
    };
    let mut verdict = Cause::new(Exit::Internal, text);
    verdict.blamed = silent;
    Some(verdict)
}

/// What ranks said themselves, the first failure first.
fn witnesses(collector: &Collector) -> Vec<(u32, &str)> {
    let mut failures: Vec<(usize, u32, &str)> = (0..)
        .zip(collector.ranks())
        .filter_map(|(rank, state)| {
            let failed = state.failed.as_ref()?;
            Some((state.failed_order, rank, failed.text.as_str()))
        })
        .collect();
    failures.sort_unstable();
    failures
        .into_iter()
        .map(|(_, rank, text)| (rank, text))
        .collect()
}

#[cfg(test)]
mod tests;
