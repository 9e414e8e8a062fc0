//! Where strides put elements, and which of them lie outside of a buffer.

use super::{Block, Strided};

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
