//! What ranks say of the calls that they gave their devices, and how two such calls differ.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::{ErrorKind, Field};
use crate::types::{Collective, DType, Rank, ReduceOp};
use crate::watch::report::CallCode;

/// How far a call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Stage {
    /// Its completion was observed, this long after it began.
    Completed {
        /// Milliseconds from the entry to the observation.
        after_ms: u64,
    },
    /// The vendor took it; the device has not completed it.
    Enqueued,
    /// The vendor's call has not returned.
    Entering,
    /// The vendor refused it, or reported an error for it.
    Failed,
}

/// What was asked of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ask {
    pub(crate) collective: Collective,
    pub(crate) dtype: Option<DType>,
    /// Elements, as the call counts them on this rank.
    pub(crate) count: u64,
    pub(crate) op: Option<ReduceOp>,
    pub(crate) root: Option<u32>,
}

impl Ask {
    /// As boards show it.
    pub(crate) fn code(&self) -> CallCode {
        let op = self.op.map_or(0, |op| op as u64);
        let dtype = self.dtype.map_or(0, |dtype| dtype as u64);
        let root = self.root.map_or(0, |root| u64::from(root) + 1);
        CallCode {
            word: self.collective as u64 | dtype << 8 | op << 16 | root << 32,
            count: self.count,
        }
    }
}

/// One call, as a stall report tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Deed {
    /// Number among the group's collectives; for messages that of the collective before them.
    pub(crate) seq: u64,
    pub(crate) ask: Ask,
    /// Where the program makes it.
    pub(crate) site: String,
    /// Milliseconds since the call began.
    pub(crate) age_ms: u64,
    pub(crate) stage: Stage,
}

impl Deed {
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Enqueued | Stage::Entering)
    }

    pub(crate) fn is_message(&self) -> bool {
        self.ask.collective.is_of_messages()
    }

    /// `all_gather #17 on tp-0 on npu`; messages have no number.
    pub(super) fn name_on(&self, group: &str) -> String {
        if self.is_message() {
            return format!("{} on {group}", self.ask.collective);
        }
        format!("{} #{} on {group}", self.ask.collective, self.seq)
    }
}

/// What a rank says when a call did not end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Words {
    /// The wall clock when it spoke.
    pub(crate) wall_ms: u64,
    /// Collectives that were made so far.
    pub(crate) made: u64,
    /// The last calls, oldest first.
    pub(crate) deeds: Vec<Deed>,
    /// Messages enqueued to each member so far.
    pub(crate) sent: BTreeMap<u32, u64>,
    /// Receives enqueued from each member so far.
    pub(crate) received: BTreeMap<u32, u64>,
    /// The error that the vendor reported, and milliseconds since.
    pub(crate) fault: Option<(ErrorKind, u64)>,
}

/// The mismatch among calls of one number, where they are not alike, and the ranks whose calls differ from what most
/// made; where as many made either, from that of the first.
pub(crate) fn mismatch(made: &[(Rank, &Ask)]) -> Option<(ErrorKind, Vec<Rank>)> {
    let mut sides: Vec<Vec<(Rank, &Ask)>> = Vec::new();
    for one in made {
        let alike = |side: &&mut Vec<(Rank, &Ask)>| difference(side[0].1, one.1).is_none();
        match sides.iter_mut().find(alike) {
            Some(side) => side.push(*one),
            None => sides.push(vec![*one]),
        }
    }
    sides.sort_by_key(|side| std::cmp::Reverse(side.len()));
    let (rank, usual) = sides.first()?[0];
    let (peer, odd) = sides.get(1)?[0];
    let (field, mine, theirs) = difference(usual, odd)?;
    let kind = ErrorKind::Mismatch {
        field,
        rank,
        mine,
        peer,
        theirs,
    };
    let odd = sides[1..].iter().flatten().map(|(rank, _)| *rank);
    Some((kind, odd.collect()))
}

/// What two calls of one number differ in, with both sides in words.
pub(super) fn difference(mine: &Ask, theirs: &Ask) -> Option<(Field, String, String)> {
    let text = |value: Option<String>| value.unwrap_or_else(|| "none".to_owned());
    if mine.collective != theirs.collective {
        let both = |ask: &Ask| format!("{}{}", ask.collective, shape(ask));
        return Some((Field::Collective, both(mine), both(theirs)));
    }
    if mine.dtype != theirs.dtype {
        let both = |ask: &Ask| text(ask.dtype.map(|dtype| dtype.to_string()));
        return Some((Field::Dtype, both(mine), both(theirs)));
    }
    if mine.op != theirs.op {
        let both = |ask: &Ask| text(ask.op.map(|op| op.to_string()));
        return Some((Field::Op, both(mine), both(theirs)));
    }
    if mine.root != theirs.root {
        let both = |ask: &Ask| text(ask.root.map(|root| root.to_string()));
        return Some((Field::Root, both(mine), both(theirs)));
    }
    if mine.collective.has_one_count() && mine.count != theirs.count {
        return Some((
            Field::Count,
            mine.count.to_string(),
            theirs.count.to_string(),
        ));
    }
    None
}

/// `all_gather #17 (f32[1000])`.
pub(super) fn describe(deed: &Deed) -> String {
    if deed.is_message() {
        return format!("{}{}", deed.ask.collective, shape(&deed.ask));
    }
    format!("{} #{}{}", deed.ask.collective, deed.seq, shape(&deed.ask))
}

fn shape(ask: &Ask) -> String {
    ask.dtype
        .map_or_else(String::new, |dtype| format!(" ({dtype}[{}])", ask.count))
}
