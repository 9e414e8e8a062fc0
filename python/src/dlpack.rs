//! Memory of objects that have it by DLPack only: `__dlpack__` gives a capsule with a description of it.
//!
//! The layouts are those of `dlpack.h`: version 1, and the form before it, which has no version. They hold for every
//! library that exports memory so.

#![expect(unsafe_code, reason = "descriptions of memory behind pointers")]

use std::ffi::{CStr, c_void};

use muster_comm::types::DType;
use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::ffi::{PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_SetName};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::buffer::Elements;

/// Main memory, in `DLDeviceType`.
const CPU: i32 = 1;
/// The version of the layout that is known.
const MAJOR: u32 = 1;
const READ_ONLY: u64 = 1;
const IS_COPY: u64 = 2;

#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: [i32; 2],
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct Unversioned {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Unversioned)>,
}

#[repr(C)]
struct Versioned {
    version: [u32; 2],
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    tensor: Tensor,
}

/// What a capsule held. Whoever has taken it out gives it back once.
pub(crate) enum Exported {
    Unversioned(*mut c_void),
    Versioned(*mut c_void),
}

impl Exported {
    /// Gives the memory back to the object.
    pub(crate) fn release(self, _py: Python<'_>) {
        match self {
            Self::Unversioned(at) => {
                let at = at.cast::<Unversioned>();
                // SAFETY: the exporter keeps it until its deleter is called, below, and nowhere else.
                if let Some(deleter) = unsafe { (*at).deleter } {
                    // SAFETY: it is the exporter's function for this, and the interpreter is attached.
                    unsafe { deleter(at) };
                }
            }
            Self::Versioned(at) => {
                let at = at.cast::<Versioned>();
                // SAFETY: as above.
                if let Some(deleter) = unsafe { (*at).deleter } {
                    // SAFETY: as above.
                    unsafe { deleter(at) };
                }
            }
        }
    }

    fn tensor(&self) -> &Tensor {
        match self {
            // SAFETY: the exporter keeps the description until it is given back, which takes `self`.
            Self::Unversioned(at) => unsafe { &(*at.cast::<Unversioned>()).tensor },
            // SAFETY: as above.
            Self::Versioned(at) => unsafe { &(*at.cast::<Versioned>()).tensor },
        }
    }

    fn flags(&self) -> u64 {
        match self {
            Self::Unversioned(_) => 0,
            // SAFETY: as in `tensor`.
            Self::Versioned(at) => unsafe { (*at.cast::<Versioned>()).flags },
        }
    }

    fn major(&self) -> u32 {
        match self {
            Self::Unversioned(_) => MAJOR,
            // SAFETY: as in `tensor`; the version stands first in every version.
            Self::Versioned(at) => unsafe { (*at.cast::<Versioned>()).version[0] },
        }
    }
}

/// Where the elements lie, how many there are, and what keeps them there.
pub(crate) struct Described {
    pub(crate) address: usize,
    pub(crate) count: usize,
    pub(crate) elements: Elements,
    pub(crate) exported: Exported,
}

/// The memory of an object that has `__dlpack__`.
pub(crate) fn import(object: &Bound<'_, PyAny>, name: &str, write: bool) -> PyResult<Described> {
    let py = object.py();
    let device: (i32, i32) = object
        .call_method0(intern!(py, "__dlpack_device__"))?
        .extract()?;
    if device.0 != CPU {
        let what = format!(
            "{name} lies on a device of DLPack's type {}, not in memory of the host",
            device.0
        );
        return Err(PyValueError::new_err(what));
    }
    let capsule = capsule_of(object).map_err(|why| {
        // Such as memory that is read-only, which DLPack could not say before version 1.
        let is_refused = why.is_instance_of::<PyBufferError>(py);
        if !is_refused {
            return why;
        }
        PyValueError::new_err(format!("{name} is not given by DLPack: {}", why.value(py)))
    })?;
    let exported = take(&capsule)?;
    let described = if exported.major() == MAJOR {
        describe(&exported, name, write)
    } else {
        let what = format!(
            "{name} is described by version {} of DLPack; known is {MAJOR}",
            exported.major()
        );
        Err(PyTypeError::new_err(what))
    };
    match described {
        Ok((address, count, elements)) => Ok(Described {
            address,
            count,
            elements,
            exported,
        }),
        Err(error) => {
            exported.release(py);
            Err(error)
        }
    }
}

/// The capsule, of version 1 where the object knows that.
fn capsule_of<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let version = PyDict::new(py);
    version.set_item("max_version", (MAJOR, 0))?;
    let method = object.getattr(intern!(py, "__dlpack__"))?;
    match method.call((), Some(&version)) {
        Err(error) if error.is_instance_of::<PyTypeError>(py) => method.call0(),
        capsule => capsule,
    }
}

/// Takes what is in the capsule, which says then that it was taken.
fn take(capsule: &Bound<'_, PyAny>) -> PyResult<Exported> {
    for is_versioned in [true, false] {
        let (name, used): (&CStr, &CStr) = match is_versioned {
            true => (c"dltensor_versioned", c"used_dltensor_versioned"),
            false => (c"dltensor", c"used_dltensor"),
        };
        // SAFETY: any object may be asked.
        if unsafe { PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) } == 0 {
            continue;
        }
        // SAFETY: it is a capsule of this name.
        let at = unsafe { PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr()) };
        // SAFETY: as above; the name lives as long as the program.
        let renamed = unsafe { PyCapsule_SetName(capsule.as_ptr(), used.as_ptr()) };
        if at.is_null() || renamed != 0 {
            return Err(PyErr::fetch(capsule.py()));
        }
        return Ok(match is_versioned {
            true => Exported::Versioned(at),
            false => Exported::Unversioned(at),
        });
    }
    Err(PyTypeError::new_err(
        "__dlpack__ gave no capsule of a tensor",
    ))
}

fn describe(exported: &Exported, name: &str, write: bool) -> PyResult<(usize, usize, Elements)> {
    let tensor = exported.tensor();
    let elements = elements_of(tensor).ok_or_else(|| {
        let (code, bits, lanes) = (tensor.code, tensor.bits, tensor.lanes);
        let what = format!(
            "{name} holds elements of DLPack's type code {code} with {bits} bits and {lanes} lanes, which are not carried"
        );
        PyTypeError::new_err(what)
    })?;
    let ndim = usize::try_from(tensor.ndim).unwrap_or(0);
    let lengths = |at: *mut i64| -> Option<&[i64]> {
        if ndim == 0 {
            return Some(&[]);
        }
        // SAFETY: a description has as many lengths as dimensions, and lives as long as `exported`.
        (!at.is_null()).then(|| unsafe { std::slice::from_raw_parts(at, ndim) })
    };
    let shape = lengths(tensor.shape).unwrap_or(&[]);
    let count: i64 = shape.iter().product();
    let mut step = 1;
    let mut is_contiguous = true;
    // Without strides the order is that of C.
    if let Some(strides) = lengths(tensor.strides) {
        for (length, stride) in shape.iter().zip(strides).rev() {
            is_contiguous &= *length == 1 || *stride == step;
            step *= length;
        }
    }
    let fault = if !is_contiguous && count > 0 {
        "is not contiguous in C order; give a copy"
    } else if write && exported.flags() & READ_ONLY != 0 {
        "is read-only, and the call writes to it"
    } else if write && exported.flags() & IS_COPY != 0 {
        "gives only a copy of its memory, and the call writes to it"
    } else {
        let offset = usize::try_from(tensor.byte_offset).unwrap_or(0);
        let address = (tensor.data as usize).wrapping_add(offset);
        return Ok((address, usize::try_from(count).unwrap_or(0), elements));
    };
    Err(PyValueError::new_err(format!("{name} {fault}")))
}

fn elements_of(tensor: &Tensor) -> Option<Elements> {
    let dtype = match (tensor.code, tensor.bits) {
        (0, 8) => DType::I8,
        (0, 16) => DType::I16,
        (0, 32) => DType::I32,
        (0, 64) => DType::I64,
        (1 | 6, 8) => DType::U8,
        (1, 16) => DType::U16,
        (1, 32) => DType::U32,
        (1, 64) => DType::U64,
        (2, 16) => DType::F16,
        (2, 32) => DType::F32,
        (2, 64) => DType::F64,
        (4, 16) => DType::Bf16,
        _ => return None,
    };
    let is_bool = tensor.code == 6;
    (tensor.lanes == 1).then_some(Elements { dtype, is_bool })
}
