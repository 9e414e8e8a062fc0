//! Operators that make each element of the output from those at its place in the inputs.

use super::number::{self, Number};
use super::strided::{self, Strided};
use super::{Access, Argument, Place, numbers, on_device, prove, refused, sizes_of, wrong};
use crate::runtime::errors::RuntimeError;

/// What an operator makes of its inputs, element by element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compute {
    /// The same number in another type.
    Cast,
    /// Both together.
    Add,
    /// The first by the second, both with fractions.
    Divide,
    /// Whether the first is larger.
    Greater,
    /// Whether the first is smaller.
    Less,
}

impl Compute {
    /// The result; `None` where the operator has none for such numbers.
    fn of(self, inputs: &[Number]) -> Option<Number> {
        match (self, inputs) {
            (Self::Cast, [number]) => Some(*number),
            (Self::Add, [left, right]) => left.plus(*right),
            (Self::Divide, [Number::Real(left), Number::Real(right)]) => {
                Some(Number::Real(left / right))
            }
            (Self::Greater, [Number::Whole(left), Number::Whole(right)]) => {
                Some(Number::truth(left > right))
            }
            (Self::Greater, [Number::Real(left), Number::Real(right)]) => {
                Some(Number::truth(left > right))
            }
            (Self::Less, [left, right]) => Self::Greater.of(&[*right, *left]),
            _ => None,
        }
    }
}

/// A computation on a device.
#[derive(Debug)]
pub struct Computation {
    name: String,
    compute: Compute,
    sources: Vec<Operand>,
    target: Strided,
    sizes: Vec<usize>,
    kind: Kind,
}

/// An element type, and the bytes of one.
#[derive(Clone, Copy, Debug)]
struct Kind(i32, usize);

impl Kind {
    /// That of a tensor, if it has numbers.
    fn of(
        name: &str,
        argument: &Argument,
        size_of: impl Fn(i32) -> usize,
    ) -> Result<Self, RuntimeError> {
        let data_type = argument.description.data_type;
        let has_numbers = number::write(data_type, Number::Whole(1)).is_some();
        let kind = Self(data_type, size_of(data_type));
        has_numbers.then_some(kind).ok_or_else(|| refused(name))
    }
}

/// An input.
#[derive(Debug)]
enum Operand {
    Elements(Strided, Kind),
    /// The same number everywhere.
    Constant(Number),
}

impl Computation {
    /// What is computed of these tensors.
    pub(super) fn of(
        name: &str,
        compute: Compute,
        inputs: &[Argument],
        output: &Argument,
        size_of: impl Fn(i32) -> usize,
    ) -> Result<Self, RuntimeError> {
        let sizes = sizes_of(name, &output.description.dimensions)?;
        let kind_of = |argument: &Argument| Kind::of(name, argument, &size_of);
        let kind = kind_of(output)?;
        let target = Strided::packed(on_device(name, output)?, &sizes);
        prove(name, &target, &sizes, kind.1)?;
        let operand = |input: &Argument| {
            let kind = kind_of(input)?;
            if let Place::Host(number) = &input.place {
                let number = number::read(kind.0, number).ok_or_else(|| refused(name))?;
                return Ok(Operand::Constant(number));
            }
            let source = strided::repeated(name, input, &sizes)?;
            prove(name, &source, &sizes, kind.1)?;
            Ok(Operand::Elements(source, kind))
        };
        let sources: Result<Vec<Operand>, RuntimeError> = inputs.iter().map(operand).collect();
        Ok(Self {
            name: name.to_owned(),
            compute,
            sources: sources?,
            target,
            sizes,
            kind,
        })
    }

    pub(super) fn run(&self, device: u32) -> Result<(), RuntimeError> {
        let to = self.target.block.resolve(device, "output", Access::Read)?;
        let Some((to, _)) = to else { return Ok(()) };
        let inputs = self.sources.iter().map(|source| source.resolve(device));
        let inputs: Vec<Input<'_>> = inputs.collect::<Result<_, RuntimeError>>()?;
        let mut numbers = Vec::with_capacity(inputs.len());
        let Kind(data_type, bytes) = self.kind;
        for index in 0..self.sizes.iter().product::<usize>() {
            numbers.clear();
            numbers.extend(
                inputs
                    .iter()
                    .filter_map(|input| input.at(index, &self.sizes)),
            );
            let result = self.compute.of(&numbers);
            let result = result.and_then(|number| number::write(data_type, number));
            let result = result.ok_or_else(|| refused(&self.name))?;
            let place = to.wrapping_add(self.target.place(index, &self.sizes) * bytes);
            // SAFETY: `of` proved that every element lies in its block (OP-1), which was resolved just now.
            unsafe { place.copy_from(result.as_ptr(), bytes) };
        }
        Ok(())
    }
}

/// Sums along dimensions of a tensor, on a device.
#[derive(Debug)]
pub struct Sum {
    name: String,
    source: Strided,
    sizes: Vec<usize>,
    /// Where each element of the source is added: the dimensions of the sum have the distance zero.
    target: Strided,
    kind: Kind,
    /// Elements of the output.
    outputs: usize,
}

impl Sum {
    /// The sums that these tensors ask for: a tensor, and on the host the dimensions.
    pub(super) fn of(
        name: &str,
        source: &Argument,
        axes: &Argument,
        output: &Argument,
        size_of: impl Fn(i32) -> usize,
    ) -> Result<Self, RuntimeError> {
        let kind = Kind::of(name, output, &size_of)?;
        if source.description.data_type != kind.0 {
            return Err(refused(name));
        }
        let sizes = sizes_of(name, &source.description.dimensions)?;
        let mut kept = sizes.clone();
        for axis in numbers(name, axes)? {
            let from_end = if axis < 0 { sizes.len() } else { 0 };
            let axis = usize::try_from(axis + i64::try_from(from_end).unwrap_or(0)).ok();
            let size = axis.and_then(|axis| kept.get_mut(axis));
            *size.ok_or_else(|| wrong(name, "an axis that the tensor does not have"))? = 1;
        }
        let outputs = kept.iter().product();
        if output.description.elements() != Some(outputs) {
            return Err(wrong(name, "the output has not one element for each sum"));
        }
        let all = Strided::packed(on_device(name, source)?, &sizes);
        prove(name, &all, &sizes, kind.1)?;
        let mut target = Strided::packed(on_device(name, output)?, &kept);
        prove(name, &target, &kept, kind.1)?;
        for (stride, kept) in target.strides.iter_mut().zip(&kept) {
            *stride *= i64::from(*kept > 1);
        }
        Ok(Self {
            name: name.to_owned(),
            source: all,
            sizes,
            target,
            kind,
            outputs,
        })
    }

    pub(super) fn run(&self, device: u32) -> Result<(), RuntimeError> {
        let to = self.target.block.resolve(device, "output", Access::Read)?;
        let Some((to, _)) = to else { return Ok(()) };
        let source = Operand::Elements(self.source.clone(), self.kind);
        let source = source.resolve(device)?;
        let mut sums: Vec<Option<Number>> = vec![None; self.outputs];
        for index in 0..self.sizes.iter().product::<usize>() {
            let sum = &mut sums[self.target.place(index, &self.sizes)];
            let number = source.at(index, &self.sizes);
            *sum = match (*sum, number) {
                (Some(sum), Some(number)) => sum.plus(number),
                (None, number) => number,
                (Some(_), None) => None,
            };
        }
        let Kind(data_type, bytes) = self.kind;
        for (at, sum) in sums.into_iter().enumerate() {
            let sum = number::write(data_type, sum.unwrap_or(Number::Whole(0)));
            let sum = sum.ok_or_else(|| refused(&self.name))?;
            let place = to.wrapping_add(at * bytes);
            // SAFETY: `of` proved that the output's elements lie in its block (OP-1), which was resolved just now.
            unsafe { place.copy_from(sum.as_ptr(), bytes) };
        }
        Ok(())
    }
}

impl Operand {
    fn resolve(&self, device: u32) -> Result<Input<'_>, RuntimeError> {
        match self {
            Self::Constant(number) => Ok(Input::Constant(*number)),
            Self::Elements(source, kind) => {
                let from = source.block.resolve(device, "input", Access::Read)?;
                let from = from.map_or(std::ptr::null_mut(), |(from, _)| from);
                Ok(Input::Elements(from, source, *kind))
            }
        }
    }
}

/// An input while it is read.
enum Input<'a> {
    Elements(*const u8, &'a Strided, Kind),
    Constant(Number),
}

impl Input<'_> {
    fn at(&self, index: usize, sizes: &[usize]) -> Option<Number> {
        match self {
            Self::Constant(number) => Some(*number),
            Self::Elements(from, source, Kind(data_type, bytes)) => {
                let from = from.wrapping_add(source.place(index, sizes) * bytes);
                // SAFETY: `of` proved that every element lies in its block (OP-1), which was resolved just now.
                let element = unsafe { std::slice::from_raw_parts(from, *bytes) };
                number::read(*data_type, element)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_division_is_rounded_once() {
        let divide = |left: f64, right: f64| {
            let result = Compute::Divide.of(&[Number::Real(left), Number::Real(right)]);
            number::write(0, result.expect("two numbers"))
        };
        assert_eq!(
            divide(1.0, 3.0),
            Some((1.0_f32 / 3.0).to_le_bytes().to_vec())
        );
        let whole = [Number::Whole(1), Number::Real(3.0)];
        assert_eq!(Compute::Divide.of(&whole), None);
    }
}
