//! The few operators that only move or repeat bytes. Every other operator needs a kernel, and is
//! refused by name.
//!
//! OP-1: nothing is read or written outside of the buffers that the call names: every element's
//! place is proved before the first one is touched.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
}

/// Elements in a buffer: their distances are in elements.
#[derive(Debug)]
pub struct Strided {
    block: Block,
    offset: i64,
    strides: Vec<i64>,
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
                let one = one(data_type).ok_or_else(|| refused(name))?;
                fill(name, output, one)
            }
            ("Fill", [_, value]) => match &value.place {
                Place::Host(bytes) if bytes.len() == element => fill(name, output, bytes.clone()),
                Place::Device(_) | Place::Host(_) => {
                    Err(wrong(name, "the value is not one element on the host"))
                }
            },
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
            _ => Err(refused(name)),
        }
    }

    /// Proves `OP-1` for what the numbers say.
    fn copy(
        name: &str,
        source: Strided,
        target: Strided,
        sizes: Vec<usize>,
        element: usize,
    ) -> Result<Self, RuntimeError> {
        for side in [&source, &target] {
            if !side.is_inside(&sizes, element) {
                return Err(RuntimeError::argument(format!(
                    "operator {name}: elements {:?} at distances {:?} from {} lie outside of a buffer of {} bytes",
                    sizes, side.strides, side.offset, side.block.bytes
                )));
            }
        }
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
        }
    }
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

impl Strided {
    /// A tensor with its distances and the place of its first element, which are on the host.
    fn of(
        name: &str,
        tensor: &Argument,
        strides: &Argument,
        offset: &Argument,
    ) -> Result<Self, RuntimeError> {
        Ok(Self {
            block: on_device(name, tensor)?,
            offset: one_number(name, offset)?,
            strides: numbers(name, strides)?,
        })
    }

    fn packed(block: Block, sizes: &[usize]) -> Self {
        let mut strides = vec![1; sizes.len()];
        for at in (1..sizes.len()).rev() {
            // Too large a product lies outside of every buffer.
            strides[at - 1] = i64::try_from(sizes[at])
                .unwrap_or(i64::MAX)
                .saturating_mul(strides[at]);
        }
        Self {
            block,
            offset: 0,
            strides,
        }
    }

    fn is_inside(&self, sizes: &[usize], element: usize) -> bool {
        if self.strides.len() != sizes.len() {
            return false;
        }
        if sizes.contains(&0) {
            return true;
        }
        let (mut least, mut most) = (i128::from(self.offset), i128::from(self.offset));
        for (size, stride) in sizes.iter().zip(&self.strides) {
            let reach = (*size as i128 - 1) * i128::from(*stride);
            least += reach.min(0);
            most += reach.max(0);
        }
        least >= 0 && (most + 1) * element as i128 <= self.block.bytes as i128
    }

    /// The place of an element in the buffer, in elements.
    fn place(&self, index: usize, sizes: &[usize]) -> usize {
        let mut left = index;
        let mut place = self.offset;
        for (size, stride) in sizes.iter().zip(&self.strides).rev() {
            place += i64::try_from(left % size).unwrap_or(0) * stride;
            left /= size;
        }
        usize::try_from(place).unwrap_or(0)
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

/// The number 1 of an `aclDataType`.
fn one(data_type: i32) -> Option<Vec<u8>> {
    Some(match data_type {
        0 => 1_f32.to_le_bytes().to_vec(),
        1 => 0x3C00_u16.to_le_bytes().to_vec(),
        2 | 4 | 12 => vec![1],
        3 | 8 => 1_u32.to_le_bytes().to_vec(),
        6 | 7 => 1_u16.to_le_bytes().to_vec(),
        9 | 10 => 1_u64.to_le_bytes().to_vec(),
        11 => 1_f64.to_le_bytes().to_vec(),
        27 => 0x3F80_u16.to_le_bytes().to_vec(),
        _ => return None,
    })
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

/// A tensor with its axes in another order: its elements, and the sizes in that order.
fn transposed(
    name: &str,
    source: &Argument,
    order: &Argument,
) -> Result<(Strided, Vec<usize>), RuntimeError> {
    let sizes = sizes_of(name, &source.description.dimensions)?;
    let packed = Strided::packed(on_device(name, source)?, &sizes);
    let axis = |at: &i64| {
        let at = usize::try_from(*at).ok()?;
        Some((*sizes.get(at)?, *packed.strides.get(at)?))
    };
    let axes: Option<Vec<(usize, i64)>> = numbers(name, order)?.iter().map(axis).collect();
    let axes = axes.ok_or_else(|| wrong(name, "an axis that the tensor does not have"))?;
    let (sizes, strides) = axes.into_iter().unzip();
    Ok((Strided { strides, ..packed }, sizes))
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

#[cfg(test)]
mod tests;
