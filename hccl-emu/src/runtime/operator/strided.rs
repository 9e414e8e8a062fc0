//! Where the elements of tensors lie in their buffers.

use super::{Argument, Block, numbers, on_device, one_number, sizes_of, wrong};
use crate::runtime::errors::RuntimeError;

/// Elements in a buffer: their distances are in elements.
#[derive(Clone, Debug)]
pub struct Strided {
    pub(super) block: Block,
    pub(super) offset: i64,
    pub(super) strides: Vec<i64>,
}

impl Strided {
    /// A tensor with its distances and the place of its first element, which are on the host.
    pub(super) fn of(
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

    pub(super) fn packed(block: Block, sizes: &[usize]) -> Self {
        Self {
            block,
            offset: 0,
            strides: strides_of(sizes),
        }
    }

    pub(super) fn is_inside(&self, sizes: &[usize], element: usize) -> bool {
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
    pub(super) fn place(&self, index: usize, sizes: &[usize]) -> usize {
        let mut left = index;
        let mut place = self.offset;
        for (size, stride) in sizes.iter().zip(&self.strides).rev() {
            place += i64::try_from(left % size).unwrap_or(0) * stride;
            left /= size;
        }
        usize::try_from(place).unwrap_or(0)
    }
}

/// A tensor with its axes in another order: its elements, and the sizes in that order.
pub(super) fn transposed(
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

/// Where each of the tensors that are joined along one dimension goes in the output, with its sizes.
///
/// The dimension is the one in which the output is larger than its parts: the attribute that names it says nothing more.
pub(super) fn joined(
    name: &str,
    parts: &[Argument],
    output: &Argument,
) -> Result<Vec<(Strided, Vec<usize>)>, RuntimeError> {
    let sizes = sizes_of(name, &output.description.dimensions)?;
    let packed = Strided::packed(on_device(name, output)?, &sizes);
    let all: Result<Vec<Vec<usize>>, RuntimeError> = parts
        .iter()
        .map(|part| sizes_of(name, &part.description.dimensions))
        .collect();
    let all = all?;
    let is_alike = |part: &Vec<usize>, along: usize| {
        let mut others = part.iter().zip(&sizes).enumerate();
        part.len() == sizes.len() && others.all(|(at, (part, all))| at == along || part == all)
    };
    let is_along = |along: &usize| {
        let total = all
            .iter()
            .map(|part| part.get(*along).copied().unwrap_or(0));
        all.iter().all(|part| is_alike(part, *along)) && total.sum::<usize>() == sizes[*along]
    };
    let along = (0..sizes.len())
        .find(is_along)
        .ok_or_else(|| wrong(name, "the parts do not make up the output"))?;
    let mut at = 0_usize;
    let mut places = Vec::with_capacity(all.len());
    for part in all {
        let offset = i64::try_from(at)
            .unwrap_or(i64::MAX)
            .saturating_mul(packed.strides[along]);
        at += part[along];
        let target = Strided {
            offset,
            ..packed.clone()
        };
        places.push((target, part));
    }
    Ok(places)
}

/// Where a tensor goes in the output, which is larger by what is added before and behind it in each dimension.
pub(super) fn padded(
    name: &str,
    source: &Argument,
    padding: &[i64],
    output: &Argument,
) -> Result<(Strided, Vec<usize>), RuntimeError> {
    let inner = sizes_of(name, &source.description.dimensions)?;
    let outer = sizes_of(name, &output.description.dimensions)?;
    let mut target = Strided::packed(on_device(name, output)?, &outer);
    let (pairs, rest) = padding.as_chunks::<2>();
    let fits = |(at, [before, behind]): (usize, &[i64; 2])| {
        let all = *before as i128 + *behind as i128 + inner[at] as i128;
        *before >= 0 && *behind >= 0 && all == outer[at] as i128
    };
    let is_whole = rest.is_empty() && pairs.len() == inner.len() && inner.len() == outer.len();
    if !is_whole || !pairs.iter().enumerate().all(fits) {
        return Err(wrong(
            name,
            "the padding does not lead from the input to the output",
        ));
    }
    let offsets = pairs.iter().zip(&target.strides);
    target.offset = offsets.map(|([before, _], stride)| before * stride).sum();
    Ok((target, inner))
}

/// A tensor that is repeated to the sizes of another: dimensions of one element have the distance zero.
pub(super) fn repeated(
    name: &str,
    source: &Argument,
    sizes: &[usize],
) -> Result<Strided, RuntimeError> {
    let own = sizes_of(name, &source.description.dimensions)?;
    let missing = sizes.len().checked_sub(own.len());
    let missing =
        missing.ok_or_else(|| wrong(name, "an input has more dimensions than the output"))?;
    let mut strides = vec![0; missing];
    for ((stride, own), size) in strides_of(&own)
        .into_iter()
        .zip(&own)
        .zip(&sizes[missing..])
    {
        match own {
            1 => strides.push(0),
            own if own == size => strides.push(stride),
            _ => {
                return Err(wrong(
                    name,
                    "the sizes of an input are not those of the output",
                ));
            }
        }
    }
    Ok(Strided {
        block: on_device(name, source)?,
        offset: 0,
        strides,
    })
}

/// Distances of elements that lie one behind the other.
fn strides_of(sizes: &[usize]) -> Vec<i64> {
    let mut strides = vec![1_i64; sizes.len()];
    for at in (1..sizes.len()).rev() {
        // Too large a product lies outside of every buffer.
        strides[at - 1] = i64::try_from(sizes[at])
            .unwrap_or(i64::MAX)
            .saturating_mul(strides[at]);
    }
    strides
}

#[cfg(test)]
mod tests;
