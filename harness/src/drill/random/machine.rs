//! Plays the steps of all ranks in thought: who gets through, who waits for whom in the end, and which calls
//! contradict each other. This is where the truth of a random drill comes from.
//!
//! It knows what calls mean, and nothing of how the library carries them out. How much a call makes its
//! callers wait is the library's choice within bounds, so a program is played twice:
//!
//! - MACHINE-1: [`Mode::Lax`] makes a rank wait for data only. Who cannot go on here cannot go on anywhere.
//! - MACHINE-2: [`Mode::Strict`] makes every call wait for everybody in it. Who gets through here gets
//!   through anywhere.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "most kinds of steps and calls are alike here"
)]

mod calls;

use std::collections::{BTreeSet, HashMap, VecDeque};

pub use self::calls::{is_rooted, reduces};
use super::program::Program;
use crate::drill::script::{CallSpec, MessageSpec, Step};

/// How much a call makes its callers wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// For data that they need.
    Lax,
    /// For everybody in the call.
    Strict,
}

/// Where a rank is at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// In a call, waiting for these world ranks.
    Blocked {
        /// Its step.
        at: usize,
        /// Whom it waits for.
        waits_for: Vec<Wait>,
    },
    /// Through.
    Done,
    /// Its call is contradicted, which ends its work.
    Failed,
    /// At the step at which the drill stops it.
    Halted,
}

/// One of those that a rank waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wait {
    /// The rank that is waited for.
    pub rank: u32,
    /// Whether that one has destroyed the group, so that it can never come.
    pub has_destroyed: bool,
}

/// Calls that contradict each other, or messages that do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contradiction {
    /// World ranks that are in it.
    pub ranks: Vec<u32>,
    /// Whether it is about an object of another type, and not about the calls.
    pub is_object: bool,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Where each rank is.
    pub ends: Vec<End>,
    /// What contradicted what.
    pub contradictions: Vec<Contradiction>,
    /// Sender and receiver of messages that nobody received.
    pub lost: Vec<(u32, u32)>,
    /// A rank that made a call of a group, and a member that destroyed the group before it came to that call.
    pub left_behind: Vec<(u32, u32)>,
}

/// Plays a program. `halts` has the step at which each rank stops for good, where it does: in lax mode what
/// that step and those before it have started still comes, in strict mode nothing of it does.
#[must_use]
pub fn play(program: &Program, halts: &[Option<usize>], mode: Mode) -> Outcome {
    let mut machine = Machine::new(program, halts, mode);
    machine.run();
    machine.outcome()
}

/// A group in one of its lives.
#[derive(Debug)]
struct Group {
    members: Vec<u32>,
    /// The calls that each member has entered.
    entered: Vec<Vec<CallSpec>>,
    /// Messages between two members that were sent, and that were asked for: count and type.
    sent: HashMap<(usize, usize), Vec<calls::Letter>>,
    asked: HashMap<(usize, usize), Vec<calls::Letter>>,
    destroyed: BTreeSet<usize>,
    is_spoilt: bool,
}

/// What a rank has begun on a group.
#[derive(Debug)]
struct Injection {
    what: What,
    work: Option<u32>,
    /// Where it stands in the group, once it has been entered.
    place: Option<Vec<usize>>,
    /// Whether the drill stops the rank before this comes to anybody.
    never: bool,
}

#[derive(Debug)]
enum What {
    Call(CallSpec),
    Messages(Vec<(MessageSpec, calls::Letter)>),
}

#[derive(Debug, Default)]
struct Rank {
    at: usize,
    /// Whether the step at which it is has been begun.
    has_begun: bool,
    groups: HashMap<String, usize>,
    made: HashMap<(String, Vec<u32>), u32>,
    queues: HashMap<usize, VecDeque<Injection>>,
    /// Calls waited for later: the group, and whether it was contradicted once it is over.
    works: HashMap<u32, (usize, Option<bool>)>,
    has_failed: bool,
}

struct Machine<'a> {
    program: &'a Program,
    halts: &'a [Option<usize>],
    mode: Mode,
    ranks: Vec<Rank>,
    groups: Vec<Group>,
    lives: HashMap<(String, Vec<u32>, u32), usize>,
    contradictions: Vec<Contradiction>,
}

/// What became of a deed.
enum State {
    Contradicted,
    Over,
    Waits(Vec<usize>),
}

impl<'a> Machine<'a> {
    fn new(program: &'a Program, halts: &'a [Option<usize>], mode: Mode) -> Self {
        let mut machine = Self {
            program,
            halts,
            mode,
            ranks: program.iter().map(|_| Rank::default()).collect(),
            groups: Vec::new(),
            lives: HashMap::new(),
            contradictions: Vec::new(),
        };
        let all: Vec<u32> = (0..).take(program.len()).collect();
        for rank in 0..program.len() {
            machine.make(rank, "world", &all);
        }
        machine
    }

    fn run(&mut self) {
        loop {
            let mut moved = false;
            for rank in 0..self.ranks.len() {
                moved |= self.drive(rank);
                while self.step(rank) {
                    moved = true;
                    self.drive(rank);
                }
            }
            if !moved {
                return;
            }
        }
    }

    fn make(&mut self, rank: usize, name: &str, members: &[u32]) {
        let key = (name.to_owned(), members.to_vec());
        let made = self.ranks[rank].made.entry(key).or_default();
        *made += 1;
        let life = (name.to_owned(), members.to_vec(), *made);
        let groups = &mut self.groups;
        let group = *self.lives.entry(life).or_insert_with(|| {
            groups.push(Group {
                members: members.to_vec(),
                entered: vec![Vec::new(); members.len()],
                sent: HashMap::new(),
                asked: HashMap::new(),
                destroyed: BTreeSet::new(),
                is_spoilt: false,
            });
            groups.len() - 1
        });
        self.ranks[rank].groups.insert(name.to_owned(), group);
    }

    fn member(&self, rank: usize, group: usize) -> Option<usize> {
        let members = &self.groups[group].members;
        members.iter().position(|one| *one as usize == rank)
    }

    fn has_halted(&self, rank: usize) -> bool {
        self.halts[rank].is_some_and(|halt| self.ranks[rank].at >= halt)
    }

    /// Goes on with a rank by one step, if it can.
    fn step(&mut self, rank: usize) -> bool {
        let Some(step) = self.program[rank].get(self.ranks[rank].at) else {
            return false;
        };
        if self.ranks[rank].has_failed {
            return false;
        }
        let halted = self.has_halted(rank);
        if halted && (self.mode == Mode::Strict || self.ranks[rank].has_begun) {
            return false;
        }
        let passed = match step {
            Step::Call { group, call, .. } => {
                self.blocking(rank, group, || What::Call(call.clone()))
            }
            Step::Batch { group, messages } => self.blocking(rank, group, || {
                What::Messages(
                    messages
                        .iter()
                        .map(|one| (*one, calls::Letter::of(one)))
                        .collect(),
                )
            }),
            Step::Start { group, call, work } => {
                let what = What::Call(call.clone());
                if let Some(group) = self.begin(rank, group, what, Some(*work)) {
                    self.ranks[rank].works.insert(*work, (group, None));
                }
                true
            }
            Step::Wait { work } => match self.ranks[rank].works.get(work).copied() {
                Some((_, None)) => false,
                Some((_, Some(contradicted))) => {
                    self.ranks[rank].has_failed = contradicted;
                    !contradicted
                }
                None => true,
            },
            Step::Make { name, members } => {
                self.make(rank, name, members);
                true
            }
            Step::Destroy { group } => {
                self.destroy(rank, group);
                true
            }
            _ => true,
        };
        if halted {
            self.ranks[rank].has_begun = true;
            return true;
        }
        if passed {
            let rank = &mut self.ranks[rank];
            rank.at += 1;
            rank.has_begun = false;
        }
        passed
    }

    fn destroy(&mut self, rank: usize, name: &str) {
        if let Some(group) = self.ranks[rank].groups.remove(name)
            && let Some(member) = self.member(rank, group)
        {
            self.groups[group].destroyed.insert(member);
        }
    }

    /// Makes a blocking call; says whether it is over.
    fn blocking(&mut self, rank: usize, name: &str, what: impl FnOnce() -> What) -> bool {
        let Some(group) = self.ranks[rank].groups.get(name).copied() else {
            return true;
        };
        if !self.ranks[rank].has_begun {
            self.begin(rank, name, what(), None);
            self.ranks[rank].has_begun = true;
            self.drive(rank);
        }
        let queue = self.ranks[rank].queues.get(&group);
        queue.is_none_or(VecDeque::is_empty) && !self.ranks[rank].has_failed
    }

    fn begin(&mut self, rank: usize, name: &str, what: What, work: Option<u32>) -> Option<usize> {
        let group = *self.ranks[rank].groups.get(name)?;
        if self.mode == Mode::Strict && self.groups[group].is_spoilt {
            self.ranks[rank].has_failed = true;
        }
        let never = work.is_some_and(|work| self.is_cut_off(rank, name, work));
        self.ranks[rank]
            .queues
            .entry(group)
            .or_default()
            .push_back(Injection {
                what,
                work,
                place: None,
                never,
            });
        Some(group)
    }

    /// Whether a rank is stopped before it is sure that this call of its is over.
    fn is_cut_off(&self, rank: usize, name: &str, work: u32) -> bool {
        let (Mode::Strict, Some(halt)) = (self.mode, self.halts[rank]) else {
            return false;
        };
        let steps = &self.program[rank];
        let rest = &steps[(self.ranks[rank].at + 1).min(steps.len())..halt.min(steps.len())];
        !rest.iter().any(|step| match step {
            Step::Wait { work: other } => *other == work,
            Step::Call { group, .. } | Step::Batch { group, .. } => group == name,
            _ => false,
        })
    }

    /// Enters and ends what a rank has under way; says whether anything moved.
    fn drive(&mut self, rank: usize) -> bool {
        let mut moved = false;
        let groups: Vec<usize> = self.ranks[rank].queues.keys().copied().collect();
        for group in groups {
            while let Some(member) = self.member(rank, group) {
                let queue = self.ranks[rank].queues.entry(group).or_default();
                let Some(deed) = queue.front_mut().filter(|deed| !deed.never) else {
                    break;
                };
                if deed.place.is_none() {
                    deed.place = Some(self.groups[group].enter(member, &deed.what));
                    moved = true;
                }
                let (what, place) = (&deed.what, deed.place.as_deref().unwrap_or_default());
                let contradicted = match self.groups[group].state(member, what, place, self.mode) {
                    State::Waits(_) => break,
                    State::Over => false,
                    State::Contradicted => true,
                };
                moved = true;
                self.finish(rank, group, contradicted);
            }
        }
        moved
    }

    fn finish(&mut self, rank: usize, group: usize, contradicted: bool) {
        let queue = self.ranks[rank].queues.entry(group).or_default();
        let Some(deed) = queue.pop_front() else {
            return;
        };
        if contradicted {
            let found = self.groups[group].contradiction(rank, &deed.what, deed.place.as_deref());
            self.contradictions.push(found);
            self.groups[group].is_spoilt = true;
        }
        let rank = &mut self.ranks[rank];
        match deed.work {
            Some(work) => {
                rank.works.insert(work, (group, Some(contradicted)));
            }
            None => rank.has_failed |= contradicted,
        }
    }

    /// The group on which a rank's current step waits.
    fn held_up_on(&self, rank: usize) -> Option<usize> {
        let own = &self.ranks[rank];
        match self.program[rank].get(own.at)? {
            Step::Call { group, .. } | Step::Batch { group, .. } => own.groups.get(group).copied(),
            Step::Wait { work } => own.works.get(work).map(|(group, _)| *group),
            _ => None,
        }
    }

    fn end_of(&self, rank: usize) -> End {
        let own = &self.ranks[rank];
        if own.has_failed {
            return End::Failed;
        }
        if own.at == self.program[rank].len() {
            return End::Done;
        }
        if self.has_halted(rank) {
            return End::Halted;
        }
        let mut waits_for = Vec::new();
        if let Some(group) = self.held_up_on(rank)
            && let Some(member) = self.member(rank, group)
            && let Some(deed) = own.queues.get(&group).and_then(VecDeque::front)
        {
            let group = &self.groups[group];
            let place = deed.place.as_deref().unwrap_or_default();
            if let State::Waits(members) = group.state(member, &deed.what, place, self.mode) {
                waits_for = members
                    .into_iter()
                    .map(|member| Wait {
                        rank: group.members[member],
                        has_destroyed: group.destroyed.contains(&member),
                    })
                    .collect();
            }
        }
        End::Blocked {
            at: own.at,
            waits_for,
        }
    }

    fn outcome(self) -> Outcome {
        let ends = (0..self.ranks.len()).map(|rank| self.end_of(rank));
        Outcome {
            ends: ends.collect(),
            lost: self.groups.iter().flat_map(Group::lost).collect(),
            left_behind: self.groups.iter().flat_map(Group::left_behind).collect(),
            contradictions: self.contradictions,
        }
    }
}
