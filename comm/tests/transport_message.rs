//! What a message run says when calls, plans, peers or links are not as they should be
//! (MESSAGE-1 to MESSAGE-4 of `backend::message`).

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod transport_support;

use muster_comm::algo::{Links, Plan, Problem, Round, Space, Span, Step, find};
use muster_comm::backend::message::{
    Direction, MessageCall, MessageError, MessageRun, PlanFault, Position, Progress, StepField,
    Wait,
};
use muster_comm::transport::{
    CallTag, Frame, FrameError, FrameKind, LinkError, LinkKind, TagField,
};
use muster_comm::types::{Collective, DType, ReduceOp};
use transport_support::job::{How, Rank, by_hand, job, run_in_turn, with_value};
use transport_support::links::{Row, mesh, pair, ring_pair};

const HOW: How = How {
    dtype: DType::F32,
    op: ReduceOp::Sum,
    in_place: false,
    checksum: false,
};

/// A plan of these rounds, over messages.
fn plan<const N: usize>(rounds: [Vec<Step>; N]) -> Plan {
    Plan {
        rounds: rounds.map(|steps| Round { steps }).into(),
        scratch: 4,
        in_place: true,
        links: Links::Message,
        staged: false,
    }
}

fn input(len: usize) -> Span {
    Span::new(Space::In, 0, len)
}

fn output(len: usize) -> Span {
    Span::new(Space::Out, 0, len)
}

fn send(to: usize, len: usize) -> Step {
    Step::Send {
        to,
        src: input(len),
    }
}

fn recv(from: usize, len: usize) -> Step {
    Step::Recv {
        from,
        dst: output(len),
    }
}

/// Two ranks; the first sends `len` elements to the second, who was called as `call` says.
fn sender_and_receiver(
    len: usize,
    receiver: Plan,
    call: impl FnOnce(&mut MessageCall),
) -> (Vec<Rank>, Vec<Row>) {
    let ranks = vec![
        by_hand(plan([vec![send(1, len)]]), 0, 2, [len, 0], |_| {}).unwrap(),
        by_hand(receiver, 1, 2, [0, len], call).unwrap(),
    ];
    (ranks, mesh(2, || pair(LinkKind::Shm, false)))
}

/// What the second of the two gets to hear.
fn error_of_receiver(
    len: usize,
    receiver: Plan,
    call: impl FnOnce(&mut MessageCall),
) -> MessageError {
    let (mut ranks, mut streams) = sender_and_receiver(len, receiver, call);
    run_in_turn(&mut ranks, &mut streams, &"two ranks");
    assert!(
        ranks[1].recv().iter().all(|byte| *byte == 0),
        "no payload under a frame that does not fit"
    );
    ranks[1].result.unwrap().unwrap_err()
}

#[test]
fn ranks_with_different_calls_both_get_an_error_that_names_both_sides() {
    let problem = Problem::all_reduce(2, 8).unwrap();
    let algorithm = find(Collective::AllReduce, "ring").unwrap();
    let max = How {
        op: ReduceOp::Max,
        ..HOW
    };
    let mut ranks = vec![
        job(&problem, algorithm, HOW, 1).swap_remove(0),
        job(&problem, algorithm, max, 1).swap_remove(1),
    ];
    let mut streams = mesh(2, || pair(LinkKind::Shm, false));
    run_in_turn(&mut ranks, &mut streams, &"two calls");
    for (rank, (own, other)) in [
        (ReduceOp::Sum, ReduceOp::Max),
        (ReduceOp::Max, ReduceOp::Sum),
    ]
    .into_iter()
    .enumerate()
    {
        let Some(Err(MessageError::Mismatch {
            peer,
            field,
            mine,
            theirs,
        })) = ranks[rank].result
        else {
            panic!("rank {rank}: {:?}", ranks[rank].result);
        };
        assert_eq!((peer, field), (1 - rank, TagField::Op));
        assert_eq!((mine.op, theirs.op), (own as u8, other as u8));
    }
}

#[test]
fn a_message_of_another_call_group_round_or_length_never_reaches_the_buffer() {
    let receive = || plan([vec![recv(0, 5)]]);
    let out_of_step = |what, mine, theirs| MessageError::OutOfStep {
        peer: 0,
        what,
        mine,
        theirs,
    };
    let MessageError::OtherCall {
        peer: 0,
        mine: 4,
        theirs: 1,
        tag,
    } = error_of_receiver(5, receive(), |call| call.seq = 4)
    else {
        panic!("another error");
    };
    assert_eq!(tag.collective, 1, "as `by_hand` makes it");
    assert_eq!(
        error_of_receiver(5, receive(), |call| call.group = 78),
        out_of_step(StepField::Group, 78, 77)
    );
    let later = plan([vec![], vec![recv(0, 5)]]);
    assert_eq!(
        error_of_receiver(5, later, |_| {}),
        out_of_step(StepField::Round, 1, 0)
    );
    assert_eq!(
        error_of_receiver(5, plan([vec![recv(0, 4)]]), |_| {}),
        MessageError::Length {
            peer: 0,
            round: 0,
            mine: 16,
            theirs: 20
        }
    );
    let error = error_of_receiver(5, receive(), |call| call.tag.root = 3);
    assert!(
        matches!(
            error,
            MessageError::Mismatch {
                field: TagField::Root,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn garbage_in_place_of_a_frame_is_named_and_final() {
    let (near, mut far) = ring_pair(1000);
    let mut streams: Row = vec![Some(near), None];
    streams.swap(0, 1);
    let mut rank = by_hand(plan([vec![recv(1, 5)]]), 0, 2, [0, 5], |_| {}).unwrap();
    assert_eq!(rank.poll(&mut streams), Progress::Blocked);
    far.try_write(&[0x55; 200]).unwrap();
    assert_eq!(rank.poll(&mut streams), Progress::Done);
    let expected = MessageError::Frame {
        peer: 1,
        error: FrameError::Magic { got: 0x5555_5555 },
    };
    assert_eq!(rank.result, Some(Err(expected)));
    let run = rank.run.as_mut().unwrap();
    assert_eq!(run.poll(&mut streams), Err(expected), "for good");
}

#[test]
fn a_corrupt_payload_is_found_by_its_checksum() {
    for reduces in [false, true] {
        let step = if reduces {
            Step::RecvReduce {
                from: 1,
                dst: output(50),
                recv_first: true,
            }
        } else {
            recv(1, 50)
        };
        let (near, mut far) = ring_pair(1000);
        let mut streams: Row = vec![None, Some(near)];
        let mut rank = by_hand(plan([vec![step]]), 0, 2, [0, 50], |_| {}).unwrap();
        let mut payload = [7u8; 200];
        let tag = CallTag {
            collective: 1,
            dtype: 3,
            op: 5,
            algo: 0,
            root: CallTag::NO_ROOT,
            count: 1,
            count_hash: 0,
        };
        let stated = crc32fast::hash(&payload);
        let frame = Frame {
            group: 77,
            seq: 1,
            tag,
            mark: 0,
            kind: FrameKind::Data {
                round: 0,
                payload: 200,
                checksum: Some(stated),
            },
        };
        payload[120] ^= 4;
        far.try_write(&frame.encode()).unwrap();
        far.try_write(&payload).unwrap();
        while rank.poll(&mut streams) == Progress::Moved {}
        assert_eq!(
            rank.result,
            Some(Err(MessageError::Checksum {
                peer: 1,
                stated,
                computed: crc32fast::hash(&payload)
            })),
            "reduces: {reduces}"
        );
    }
}

#[test]
fn an_abort_reaches_those_who_wait_and_those_who_send() {
    // Rank 1 waits for rank 0; rank 2 sends to rank 0 more than the link holds.
    let mut streams = mesh(3, || ring_pair(100));
    let long = plan([vec![send(0, 500)]]);
    let mut waiter = by_hand(plan([vec![recv(0, 5)]]), 1, 3, [0, 5], |_| {}).unwrap();
    let mut sender = by_hand(long, 2, 3, [500, 0], |_| {}).unwrap();
    assert_eq!(waiter.poll(&mut streams[1]), Progress::Blocked);
    while sender.poll(&mut streams[2]) == Progress::Moved {}

    let mut fails = by_hand(plan([vec![recv(1, 5)]]), 0, 3, [0, 5], |_| {}).unwrap();
    let run = fails.run.as_mut().unwrap();
    run.abort(&mut streams[0], 0, 42);
    let own = run.poll(&mut streams[0]);
    let told = |peer| MessageError::PeerAborted {
        peer,
        origin: 0,
        reason: 42,
    };
    assert_eq!(own, Err(told(0)), "an aborted run stays so");
    streams[0].clear();
    assert_eq!(waiter.poll(&mut streams[1]), Progress::Done);
    assert_eq!(waiter.result, Some(Err(told(0))));
    assert_eq!(sender.poll(&mut streams[2]), Progress::Done);
    assert_eq!(sender.result, Some(Err(told(0))), "not only that it closed");
}

#[test]
fn an_abort_of_a_different_call_tells_the_difference() {
    let mut streams = mesh(2, || ring_pair(1000));
    let mut waiter = by_hand(plan([vec![recv(0, 5)]]), 1, 2, [0, 5], |_| {}).unwrap();
    let other = |call: &mut MessageCall| call.tag.count = 9;
    let mut fails = by_hand(plan([vec![recv(1, 5)]]), 0, 2, [0, 5], other).unwrap();
    fails.run.as_mut().unwrap().abort(&mut streams[0], 0, 1);
    waiter.poll(&mut streams[1]);
    let error = waiter.result.unwrap().unwrap_err();
    let MessageError::Mismatch {
        field,
        mine,
        theirs,
        ..
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!(field, TagField::Count);
    assert_eq!((mine.count, theirs.count), (1, 9));
}

#[test]
fn an_abort_within_a_message_resets_that_link_only() {
    let mut streams = mesh(3, || ring_pair(200));
    let mut sender = by_hand(plan([vec![send(1, 500)]]), 0, 3, [500, 0], |_| {}).unwrap();
    while sender.poll(&mut streams[0]) == Progress::Moved {}
    sender.run.as_mut().unwrap().abort(&mut streams[0], 2, 7);
    let link = |rank: &mut Row| rank[0].as_mut().unwrap().try_read(&mut [0; 64]);
    assert_eq!(link(&mut streams[1]), Err(LinkError::Reset));
    assert_eq!(link(&mut streams[2]), Ok(64), "a whole abort frame");
}

#[test]
fn a_peer_that_is_gone_or_was_never_there_is_named() {
    let (mut ranks, mut streams) = sender_and_receiver(5, plan([vec![recv(0, 5)]]), |_| {});
    streams[0].clear();
    assert_eq!(ranks[1].poll(&mut streams[1]), Progress::Done);
    assert_eq!(
        ranks[1].result,
        Some(Err(MessageError::Link {
            peer: 0,
            error: LinkError::Closed
        }))
    );
    assert_eq!(ranks[0].poll(&mut streams[0]), Progress::Done);
    assert_eq!(ranks[0].result, Some(Err(MessageError::NoLink { peer: 1 })));
}

#[test]
fn a_blocked_run_says_in_which_round_it_waits_for_whom_and_how_far_it_is() {
    let mut streams = mesh(3, || ring_pair(64 + 40));
    let steps = plan([
        vec![Step::Copy {
            src: input(1),
            dst: output(1),
        }],
        vec![send(1, 500), recv(2, 5), recv(2, 5)],
    ]);
    let mut rank = by_hand(steps, 0, 3, [500, 5], |_| {}).unwrap();
    while rank.poll(&mut streams[0]) == Progress::Moved {}
    let wait = |peer, direction, bytes_done, bytes| Wait {
        peer,
        direction,
        bytes_done,
        bytes,
    };
    assert_eq!(
        rank.run.as_ref().map(MessageRun::position),
        Some(Position {
            round: 1,
            rounds: 2,
            // The second message from rank 2 is behind the first.
            waits: vec![
                wait(2, Direction::Recv, 0, 20),
                wait(1, Direction::Send, 40, 2000)
            ],
        })
    );
}

#[test]
fn plans_that_do_not_fit_the_call_are_refused_before_anything_is_sent() {
    let outside = Span::new(Space::Scratch, 3, 2);
    let reduce = Step::Reduce {
        src: input(1),
        dst: output(1),
        src_first: true,
    };
    let copy = |src, dst| Step::Copy { src, dst };
    let cases: Vec<(Step, PlanFault)> = vec![
        (Step::Expose { span: input(1) }, PlanFault::DirectStep),
        (send(0, 1), PlanFault::Peer),
        (recv(2, 1), PlanFault::Peer),
        (copy(input(5), output(5)), PlanFault::Span),
        (copy(outside, output(2)), PlanFault::Span),
        (
            copy(Span::new(Space::In, usize::MAX, 2), output(2)),
            PlanFault::Span,
        ),
        (copy(input(1), output(2)), PlanFault::Lengths),
        (copy(output(1), input(1)), PlanFault::WritesIn),
        (reduce, PlanFault::NoOp),
    ];
    for (step, what) in cases {
        let text = format!("{step:?}");
        let steps = plan([vec![], vec![step]]);
        let refused = by_hand(steps, 0, 2, [4, 4], |call| call.op = None);
        assert_eq!(
            refused.map(|_| ()),
            Err(MessageError::Plan { round: 1, what }),
            "{text}"
        );
    }
    let direct = Plan {
        links: Links::Direct,
        ..plan([vec![]])
    };
    assert!(by_hand(direct, 0, 2, [4, 4], |_| {}).is_err());
    let huge = Plan {
        scratch: 1 << 60,
        ..plan([vec![]])
    };
    assert!(matches!(
        by_hand(huge, 0, 2, [4, 4], |_| {}).map(|_| ()),
        Err(MessageError::NoMemory { .. })
    ));
}

#[test]
fn a_workspace_does_not_grow_with_the_second_run() {
    let problem = Problem::all_reduce(2, 1000).unwrap();
    let algorithm = find(Collective::AllReduce, "ring").unwrap();
    let bytes = |_: usize| {
        let mut streams = mesh(2, || pair(LinkKind::Shm, false));
        let mut ranks = job(&problem, algorithm, HOW, 1);
        run_in_turn(&mut ranks, &mut streams, &"workspace");
        ranks.remove(0).run.take().unwrap().into_workspace().bytes()
    };
    assert_eq!(bytes(0), bytes(1));
    assert!(bytes(0) >= 64 * 1024, "the bounce buffer is part of it");
}

#[test]
fn half_types_are_rounded_once_however_many_ranks_add() {
    // 2048 + 1 + 1 + 1 + 1 is 2052 in f16; rounding after each addition would leave 2048.
    let problem = Problem::reduce(5, 1, 0).unwrap();
    for algorithm in muster_comm::algo::algorithms_for(Collective::Reduce) {
        if algorithm.links != Links::Message {
            continue;
        }
        let mut streams = mesh(5, || pair(LinkKind::Shm, false));
        let mut ranks: Vec<Rank> = (0..5)
            .map(|rank| {
                let value = if rank == 0 { 2048.0 } else { 1.0 };
                with_value(&problem, algorithm, rank, DType::F16, value)
            })
            .collect();
        run_in_turn(&mut ranks, &mut streams, &algorithm.name);
        let sum = half::f16::from_le_bytes([ranks[0].recv()[0], ranks[0].recv()[1]]);
        assert_eq!(sum, half::f16::from_f64(2052.0), "{}", algorithm.name);
    }
}
