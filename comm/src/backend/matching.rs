//! Comparing calls before data: who made another call than the rest, and in what it differs.
//!
//! Pure: all members see the same entries, so all of them come to the same words.

use super::Request;
use super::exchange::Exchange;
use crate::algo::select::marked;
use crate::error::{ErrorKind, Field};
use crate::transport::shm::slot::{Entry, PAYLOAD_MAX};
use crate::types::{Collective, DType, Rank, ReduceOp, index};
use crate::watch::{Slip, fault_of};

/// Where the user's choice of an algorithm lies in the word of the call.
pub(super) const WAY_SHIFT: u32 = 24;

/// Names the ranks that made different calls. The call of the majority stands as right (the
/// lowest rank's where there is none), so that all ranks say the same.
pub(super) fn judge(members: &[Rank], request: &Request<'_>, exchange: &Exchange) -> ErrorKind {
    let entries = &exchange.entries;
    let (usual, odd) = sides(entries);
    let (a, b) = (&entries[usual], &entries[odd]);
    let field = differing_field(a, b);
    let splits = |i: usize| {
        if request.packed.is_empty() {
            let row: Vec<u64> = exchange.row(i, request.row().len()).collect();
            return format!("counts {row:?}");
        }
        // The first number says how many follow; no payload has more.
        let number = exchange.row(i, 1).next().map_or(0, index);
        let row = exchange.row(i, number.min(PAYLOAD_MAX / 8) + 1);
        let lengths: Vec<u64> = row.skip(1).collect();
        format!("buffers of {lengths:?} elements")
    };
    let (mine, theirs) = if field == Field::Splits {
        (splits(usual), splits(odd))
    } else {
        (describe(a), describe(b))
    };
    ErrorKind::Mismatch {
        field,
        rank: members[usual],
        mine,
        peer: members[odd],
        theirs,
    }
}

/// The members that make the usual call and an odd one; the first two of each.
fn sides(entries: &[Entry]) -> (usize, usize) {
    let face = |entry: &Entry| (entry.call, entry.count, entry.splits);
    let votes = |i: usize| {
        entries
            .iter()
            .filter(|e| face(e) == face(&entries[i]))
            .count()
    };
    let mut usual = 0;
    for i in 1..entries.len() {
        if votes(i) > votes(usual) {
            usual = i;
        }
    }
    let odd = (0..entries.len())
        .find(|i| face(&entries[*i]) != face(&entries[usual]))
        .unwrap_or(usual);
    (usual, odd)
}

/// As [`judge`], for calls without splits.
pub(crate) fn mismatch(members: &[Rank], entries: &[Entry]) -> ErrorKind {
    let (usual, odd) = sides(entries);
    ErrorKind::Mismatch {
        field: differing_field(&entries[usual], &entries[odd]),
        rank: members[usual],
        mine: describe(&entries[usual]),
        peer: members[odd],
        theirs: describe(&entries[odd]),
    }
}

/// Names the rank that is out of step, by the places in the program that the calls come from.
pub(super) fn slipped(members: &[Rank], exchange: &Exchange, slip: Slip) -> ErrorKind {
    let call = |member: usize| describe(&exchange.entries[member]);
    ErrorKind::Mismatch {
        field: Field::Sequence,
        rank: members[slip.usual],
        mine: call(slip.usual),
        peer: members[slip.odd],
        theirs: slip.words(&call(slip.odd)),
    }
}

/// For an exchange of splits: what each rank sends must be what its peer expects. `peer` is the rank
/// that disagrees with most others, or the one that sends.
pub(super) fn check_splits(members: &[Rank], exchange: &Exchange) -> Result<(), ErrorKind> {
    let Some(fault) = fault_of(members.len(), |member| exchange.splits_of(member)) else {
        return Ok(());
    };
    let (sender, receiver) = (members[fault.sender], members[fault.receiver]);
    let sends = format!("{} elements for rank {receiver}", fault.sends);
    let expects = format!("{} expected from rank {sender}", fault.expects);
    let (rank, mine, peer, theirs) = if fault.odd == fault.sender {
        (receiver, expects, sender, sends)
    } else {
        (sender, sends, receiver, expects)
    };
    Err(ErrorKind::Mismatch {
        field: Field::Splits,
        rank,
        mine,
        peer,
        theirs,
    })
}

fn differing_field(a: &Entry, b: &Entry) -> Field {
    let byte = |word: u64, at: u32| (word >> at) & 0xff;
    if byte(a.call, 0) != byte(b.call, 0) {
        Field::Collective
    } else if byte(a.call, 8) != byte(b.call, 8) {
        Field::Dtype
    } else if byte(a.call, 16) != byte(b.call, 16) {
        Field::Op
    } else if byte(a.call, WAY_SHIFT) != byte(b.call, WAY_SHIFT) {
        Field::Algorithm
    } else if a.call != b.call {
        Field::Root
    } else if a.count != b.count {
        Field::Count
    } else {
        Field::Splits
    }
}

/// A call as an entry tells it: `all_reduce(f32[1024], sum)`.
pub(crate) fn describe(entry: &Entry) -> String {
    let byte = |at: u32| (entry.call >> at).to_le_bytes()[0];
    let name = |name: Option<&'static str>| name.unwrap_or("unknown");
    let collective = Collective::from_code(byte(0));
    let mut text = name(collective.map(Collective::name)).to_owned();
    if collective.is_some_and(Collective::is_empty) {
        return text;
    }
    let dtype = name(DType::from_code(byte(8)).map(DType::name));
    text = format!("{text}({dtype}[{}]", entry.count);
    if byte(16) != 0 {
        text = format!(
            "{text}, {}",
            name(ReduceOp::from_code(byte(16)).map(ReduceOp::name))
        );
    }
    text = match entry.call >> 32 {
        0 => format!("{text})"),
        root => format!("{text}, root {})", root - 1),
    };
    let way = collective.and_then(|collective| marked(collective, byte(WAY_SHIFT)));
    match way {
        Some(way) => format!("{text} by {way}"),
        None => text,
    }
}
