//! The lines of one rank, each checked by itself.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use muster_comm::types::{Collective, Counting, DType, ReduceOp};
use muster_comm::watch::record::{CallLine, Line, MessageLine};

use super::program::{Group, Message, Problem};
use super::read::Recorded;

/// The lines of one rank, checked by themselves.
pub(super) struct Draft {
    pub(super) groups: Vec<Group>,
    pub(super) keys: Vec<u64>,
    pub(super) calls: Vec<Call>,
}

/// A line of a call.
pub(super) struct Call {
    pub(super) line: usize,
    pub(super) group: usize,
    pub(super) seq: u64,
    pub(super) thread: u32,
    pub(super) is_async: bool,
    pub(super) pause_us: u64,
    pub(super) what: What,
}

pub(super) enum What {
    /// With what this rank alone knows of splits.
    Collective(Own),
    Messages(Collective, Vec<Message>),
}

/// A collective as one rank recorded it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Own {
    pub(super) collective: Collective,
    pub(super) dtype: Option<DType>,
    pub(super) op: Option<ReduceOp>,
    pub(super) root: Option<usize>,
    pub(super) lengths: Lengths,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Lengths {
    Uniform(usize),
    Blocks(Vec<usize>),
    Splits { send: Vec<usize>, recv: Vec<usize> },
}

impl Draft {
    pub(super) fn of(file: &Recorded, world: usize) -> Result<Self, Problem> {
        let rank = file.header.rank;
        let mut draft = Self {
            groups: Vec::new(),
            keys: Vec::new(),
            calls: Vec::new(),
        };
        for (number, line) in &file.lines {
            let refuse = |what: String| Problem::at(&file.name, *number, what);
            match line {
                Line::Recording(_) | Line::End { .. } => {
                    return Err(refuse("a second first line".to_owned()));
                }
                Line::Lost { .. } => {}
                Line::Group {
                    group,
                    key,
                    name,
                    members,
                } => {
                    if *group != draft.groups.len() as u64 {
                        let next = draft.groups.len();
                        return Err(refuse(format!("group {group}; the next one is {next}")));
                    }
                    check_members(members, rank, world).map_err(refuse)?;
                    let key = u64::from_str_radix(key, 16)
                        .map_err(|_| refuse(format!("the key {key:?} is no hexadecimal number")))?;
                    draft.keys.push(key);
                    draft.groups.push(Group {
                        name: name.clone(),
                        members: members.clone(),
                    });
                }
                Line::Destroyed { group } => {
                    draft.group(*group).map_err(refuse)?;
                }
                Line::Call(call) => {
                    let call = draft.call(*number, call).map_err(refuse)?;
                    draft.calls.push(call);
                }
            }
        }
        Ok(draft)
    }

    fn group(&self, number: u64) -> Result<usize, String> {
        let known = self.groups.len();
        let group = usize::try_from(number).ok().filter(|group| *group < known);
        group.ok_or_else(|| format!("group {number}; known are {known} groups, from 0"))
    }

    /// The index of a world rank in a group.
    pub(super) fn index(&self, group: usize, rank: usize) -> usize {
        let members = self.groups[group].members.iter();
        let place = members
            .enumerate()
            .find(|(_, member)| **member as usize == rank);
        place.map_or(0, |(place, _)| place)
    }

    fn call(&self, line: usize, call: &CallLine) -> Result<Call, String> {
        let group = self.group(call.group)?;
        let members = self.groups[group].members.len();
        let collective: Collective = named(&call.call)?;
        let what = if collective.is_of_messages() {
            let messages = call.messages.iter().map(|one| message(one, members));
            What::Messages(collective, messages.collect::<Result<_, _>>()?)
        } else {
            What::Collective(own(call, collective, members)?)
        };
        Ok(Call {
            line,
            group,
            seq: call.seq,
            thread: call.thread,
            is_async: call.is_async,
            pause_us: call.pause_us,
            what,
        })
    }
}

fn check_members(members: &[u32], rank: u32, world: usize) -> Result<(), String> {
    let known: BTreeSet<u32> = members.iter().copied().collect();
    if known.len() < members.len() {
        return Err(format!("a rank is twice among the members {members:?}"));
    }
    if let Some(other) = members.iter().find(|member| **member as usize >= world) {
        return Err(format!(
            "member {other}; the world has ranks 0 to {}",
            world - 1
        ));
    }
    if !known.contains(&rank) {
        return Err(format!("rank {rank} is not among the members {members:?}"));
    }
    Ok(())
}

fn named<T: FromStr<Err: fmt::Display>>(name: &str) -> Result<T, String> {
    name.parse().map_err(|error: T::Err| error.to_string())
}

/// Most elements of a buffer, so that no sum of them overflows and memory bounds the rest.
const ELEMENTS_MAX: u64 = 1 << 40;

fn length(count: u64) -> Result<usize, String> {
    let count = Some(count).filter(|count| *count <= ELEMENTS_MAX);
    let count = count.and_then(|count| usize::try_from(count).ok());
    count.ok_or_else(|| format!("more than {ELEMENTS_MAX} elements"))
}

fn lengths(counts: &[u64], members: usize, what: &str) -> Result<Vec<usize>, String> {
    if counts.len() != members {
        let got = counts.len();
        return Err(format!(
            "{got} lengths in {what:?}, the group has {members} members"
        ));
    }
    counts.iter().map(|count| length(*count)).collect()
}

fn message(line: &MessageLine, members: usize) -> Result<Message, String> {
    let peer = usize::try_from(line.peer)
        .ok()
        .filter(|peer| *peer < members);
    Ok(Message {
        sends: line.sends,
        peer: peer.ok_or_else(|| format!("peer {}; the group has {members} members", line.peer))?,
        dtype: named(&line.dtype)?,
        count: length(line.count)?,
        number: 0,
    })
}

fn own(call: &CallLine, collective: Collective, members: usize) -> Result<Own, String> {
    let root = match call.root {
        Some(root) => {
            let index = usize::try_from(root).ok().filter(|root| *root < members);
            Some(index.ok_or_else(|| format!("root {root}; the group has {members} members"))?)
        }
        None if collective.is_rooted() => return Err(format!("{collective} without a root")),
        None => None,
    };
    let op: Option<ReduceOp> = call.op.as_deref().map(named).transpose()?;
    if collective.reduces() && op.is_none() {
        return Err(format!("{collective} without a reduction"));
    }
    let dtype: Option<DType> = call.dtype.as_deref().map(named).transpose()?;
    if dtype.is_none() && !collective.is_empty() {
        return Err(format!("{collective} without an element type"));
    }
    let lengths = match collective.counting() {
        Counting::Splits => Lengths::Splits {
            send: lengths(&call.send, members, "send")?,
            recv: lengths(&call.recv, members, "recv")?,
        },
        Counting::Blocks => Lengths::Blocks(lengths(&call.counts, members, "counts")?),
        Counting::Uniform | Counting::Buffers => {
            let count = call
                .count
                .ok_or_else(|| format!("{collective} without a count"))?;
            Lengths::Uniform(length(count)?)
        }
        Counting::Messages | Counting::Objects => {
            return Err(format!("{collective} is not recorded by itself"));
        }
    };
    Ok(Own {
        collective,
        dtype,
        op,
        root,
        lengths,
    })
}
