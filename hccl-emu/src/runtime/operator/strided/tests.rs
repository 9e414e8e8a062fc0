//! Where strides put elements, and which of them lie outside of a buffer.

use std::sync::Arc;

use super::{Strided, joined, padded, repeated};
use crate::runtime::operator::{Argument, Block, Description, Place};

fn strided(bytes: usize, offset: i64, strides: &[i64]) -> Strided {
    Strided {
        block: Block { address: 0, bytes },
        offset,
        strides: strides.to_vec(),
    }
}

#[test]
fn every_element_is_placed_by_its_strides() {
    let transposed = strided(24, 0, &[1, 3]);
    let places: Vec<usize> = (0..6).map(|at| transposed.place(at, &[3, 2])).collect();
    assert_eq!(places, [0, 3, 1, 4, 2, 5]);
    let backwards = strided(24, 5, &[-1]);
    assert!(backwards.is_inside(&[6], 4));
    assert_eq!(backwards.place(5, &[6]), 0);
    assert_eq!(
        Strided::packed(backwards.block, &[2, 3, 4]).strides,
        [12, 4, 1]
    );
}

#[test]
fn elements_outside_of_the_buffer_are_found() {
    assert!(strided(24, 0, &[2]).is_inside(&[3], 4));
    assert!(!strided(24, 2, &[2]).is_inside(&[3], 4));
    assert!(!strided(24, 0, &[-1]).is_inside(&[2], 4));
    assert!(!strided(24, 0, &[i64::MAX, i64::MAX]).is_inside(&[9, 9], 8));
    assert!(!strided(24, 0, &[1]).is_inside(&[2, 2], 4));
    assert!(strided(0, 99, &[1]).is_inside(&[0], 4));
}

/// A tensor of 4-byte elements on a device.
fn tensor(sizes: &[i64]) -> Argument {
    let elements: i64 = sizes.iter().product();
    let bytes = usize::try_from(elements * 4).expect("a size");
    Argument {
        description: Arc::new(Description::new(1, 0, 2, sizes.to_vec())),
        place: Place::Device(Block { address: 0, bytes }),
    }
}

#[test]
fn parts_are_joined_along_the_dimension_in_which_the_output_is_larger() {
    let offsets = |parts: &[&[i64]], output: &[i64]| {
        let parts: Vec<Argument> = parts.iter().map(|sizes| tensor(sizes)).collect();
        let places = joined("ConcatD", &parts, &tensor(output)).ok()?;
        let offsets = places.iter().map(|(target, _)| target.offset);
        Some(offsets.collect::<Vec<i64>>())
    };
    assert_eq!(offsets(&[&[2], &[3]], &[5]), Some(vec![0, 2]));
    assert_eq!(offsets(&[&[2, 3], &[4, 3]], &[6, 3]), Some(vec![0, 6]));
    assert_eq!(offsets(&[&[2, 3], &[2, 1]], &[2, 4]), Some(vec![0, 3]));
    assert_eq!(offsets(&[&[2, 3]], &[2, 3]), Some(vec![0]));
    assert_eq!(offsets(&[&[2, 3], &[3, 2]], &[4, 3]), None);
    assert_eq!(offsets(&[&[2], &[2]], &[5]), None);
}

#[test]
fn a_padded_tensor_lies_behind_what_is_added_before_it() {
    let place = |source: &[i64], padding: &[i64], output: &[i64]| {
        let (target, sizes) = padded("PadV3", &tensor(source), padding, &tensor(output)).ok()?;
        Some((target.offset, target.place(3, &sizes)))
    };
    assert_eq!(place(&[2, 2], &[1, 0, 0, 1], &[3, 3]), Some((3, 7)));
    assert_eq!(place(&[4], &[0, 2], &[6]), Some((0, 3)));
    assert_eq!(place(&[4], &[0, 2], &[7]), None);
    assert_eq!(place(&[4], &[-1, 3], &[6]), None);
    assert_eq!(place(&[4], &[2], &[6]), None);
}

#[test]
fn a_tensor_of_one_element_is_repeated() {
    let strides = |own: &[i64], sizes: &[usize]| {
        let repeated = repeated("RealDiv", &tensor(own), sizes).ok()?;
        Some(repeated.strides)
    };
    assert_eq!(strides(&[], &[2, 3]), Some(vec![0, 0]));
    assert_eq!(strides(&[1], &[2, 3]), Some(vec![0, 0]));
    assert_eq!(strides(&[3], &[2, 3]), Some(vec![0, 1]));
    assert_eq!(strides(&[2, 1], &[2, 3]), Some(vec![1, 0]));
    assert_eq!(strides(&[2], &[2, 3]), None);
    assert_eq!(strides(&[1, 2, 3], &[2, 3]), None);
}
