//! Memory of Python objects: address, count and element type, without a copy.
//!
//! Anything with the buffer protocol (numpy arrays, `array`, `bytearray`, `memoryview`, `bytes`), torch tensors on the
//! CPU, which have methods instead, and what has `__dlpack__` only. It knows nothing of collectives.
//!
//! The stable ABI has the buffer protocol from Python 3.11 on only. The functions and the layout of `Py_buffer` are
//! the same in every CPython since 3.3, so they are declared here.

#![expect(unsafe_code, reason = "addresses that Python objects give")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use muster_comm::buffer::{ReadView, WriteView};
use muster_comm::types::{DType, ReduceOp};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi::{Py_ssize_t, PyObject};
use pyo3::intern;
use pyo3::prelude::*;

use crate::dlpack::{self, Exported};

/// Format, shape and strides; also of memory that is read-only.
const FLAGS: c_int = 0x001c;

#[repr(C)]
struct PyBufferFields {
    buf: *mut c_void,
    obj: *mut PyObject,
    len: Py_ssize_t,
    itemsize: Py_ssize_t,
    readonly: c_int,
    ndim: c_int,
    format: *mut c_char,
    shape: *mut Py_ssize_t,
    strides: *mut Py_ssize_t,
    suboffsets: *mut Py_ssize_t,
    internal: *mut c_void,
}

unsafe extern "C" {
    fn PyObject_GetBuffer(object: *mut PyObject, view: *mut PyBufferFields, flags: c_int) -> c_int;
    fn PyObject_CheckBuffer(object: *mut PyObject) -> c_int;
    fn PyBuffer_Release(view: *mut PyBufferFields);
}

/// What keeps the memory of an object where it is.
enum Holder {
    Buffer(Option<Box<PyBufferFields>>),
    Exported(Option<Exported>),
    Object(#[expect(dead_code, reason = "kept, not used")] Py<PyAny>),
}

// SAFETY: what is behind the pointers any thread may hold; it is released only with the interpreter attached.
unsafe impl Send for Holder {}

/// Views whose calls ended on threads without the interpreter; the next call from Python releases them.
static TO_RELEASE: Mutex<Vec<Holder>> = Mutex::new(Vec::new());

impl Holder {
    fn release(&mut self, py: Python<'_>) {
        match self {
            Self::Buffer(view) => {
                if let Some(mut view) = view.take() {
                    // SAFETY: `PyObject_GetBuffer` filled it, it is released once, and the interpreter is attached.
                    unsafe { PyBuffer_Release(&raw mut *view) };
                }
            }
            Self::Exported(exported) => {
                if let Some(exported) = exported.take() {
                    exported.release(py);
                }
            }
            Self::Object(_) => {}
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let left = match self {
            Self::Buffer(view @ Some(_)) => Self::Buffer(view.take()),
            Self::Exported(exported @ Some(_)) => Self::Exported(exported.take()),
            Self::Buffer(None) | Self::Exported(None) | Self::Object(_) => return,
        };
        let mut list = TO_RELEASE.lock().unwrap_or_else(PoisonError::into_inner);
        list.push(left);
    }
}

/// Releases what other threads have left.
pub(crate) fn release_left(py: Python<'_>) {
    let left = {
        let mut list = TO_RELEASE.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *list)
    };
    for mut holder in left {
        holder.release(py);
    }
}

/// The elements of an object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Elements {
    pub(crate) dtype: DType,
    /// Truth values: they are moved as bytes, and not reduced.
    pub(crate) is_bool: bool,
}

/// Memory of an object, kept there as long as this.
pub(crate) struct Memory {
    address: usize,
    pub(crate) count: usize,
    pub(crate) elements: Elements,
    holder: Holder,
}

impl Memory {
    /// The memory of an object that is to be read, and written where `write` says so. `name` is the argument's.
    pub(crate) fn of(object: &Bound<'_, PyAny>, name: &str, write: bool) -> PyResult<Self> {
        let py = object.py();
        if object.hasattr(intern!(py, "data_ptr"))? {
            return Self::of_tensor(object, name);
        }
        // SAFETY: any object may be asked, and the interpreter is attached.
        let has_buffer = unsafe { PyObject_CheckBuffer(object.as_ptr()) } != 0;
        if !has_buffer && object.hasattr(intern!(py, "__dlpack__"))? {
            let found = dlpack::import(object, name, write)?;
            return Ok(Self {
                address: found.address,
                count: found.count,
                elements: found.elements,
                holder: Holder::Exported(Some(found.exported)),
            });
        }
        if has_buffer && let Some(bits) = bits_of(object) {
            let mut memory = Self::of_buffer(&bits, name, write)?;
            memory.elements.dtype = DType::Bf16;
            return Ok(memory);
        }
        Self::of_buffer(object, name, write)
    }

    fn of_buffer(object: &Bound<'_, PyAny>, name: &str, write: bool) -> PyResult<Self> {
        let view = view_of(object).map_err(|why| {
            let what = format!(
                "{name} is {}, which has no memory of numbers that can be used ({}); give a numpy array, a torch CPU \
                 tensor, an array.array, a bytearray, a memoryview, or anything with __dlpack__",
                kind_of(object),
                why.value(object.py()),
            );
            PyTypeError::new_err(what)
        })?;
        let elements = format_of(&view);
        let is_contiguous = is_contiguous(&view);
        let (readonly, len, itemsize) = (view.readonly != 0, view.len, view.itemsize.max(1));
        let address = view.buf as usize;
        let mut holder = Holder::Buffer(Some(view));
        let elements = elements.map_err(|format| {
            let known = "int8 to int64, uint8 to uint64, float16, float32, float64, bool; bfloat16 in torch tensors";
            let what = format!("{name} holds elements of format {format:?}; known are {known}");
            PyTypeError::new_err(what)
        });
        let fault = if !is_contiguous {
            Some("is not contiguous in C order; give a copy (numpy.ascontiguousarray)")
        } else if write && readonly {
            Some("is read-only, and the call writes to it")
        } else {
            None
        };
        let elements = match (elements, fault) {
            (Ok(elements), None) => elements,
            (elements, fault) => {
                holder.release(object.py());
                let what = fault.unwrap_or_default();
                return Err(match elements {
                    Err(error) => error,
                    Ok(_) => PyValueError::new_err(format!("{name} {what}")),
                });
            }
        };
        Ok(Self {
            address,
            count: usize::try_from(len / itemsize).unwrap_or(0),
            elements,
            holder,
        })
    }

    fn of_tensor(tensor: &Bound<'_, PyAny>, name: &str) -> PyResult<Self> {
        let py = tensor.py();
        let device = tensor.getattr(intern!(py, "device"))?;
        let kind: String = device.getattr(intern!(py, "type"))?.extract()?;
        if kind != "cpu" {
            let what = format!(
                "{name} lies on {}, not in memory of the host",
                device.str()?
            );
            return Err(PyValueError::new_err(what));
        }
        let layout = tensor.getattr(intern!(py, "layout"))?.str()?.to_string();
        if layout != "torch.strided" {
            let what = format!("{name} is a tensor of layout {layout}; give a dense one");
            return Err(PyTypeError::new_err(what));
        }
        let dtype = tensor.getattr(intern!(py, "dtype"))?.str()?.to_string();
        let elements = torch_dtype(dtype.trim_start_matches("torch.")).ok_or_else(|| {
            let what = format!("{name} holds {dtype}, which is not carried");
            PyTypeError::new_err(what)
        })?;
        if !tensor
            .call_method0(intern!(py, "is_contiguous"))?
            .is_truthy()?
        {
            let what = format!("{name} is not contiguous; give tensor.contiguous()");
            return Err(PyValueError::new_err(what));
        }
        Ok(Self {
            address: tensor.call_method0(intern!(py, "data_ptr"))?.extract()?,
            count: tensor.call_method0(intern!(py, "numel"))?.extract()?,
            elements,
            holder: Holder::Object(tensor.clone().unbind()),
        })
    }

    /// Refuses truth values where a reduction is asked for.
    pub(crate) fn check_numbers(&self, name: &str, op: ReduceOp) -> PyResult<()> {
        if self.elements.is_bool {
            let what = format!("{name} holds truth values, which have no {op}");
            return Err(PyTypeError::new_err(what));
        }
        Ok(())
    }

    /// The whole of it.
    pub(crate) fn span(&self) -> Span {
        Span {
            address: self.address,
            count: self.count,
            dtype: self.elements.dtype,
        }
    }

    /// Gives it up.
    pub(crate) fn release(mut self, py: Python<'_>) {
        self.holder.release(py);
    }
}

/// Elements at an address, which a [`Memory`] or the caller in C keeps there.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    pub(crate) address: usize,
    pub(crate) count: usize,
    pub(crate) dtype: DType,
}

impl Span {
    /// Block `index` of `count` elements.
    pub(crate) fn block(self, index: usize, count: usize) -> Self {
        let offset = index
            .saturating_mul(count)
            .saturating_mul(self.dtype.size());
        Self {
            address: self.address.wrapping_add(offset),
            count,
            ..self
        }
    }

    fn at(self) -> *mut u8 {
        if self.count == 0 {
            // An empty view has any address but null.
            return ptr::NonNull::<u64>::dangling().as_ptr().cast();
        }
        self.address as *mut u8
    }

    /// For the time of a call during which the memory is kept.
    pub(crate) fn read<'a>(self) -> ReadView<'a> {
        // SAFETY: the object is held until the call has ended, and said that so many elements lie there.
        unsafe { ReadView::from_raw(self.at(), self.count, self.dtype) }
    }

    /// As [`Span::read`], for memory that the object lets be written.
    pub(crate) fn write<'a>(self) -> WriteView<'a> {
        // SAFETY: as in `read`; that nobody else touches a buffer during a call is the caller's duty, as the
        // documentation of the calls says.
        unsafe { WriteView::from_raw(self.at(), self.count, self.dtype) }
    }
}

/// The view of an object with the buffer protocol, which is to be released.
fn view_of(object: &Bound<'_, PyAny>) -> PyResult<Box<PyBufferFields>> {
    let mut view = Box::new(PyBufferFields {
        buf: ptr::null_mut(),
        obj: ptr::null_mut(),
        len: 0,
        itemsize: 0,
        readonly: 0,
        ndim: 0,
        format: ptr::null_mut(),
        shape: ptr::null_mut(),
        strides: ptr::null_mut(),
        suboffsets: ptr::null_mut(),
        internal: ptr::null_mut(),
    });
    // SAFETY: both live for the call, and the interpreter is attached.
    match unsafe { PyObject_GetBuffer(object.as_ptr(), &raw mut *view, FLAGS) } {
        0 => Ok(view),
        _ => Err(PyErr::fetch(object.py())),
    }
}

/// The bits of an array of `ml_dtypes.bfloat16`, a type that the buffer protocol has no letter for.
fn bits_of<'py>(object: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    let py = object.py();
    let dtype = object.getattr(intern!(py, "dtype")).ok()?;
    // Of every numpy array: the one-letter kind says quickly that it is a plain type.
    let kind = dtype.getattr(intern!(py, "kind")).ok()?;
    if kind.extract::<char>().ok()? != 'V' {
        return None;
    }
    let name: String = dtype.getattr(intern!(py, "name")).ok()?.extract().ok()?;
    (name == "bfloat16")
        .then(|| object.call_method1(intern!(py, "view"), (intern!(py, "uint16"),)))?
        .ok()
}

fn kind_of(object: &Bound<'_, PyAny>) -> String {
    let name = object.get_type().qualname();
    name.map_or_else(|_| "an object".to_owned(), |name| name.to_string())
}

/// The element type, or the format that is none.
fn format_of(view: &PyBufferFields) -> Result<Elements, String> {
    let format = if view.format.is_null() {
        "B".to_owned()
    } else {
        // SAFETY: a format is a string that ends with zero and lives as long as the view.
        let format = unsafe { CStr::from_ptr(view.format) };
        format.to_string_lossy().into_owned()
    };
    let is_native = |sign: &char| ['@', '='].contains(sign) || *sign == '<';
    let mut letters = format.chars().skip_while(is_native);
    let (letter, rest) = (letters.next(), letters.next());
    let signed = || match view.itemsize {
        1 => Some(DType::I8),
        2 => Some(DType::I16),
        4 => Some(DType::I32),
        8 => Some(DType::I64),
        _ => None,
    };
    let unsigned = || match view.itemsize {
        1 => Some(DType::U8),
        2 => Some(DType::U16),
        4 => Some(DType::U32),
        8 => Some(DType::U64),
        _ => None,
    };
    let dtype = match (letter, rest) {
        (Some('b' | 'h' | 'i' | 'l' | 'q' | 'n'), None) => signed(),
        (Some('B' | 'H' | 'I' | 'L' | 'Q' | 'N'), None) => unsigned(),
        (Some('c' | '?'), None) if view.itemsize == 1 => Some(DType::U8),
        (Some('e'), None) => Some(DType::F16),
        (Some('f'), None) => Some(DType::F32),
        (Some('d'), None) => Some(DType::F64),
        _ => None,
    };
    let dtype = dtype.filter(|dtype| i64::try_from(dtype.size()) == Ok(view.itemsize as i64));
    let is_bool = letter == Some('?');
    dtype.map(|dtype| Elements { dtype, is_bool }).ok_or(format)
}

fn is_contiguous(view: &PyBufferFields) -> bool {
    if view.len == 0 || view.ndim == 0 {
        return true;
    }
    if view.shape.is_null() || view.strides.is_null() {
        return view.strides.is_null();
    }
    if !view.suboffsets.is_null() {
        return false;
    }
    let ndim = usize::try_from(view.ndim).unwrap_or(0);
    // SAFETY: a view with `ndim` dimensions has as many lengths, which live as long as the view.
    let shape = unsafe { std::slice::from_raw_parts(view.shape, ndim) };
    // SAFETY: as for `shape`.
    let strides = unsafe { std::slice::from_raw_parts(view.strides, ndim) };
    let mut step = view.itemsize;
    for (length, stride) in shape.iter().zip(strides).rev() {
        if *length != 1 && *stride != step {
            return false;
        }
        step *= length;
    }
    true
}

/// The element type with torch's name for it.
fn torch_dtype(name: &str) -> Option<Elements> {
    let dtype = match name {
        "bfloat16" => DType::Bf16,
        "float16" => DType::F16,
        "float32" => DType::F32,
        "float64" => DType::F64,
        "int8" => DType::I8,
        "int16" => DType::I16,
        "int32" => DType::I32,
        "int64" => DType::I64,
        "uint8" | "bool" => DType::U8,
        "uint16" => DType::U16,
        "uint32" => DType::U32,
        "uint64" => DType::U64,
        _ => return None,
    };
    let is_bool = name == "bool";
    Some(Elements { dtype, is_bool })
}
