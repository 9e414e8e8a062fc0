//! Collectives of blocks with a root: `gather`, `scatter`, and `_v`.
//!
//! One rank speaks for its host, so that the root has as many messages as there are hosts, and not as there are ranks.

use super::super::builder::{Builder, input, output, scratch};
use super::super::plan::{Plan, Span};
use super::super::problem::Problem;
use super::super::shape::Blocks;
use super::Hosts;

/// `gather`, `_v`: within hosts to one rank of each, and from these to the root.
pub(in crate::algo) fn gather(problem: &Problem, rank: usize) -> Plan {
    let (blocks, root) = (problem.the_blocks(), problem.the_root());
    let hosts = Hosts::of(problem);
    let (host, _) = hosts.place_of(rank);
    let leader = hosts.leader(host, Some(root));
    let (loads, used) = Load::of_rank(&hosts, blocks, rank, root);
    let mut plan = Builder::new();
    if rank == leader {
        let store = |member: usize| match rank == root {
            true => output(blocks.start(member), blocks.len(member)),
            false => loads[0].part(member),
        };
        for member in &hosts.members[host] {
            if *member == rank {
                plan.copy(input(0, blocks.len(rank)), store(rank));
            } else {
                plan.recv(*member, store(*member));
            }
        }
    } else {
        plan.send(leader, input(0, blocks.len(rank)));
    }
    plan.end_round();
    for load in &loads {
        if rank == root {
            plan.recv(load.members[0], load.place(output));
        } else {
            plan.send(root, load.all());
        }
    }
    plan.end_round();
    if rank == root {
        for (block, part) in loads.iter().flat_map(|load| load.loose(output)) {
            plan.copy(part, block);
        }
    }
    plan.end_round();
    plan.message_plan(used, true)
}

/// `scatter`, `_v`: from the root to one rank of each host, and on from these.
pub(in crate::algo) fn scatter(problem: &Problem, rank: usize) -> Plan {
    let (blocks, root) = (problem.the_blocks(), problem.the_root());
    let hosts = Hosts::of(problem);
    let (host, _) = hosts.place_of(rank);
    let leader = hosts.leader(host, Some(root));
    let (loads, used) = Load::of_rank(&hosts, blocks, rank, root);
    let mut plan = Builder::new();
    if rank == root {
        for (block, part) in loads.iter().flat_map(|load| load.loose(input)) {
            plan.copy(block, part);
        }
    }
    plan.end_round();
    for load in &loads {
        if rank == root {
            plan.send(load.members[0], load.place(input));
        } else {
            plan.recv(root, load.all());
        }
    }
    plan.end_round();
    let own = output(0, blocks.len(rank));
    if rank == leader {
        let store = |member: usize| match rank == root {
            true => input(blocks.start(member), blocks.len(member)),
            false => loads[0].part(member),
        };
        for member in &hosts.members[host] {
            if *member == rank {
                plan.copy(store(rank), own);
            } else {
                plan.send(*member, store(*member));
            }
        }
    } else {
        plan.recv(leader, own);
    }
    plan.end_round();
    plan.message_plan(used, true)
}

/// The blocks of one host, which travel in one message.
struct Load<'a> {
    members: &'a [usize],
    blocks: &'a Blocks,
    /// Where they lie in scratch.
    at: usize,
}

impl<'a> Load<'a> {
    /// What a rank exchanges with other hosts, and the scratch for that: on the root the blocks of all other hosts, on the
    /// ranks that speak for these, those of their own.
    fn of_rank(
        hosts: &'a Hosts,
        blocks: &'a Blocks,
        rank: usize,
        root: usize,
    ) -> (Vec<Self>, usize) {
        let ((host, _), (root_host, _)) = (hosts.place_of(rank), hosts.place_of(root));
        let mut used = 0;
        let mut loads = Vec::new();
        for (other, members) in hosts.members.iter().enumerate() {
            let is_wanted = match rank == root {
                true => other != host,
                false => other == host && host != root_host && members[0] == rank,
            };
            if !is_wanted {
                continue;
            }
            let load = Self {
                members,
                blocks,
                at: used,
            };
            if rank != root || !load.is_run() {
                used += load.len();
            }
            loads.push(load);
        }
        (loads, used)
    }

    /// Whether the blocks follow one another in the root's buffer.
    fn is_run(&self) -> bool {
        let (first, last) = (self.members[0], self.members[self.members.len() - 1]);
        last - first + 1 == self.members.len()
    }

    fn len(&self) -> usize {
        let lengths = self.members.iter().map(|member| self.blocks.len(*member));
        lengths.sum()
    }

    /// All of it in scratch.
    fn all(&self) -> Span {
        scratch(self.at, self.len())
    }

    /// The block of one member in scratch.
    fn part(&self, member: usize) -> Span {
        let before = self.members.iter().take_while(|other| **other != member);
        let before: usize = before.map(|other| self.blocks.len(*other)).sum();
        scratch(self.at + before, self.blocks.len(member))
    }

    /// On the root: in its buffer if the blocks follow one another there.
    fn place(&self, buffer: fn(usize, usize) -> Span) -> Span {
        if self.is_run() {
            buffer(self.blocks.start(self.members[0]), self.len())
        } else {
            self.all()
        }
    }

    /// On the root: the blocks that do not, in its buffer and in scratch.
    fn loose(&self, buffer: fn(usize, usize) -> Span) -> Vec<(Span, Span)> {
        if self.is_run() {
            return Vec::new();
        }
        let mut at = self.at;
        let mut pairs = Vec::with_capacity(self.members.len());
        for member in self.members {
            let len = self.blocks.len(*member);
            pairs.push((buffer(self.blocks.start(*member), len), scratch(at, len)));
            at += len;
        }
        pairs
    }
}
