//! Element values that are exact in every type, and a naive reference for every collective.

use half::{bf16, f16};
use muster_comm::algo::Problem;
use muster_comm::types::{Collective, DType, ReduceOp};

use super::scramble;

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

/// Whole numbers combined bit by bit.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "they are whole and small"
)]
fn of_bits(all: impl Iterator<Item = f64>, combine: fn(i64, i64) -> i64) -> f64 {
    let whole = all.map(|value| value as i64);
    whole.reduce(combine).unwrap_or(0) as f64
}

/// `op` over these ranks, elementwise, as values.
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
                ReduceOp::BitAnd => of_bits(all, |a, b| a & b),
                ReduceOp::BitOr => of_bits(all, |a, b| a | b),
                ReduceOp::BitXor => of_bits(all, |a, b| a ^ b),
                ReduceOp::Avg => {
                    #[expect(clippy::cast_precision_loss, reason = "a few ranks")]
                    let mean = all.sum::<f64>() / ins.len() as f64;
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
        Collective::Scan => reduction(problem, dtype, op, &ins[..=rank]),
        // What rank 0 gets of the exclusive one is no matter of plans.
        Collective::ExclusiveScan if rank == 0 => Vec::new(),
        Collective::ExclusiveScan => reduction(problem, dtype, op, &ins[..rank]),
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
        | Collective::AllReduceCoalesced
        | Collective::BroadcastObject
        | Collective::GatherObject
        | Collective::Recv
        | Collective::RecvAny
        | Collective::ScatterObject
        | Collective::Send
        | Collective::SendRecvBatch) => panic!("{other} is not carried out by plans"),
    }
}
