//! The launcher's side: what the ranks of one matrix said, merged into the cases of a report.
//!
//! COLLECT-1: a case passes only if every member of its group said so. Silence is a failure.
//! COLLECT-2: no message of a rank can make the launcher panic, or count for another rank.

mod waits;

use std::collections::{BTreeMap, BTreeSet};

use muster_comm::types::Collective;

use self::waits::Waits;
use crate::check::cases::Catalogue;
use crate::check::message::{Failed, MessageError, RankMessage, Refusal, Wrong};
use crate::report::cause::listed;
use crate::verify::model::{self, Detail, GroupCount, NotApplicable};

/// What is known of one rank.
#[derive(Clone, Debug, Default)]
pub struct RankState {
    /// When it was through its first barrier, in microseconds of its own.
    pub joined_us: Option<u64>,
    /// Whether it did all its cases.
    pub done: bool,
    /// Why it could not go on.
    pub failed: Option<Failed>,
    /// The place of `failed` among those of all ranks, in the order of arrival.
    pub failed_order: usize,
    /// What was wrong with its messages, if anything.
    pub garbled: Option<String>,
}

/// What is known of one case.
#[derive(Clone, Debug, Default)]
struct CaseState {
    /// Members that answered, as indices into the group, ascending.
    answered: Vec<u32>,
    elapsed_us: u64,
    /// The algorithm, as the first member that answered has it.
    algo: Option<String>,
    wrong: Vec<(u32, Wrong)>,
    probes: Vec<Probe>,
    /// What members said that their devices do not have.
    refused: Vec<(u32, Refusal)>,
}

impl CaseState {
    /// Why the case says nothing, if every member refused all of it.
    fn not_applicable(&self, members: &[u32]) -> Option<&str> {
        let whole = |rank: &u32| {
            let of_rank =
                |(other, refusal): &&(u32, Refusal)| other == rank && refusal.op.is_none();
            self.refused.iter().find(of_rank)
        };
        let all = members.iter().all(|rank| whole(rank).is_some());
        (all && self.wrong.is_empty())
            .then(|| {
                self.refused
                    .iter()
                    .find(|(_, refusal)| refusal.op.is_none())
            })
            .flatten()
            .map(|(_, refusal)| refusal.why.as_str())
    }
}

/// What came of a case when one member of the group stayed away.
#[derive(Clone, Debug)]
struct Probe {
    absent: u32,
    answers: usize,
    wrong: bool,
}

/// Everything that the ranks of one matrix said.
#[derive(Debug)]
pub struct Collector {
    catalogue: Catalogue,
    cases: Vec<CaseState>,
    ranks: Vec<RankState>,
    failures: usize,
    /// What ranks measured and nobody has taken yet.
    measured: Vec<(u32, Vec<u8>)>,
    answers: usize,
    answers_expected: usize,
    waits: Waits,
}

impl Collector {
    /// For a matrix of `world_size` ranks.
    #[must_use]
    pub fn new(catalogue: Catalogue, world_size: u32) -> Self {
        let answers_expected = catalogue
            .cases
            .iter()
            .map(|case| catalogue.members(case).len())
            .sum();
        Self {
            cases: vec![CaseState::default(); catalogue.cases.len()],
            ranks: (0..world_size).map(|_| RankState::default()).collect(),
            catalogue,
            failures: 0,
            measured: Vec::new(),
            answers: 0,
            answers_expected,
            waits: Waits::new(world_size),
        }
    }

    /// What is known of each rank.
    #[must_use]
    pub fn ranks(&self) -> &[RankState] {
        &self.ranks
    }

    /// Answers that came, and answers that are expected in all.
    #[must_use]
    pub fn progress(&self) -> (usize, usize) {
        (self.answers, self.answers_expected)
    }

    /// What ranks measured since somebody last asked, with the rank that told it. What `decode` cannot
    /// understand is the failure of its rank.
    pub fn take_measured<M>(
        &mut self,
        decode: impl Fn(&[u8]) -> Result<M, MessageError>,
    ) -> Vec<(u32, M)> {
        let mut all = Vec::new();
        for (rank, bytes) in std::mem::take(&mut self.measured) {
            match (decode(&bytes), self.ranks.get_mut(rank as usize)) {
                (Ok(measured), _) => all.push((rank, measured)),
                (Err(error), Some(state)) => garble(state, &error),
                (Err(_), None) => {}
            }
        }
        all
    }

    /// Whether every rank has done all its cases.
    #[must_use]
    pub fn all_done(&self) -> bool {
        self.ranks.iter().all(|rank| rank.done)
    }

    /// Whether every rank is through its first barrier.
    #[must_use]
    pub fn all_joined(&self) -> bool {
        self.ranks.iter().all(|rank| rank.joined_us.is_some())
    }

    /// Whether a rank said that it cannot go on.
    #[must_use]
    pub fn has_failure(&self) -> bool {
        self.ranks.iter().any(|rank| rank.failed.is_some())
    }

    /// The ranks that have neither finished nor said why they cannot.
    #[must_use]
    pub fn silent(&self) -> Vec<u32> {
        (0..)
            .zip(&self.ranks)
            .filter(|(_, rank)| !rank.done && rank.failed.is_none())
            .map(|(number, _)| number)
            .collect()
    }

    /// Takes in a message of a rank.
    pub fn take(&mut self, rank: u32, bytes: &[u8]) {
        let message = RankMessage::decode(bytes);
        let Some(state) = self.ranks.get_mut(rank as usize) else {
            // The control plane knows no such rank, so nobody can have sent this.
            return;
        };
        match message {
            Ok(RankMessage::Joined { elapsed_us }) => state.joined_us = Some(elapsed_us),
            Ok(RankMessage::Done) => state.done = true,
            Ok(RankMessage::Measured(measured)) => self.measured.push((rank, measured)),
            Ok(RankMessage::Failed(failed)) => {
                if state.failed.is_none() {
                    state.failed_order = self.failures;
                    state.failed = Some(failed);
                    self.failures += 1;
                }
            }
            Ok(RankMessage::Results(results)) => {
                for result in results {
                    let (case, elapsed_us) = (result.case, result.elapsed_us);
                    if let Some(members) = self.members_with(rank, case) {
                        self.waits.take(rank, case, members, result.calls_us);
                    }
                    self.answer(rank, case, elapsed_us, result.wrong);
                    self.name(rank, case, result.algo);
                    self.refuse(rank, case, result.refused);
                }
            }
            Ok(RankMessage::Probe {
                case,
                absent,
                wrong,
            }) => self.probed(rank, case, absent, wrong),
            Err(error) => garble(state, &error),
        }
    }

    fn answer(&mut self, rank: u32, number: u32, elapsed_us: u64, wrong: Option<Wrong>) {
        if !self.is_member(rank, number) {
            if let Some(state) = self.ranks.get_mut(rank as usize) {
                state.garbled = Some(format!(
                    "it reported case {number}, in which it has no part"
                ));
            }
            return;
        }
        let Some(case) = self.cases.get_mut(number as usize) else {
            return;
        };
        let Err(place) = case.answered.binary_search(&rank) else {
            // The second answer to one question is not believed, unless it is a complaint.
            case.wrong.extend(wrong.map(|wrong| (rank, wrong)));
            return;
        };
        case.answered.insert(place, rank);
        case.elapsed_us = case.elapsed_us.max(elapsed_us);
        case.wrong.extend(wrong.map(|wrong| (rank, wrong)));
        self.answers += 1;
    }

    /// By which algorithm a case went.
    fn name(&mut self, rank: u32, number: u32, algo: Option<String>) {
        if self.is_member(rank, number)
            && let Some(case) = self.cases.get_mut(number as usize)
        {
            case.algo = case.algo.take().or(algo);
        }
    }

    fn refuse(&mut self, rank: u32, number: u32, refused: Vec<Refusal>) {
        if self.is_member(rank, number)
            && let Some(case) = self.cases.get_mut(number as usize)
        {
            let room = REFUSALS_MAX.saturating_sub(case.refused.len());
            let refused = refused.into_iter().take(room);
            case.refused.extend(refused.map(|refusal| (rank, refusal)));
        }
    }

    /// What the devices do not have, a row a call, type and reduction, with the cases it concerns.
    #[must_use]
    pub fn not_applicable(&self) -> Vec<NotApplicable> {
        let mut rows: Vec<NotApplicable> = Vec::new();
        for (case, state) in self.catalogue.cases.iter().zip(&self.cases) {
            let first = state.refused.iter().map(|(rank, _)| *rank).min();
            for (_, refusal) in state
                .refused
                .iter()
                .filter(|(rank, _)| Some(*rank) == first)
            {
                let row = NotApplicable {
                    collective: case
                        .question
                        .collective()
                        .map(|call| call.name().to_owned()),
                    dtype: case.question.dtype().map(|dtype| dtype.name().to_owned()),
                    op: refusal.op.map(|op| op.name().to_owned()),
                    why: refusal.why.clone(),
                    cases: 1,
                };
                match rows.iter_mut().find(|known| known.is_like(&row)) {
                    Some(known) => known.cases += 1,
                    None => rows.push(row),
                }
            }
        }
        rows
    }

    fn probed(&mut self, rank: u32, number: u32, absent: u32, wrong: bool) {
        if !self.is_member(rank, number) || !self.is_member(absent, number) || rank == absent {
            return;
        }
        let Some(case) = self.cases.get_mut(number as usize) else {
            return;
        };
        match case.probes.iter_mut().find(|probe| probe.absent == absent) {
            Some(probe) => {
                probe.answers += 1;
                probe.wrong |= wrong;
            }
            None => case.probes.push(Probe {
                absent,
                answers: 1,
                wrong,
            }),
        }
    }

    /// Of each group, by kind and index, the members without whom a case came out right, where it stayed wrong without
    /// others. An element of a sum is the work of all, so only this tells whose is false.
    fn probed_culprits(&self) -> BTreeMap<(usize, usize), BTreeSet<u32>> {
        let mut culprits = BTreeMap::<_, BTreeSet<u32>>::new();
        for (case, state) in self.catalogue.cases.iter().zip(&self.cases) {
            if !state.probes.iter().any(|probe| probe.wrong) {
                continue;
            }
            let others = self.catalogue.members(case).len() - 1;
            let cured = state
                .probes
                .iter()
                .filter(|probe| !probe.wrong && probe.answers == others);
            let of_group = culprits.entry((case.kind, case.group)).or_default();
            of_group.extend(cured.map(|probe| probe.absent));
        }
        culprits
    }

    fn is_member(&self, rank: u32, number: u32) -> bool {
        self.members_with(rank, number).is_some()
    }

    /// How many members answer a case, where the rank is one of them.
    fn members_with(&self, rank: u32, number: u32) -> Option<usize> {
        let case = self.catalogue.cases.get(number as usize)?;
        let members = self.catalogue.members(case);
        members.contains(&rank).then_some(members.len())
    }

    /// How long the rank of a row waited for that of a column, in microseconds; empty where nobody did.
    #[must_use]
    pub fn waits_us(&self) -> &[Vec<u64>] {
        self.waits.table()
    }

    /// Number of groups by kind, without the world itself.
    #[must_use]
    pub fn group_counts(&self) -> Vec<GroupCount> {
        let kinds = &self.catalogue.kinds;
        kinds[..kinds.len() - 1]
            .iter()
            .map(|kind| GroupCount {
                kind: kind.kind.clone(),
                count: u32::try_from(kind.groups.len()).unwrap_or(u32::MAX),
            })
            .collect()
    }

    /// The cases of the report. What nobody or not everybody answered has failed (COLLECT-1).
    #[must_use]
    pub fn report(&self, matrix: &str, world_size: u32) -> Vec<model::Case> {
        let culprits = self.probed_culprits();
        self.catalogue
            .cases
            .iter()
            .zip(&self.cases)
            .filter(|(case, state)| state.not_applicable(self.catalogue.members(case)).is_none())
            .map(|(case, state)| {
                let members = self.catalogue.members(case);
                let question = &case.question;
                let mut detail = detail(members, state);
                if let Some(detail) = &mut detail
                    && detail.blamed.is_empty()
                    && question.collective().is_some_and(Collective::reduces)
                    && let Some(culprits) = culprits.get(&(case.kind, case.group))
                {
                    detail.blamed = culprits.iter().copied().collect();
                }
                model::Case {
                    matrix: matrix.to_owned(),
                    world_size,
                    group: self.catalogue.kinds[case.kind].kind.clone(),
                    ranks: members.to_vec(),
                    check: question.check().to_owned(),
                    collective: question.collective().map(|call| call.name().to_owned()),
                    dtype: question.dtype().map(|dtype| dtype.name().to_owned()),
                    count: question.count().map(|count| count as u64),
                    algo: state.algo.clone(),
                    passed: detail.is_none(),
                    elapsed_us: state.elapsed_us,
                    detail,
                }
            })
            .collect()
    }

    /// The first case of a rank that it has not answered.
    #[must_use]
    pub fn next_case(&self, rank: u32) -> Option<u32> {
        self.catalogue
            .of_rank(rank)
            .find(|number| self.cases[*number].answered.binary_search(&rank).is_err())
            .and_then(|number| u32::try_from(number).ok())
    }

    /// What a case is about, for messages: `all_reduce f32[1000] on group tp [0, 1]`.
    #[must_use]
    pub fn describe(&self, number: u32) -> Option<String> {
        let case = self.catalogue.cases.get(number as usize)?;
        let question = &case.question;
        let what = question
            .collective()
            .map_or_else(|| question.check(), |call| call.name());
        let shape = match (question.dtype(), question.count()) {
            (Some(dtype), Some(count)) => format!(" {dtype}[{count}]"),
            (None, Some(count)) => format!("[{count}]"),
            (Some(_) | None, None) => String::new(),
        };
        Some(format!(
            "{what}{shape} on group {} [{}]",
            self.catalogue.kinds[case.kind].kind,
            listed(self.catalogue.members(case))
        ))
    }
}

fn garble(state: &mut RankState, error: &MessageError) {
    state.garbled = Some(error.to_string());
}

/// Most refusals of one case: every reduction on as many ranks as one host may have.
const REFUSALS_MAX: usize = 8192;

/// What was wrong with a case, or `None` if every member said that it was right.
fn detail(members: &[u32], state: &CaseState) -> Option<Detail> {
    // Some refused the case and others did not: that is no answer.
    if let Some((rank, refusal)) = state
        .refused
        .iter()
        .find(|(_, refusal)| refusal.op.is_none())
    {
        return Some(Detail {
            blamed: Vec::new(),
            seen_by: *rank,
            seen_by_all: vec![*rank],
            first_wrong: None,
            expected: None,
            got: None,
            wrong: None,
            text: format!("refused on some ranks only: {}", refusal.why),
        });
    }
    if let Some((rank, wrong)) = state.wrong.iter().min_by_key(|(rank, _)| *rank) {
        let mut seen_by_all: Vec<u32> = state.wrong.iter().map(|(rank, _)| *rank).collect();
        seen_by_all.sort_unstable();
        seen_by_all.dedup();
        return Some(Detail {
            blamed: blamed(state),
            seen_by: *rank,
            seen_by_all,
            first_wrong: wrong.element,
            expected: (!wrong.expected.is_empty()).then(|| wrong.expected.clone()),
            got: (!wrong.got.is_empty()).then(|| wrong.got.clone()),
            wrong: wrong.differing,
            text: wrong.text.clone(),
        });
    }
    let missing: Vec<u32> = members
        .iter()
        .copied()
        .filter(|member| state.answered.binary_search(member).is_err())
        .collect();
    let first = missing.first()?;
    Some(Detail {
        blamed: Vec::new(),
        seen_by: *first,
        seen_by_all: missing.clone(),
        first_wrong: None,
        expected: None,
        got: None,
        wrong: None,
        text: format!("no result from rank {}", listed(&missing)),
    })
}

/// The ranks that all observers blame, or those that any does where they have none in common.
fn blamed(state: &CaseState) -> Vec<u32> {
    let mut opinions: Vec<&[u32]> = state
        .wrong
        .iter()
        .map(|(_, wrong)| wrong.blamed.as_slice())
        .collect();
    opinions.retain(|opinion| !opinion.is_empty());
    let Some((first, others)) = opinions.split_first() else {
        return Vec::new();
    };
    let mut common: Vec<u32> = first
        .iter()
        .copied()
        .filter(|rank| others.iter().all(|opinion| opinion.contains(rank)))
        .collect();
    if common.is_empty() {
        common = opinions.concat();
    }
    common.sort_unstable();
    common.dedup();
    common
}

#[cfg(test)]
pub(crate) mod tests;
