//! The ranks of one call: their buffers with guards around them, and their runs, polled in turn.

use std::sync::Arc;

use muster_comm::algo::{Algorithm, InPlace, Plan, Problem};
use muster_comm::backend::message::{
    Buffers, MessageCall, MessageError, MessageRun, Progress, Workspace,
};
use muster_comm::transport::CallTag;
use muster_comm::types::{Collective, DType, ReduceOp};

use super::expected::{element, elements, reference, value};
use super::links::Row;

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
    // What nobody contributes to is no matter of plans.
    let is_made = !problem.pattern().contributors(problem.n(), rank).is_empty();
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
        recv_bytes: if is_made { recv_count * size } else { 0 },
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
        contributors: problem.pattern().contributors(problem.n(), rank).len(),
        group: 77,
        seq,
        tag: tag_of(problem, how),
        mark: 0,
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
        contributors: ranks,
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
        mark: 0,
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
        contributors: problem.pattern().contributors(problem.n(), rank).len(),
        group: 77,
        seq: 1,
        tag: tag_of(problem, how),
        mark: 0,
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
