//! Who belongs to the job, and whether they agree: the rules of bring-up without any I/O.
//!
//! Time is a number of milliseconds since the coordinator started, given by the caller.

use std::collections::HashMap;

use crate::host_load::HostLoad;
use crate::rendezvous::card::{Card, Claimant, DownReason, ProcessId};
use crate::rendezvous::error::{RendezvousError, WorldClaim};
use crate::rendezvous::limits::{CONTROL_WORLD_SIZE_MAX, PROGRESS_RANKS_MAX};
use crate::rendezvous::presence::{Absence, Presence, late};
use crate::rendezvous::wire::{Introduction, PROTOCOL, ToSession, decode, decode_introduction};
use crate::types::Rank;

/// How far the job is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Ranks are missing.
    Gathering,
    /// Every rank has the roster.
    Ready { since_ms: u64 },
    /// Bring-up has failed, for this reason and for everybody.
    Failed(RendezvousError),
}

/// What an introduction leads to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// The joiner is this rank.
    Joined(Rank),
    /// The joiner is turned away; the job goes on.
    Refused(RendezvousError),
    /// Ranks of this job contradict each other: bring-up ends for everybody, the joiner included.
    Fatal(RendezvousError),
}

/// What is known of a rank.
#[derive(Debug)]
enum Member {
    Absent,
    Here(Box<Joined>),
    Gone(Option<Claimant>),
}

#[derive(Debug)]
struct Joined {
    claimant: Claimant,
    since_ms: u64,
    card: Card,
}

/// The job as its coordinator sees it.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) job_id: String,
    pub(super) attempt: u32,
    build: String,
    members: Vec<Member>,
    here: usize,
    local_ranks: HashMap<(String, u32), Rank>,
    phase: Phase,
}

impl Job {
    pub(super) fn new(job_id: String, attempt: u32, build: String, world_size: u32) -> Self {
        Self {
            job_id,
            attempt,
            build,
            members: (0..world_size).map(|_| Member::Absent).collect(),
            here: 0,
            local_ranks: HashMap::new(),
            phase: Phase::Gathering,
        }
    }

    /// Takes the size of the world from the first rank that comes, where nobody said it before;
    /// a size that cannot be is refused like a rank of another world.
    fn adopt(&mut self, introduction: &Introduction) {
        let given = u32::try_from(introduction.world_size).unwrap_or(0);
        if self.members.is_empty() && given <= CONTROL_WORLD_SIZE_MAX {
            self.members = (0..given).map(|_| Member::Absent).collect();
        }
    }

    pub(super) fn phase(&self) -> &Phase {
        &self.phase
    }

    pub(super) fn world_size(&self) -> u32 {
        Rank::from_index(self.members.len()).0
    }

    /// Ranks that are still to come.
    pub(super) fn missing_count(&self) -> usize {
        match self.phase {
            Phase::Ready { .. } => 0,
            Phase::Gathering | Phase::Failed(_) => self.members.len() - self.here,
        }
    }

    /// Whether every rank is there.
    pub(super) fn is_complete(&self) -> bool {
        self.here == self.members.len()
    }

    pub(super) fn set_ready(&mut self, now_ms: u64) {
        self.phase = Phase::Ready { since_ms: now_ms };
    }

    pub(super) fn set_failed(&mut self, error: RendezvousError) {
        self.phase = Phase::Failed(error);
    }

    /// Whether this rank has been reported down or left, or does not exist.
    pub(super) fn is_gone(&self, rank: Rank) -> bool {
        !matches!(
            self.members.get(rank.index()),
            Some(Member::Here(_) | Member::Absent)
        )
    }

    /// Notes that a rank is down or has left; says whether that is news (`RDV-4`).
    pub(super) fn set_gone(&mut self, rank: Rank) -> bool {
        let Some(member) = self.members.get_mut(rank.index()) else {
            return false;
        };
        match std::mem::replace(member, Member::Absent) {
            Member::Absent => *member = Member::Gone(None),
            Member::Here(joined) => {
                *member = Member::Gone(Some(joined.claimant));
                self.here -= 1;
            }
            Member::Gone(claimant) => {
                *member = Member::Gone(claimant);
                return false;
            }
        }
        true
    }

    /// The cards of all ranks in rank order; meant for a complete world.
    pub(super) fn roster(&self) -> Vec<Card> {
        self.joined()
            .map(|(_, joined)| joined.card.clone())
            .collect()
    }

    /// The card of a rank that has joined and is not gone.
    pub(super) fn card(&self, rank: Rank) -> Option<&Card> {
        match self.members.get(rank.index())? {
            Member::Here(joined) => Some(&joined.card),
            Member::Absent | Member::Gone(_) => None,
        }
    }

    /// What a joiner is told while it waits.
    pub(super) fn progress(&self) -> ToSession {
        let mut missing = self.missing();
        let more = missing.len().saturating_sub(PROGRESS_RANKS_MAX);
        missing.truncate(PROGRESS_RANKS_MAX);
        ToSession::Progress {
            missing,
            missing_more: Rank::from_index(more).0,
        }
    }

    /// The error of a bring-up whose time is up; `seen` is what the launcher saw last of the processes of missing ranks.
    pub(super) fn absence(
        &self,
        seen: Vec<String>,
        load: HostLoad,
        now_ms: u64,
    ) -> RendezvousError {
        let last_ms = self.joined().map(|(_, joined)| joined.since_ms).max();
        let since_last_ms = now_ms.saturating_sub(last_ms.unwrap_or(0));
        let present = self.joined().map(|(rank, joined)| Presence {
            rank,
            host: joined.claimant.host.clone(),
            pid: joined.claimant.pid,
            since_ms: now_ms.saturating_sub(joined.since_ms),
        });
        RendezvousError::Missing {
            absence: Box::new(Absence {
                world_size: self.world_size(),
                waited_ms: now_ms,
                missing: self.missing(),
                missing_more: 0,
                present: present.collect(),
                seen,
                late: late(load, now_ms, since_last_ms),
            }),
        }
    }

    /// The process of a rank that is there.
    pub(super) fn process(&self, rank: Rank) -> Option<ProcessId> {
        match self.members.get(rank.index())? {
            Member::Here(joined) => Some(joined.card.process),
            Member::Absent | Member::Gone(_) => None,
        }
    }

    /// The error that a rank is whose process does not run.
    pub(super) fn frozen(&self, rank: Rank, how: String, waited_ms: u64) -> RendezvousError {
        let claimant = self.claimant(rank);
        RendezvousError::RankFrozen {
            rank,
            host: claimant.map_or_else(String::new, |claimant| claimant.host.clone()),
            pid: claimant.map_or(0, |claimant| claimant.pid),
            how,
            waited_ms,
        }
    }

    /// The error that a rank's death is.
    pub(super) fn down(&self, rank: Rank, reason: DownReason) -> RendezvousError {
        let claimant = match self.members.get(rank.index()) {
            Some(Member::Here(joined)) => Some(&joined.claimant),
            Some(Member::Gone(claimant)) => claimant.as_ref(),
            Some(Member::Absent) | None => None,
        };
        RendezvousError::RankDown {
            rank,
            host: claimant.map_or_else(String::new, |claimant| claimant.host.clone()),
            pid: claimant.map_or(0, |claimant| claimant.pid),
            reason,
        }
    }

    /// Decides about a joiner that has proved the secret and belongs to this job and attempt.
    /// The first rule that is broken is the one that is reported.
    pub(super) fn introduce(&mut self, body: &[u8], now_ms: u64) -> Admission {
        let (introduction, card) = match decode_introduction(body) {
            Ok(parts) => parts,
            Err(error) => return Admission::Refused(broken(&error.to_string())),
        };
        let claimant = Claimant {
            rank: introduction.rank,
            host: introduction.host.clone(),
            pid: introduction.pid,
            source: introduction.source.clone(),
        };
        match &self.phase {
            Phase::Failed(error) => return Admission::Refused(error.clone()),
            Phase::Ready { since_ms } => {
                let since_ms = now_ms.saturating_sub(*since_ms);
                return Admission::Refused(self.complete(claimant, since_ms));
            }
            Phase::Gathering => {}
        }
        // Only what speaks our protocol may say how large the world is.
        if introduction.protocol == PROTOCOL && introduction.build == self.build {
            self.adopt(&introduction);
        }
        let rank = match self.agree(&introduction, &claimant) {
            Ok(rank) => rank,
            Err(error) => return Admission::Fatal(error),
        };
        let card: Card = match decode("card", card) {
            Ok(card) => card,
            Err(error) => return Admission::Refused(broken(&error.to_string())),
        };
        if let Err(error) = card.check() {
            return Admission::Refused(error);
        }
        if let Err(error) = self.claim_places(rank, &claimant, &card) {
            return Admission::Fatal(error);
        }
        self.members[rank.index()] = Member::Here(Box::new(Joined {
            claimant,
            since_ms: now_ms,
            card,
        }));
        self.here += 1;
        Admission::Joined(rank)
    }

    /// Whether the joiner speaks our protocol and means our world; the rank that it is.
    fn agree(
        &self,
        introduction: &Introduction,
        claimant: &Claimant,
    ) -> Result<Rank, RendezvousError> {
        if introduction.protocol != PROTOCOL {
            return Err(RendezvousError::Protocol {
                claimant: Box::new(claimant.clone()),
                given: introduction.protocol,
                wanted: PROTOCOL,
                build: introduction.build.clone(),
            });
        }
        if introduction.build != self.build {
            return Err(RendezvousError::Build {
                claimant: Box::new(claimant.clone()),
                given: introduction.build.clone(),
                wanted: self.build.clone(),
            });
        }
        let out_of_range = || RendezvousError::RankRange {
            claimant: Box::new(claimant.clone()),
            world_size: self.world_size(),
        };
        let rank = u32::try_from(claimant.rank).map_err(|_| out_of_range())?;
        if introduction.world_size != i64::from(self.world_size()) {
            return Err(self.disagreement(Rank(rank), introduction));
        }
        if rank >= self.world_size() {
            return Err(out_of_range());
        }
        Ok(Rank(rank))
    }

    /// Whether the rank and its place on its host are free; takes the latter.
    fn claim_places(
        &mut self,
        rank: Rank,
        claimant: &Claimant,
        card: &Card,
    ) -> Result<(), RendezvousError> {
        if let Some(holder) = self.claimant(rank) {
            return Err(RendezvousError::Duplicate {
                first: Box::new(holder.clone()),
                second: Box::new(claimant.clone()),
            });
        }
        let Some(local_rank) = card.local_rank else {
            return Ok(());
        };
        if card.host_identity.is_empty() {
            return Ok(());
        }
        let place = (card.host_identity.clone(), local_rank);
        if let Some(holder) = self.local_ranks.insert(place, rank)
            && let Some(first) = self.claimant(holder)
        {
            return Err(RendezvousError::LocalRank {
                local_rank,
                host: card.host.clone(),
                first: Box::new(first.clone()),
                second: Box::new(claimant.clone()),
            });
        }
        Ok(())
    }

    fn disagreement(&self, rank: Rank, introduction: &Introduction) -> RendezvousError {
        let world_size = i64::from(self.world_size());
        let claim = |world_size, ranks, source: &str| WorldClaim {
            world_size,
            ranks,
            source: source.to_owned(),
        };
        let mut claims = vec![claim(world_size, Vec::new(), "")];
        for (rank, joined) in self.joined() {
            let source = &joined.claimant.source;
            match claims
                .iter_mut()
                .skip(1)
                .find(|claim| claim.source == *source)
            {
                Some(claim) => claim.ranks.push(rank),
                None => claims.push(claim(world_size, vec![rank], source)),
            }
        }
        claims.push(claim(
            introduction.world_size,
            vec![rank],
            &introduction.source,
        ));
        RendezvousError::WorldSize { claims }
    }

    fn complete(&self, late: Claimant, since_ms: u64) -> RendezvousError {
        let holder = u32::try_from(late.rank)
            .ok()
            .and_then(|rank| self.claimant(Rank(rank)));
        RendezvousError::Complete {
            world_size: self.world_size(),
            since_ms,
            holder: holder.cloned().map(Box::new),
            late: Box::new(late),
        }
    }

    fn claimant(&self, rank: Rank) -> Option<&Claimant> {
        match self.members.get(rank.index())? {
            Member::Here(joined) => Some(&joined.claimant),
            Member::Absent | Member::Gone(_) => None,
        }
    }

    fn missing(&self) -> Vec<Rank> {
        let absent = |(index, member)| {
            (!matches!(member, &Member::Here(_))).then(|| Rank::from_index(index))
        };
        self.members.iter().enumerate().filter_map(absent).collect()
    }

    fn joined(&self) -> impl Iterator<Item = (Rank, &Joined)> {
        self.members
            .iter()
            .enumerate()
            .filter_map(|(index, member)| match member {
                Member::Here(joined) => Some((Rank::from_index(index), &**joined)),
                Member::Absent | Member::Gone(_) => None,
            })
    }
}

fn broken(what: &str) -> RendezvousError {
    RendezvousError::ProtocolBroken {
        who: "the joiner".to_owned(),
        what: what.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rendezvous::wire::encode_introduction;

    fn job(world_size: u32) -> Job {
        Job::new("job".to_owned(), 0, "build".to_owned(), world_size)
    }

    fn introduction(rank: i64, world_size: i64) -> Introduction {
        Introduction {
            protocol: PROTOCOL,
            build: "build".to_owned(),
            rank,
            world_size,
            source: "test".to_owned(),
            host: "n1".to_owned(),
            pid: 1,
        }
    }

    fn introduce(job: &mut Job, introduction: &Introduction) -> Admission {
        job.introduce(
            &encode_introduction(introduction, &Card::default()).bytes,
            5,
        )
    }

    #[test]
    fn who_is_missing_may_be_late_only_on_a_crowded_host_where_others_still_arrive() {
        let mut job = job(2);
        assert_eq!(
            introduce(&mut job, &introduction(1, 2)),
            Admission::Joined(Rank(1))
        );
        let load = |runnable| HostLoad {
            runnable,
            processors: 2,
        };
        // Rank 1 joined at 5 ms.
        let is_late = |load, now_ms| job.absence(Vec::new(), load, now_ms).is_late();
        assert!(is_late(load(8), 6));
        assert!(!is_late(load(7), 6));
        assert!(!is_late(load(8), 7));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_introduction_hurts_a_job(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut job = job(3);
            let admission = job.introduce(&bytes, 0);
            prop_assert!(!matches!(admission, Admission::Joined(_)), "{:?}", admission);
            prop_assert_eq!(introduce(&mut job, &introduction(1, 3)), Admission::Joined(Rank(1)));
        }

        #[test]
        fn a_world_is_complete_exactly_when_every_rank_came_once(
            order in proptest::collection::vec(0..6i64, 0..12)
        ) {
            let mut job = job(6);
            let mut came = std::collections::BTreeSet::new();
            for rank in order {
                let admission = introduce(&mut job, &introduction(rank, 6));
                let is_new = came.insert(rank);
                prop_assert_eq!(matches!(admission, Admission::Joined(_)), is_new);
                prop_assert_eq!(job.is_complete(), came.len() == 6);
                prop_assert_eq!(job.missing_count(), 6 - came.len());
            }
        }
    }

    #[test]
    fn another_protocol_is_named_even_though_its_card_cannot_be_read() {
        let mut job = job(2);
        let stranger = Introduction {
            protocol: PROTOCOL + 1,
            build: "next".to_owned(),
            ..introduction(1, 2)
        };
        let mut bytes = encode_introduction(&stranger, &Card::default())
            .bytes
            .to_vec();
        bytes.truncate(bytes.len() - 3);
        let Admission::Fatal(error) = job.introduce(&bytes, 0) else {
            panic!("a rank of this job that cannot be understood ends the bring-up");
        };
        let text = error.to_string();
        assert!(text.contains("speaks version 2 (\"next\")"), "{text}");
        assert!(text.ends_with("speaks version 1"), "{text}");
    }

    #[test]
    fn a_rank_is_gone_once() {
        let mut job = job(3);
        introduce(&mut job, &introduction(0, 3));
        assert!(job.set_gone(Rank(0)));
        assert!(!job.set_gone(Rank(0)));
        assert!(job.set_gone(Rank(1)), "it never joined, and will not");
        assert!(!job.set_gone(Rank(1)));
        assert!(!job.set_gone(Rank(3)), "there is no such rank");
        assert!(!job.is_gone(Rank(2)));
    }

    #[test]
    fn progress_names_the_first_missing_ranks_and_counts_the_rest() {
        let mut job = job(100);
        introduce(&mut job, &introduction(1, 100));
        let ToSession::Progress {
            missing,
            missing_more,
        } = job.progress()
        else {
            panic!("progress is progress");
        };
        assert_eq!(missing.len(), PROGRESS_RANKS_MAX);
        assert_eq!(missing[..2], [Rank(0), Rank(2)]);
        assert_eq!(missing_more, 67);
    }
}
