//! What the tap keeps of a process: its board, and which communicator has which slot.
//!
//! - RECORD-1: a call costs no lock, no allocation and no system call but the clock's, unless an event is put behind it.
//! - RECORD-2: after any failure of its own the tap only forwards.

#![expect(
    unsafe_code,
    reason = "the board's memory, and answers of the vendor's library"
)]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_void};
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use muster_comm::watch::tap::board::{
    BATCH_SHIFT, Board, CAPTURED, COMMS, COUNTS, Call, Comm, GROUPED, Kind, LISTS_MAX, Mark,
    NAME_BYTES, RING, State, UNKNOWN, code, hash,
};
use muster_comm::watch::tap::publish;

use crate::real::Function;
use crate::shared::{board, guarded, note_error, now_ns, start};
use crate::streams::{self, Stream};

/// Messages to and from so many members have numbers of their own.
const PEERS: usize = 1024;
/// The handle of the communicator in each slot.
static HANDLES: [AtomicU64; COMMS] = [const { AtomicU64::new(0) }; COMMS];
/// Numbers of messages: to and from each peer.
static MESSAGES: [OnceLock<Box<[AtomicU64]>>; COMMS] = [const { OnceLock::new() }; COMMS];
/// How often communicators of each key were made. Slots are given one after the other, under this lock.
static SLOTS: Mutex<BTreeMap<u64, u64>> = Mutex::new(BTreeMap::new());
static NAME: Function = Function::new(c"HcclGetCommName");
static SIZE: Function = Function::new(c"HcclGetRankSize");

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static GROUPS: Cell<u32> = const { Cell::new(0) };
    /// The number of the batch or group that calls belong to, or 0; and the last number.
    static BATCH: Cell<u32> = const { Cell::new(0) };
    static BATCHES: Cell<u32> = const { Cell::new(0) };
    static THREAD: Cell<u32> = const { Cell::new(0) };
}

/// A call of a program, while it is inside the vendor's library.
#[derive(Debug)]
pub(crate) struct Depth;

impl Depth {
    /// Enters; the call of the vendor's library to itself are none of the program.
    pub(crate) fn enter() -> (Self, bool) {
        let before = DEPTH.get();
        DEPTH.set(before + 1);
        (Self, before == 0)
    }
}

impl Drop for Depth {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get().saturating_sub(1));
    }
}

/// `HcclGroupStart` was called, or `HcclGroupEnd` has returned.
pub(crate) fn group(starts: bool) {
    let depth = GROUPS.get();
    let depth = if starts {
        depth + 1
    } else {
        depth.saturating_sub(1)
    };
    GROUPS.set(depth);
    if depth <= u32::from(starts) {
        batch(starts);
    }
}

/// The calls that follow are carried out together, or no longer.
fn batch(starts: bool) {
    if !starts {
        BATCH.set(0);
        return;
    }
    let next = (BATCHES.get() + 1) % (1 << (u32::BITS - BATCH_SHIFT));
    BATCHES.set(next.max(1));
    BATCH.set(next.max(1));
}

/// Notes the items of a batch, which belong together.
pub(crate) fn together(note: impl FnOnce()) {
    let is_own = GROUPS.get() == 0;
    if is_own {
        batch(true);
    }
    note();
    if is_own {
        batch(false);
    }
}

// ---- Communicators ----

/// A communicator that is being created.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Birth {
    pub(crate) key: u64,
    pub(crate) size: u32,
    pub(crate) rank: u32,
    pub(crate) parent: *mut c_void,
}

/// The creation of a communicator begins; the slot that it has.
pub(crate) fn begin(birth: Birth, members: &[u32]) -> Option<usize> {
    guarded(|| {
        start();
        let board = board()?;
        let mut slots = SLOTS.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(at) = take_slot(board) else {
            board.unwatched.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let comm = &board.comms[at];
        let key = key_in_its_life(&mut slots, birth.key);
        comm.key.store(key, Ordering::Relaxed);
        comm.size.store(birth.size, Ordering::Relaxed);
        comm.rank.store(birth.rank, Ordering::Relaxed);
        let parent = slot_of(birth.parent).and_then(|slot| u32::try_from(slot).ok());
        comm.parent
            .store(parent.unwrap_or(UNKNOWN), Ordering::Relaxed);
        for (place, member) in comm.members.iter().zip(members) {
            place.store(*member, Ordering::Relaxed);
        }
        let known = if members.len() > comm.members.len() {
            0
        } else {
            members.len()
        };
        comm.members_known
            .store(u32::try_from(known).unwrap_or(0), Ordering::Relaxed);
        comm.set_name(c"");
        comm.collectives.store(0, Ordering::Relaxed);
        comm.calls.store(0, Ordering::Relaxed);
        if comm.generation.load(Ordering::Relaxed) > 0 {
            comm.ring
                .iter()
                .for_each(|call| call.ticket.store(0, Ordering::Relaxed));
        }
        for number in MESSAGES[at].get().into_iter().flatten() {
            number.store(0, Ordering::Relaxed);
        }
        comm.destroyed.entered_ns.store(0, Ordering::Relaxed);
        comm.destroyed.returned_ns.store(0, Ordering::Relaxed);
        comm.created.returned_ns.store(0, Ordering::Relaxed);
        comm.created.entered_ns.store(now_ns(), Ordering::Relaxed);
        publish::set_state(&comm.state, State::Creating as u32);
        Some(at)
    })
    .flatten()
}

/// All members make communicators of one key equally often: the key of the first, and others for later ones.
fn key_in_its_life(lives: &mut BTreeMap<u64, u64>, key: u64) -> u64 {
    let life = lives.entry(key).or_default();
    *life += 1;
    if *life == 1 {
        key
    } else {
        hash(&life.to_le_bytes(), key)
    }
}

/// A slot that nobody has used, or else the one whose communicator has been gone for the longest time.
fn take_slot(board: &Board) -> Option<usize> {
    let is_in = |comm: &Comm, state: State| comm.state.load(Ordering::Relaxed) == state as u32;
    let mut slots = board.comms.iter();
    let fresh = slots.position(|comm| is_in(comm, State::Free));
    let gone = || {
        let slots = board.comms.iter().enumerate();
        let gone = slots.filter(|(_, comm)| is_in(comm, State::Gone));
        let since = |comm: &Comm| comm.destroyed.returned_ns.load(Ordering::Relaxed);
        gone.min_by_key(|(_, comm)| since(comm)).map(|(at, _)| at)
    };
    let at = fresh.or_else(gone)?;
    if fresh.is_none() {
        publish::take_over(&board.comms[at].state, &board.comms[at].generation);
    }
    let used = u32::try_from(at + 1).unwrap_or(0);
    board.comms_used.fetch_max(used, Ordering::Relaxed);
    Some(at)
}

/// The creation has returned: with a communicator where `result` is 0.
pub(crate) fn created(slot: Option<usize>, result: i32, handle: *mut c_void) {
    let (Some(at), Some(board)) = (slot, board()) else {
        return;
    };
    guarded(|| {
        let comm = &board.comms[at];
        comm.result.store(result.cast_unsigned(), Ordering::Relaxed);
        if result == 0 && !handle.is_null() {
            ask_name(comm, handle);
            let size = comm.size.load(Ordering::Relaxed);
            if size == UNKNOWN {
                ask_size(comm, handle);
            }
            MESSAGES[at].get_or_init(|| (0..2 * PEERS).map(|_| AtomicU64::new(0)).collect());
            HANDLES[at].store(handle.addr() as u64, Ordering::Release);
        }
        comm.created.returned_ns.store(now_ns(), Ordering::Relaxed);
        let state = if result == 0 {
            State::Live
        } else {
            State::Gone
        };
        publish::set_state(&comm.state, state as u32);
    });
}

fn ask_name(comm: &Comm, handle: *mut c_void) {
    type Ask = unsafe extern "C" fn(*mut c_void, *mut c_char) -> i32;
    let address = NAME.hccl();
    if address.is_null() {
        return;
    }
    // SAFETY: the vendor's function of this name has this signature.
    let ask = unsafe { mem::transmute::<*mut c_void, Ask>(address) };
    let mut name = [0; NAME_BYTES];
    // SAFETY: the communicator was just made, and a name has at most this length.
    if unsafe { ask(handle, name.as_mut_ptr()) } == 0 {
        name[NAME_BYTES - 1] = 0;
        // SAFETY: it ends with a zero.
        comm.set_name(unsafe { CStr::from_ptr(name.as_ptr()) });
    }
}

fn ask_size(comm: &Comm, handle: *mut c_void) {
    type Ask = unsafe extern "C" fn(*mut c_void, *mut u32) -> i32;
    let address = SIZE.hccl();
    if address.is_null() {
        return;
    }
    // SAFETY: the vendor's function of this name has this signature.
    let ask = unsafe { mem::transmute::<*mut c_void, Ask>(address) };
    let mut size = 0;
    // SAFETY: the communicator was just made, and the answer has its place.
    if unsafe { ask(handle, &raw mut size) } == 0 {
        comm.size.store(size, Ordering::Relaxed);
    }
}

/// The destruction of a communicator begins, or has returned.
pub(crate) fn destroying(handle: *mut c_void) -> Option<usize> {
    let at = slot_of(handle)?;
    let comm = &board()?.comms[at];
    comm.destroyed.entered_ns.store(now_ns(), Ordering::Relaxed);
    publish::set_state(&comm.state, State::Destroying as u32);
    Some(at)
}

pub(crate) fn destroyed(slot: Option<usize>) {
    let (Some(at), Some(board)) = (slot, board()) else {
        return;
    };
    HANDLES[at].store(0, Ordering::Release);
    board.comms[at]
        .destroyed
        .returned_ns
        .store(now_ns(), Ordering::Relaxed);
    publish::set_state(&board.comms[at].state, State::Gone as u32);
}

/// The slot of a communicator.
pub(crate) fn slot_of(handle: *mut c_void) -> Option<usize> {
    let used = usize::try_from(board()?.comms_used.load(Ordering::Relaxed)).ok()?;
    let handle = handle.addr() as u64;
    if handle == 0 {
        return None;
    }
    HANDLES[..used.min(COMMS)]
        .iter()
        .position(|one| one.load(Ordering::Relaxed) == handle)
}

/// Members of a communicator; 0 where it is not watched.
pub(crate) fn size_of(handle: *mut c_void) -> u32 {
    let slot = slot_of(handle).zip(board());
    slot.map_or(0, |(at, board)| {
        board.comms[at].size.load(Ordering::Relaxed)
    })
}

/// The key of a communicator, for its children.
pub(crate) fn key_of(handle: *mut c_void) -> u64 {
    let slot = slot_of(handle).zip(board());
    slot.map_or(0, |(at, board)| board.comms[at].key.load(Ordering::Relaxed))
}

/// The vendor's library says that a communicator has an error.
pub(crate) fn failed(code: i32, comm: *mut c_void) {
    if let Some(board) = board() {
        note_error(board, code, slot_of(comm));
    }
}

// ---- Calls ----

/// Counts that a call has for each member, where the program has them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lists {
    None,
    /// One for each member.
    Each(*const u64),
    /// What it sends to each member, and what it receives from each.
    Splits(*const u64, *const u64),
    /// What each member sends to each, by sender.
    Matrix(*const u64),
}

/// What a program asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) kind: Kind,
    pub(crate) dtype: Option<i32>,
    pub(crate) op: Option<i32>,
    pub(crate) root: Option<u32>,
    pub(crate) count: u64,
    pub(crate) counts: u64,
    pub(crate) lists: Lists,
}

/// A call that was written down.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noted {
    call: &'static Call,
    ticket: u64,
    order: u64,
    /// Its stream, where an event was put before it.
    marked: Option<&'static Stream>,
}

/// Writes a call down before it goes to the vendor's library.
pub(crate) fn note(handle: *mut c_void, stream: *mut c_void, asked: &Asked) -> Option<Noted> {
    let board = board()?;
    let at = slot_of(handle)?;
    let comm = &board.comms[at];
    let is_captured = board.has_events.load(Ordering::Relaxed) != 0 && streams::is_captured(stream);
    let is_grouped = GROUPS.get() > 0;
    let seq = match asked.root.filter(|_| asked.kind.is_message()) {
        Some(peer) => {
            let place = usize::try_from(peer).ok()? * 2 + usize::from(asked.kind == Kind::Recv);
            MESSAGES[at]
                .get()?
                .get(place)?
                .fetch_add(1, Ordering::Relaxed)
                + 1
        }
        None => comm.collectives.fetch_add(1, Ordering::Relaxed) + 1,
    };
    // Release: who sees this number sees what the thread wrote down before.
    let order = board.order.fetch_add(1, Ordering::Release) + 1;
    let ticket = comm.calls.fetch_add(1, Ordering::Relaxed) + 1;
    let place = usize::try_from(ticket).ok()? % RING;
    let call = &comm.ring[place];
    let flags = if is_captured { CAPTURED } else { 0 } | if is_grouped { GROUPED } else { 0 };
    let flags = flags | BATCH.get() << BATCH_SHIFT;
    let (lists_at, lists) = keep(board, comm, asked.lists);
    let now = now_ns();
    publish::write_call(&call.ticket, ticket, || {
        call.order.store(order, Ordering::Relaxed);
        call.seq.store(seq, Ordering::Relaxed);
        call.code.store(
            code(asked.kind, asked.dtype, asked.op, asked.root),
            Ordering::Relaxed,
        );
        call.count.store(asked.count, Ordering::Relaxed);
        call.counts.store(asked.counts, Ordering::Relaxed);
        call.lists_at.store(lists_at, Ordering::Relaxed);
        call.lists.store(lists, Ordering::Relaxed);
        call.stream.store(stream.addr() as u64, Ordering::Relaxed);
        call.thread.store(thread_number(), Ordering::Relaxed);
        call.flags.store(flags, Ordering::Relaxed);
        call.span.entered_ns.store(now, Ordering::Relaxed);
        call.span.returned_ns.store(0, Ordering::Relaxed);
        call.finished_ns.store(0, Ordering::Relaxed);
        call.mark.store(Mark::None as u32, Ordering::Relaxed);
    });
    let has_events = board.has_events.load(Ordering::Relaxed) != 0;
    let is_plain = has_events && !is_captured && !is_grouped;
    Some(Noted {
        call,
        ticket,
        order,
        marked: is_plain.then(|| streams::begin(stream, now)).flatten(),
    })
}

/// Keeps the lists of a call: where, and how many numbers.
fn keep(board: &Board, comm: &Comm, lists: Lists) -> (u64, u64) {
    let (size, me) = (&comm.size, &comm.rank);
    let size = size.load(Ordering::Relaxed) as usize;
    let me = me.load(Ordering::Relaxed) as usize;
    let (length, is_null) = match lists {
        Lists::None => return (0, 0),
        Lists::Each(counts) => (size, counts.is_null()),
        Lists::Splits(send, recv) => (2 * size, send.is_null() || recv.is_null()),
        Lists::Matrix(matrix) => (2 * size, matrix.is_null() || me >= size),
    };
    if is_null || length == 0 || length > LISTS_MAX {
        return (0, 0);
    }
    // SAFETY: the vendor's library reads a number for each member, of a matrix one for each two.
    let read = |list: *const u64, at: usize| unsafe { list.wrapping_add(at).read_unaligned() };
    let number = |at: usize| match lists {
        Lists::None => 0,
        Lists::Each(counts) => read(counts, at),
        Lists::Splits(send, _) if at < size => read(send, at),
        Lists::Splits(_, recv) => read(recv, at - size),
        Lists::Matrix(matrix) if at < size => read(matrix, me * size + at),
        Lists::Matrix(matrix) => read(matrix, (at - size) * size + me),
    };
    let length_word = length as u64;
    let begin = board.counts_used.fetch_add(length_word, Ordering::Relaxed);
    for (place, at) in (begin..).zip(0..length) {
        let place = usize::try_from(place % COUNTS as u64).unwrap_or(0);
        // Release: who reads this number sees that its place was taken.
        board.counts[place].store(number(at), Ordering::Release);
    }
    (begin, length_word)
}

/// The vendor's library has returned from the call.
pub(crate) fn returned(noted: Option<Noted>, stream: *mut c_void, result: i32) {
    let Some(noted) = noted else { return };
    let now = now_ns();
    let is_marked = noted.marked.is_some_and(|marked| {
        let is_made = result == 0;
        if !is_made {
            marked.release();
        }
        is_made && marked.end(stream, noted.order, now)
    });
    let call = noted.call;
    if board().is_none() || call.ticket.load(Ordering::Relaxed) != noted.ticket {
        return;
    }
    call.result.store(result.cast_unsigned(), Ordering::Relaxed);
    call.span.returned_ns.store(now, Ordering::Release);
    if is_marked {
        call.mark.store(Mark::Set as u32, Ordering::Release);
    }
}

fn thread_number() -> u32 {
    let known = THREAD.get();
    if known != 0 {
        return known;
    }
    // SAFETY: it only asks.
    let number = unsafe { libc::gettid() }.cast_unsigned();
    THREAD.set(number);
    number
}
