//! Programs of random drills: what each rank does, with nothing wrong in it.
//!
//! PROGRAM-1: all ranks go through one sequence of events, each doing those of the groups that it is in, and
//! an asynchronous call is waited for after its own event. So some rank can always go on, whatever the
//! library makes wait for what.

use crate::drill::script::{CallKind, CallSpec, Kind, MessageSpec, Step};
use crate::random::Draws;

/// Most elements of a call, all ranks and blocks taken together: 256 KiB of `f32`.
const ELEMENTS_MAX: usize = 1 << 16;
/// From this world size on programs are short: all ranks share a few processors.
pub const LARGE: u32 = 33;
/// Longest pause of a rank before a call, in milliseconds.
const PAUSE_MAX_MS: usize = 20;

const COLLECTIVES: [CallKind; 11] = [
    CallKind::AllReduce,
    CallKind::AllReduce,
    CallKind::AllGather,
    CallKind::AllToAll,
    CallKind::AllToAllV,
    CallKind::Barrier,
    CallKind::Broadcast,
    CallKind::Gather,
    CallKind::Reduce,
    CallKind::ReduceScatter,
    CallKind::Scatter,
];
const OBJECTS: [CallKind; 3] = [
    CallKind::AllGatherObject,
    CallKind::BroadcastObject,
    CallKind::GatherObject,
];
const KINDS: [Kind; 4] = [Kind::F32, Kind::F64, Kind::I32, Kind::I64];

/// The steps of each rank.
pub type Program = Vec<Vec<Step>>;

/// A program of a world.
#[must_use]
pub fn generate(world_size: u32, draws: Draws) -> Program {
    let mut author = Author {
        groups: Vec::new(),
        families: Vec::new(),
        steps: vec![Vec::new(); world_size as usize],
        under_way: vec![Vec::new(); world_size as usize],
        works: 0,
        draws,
    };
    author.make_groups(world_size);
    let events = if world_size < LARGE {
        25 + author.draws.below(25)
    } else {
        8 + author.draws.below(8)
    };
    for _ in 0..events {
        author.event();
    }
    author.end();
    author.steps
}

struct Group {
    name: String,
    members: Vec<u32>,
}

struct Author {
    groups: Vec<Group>,
    /// Groups that do the same at the same time, as those of one axis of a layout.
    families: Vec<Vec<usize>>,
    steps: Program,
    /// Of each rank, the asynchronous calls that it has not waited for: number and group.
    under_way: Vec<Vec<(u32, usize)>>,
    works: u32,
    draws: Draws,
}

impl Author {
    fn make_groups(&mut self, world_size: u32) {
        let all: Vec<u32> = (0..world_size).collect();
        self.groups.push(Group {
            name: "world".to_owned(),
            members: all.clone(),
        });
        self.families.push(vec![0]);
        let half = (world_size as usize / 2).max(2);
        let width = 2 + self.draws.below(half - 1).min(14);
        let blocks: Vec<Vec<u32>> = all.chunks(width).map(<[u32]>::to_vec).collect();
        let columns = (0..width).map(|column| {
            let members = blocks.iter().filter_map(|block| block.get(column).copied());
            members.collect::<Vec<u32>>()
        });
        let columns: Vec<Vec<u32>> = columns.filter(|members| !members.is_empty()).collect();
        self.family("tp", blocks);
        self.family("dp", columns);
        for number in 0..1 + self.draws.below(3) {
            let count = 2 + self.draws.below((world_size as usize - 1).min(15));
            let order = self.draws.permutation(world_size as usize);
            let members = order.into_iter().take(count).map(|rank| all[rank]);
            let members = members.collect();
            self.family(&format!("x{number}_"), vec![members]);
        }
    }

    fn family(&mut self, name: &str, all: Vec<Vec<u32>>) {
        let mut family = Vec::new();
        for (number, members) in all.into_iter().enumerate() {
            family.push(self.groups.len());
            let name = format!("{name}{number}");
            self.groups.push(Group { name, members });
            self.make(self.groups.len() - 1);
        }
        self.families.push(family);
    }

    fn make(&mut self, group: usize) {
        let Group { name, members } = &self.groups[group];
        for rank in members {
            self.steps[*rank as usize].push(Step::Make {
                name: name.clone(),
                members: members.clone(),
            });
        }
    }

    /// The groups that the next event is about.
    fn chosen(&mut self) -> Vec<usize> {
        if self.draws.below(2) == 0 {
            let family = self.draws.below(self.families.len());
            self.families[family].clone()
        } else {
            vec![self.draws.below(self.groups.len())]
        }
    }

    fn event(&mut self) {
        let groups = self.chosen();
        let what = self.draws.below(100);
        let kind = COLLECTIVES[self.draws.below(COLLECTIVES.len())];
        for group in groups {
            self.pauses(group);
            match what {
                0..54 => self.collective(group, kind),
                54..74 => self.start(group, kind),
                74..82 => {
                    let kind = OBJECTS[self.draws.below(OBJECTS.len())];
                    self.collective(group, kind);
                }
                82..90 => self.message(group),
                90..96 => self.batch(group),
                _ => self.make_again(group),
            }
        }
        for rank in 0..self.steps.len() {
            if !self.under_way[rank].is_empty() && self.draws.below(4) == 0 {
                let which = self.draws.below(self.under_way[rank].len());
                self.wait(rank, which);
            }
        }
    }

    fn pauses(&mut self, group: usize) {
        let one_in = 8 * self.steps.len().div_ceil(16);
        for member in 0..self.groups[group].members.len() {
            if self.draws.below(one_in) == 0 {
                let ms = self.draws.below(PAUSE_MAX_MS) as u64;
                let rank = self.groups[group].members[member];
                self.steps[rank as usize].push(Step::Pause { ms });
            }
        }
    }

    fn wait(&mut self, rank: usize, which: usize) {
        let (work, _) = self.under_way[rank].swap_remove(which);
        self.steps[rank].push(Step::Wait { work });
    }

    fn count(&mut self, blocks: usize) -> usize {
        let most = (ELEMENTS_MAX / blocks / self.steps.len().min(16)).max(1);
        let count = match self.draws.below(100) {
            0..5 => 0,
            5..15 => 1,
            15..50 => 2 + self.draws.below(63),
            50..80 => 65 + self.draws.below(5000),
            _ => most,
        };
        count.min(most)
    }

    /// The call of each member, in their order.
    fn calls(&mut self, group: usize, kind: CallKind) -> Vec<CallSpec> {
        let n = self.groups[group].members.len();
        let blocks = if matches!(kind, CallKind::AllToAll | CallKind::AllToAllV) {
            n * n
        } else {
            n
        };
        let count = self.count(blocks);
        let dtype = KINDS[self.draws.below(KINDS.len())];
        let mut call = CallSpec::all_reduce(dtype, count).of_kind(kind);
        call.peer = self.draws.below(n);
        call.takes_max = self.draws.below(3) == 0;
        if OBJECTS.contains(&kind) {
            call.count = 1 + self.draws.below(500);
        }
        // All in the region, none, or some.
        let regions = self.draws.below(3);
        let part = |from: usize, to: usize| {
            if count == 0 {
                0
            } else {
                count + (3 * from + to) % 4
            }
        };
        let of = |member: usize| {
            let mut call = call.clone();
            call.in_region = regions == 0 || (regions == 1 && member.is_multiple_of(2));
            if kind == CallKind::AllToAllV {
                call.send_counts = (0..n).map(|other| part(member, other)).collect();
                call.recv_counts = (0..n).map(|other| part(other, member)).collect();
            }
            call
        };
        (0..n).map(of).collect()
    }

    fn collective(&mut self, group: usize, kind: CallKind) {
        let calls = self.calls(group, kind);
        let Group { name, members } = &self.groups[group];
        for (rank, call) in members.iter().zip(calls) {
            self.steps[*rank as usize].push(Step::call_on(name, call));
        }
    }

    fn start(&mut self, group: usize, kind: CallKind) {
        let calls = self.calls(group, kind);
        self.works += 1;
        let Group { name, members } = &self.groups[group];
        for (rank, call) in members.iter().zip(calls) {
            self.steps[*rank as usize].push(Step::Start {
                group: name.clone(),
                call,
                work: self.works,
            });
            self.under_way[*rank as usize].push((self.works, group));
        }
    }

    fn message(&mut self, group: usize) {
        let n = self.groups[group].members.len();
        if n < 2 {
            return;
        }
        let from = self.draws.below(n);
        let to = (from + 1 + self.draws.below(n - 1)) % n;
        let count = self.count(1);
        let dtype = KINDS[self.draws.below(KINDS.len())];
        let call = CallSpec::all_reduce(dtype, count);
        let Group { name, members } = &self.groups[group];
        for (own, kind, peer) in [(from, CallKind::Send, to), (to, CallKind::Recv, from)] {
            let call = call.clone().of_kind(kind).with_peer(peer);
            self.steps[members[own] as usize].push(Step::call_on(name, call));
        }
    }

    /// Every member sends to the one behind it, and receives from the one before it.
    fn batch(&mut self, group: usize) {
        let n = self.groups[group].members.len();
        if n < 2 {
            return;
        }
        let count = self.count(1);
        let distance = 1 + self.draws.below(n - 1);
        let Group { name, members } = &self.groups[group];
        for (own, rank) in members.iter().enumerate() {
            let message = |is_sent, peer| MessageSpec {
                is_sent,
                peer,
                count,
            };
            self.steps[*rank as usize].push(Step::Batch {
                group: name.clone(),
                messages: vec![
                    message(true, (own + distance) % n),
                    message(false, (own + n - distance) % n),
                ],
            });
        }
    }

    fn make_again(&mut self, group: usize) {
        if group == 0 {
            return;
        }
        for rank in self.groups[group].members.clone() {
            let rank = rank as usize;
            let is_of_it = |(_, of): &(u32, usize)| *of == group;
            while let Some(which) = self.under_way[rank].iter().position(is_of_it) {
                self.wait(rank, which);
            }
            let group = self.groups[group].name.clone();
            self.steps[rank].push(Step::Destroy { group });
        }
        self.make(group);
    }

    fn end(&mut self) {
        if self.draws.below(2) == 0 {
            self.collective(0, CallKind::Barrier);
        }
        for rank in 0..self.steps.len() {
            while !self.under_way[rank].is_empty() {
                let which = self.draws.below(self.under_way[rank].len());
                self.wait(rank, which);
            }
        }
    }
}
