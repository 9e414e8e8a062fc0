//! The few operators that move or repeat bytes, convert numbers or divide them: what `torch.distributed` asks for around its
//! collectives. Every other operator needs a kernel, and is refused by name.
//!
//! OP-1: nothing is read or written outside of the buffers that the call names: every element's
//! place is proved before the first one is touched.

mod compute;
mod number;
mod strided;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::compute::Compute;
pub use self::compute::{Computation, Sum};
use self::number::Number;
pub use self::strided::Strided;
use self::strided::transposed;
use super::errors::{AclError, RuntimeError};
use super::memory::{self, Access};

/// Most dimensions of a tensor.
pub const DIMENSIONS_MAX: usize = 32;

/// What a client says of a tensor.
#[derive(Debug)]
pub struct Description {
    /// What the client holds.
    pub handle: u64,
    /// `aclDataType`.
    pub data_type: i32,
    /// `aclFormat`.
    pub format: i32,
    /// Elements of each dimension.
    pub dimensions: Vec<i64>,
    value: Mutex<Value>,
}

/// Where the elements of a description are.
#[derive(Clone, Debug, Default)]
struct Value {
    is_on_host: bool,
    constant: Option<Vec<u8>>,
}

impl Description {
    /// A tensor on the device.
    #[must_use]
    pub fn new(handle: u64, data_type: i32, format: i32, dimensions: Vec<i64>) -> Self {
        Self {
            handle,
            data_type,
            format,
            dimensions,
            value: Mutex::default(),
        }
    }

    /// Elements of all dimensions; `None` if one is unknown, or if they are too many.
    #[must_use]
    pub fn elements(&self) -> Option<usize> {
        let sizes = self.dimensions.iter();
        sizes
            .map(|size| usize::try_from(*size).ok())
            .try_fold(1_usize, |all, size| all.checked_mul(size?))
    }

    /// Says whether the buffer is host memory.
    pub fn set_on_host(&self, is_on_host: bool) {
        self.value().is_on_host = is_on_host;
    }

    /// Gives it elements that need no buffer.
    pub fn set_constant(&self, bytes: Vec<u8>) {
        self.value().constant = Some(bytes);
    }

    /// Whether the buffer is host memory.
    #[must_use]
    pub fn is_on_host(&self) -> bool {
        self.value().is_on_host
    }

    /// The elements, if they need no buffer.
    #[must_use]
    pub fn constant(&self) -> Option<Vec<u8>> {
        self.value().constant.clone()
    }

    fn value(&self) -> MutexGuard<'_, Value> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Memory of a tensor, as a client names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The address, of the host or of a device.
    pub address: usize,
    /// Its length.
    pub bytes: usize,
}

/// A tensor that is passed to an operator. What lies on the host was copied with the call.
#[derive(Clone, Debug)]
pub struct Argument {
    /// What it is.
    pub description: Arc<Description>,
    /// Where it is.
    pub place: Place,
}

/// Where a tensor is.
#[derive(Clone, Debug)]
pub enum Place {
    /// On a device.
    Device(Block),
    /// Its bytes.
    Host(Vec<u8>),
}

/// What an operator does with memory.
#[derive(Debug)]
pub enum Action {
    /// Repeats the bytes of one element.
    Fill {
        /// Where to.
        target: Block,
        /// The element.
        element: Vec<u8>,
    },
    /// Copies elements that do not lie one behind the other.
    Copy {
        /// Where they are.
        source: Strided,
        /// Where they go.
        target: Strided,
        /// Elements of each dimension.
        sizes: Vec<usize>,
        /// Bytes of one.
        element: usize,
    },
    /// Makes every element of the output from those at its place in the inputs.
    Compute(Computation),
    /// Adds up elements of one tensor.
    Sum(Sum),
    /// One after the other.
    All(Vec<Self>),
}

impl Action {
    /// What the operator called `name` does with these tensors.
    ///
    /// # Errors
    /// If it needs a kernel, or the tensors are none that it can have.
    pub fn of(
        name: &str,
        inputs: &[Argument],
        outputs: &[Argument],
        size_of: impl Fn(i32) -> usize,
    ) -> Result<Self, RuntimeError> {
        let [output] = outputs else {
            return Err(refused(name));
        };
        let data_type = output.description.data_type;
        let element = size_of(data_type);
        if element == 0 {
            return Err(refused(name));
        }
        match (name, inputs) {
            ("ZerosLike", [_]) => fill(name, output, vec![0; element]),
            ("OnesLike", [_]) => {
                let one = number::write(data_type, Number::Whole(1));
                fill(name, output, one.ok_or_else(|| refused(name))?)
            }
            ("Fill", [_, value]) => Self::repeat(name, value, output, element),
            ("AsStrided", [source, sizes, strides, offset]) => {
                let sizes = sizes_of(name, &numbers(name, sizes)?)?;
                let source = Strided::of(name, source, strides, offset)?;
                let target = Strided::packed(on_device(name, output)?, &sizes);
                Self::copy(name, source, target, sizes, element)
            }
            ("Transpose", [source, order]) => {
                let (source, sizes) = transposed(name, source, order)?;
                let target = Strided::packed(on_device(name, output)?, &sizes);
                Self::copy(name, source, target, sizes, element)
            }
            (
                "ViewCopy",
                [
                    to,
                    to_sizes,
                    to_strides,
                    to_offset,
                    from,
                    sizes,
                    strides,
                    offset,
                ],
            ) => {
                let sizes = numbers(name, sizes)?;
                if sizes != numbers(name, to_sizes)? {
                    return Err(refused(name));
                }
                let sizes = sizes_of(name, &sizes)?;
                let target = Strided::of(name, to, to_strides, to_offset)?;
                let source = Strided::of(name, from, strides, offset)?;
                Self::copy(name, source, target, sizes, element)
            }
            ("ConcatD", [_, ..]) => Self::join(name, inputs, output, element),
            ("PadV3", [source, padding, value @ ..]) => {
                Self::pad(name, source, padding, value, output, element)
            }
            ("ReduceSum" | "ReduceSumD", [source, axes]) => {
                Sum::of(name, source, axes, output, size_of).map(Self::Sum)
            }
            _ => {
                let compute = match (name, inputs) {
                    ("Cast", [_]) => Compute::Cast,
                    ("Add", [_, _]) => Compute::Add,
                    ("RealDiv", [_, _]) => Compute::Divide,
                    ("Greater", [_, _]) => Compute::Greater,
                    ("Less", [_, _]) => Compute::Less,
                    _ => return Err(refused(name)),
                };
                let computation = Computation::of(name, compute, inputs, output, size_of);
                computation.map(Self::Compute)
            }
        }
    }

    /// Fills the output with a tensor of one element.
    fn repeat(
        name: &str,
        value: &Argument,
        output: &Argument,
        element: usize,
    ) -> Result<Self, RuntimeError> {
        match &value.place {
            Place::Host(bytes) if bytes.len() == element => fill(name, output, bytes.clone()),
            Place::Host(bytes) => Err(wrong(
                name,
                &format!("the value has {} bytes, an element {element}", bytes.len()),
            )),
            Place::Device(_) => {
                let sizes = sizes_of(name, &output.description.dimensions)?;
                let source = strided::repeated(name, value, &sizes)?;
                let target = Strided::packed(on_device(name, output)?, &sizes);
                Self::copy(name, source, target, sizes, element)
            }
        }
    }

    /// Copies a tensor into a larger one, whose other elements are `value`, else zero.
    fn pad(
        name: &str,
        source: &Argument,
        padding: &Argument,
        value: &[Argument],
        output: &Argument,
        element: usize,
    ) -> Result<Self, RuntimeError> {
        let ground = match value {
            [] => fill(name, output, vec![0; element])?,
            [value] => Self::repeat(name, value, output, element)?,
            _ => return Err(refused(name)),
        };
        let padding = numbers(name, padding)?;
        let (target, sizes) = strided::padded(name, source, &padding, output)?;
        let source = Strided::packed(on_device(name, source)?, &sizes);
        let copy = Self::copy(name, source, target, sizes, element)?;
        Ok(Self::All(vec![ground, copy]))
    }

    /// Copies the parts of a joined tensor.
    fn join(
        name: &str,
        parts: &[Argument],
        output: &Argument,
        element: usize,
    ) -> Result<Self, RuntimeError> {
        let places = strided::joined(name, parts, output)?;
        let copies: Result<Vec<Self>, RuntimeError> = parts
            .iter()
            .zip(places)
            .map(|(part, (target, sizes))| {
                let source = Strided::packed(on_device(name, part)?, &sizes);
                Self::copy(name, source, target, sizes, element)
            })
            .collect();
        copies.map(Self::All)
    }

    fn copy(
        name: &str,
        source: Strided,
        target: Strided,
        sizes: Vec<usize>,
        element: usize,
    ) -> Result<Self, RuntimeError> {
        prove(name, &source, &sizes, element)?;
        prove(name, &target, &sizes, element)?;
        Ok(Self::Copy {
            source,
            target,
            sizes,
            element,
        })
    }

    /// Carries it out on a device.
    ///
    /// # Errors
    /// If memory that it names is not allocated any more.
    pub fn run(&self, device: u32) -> Result<(), RuntimeError> {
        match self {
            Self::Fill { target, element } => {
                let target = target.resolve(device, "output", Access::Write)?;
                let Some(target) = target else { return Ok(()) };
                for at in (0..target.1).step_by(element.len()) {
                    let place = target.0.wrapping_add(at);
                    // SAFETY: the bytes lie in the block, whose length is a multiple of the element
                    // (`fill`) and which was resolved just now.
                    unsafe { place.copy_from_nonoverlapping(element.as_ptr(), element.len()) };
                }
                Ok(())
            }
            Self::Copy {
                source,
                target,
                sizes,
                element,
            } => {
                let from = source.block.resolve(device, "input", Access::Read)?;
                let to = target.block.resolve(device, "output", Access::Read)?;
                let (Some(from), Some(to)) = (from, to) else {
                    return Ok(());
                };
                for index in 0..sizes.iter().product::<usize>() {
                    let source = from.0.wrapping_add(source.place(index, sizes) * element);
                    let target = to.0.wrapping_add(target.place(index, sizes) * element);
                    // SAFETY: `copy` proved that every element lies in its block (OP-1), and the
                    // blocks were resolved just now; elements may overlap.
                    unsafe { target.copy_from(source, *element) };
                }
                Ok(())
            }
            Self::Compute(computation) => computation.run(device),
            Self::Sum(sum) => sum.run(device),
            Self::All(actions) => actions.iter().try_for_each(|action| action.run(device)),
        }
    }
}

/// Proves `OP-1` for what the numbers say.
fn prove(name: &str, side: &Strided, sizes: &[usize], element: usize) -> Result<(), RuntimeError> {
    if side.is_inside(sizes, element) {
        return Ok(());
    }
    Err(RuntimeError::argument(format!(
        "operator {name}: elements {sizes:?} at distances {:?} from {} lie outside of a buffer of {} bytes",
        side.strides, side.offset, side.block.bytes
    )))
}

impl Block {
    /// The real memory and its length; `None` for no bytes.
    fn resolve(
        self,
        device: u32,
        what: &str,
        access: Access,
    ) -> Result<Option<(*mut u8, usize)>, RuntimeError> {
        if self.bytes == 0 {
            return Ok(None);
        }
        let pointer = std::ptr::without_provenance(self.address);
        let real = memory::resolve(device, pointer, self.bytes as u64, access);
        let real = real.map_err(|misuse| RuntimeError {
            code: AclError::RT_DEVICE_MEM_ERROR,
            ..misuse.of(what)
        })?;
        Ok(Some((real, self.bytes)))
    }
}

/// Repeats `element` over all of `output`.
fn fill(name: &str, output: &Argument, element: Vec<u8>) -> Result<Action, RuntimeError> {
    let bytes = output
        .description
        .elements()
        .and_then(|elements| elements.checked_mul(element.len()));
    match (&output.place, bytes) {
        (Place::Device(block), Some(bytes)) if bytes <= block.bytes => Ok(Action::Fill {
            target: Block { bytes, ..*block },
            element,
        }),
        _ => Err(RuntimeError::argument(format!(
            "operator {name}: the output is no buffer of a device with room for its elements"
        ))),
    }
}

fn refused(name: &str) -> RuntimeError {
    RuntimeError::new(
        AclError::API_NOT_SUPPORT,
        format!("operator {name} is not emulated: the emulator has no kernels"),
    )
}

/// The whole numbers of a tensor on the host.
fn numbers(name: &str, argument: &Argument) -> Result<Vec<i64>, RuntimeError> {
    let wrong = || RuntimeError::argument(format!("operator {name}: numbers are not on the host"));
    let Place::Host(bytes) = &argument.place else {
        return Err(wrong());
    };
    // ACL_INT32 and ACL_INT64.
    match argument.description.data_type {
        3 => {
            let numbers = bytes.as_chunks().0.iter();
            Ok(numbers
                .map(|bytes| i32::from_le_bytes(*bytes).into())
                .collect())
        }
        9 => {
            let numbers = bytes.as_chunks().0.iter();
            Ok(numbers.map(|bytes| i64::from_le_bytes(*bytes)).collect())
        }
        _ => Err(wrong()),
    }
}

fn one_number(name: &str, argument: &Argument) -> Result<i64, RuntimeError> {
    match numbers(name, argument)?[..] {
        [number] => Ok(number),
        _ => Err(RuntimeError::argument(format!(
            "operator {name}: an offset is not one number"
        ))),
    }
}

fn sizes_of(name: &str, numbers: &[i64]) -> Result<Vec<usize>, RuntimeError> {
    let sizes: Option<Vec<usize>> = numbers
        .iter()
        .map(|number| usize::try_from(*number).ok())
        .collect();
    let fits = |sizes: &Vec<usize>| {
        let all = sizes
            .iter()
            .try_fold(1_usize, |all, size| all.checked_mul(*size));
        all.is_some() && sizes.len() <= DIMENSIONS_MAX
    };
    sizes
        .filter(fits)
        .ok_or_else(|| wrong(name, "sizes that no tensor has"))
}

fn on_device(name: &str, argument: &Argument) -> Result<Block, RuntimeError> {
    match &argument.place {
        Place::Device(block) => Ok(*block),
        Place::Host(_) => Err(wrong(name, "a tensor is on the host")),
    }
}

fn wrong(name: &str, what: &str) -> RuntimeError {
    RuntimeError::argument(format!("operator {name}: {what}"))
}
