//! Operators that move blocks from one rank to all, from all to one, or to all; and the barrier.

use std::ffi::c_void;

use hccl_sys::types::{HcclDataType, HcclResult};
use muster_comm::types::Collective;

use super::super::call::Call;
use super::super::fail::answer;
use super::super::job::{CollectiveJob, Counts};
use super::super::limits::Element;
use super::super::operator::Operator;
use super::{hand_on, in_parts, moving, uniform};

/// `HcclBroadcast`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclBroadcast(
    buf: *mut c_void,
    count: u64,
    data_type: HcclDataType,
    root: u32,
    comm: *mut c_void,
    stream: *mut c_void,
) -> HcclResult {
    answer("HcclBroadcast", || {
        let call = Call::open(Operator::Broadcast, comm, stream)?;
        if count == 0 {
            return Ok(());
        }
        call.need("buf", buf)?;
        let count = call.count("count", count)?;
        let element = call.moved(data_type)?;
        let root = call.rank("root", root)?;
        hand_on(
            &call,
            CollectiveJob {
                recv: Some(call.area("buf", buf, element, count)?),
                ..moving(
                    Collective::Broadcast,
                    element,
                    root,
                    uniform(element, count),
                )
            },
        )
    })
}

/// `HcclAllGather`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclAllGather(
    send_buf: *mut c_void,
    recv_buf: *mut c_void,
    send_count: u64,
    data_type: HcclDataType,
    comm: *mut c_void,
    stream: *mut c_void,
) -> HcclResult {
    answer("HcclAllGather", || {
        let call = Call::open(Operator::AllGather, comm, stream)?;
        if send_count == 0 {
            return Ok(());
        }
        call.need("sendBuf", send_buf)?;
        call.need("recvBuf", recv_buf)?;
        let count = call.count("sendCount", send_count)?;
        let element = call.moved(data_type)?;
        let all = count.saturating_mul(call.ranks());
        hand_on(
            &call,
            CollectiveJob {
                send: Some(call.area("sendBuf", send_buf, element, count)?),
                recv: Some(call.area("recvBuf", recv_buf, element, all)?),
                ..moving(Collective::AllGather, element, 0, uniform(element, count))
            },
        )
    })
}

/// `HcclAllGatherV`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclAllGatherV(
    send_buf: *mut c_void,
    send_count: u64,
    recv_buf: *mut c_void,
    recv_counts: *const c_void,
    recv_displs: *const c_void,
    data_type: HcclDataType,
    comm: *mut c_void,
    stream: *mut c_void,
) -> HcclResult {
    answer("HcclAllGatherV", || {
        let call = Call::open(Operator::AllGatherV, comm, stream)?;
        let n = call.ranks();
        // SAFETY: the caller passes one number for each rank.
        let counts = unsafe { call.list("recvCounts", recv_counts, n) }?;
        // SAFETY: as above.
        let displs = unsafe { call.list("recvDispls", recv_displs, n) }?;
        let count = call.count("sendCount", send_count)?;
        let element = call.moved(data_type)?;
        if counts[call.me()] != count {
            return Err(call.para(format!(
                "sendCount is {count}, recvCounts[{}] is {}; they must be equal",
                call.me(),
                counts[call.me()]
            )));
        }
        if !send_buf.is_null() && std::ptr::eq(send_buf, recv_buf) {
            return Err(call.para("sendBuf and recvBuf are the same"));
        }
        hand_on(
            &call,
            CollectiveJob {
                send: Some(call.area("sendBuf", send_buf, element, count)?),
                recv: Some(call.blocks("recvBuf", recv_buf, element, &counts, &displs)?),
                ..moving(
                    Collective::AllGatherV,
                    element,
                    0,
                    Counts::Blocks(in_parts(element, &counts)),
                )
            },
        )
    })
}

/// `HcclScatter`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclScatter(
    send_buf: *mut c_void,
    recv_buf: *mut c_void,
    recv_count: u64,
    data_type: HcclDataType,
    root: u32,
    comm: *mut c_void,
    stream: *mut c_void,
) -> HcclResult {
    answer("HcclScatter", || {
        let call = Call::open(Operator::Scatter, comm, stream)?;
        if recv_count == 0 {
            return Ok(());
        }
        call.need("recvBuf", recv_buf)?;
        let count = call.count("recvCount", recv_count)?;
        let element = call.moved(data_type)?;
        let root = call.rank("root", root)?;
        let send = if call.me() == root {
            call.need("sendBuf", send_buf)?;
            let all = count.saturating_mul(call.ranks());
            Some(call.area("sendBuf", send_buf, element, all)?)
        } else {
            None
        };
        hand_on(
            &call,
            CollectiveJob {
                send,
                recv: Some(call.area("recvBuf", recv_buf, element, count)?),
                ..moving(Collective::Scatter, element, root, uniform(element, count))
            },
        )
    })
}

/// `HcclBarrier`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclBarrier(comm: *mut c_void, stream: *mut c_void) -> HcclResult {
    answer("HcclBarrier", || {
        let call = Call::open(Operator::Barrier, comm, stream)?;
        let counts = Counts::Uniform(0);
        hand_on(&call, moving(Collective::Barrier, Element::BYTE, 0, counts))
    })
}
