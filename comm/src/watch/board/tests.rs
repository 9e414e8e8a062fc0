//! What is written on a board, as it is read back.

use super::map::RECORDS;
use super::memory::FILE_NAME;
use super::*;
use crate::sync::AtomicBool;
use crate::types::Collective;
use crate::watch::report::{CallOutcome, GroupState};

fn opening(seq: u64, site: &'static Location<'static>) -> Opening {
    let call = CallCode {
        word: Collective::AllReduce as u64,
        count: 7,
    };
    let title = Title {
        call,
        seq,
        site,
        thread: 1,
        is_async: true,
    };
    Opening {
        title,
        started: Clock::now(),
        queued_ms: 3,
        is_collective: true,
    }
}

#[test]
fn a_call_that_did_not_wait_is_remembered_and_counts_as_entered() {
    let board = Board::create(3, 8, 99, false).unwrap();
    let berth = board.berth(42, "tp-0", &[3, 5], 1).unwrap();
    let mut title = opening(6, Location::caller()).title;
    (title.thread, title.is_async) = (2, false);
    board.pass(berth, &title, 6);
    let report = board.report(10);
    let group = report.group(42).unwrap();
    assert_eq!((group.entered, group.thread), (6, 2));
    assert!(group.call.is_none());
    let [call] = report.calls.as_slice() else {
        unreachable!("one call: {:?}", report.calls);
    };
    assert_eq!((call.seq, call.outcome), (6, CallOutcome::Completed));
    assert!(call.site.contains("board"), "{}", call.site);
    assert!(call.started_ns > 0);
}

#[test]
fn a_call_stands_on_the_board_from_its_beginning_to_its_end() {
    let board = Board::create(3, 8, 99, false).unwrap();
    let berth = board.berth(42, "tp-0", &[3, 5, 7], 1).unwrap();
    let here = Location::caller();
    let entered = board.begin(berth, &opening(1, here));
    board.waits(berth, Clock::now(), &[1, 2], true);
    board.waits(berth, Clock::now(), &[1, 2], false);
    let report = board.report(10);
    assert_eq!((report.rank, report.world_size), (3, 8));
    let group = report.group(42).unwrap();
    assert_eq!(
        (group.name.as_str(), group.members.as_slice()),
        ("tp-0", [3, 5, 7].as_slice())
    );
    let call = group.call.as_ref().unwrap();
    assert_eq!((call.seq, call.call.count, group.entered), (1, 7, 1));
    assert_eq!(
        (call.is_async, group.thread, group.awaited_by),
        (true, 1, 0)
    );
    board.set_awaited(berth, 1);
    assert_eq!(board.report(0).group(42).unwrap().awaited_by, 1);
    board.set_awaited(berth, 0);
    assert!(
        call.site
            .ends_with(&format!("board/tests.rs:{}", here.line())),
        "{}",
        call.site
    );
    let wait = call.wait.as_ref().unwrap();
    assert_eq!(
        (wait.missing.as_slice(), wait.checks),
        ([5, 7].as_slice(), 2)
    );
    let version = group.version;
    board.end(entered, 1, true);
    let report = board.report(10);
    let group = report.group(42).unwrap();
    assert_eq!(group.call, None);
    assert!(group.version > version && version.is_multiple_of(2));
    let record = report.last_completed().unwrap();
    assert_eq!(
        (record.seq, record.outcome, record.group.as_str()),
        (1, CallOutcome::Completed, "tp-0")
    );
    assert_eq!(record.started_ns - record.enqueued_ns, 3_000_000);
    board.release(berth);
    assert_eq!(board.report(10).group(42), None);
}

/// What a board tells of a group whose first call waits for the members at these indices.
fn told(board: &Board, members: &[u32], missing: &[usize]) -> GroupState {
    let berth = board.berth(42, "tp-0", members, 1).unwrap();
    board.begin(berth, &opening(1, Location::caller()));
    board.waits(berth, Clock::now(), missing, true);
    let group = board.report(0).group(42).unwrap().clone();
    board.release(berth);
    group
}

#[test]
fn a_board_tells_all_members_of_a_large_group_and_all_that_are_missing() {
    let board = Board::create(0, 16_384, 1, false).unwrap();
    for size in [64_usize, 65, 128, 256, 1024, 2048, 16_384] {
        let count = u32::try_from(size).unwrap();
        let in_order: Vec<u32> = (0..count).collect();
        let strided: Vec<u32> = (0..count).map(|rank| rank * 8 + 5).collect();
        // 7919 is prime: no order that a run has.
        let mixed: Vec<u32> = (0..count).map(|rank| rank * 7919 % 16_381).collect();
        for members in [in_order, strided, mixed] {
            for missing in [vec![size - 1], (0..size).collect(), vec![3, 40, size - 1]] {
                let group = told(&board, &members, &missing);
                assert_eq!(
                    (group.members.as_slice(), group.names_all()),
                    (members.as_slice(), true)
                );
                let wait = group.call.unwrap().wait.unwrap();
                let ranks: Vec<u32> = missing.iter().map(|at| members[*at]).collect();
                assert_eq!((wait.missing, wait.missing_more), (ranks, 0));
            }
        }
    }
}

#[test]
fn what_a_board_has_no_room_for_is_told_as_a_number() {
    // Squares: each missing index is a run of its own or half of one.
    let members: Vec<u32> = (0..4096).collect();
    let missing: Vec<usize> = (0..64).map(|root| root * root).collect();
    let board = Board::create(0, 4096, 1, true).unwrap();
    let wait = told(&board, &members, &missing).call.unwrap().wait.unwrap();
    assert_eq!(wait.missing.len() + wait.missing_more as usize, 64);
    assert!(wait.missing_more > 0);
    assert!(
        wait.missing
            .iter()
            .all(|rank| missing.contains(&(*rank as usize)))
    );
    // A reader from outside knows that it does not see all members of a group without order.
    let mixed: Vec<u32> = (0..128).map(|rank| rank * rank).collect();
    let berth = board.berth(43, "mixed", &mixed, 1).unwrap();
    board.begin(berth, &opening(1, Location::caller()));
    board.waits(berth, Clock::now(), &[1, 100], true);
    assert_eq!(board.report(0).group(43).unwrap().members, mixed);
    let reports = of_process(std::process::id()).unwrap();
    let seen = reports.iter().find_map(|report| report.group(43)).unwrap();
    assert_eq!((seen.names_all(), seen.size), (false, 128));
    assert!(mixed.starts_with(&seen.members));
    let wait = seen.call.as_ref().unwrap().wait.as_ref().unwrap();
    assert_eq!(
        (wait.missing.as_slice(), wait.missing_more),
        ([1].as_slice(), 1)
    );
}

#[test]
fn a_report_of_large_groups_is_short() {
    let board = Board::create(0, 256, 1, false).unwrap();
    let members: Vec<u32> = (0..256).collect();
    for key in 1..=10 {
        let berth = board.berth(key, "tp-0", &members, 1).unwrap();
        board.begin(berth, &opening(1, Location::caller()));
        let missing: Vec<usize> = (1..256).collect();
        board.waits(berth, Clock::now(), &missing, true);
    }
    let bytes = postcard::to_allocvec(&board.report(0)).unwrap();
    assert!(bytes.len() < 2048, "{} bytes", bytes.len());
}

#[test]
fn the_last_calls_are_kept_and_older_ones_make_room() {
    let board = Board::create(0, 1, 1, false).unwrap();
    let berth = board.berth(1, "g", &[0], 1).unwrap();
    for seq in 1..=RECORDS as u64 + 10 {
        let entered = board.begin(berth, &opening(seq, Location::caller()));
        board.end(entered, seq, seq.is_multiple_of(2));
    }
    let calls = board.report(RECORDS).calls;
    assert_eq!(calls.len(), RECORDS);
    assert_eq!(
        (calls[0].seq, calls[RECORDS - 1].seq),
        (11, RECORDS as u64 + 10)
    );
    assert_eq!(calls[0].outcome, CallOutcome::Failed);
}

#[test]
fn calls_of_many_threads_are_all_remembered_each_thread_in_its_order() {
    const CALLS: u64 = 150;
    let board = Board::create(0, 1, 1, false).unwrap();
    let make = |thread: u32| {
        let berth = board.berth(thread.into(), "g", &[0], thread).unwrap();
        for seq in 1..=CALLS {
            let mut title = opening(seq, Location::caller()).title;
            title.thread = thread;
            board.pass(berth, &title, seq);
        }
    };
    std::thread::scope(|scope| {
        for thread in 1..=4 {
            scope.spawn(move || make(thread));
        }
    });
    let calls = board.report(RECORDS).calls;
    for thread in 1..=4 {
        let of_thread = calls.iter().filter(|call| call.thread == thread);
        let seqs: Vec<u64> = of_thread.map(|call| call.seq).collect();
        assert_eq!(seqs, (1..=CALLS).collect::<Vec<u64>>(), "thread {thread}");
    }
    // A thread that was silent for long does not come back with an old number.
    make(5);
    std::thread::scope(|scope| {
        scope.spawn(|| (6..16).for_each(make));
    });
    make(17);
    let calls = board.report(150).calls;
    let (_, last) = calls.split_at(calls.len() - 150);
    assert!(last.iter().all(|call| call.thread == 17));
}

#[test]
fn a_report_has_the_last_calls_of_a_group_that_others_have_called_after() {
    let board = Board::create(0, 1, 1, false).unwrap();
    let make = |key, calls| {
        let berth = board.berth(key, "g", &[0], 1).unwrap();
        for seq in 1..=calls {
            board.pass(berth, &opening(seq, Location::caller()).title, seq);
        }
    };
    make(42, 20);
    make(43, 100);
    let seqs = |calls: usize, key| -> Vec<u64> {
        let report = board.report(calls);
        let of_group = report.calls.iter().filter(|call| call.key == key);
        of_group.map(|call| call.seq).collect()
    };
    assert_eq!(seqs(10, 42), (13..=20).collect::<Vec<u64>>());
    assert_eq!(seqs(10, 43), (91..=100).collect::<Vec<u64>>());
    assert!(seqs(0, 43).is_empty());
    let mut report = board.report(RECORDS);
    report.keep_last_calls(10);
    assert_eq!(report.calls, board.report(10).calls);
}

#[test]
fn communicators_beyond_the_lines_are_counted_and_lines_come_back() {
    let board = Board::create(0, 1, 1, false).unwrap();
    let berths: Vec<_> = (0..LINES)
        .map(|key| board.berth(key as u64 + 1, "g", &[0], 1))
        .collect();
    assert!(berths.iter().all(Option::is_some));
    assert_eq!(board.berth(1, "g", &[0], 1), None);
    assert_eq!(board.report(0).unwatched, 1);
    board.release(berths[7].unwrap());
    assert_eq!(board.berth(1, "g", &[0], 1), berths[7]);
}

#[test]
fn groups_that_were_destroyed_are_remembered_for_a_while() {
    let board = Board::create(0, 1, 1, false).unwrap();
    let make = |key: u64| {
        let berth = board.berth(key, "g", &[0], 1).unwrap();
        let title = opening(key, Location::caller()).title;
        board.pass(berth, &title, key);
        board.release(berth);
    };
    let keys = |report: &Report| {
        let mut keys: Vec<u64> = report.destroyed.iter().map(|group| group.key).collect();
        keys.sort_unstable();
        keys
    };
    assert!(board.report(0).destroyed.is_empty());
    (1..=500).for_each(make);
    let report = board.report(10);
    let last = 501 - KEPT as u64..=500;
    assert_eq!(keys(&report), last.collect::<Vec<u64>>());
    let group = report.destroyed(500).unwrap();
    assert_eq!(
        (group.name.as_str(), group.entered, group.calls),
        ("g", 500, 1)
    );
    assert!(group.age_ms < 60_000);
    let of = |seq: u64| report.calls.iter().find(|call| call.seq == seq).unwrap();
    assert_eq!(of(500).group, "g");
    // What lives is not among them, and takes the place of the oldest.
    let berth = board.berth(501, "g", &[0], 1).unwrap();
    let report = board.report(0);
    assert_eq!((report.groups.len(), report.destroyed(501)), (1, None));
    assert_eq!(report.destroyed(501 - KEPT as u64), None);
    board.release(berth);
    // Of many that were destroyed at once the last ones are told.
    let berths: Vec<_> = (600..700)
        .filter_map(|key| board.berth(key, "g", &[0], 1))
        .collect();
    berths.into_iter().for_each(|berth| board.release(berth));
    assert_eq!(board.report(0).destroyed.len(), KEPT);
}

#[test]
fn readers_of_a_busy_line_never_see_half_a_call() {
    let board = Board::create(0, 1, 1, false).unwrap();
    let berth = board.berth(1, "g", &[0], 1).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for seq in 1..=3000 {
                let call = CallCode {
                    word: seq,
                    count: seq,
                };
                let mut opening = opening(seq, Location::caller());
                opening.title.call = call;
                let entered = board.begin(berth, &opening);
                board.end(entered, seq, true);
            }
        });
        for _ in 0..200 {
            let report = board.report(0);
            if let Some(call) = &report.groups[0].call {
                assert_eq!((call.call.word, call.call.count), (call.seq, call.seq));
            }
        }
    });
}

#[test]
fn another_process_finds_the_board_and_none_where_there_is_none() {
    let board = Board::create(5, 6, 77, true).unwrap();
    let berth = board.berth(42, "tp-0", &[5], 1).unwrap();
    board.begin(berth, &opening(1, Location::caller()));
    let reports = of_process(std::process::id()).unwrap();
    let report = reports
        .iter()
        .find(|report| report.rank == 5 && report.world_size == 6)
        .unwrap();
    assert_eq!(report.group(42).unwrap().entered, 1);
    assert!(matches!(
        of_process(u32::MAX),
        Err(BoardError::System { .. })
    ));
}

#[test]
fn a_process_that_opens_and_closes_boards_of_others_is_still_found_to_have_its_own() {
    let _own = Board::create(3, 8, 99, true).unwrap();
    let pid = std::process::id();
    let mut options = std::fs::OpenOptions::new();
    options.read(true);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                drop(crate::memfd::create(FILE_NAME, 8).unwrap());
            }
        });
        let look = |_| read::boards(pid, &mut options).map(|boards| boards.len());
        let lost = (0..500).map(look).find(|found| !matches!(found, Ok(1..)));
        is_over.store(true, Ordering::Relaxed);
        assert!(lost.is_none(), "{lost:?}");
    });
}
