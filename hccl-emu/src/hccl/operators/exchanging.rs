//! Operators in which every rank sends a block to every rank.

use std::ffi::c_void;

use hccl_sys::types::{HcclDataType, HcclResult};
use muster_comm::types::Collective;

use super::super::call::Call;
use super::super::fail::{Answer, answer};
use super::super::job::{Area, CollectiveJob, Counts};
use super::super::operator::Operator;
use super::{hand_on, in_parts, moving, uniform};

/// Where blocks that follow each other begin.
fn prefix_sums(counts: &[usize]) -> Vec<usize> {
    let step = |sum: &mut usize, count: &usize| {
        let start = *sum;
        *sum += count;
        Some(start)
    };
    counts.iter().scan(0, step).collect()
}

/// `HcclAlltoAll`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclAlltoAll(
    send_buf: *const c_void,
    send_count: u64,
    send_type: HcclDataType,
    recv_buf: *const c_void,
    recv_count: u64,
    recv_type: HcclDataType,
    comm: *mut c_void,
    stream: *mut c_void,
) -> HcclResult {
    answer("HcclAlltoAll", || {
        let call = Call::open(Operator::AllToAll, comm, stream)?;
        if send_count != recv_count || send_type != recv_type {
            return Err(call.para(format!(
                "it sends {send_count} of type {} and receives {recv_count} of type {} for each rank; they must be equal",
                send_type.0, recv_type.0
            )));
        }
        if send_count == 0 {
            return Ok(());
        }
        call.need("sendBuf", send_buf)?;
        call.need("recvBuf", recv_buf)?;
        if std::ptr::eq(send_buf, recv_buf) {
            return Err(call.para("sendBuf and recvBuf are the same"));
        }
        let count = call.count("sendCount", send_count)?;
        let element = call.moved(send_type)?;
        let all = count.saturating_mul(call.ranks());
        hand_on(
            &call,
            CollectiveJob {
                send: Some(call.area("sendBuf", send_buf, element, all)?),
                recv: Some(call.area("recvBuf", recv_buf, element, all)?),
                ..moving(Collective::AllToAll, element, 0, uniform(element, count))
            },
        )
    })
}

/// What the two exchanges of blocks of different lengths have in common.
struct Exchange {
    send_buf: *const c_void,
    recv_buf: *const c_void,
    types: (HcclDataType, HcclDataType),
    send: (Vec<usize>, Vec<usize>),
    recv: (Vec<usize>, Vec<usize>),
}

fn exchange(call: &Call, exchange: &Exchange) -> Answer {
    let (send_type, recv_type) = exchange.types;
    if send_type != recv_type {
        return Err(call.para(format!(
            "sendType is {}, recvType is {}; they must be equal",
            send_type.0, recv_type.0
        )));
    }
    if !exchange.send_buf.is_null() && std::ptr::eq(exchange.send_buf, exchange.recv_buf) {
        return Err(call.para("sendBuf and recvBuf are the same"));
    }
    let element = call.moved(send_type)?;
    let me = call.me();
    let ((send_counts, send_displs), (recv_counts, recv_displs)) = (&exchange.send, &exchange.recv);
    if send_counts[me] != recv_counts[me] {
        return Err(call.para(format!(
            "this rank sends {} elements to itself and receives {}",
            send_counts[me], recv_counts[me]
        )));
    }
    let counts = Counts::Splits {
        send: in_parts(element, send_counts),
        recv: in_parts(element, recv_counts),
    };
    let area = |name, buffer, counts: &[usize], displs: &[usize]| -> Answer<Area> {
        call.blocks(name, buffer, element, counts, displs)
    };
    hand_on(
        call,
        CollectiveJob {
            send: Some(area(
                "sendBuf",
                exchange.send_buf,
                send_counts,
                send_displs,
            )?),
            recv: Some(area(
                "recvBuf",
                exchange.recv_buf,
                recv_counts,
                recv_displs,
            )?),
            ..moving(Collective::AllToAllV, element, 0, counts)
        },
    )
}

/// `HcclAlltoAllV`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclAlltoAllV(
    send_buf: *const c_void,
    send_counts: *const c_void,
    send_displs: *const c_void,
    send_type: HcclDataType,
    recv_buf: *const c_void,
    recv_counts: *const c_void,
    recv_displs: *const c_void,
    recv_type: HcclDataType,
    comm: *mut c_void,
    stream: *mut c_void,
) -> HcclResult {
    answer("HcclAlltoAllV", || {
        let call = Call::open(Operator::AllToAllV, comm, stream)?;
        let list = |name, list| {
            // SAFETY: the caller passes one number for each rank.
            unsafe { call.list(name, list, call.ranks()) }
        };
        exchange(
            &call,
            &Exchange {
                send_buf,
                recv_buf,
                types: (send_type, recv_type),
                send: (
                    list("sendCounts", send_counts)?,
                    list("sdispls", send_displs)?,
                ),
                recv: (
                    list("recvCounts", recv_counts)?,
                    list("rdispls", recv_displs)?,
                ),
            },
        )
    })
}

/// `HcclAlltoAllVC`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclAlltoAllVC(
    send_buf: *const c_void,
    send_count_matrix: *const c_void,
    send_type: HcclDataType,
    recv_buf: *const c_void,
    recv_type: HcclDataType,
    comm: *mut c_void,
    stream: *mut c_void,
) -> HcclResult {
    answer("HcclAlltoAllVC", || {
        let call = Call::open(Operator::AllToAllVC, comm, stream)?;
        let (n, me) = (call.ranks(), call.me());
        // SAFETY: the caller passes a number for each pair of ranks, the sender's row first.
        let matrix = unsafe { call.list("sendCountMatrix", send_count_matrix, n * n) }?;
        let sends = matrix[me * n..(me + 1) * n].to_vec();
        let recvs: Vec<usize> = (0..n).map(|from| matrix[from * n + me]).collect();
        let (send_displs, recv_displs) = (prefix_sums(&sends), prefix_sums(&recvs));
        exchange(
            &call,
            &Exchange {
                send_buf,
                recv_buf,
                types: (send_type, recv_type),
                send: (sends, send_displs),
                recv: (recvs, recv_displs),
            },
        )
    })
}
