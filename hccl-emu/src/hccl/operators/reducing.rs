//! Operators that combine elements.

use std::ffi::c_void;

use hccl_sys::types::{HcclDataType, HcclReduceOp, HcclResult};
use muster_comm::types::Collective;

use super::super::call::Call;
use super::super::fail::answer;
use super::super::job::{CollectiveJob, Counts};
use super::super::operator::Operator;
use super::{hand_on, in_parts, moving, uniform};

/// `HcclAllReduce`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclAllReduce(
    send_buf: *mut c_void,
    recv_buf: *mut c_void,
    count: u64,
    data_type: HcclDataType,
    op: HcclReduceOp,
    comm: *mut c_void,
    stream: *mut c_void,
) -> HcclResult {
    answer("HcclAllReduce", || {
        let call = Call::open(Operator::AllReduce, comm, stream)?;
        if count == 0 {
            return Ok(());
        }
        call.need("sendBuf", send_buf)?;
        call.need("recvBuf", recv_buf)?;
        let count = call.count("count", count)?;
        let (element, op) = call.reduced(data_type, op)?;
        hand_on(
            &call,
            CollectiveJob {
                op,
                send: Some(call.area("sendBuf", send_buf, element, count)?),
                recv: Some(call.area("recvBuf", recv_buf, element, count)?),
                ..moving(Collective::AllReduce, element, 0, uniform(element, count))
            },
        )
    })
}

/// `HcclReduce`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclReduce(
    send_buf: *mut c_void,
    recv_buf: *mut c_void,
    count: u64,
    data_type: HcclDataType,
    op: HcclReduceOp,
    root: u32,
    comm: *mut c_void,
    stream: *mut c_void,
) -> HcclResult {
    answer("HcclReduce", || {
        let call = Call::open(Operator::Reduce, comm, stream)?;
        if count == 0 {
            return Ok(());
        }
        call.need("sendBuf", send_buf)?;
        call.need("recvBuf", recv_buf)?;
        let count = call.count("count", count)?;
        let (element, op) = call.reduced(data_type, op)?;
        let root = call.rank("root", root)?;
        let recv = if call.me() == root {
            Some(call.area("recvBuf", recv_buf, element, count)?)
        } else {
            None
        };
        hand_on(
            &call,
            CollectiveJob {
                op,
                send: Some(call.area("sendBuf", send_buf, element, count)?),
                recv,
                ..moving(Collective::Reduce, element, root, uniform(element, count))
            },
        )
    })
}

/// `HcclReduceScatter`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclReduceScatter(
    send_buf: *mut c_void,
    recv_buf: *mut c_void,
    recv_count: u64,
    data_type: HcclDataType,
    op: HcclReduceOp,
    comm: *mut c_void,
    stream: *mut c_void,
) -> HcclResult {
    answer("HcclReduceScatter", || {
        let call = Call::open(Operator::ReduceScatter, comm, stream)?;
        if recv_count == 0 {
            return Ok(());
        }
        call.need("sendBuf", send_buf)?;
        call.need("recvBuf", recv_buf)?;
        let count = call.count("recvCount", recv_count)?;
        let (element, op) = call.reduced(data_type, op)?;
        let all = count.saturating_mul(call.ranks());
        hand_on(
            &call,
            CollectiveJob {
                op,
                send: Some(call.area("sendBuf", send_buf, element, all)?),
                recv: Some(call.area("recvBuf", recv_buf, element, count)?),
                ..moving(
                    Collective::ReduceScatter,
                    element,
                    0,
                    uniform(element, count),
                )
            },
        )
    })
}

/// `HcclReduceScatterV`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclReduceScatterV(
    send_buf: *mut c_void,
    send_counts: *const c_void,
    send_displs: *const c_void,
    recv_buf: *mut c_void,
    recv_count: u64,
    data_type: HcclDataType,
    op: HcclReduceOp,
    comm: *mut c_void,
    stream: *mut c_void,
) -> HcclResult {
    answer("HcclReduceScatterV", || {
        let call = Call::open(Operator::ReduceScatterV, comm, stream)?;
        let n = call.ranks();
        // SAFETY: the caller passes one number for each rank.
        let counts = unsafe { call.list("sendCounts", send_counts, n) }?;
        // SAFETY: as above.
        let displs = unsafe { call.list("sendDispls", send_displs, n) }?;
        let count = call.count("recvCount", recv_count)?;
        let (element, op) = call.reduced(data_type, op)?;
        if counts[call.me()] != count {
            return Err(call.para(format!(
                "recvCount is {count}, sendCounts[{}] is {}; they must be equal",
                call.me(),
                counts[call.me()]
            )));
        }
        hand_on(
            &call,
            CollectiveJob {
                op,
                send: Some(call.blocks("sendBuf", send_buf, element, &counts, &displs)?),
                recv: Some(call.area("recvBuf", recv_buf, element, count)?),
                ..moving(
                    Collective::ReduceScatterV,
                    element,
                    0,
                    Counts::Blocks(in_parts(element, &counts)),
                )
            },
        )
    })
}
