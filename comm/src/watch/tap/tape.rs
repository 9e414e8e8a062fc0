//! The calls on a board one after the other, for recordings.
//!
//! - TAPE-1: the calls of a communicator come in their order, and those of a stream in theirs.
//! - TAPE-2: a call comes once it has returned, and one of a batch once the batch is complete, or both after [`RIPE_NS`].
//! - TAPE-3: calls that were overwritten before they were read are counted.

use std::collections::HashMap;

use super::board::{
    BATCH_SHIFT, Board, CAPTURED, COMMS, COUNTS, Comm, GROUPED, Kind, RING, State, dtype_of, op_of,
    root_of,
};
use super::publish;
use super::snapshot::{collective, data_type, reduce_op};
use crate::sync::Ordering::{Acquire, Relaxed};
use crate::types::{Collective, DType, ReduceOp, index};

/// How long a call may wait for its end, or for others of its batch.
const RIPE_NS: u64 = 100_000_000;
/// HCCL's numbers of types of one byte that muster lacks.
const BYTES: std::ops::RangeInclusive<u8> = 14..=17;

/// A call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taped {
    /// The key of its communicator.
    pub key: u64,
    /// The number of the call among the communicator's collectives, or among the messages to or from the peer.
    pub seq: u64,
    /// What it is.
    pub collective: Collective,
    /// Element type. Bytes stand for types of one byte that muster lacks, where nothing is reduced.
    pub dtype: Option<DType>,
    /// Reduction.
    pub op: Option<ReduceOp>,
    /// The root, or the peer of a message.
    pub root: Option<u32>,
    /// Elements.
    pub count: u64,
    /// Counts for each member; of splits those to each member, then those from each. None where they were overwritten.
    pub lists: Option<Vec<u64>>,
    /// The stream.
    pub stream: u64,
    /// The batch it belongs to: its thread, and the number there.
    pub batch: Option<(u32, u32)>,
    /// When it was made.
    pub entered_ns: u64,
    /// When it returned.
    pub returned_ns: Option<u64>,
    /// Whether it was carried out: not captured into a graph, and not refused.
    pub is_made: bool,
    /// Calls of the communicator before it that were overwritten.
    pub lost: u64,
    order: u64,
    /// Whether more calls of its batch may come after it has returned.
    is_grouped: bool,
}

/// How far the calls of a board were read.
#[derive(Debug, Default)]
pub struct Tape {
    /// By slot: its generation, and the last call.
    places: HashMap<usize, (u32, u64)>,
}

impl Tape {
    /// The calls that have come since the last time. `is_over` says that no more come.
    pub(super) fn wind(&mut self, board: &Board, now_ns: u64, is_over: bool) -> Vec<Taped> {
        let used = index(board.comms_used.load(Acquire).into()).min(COMMS);
        let mut all: Vec<(usize, u64, Taped)> = Vec::new();
        // A thread shows a call before it numbers its next one: of calls up to this number none is missed in a communicator
        // that is read before that of a later one.
        let mut until = board.order.load(Acquire) + 1;
        for (slot, comm) in board.comms[..used].iter().enumerate() {
            let calls = self.of_comm(board, slot, comm);
            if !is_over {
                let first = calls.iter().position(|(_, call)| !call.is_returned(now_ns));
                let batch = first_open(&calls, now_ns);
                let open = first.into_iter().chain(batch).min();
                until = open.map_or(until, |open| until.min(calls[open].1.order));
            }
            all.extend(calls.into_iter().map(|(ticket, call)| (slot, ticket, call)));
        }
        all.retain(|(_, _, call)| call.order < until);
        all.sort_by_key(|(_, _, call)| call.order);
        for (slot, ticket, _) in &all {
            if let Some((_, last)) = self.places.get_mut(slot) {
                *last = (*last).max(*ticket);
            }
        }
        all.into_iter().map(|(_, _, call)| call).collect()
    }

    /// The calls of a communicator that were not read so far.
    fn of_comm(&mut self, board: &Board, slot: usize, comm: &Comm) -> Vec<(u64, Taped)> {
        let generation = comm.generation.load(Acquire);
        let state = State::of(comm.state.load(Acquire));
        if matches!(state, None | Some(State::Free)) {
            return Vec::new();
        }
        let place = self.places.entry(slot).or_insert((generation, 0));
        if place.0 != generation {
            *place = (generation, 0);
        }
        let last = comm.calls.load(Acquire);
        // The oldest one may be overwritten at this moment.
        let oldest = (last + 2).saturating_sub(RING as u64).max(1);
        let mut lost = oldest.saturating_sub(place.1 + 1);
        let mut calls = Vec::new();
        for ticket in oldest.max(place.1 + 1)..=last {
            match call(board, comm, ticket) {
                Read::Call(mut call) => {
                    call.lost = std::mem::take(&mut lost);
                    calls.push((ticket, *call));
                }
                Read::Overwritten => lost += 1,
                Read::Later => break,
            }
        }
        calls
    }
}

/// The first call of the last batch, where more of it may come.
fn first_open(calls: &[(u64, Taped)], now_ns: u64) -> Option<usize> {
    let (_, last) = calls.last().filter(|(_, last)| last.is_grouped)?;
    let batch = last.batch?;
    let is_ripe = now_ns.saturating_sub(last.entered_ns) > RIPE_NS;
    let is_of_it = |(_, call): &(u64, Taped)| call.batch == Some(batch);
    (!is_ripe)
        .then(|| calls.iter().position(is_of_it))
        .flatten()
}

impl Taped {
    fn is_returned(&self, now_ns: u64) -> bool {
        self.returned_ns.is_some() || now_ns.saturating_sub(self.entered_ns) > RIPE_NS
    }
}

enum Read {
    Call(Box<Taped>),
    /// A later call is in its place.
    Overwritten,
    /// It is being written.
    Later,
}

fn call(board: &Board, comm: &Comm, ticket: u64) -> Read {
    let call = &comm.ring[index(ticket % RING as u64)];
    let read = publish::read_call(&call.ticket, ticket, || {
        let code = call.code.load(Relaxed);
        let collective = collective(Kind::of(code)?);
        let flags = call.flags.load(Relaxed);
        let returned_ns = call.span.returned_ns.load(Acquire);
        let result = call.result.load(Relaxed);
        let batch = flags >> BATCH_SHIFT;
        Some(Taped {
            key: comm.key.load(Relaxed),
            seq: call.seq.load(Relaxed),
            collective,
            dtype: dtype_of(code).and_then(|number| {
                let is_byte = BYTES.contains(&number) && !collective.reduces();
                data_type(number).or_else(|| is_byte.then_some(DType::U8))
            }),
            op: op_of(code).and_then(reduce_op),
            root: root_of(code),
            count: call.count.load(Relaxed),
            lists: lists(board, call.lists_at.load(Relaxed), call.lists.load(Relaxed)),
            stream: call.stream.load(Relaxed),
            batch: (batch != 0).then(|| (call.thread.load(Relaxed), batch)),
            entered_ns: call.span.entered_ns.load(Relaxed),
            returned_ns: (returned_ns != 0).then_some(returned_ns),
            is_made: flags & CAPTURED == 0 && (returned_ns == 0 || result == 0),
            lost: 0,
            order: call.order.load(Relaxed),
            is_grouped: flags & GROUPED != 0,
        })
    });
    match read {
        Some(read) => Read::Call(Box::new(read)),
        None if call.ticket.load(Acquire) > ticket => Read::Overwritten,
        None => Read::Later,
    }
}

/// The lists of a call; none where they were overwritten.
fn lists(board: &Board, at: u64, length: u64) -> Option<Vec<u64>> {
    let place = |number: u64| index(number % COUNTS as u64);
    let read = |number: u64| board.counts[place(number)].load(Acquire);
    let all = (at..at.checked_add(length.min(COUNTS as u64))?)
        .map(read)
        .collect();
    let used = board.counts_used.load(Relaxed);
    (used <= at + COUNTS as u64).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::tap::board::{Call, code};
    use crate::watch::tap::files::blank;

    const NOW_NS: u64 = 1_000_000_000;

    /// A board with communicators in its first slots.
    fn board(comms: u32) -> Box<Board> {
        let board = blank();
        for (comm, key) in board.comms.iter().take(comms as usize).zip(100..) {
            comm.key.store(key, Relaxed);
            comm.state.store(State::Live as u32, Relaxed);
        }
        board.comms_used.store(comms, Relaxed);
        board
    }

    /// A call, written down as the tap does.
    fn make(board: &Board, slot: usize, returned_ns: u64, flags: u32) -> &Call {
        let comm = &board.comms[slot];
        let order = board.order.fetch_add(1, Relaxed) + 1;
        let ticket = comm.calls.fetch_add(1, Relaxed) + 1;
        let call = &comm.ring[index(ticket % RING as u64)];
        let sum = code(Kind::AllReduce, Some(4), Some(0), None);
        for (place, value) in [
            (&call.order, order),
            (&call.seq, ticket),
            (&call.code, sum),
            (&call.count, 5),
            (&call.span.entered_ns, NOW_NS - 10),
            (&call.span.returned_ns, returned_ns),
        ] {
            place.store(value, Relaxed);
        }
        call.flags.store(flags, Relaxed);
        call.ticket.store(ticket, Relaxed);
        call
    }

    fn orders(calls: &[Taped]) -> Vec<u64> {
        calls.iter().map(|call| call.order).collect()
    }

    #[test]
    fn calls_of_several_communicators_come_once_and_in_the_order_in_which_they_were_made() {
        let (board, mut tape) = (board(2), Tape::default());
        for slot in [0, 1, 1, 0] {
            make(&board, slot, NOW_NS, 0);
        }
        let calls = tape.wind(&board, NOW_NS, false);
        assert_eq!(orders(&calls), [1, 2, 3, 4]);
        let keys: Vec<u64> = calls.iter().map(|call| call.key).collect();
        assert_eq!(keys, [100, 101, 101, 100]);
        let first = &calls[0];
        assert_eq!(
            (first.dtype, first.op),
            (Some(DType::F32), Some(ReduceOp::Sum))
        );
        assert!(tape.wind(&board, NOW_NS, false).is_empty());
        make(&board, 0, NOW_NS, 0);
        assert_eq!(orders(&tape.wind(&board, NOW_NS, false)), [5]);
    }

    #[test]
    fn a_call_that_has_not_returned_holds_up_those_behind_it_for_a_while() {
        let (board, mut tape) = (board(2), Tape::default());
        make(&board, 0, NOW_NS, 0);
        let open = make(&board, 1, 0, 0);
        make(&board, 0, NOW_NS, 0);
        assert_eq!(orders(&tape.wind(&board, NOW_NS, false)), [1]);
        assert!(tape.wind(&board, NOW_NS, false).is_empty());
        let later = NOW_NS + RIPE_NS;
        assert_eq!(orders(&tape.wind(&board, later, false)), [2, 3]);
        open.ticket.store(0, Relaxed);
        assert!(tape.wind(&board, later, true).is_empty());
    }

    #[test]
    fn calls_of_a_group_come_together() {
        let (board, mut tape) = (board(1), Tape::default());
        let grouped = GROUPED | 7 << BATCH_SHIFT;
        make(&board, 0, NOW_NS, 0);
        make(&board, 0, NOW_NS, grouped);
        assert_eq!(orders(&tape.wind(&board, NOW_NS, false)), [1]);
        make(&board, 0, NOW_NS, grouped);
        assert!(tape.wind(&board, NOW_NS, false).is_empty());
        make(&board, 0, NOW_NS, 0);
        let calls = tape.wind(&board, NOW_NS, false);
        assert_eq!(orders(&calls), [2, 3, 4]);
        let batches: Vec<bool> = calls
            .iter()
            .map(|call| call.batch == Some((0, 7)))
            .collect();
        assert_eq!(batches, [true, true, false]);
    }

    #[test]
    fn calls_that_were_overwritten_are_counted() {
        let (board, mut tape) = (board(1), Tape::default());
        make(&board, 0, NOW_NS, 0);
        tape.wind(&board, NOW_NS, false);
        for _ in 0..RING + 10 {
            make(&board, 0, NOW_NS, 0);
        }
        let calls = tape.wind(&board, NOW_NS, false);
        let made = RING as u64 + 11;
        assert_eq!(calls.last().map(|call| call.seq), Some(made));
        assert_eq!(calls[0].lost + calls.len() as u64, made - 1);
        assert!(calls[1..].iter().all(|call| call.lost == 0));
    }

    #[test]
    fn counts_are_read_as_long_as_they_are_there() {
        let (board, mut tape) = (board(1), Tape::default());
        let last = board.counts.last().expect("room");
        last.store(8, Relaxed);
        board.counts[0].store(9, Relaxed);
        let call = make(&board, 0, NOW_NS, 0);
        call.lists_at.store(COUNTS as u64 - 1, Relaxed);
        call.lists.store(2, Relaxed);
        board.counts_used.store(2 * COUNTS as u64 - 1, Relaxed);
        let calls = tape.wind(&board, NOW_NS, false);
        assert_eq!(calls[0].lists, Some(vec![8, 9]));
        let mut tape = Tape::default();
        board.counts_used.fetch_add(1, Relaxed);
        assert_eq!(tape.wind(&board, NOW_NS, false)[0].lists, None);
    }

    #[test]
    fn a_call_that_was_captured_or_refused_was_not_made() {
        let (board, mut tape) = (board(1), Tape::default());
        make(&board, 0, NOW_NS, 0);
        make(&board, 0, NOW_NS, CAPTURED);
        make(&board, 0, NOW_NS, 0).result.store(5, Relaxed);
        let calls = tape.wind(&board, NOW_NS, false);
        let made: Vec<bool> = calls.iter().map(|call| call.is_made).collect();
        assert_eq!(made, [true, false, false]);
    }
}
