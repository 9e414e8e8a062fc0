//! From a checked call to the vendor's calls that carry it out.
//!
//! Pure: addresses are numbers here. Most collectives are one call. What HCCL or a product lacks is
//! composed of `HcclAlltoAllV`, which every product has and which takes zero counts anywhere, or of
//! `HcclAllReduce` and a copy; in-place forms that the vendor does not promise go through scratch
//! memory. All ranks take the same decision, because it depends on what all of them know only.
//!
//! - `LOWER-1`: nothing outside the buffers of the call and the scratch memory is named.
//! - `LOWER-2`: the vendor never gets the same address as send and receive buffer of an exchange.

use super::step::Step;
use super::support;
use crate::backend::Counts;
use crate::device::Product;
use crate::device::acl::Handle;
use crate::types::{Collective, DType, ReduceOp};

/// A checked call: `send` and `recv` as the collective layer defines them. In place they are the
/// addresses within the one buffer at which what is sent and what is received begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceCall<'a> {
    pub(crate) collective: Collective,
    pub(crate) dtype: DType,
    pub(crate) op: ReduceOp,
    pub(crate) root: usize,
    pub(crate) counts: Counts<'a>,
    pub(crate) send: Handle,
    pub(crate) recv: Handle,
    pub(crate) in_place: bool,
    /// This rank and the number of ranks.
    pub(crate) me: usize,
    pub(crate) n: usize,
    pub(crate) product: Product,
    /// Whether all ranks are on one host.
    pub(crate) one_host: bool,
}

/// Where an exchange with everybody begins and how much it has for each.
struct Side {
    base: Handle,
    counts: Vec<u64>,
    displs: Vec<u64>,
}

impl Side {
    /// Nothing for anybody.
    fn nothing(n: usize, base: Handle) -> Self {
        Self {
            base,
            counts: vec![0; n],
            displs: vec![0; n],
        }
    }

    /// Blocks of these lengths one behind the other.
    fn packed(base: Handle, counts: &[usize]) -> Self {
        let mut at = 0;
        let displs = counts
            .iter()
            .map(|count| {
                let displ = at;
                at += *count as u64;
                displ
            })
            .collect();
        Self {
            base,
            counts: counts.iter().map(|count| *count as u64).collect(),
            displs,
        }
    }

    /// One block for or from one member.
    fn one(n: usize, base: Handle, member: usize, count: usize) -> Self {
        let mut side = Self::nothing(n, base);
        side.counts[member] = count as u64;
        side
    }

    /// The same block for everybody.
    fn same(n: usize, base: Handle, count: usize) -> Self {
        Self {
            base,
            counts: vec![count as u64; n],
            displs: vec![0; n],
        }
    }

    /// Without what this rank has for itself.
    fn without(mut self, me: usize) -> Self {
        self.counts[me] = 0;
        self
    }
}

impl DeviceCall<'_> {
    /// Bytes of scratch memory that the call needs, besides the few that are always there.
    #[expect(clippy::wildcard_enum_match_arm, reason = "no other call needs any")]
    pub(crate) fn scratch_bytes(&self) -> usize {
        let (uniform, size) = (self.uniform(), self.dtype.size());
        let elements = match self.collective {
            Collective::AllToAll if self.in_place => self.n * uniform,
            Collective::Reduce if self.me != self.root => uniform,
            Collective::ReduceScatter if self.in_place => uniform,
            Collective::ReduceScatterV if !self.is_direct_reduce_scatter_v() => {
                self.blocks().iter().sum()
            }
            Collective::Scatter if self.in_place && self.me == self.root => uniform,
            _ => 0,
        };
        elements * size
    }

    /// The vendor's calls, in order; none where no rank has anything to do. `scratch` is device
    /// memory of at least [`DeviceCall::scratch_bytes`] and 64 bytes.
    pub(crate) fn lower(&self, scratch: Handle) -> Vec<Step> {
        if self.is_empty_everywhere() {
            return Vec::new();
        }
        match self.collective {
            Collective::AllGather => vec![Step::AllGather {
                send: self.send,
                recv: self.recv,
                count: self.uniform() as u64,
                dtype: self.dtype,
            }],
            Collective::AllGatherV => vec![self.all_gather_v()],
            Collective::AllReduce => vec![Step::AllReduce {
                send: self.send,
                recv: self.recv,
                count: self.uniform() as u64,
                dtype: self.dtype,
                op: self.op,
            }],
            Collective::AllToAll => self.all_to_all(scratch),
            Collective::AllToAllV => vec![self.all_to_all_v()],
            Collective::Barrier => vec![Step::Barrier],
            Collective::Broadcast => vec![self.broadcast(scratch)],
            Collective::Gather | Collective::GatherV => vec![self.gather(scratch)],
            Collective::Reduce => vec![self.reduce(scratch)],
            Collective::ReduceScatter => self.reduce_scatter(scratch),
            Collective::ReduceScatterV => self.reduce_scatter_v(scratch),
            Collective::Scatter | Collective::ScatterV => vec![self.scatter(scratch)],
            // Objects never come here, and messages have steps of their own.
            Collective::AllGatherObject
            | Collective::BroadcastObject
            | Collective::GatherObject
            | Collective::Recv
            | Collective::ScatterObject
            | Collective::Send
            | Collective::SendRecvBatch => Vec::new(),
        }
    }

    fn all_gather_v(&self) -> Step {
        let blocks = self.blocks();
        // The vendor's own form takes no zero counts for granted, spans one server on A3 and is
        // missing on 910.
        let direct = !blocks.contains(&0)
            && match self.product {
                Product::A3 => self.one_host,
                Product::Ascend910 => false,
                Product::A2 | Product::Ascend310P | Product::Ascend950 | Product::Unknown => true,
            };
        let recv = Side::packed(self.recv, blocks);
        if direct {
            return Step::AllGatherV {
                send: self.send,
                count: recv.counts[self.me],
                recv: self.recv,
                counts: recv.counts,
                displs: recv.displs,
                dtype: self.dtype,
            };
        }
        self.exchange(Side::same(self.n, self.send, blocks[self.me]), recv)
    }

    fn all_to_all(&self, scratch: Handle) -> Vec<Step> {
        let count = self.uniform();
        let mut steps = Vec::new();
        let send = if self.in_place {
            steps.push(Step::Copy {
                target: scratch,
                source: self.send,
                bytes: count * self.n * self.dtype.size(),
            });
            scratch
        } else {
            self.send
        };
        // On 910 the plain form was seen to return success and move nothing.
        if self.product == Product::Ascend910 {
            let blocks = vec![count; self.n];
            steps.push(self.exchange(
                Side::packed(send, &blocks),
                Side::packed(self.recv, &blocks),
            ));
        } else {
            steps.push(Step::AllToAll {
                send,
                recv: self.recv,
                count: count as u64,
                dtype: self.dtype,
            });
        }
        steps
    }

    fn all_to_all_v(&self) -> Step {
        let (send, recv): (&[usize], &[usize]) = match self.counts {
            Counts::Splits { send, recv } => (send, recv),
            Counts::Blocks(_) | Counts::Uniform(_) => (&[], &[]),
        };
        self.exchange(Side::packed(self.send, send), Side::packed(self.recv, recv))
    }

    fn broadcast(&self, scratch: Handle) -> Step {
        let count = self.uniform();
        if self.product != Product::Ascend310P {
            return Step::Broadcast {
                buffer: self.recv,
                count: count as u64,
                dtype: self.dtype,
                root: self.root_number(),
            };
        }
        if self.me == self.root {
            let send = Side::same(self.n, self.recv, count).without(self.me);
            return self.exchange(send, Side::nothing(self.n, scratch));
        }
        self.exchange(
            Side::nothing(self.n, scratch),
            Side::one(self.n, self.recv, self.root, count),
        )
    }

    /// HCCL has no gather: everybody sends to the root.
    fn gather(&self, scratch: Handle) -> Step {
        let block = |member: usize| match self.counts {
            Counts::Blocks(blocks) => blocks[member],
            Counts::Uniform(count) => count,
            Counts::Splits { .. } => 0,
        };
        if self.me != self.root {
            return self.exchange(
                Side::one(self.n, self.send, self.root, block(self.me)),
                Side::nothing(self.n, scratch),
            );
        }
        let blocks: Vec<usize> = (0..self.n).map(block).collect();
        let recv = Side::packed(self.recv, &blocks);
        if self.in_place {
            // The root's own block is where it belongs.
            return self.exchange(Side::nothing(self.n, scratch), recv.without(self.me));
        }
        self.exchange(Side::one(self.n, self.send, self.me, block(self.me)), recv)
    }

    fn reduce(&self, scratch: Handle) -> Step {
        let recv = if self.me == self.root {
            self.recv
        } else {
            scratch
        };
        let (count, dtype, op) = (self.uniform() as u64, self.dtype, self.op);
        if self.product == Product::Ascend310P {
            return Step::AllReduce {
                send: self.send,
                recv,
                count,
                dtype,
                op,
            };
        }
        Step::Reduce {
            send: self.send,
            recv,
            count,
            dtype,
            op,
            root: self.root_number(),
        }
    }

    fn reduce_scatter(&self, scratch: Handle) -> Vec<Step> {
        let count = self.uniform();
        let step = |recv| Step::ReduceScatter {
            send: self.send,
            recv,
            count: count as u64,
            dtype: self.dtype,
            op: self.op,
        };
        if !self.in_place {
            return vec![step(self.recv)];
        }
        vec![
            step(scratch),
            Step::Copy {
                target: self.recv,
                source: scratch,
                bytes: count * self.dtype.size(),
            },
        ]
    }

    fn is_direct_reduce_scatter_v(&self) -> bool {
        !self.blocks().contains(&0)
            && support::has_reduce_scatter_v(self.product, self.dtype, self.op)
    }

    fn reduce_scatter_v(&self, scratch: Handle) -> Vec<Step> {
        let side = Side::packed(self.send, self.blocks());
        let (count, displ) = (side.counts[self.me], side.displs[self.me]);
        if self.is_direct_reduce_scatter_v() {
            return vec![Step::ReduceScatterV {
                send: self.send,
                counts: side.counts,
                displs: side.displs,
                recv: self.recv,
                count,
                dtype: self.dtype,
                op: self.op,
            }];
        }
        let size = self.dtype.size() as u64;
        let mut steps = vec![Step::AllReduce {
            send: self.send,
            recv: scratch,
            count: side.counts.iter().sum(),
            dtype: self.dtype,
            op: self.op,
        }];
        if count > 0 {
            steps.push(Step::Copy {
                target: self.recv,
                source: scratch + crate::types::index(displ * size),
                bytes: crate::types::index(count * size),
            });
        }
        steps
    }

    fn scatter(&self, scratch: Handle) -> Step {
        let uniform = match self.counts {
            Counts::Uniform(count) => Some(count),
            Counts::Blocks(_) | Counts::Splits { .. } => None,
        };
        let is_root = self.me == self.root;
        if let Some(count) = uniform
            && self.product != Product::Ascend310P
        {
            // In place the root's block is where it belongs: what the vendor writes is not needed.
            let recv = if self.in_place && is_root {
                scratch
            } else {
                self.recv
            };
            return Step::Scatter {
                send: self.send,
                recv,
                count: count as u64,
                dtype: self.dtype,
                root: self.root_number(),
            };
        }
        let blocks = match self.counts {
            Counts::Blocks(blocks) => blocks.to_vec(),
            Counts::Uniform(count) => vec![count; self.n],
            Counts::Splits { .. } => Vec::new(),
        };
        let mine = blocks[self.me];
        let recv = Side::one(self.n, self.recv, self.root, mine);
        if !is_root {
            return self.exchange(Side::nothing(self.n, scratch), recv);
        }
        let send = Side::packed(self.send, &blocks);
        if self.in_place {
            return self.exchange(send.without(self.me), Side::nothing(self.n, scratch));
        }
        self.exchange(send, recv)
    }

    fn exchange(&self, send: Side, recv: Side) -> Step {
        Step::AllToAllV {
            send: send.base,
            send_counts: send.counts,
            send_displs: send.displs,
            recv: recv.base,
            recv_counts: recv.counts,
            recv_displs: recv.displs,
            dtype: self.dtype,
        }
    }

    fn uniform(&self) -> usize {
        match self.counts {
            Counts::Uniform(count) => count,
            Counts::Blocks(_) | Counts::Splits { .. } => 0,
        }
    }

    fn blocks(&self) -> &[usize] {
        match self.counts {
            Counts::Blocks(blocks) => blocks,
            Counts::Splits { .. } | Counts::Uniform(_) => &[],
        }
    }

    /// Whether every rank can tell that no rank has anything to do.
    fn is_empty_everywhere(&self) -> bool {
        match self.counts {
            Counts::Uniform(count) => count == 0 && self.collective != Collective::Barrier,
            Counts::Blocks(blocks) => blocks.iter().all(|count| *count == 0),
            Counts::Splits { .. } => false,
        }
    }

    fn root_number(&self) -> u32 {
        u32::try_from(self.root).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
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

    #[expect(
        clippy::too_many_lines,
        clippy::wildcard_enum_match_arm,
        reason = "one arm a call, and any other call is a failure of the test"
    )]
    /// What the vendor does with one step of every rank; sums only.
    fn perform(steps: &[&Step], memories: &mut [Memory]) {
        let n = steps.len();
        let before = memories.to_vec();
        let sum = |send: &dyn Fn(usize) -> Handle, i: usize| -> i64 {
            (0..n)
                .map(|rank| before[rank][element(send(rank)) + i])
                .sum()
        };
        for (me, step) in steps.iter().enumerate() {
            let memory = &mut memories[me];
            match step {
                Step::AllReduce { recv, count, .. } => {
                    let send = |rank: usize| match steps[rank] {
                        Step::AllReduce { send, .. } => *send,
                        other => panic!("{other:?}"),
                    };
                    for i in 0..at(*count) {
                        memory[element(*recv) + i] = sum(&send, i);
                    }
                }
                Step::Reduce { recv, count, .. } => {
                    let send = |rank: usize| match steps[rank] {
                        Step::Reduce { send, .. } => *send,
                        other => panic!("{other:?}"),
                    };
                    // The vendor may write it anywhere.
                    for i in 0..at(*count) {
                        memory[element(*recv) + i] = sum(&send, i);
                    }
                }
                Step::ReduceScatter { recv, count, .. } => {
                    let send = |rank: usize| match steps[rank] {
                        Step::ReduceScatter { send, .. } => *send,
                        other => panic!("{other:?}"),
                    };
                    for i in 0..at(*count) {
                        memory[element(*recv) + i] = sum(&send, me * at(*count) + i);
                    }
                }
                Step::AllToAll {
                    send, recv, count, ..
                } => {
                    assert_ne!(send, recv, "LOWER-2");
                    for (rank, other) in steps.iter().enumerate() {
                        let Step::AllToAll { send, .. } = other else {
                            panic!("{other:?}")
                        };
                        for i in 0..at(*count) {
                            memory[element(*recv) + rank * at(*count) + i] =
                                before[rank][element(*send) + me * at(*count) + i];
                        }
                    }
                }
                Step::AllToAllV {
                    send,
                    recv,
                    recv_counts,
                    recv_displs,
                    ..
                } => {
                    assert_ne!(send, recv, "LOWER-2");
                    for (rank, other) in steps.iter().enumerate() {
                        let Step::AllToAllV {
                            send,
                            send_counts,
                            send_displs,
                            ..
                        } = other
                        else {
                            panic!("{other:?}")
                        };
                        assert_eq!(send_counts[me], recv_counts[rank], "from {rank} to {me}");
                        for i in 0..at(recv_counts[rank]) {
                            memory[element(*recv) + at(recv_displs[rank]) + i] =
                                before[rank][element(*send) + at(send_displs[me]) + i];
                        }
                    }
                }
                Step::Copy {
                    target,
                    source,
                    bytes,
                } => {
                    for i in 0..bytes / SIZE {
                        memory[element(*target) + i] = before[me][element(*source) + i];
                    }
                }
                Step::Broadcast { .. } | Step::Scatter { .. } | Step::AllGather { .. } => {}
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
            let steps: Vec<Vec<Step>> = (0..N)
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
                let idle = Step::Copy {
                    target: address(0),
                    source: address(0),
                    bytes: 0,
                };
                let of_round: Vec<&Step> = steps
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
            [Step::ReduceScatterV { .. }]
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
        assert_eq!(empty.lower(4096), [Step::Barrier]);
        let none = [0; N];
        empty.collective = Collective::AllToAllV;
        empty.counts = Counts::Splits {
            send: &none,
            recv: &none,
        };
        assert_eq!(empty.lower(4096).len(), 1, "others may have something");
    }
}
