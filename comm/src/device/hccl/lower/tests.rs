//! Each call is lowered and its steps are carried out on plain memory.

use super::*;

/// Elements of each region of a rank's memory: send, receive, scratch.
const REGION: usize = 400;
const SIZE: usize = 4;
/// Fills what nobody has written.
const BLANK: i64 = -1;

/// Memory of one rank in elements; the address of element `i` is `(i + 1) * SIZE`.
type Memory = Vec<i64>;

fn address(element: usize) -> Handle {
    (element + 1) * SIZE
}

fn element(address: Handle) -> usize {
    address / SIZE - 1
}

fn at(value: u64) -> usize {
    crate::types::index(value)
}

/// Where a reduction takes what it reduces.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "any other call is a failure of the test"
)]
fn send_of(step: &VendorCall) -> Handle {
    match step {
        VendorCall::AllReduce(even, _)
        | VendorCall::Reduce(even, ..)
        | VendorCall::ReduceScatter(even, _) => even.send,
        other => panic!("{other:?} reduces nothing"),
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "any other call is a failure of the test"
)]
/// What the vendor does with one step of every rank; sums only.
fn perform(steps: &[&VendorCall], memories: &mut [Memory]) {
    let before = memories.to_vec();
    let kind = std::mem::discriminant(steps[0]);
    let sum = |i: usize| -> i64 {
        let of_rank = |(rank, step): (usize, &&VendorCall)| {
            assert_eq!(std::mem::discriminant(*step), kind, "{step:?}");
            before[rank][element(send_of(step)) + i]
        };
        steps.iter().enumerate().map(of_rank).sum()
    };
    for (me, step) in steps.iter().enumerate() {
        let memory = &mut memories[me];
        match step {
            // The vendor may write the result of a reduce anywhere.
            VendorCall::AllReduce(even, _) | VendorCall::Reduce(even, ..) => {
                for i in 0..at(even.count) {
                    memory[element(even.recv) + i] = sum(i);
                }
            }
            VendorCall::ReduceScatter(even, _) => {
                for i in 0..at(even.count) {
                    memory[element(even.recv) + i] = sum(me * at(even.count) + i);
                }
            }
            VendorCall::AllToAll(even) => {
                assert_ne!(even.send, even.recv, "LOWER-2");
                let count = at(even.count);
                for (rank, other) in steps.iter().enumerate() {
                    let VendorCall::AllToAll(other) = other else {
                        panic!("{other:?}")
                    };
                    for i in 0..count {
                        memory[element(even.recv) + rank * count + i] =
                            before[rank][element(other.send) + me * count + i];
                    }
                }
            }
            VendorCall::AllToAllV { send, recv, .. } => {
                assert_ne!(send.base, recv.base, "LOWER-2");
                for (rank, other) in steps.iter().enumerate() {
                    let VendorCall::AllToAllV { send, .. } = other else {
                        panic!("{other:?}")
                    };
                    assert_eq!(send.counts[me], recv.counts[rank], "from {rank} to {me}");
                    for i in 0..at(recv.counts[rank]) {
                        memory[element(recv.base) + at(recv.displs[rank]) + i] =
                            before[rank][element(send.base) + at(send.displs[me]) + i];
                    }
                }
            }
            VendorCall::Copy {
                target,
                source,
                bytes,
            } => {
                for i in 0..bytes / SIZE {
                    memory[element(*target) + i] = before[me][element(*source) + i];
                }
            }
            VendorCall::Broadcast { .. } | VendorCall::Scatter(..) | VendorCall::AllGather(_) => {}
            other => panic!("{other:?} is not composed"),
        }
    }
}

struct Case {
    collective: Collective,
    product: Product,
    in_place: bool,
    blocks: Option<Vec<usize>>,
    root: usize,
}

const N: usize = 3;
const COUNT: usize = 5;

fn value(rank: usize, i: usize) -> i64 {
    i64::try_from(rank * 1000 + i).unwrap()
}

impl Case {
    fn call(&self, me: usize) -> DeviceCall<'_> {
        // One buffer with send and receive part within it, or two.
        let (send, recv) = match (self.in_place, self.collective) {
            (false, _) => (address(0), address(REGION)),
            (true, Collective::ReduceScatter) => (address(0), address(me * COUNT)),
            (true, Collective::Gather) if me == self.root => (address(me * COUNT), address(0)),
            (true, Collective::Scatter) if me == self.root => (address(0), address(me * COUNT)),
            (true, _) => (address(0), address(0)),
        };
        DeviceCall {
            collective: self.collective,
            dtype: DType::I32,
            op: ReduceOp::Sum,
            root: self.root,
            counts: match &self.blocks {
                Some(blocks) => Counts::Blocks(blocks),
                None => Counts::Uniform(COUNT),
            },
            send,
            recv,
            in_place: self.in_place,
            me,
            n: N,
            product: self.product,
            one_host: true,
        }
    }

    /// Runs the steps of all ranks; gives back their memories.
    fn run(&self) -> Vec<Memory> {
        let mut memories: Vec<Memory> = (0..N)
            .map(|rank| {
                let send = (0..REGION).map(|i| value(rank, i));
                send.chain(std::iter::repeat_n(BLANK, 2 * REGION)).collect()
            })
            .collect();
        let steps: Vec<Vec<VendorCall>> = (0..N)
            .map(|me| {
                let call = self.call(me);
                let scratch = address(2 * REGION);
                let steps = call.lower(scratch);
                let room = call.scratch_bytes().max(64);
                for (start, bytes) in steps.iter().flat_map(|step| step.ranges(N)) {
                    let in_scratch = start >= scratch && start + bytes <= scratch + room;
                    assert!(start + bytes <= scratch || in_scratch, "LOWER-1: {steps:?}");
                }
                steps
            })
            .collect();
        let rounds = steps.iter().map(Vec::len).max().unwrap_or(0);
        for round in 0..rounds {
            // Copies are each rank's own affair and may be missing on some.
            let idle = VendorCall::Copy {
                target: address(0),
                source: address(0),
                bytes: 0,
            };
            let of_round: Vec<&VendorCall> = steps
                .iter()
                .map(|steps| steps.get(round).unwrap_or(&idle))
                .collect();
            perform(&of_round, &mut memories);
        }
        memories
    }
}

fn case(collective: Collective, product: Product) -> Case {
    Case {
        collective,
        product,
        in_place: false,
        blocks: None,
        root: 1,
    }
}

fn sums(first: usize, count: usize) -> Vec<i64> {
    (first..first + count)
        .map(|i| (0..N).map(|rank| value(rank, i)).sum())
        .collect()
}

fn untouched(memory: &Memory, rank: usize) -> bool {
    (0..REGION).all(|i| memory[i] == value(rank, i))
}

#[test]
fn gathers_move_every_block_to_the_root_and_touch_nothing_else() {
    for blocks in [None, Some(vec![4, 0, 2])] {
        let collective = match blocks {
            None => Collective::Gather,
            Some(_) => Collective::GatherV,
        };
        let case = Case {
            blocks: blocks.clone(),
            ..case(collective, Product::A2)
        };
        let memories = case.run();
        let lens = blocks.unwrap_or_else(|| vec![COUNT; N]);
        let expected: Vec<i64> = (0..N)
            .flat_map(|rank| (0..lens[rank]).map(move |i| value(rank, i)))
            .collect();
        assert_eq!(memories[1][REGION..REGION + expected.len()], expected[..]);
        for (rank, memory) in memories.iter().enumerate() {
            assert!(untouched(memory, rank));
            assert!(rank == 1 || memory[REGION] == BLANK);
        }
    }
    let in_place = Case {
        in_place: true,
        ..case(Collective::Gather, Product::A2)
    }
    .run();
    assert_eq!(in_place[1][0], value(0, 0));
    assert_eq!(in_place[1][COUNT], value(1, COUNT), "its own block stays");
    assert_eq!(in_place[1][2 * COUNT], value(2, 0));
}

#[test]
fn uneven_gathers_and_scatters_are_exchanges() {
    let blocks = Some(vec![3, 0, 4]);
    let gathered = Case {
        blocks: blocks.clone(),
        ..case(Collective::AllGatherV, Product::A2)
    };
    for memory in gathered.run() {
        assert_eq!(memory[REGION..REGION + 4], [0, 1, 2, 2000]);
    }
    let scattered = Case {
        blocks,
        ..case(Collective::ScatterV, Product::A3)
    }
    .run();
    assert_eq!(scattered[0][REGION..REGION + 3], [1000, 1001, 1002]);
    assert_eq!(scattered[1][REGION], BLANK);
    assert_eq!(scattered[2][REGION..REGION + 4], [1003, 1004, 1005, 1006]);
}

#[test]
fn what_310p_lacks_is_composed() {
    let broadcast = Case {
        in_place: true,
        ..case(Collective::Broadcast, Product::Ascend310P)
    };
    for memory in broadcast.run() {
        assert_eq!(memory[..COUNT], [1000, 1001, 1002, 1003, 1004]);
        assert_eq!(memory[REGION], BLANK);
    }
    let reduced = case(Collective::Reduce, Product::Ascend310P).run();
    assert_eq!(reduced[1][REGION..REGION + COUNT], sums(0, COUNT)[..]);
    assert_eq!(reduced[0][REGION], BLANK);
    for in_place in [false, true] {
        let scatter = Case {
            in_place,
            ..case(Collective::Scatter, Product::Ascend310P)
        };
        let memories = scatter.run();
        let place = if in_place { 0 } else { REGION };
        assert_eq!(memories[2][place], value(1, 2 * COUNT));
        assert!(untouched(&memories[1], 1));
    }
}

#[test]
fn reduce_scatter_v_is_composed_where_the_vendor_lacks_it_or_a_block_is_empty() {
    for (product, blocks) in [
        (Product::Ascend910, vec![2, 3, 4]),
        (Product::A2, vec![2, 0, 4]),
    ] {
        let reduced = Case {
            blocks: Some(blocks.clone()),
            ..case(Collective::ReduceScatterV, product)
        };
        let memories = reduced.run();
        let mut first = 0;
        for (rank, count) in blocks.iter().enumerate() {
            let expected = sums(first, *count);
            assert_eq!(memories[rank][REGION..REGION + count], expected[..]);
            first += count;
        }
    }
    let direct = Case {
        blocks: Some(vec![1, 2, 3]),
        ..case(Collective::ReduceScatterV, Product::A2)
    };
    assert!(matches!(
        direct.call(0).lower(4096)[..],
        [VendorCall::ReduceScatterV { .. }]
    ));
}

#[test]
fn in_place_forms_that_the_vendor_does_not_promise_go_through_scratch() {
    for product in [Product::A2, Product::Ascend910] {
        let exchanged = Case {
            in_place: true,
            ..case(Collective::AllToAll, product)
        }
        .run();
        for (me, memory) in exchanged.iter().enumerate() {
            let expected: Vec<i64> = (0..N)
                .flat_map(|rank| (0..COUNT).map(move |i| value(rank, me * COUNT + i)))
                .collect();
            assert_eq!(memory[..N * COUNT], expected[..], "{product}");
        }
    }
    let reduced = Case {
        in_place: true,
        ..case(Collective::ReduceScatter, Product::A2)
    }
    .run();
    for (me, memory) in reduced.iter().enumerate() {
        let place = me * COUNT..(me + 1) * COUNT;
        assert_eq!(memory[place.clone()], sums(place.start, COUNT)[..]);
        let other = (me + 1) % N * COUNT;
        assert_eq!(memory[other], value(me, other), "other blocks stay");
    }
    let root_only = case(Collective::Reduce, Product::A2).run();
    assert_eq!(root_only[1][REGION..REGION + COUNT], sums(0, COUNT)[..]);
    assert_eq!(
        root_only[2][REGION], BLANK,
        "off the root the result is not kept"
    );
}

#[test]
fn nothing_to_do_anywhere_is_no_step_anywhere() {
    let mut call = case(Collective::AllReduce, Product::A2);
    call.blocks = None;
    let mut empty = call.call(0);
    empty.counts = Counts::Uniform(0);
    assert!(empty.lower(4096).is_empty());
    empty.collective = Collective::Barrier;
    assert_eq!(empty.lower(4096), [VendorCall::Barrier]);
    let none = [0; N];
    empty.collective = Collective::AllToAllV;
    empty.counts = Counts::Splits {
        send: &none,
        recv: &none,
    };
    assert_eq!(empty.lower(4096).len(), 1, "others may have something");
}
