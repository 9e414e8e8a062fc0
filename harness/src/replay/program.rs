//! What ranks are to do: the calls that were recorded of all their members, in the order of each thread.
//!
//! PROGRAM-1: members of a collective agree on it, and on each message its two ends. Where they do not, the recording is refused, and the
//! error names both lines.
//! PROGRAM-2: a collective that was not recorded of all members is left out on all of them, and a message without its other
//! end too: a file was cut off, or had no room.
//! PROGRAM-3: the calls of a communicator keep their order on each rank, whichever threads make them.

use std::collections::BTreeMap;
use std::fmt;

use muster_comm::types::{Collective, DType, ReduceOp};

use super::draft::{Call, Draft, Lengths, Own, What};
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
    Messages {
        /// What the program called: a send, a receive, or a batch.
        call: Collective,
        /// The messages.
        messages: Vec<Message>,
    },
}

/// A call of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The communicator, by its place in [`RankProgram::groups`].
    pub group: usize,
    /// The number of the call on it.
    pub seq: u64,
    /// How many calls of this rank on it come before.
    pub turn: u64,
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
        let mut turns = vec![0; draft.groups.len()];
        // A rank that sends to itself is both ends.
        let mut numbers: BTreeMap<(u64, usize, usize, bool), u64> = BTreeMap::new();
        for call in &draft.calls {
            let key = draft.keys[call.group];
            let action = match &call.what {
                What::Collective(_) => known.get(&(key, call.seq)).cloned(),
                What::Messages(name, messages) => {
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
                    (!kept.is_empty()).then_some(Action::Messages {
                        call: *name,
                        messages: kept,
                    })
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
                turn: turns[call.group],
                pause_us: call.pause_us,
                action,
            });
            turns[call.group] += 1;
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

/// A collective as one rank recorded it: the rank, and the call.
type Side<'a> = (usize, &'a Call, &'a Own);

/// The collectives that were recorded of all members, by key of the group and number.
type Collectives = BTreeMap<(u64, u64), Action>;

fn collectives(files: &[Recorded], ranks: &[Draft]) -> Result<Collectives, Problem> {
    // Who recorded each: rank and call, in the order of the group's members.
    let mut all: BTreeMap<(u64, u64), Vec<Side<'_>>> = BTreeMap::new();
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
fn agreed(files: &[Recorded], group: &Group, calls: &[Side<'_>]) -> Result<Action, Problem> {
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
            let What::Messages(_, messages) = &call.what else {
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
