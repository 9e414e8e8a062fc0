//! From what all ranks say of themselves to one verdict. Pure: a scene in, a verdict out.
//!
//! - JUDGE-1: a rank that merely waits is never to blame: blame goes along the edges "waits for" to
//!   ranks that do not wait, or to the members of a closed cycle.
//! - JUDGE-2: a cycle is one only where each of its waits was there in two scenes, one after the
//!   other, unchanged, and each member has not entered the call that the one before it waits in. So
//!   reports that were taken at different moments never make up a cycle. It must also be half a second
//!   old: calls with shorter deadlines may be meant to end by them.
//! - JUDGE-3: a rank is frozen only where every look for `FROZEN_AFTER_MS` found its process stopped, or the last one when the
//!   time of a call was up, while somebody who runs waits for it. Silence alone proves nothing.
//! - JUDGE-4: who has destroyed a group never comes to a later collective of it: the chain of waits ends
//!   there, whatever the rank waits for elsewhere.

pub(crate) mod device;
mod format;
mod gone;
mod graph;
mod layout;
mod outside;
mod verdicts;

use std::collections::BTreeSet;

pub(super) use self::format::{fate, last_act, who};
pub(super) use self::gone::name_beside;
use self::graph::{Graph, Leaf, Why};
pub use self::outside::{Observation, observed};
use super::process::{Inside, Sight};
use super::report::{GroupState, Report};
use crate::error::verdict::{self, CallId, Class, Confidence, Verdict};
use crate::host_load::HostLoad;
use crate::types::Collective;

/// How long every look must find a process stopped before its rank counts as frozen.
pub(super) const FROZEN_AFTER_MS: u64 = 1000;
/// Age from which a cycle is one.
const CYCLE_AFTER_MS: u64 = 500;
/// Age from which a destroyed group counts while its members only wait: a rank that ends destroys its groups
/// first, and that it ended says more.
const DESTROYED_AFTER_MS: u64 = 500;
/// Age from which a wait counts as one in which nothing moves.
const STANDSTILL_MS: u64 = 2500;
/// Least time without a processor that counts as starvation.
const STARVED_MS: u64 = 300;

/// All ranks at about one moment.
#[derive(Clone, Debug, Default)]
pub struct Scene {
    /// By world rank.
    pub members: Vec<Member>,
}

/// What is known of one rank.
#[derive(Clone, Debug, Default)]
pub struct Member {
    /// Its host, for messages.
    pub host: String,
    /// Its process id, as its own PID namespace numbers it.
    pub pid: u32,
    /// How it is seen from outside, where it runs in another PID namespace than the observer.
    pub inside: Option<Inside>,
    /// What it said last of itself, or what stands on its board.
    pub report: Option<Report>,
    /// What it said before that.
    pub before: Option<Report>,
    /// How it went, if it has.
    pub fate: Option<Fate>,
    /// How long it has not answered, in milliseconds; 0 for a rank that does.
    pub silent_ms: u64,
    /// Its board was read from outside for this scene, though it does not answer.
    pub is_read: bool,
    /// Its process, where somebody has looked.
    pub process: Option<Sight>,
    /// For how long every look at its process has found it stopped, in milliseconds; `None` where the last one did not.
    pub stopped_ms: Option<u64>,
    /// Of a stopped one: ranks that were seen to have ended before it was found so for the first time, and of which nothing was
    /// told. They did not end because of it.
    pub ended_before: Vec<u32>,
    /// How its threads fared lately.
    pub starvation: Option<Starvation>,
}

/// Processor time of a rank over the last seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Starvation {
    /// How long that was, in milliseconds.
    pub window_ms: u64,
    /// How long its threads ran, together.
    pub ran_ms: u64,
    /// How long its threads were ready to run without running, together.
    pub delayed_ms: u64,
    /// How much its host's processors are wanted.
    pub load: HostLoad,
}

impl Starvation {
    /// Whether its threads got less than a third of the processor time that they were ready for, for a quarter of the
    /// time at least: what the rank did or did not do says nothing about its program.
    #[must_use]
    pub fn is_starved(&self) -> bool {
        self.delayed_ms >= STARVED_MS
            && self.window_ms >= STARVED_MS
            && self.delayed_ms * 4 >= self.window_ms
            && self.ran_ms * 2 <= self.delayed_ms
    }
}

/// Whether the end of a rank may follow from that of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndCause {
    /// No: a signal ended it that no launcher sends to ranks whose work is over, or it ended where nothing else was known.
    Unprovoked,
    /// From one that ended before it: it exited by itself, or a signal asked it to.
    MayFollow,
    /// Nobody can say.
    Unknown,
}

/// How a rank went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fate {
    /// In words that follow "rank 3": `was killed by signal 9`.
    pub how: String,
    /// Whether it said goodbye.
    pub orderly: bool,
    /// Class of the verdict on it.
    pub class: Class,
    /// How sure that is.
    pub confidence: Confidence,
    /// What it rests on.
    pub evidence: String,
    /// Whether another rank may have been why.
    pub cause: EndCause,
    /// Its place in the order in which ranks went.
    pub order: u64,
    /// What to do about it.
    pub hint: String,
}

/// Why a verdict is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Somebody has waited for a while.
    Waiting,
    /// A call of this rank has ended without what it waited for, because its time was up or a rank is
    /// gone: there must be an answer.
    Overdue {
        /// The rank.
        rank: u32,
        /// The call.
        call: CallId,
    },
}

/// What a scene means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Nothing to tell so far.
    Nothing,
    /// Something that looks like a cycle and must be seen once more, this many milliseconds later.
    Again(u64),
    /// A verdict.
    Verdict(Box<Verdict>),
}

/// Judges a scene.
#[must_use]
pub fn judge(scene: &Scene, question: Question) -> Finding {
    let is_overdue = matches!(question, Question::Overdue { .. });
    let graph = Graph::of(scene, is_overdue);
    let all: Vec<usize> = (0..graph.waiters.len()).collect();
    let leaves = graph.leaves(&all);
    // Who waits for a rank that went says so itself, once it has taken in what that rank did before.
    let first = leaves
        .iter()
        .filter(|leaf| is_overdue && matches!(leaf.why, Why::Down))
        .min_by_key(|leaf| scene.order_of(leaf.rank));
    let frozen: Vec<&Leaf<'_>> = leaves
        .iter()
        .filter(|leaf| matches!(leaf.why, Why::Frozen { .. }))
        .collect();
    if let Some(first) = first {
        return found(gone::dead(scene, &graph, first.rank, &frozen));
    }
    if !frozen.is_empty() {
        return found(gone::frozen(scene, &graph, &frozen));
    }
    let mut again = None;
    for cycle in graph.cycles() {
        let wait_ms = graph.youth_ms(&cycle);
        // Which side is the odd one is known once all have made the group.
        let sides = layout::namesakes(scene, &graph, &cycle);
        let is_layout = sides.is_some_and(|((_, group), _)| scene.have_all_made(group));
        if graph.is_confirmed(&cycle) && (wait_ms == 0 || is_layout) {
            // Who has a group of the same members in another life may wait for a rank that destroyed this one too early.
            let differ = sides.filter(|((_, one), (_, other))| one.differs(other));
            return found(match (differ, graph.destroyed_within(&cycle), sides) {
                (Some((one, other)), _, _) | (None, None, Some((one, other))) => {
                    layout::verdict(scene, &graph, &cycle, one, other)
                }
                (None, Some((rank, at, group)), _) => {
                    verdicts::destroyed_by(scene, &graph, &[rank], &[at], group)
                }
                (None, None, None) => verdicts::cycle(scene, &graph, &cycle),
            });
        }
        let wait_ms = if is_layout { 0 } else { wait_ms };
        again = Some(again.map_or(wait_ms, |known: u64| known.min(wait_ms)));
    }
    if !is_overdue && let Some(group) = graph.oldest_destroyed(&all) {
        let wait_ms = DESTROYED_AFTER_MS.saturating_sub(group.age_ms);
        if wait_ms == 0 {
            return found(verdicts::destroyed(scene, &graph, group));
        }
        again = Some(again.map_or(wait_ms, |known| known.min(wait_ms)));
    }
    let left = ranks_where(&leaves, |why| matches!(why, Why::Left));
    // What a rank sent before it left may still be on its way to others, who then wait for nothing.
    let left = match question {
        Question::Overdue { rank, call } => graph.position(rank, call).map_or(left, |start| {
            let leaves = graph.leaves(&graph.reachable(start));
            ranks_where(&leaves, |why| matches!(why, Why::Left))
        }),
        Question::Waiting => Vec::new(),
    };
    if !left.is_empty() {
        return found(verdicts::left(scene, &graph, &left));
    }
    if let Question::Overdue { rank, call } = question {
        return overdue(scene, &graph, rank, call);
    }
    again.map_or(Finding::Nothing, Finding::Again)
}

/// Who keeps this call of this rank waiting, so far: the ranks at the ends of its chains of waits.
#[must_use]
pub(super) fn kept_waiting_by(scene: &Scene, rank: u32, call: CallId) -> Vec<u32> {
    let graph = Graph::of(scene, false);
    let start = graph.position(rank, call);
    let leaves = start.map_or_else(Vec::new, |start| graph.leaves(&graph.reachable(start)));
    ranks_where(&leaves, |_| true)
}

/// The verdict on a rank that has destroyed the group of a call in which others wait for it, where it has.
#[must_use]
pub(super) fn destroyed_by(scene: &Scene, rank: u32, call: CallId) -> Option<Verdict> {
    let graph = Graph::of(scene, true);
    let is_it = |leaf: &Leaf<'_>| {
        let waiter = &graph.waiters[leaf.missed_by];
        leaf.rank == rank && waiter.id() == call && matches!(leaf.why, Why::Destroyed { .. })
    };
    let group = graph.oldest_destroyed(&graph.missing_one(is_it))?;
    Some(verdicts::destroyed(scene, &graph, group))
}

fn overdue(scene: &Scene, graph: &Graph<'_>, rank: u32, call: CallId) -> Finding {
    let Some(start) = graph.position(rank, call) else {
        return found(verdicts::inconclusive(scene, graph, rank, call));
    };
    let leaves = graph.leaves(&graph.reachable(start));
    let other = leaves.iter().find_map(|leaf| {
        let Why::OtherGroup { group } = leaf.why else {
            return None;
        };
        Some((leaf.rank, group))
    });
    if let Some((odd, group)) = other {
        return found(layout::other_members(scene, graph, start, odd, group));
    }
    if let Some(group) = graph.oldest_destroyed(&graph.reachable(start)) {
        return found(verdicts::destroyed(scene, graph, group));
    }
    let is_starved = |rank: &u32| scene.starvation_of(*rank).is_some();
    let absent = ranks_where(&leaves, |why| matches!(why, Why::Running | Why::NotMade));
    let awake: Vec<u32> = absent
        .into_iter()
        .filter(|rank| !is_starved(rank))
        .collect();
    if !awake.is_empty() {
        return found(verdicts::not_joined(scene, graph, &leaves, &awake));
    }
    // A rank that got no processor may be why nothing moves, wherever it is in the chain.
    let in_chain = graph
        .reachable(start)
        .into_iter()
        .map(|at| graph.waiters[at].rank);
    let held_up = leaves.iter().map(|leaf| leaf.rank).chain(in_chain);
    let starved: BTreeSet<u32> = held_up.filter(is_starved).collect();
    if !starved.is_empty() {
        let starved: Vec<u32> = starved.into_iter().collect();
        return found(verdicts::starved(scene, graph, start, &starved));
    }
    let silent = ranks_where(&leaves, |why| matches!(why, Why::Silent));
    if !silent.is_empty() {
        return found(verdicts::silent(scene, graph, &silent));
    }
    if !graph.knows_all_missing(start) {
        return found(verdicts::unknown(scene, graph, start));
    }
    if graph.is_held_up_elsewhere(start) {
        // The chain may end at ranks that are in one call and do not hear of each other.
        return found(match graph.standstill(start, STANDSTILL_MS) {
            Some(end) => verdicts::broken_link(scene, graph, end),
            None => verdicts::held_up(scene, graph, start),
        });
    }
    let at_work = ranks_where(&leaves, |why| matches!(why, Why::AtWork));
    if !at_work.is_empty() {
        return found(verdicts::not_joined(scene, graph, &leaves, &at_work));
    }
    let waiter = &graph.waiters[start];
    let missing = waiter.wait.missing.iter().copied();
    let late: Vec<u32> = missing
        .filter(|rank| scene.has_just_entered(*rank, waiter.id()))
        .collect();
    if !late.is_empty() {
        return found(verdicts::late(scene, graph, start, &late));
    }
    found(verdicts::broken_link(scene, graph, start))
}

fn ranks_where(leaves: &[Leaf<'_>], is_so: impl Fn(&Why<'_>) -> bool) -> Vec<u32> {
    let mut ranks: Vec<u32> = leaves
        .iter()
        .filter(|leaf| is_so(&leaf.why))
        .map(|leaf| leaf.rank)
        .collect();
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}

fn found(verdict: Verdict) -> Finding {
    Finding::Verdict(Box::new(verdict))
}

impl Scene {
    fn order_of(&self, rank: u32) -> u64 {
        self.member(rank)
            .and_then(|member| member.fate.as_ref())
            .map_or(u64::MAX, |fate| fate.order)
    }

    /// Whether a rank had not entered a collective when it was asked before, and now has.
    fn has_just_entered(&self, rank: u32, call: CallId) -> bool {
        let entered = |report: &Report| report.group(call.key).map(|group| group.entered);
        let Some(member) = self.member(rank) else {
            return false;
        };
        let before = member.before.as_ref().and_then(entered);
        let now = member.fresh().and_then(entered);
        before.is_some_and(|before| before < call.seq) && now.is_some_and(|now| now >= call.seq)
    }

    /// The members of the group of a call, as far as they are known.
    pub(super) fn members_of(&self, call: Option<CallId>) -> Vec<u32> {
        let group = |member: &Member| {
            let report = member.report.as_ref()?;
            let group = report.group(call?.key).filter(|group| group.names_all())?;
            Some(group.members.clone())
        };
        self.members.iter().find_map(group).unwrap_or_default()
    }

    /// Whether all members of a group that answer have made one of its name.
    fn have_all_made(&self, group: &GroupState) -> bool {
        let has_made = |rank: &u32| {
            let report = self.member(*rank).and_then(Member::fresh);
            report.is_none_or(|report| report.groups.iter().any(|one| one.name == group.name))
        };
        group.members.iter().all(has_made)
    }

    /// The ranks that wait in these calls.
    pub(super) fn waiting_in<'a>(&'a self, calls: &'a [CallId]) -> impl Iterator<Item = u32> + 'a {
        (0_u32..)
            .zip(&self.members)
            .filter_map(move |(rank, member)| {
                let report = member.report.as_ref()?;
                let is_in = |call: &CallId| {
                    report
                        .group(call.key)
                        .is_some_and(|group| group.call.is_some())
                };
                calls.iter().any(is_in).then_some(rank)
            })
    }

    /// The line that says which ranks are starved, where some are.
    pub(super) fn describe_starvation(&self) -> Option<String> {
        let ranks = 0..u32::try_from(self.members.len()).unwrap_or(u32::MAX);
        let starved: Vec<u32> = ranks
            .filter(|rank| self.starvation_of(*rank).is_some())
            .collect();
        let most = starved
            .iter()
            .filter_map(|rank| self.starvation_of(*rank))
            .max_by_key(|one| one.ran_ms)?;
        Some(format!(
            "STARVED {}: ran {} ms at most of the last {} ({}); calls take as much longer, and no rank is to blame for it",
            verdict::ranks(&starved),
            most.ran_ms,
            verdict::seconds(most.window_ms),
            most.load
        ))
    }

    /// The ranks that somebody waits for whose report is fresh.
    pub(super) fn awaited(&self) -> BTreeSet<u32> {
        let reports = self.members.iter().filter_map(Member::fresh);
        let calls = reports
            .flat_map(|report| &report.groups)
            .filter_map(|group| group.call.as_ref());
        let waits = calls.filter_map(|call| call.wait.as_ref());
        waits.flat_map(|wait| &wait.missing).copied().collect()
    }

    /// The members of calls that nobody ends without `rank`, and in which others wait for it: whoever of them has ended did so
    /// before the end of the call.
    pub(super) fn bound_to(&self, rank: u32) -> BTreeSet<u32> {
        let waits_for = |group: &&GroupState| {
            let call = group.call.as_ref().filter(|_| group.names_all());
            call.is_some_and(|call| {
                let collective = call.call.collective();
                let wait = call.wait.as_ref();
                collective.is_some_and(Collective::needs_everybody)
                    && wait.is_some_and(|wait| wait.missing.contains(&rank))
            })
        };
        let reports = self.members.iter().filter_map(Member::fresh);
        let groups = reports.flat_map(|report| &report.groups).filter(waits_for);
        groups.flat_map(|group| &group.members).copied().collect()
    }

    /// How many threads are ready to run for each processor, at least 1, on the host where it is most. What a rank that has gone
    /// said of it is old.
    pub(super) fn slowness(&self) -> u64 {
        let members = self.members.iter().filter(|member| member.fate.is_none());
        let loads = members.filter_map(|member| member.starvation);
        let slowness = loads.map(|one| one.load.crowd());
        slowness.max().unwrap_or(1).max(1)
    }

    /// How a rank fared that got less processor time than it needs.
    fn starvation_of(&self, rank: u32) -> Option<Starvation> {
        let starvation = self.member(rank)?.starvation?;
        starvation.is_starved().then_some(starvation)
    }

    /// A rank, if it is one of the world.
    #[must_use]
    pub fn member(&self, rank: u32) -> Option<&Member> {
        self.members.get(usize::try_from(rank).ok()?)
    }
}

impl Member {
    /// What it says of itself, or its board shows, where that is fresh.
    fn fresh(&self) -> Option<&Report> {
        let is_fresh = (self.silent_ms == 0 || self.is_read) && self.fate.is_none();
        // The board of a process that does not run shows what it did before.
        self.report
            .as_ref()
            .filter(|_| is_fresh && self.stopped_ms.is_none())
    }

    /// What keeps its process from running, where it was seen for so long.
    fn frozen(&self, after_ms: u64) -> Option<String> {
        let is_seen = self
            .stopped_ms
            .is_some_and(|stopped_ms| stopped_ms >= after_ms);
        let sight = self
            .process
            .as_ref()
            .filter(|_| is_seen && self.fate.is_none());
        sight.and_then(Sight::frozen)
    }
}
