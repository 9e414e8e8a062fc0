//! What the tests of streams and of message runs share: links of every kind, element values that
//! are exact in every type, and a naive reference for every collective.

#![expect(
    unsafe_code,
    reason = "rings live in raw memory, and runs work on raw buffers"
)]
#![allow(
    dead_code,
    clippy::allow_attributes,
    reason = "each test binary uses a part of it"
)]

use std::cell::UnsafeCell;
use std::sync::Arc;

use half::{bf16, f16};
use muster_comm::algo::{Algorithm, InPlace, Plan, Problem};
use muster_comm::backend::message::{
    Buffers, MessageCall, MessageError, MessageRun, Progress, Workspace,
};
use muster_comm::transport::ring::{Keep, RingStream};
use muster_comm::transport::sim::{SimConfig, SimNet};
use muster_comm::transport::tcp::TcpLink;
use muster_comm::transport::{CallTag, LinkKind, Stream};
use muster_comm::types::{Collective, DType, ReduceOp};

/// The streams of one rank.
pub(crate) type Row = Vec<Option<Box<dyn Stream>>>;

/// A block of cache lines on the heap, shared by both ends of a ring.
struct Block(Box<[UnsafeCell<Line>]>);

#[derive(Clone)]
#[repr(C, align(64))]
struct Line([u8; 64]);

// SAFETY: the rings decide who touches which byte.
unsafe impl Sync for Block {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Block {}

/// Two ends of a ring.
pub(crate) fn ring_pair(capacity: usize) -> (Box<dyn Stream>, Box<dyn Stream>) {
    let len = RingStream::block_bytes(capacity);
    let lines = (0..len.div_ceil(64)).map(|_| UnsafeCell::new(Line([0; 64])));
    let block = Arc::new(Block(lines.collect()));
    let start: *mut u8 = block.0.as_ptr().cast_mut().cast();
    let (near, far): (Keep, Keep) = (Arc::<Block>::clone(&block), block);
    // SAFETY: the block has `len` bytes and lives as long as `near`.
    let near = unsafe { RingStream::create(start, len, near) }.unwrap();
    // SAFETY: as above, and the stream was created there.
    let far = unsafe { RingStream::attach(start, len, far) }.unwrap();
    (Box::new(near), Box::new(far))
}

/// Two connected ends of a link of this kind. `small` asks for little room, where one can.
pub(crate) fn pair(kind: LinkKind, small: bool) -> (Box<dyn Stream>, Box<dyn Stream>) {
    match kind {
        LinkKind::Shm => ring_pair(if small { 5 } else { 64 * 1024 }),
        LinkKind::Tcp => {
            let (near, far) = TcpLink::pair().unwrap();
            (Box::new(near), Box::new(far))
        }
        LinkKind::Sim => {
            let net = SimNet::new(2, SimConfig::new(seed()));
            let (near, far) = net.pair(0, 1);
            (
                Box::new(Ticking::new(near, &net)),
                Box::new(Ticking::new(far, &net)),
            )
        }
    }
}

/// A simulated end that lets time pass whenever it is blocked, for tests without the driver.
#[derive(Debug)]
pub(crate) struct Ticking<S> {
    inner: S,
    net: SimNet,
}

impl<S> Ticking<S> {
    fn new(inner: S, net: &SimNet) -> Self {
        Self {
            inner,
            net: net.clone(),
        }
    }
}

impl<S: Stream> Stream for Ticking<S> {
    fn write_from(
        &mut self,
        source: muster_comm::transport::Source<'_>,
    ) -> Result<usize, muster_comm::transport::LinkError> {
        let len = self.inner.write_from(source)?;
        if len == 0 {
            self.net.tick();
        }
        Ok(len)
    }

    fn read_into(
        &mut self,
        target: muster_comm::transport::Target<'_>,
    ) -> Result<usize, muster_comm::transport::LinkError> {
        let len = self.inner.read_into(target)?;
        if len == 0 {
            self.net.tick();
        }
        Ok(len)
    }

    fn kind(&self) -> LinkKind {
        self.inner.kind()
    }

    fn reset(&mut self) {
        self.inner.reset();
    }
}

/// The streams of all ranks, over links made by `pair`.
pub(crate) fn mesh(
    n: usize,
    mut pair: impl FnMut() -> (Box<dyn Stream>, Box<dyn Stream>),
) -> Vec<Row> {
    let mut mesh: Vec<Row> = (0..n).map(|_| (0..n).map(|_| None).collect()).collect();
    let pairs = (0..n).flat_map(|one| (one + 1..n).map(move |other| (one, other)));
    for (one, other) in pairs {
        let (near, far) = pair();
        mesh[one][other] = Some(near);
        mesh[other][one] = Some(far);
    }
    mesh
}

/// The seed of this run of the tests: `MUSTER_SEED`, or a fixed one.
pub(crate) fn seed() -> u64 {
    option_env!("MUSTER_SEED").map_or(0x5eed, |text| text.parse().expect("a number"))
}

/// Scrambles a number: the tests' own source of patterns.
pub(crate) fn scramble(value: u64) -> u64 {
    let value = (value ^ (value >> 31)).wrapping_mul(0x7fb5_d329_728e_a185);
    let value = (value ^ (value >> 27)).wrapping_mul(0x81da_def4_bc2d_d44d);
    value ^ (value >> 33)
}

/// The bytes of one element. Every value that the tests use is exact in every type, or wraps.
pub(crate) fn element(dtype: DType, value: f64) -> Vec<u8> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "small integers, and wrapping is what the reductions do"
    )]
    let int = value as i64;
    let bytes = int.to_le_bytes();
    match dtype {
        DType::Bf16 => bf16::from_f64(value).to_le_bytes().to_vec(),
        DType::F16 => f16::from_f64(value).to_le_bytes().to_vec(),
        DType::F32 => {
            #[expect(clippy::cast_possible_truncation, reason = "rounds once, as expected")]
            let single = value as f32;
            single.to_le_bytes().to_vec()
        }
        DType::F64 => value.to_le_bytes().to_vec(),
        // Two's complement: cutting off is wrapping.
        DType::I8
        | DType::I16
        | DType::I32
        | DType::I64
        | DType::U8
        | DType::U16
        | DType::U32
        | DType::U64 => bytes[..dtype.size()].to_vec(),
    }
}

/// The values as elements, one after the other.
pub(crate) fn elements(dtype: DType, values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|v| element(dtype, *v)).collect()
}

/// What rank `rank` contributes at place `i`: small and positive, so that every sum is exact in
/// every type and averages of integers need no sign.
pub(crate) fn value(op: ReduceOp, rank: usize, i: usize) -> f64 {
    let mixed = scramble((rank * 7919 + i) as u64);
    let range = if op == ReduceOp::Prod { 2 } else { 5 };
    #[expect(clippy::cast_precision_loss, reason = "below five")]
    let value = (mixed % range) as f64;
    value + 1.0
}

/// `op` over all ranks, elementwise, as values.
fn reduction(problem: &Problem, dtype: DType, op: ReduceOp, ins: &[Vec<f64>]) -> Vec<f64> {
    let is_float = matches!(dtype, DType::Bf16 | DType::F16 | DType::F32 | DType::F64);
    (0..problem.in_len(0))
        .map(|i| {
            let all = ins.iter().map(|values| values[i]);
            match op {
                ReduceOp::Max => all.fold(f64::MIN, f64::max),
                ReduceOp::Min => all.fold(f64::MAX, f64::min),
                ReduceOp::Prod => all.product(),
                ReduceOp::Sum => all.sum(),
                ReduceOp::Avg => {
                    #[expect(clippy::cast_precision_loss, reason = "a few ranks")]
                    let mean = all.sum::<f64>() / problem.n() as f64;
                    if is_float { mean } else { mean.trunc() }
                }
            }
        })
        .collect()
}

/// What `rank` must have in its receive buffer at the end, straight from the definition.
pub(crate) fn reference(
    problem: &Problem,
    dtype: DType,
    op: ReduceOp,
    ins: &[Vec<f64>],
    root_data: &[f64],
    rank: usize,
) -> Vec<f64> {
    let root = problem.root().unwrap_or(0);
    let block = |values: &[f64]| {
        let blocks = problem.blocks().unwrap();
        values[blocks.start(rank)..blocks.start(rank + 1)].to_vec()
    };
    match problem.collective() {
        Collective::AllReduce => reduction(problem, dtype, op, ins),
        Collective::Reduce if rank == root => reduction(problem, dtype, op, ins),
        Collective::ReduceScatter | Collective::ReduceScatterV => {
            block(&reduction(problem, dtype, op, ins))
        }
        Collective::AllGather | Collective::AllGatherV => ins.concat(),
        Collective::Gather | Collective::GatherV if rank == root => ins.concat(),
        Collective::Reduce | Collective::Gather | Collective::GatherV | Collective::Barrier => {
            Vec::new()
        }
        Collective::Broadcast => root_data.to_vec(),
        Collective::Scatter | Collective::ScatterV => block(&ins[root]),
        Collective::AllToAll | Collective::AllToAllV => {
            let matrix = problem.matrix().unwrap();
            (0..problem.n())
                .flat_map(|from| {
                    let start = matrix.send_start(from, rank);
                    ins[from][start..start + matrix.row(from)[rank]].to_vec()
                })
                .collect()
        }
        other @ (Collective::AllGatherObject
        | Collective::BroadcastObject
        | Collective::GatherObject
        | Collective::Recv
        | Collective::ScatterObject
        | Collective::Send
        | Collective::SendRecvBatch) => panic!("{other} is not carried out by plans"),
    }
}

/// Bytes around a receive buffer that nobody may touch.
const GUARD: usize = 32;
const GUARD_BYTE: u8 = 0xa5;

/// One rank of a job: its buffers, and the run on them.
pub(crate) struct Rank {
    send: Vec<u8>,
    recv: Vec<u8>,
    expected: Vec<u8>,
    recv_bytes: usize,
    /// Where in `recv` the expected bytes begin, behind the guard.
    recv_at: usize,
    pub(crate) run: Option<MessageRun>,
    pub(crate) result: Option<Result<(), MessageError>>,
}

/// How a job is run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    pub(crate) dtype: DType,
    pub(crate) op: ReduceOp,
    pub(crate) in_place: bool,
    pub(crate) checksum: bool,
}

/// The tag of a problem.
pub(crate) fn tag_of(problem: &Problem, how: How) -> CallTag {
    let reduces = problem.collective().reduces();
    CallTag {
        collective: problem.collective() as u8,
        dtype: how.dtype as u8,
        op: if reduces { how.op as u8 } else { 0 },
        algo: 1,
        root: problem
            .root()
            .map_or(CallTag::NO_ROOT, |root| u32::try_from(root).unwrap()),
        count: problem.elements().unwrap_or(0) as u64,
        count_hash: 0,
    }
}

/// The ranks of one call of `problem`, ready to be polled.
pub(crate) fn job(problem: &Problem, algorithm: &Algorithm, how: How, seq: u64) -> Vec<Rank> {
    let n = problem.n();
    let root_data: Vec<f64> = (0..problem.out_len(0))
        .map(|i| value(how.op, n, i))
        .collect();
    let ins: Vec<Vec<f64>> = (0..n)
        .map(|rank| {
            (0..problem.in_len(rank))
                .map(|i| value(how.op, rank, i))
                .collect()
        })
        .collect();
    (0..n)
        .map(|rank| {
            let out = reference(problem, how.dtype, how.op, &ins, &root_data, rank);
            let starts_with_data =
                problem.collective() == Collective::Broadcast && problem.root() == Some(rank);
            let start = if starts_with_data {
                &root_data[..]
            } else {
                &[]
            };
            prepare(problem, algorithm, how, seq, rank, &ins[rank], start, &out)
        })
        .collect()
}

#[expect(clippy::too_many_arguments, reason = "a helper of one caller")]
fn prepare(
    problem: &Problem,
    algorithm: &Algorithm,
    how: How,
    seq: u64,
    rank: usize,
    input: &[f64],
    start: &[f64],
    out: &[f64],
) -> Rank {
    let size = how.dtype.size();
    let (send, expected) = (elements(how.dtype, input), elements(how.dtype, out));
    let layout = how.in_place.then(|| problem.in_place(rank)).flatten();
    let recv_count = problem.out_len(rank);
    // One buffer for both holds the larger of the two.
    let (span, in_at, out_at) = match layout {
        None | Some(InPlace::Apart) => (recv_count * size, 0, 0),
        Some(InPlace::InWithinOut(at)) => (recv_count * size, at * size, 0),
        Some(InPlace::OutWithinIn(at)) => (send.len(), 0, at * size),
    };
    let mut recv = vec![GUARD_BYTE; span + 2 * GUARD];
    let start = elements(how.dtype, start);
    recv[GUARD..GUARD + start.len()].copy_from_slice(&start);
    let shared = !matches!(layout, None | Some(InPlace::Apart));
    if shared {
        recv[GUARD + in_at..GUARD + in_at + send.len()].copy_from_slice(&send);
    }
    let mut prepared = Rank {
        send,
        recv,
        expected,
        recv_bytes: recv_count * size,
        recv_at: GUARD + out_at,
        run: None,
        result: None,
    };
    let base = prepared.recv.as_mut_ptr().wrapping_add(GUARD);
    let buffers = Buffers {
        send: if shared {
            base.wrapping_add(in_at).cast_const()
        } else {
            prepared.send.as_ptr()
        },
        send_count: input.len(),
        recv: base.wrapping_add(out_at),
        recv_count,
    };
    let plan = algorithm.plan(problem, rank, how.in_place).unwrap();
    let call = MessageCall {
        rank,
        ranks: problem.n(),
        group: 77,
        seq,
        tag: tag_of(problem, how),
        dtype: how.dtype,
        op: problem.collective().reduces().then_some(how.op),
        checksum: how.checksum,
    };
    // SAFETY: the buffers are vectors of `Rank`, which never grow and live as long as the run, and
    // nobody touches them before the run is done.
    let run = unsafe { MessageRun::new(Arc::new(plan), call, buffers, Workspace::default()) };
    prepared.run = Some(run.unwrap());
    prepared
}

/// The only rank of a test that makes its plan by hand: f32 elements, some values in the send
/// buffer, the receive buffer all zero. `call` has the last word.
pub(crate) fn by_hand(
    plan: Plan,
    rank: usize,
    ranks: usize,
    lengths: [usize; 2],
    call: impl FnOnce(&mut MessageCall),
) -> Result<Rank, MessageError> {
    let values: Vec<f64> = (0..lengths[0])
        .map(|i| value(ReduceOp::Sum, rank, i))
        .collect();
    let mut prepared = Rank {
        send: elements(DType::F32, &values),
        recv: vec![0; lengths[1] * 4],
        expected: Vec::new(),
        recv_bytes: lengths[1] * 4,
        recv_at: 0,
        run: None,
        result: None,
    };
    let mut settings = MessageCall {
        rank,
        ranks,
        group: 77,
        seq: 1,
        tag: CallTag {
            collective: 1,
            dtype: 3,
            op: 5,
            algo: 0,
            root: CallTag::NO_ROOT,
            count: 1,
            count_hash: 0,
        },
        dtype: DType::F32,
        op: Some(ReduceOp::Sum),
        checksum: false,
    };
    call(&mut settings);
    let buffers = Buffers {
        send: prepared.send.as_ptr(),
        send_count: lengths[0],
        recv: prepared.recv.as_mut_ptr(),
        recv_count: lengths[1],
    };
    // SAFETY: as in `prepare`.
    let run = unsafe { MessageRun::new(Arc::new(plan), settings, buffers, Workspace::default()) }?;
    prepared.run = Some(run);
    Ok(prepared)
}

/// A rank of a reduction of one element, which it gives.
pub(crate) fn with_value(
    problem: &Problem,
    algorithm: &Algorithm,
    rank: usize,
    dtype: DType,
    value: f64,
) -> Rank {
    let plan = algorithm.plan(problem, rank, false).unwrap();
    let recv_count = problem.out_len(rank);
    let mut prepared = Rank {
        send: element(dtype, value),
        recv: vec![0; recv_count * dtype.size()],
        expected: Vec::new(),
        recv_bytes: recv_count * dtype.size(),
        recv_at: 0,
        run: None,
        result: None,
    };
    let how = How {
        dtype,
        op: ReduceOp::Sum,
        in_place: false,
        checksum: false,
    };
    let call = MessageCall {
        rank,
        ranks: problem.n(),
        group: 77,
        seq: 1,
        tag: tag_of(problem, how),
        dtype,
        op: Some(ReduceOp::Sum),
        checksum: false,
    };
    let buffers = Buffers {
        send: prepared.send.as_ptr(),
        send_count: 1,
        recv: prepared.recv.as_mut_ptr(),
        recv_count,
    };
    // SAFETY: as in `prepare`.
    let run = unsafe { MessageRun::new(Arc::new(plan), call, buffers, Workspace::default()) };
    prepared.run = Some(run.unwrap());
    prepared
}

impl Rank {
    /// The receive buffer, with its guards.
    pub(crate) fn recv(&self) -> &[u8] {
        &self.recv
    }

    /// One poll; a result is kept, and the run ended.
    pub(crate) fn poll(&mut self, streams: &mut Row) -> Progress {
        let Some(run) = &mut self.run else {
            return Progress::Done;
        };
        match run.poll(streams) {
            Ok(Progress::Done) => self.result = Some(Ok(())),
            Ok(progress) => return progress,
            Err(error) => self.result = Some(Err(error)),
        }
        Progress::Done
    }

    /// Asserts that the result is what the definition says, and that nothing else was touched.
    pub(crate) fn check(&mut self, rank: usize, what: &dyn std::fmt::Debug) {
        assert_eq!(self.result, Some(Ok(())), "rank {rank} of {what:?}");
        self.run = None;
        let out = &self.recv[self.recv_at..self.recv_at + self.recv_bytes];
        if let Some(at) = (0..out.len()).find(|at| out[*at] != self.expected[*at]) {
            panic!(
                "rank {rank} of {what:?}: byte {at} is {}, expected {}",
                out[at], self.expected[at]
            );
        }
        assert_eq!(out.len(), self.expected.len(), "rank {rank} of {what:?}");
        let len = self.recv.len();
        for at in (0..GUARD).chain(len - GUARD..len) {
            assert_eq!(
                self.recv[at], GUARD_BYTE,
                "guard {at}, rank {rank} of {what:?}"
            );
        }
    }
}

/// Polls all ranks in turn until each has a result. Panics if nothing moves for too long.
pub(crate) fn run_in_turn(ranks: &mut [Rank], mesh: &mut [Row], what: &dyn std::fmt::Debug) {
    let deadline = muster_comm::sync::Deadline::after(std::time::Duration::from_secs(60));
    loop {
        let mut open = 0;
        let mut moved = false;
        for (rank, row) in ranks.iter_mut().zip(mesh.iter_mut()) {
            let progress = rank.poll(row);
            open += usize::from(progress != Progress::Done);
            moved |= progress == Progress::Moved;
        }
        if open == 0 {
            return;
        }
        if !moved {
            std::thread::yield_now();
            assert!(
                !deadline.passed(),
                "{what:?} is stuck: {:?}",
                ranks
                    .iter()
                    .map(|rank| rank.run.as_ref().map(MessageRun::position))
                    .collect::<Vec<_>>()
            );
        }
    }
}
