//! Wrong data on purpose: the result of an operator that went well is spoiled before its stream goes
//! on, so that a client's checks are proved by data that they must reject.
//!
//! - `SPOIL-1`: only the result on the rank of the fault changes, and no code reports it.

use std::ops::Range;

use super::job::{Job, Piece, Trouble};
use crate::fault::{Kind, Wrong};

/// What is going to be wrong with the result of one operator.
#[derive(Debug)]
pub(crate) struct Spoil {
    faults: Vec<(Wrong, Option<u64>)>,
    /// What the result's memory held before, if a fault wants that.
    before: Vec<u8>,
}

/// A fault that changed nothing, and why.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Harmless {
    pub(crate) fault: &'static str,
    pub(crate) why: String,
}

impl Spoil {
    /// Remembers what is needed of the memory before the operator runs; `None` without such faults.
    pub(crate) fn begin(
        faults: impl Iterator<Item = Kind>,
        job: &Job,
        device: u32,
    ) -> Result<Option<Self>, Trouble> {
        let faults: Vec<(Wrong, Option<u64>)> = faults
            .filter_map(|kind| match kind {
                Kind::Spoil { wrong, element, .. } => Some((wrong, element)),
                _ => None,
            })
            .collect();
        if faults.is_empty() {
            return Ok(None);
        }
        let before = read(&job.result(device)?);
        Ok(Some(Self { faults, before }))
    }

    /// Spoils the result; gives the faults that changed nothing.
    pub(crate) fn end(&self, job: &Job, device: u32) -> Result<Vec<Harmless>, Trouble> {
        let pieces = job.result(device)?;
        let mut now = read(&pieces);
        let sizes: Vec<(usize, usize)> = pieces
            .iter()
            .map(|piece| (piece.bytes, piece.element_bytes))
            .collect();
        let mut harmless = Vec::new();
        for (wrong, element) in &self.faults {
            if let Err(why) = spoil(*wrong, *element, &sizes, &self.before, &mut now) {
                let fault = wrong.name();
                harmless.push(Harmless { fault, why });
            }
        }
        write(&pieces, &now);
        Ok(harmless)
    }
}

/// Spoils `now`, which consists of parts of (bytes, bytes of an element).
fn spoil(
    wrong: Wrong,
    element: Option<u64>,
    sizes: &[(usize, usize)],
    before: &[u8],
    now: &mut [u8],
) -> Result<(), String> {
    // One bit of one element is flipped; the other faults take all elements if none is named.
    let element = match wrong {
        Wrong::Bitflip(_) => Some(element.unwrap_or(0)),
        Wrong::Stale | Wrong::Zero => element,
    };
    let range = match element {
        None => 0..now.len(),
        Some(element) => place(sizes, element)
            .ok_or_else(|| format!("the rank gets no element {element} there"))?,
    };
    if range.is_empty() {
        return Err("the rank gets no data there".to_owned());
    }
    let old = now[range.clone()].to_vec();
    match wrong {
        Wrong::Bitflip(bit) => {
            let bits = range.len() * 8;
            let bit = bit.map_or(bits - 2, |bit| bit as usize % bits);
            now[range.start + bit / 8] ^= 1 << (bit % 8);
        }
        Wrong::Stale => now[range.clone()].copy_from_slice(&before[range.clone()]),
        Wrong::Zero => now[range.clone()].fill(0),
    }
    if now[range] == old[..] {
        return Err("the data was the same before".to_owned());
    }
    Ok(())
}

/// The bytes of an element, counted over all parts.
fn place(sizes: &[(usize, usize)], element: u64) -> Option<Range<usize>> {
    let mut left = usize::try_from(element).ok()?;
    let mut start = 0;
    for (bytes, size) in sizes {
        let count = bytes / size;
        if left < count {
            let start = start + left * size;
            return Some(start..start + size);
        }
        left -= count;
        start += bytes;
    }
    None
}

fn read(pieces: &[Piece]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(pieces.iter().map(|piece| piece.bytes).sum());
    for piece in pieces {
        // SAFETY: `Job::result` proved the range to be in one allocation, whose backing stays mapped
        // (MEM-2); nothing writes it while the stream is at this task.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(piece.start, piece.bytes) });
    }
    bytes
}

fn write(pieces: &[Piece], bytes: &[u8]) {
    let mut rest = bytes;
    for piece in pieces {
        let (part, behind) = rest.split_at(piece.bytes);
        rest = behind;
        // SAFETY: as in `read`; `part` is memory of its own.
        unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), piece.start, part.len()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two 2-byte elements, nothing, and one 4-byte element.
    const SIZES: [(usize, usize); 3] = [(4, 2), (0, 8), (4, 4)];
    const BEFORE: [u8; 8] = [9, 9, 9, 9, 9, 9, 9, 9];

    fn spoiled(wrong: Wrong, element: Option<u64>) -> Result<[u8; 8], String> {
        let mut now = [1, 2, 3, 4, 5, 6, 7, 8];
        spoil(wrong, element, &SIZES, &BEFORE, &mut now).map(|()| now)
    }

    #[test]
    fn one_element_or_all_of_a_result_are_spoiled() {
        let flip = Wrong::Bitflip;
        for (wrong, element, result) in [
            (flip(None), None, [1, 66, 3, 4, 5, 6, 7, 8]),
            (flip(Some(0)), Some(1), [1, 2, 2, 4, 5, 6, 7, 8]),
            (flip(Some(33)), Some(2), [1, 2, 3, 4, 7, 6, 7, 8]),
            (flip(None), Some(2), [1, 2, 3, 4, 5, 6, 7, 72]),
            (Wrong::Stale, Some(1), [1, 2, 9, 9, 5, 6, 7, 8]),
            (Wrong::Stale, None, [9; 8]),
            (Wrong::Zero, Some(2), [1, 2, 3, 4, 0, 0, 0, 0]),
            (Wrong::Zero, None, [0; 8]),
        ] {
            assert_eq!(spoiled(wrong, element), Ok(result), "{wrong:?} {element:?}");
        }
    }

    #[test]
    fn a_fault_that_changes_nothing_says_why() {
        let error = spoiled(Wrong::Zero, Some(3)).unwrap_err();
        assert!(error.contains("no element 3"), "{error}");
        let mut same = BEFORE;
        let error = spoil(Wrong::Stale, None, &SIZES, &BEFORE, &mut same).unwrap_err();
        assert!(error.contains("same before"), "{error}");
        let error = spoil(Wrong::Zero, None, &[], &[], &mut []).unwrap_err();
        assert!(error.contains("no data"), "{error}");
    }
}
