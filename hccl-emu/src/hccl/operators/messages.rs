//! Messages between two ranks, and batches of them.

use std::ffi::c_void;

use hccl_sys::types::{HcclDataType, HcclResult, HcclSendRecvItem, HcclSendRecvType};

use super::super::call::Call;
use super::super::fail::{Answer, answer};
use super::super::job::{Job, Message};
use super::super::operator::Operator;
use super::super::submit::submit;

/// Most items of one batch.
const ITEMS_MAX: u32 = 65_536;

/// A send or a receive.
fn message(
    call: &Call,
    buf: *mut c_void,
    count: u64,
    data_type: HcclDataType,
    (argument, peer): (&str, u32),
) -> Answer {
    if count == 0 {
        return Ok(());
    }
    call.need("buf", buf)?;
    let count = call.count("count", count)?;
    let element = call.moved(data_type)?;
    let peer = call.rank(argument, peer)?;
    if peer == call.me() {
        return Err(call.para(format!("{argument} is this rank itself, {peer}")));
    }
    let message = Message {
        is_send: call.operator == Operator::Send,
        peer,
        element,
        count,
        buffer: call.buffer("buf", buf, element, count)?,
    };
    submit(call, Job::Messages(vec![message]))
}

/// `HcclSend`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclSend(
    send_buf: *mut c_void,
    count: u64,
    data_type: HcclDataType,
    dest_rank: u32,
    comm: *mut c_void,
    stream: *mut c_void,
) -> HcclResult {
    answer("HcclSend", || {
        let call = Call::open(Operator::Send, comm, stream)?;
        message(&call, send_buf, count, data_type, ("destRank", dest_rank))
    })
}

/// `HcclRecv`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclRecv(
    recv_buf: *mut c_void,
    count: u64,
    data_type: HcclDataType,
    src_rank: u32,
    comm: *mut c_void,
    stream: *mut c_void,
) -> HcclResult {
    answer("HcclRecv", || {
        let call = Call::open(Operator::Recv, comm, stream)?;
        message(&call, recv_buf, count, data_type, ("srcRank", src_rank))
    })
}

/// `HcclBatchSendRecv`; `items` are `item_num` items in host memory.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclBatchSendRecv(
    items: *const HcclSendRecvItem,
    item_num: u32,
    comm: *mut c_void,
    stream: *mut c_void,
) -> HcclResult {
    answer("HcclBatchSendRecv", || {
        let call = Call::open(Operator::BatchSendRecv, comm, stream)?;
        if item_num == 0 {
            return Ok(());
        }
        call.need("sendRecvInfo", items.cast())?;
        if item_num > ITEMS_MAX {
            let text = format!("itemNum is {item_num}; allowed: 0 to {ITEMS_MAX}");
            return Err(call.para(text));
        }
        let mut messages = Vec::new();
        for index in 0..item_num as usize {
            // SAFETY: the caller passes `item_num` items; `index` is below that.
            let place = unsafe { items.add(index) };
            // SAFETY: as above; an item need not be aligned here.
            let item = unsafe { place.read_unaligned() };
            messages.extend(item_message(&call, &item)?);
        }
        submit(&call, Job::Messages(messages))
    })
}

fn item_message(call: &Call, item: &HcclSendRecvItem) -> Answer<Option<Message>> {
    let is_send = match item.send_recv_type {
        HcclSendRecvType::HCCL_SEND => true,
        HcclSendRecvType::HCCL_RECV => false,
        other => {
            let text = format!("sendRecvType of an item is {}; allowed: 0, 1", other.0);
            return Err(call.para(text));
        }
    };
    let peer = call.rank("remoteRank", item.remote_rank)?;
    if item.buf.is_null() || item.count == 0 {
        return Ok(None);
    }
    let count = call.count("count", item.count)?;
    let element = call.moved(item.data_type)?;
    Ok(Some(Message {
        is_send,
        peer,
        element,
        count,
        buffer: call.buffer("buf", item.buf, element, count)?,
    }))
}
