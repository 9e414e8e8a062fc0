//! The checks of an operator's arguments, in the order in which the vendor makes them, and the job
//! that comes out of them.
//!
//! - `CALL-1`: what is refused here has changed nothing, on this rank or another.
//! - `CALL-2`: buffers are proved to lie in device memory of the communicator's device when the call
//!   is made, and again when it is carried out.

use std::ffi::c_void;
use std::sync::Arc;

use hccl_sys::types::{HcclDataType, HcclReduceOp, HcclResult};
use muster_comm::types::ReduceOp;

use super::comm::Comm;
use super::fail::{Answer, EI0003, Fail};
use super::job::{Area, Buffer};
use super::library::{Library, library};
use super::limits::{Element, has_operator, movable, reducible, reduction};
use super::operator::Operator;
use crate::runtime::handles::Found;
use crate::runtime::memory::{Access, Misuse, resolve};
use crate::runtime::state;
use crate::runtime::stream::Stream;

/// Most elements of one call.
const COUNT_MAX: u64 = 0x7_FFFF_FFFF;

/// An operator that is being checked.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) operator: Operator,
    pub(crate) library: &'static Library,
    pub(crate) comm: Arc<Comm>,
    pub(crate) stream: Arc<Stream>,
}

/// The live communicator that a handle stands for.
pub(crate) fn find_comm(call: &str, library: &Library, handle: *const c_void) -> Answer<Arc<Comm>> {
    if handle.is_null() {
        return Err(Fail::null(call, "comm"));
    }
    let text = match library.comms.find(handle) {
        Found::Live(comm) => return Ok(comm),
        Found::Gone => "comm was destroyed",
        Found::Alien => "comm is no communicator",
    };
    Err(Fail::para(format!("{call}: {text}: {handle:p}")))
}

impl Call {
    /// Looks communicator and stream up.
    pub(crate) fn open(
        operator: Operator,
        comm: *const c_void,
        stream: *const c_void,
    ) -> Answer<Self> {
        let name = operator.function();
        let library = library(name)?;
        let comm = find_comm(name, library, comm)?;
        if stream.is_null() {
            return Err(Fail::null(name, "stream"));
        }
        let stream = match state().streams.find(stream) {
            Found::Live(stream) => stream,
            Found::Gone => {
                let text = format!("{name}: stream was destroyed: {stream:p}");
                return Err(Fail::new(HcclResult::HCCL_E_RUNTIME, EI0003, text));
            }
            Found::Alien => {
                let text = format!("{name}: stream is no stream: {stream:p}");
                return Err(Fail::new(HcclResult::HCCL_E_RUNTIME, EI0003, text));
            }
        };
        if stream.device.logical != comm.device.logical {
            let text = format!(
                "{name}: the stream is on device {}, communicator {} on device {}",
                stream.device.logical, comm.name, comm.device.logical
            );
            return Err(Fail::new(HcclResult::HCCL_E_RUNTIME, EI0003, text));
        }
        if !has_operator(library.product, operator) {
            let text = format!("{name} is not supported on {:?}", library.product);
            return Err(Fail::unsupported(text));
        }
        Ok(Self {
            operator,
            library,
            comm,
            stream,
        })
    }

    pub(crate) fn name(&self) -> &'static str {
        self.operator.function()
    }

    /// Ranks of the communicator.
    pub(crate) fn ranks(&self) -> usize {
        self.comm.members.len()
    }

    /// This rank, as an index.
    pub(crate) fn me(&self) -> usize {
        self.comm.rank as usize
    }

    pub(crate) fn para(&self, text: impl std::fmt::Display) -> Fail {
        Fail::para(format!("{}: {text}", self.name()))
    }

    pub(crate) fn need(&self, argument: &str, pointer: *const c_void) -> Answer {
        if pointer.is_null() {
            return Err(Fail::null(self.name(), argument));
        }
        Ok(())
    }

    /// A number of elements.
    pub(crate) fn count(&self, argument: &str, count: u64) -> Answer<usize> {
        if count > COUNT_MAX {
            return Err(self.para(format!("{argument} is {count}; allowed: 0 to {COUNT_MAX}")));
        }
        usize::try_from(count).map_err(|_| self.para(format!("{argument} is {count}")))
    }

    /// Root or peer.
    pub(crate) fn rank(&self, argument: &str, rank: u32) -> Answer<usize> {
        let ranks = self.ranks();
        let index = rank as usize;
        if index < ranks {
            return Ok(index);
        }
        Err(self.para(format!("{argument} is {rank}; allowed: 0 to {}", ranks - 1)))
    }

    /// An element type that is moved as it is.
    pub(crate) fn moved(&self, data_type: HcclDataType) -> Answer<Element> {
        match Element::of(data_type) {
            Some(element) if movable(self.library.product, data_type) => Ok(element),
            Some(_) => Err(Fail::unsupported(format!(
                "{}: dataType {data_type:?} is not supported on {:?}",
                self.name(),
                self.library.product
            ))),
            None => Err(Fail::unsupported(format!(
                "{}: dataType is {}, which is none",
                self.name(),
                data_type.0
            ))),
        }
    }

    /// Element type and reduction.
    pub(crate) fn reduced(
        &self,
        data_type: HcclDataType,
        op: HcclReduceOp,
    ) -> Answer<(Element, ReduceOp)> {
        let Some(element) = Element::of(data_type) else {
            return self
                .moved(data_type)
                .map(|element| (element, ReduceOp::Sum));
        };
        let Some(reduction) = reduction(op) else {
            return Err(Fail::unsupported(format!(
                "{}: op is {}; allowed: 0 sum, 1 prod, 2 max, 3 min",
                self.name(),
                op.0
            )));
        };
        let allowed = reducible(self.library.product, self.operator, reduction);
        if element.is_same && allowed.contains(&element.dtype) {
            return Ok((element, reduction));
        }
        let names: Vec<&str> = allowed.iter().map(|dtype| dtype.name()).collect();
        Err(Fail::unsupported(format!(
            "{}: dataType {data_type:?} with {reduction} is not supported on {:?}; allowed: {}",
            self.name(),
            self.library.product,
            names.join(", ")
        )))
    }

    /// A buffer of `count` elements.
    pub(crate) fn buffer(
        &self,
        argument: &str,
        pointer: *const c_void,
        element: Element,
        count: usize,
    ) -> Answer<Buffer> {
        let bytes = count
            .checked_mul(element.bytes())
            .ok_or_else(|| self.para(format!("{argument} of {count} elements is too large")))?;
        if bytes == 0 {
            return Ok(Buffer::nothing());
        }
        self.need(argument, pointer)?;
        if !pointer.addr().is_multiple_of(element.bytes()) {
            return Err(self.para(format!(
                "{argument} {pointer:p} is not aligned to its elements of {} bytes",
                element.bytes()
            )));
        }
        let device = self.comm.device.logical;
        // Read access asks the least of fresh memory: what is written later is noted then.
        match resolve(device, pointer, bytes as u64, Access::Read) {
            Ok(_) => Ok(Buffer::new(pointer, bytes)),
            Err(Misuse::Null) => Err(Fail::null(self.name(), argument)),
            Err(misuse) => Err(self.para(format!("{argument}: {misuse}"))),
        }
    }

    /// A packed buffer.
    pub(crate) fn area(
        &self,
        argument: &str,
        pointer: *const c_void,
        element: Element,
        count: usize,
    ) -> Answer<Area> {
        self.buffer(argument, pointer, element, count)
            .map(Area::packed)
    }

    /// A buffer whose blocks lie where `displs` says.
    pub(crate) fn blocks(
        &self,
        argument: &str,
        pointer: *const c_void,
        element: Element,
        counts: &[usize],
        displs: &[usize],
    ) -> Answer<Area> {
        let mut end = 0_usize;
        let mut packed = 0_usize;
        let mut is_packed = true;
        for (count, displ) in counts.iter().zip(displs) {
            is_packed &= *count == 0 || *displ == packed;
            packed += count;
            if *count > 0 {
                end = end.max(displ.saturating_add(*count));
            }
        }
        let buffer = self.buffer(argument, pointer, element, end)?;
        if is_packed {
            return Ok(Area::packed(buffer));
        }
        let size = element.bytes();
        let blocks = counts
            .iter()
            .zip(displs)
            .map(|(count, displ)| (displ * size, count * size))
            .collect();
        Ok(Area::scattered(buffer, blocks))
    }

    /// A list of counts or displacements, one for each rank, in host memory.
    ///
    /// # Safety
    /// `list` is null, or `len` numbers of 64 bits can be read there.
    pub(crate) unsafe fn list(
        &self,
        argument: &str,
        list: *const c_void,
        len: usize,
    ) -> Answer<Vec<usize>> {
        self.need(argument, list)?;
        let list = list.cast::<u64>();
        (0..len)
            .map(|index| {
                // SAFETY: the caller vouches for `len` numbers; `index` is below that.
                let place = unsafe { list.add(index) };
                // SAFETY: as above; a number need not be aligned here.
                let number = unsafe { place.read_unaligned() };
                self.count(&format!("{argument}[{index}]"), number)
            })
            .collect()
    }
}
