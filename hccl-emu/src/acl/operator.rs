//! Descriptions of tensors, the one call that runs an operator by its name, and the options of its
//! compiler. Attributes are taken and not kept: of the operators that are emulated, shapes and types say all.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::abi::{Text, exports, null};
use super::base::aclDataTypeSize;
use super::stream;
use crate::runtime::errors::{AclError, RuntimeError};
use crate::runtime::handles::{self, Found};
use crate::runtime::operator::{Action, Argument, Block, DIMENSIONS_MAX, Description, Place};
use crate::runtime::state;
use crate::runtime::stream::TaskContext;

/// Most tensors on one side of an operator.
const TENSORS_MAX: usize = 1024;
/// Options of the operator compiler, `aclCompileOpt`.
const COMPILE_OPTIONS: i32 = 17;
/// The option that says whether operators are compiled when they are first used.
const JIT_COMPILE: i32 = 10;
/// Longest value of an option.
const OPTION_BYTES_MAX: usize = 4096;

/// A description of a tensor; null for one that cannot be.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn aclCreateTensorDesc(
    data_type: c_int,
    dimensions: c_int,
    sizes: *const i64,
    format: c_int,
) -> *mut c_void {
    let count = usize::try_from(dimensions).unwrap_or(usize::MAX);
    if count > DIMENSIONS_MAX || (count > 0 && sizes.is_null()) {
        return std::ptr::null_mut();
    }
    let sizes: Vec<i64> = (0..count)
        .map(|at| {
            // SAFETY: the caller promises as many sizes as it says; `count` is at most that.
            unsafe { sizes.wrapping_add(at).read_unaligned() }
        })
        .collect();
    let made = state()
        .descriptions
        .insert(|handle| Arc::new(Description::new(handle, data_type, format, sizes)));
    handles::pointer(made.handle)
}

/// Ends a description.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn aclDestroyTensorDesc(description: *const c_void) {
    state().descriptions.remove(description.addr() as u64);
}

/// The element type; -1 (`ACL_DT_UNDEFINED`) for no description.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn aclGetTensorDescType(description: *const c_void) -> c_int {
    find(description).map_or(-1, |found| found.data_type)
}

/// The format; -1 (`ACL_FORMAT_UNDEFINED`) for no description.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn aclGetTensorDescFormat(description: *const c_void) -> c_int {
    find(description).map_or(-1, |found| found.format)
}

/// The number of dimensions; 0 for no description.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn aclGetTensorDescNumDims(description: *const c_void) -> usize {
    find(description).map_or(0, |found| found.dimensions.len())
}

/// The number of elements; 0 where it is not known.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn aclGetTensorDescElementCount(description: *const c_void) -> usize {
    find(description).map_or(0, |found| found.elements().unwrap_or(0))
}

/// The bytes of all elements; 0 where they are not known.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn aclGetTensorDescSize(description: *const c_void) -> usize {
    find(description).map_or(0, |found| {
        let bytes = aclDataTypeSize(found.data_type);
        found.elements().unwrap_or(0).saturating_mul(bytes)
    })
}

/// A name changes nothing here.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn aclSetTensorDescName(_description: *mut c_void, _name: *const c_char) {}

/// Memory of a tensor; null if there is no more.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn aclCreateDataBuffer(data: *mut c_void, bytes: usize) -> *mut c_void {
    let block = Block {
        address: data.expose_provenance(),
        bytes,
    };
    let mut made = 0;
    state().buffers.insert(|handle| {
        made = handle;
        Arc::new(block)
    });
    handles::pointer(made)
}

/// The address of a buffer; null for no buffer.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn aclGetDataBufferAddr(buffer: *const c_void) -> *mut c_void {
    block(buffer).map_or(std::ptr::null_mut(), |block| {
        std::ptr::with_exposed_provenance_mut(block.address)
    })
}

/// The length of a buffer; 0 for no buffer.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn aclGetDataBufferSizeV2(buffer: *const c_void) -> usize {
    block(buffer).map_or(0, |block| block.bytes)
}

/// The same, as far as 32 bits go.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn aclGetDataBufferSize(buffer: *const c_void) -> u32 {
    u32::try_from(aclGetDataBufferSizeV2(buffer)).unwrap_or(u32::MAX)
}

/// A handle for attributes, which are not kept.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn aclopCreateAttr() -> *mut c_void {
    aclCreateDataBuffer(std::ptr::null_mut(), 0)
}

/// Ends it.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn aclopDestroyAttr(attributes: *const c_void) {
    state().buffers.remove(attributes.addr() as u64);
}

/// Bytes that the value of a compiler option takes with its closing zero; 0 for no option.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn aclGetCompileoptSize(option: c_int) -> usize {
    value_of(option).map_or(0, |value| value.len() + 1)
}

exports! {
    /// Ends a buffer's description, and not the memory.
    fn aclDestroyDataBuffer(buffer: *const c_void) {
        let handle = buffer.addr() as u64;
        let removed = state().buffers.remove(handle);
        removed.map(drop).ok_or_else(|| RuntimeError::argument("dataBuffer is no buffer"))
    }

    /// Formats change nothing for what is emulated.
    fn aclSetTensorFormat(description: *mut c_void, _format: c_int) {
        need(description).map(drop)
    }

    /// Nor do shapes in a format.
    fn aclSetTensorShape(description: *mut c_void, _dimensions: c_int, _sizes: *const i64) {
        need(description).map(drop)
    }

    /// Where the memory is: 0 on the device, 1 and 2 on the host.
    fn aclSetTensorPlaceMent(description: *mut c_void, place: c_int) {
        need(description)?.set_on_host(place != 0);
        Ok(())
    }

    /// Elements that are known when the operator is compiled.
    fn aclSetTensorConst(description: *mut c_void, data: *const c_void, bytes: usize) {
        let description = need(description)?;
        if data.is_null() {
            return Err(null("dataBuffer"));
        }
        description.set_constant(host_bytes(data, bytes));
        Ok(())
    }

    /// Sets an option of the operator compiler.
    fn aclSetCompileopt(option: c_int, value: Text) {
        let value = value.get().ok_or_else(|| null("value"))?;
        if !(0..COMPILE_OPTIONS).contains(&option) || value.len() > OPTION_BYTES_MAX {
            let text = format!("option {option} with {} bytes", value.len());
            return Err(RuntimeError::new(AclError::INVALID_PARAM, text));
        }
        options().insert(option, value);
        Ok(())
    }

    /// The value of an option with its closing zero.
    fn aclGetCompileopt(option: c_int, value: *mut c_char, length: usize) {
        let text = value_of(option).ok_or_else(|| {
            RuntimeError::new(AclError::INVALID_PARAM, format!("option {option}"))
        })?;
        if value.is_null() || length <= text.len() {
            let text = format!("length is {length}; needed: {}", text.len() + 1);
            return Err(RuntimeError::new(AclError::INVALID_PARAM, text));
        }
        for (at, byte) in text.bytes().chain([0]).enumerate() {
            // SAFETY: the caller promises `length` bytes, and the text with its zero has no more.
            unsafe { value.cast::<u8>().wrapping_add(at).write(byte) };
        }
        Ok(())
    }

    /// Runs an operator on a stream, if it is one of the few that need no kernel.
    fn aclopCompileAndExecuteV2(
        name: Text,
        inputs: c_int,
        input_descriptions: *const *const c_void,
        input_buffers: *const *const c_void,
        outputs: c_int,
        output_descriptions: *const *const c_void,
        output_buffers: *const *const c_void,
        _attributes: *const c_void,
        _engine: c_int,
        _flag: c_int,
        _path: *const c_char,
        stream: *mut c_void,
    ) {
        let inputs = (inputs, input_descriptions, input_buffers);
        run(name, inputs, (outputs, output_descriptions, output_buffers), stream)
    }

    /// The same with descriptions that stay as they are.
    fn aclopCompileAndExecute(
        name: Text,
        inputs: c_int,
        input_descriptions: *const *const c_void,
        input_buffers: *const *const c_void,
        outputs: c_int,
        output_descriptions: *const *const c_void,
        output_buffers: *const *const c_void,
        _attributes: *const c_void,
        _engine: c_int,
        _flag: c_int,
        _path: *const c_char,
        stream: *mut c_void,
    ) {
        let inputs = (inputs, input_descriptions, input_buffers);
        run(name, inputs, (outputs, output_descriptions, output_buffers), stream)
    }
}

/// Declares functions that take an attribute of an operator; callers' arguments are ignored.
macro_rules! attributes {
    ($($name:ident),* $(,)?) => {$(
        #[doc = concat!("`", stringify!($name), "`: taken, and not kept.")]
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name() -> i32 {
            AclError::NONE.0
        }
    )*};
}

attributes! {
    aclopSetAttrBool, aclopSetAttrDataType, aclopSetAttrFloat, aclopSetAttrInt, aclopSetAttrListBool,
    aclopSetAttrListDataType, aclopSetAttrListFloat, aclopSetAttrListInt, aclopSetAttrListListInt,
    aclopSetAttrListString, aclopSetAttrString
}

/// Tensors as a client passes them: their number, their descriptions, their buffers.
type Tensors = (c_int, *const *const c_void, *const *const c_void);

fn run(
    name: Text,
    inputs: Tensors,
    outputs: Tensors,
    stream: *mut c_void,
) -> Result<(), RuntimeError> {
    let name = name.get().ok_or_else(|| null("opType"))?;
    let (inputs, outputs) = (arguments(inputs)?, arguments(outputs)?);
    let action = Action::of(&name, &inputs, &outputs, |kind| aclDataTypeSize(kind))?;
    let stream = stream::of(stream)?;
    let device = stream.device.logical;
    let work = move |_: &TaskContext| action.run(device);
    stream
        .enqueue("aclopCompileAndExecute", Box::new(work))
        .map(drop)
}

fn arguments((count, descriptions, buffers): Tensors) -> Result<Vec<Argument>, RuntimeError> {
    let count = usize::try_from(count)
        .ok()
        .filter(|count| *count <= TENSORS_MAX)
        .ok_or_else(|| RuntimeError::argument(format!("{count} tensors")))?;
    if count > 0 && (descriptions.is_null() || buffers.is_null()) {
        return Err(null("a list of tensors"));
    }
    let item = |list: *const *const c_void, at: usize| {
        // SAFETY: the caller promises lists of `count` pointers; `at` is below that.
        unsafe { list.wrapping_add(at).read_unaligned() }
    };
    (0..count)
        .map(|at| {
            let description = need(item(descriptions, at))?;
            let place = match (description.constant(), block(item(buffers, at))) {
                (Some(bytes), _) => Place::Host(bytes),
                (None, Some(block)) if description.is_on_host() => {
                    let data = std::ptr::with_exposed_provenance(block.address);
                    Place::Host(host_bytes(data, block.bytes))
                }
                (None, Some(block)) => Place::Device(block),
                (None, None) => return Err(RuntimeError::argument("dataBuffer is no buffer")),
            };
            Ok(Argument { description, place })
        })
        .collect()
}

fn host_bytes(data: *const c_void, bytes: usize) -> Vec<u8> {
    if data.is_null() || bytes == 0 {
        return Vec::new();
    }
    // SAFETY: the caller says that this is host memory of this length, for the time of the call.
    unsafe { std::slice::from_raw_parts(data.cast::<u8>(), bytes) }.to_vec()
}

fn find(description: *const c_void) -> Option<Arc<Description>> {
    match state().descriptions.find(description) {
        Found::Live(found) => Some(found),
        Found::Gone | Found::Alien => None,
    }
}

fn need(description: *const c_void) -> Result<Arc<Description>, RuntimeError> {
    find(description).ok_or_else(|| RuntimeError::argument("tensorDesc is no description"))
}

fn block(buffer: *const c_void) -> Option<Block> {
    match state().buffers.find(buffer) {
        Found::Live(block) => Some(*block),
        Found::Gone | Found::Alien => None,
    }
}

/// Options that were set.
fn options() -> std::sync::MutexGuard<'static, BTreeMap<i32, String>> {
    static OPTIONS: OnceLock<Mutex<BTreeMap<i32, String>>> = OnceLock::new();
    let options = OPTIONS.get_or_init(Mutex::default);
    options.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The value of an option, or what it is before it is set.
fn value_of(option: i32) -> Option<String> {
    if !(0..COMPILE_OPTIONS).contains(&option) {
        return None;
    }
    let unset = if option == JIT_COMPILE { "enable" } else { "" };
    Some(
        options()
            .get(&option)
            .cloned()
            .unwrap_or_else(|| unset.to_owned()),
    )
}
