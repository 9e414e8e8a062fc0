//! One suite for every kind of stream (STREAM-1 to STREAM-4 of `transport::stream`), and every
//! registered message algorithm over every kind.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod transport_support;

use muster_comm::algo::{ALGORITHMS, Algorithm, Links, Problem};
use muster_comm::sync::Deadline;
use muster_comm::transport::{LinkError, LinkKind, Stream};
use muster_comm::types::{Collective, Counting, DType, ReduceOp};
use std::time::Duration;
use transport_support::job::{How, job, run_in_turn};
use transport_support::links::{mesh, pair, ring_pair};
use transport_support::{scramble, seed};

const KINDS: [LinkKind; 3] = [LinkKind::Shm, LinkKind::Tcp, LinkKind::Sim];

/// The byte at this place of a test's traffic.
fn byte_at(lane: u64, place: usize) -> u8 {
    scramble(lane << 40 | (place as u64 / 8)).to_le_bytes()[place % 8]
}

fn bytes_of(lane: u64, len: usize) -> Vec<u8> {
    (0..len).map(|place| byte_at(lane, place)).collect()
}

/// Bounds every loop of this file.
struct Patience(Deadline);

impl Patience {
    fn new() -> Self {
        Self(Deadline::after(Duration::from_secs(60)))
    }

    fn blocked(&self, what: &dyn std::fmt::Debug) {
        assert!(!self.0.passed(), "{what:?} makes no progress");
        std::thread::yield_now();
    }
}

/// Writes all of `bytes` while the other end reads them, in pieces of the given sizes.
fn pass(from: &mut dyn Stream, to: &mut dyn Stream, bytes: &[u8], write: usize, read: usize) {
    let patience = Patience::new();
    let (mut sent, mut got) = (0, Vec::new());
    let mut piece = vec![0; read];
    while got.len() < bytes.len() {
        let end = (sent + write).min(bytes.len());
        let wrote = from.try_write(&bytes[sent..end]).unwrap();
        sent += wrote;
        let len = to.try_read(&mut piece).unwrap();
        got.extend_from_slice(&piece[..len]);
        if wrote + len == 0 {
            patience.blocked(&(from.kind(), sent, got.len()));
        }
    }
    assert!(got == bytes, "{}: bytes changed on the way", from.kind());
}

/// Reads until there is an error, which it returns with the bytes before it.
fn read_to_end(stream: &mut dyn Stream) -> (Vec<u8>, LinkError) {
    let patience = Patience::new();
    let (mut all, mut piece) = (Vec::new(), [0; 100]);
    loop {
        match stream.try_read(&mut piece) {
            Ok(0) => patience.blocked(&stream),
            Ok(len) => all.extend_from_slice(&piece[..len]),
            Err(error) => return (all, error),
        }
    }
}

#[test]
fn bytes_arrive_once_and_in_order_whatever_the_pieces() {
    for kind in KINDS {
        for (write, read) in [
            (1, 1),
            (1, 7),
            (13, 3),
            (64, 4096),
            (5000, 11),
            (70_000, 70_000),
        ] {
            let (mut near, mut far) = pair(kind, write < 64);
            let bytes = bytes_of(write as u64, 3000 + write * 2);
            pass(near.as_mut(), far.as_mut(), &bytes, write, read);
            pass(far.as_mut(), near.as_mut(), &bytes, read, write);
        }
    }
}

#[test]
fn empty_writes_and_reads_move_nothing_and_end_nothing() {
    for kind in KINDS {
        let (mut near, mut far) = pair(kind, false);
        assert_eq!(near.try_write(&[]), Ok(0));
        assert_eq!(far.try_read(&mut []), Ok(0));
        assert_eq!(
            far.try_read(&mut [0; 4]),
            Ok(0),
            "{kind}: nothing was written"
        );
        near.try_write(&[]).unwrap();
        pass(near.as_mut(), far.as_mut(), &[1], 1, 4);
    }
}

#[test]
fn a_stream_that_nobody_reads_takes_a_bounded_number_of_bytes() {
    let block = vec![7; 1 << 16];
    for kind in KINDS {
        let (mut near, mut far) = pair(kind, true);
        let patience = Patience::new();
        let (mut sent, mut refusals) = (0, 0);
        while refusals < 1000 {
            let len = near.try_write(&block).unwrap();
            sent += len;
            refusals = if len == 0 { refusals + 1 } else { 0 };
            patience.blocked(&(kind, sent));
            assert!(sent < 1 << 30, "{kind}: no back-pressure");
        }
        // What was taken is all there.
        drop(near);
        let (all, error) = read_to_end(far.as_mut());
        assert_eq!((all.len(), error), (sent, LinkError::Closed), "{kind}");
    }
}

#[test]
fn both_directions_carry_ten_mebibytes_at_once() {
    const BYTES: usize = 10 << 20;
    for kind in KINDS {
        let (mut near, mut far) = pair(kind, false);
        let sides = [bytes_of(1, BYTES), bytes_of(2, BYTES)];
        let sums = [crc32fast::hash(&sides[0]), crc32fast::hash(&sides[1])];
        let mut hashers = [crc32fast::Hasher::new(), crc32fast::Hasher::new()];
        let (mut sent, mut got) = ([0; 2], [0; 2]);
        let mut piece = vec![0; 1 << 17];
        let patience = Patience::new();
        while got != [BYTES; 2] {
            let mut moved = 0;
            for (side, stream) in [&mut near, &mut far].into_iter().enumerate() {
                if sent[side] < BYTES {
                    let len = stream.try_write(&sides[side][sent[side]..]).unwrap();
                    sent[side] += len;
                    moved += len;
                }
                if got[side] < BYTES {
                    let len = stream.try_read(&mut piece).unwrap();
                    hashers[side].update(&piece[..len]);
                    got[side] += len;
                    moved += len;
                }
            }
            if moved == 0 {
                patience.blocked(&(kind, sent, got));
            }
        }
        let [first, second] = hashers.map(crc32fast::Hasher::finalize);
        assert_eq!([second, first], sums, "{kind}");
    }
}

#[test]
fn two_threads_exchange_messages_of_every_size() {
    let sizes: Vec<usize> = (0..40).chain([100, 4095, 4096, 4097, 70_001]).collect();
    for kind in [LinkKind::Shm, LinkKind::Tcp] {
        let (mut near, far) = pair(kind, false);
        let sizes_too = sizes.clone();
        let echo = std::thread::spawn(move || {
            let mut far = far;
            for (i, size) in sizes_too.into_iter().enumerate() {
                let got = read_exactly(far.as_mut(), size);
                assert!(got == bytes_of(i as u64, size), "{kind}: message {i}");
                write_all(far.as_mut(), &got);
            }
        });
        for (i, size) in sizes.iter().enumerate() {
            let bytes = bytes_of(i as u64, *size);
            write_all(near.as_mut(), &bytes);
            assert!(
                read_exactly(near.as_mut(), *size) == bytes,
                "{kind}: echo {i}"
            );
        }
        echo.join().unwrap();
    }
}

fn write_all(stream: &mut dyn Stream, bytes: &[u8]) {
    let patience = Patience::new();
    let mut done = 0;
    while done < bytes.len() {
        match stream.try_write(&bytes[done..]).unwrap() {
            0 => patience.blocked(&stream),
            len => done += len,
        }
    }
}

fn read_exactly(stream: &mut dyn Stream, len: usize) -> Vec<u8> {
    let patience = Patience::new();
    let (mut bytes, mut done) = (vec![0; len], 0);
    while done < len {
        match stream.try_read(&mut bytes[done..]).unwrap() {
            0 => patience.blocked(&stream),
            len => done += len,
        }
    }
    bytes
}

#[test]
fn a_close_is_seen_after_the_last_byte_and_again_at_every_call() {
    for kind in KINDS {
        let (mut near, mut far) = pair(kind, false);
        // Few enough for every link to hold.
        write_all(near.as_mut(), &bytes_of(3, 16));
        drop(near);
        let (all, error) = read_to_end(far.as_mut());
        assert!(all == bytes_of(3, 16), "{kind}: {} bytes", all.len());
        assert_eq!(error, LinkError::Closed, "{kind}");
        assert_eq!(far.try_read(&mut [0; 4]), Err(LinkError::Closed), "{kind}");
        // TCP needs a moment until it knows that nobody is there to read.
        let patience = Patience::new();
        while far.try_write(&[1; 100]).is_ok() {
            patience.blocked(&(kind, "write to a closed peer"));
        }
        assert!(far.try_write(&[1]).is_err(), "{kind}");
    }
}

#[test]
fn bytes_that_a_peer_left_unread_in_a_ring_are_known_once_it_has_closed() {
    for reads_all in [false, true] {
        let (near, far) = ring_pair(4096);
        for (mut sender, mut receiver) in [(near, far), {
            let (near, far) = ring_pair(4096);
            (far, near)
        }] {
            write_all(sender.as_mut(), &[7; 100]);
            let len = if reads_all { 100 } else { 60 };
            read_exactly(receiver.as_mut(), len);
            assert!(!sender.has_lost(), "the peer may still read");
            drop(receiver);
            assert_eq!(sender.has_lost(), !reads_all);
        }
    }
}

#[test]
fn a_reset_reaches_the_peer_and_ends_both_directions() {
    for kind in KINDS {
        let (mut near, mut far) = pair(kind, false);
        write_all(near.as_mut(), &[1, 2, 3]);
        near.reset();
        assert_eq!(near.try_write(&[1]), Err(LinkError::Reset), "{kind}");
        assert_eq!(near.try_read(&mut [0]), Err(LinkError::Reset), "{kind}");
        let (_, error) = read_to_end(far.as_mut());
        assert_eq!(error, LinkError::Reset, "{kind}");
        assert!(far.try_write(&[1]).is_err(), "{kind}");
    }
}

#[test]
fn streams_say_what_they_run_over() {
    for kind in KINDS {
        let (near, far) = pair(kind, false);
        assert_eq!((near.kind(), far.kind()), (kind, kind));
        assert_eq!(near.descriptor(false).is_some(), kind == LinkKind::Tcp);
    }
}

/// The problems that a collective is tried with on `n` ranks and about `count` elements.
fn problems(collective: Collective, n: usize, count: usize) -> Vec<Problem> {
    let root = n / 2;
    let uneven: Vec<usize> = (0..n).map(|i| (i * 5 + count) % (count + 2)).collect();
    let problem = match collective.counting() {
        Counting::Blocks => Problem::uneven(collective, n, &uneven, root),
        Counting::Splits => {
            let cells = (0..n * n).map(|i| (i * 3 + count) % 4 * count.min(100));
            Problem::uneven(collective, n, &cells.collect::<Vec<_>>(), root)
        }
        Counting::Buffers | Counting::Messages | Counting::Objects | Counting::Uniform => {
            Problem::uniform(collective, n, count, root)
        }
    };
    vec![problem.unwrap()]
}

fn message_algorithms() -> impl Iterator<Item = &'static Algorithm> {
    ALGORITHMS
        .iter()
        .filter(|algorithm| algorithm.links == Links::Message)
}

/// Runs every message algorithm for its collectives over streams of one kind, several calls on the
/// same streams.
fn run_all(kind: LinkKind, n: usize, count: usize, how: How, small: bool) {
    let mut streams = mesh(n, || pair(kind, small));
    let mut seq = 0;
    for algorithm in message_algorithms() {
        for collective in algorithm.collectives {
            for problem in problems(*collective, n, count) {
                let fits = (0..n).all(|rank| problem.in_place(rank).is_some());
                let reduces = collective.reduces();
                if (how.in_place && !fits) || (reduces && !collective.ops().contains(&how.op)) {
                    continue;
                }
                seq += 1;
                let what = (algorithm.name, *collective, n, count, how, kind);
                let mut ranks = job(&problem, algorithm, how, seq);
                run_in_turn(&mut ranks, &mut streams, &what);
                for (rank, done) in ranks.iter_mut().enumerate() {
                    done.check(rank, &what);
                }
            }
        }
    }
    assert!(seq >= 10, "only {seq} algorithms were tried");
}

const SUM: How = How {
    dtype: DType::F32,
    op: ReduceOp::Sum,
    in_place: false,
    checksum: false,
};

#[test]
fn ranks_of_one_call_may_differ_in_whether_their_buffers_are_one() {
    for n in [2, 3, 5, 8] {
        let mut streams = mesh(n, || pair(LinkKind::Shm, false));
        let mut seq = 0;
        for algorithm in message_algorithms() {
            for collective in algorithm.collectives {
                for problem in problems(*collective, n, 2 * n + 1) {
                    if (0..n).any(|rank| problem.in_place(rank).is_none()) {
                        continue;
                    }
                    seq += 1;
                    let mut ranks = job(&problem, algorithm, SUM, seq);
                    let in_place = How {
                        in_place: true,
                        ..SUM
                    };
                    let others = job(&problem, algorithm, in_place, seq);
                    for (rank, other) in others.into_iter().enumerate().skip(1).step_by(2) {
                        ranks[rank] = other;
                    }
                    let what = (algorithm.name, *collective, n);
                    run_in_turn(&mut ranks, &mut streams, &what);
                    for (rank, done) in ranks.iter_mut().enumerate() {
                        done.check(rank, &what);
                    }
                }
            }
        }
        assert!(seq >= 10, "only {seq} algorithms were tried");
    }
}

#[test]
fn every_message_algorithm_is_right_over_rings_for_every_number_of_ranks() {
    for n in [1, 2, 3, 4, 5, 7, 8, 9, 13] {
        for count in [0, 1, n, 2 * n + 1, 301] {
            for in_place in [false, true] {
                run_all(LinkKind::Shm, n, count, How { in_place, ..SUM }, count < 9);
            }
        }
    }
}

#[test]
fn every_message_algorithm_is_right_over_tcp() {
    for n in [1, 2, 3, 5, 8] {
        for count in [0, 1, 37, 5000] {
            let how = How {
                dtype: DType::I32,
                in_place: count % 2 == 1,
                ..SUM
            };
            run_all(LinkKind::Tcp, n, count, how, false);
        }
    }
}

#[test]
fn every_element_type_and_reduction_is_right_over_messages() {
    for dtype in DType::ALL {
        let ops = ReduceOp::ALL.into_iter();
        for op in ops.filter(|op| op.takes(dtype)) {
            for (n, count) in [(3, 17), (4, 64)] {
                let how = How {
                    dtype,
                    op,
                    in_place: op == ReduceOp::Max,
                    checksum: op == ReduceOp::Sum,
                };
                run_all(LinkKind::Shm, n, count, how, op == ReduceOp::Min);
            }
        }
    }
}

#[test]
fn messages_longer_than_every_internal_buffer_are_right() {
    for kind in [LinkKind::Shm, LinkKind::Tcp] {
        for checksum in [false, true] {
            let how = How {
                dtype: DType::Bf16,
                checksum,
                ..SUM
            };
            run_all(kind, 3, 200_003, how, false);
        }
    }
}

#[test]
fn every_rank_may_send_more_than_the_links_hold_before_anybody_receives() {
    // Pairwise exchange with rings of five bytes: without side-by-side progress it would hang.
    eprintln!("seed {}", seed());
    let problem = Problem::all_to_all(4, 1000).unwrap();
    for algorithm in message_algorithms() {
        if algorithm.collectives.contains(&Collective::AllToAll) {
            let mut streams = mesh(4, || pair(LinkKind::Shm, true));
            let mut ranks = job(&problem, algorithm, SUM, 1);
            run_in_turn(&mut ranks, &mut streams, &algorithm.name);
            for (rank, done) in ranks.iter_mut().enumerate() {
                done.check(rank, &algorithm.name);
            }
        }
    }
}
