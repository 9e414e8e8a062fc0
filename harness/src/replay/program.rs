//! What ranks are to do: the calls that were recorded of all their members, in the order of each thread.
//!
//! PROGRAM-1: members of a collective agree on it, and on each message its two ends. Where they do not, the recording is refused, and the
//! error names both lines.
//! PROGRAM-2: a collective that was not recorded of all members is left out on all of them, and a message without its other
//! end too: a file was cut off, or had no room.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use muster_comm::types::{Collective, DType, ReduceOp};
use muster_comm::watch::record::{CallLine, Line, MessageLine};

use super::read::Recorded;

/// Why a recording cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}")]
pub struct Problem {
    /// The file, and the line where there is one.
    pub place: String,
    /// What is wrong there.
    pub what: String,
}

impl Problem {
    pub(super) fn at(file: &str, line: usize, what: impl fmt::Display) -> Self {
        Self {
            place: format!("{file} line {line}"),
            what: what.to_string(),
        }
    }

    pub(super) fn of_file(file: &str, what: String) -> Self {
        Self {
            place: file.to_owned(),
            what,
        }
    }
}

/// The lengths of a collective.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Counts {
    /// One count that all ranks share.
    Uniform(usize),
    /// The length of every rank's block.
    Blocks(Vec<usize>),
    /// What each member sends to each other, by sender.
    Splits(Vec<Vec<usize>>),
}

/// A message between this rank and another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Whether this rank sends it.
    pub sends: bool,
    /// Index of the other member.
    pub peer: usize,
    /// Element type.
    pub dtype: DType,
    /// Elements.
    pub count: usize,
    /// Its number among the messages from the sender to the receiver on this communicator.
    pub number: u64,
}

/// What a rank does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A collective.
    Collective {
        /// Which.
        collective: Collective,
        /// Element type; that of bytes where it has none.
        dtype: DType,
        /// Reduction; `Sum` where it has none.
        op: ReduceOp,
        /// Index of the root; 0 where there is none.
        root: usize,
        /// Lengths.
        counts: Counts,
    },
    /// Messages that are posted together.
    Messages(Vec<Message>),
}

/// A call of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The communicator, by its place in [`RankProgram::groups`].
    pub group: usize,
    /// The number of the call on it.
    pub seq: u64,
    /// Microseconds since the thread's call before it had ended.
    pub pause_us: u64,
    /// What it is.
    pub action: Action,
}

/// A communicator of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// World ranks.
    pub members: Vec<u32>,
}

/// What one rank does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankProgram {
    /// Its communicators, in the order in which it made them.
    pub groups: Vec<Group>,
    /// The calls of each of its threads. Those of the worker of a communicator are a thread of their own.
    pub threads: Vec<Vec<Step>>,
}

/// What all ranks do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// By rank.
    pub ranks: Vec<RankProgram>,
    /// Calls that were recorded and are left out (PROGRAM-2).
    pub left_out: u64,
    /// Calls that the recorders had no room for.
    pub lost: u64,
    /// Ranks whose file has no end.
    pub cut: Vec<u32>,
}

impl Program {
    /// Calls of all ranks.
    #[must_use]
    pub fn calls(&self) -> usize {
        let threads = self.ranks.iter().flat_map(|rank| &rank.threads);
        threads.map(Vec::len).sum()
    }

    pub(super) fn of(files: Vec<Recorded>) -> Result<Self, Problem> {
        let mut ranks = Vec::new();
        for file in &files {
            ranks.push(Draft::of(file, files.len())?);
        }
        let collectives = collectives(&files, &ranks)?;
        let messages = messages(&files, &ranks)?;
        let mut program = Self {
            lost: files.iter().map(|file| file.lost).sum(),
            cut: (0..)
                .zip(&files)
                .filter(|(_, file)| file.is_cut)
                .map(|(rank, _)| rank)
                .collect(),
            ..Self::default()
        };
        for (rank, draft) in ranks.iter().enumerate() {
            program.add(rank, draft, &collectives, &messages);
        }
        Ok(program)
    }

    fn add(&mut self, rank: usize, draft: &Draft, known: &Collectives, pairs: &Pairs) {
        let mut threads: BTreeMap<(u32, Option<u64>), Vec<Step>> = BTreeMap::new();
        // A rank that sends to itself is both ends.
        let mut numbers: BTreeMap<(u64, usize, usize, bool), u64> = BTreeMap::new();
        for call in &draft.calls {
            let key = draft.keys[call.group];
            let action = match &call.what {
                What::Collective(_) => known.get(&(key, call.seq)).cloned(),
                What::Messages(messages) => {
                    let me = draft.index(call.group, rank);
                    let number = |message: &Message| {
                        let (from, to) = ends(me, message);
                        let next = numbers.entry((key, from, to, message.sends)).or_default();
                        *next += 1;
                        let number = *next - 1;
                        let most = pairs.get(&(key, from, to)).copied().unwrap_or(0);
                        (number < most).then_some(Message { number, ..*message })
                    };
                    let kept: Vec<Message> = messages.iter().filter_map(number).collect();
                    (!kept.is_empty()).then_some(Action::Messages(kept))
                }
            };
            let Some(action) = action else {
                self.left_out += 1;
                continue;
            };
            let lane = (call.thread, call.is_async.then_some(key));
            threads.entry(lane).or_default().push(Step {
                group: call.group,
                seq: call.seq,
                pause_us: call.pause_us,
                action,
            });
        }
        self.ranks.push(RankProgram {
            groups: draft.groups.clone(),
            threads: threads.into_values().collect(),
        });
    }
}

/// The sender and the receiver of a message of a member.
const fn ends(me: usize, message: &Message) -> (usize, usize) {
    if message.sends {
        (me, message.peer)
    } else {
        (message.peer, me)
    }
}

/// The lines of one rank, checked by themselves.
struct Draft {
    groups: Vec<Group>,
    keys: Vec<u64>,
    calls: Vec<Call>,
}

/// A line of a call.
struct Call {
    line: usize,
    group: usize,
    seq: u64,
    thread: u32,
    is_async: bool,
    pause_us: u64,
    what: What,
}

enum What {
    /// With what this rank alone knows of splits.
    Collective(Own),
    Messages(Vec<Message>),
}

/// A collective as one rank recorded it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Own {
    collective: Collective,
    dtype: Option<DType>,
    op: Option<ReduceOp>,
    root: Option<usize>,
    lengths: Lengths,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Lengths {
    Uniform(usize),
    Blocks(Vec<usize>),
    Splits { send: Vec<usize>, recv: Vec<usize> },
}

impl Draft {
    fn of(file: &Recorded, world: usize) -> Result<Self, Problem> {
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
    fn index(&self, group: usize, rank: usize) -> usize {
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
            What::Messages(messages.collect::<Result<_, _>>()?)
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
    use muster_comm::types::Counting;
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

/// The collectives that were recorded of all members, by key of the group and number.
type Collectives = BTreeMap<(u64, u64), Action>;

fn collectives(files: &[Recorded], ranks: &[Draft]) -> Result<Collectives, Problem> {
    // Who recorded each: rank and call, in the order of the group's members.
    let mut all: BTreeMap<(u64, u64), Vec<(usize, &Call, &Own)>> = BTreeMap::new();
    let mut members: BTreeMap<u64, (usize, &Group)> = BTreeMap::new();
    for (rank, draft) in ranks.iter().enumerate() {
        for (key, group) in draft.keys.iter().zip(&draft.groups) {
            let (first, known) = *members.entry(*key).or_insert((rank, group));
            if known != group {
                let what = format!(
                    "group {:?} has members {:?}, and {} has {:?} with members {:?} under the same key",
                    group.name, group.members, files[first].name, known.name, known.members
                );
                return Err(Problem::of_file(&files[rank].name, what));
            }
        }
        for call in &draft.calls {
            if let What::Collective(own) = &call.what {
                let one = all.entry((draft.keys[call.group], call.seq)).or_default();
                if let Some((other, before, _)) = one.last().filter(|(other, _, _)| *other == rank)
                {
                    let what = format!(
                        "call {} of the group is in line {} too",
                        call.seq, before.line
                    );
                    return Err(Problem::at(&files[*other].name, call.line, what));
                }
                one.push((rank, call, own));
            }
        }
    }
    let mut known = Collectives::new();
    for ((key, seq), calls) in all {
        let Some((_, group)) = members.get(&key) else {
            continue;
        };
        if calls.len() == group.members.len() {
            let action = agreed(files, group, &calls)?;
            known.insert((key, seq), action);
        }
    }
    Ok(known)
}

/// What all members recorded of one collective.
fn agreed(
    files: &[Recorded],
    group: &Group,
    calls: &[(usize, &Call, &Own)],
) -> Result<Action, Problem> {
    let (first_rank, first_call, first) = calls[0];
    let differs = |rank: usize, call: &Call, what: String| {
        let other = &files[first_rank].name;
        let what = format!("{what}; {other} line {} has the same call", first_call.line);
        Problem::at(&files[rank].name, call.line, what)
    };
    let index = |rank: usize| {
        let mut members = group.members.iter();
        members
            .position(|member| *member as usize == rank)
            .unwrap_or(0)
    };
    let mut matrix = vec![Vec::new(); group.members.len()];
    for (rank, call, own) in calls {
        let is_same = match (&first.lengths, &own.lengths) {
            (Lengths::Splits { .. }, Lengths::Splits { send, .. }) => {
                matrix[index(*rank)].clone_from(send);
                true
            }
            (one, other) => one == other,
        };
        let plain = |own: &Own| (own.collective, own.dtype, own.op, own.root);
        if !is_same || plain(first) != plain(own) {
            let what = format!("{} is not what rank {first_rank} recorded", own.collective);
            return Err(differs(*rank, call, what));
        }
    }
    for (rank, call, own) in calls {
        if let Lengths::Splits { recv, .. } = &own.lengths {
            let me = index(*rank);
            let wrong = recv
                .iter()
                .enumerate()
                .find(|(from, count)| matrix[*from].get(me) != Some(count));
            if let Some((from, count)) = wrong {
                let what = format!(
                    "receives {count} elements from member {from}, which sends another number"
                );
                return Err(differs(*rank, call, what));
            }
        }
    }
    Ok(Action::Collective {
        collective: first.collective,
        dtype: first.dtype.unwrap_or(DType::U8),
        op: first.op.unwrap_or(ReduceOp::Sum),
        root: first.root.unwrap_or(0),
        counts: match &first.lengths {
            Lengths::Uniform(count) => Counts::Uniform(*count),
            Lengths::Blocks(counts) => Counts::Blocks(counts.clone()),
            Lengths::Splits { .. } => Counts::Splits(matrix),
        },
    })
}

/// How many messages both ends recorded, by key of the group, sender and receiver.
type Pairs = BTreeMap<(u64, usize, usize), u64>;

fn messages(files: &[Recorded], ranks: &[Draft]) -> Result<Pairs, Problem> {
    type End<'a> = (usize, usize, &'a Message);
    let mut sent: BTreeMap<(u64, usize, usize), Vec<End<'_>>> = BTreeMap::new();
    let mut received = sent.clone();
    for (rank, draft) in ranks.iter().enumerate() {
        for call in &draft.calls {
            let What::Messages(messages) = &call.what else {
                continue;
            };
            let me = draft.index(call.group, rank);
            for message in messages {
                let (from, to) = ends(me, message);
                let side = if message.sends {
                    &mut sent
                } else {
                    &mut received
                };
                let of_pair = side.entry((draft.keys[call.group], from, to)).or_default();
                of_pair.push((rank, call.line, message));
            }
        }
    }
    let mut pairs = Pairs::new();
    for (pair, sent) in sent {
        let received = received.remove(&pair).unwrap_or_default();
        let has_lost = |rank: usize| files[rank].lost > 0;
        let ranks = [sent.first(), received.first()];
        // Which of the others belong together is not known.
        if ranks.iter().flatten().any(|(rank, ..)| has_lost(*rank)) {
            continue;
        }
        for ((rank, line, one), (other, other_line, two)) in sent.iter().zip(&received) {
            if (one.dtype, one.count) != (two.dtype, two.count) {
                let what = format!(
                    "sends {}[{}], and {} line {other_line} receives {}[{}]",
                    one.dtype, one.count, files[*other].name, two.dtype, two.count
                );
                return Err(Problem::at(&files[*rank].name, *line, what));
            }
        }
        pairs.insert(pair, sent.len().min(received.len()) as u64);
    }
    Ok(pairs)
}
