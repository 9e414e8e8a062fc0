//! The functions of HCCL that the tap stands in front of: each notes the call, makes it, and notes that it has returned.
//!
//! EXPORT-1: what the vendor's function returns is returned, and its arguments are passed on as they are.
//! EXPORT-2: arguments are read only as far as the vendor's library reads them.

#![expect(unsafe_code, reason = "functions that programs call from C")]
#![expect(unreachable_pub, reason = "exports have no path in Rust")]

use std::ffi::{c_char, c_void};
use std::mem;

use muster_comm::watch::tap::board::{Kind, UNKNOWN, hash};

use crate::real::Function;
use crate::record::{self, Asked, Birth, Depth, Lists, Noted};

/// Bytes of `HcclRootInfo`.
const ROOT_INFO_BYTES: usize = 4108;
/// What a call returns for which the vendor's library has no function: `HCCL_E_NOT_SUPPORT`.
const NOT_SUPPORTED: i32 = 5;
/// Items of a batch that are noted.
const ITEMS_MAX: usize = 64;

type Ptr = *mut c_void;

/// Defines an export: its name and arguments, and what is done around the call of the vendor's function, which is `real`.
macro_rules! export {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) |$real:ident| $body:block)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As the vendor's function.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> i32 {
                type Real = unsafe extern "C" fn($($type),*) -> i32;
                static FUNCTION: Function = Function::new(
                    match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => c"",
                    },
                );
                let address = FUNCTION.hccl();
                if address.is_null() {
                    return NOT_SUPPORTED;
                }
                // SAFETY: the vendor's function of this name has this signature.
                let real = unsafe { mem::transmute::<*mut c_void, Real>(address) };
                // SAFETY: the caller's arguments, passed on as they are.
                let $real = || unsafe { real($($argument),*) };
                let (_depth, is_outermost) = Depth::enter();
                if !is_outermost {
                    return $real();
                }
                $body
            }
        )*
    };
}

/// Makes a call, noted before and after.
fn around(comm: Ptr, stream: Ptr, asked: Asked, real: impl FnOnce() -> i32) -> i32 {
    let noted = record::note(comm, stream, &asked);
    let result = real();
    record::returned(noted, stream, result);
    result
}

fn asked(kind: Kind, dtype: i32, count: u64) -> Asked {
    Asked {
        kind,
        dtype: Some(dtype),
        op: None,
        root: None,
        count,
        counts: 0,
        lists: Lists::None,
    }
}

/// A call with one count for each member.
fn with_counts(asked: Asked, comm: Ptr, counts: *const c_void) -> Asked {
    Asked {
        counts: hash_counts(comm, counts),
        lists: Lists::Each(counts.cast()),
        ..asked
    }
}

/// A hash of counts, one for each member; 0 where there are none.
fn hash_counts(comm: Ptr, counts: *const c_void) -> u64 {
    let size = record::size_of(comm);
    if counts.is_null() || size == 0 || size == UNKNOWN {
        return 0;
    }
    let bytes = size as usize * size_of::<u64>();
    // SAFETY: the vendor's library reads a number of 64 bits for each member.
    let bytes = unsafe { std::slice::from_raw_parts(counts.cast::<u8>(), bytes) };
    hash(bytes, 0)
}

/// Makes a communicator, noted before and after.
fn birth(birth: Birth, members: &[u32], made: *mut Ptr, real: impl FnOnce() -> i32) -> i32 {
    let slot = record::begin(birth, members);
    let result = real();
    let is_made = result == 0 && !made.is_null();
    // SAFETY: after success the vendor's library has written it there.
    let handle = is_made.then(|| unsafe { *made });
    let handle = handle.unwrap_or(std::ptr::null_mut());
    record::created(slot, result, handle);
    result
}

/// The key of communicators that have this root information.
fn root_key(info: *const c_void) -> u64 {
    if info.is_null() {
        return 0;
    }
    // SAFETY: root information has this many bytes.
    hash(
        unsafe { std::slice::from_raw_parts(info.cast::<u8>(), ROOT_INFO_BYTES) },
        2,
    )
}

/// The key of communicators that have this rank table, a file or its text.
fn table_key(text: *const c_char) -> u64 {
    if text.is_null() {
        return 0;
    }
    // SAFETY: it is a C string.
    hash(unsafe { std::ffi::CStr::from_ptr(text) }.to_bytes(), 3)
}

fn whole(key: u64, size: u32, rank: u32) -> Birth {
    Birth {
        key,
        size,
        rank,
        parent: std::ptr::null_mut(),
    }
}

export! {
    /// A communicator by root information.
    fn HcclCommInitRootInfo(size: u32, info: *const c_void, rank: u32, comm: *mut Ptr) |real| {
        birth(whole(root_key(info), size, rank), &[], comm, real)
    }

    /// The same, with settings.
    fn HcclCommInitRootInfoConfig(size: u32, info: *const c_void, rank: u32, config: *const c_void, comm: *mut Ptr) |real| {
        birth(whole(root_key(info), size, rank), &[], comm, real)
    }

    /// A communicator by the file of a rank table.
    fn HcclCommInitClusterInfo(table: *const c_char, rank: u32, comm: *mut Ptr) |real| {
        birth(whole(table_key(table), UNKNOWN, rank), &[], comm, real)
    }

    /// The same, with settings.
    fn HcclCommInitClusterInfoConfig(table: *const c_char, rank: u32, config: *mut c_void, comm: *mut Ptr) |real| {
        birth(whole(table_key(table), UNKNOWN, rank), &[], comm, real)
    }

    /// A communicator of some members of another one.
    fn HcclCreateSubCommConfig(
        parent: *mut Ptr, size: u32, ranks: *mut u32, id: u64, rank: u32, config: *mut c_void, comm: *mut Ptr,
    ) |real| {
        if ranks.is_null() || parent.is_null() {
            return real();
        }
        // SAFETY: the vendor's library reads the handle there.
        let parent = unsafe { *parent };
        // SAFETY: the vendor's library reads so many ranks.
        let members = unsafe { std::slice::from_raw_parts(ranks, size as usize) };
        let seed = hash(&id.to_le_bytes(), record::key_of(parent));
        let key = members.iter().fold(seed, |seed, member| hash(&member.to_le_bytes(), seed));
        birth(Birth { key, size, rank, parent }, members, comm, real)
    }

    /// Ends a communicator.
    fn HcclCommDestroy(comm: Ptr) |real| {
        let slot = record::destroying(comm);
        let result = real();
        record::destroyed(slot);
        result
    }

    /// Whether a communicator has an error, which is noted.
    fn HcclGetCommAsyncError(comm: Ptr, error: *mut i32) |real| {
        let result = real();
        if result == 0 && !error.is_null() {
            // SAFETY: after success the vendor's library has written it there.
            let code = unsafe { *error };
            if code != 0 {
                record::failed(code, comm);
            }
        }
        result
    }

    /// From here on calls are collected.
    fn HcclGroupStart() |real| {
        record::group(true);
        real()
    }

    /// The calls that were collected are enqueued.
    fn HcclGroupEnd() |real| {
        let result = real();
        record::group(false);
        result
    }

    /// Every rank gets the reduction of all.
    fn HcclAllReduce(send: Ptr, recv: Ptr, count: u64, dtype: i32, op: i32, comm: Ptr, stream: Ptr) |real| {
        around(comm, stream, Asked { op: Some(op), ..asked(Kind::AllReduce, dtype, count) }, real)
    }

    /// Every rank gets what the root has.
    fn HcclBroadcast(buffer: Ptr, count: u64, dtype: i32, root: u32, comm: Ptr, stream: Ptr) |real| {
        around(comm, stream, Asked { root: Some(root), ..asked(Kind::Broadcast, dtype, count) }, real)
    }

    /// The root gets the reduction of all.
    fn HcclReduce(send: Ptr, recv: Ptr, count: u64, dtype: i32, op: i32, root: u32, comm: Ptr, stream: Ptr) |real| {
        around(comm, stream, Asked { op: Some(op), root: Some(root), ..asked(Kind::Reduce, dtype, count) }, real)
    }

    /// Every rank gets the blocks of all.
    fn HcclAllGather(send: Ptr, recv: Ptr, count: u64, dtype: i32, comm: Ptr, stream: Ptr) |real| {
        around(comm, stream, asked(Kind::AllGather, dtype, count), real)
    }

    /// The same with blocks of different lengths.
    fn HcclAllGatherV(
        send: Ptr, count: u64, recv: Ptr, counts: *const c_void, displs: *const c_void, dtype: i32, comm: Ptr, stream: Ptr,
    ) |real| {
        around(comm, stream, with_counts(asked(Kind::AllGatherV, dtype, count), comm, counts), real)
    }

    /// Every rank gets its block of the reduction.
    fn HcclReduceScatter(send: Ptr, recv: Ptr, count: u64, dtype: i32, op: i32, comm: Ptr, stream: Ptr) |real| {
        around(comm, stream, Asked { op: Some(op), ..asked(Kind::ReduceScatter, dtype, count) }, real)
    }

    /// The same with blocks of different lengths.
    fn HcclReduceScatterV(
        send: Ptr, counts: *const c_void, displs: *const c_void, recv: Ptr, count: u64, dtype: i32, op: i32, comm: Ptr, stream: Ptr,
    ) |real| {
        let asked = Asked { op: Some(op), ..asked(Kind::ReduceScatterV, dtype, count) };
        around(comm, stream, with_counts(asked, comm, counts), real)
    }

    /// Every rank gets its block of what the root has.
    fn HcclScatter(send: Ptr, recv: Ptr, count: u64, dtype: i32, root: u32, comm: Ptr, stream: Ptr) |real| {
        around(comm, stream, Asked { root: Some(root), ..asked(Kind::Scatter, dtype, count) }, real)
    }

    /// Every rank sends a block to every other one.
    fn HcclAlltoAll(
        send: *const c_void, count: u64, dtype: i32, recv: *const c_void, recv_count: u64, recv_dtype: i32, comm: Ptr, stream: Ptr,
    ) |real| {
        around(comm, stream, asked(Kind::AllToAll, dtype, count), real)
    }

    /// The same with blocks of different lengths.
    fn HcclAlltoAllV(
        send: *const c_void, counts: *const c_void, displs: *const c_void, dtype: i32, recv: *const c_void,
        recv_counts: *const c_void, recv_displs: *const c_void, recv_dtype: i32, comm: Ptr, stream: Ptr,
    ) |real| {
        let lists = Lists::Splits(counts.cast(), recv_counts.cast());
        around(comm, stream, Asked { lists, ..asked(Kind::AllToAllV, dtype, 0) }, real)
    }

    /// The same, with the counts of all ranks.
    fn HcclAlltoAllVC(
        send: *const c_void, matrix: *const c_void, dtype: i32, recv: *const c_void, recv_dtype: i32, comm: Ptr, stream: Ptr,
    ) |real| {
        let lists = Lists::Matrix(matrix.cast());
        around(comm, stream, Asked { lists, ..asked(Kind::AllToAllV, dtype, 0) }, real)
    }

    /// Every rank waits for all.
    fn HcclBarrier(comm: Ptr, stream: Ptr) |real| {
        let asked = Asked { kind: Kind::Barrier, dtype: None, op: None, root: None, count: 0, counts: 0, lists: Lists::None };
        around(comm, stream, asked, real)
    }

    /// Sends to a rank.
    fn HcclSend(buffer: Ptr, count: u64, dtype: i32, peer: u32, comm: Ptr, stream: Ptr) |real| {
        around(comm, stream, Asked { root: Some(peer), ..asked(Kind::Send, dtype, count) }, real)
    }

    /// Receives from a rank.
    fn HcclRecv(buffer: Ptr, count: u64, dtype: i32, peer: u32, comm: Ptr, stream: Ptr) |real| {
        around(comm, stream, Asked { root: Some(peer), ..asked(Kind::Recv, dtype, count) }, real)
    }

    /// Sends to and receives from several ranks at once.
    fn HcclBatchSendRecv(items: *mut Item, count: u32, comm: Ptr, stream: Ptr) |real| {
        let count = if items.is_null() { 0 } else { (count as usize).min(ITEMS_MAX) };
        let mut noted: [Option<Noted>; ITEMS_MAX] = [None; ITEMS_MAX];
        record::together(|| {
            for (at, noted) in noted[..count].iter_mut().enumerate() {
                let item = items.wrapping_add(at);
                // SAFETY: the vendor's library reads so many items.
                let item = unsafe { *item };
                let kind = if item.kind == 0 { Kind::Send } else { Kind::Recv };
                *noted = record::note(comm, stream, &Asked { root: Some(item.peer), ..asked(kind, item.dtype, item.count) });
            }
        });
        let result = real();
        for noted in noted[..count].iter().rev() {
            record::returned(*noted, stream, result);
        }
        result
    }
}

/// An item of a batch: `HcclSendRecvItem`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Item {
    /// 0 sends, 1 receives.
    kind: i32,
    buffer: Ptr,
    count: u64,
    dtype: i32,
    peer: u32,
}
