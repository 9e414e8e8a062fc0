//! Every family of vector instructions, forced through an option, gives what the scalar one gives:
//! through every algorithm, from ordinary memory and from the region.
//!
//! A test program of its own, with one test: the choice is one of the whole process.

use half::{bf16, f16};
use muster_comm::algo::{Table, algorithms_for};
use muster_comm::buffer::Element;
use muster_comm::kernel::{self, Isa, Kernels};
use muster_comm::types::{Collective, ReduceOp};
use muster_comm::world::{ThreadOptions, World};

/// An odd number of ranks, so that none of their slices begin alike.
const RANKS: usize = 3;
/// Nothing but a tail; in the entry; staged or in place, with a tail.
const COUNTS: [usize; 3] = [1, 37, 20_011];

/// The results of all reductions of rank 0, under one family and one algorithm.
fn results<T: Element>(isa: Isa, algorithm: &str) -> Vec<Vec<T>> {
    let options = ThreadOptions {
        kernels: Some(Kernels::new(isa).expect("a family that this processor has")),
        algo_table: Some(
            Table::with_overrides(&format!("all_reduce -> {algorithm}")).expect("a rule"),
        ),
        region_bytes: 64 << 20,
        ..ThreadOptions::default()
    };
    let all = World::threads_with(RANKS, &options, |world| {
        assert_eq!(kernel::isa(), isa, "the option is what is used");
        let comm = world.everyone().expect("a group");
        let mut all = Vec::new();
        for count in COUNTS {
            let input: Vec<T> = noise(comm.rank() as u64, count);
            let ops = ReduceOp::ALL.into_iter();
            for op in ops.filter(|op| op.takes(T::DTYPE)) {
                let mut ordinary = vec![T::zeroed(); count];
                comm.all_reduce(&input, &mut ordinary, op).expect("a sum");
                all.push(ordinary);
                let mut region = world.alloc::<T>(count).expect("room");
                region.copy_from_slice(&input);
                comm.all_reduce_in_place(&mut region, op).expect("a sum");
                all.push(region.to_vec());
            }
        }
        all
    });
    all.expect("a world").swap_remove(0)
}

/// Any bits: infinities, numbers without a leading one, and NaN among floats.
fn noise<T: Element>(rank: u64, count: usize) -> Vec<T> {
    let mut state = rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut values = vec![T::zeroed(); count];
    for byte in bytemuck::cast_slice_mut::<T, u8>(&mut values) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *byte = state.to_le_bytes()[3];
    }
    values
}

/// Bits alike, or both NaN, whose payload nobody promises.
#[expect(clippy::eq_op, reason = "NaN alone differs from itself")]
fn same<T: Element + PartialEq>(one: &T, other: &T) -> bool {
    bytemuck::bytes_of(one) == bytemuck::bytes_of(other) || (one != one && other != other)
}

fn compare<T: Element + PartialEq>() {
    for algorithm in algorithms_for(Collective::AllReduce) {
        let expected = results::<T>(Isa::Scalar, algorithm.name);
        for isa in Isa::supported().filter(|isa| *isa != Isa::Scalar) {
            let got = results::<T>(isa, algorithm.name);
            assert_eq!(got.len(), expected.len());
            for (call, (got, expected)) in got.iter().zip(&expected).enumerate() {
                let wrong = got
                    .iter()
                    .zip(expected)
                    .position(|(got, expected)| !same(got, expected));
                let what = (isa, T::DTYPE, algorithm.name, call);
                assert_eq!(wrong, None, "first wrong element of {what:?}");
            }
        }
    }
}

#[test]
fn every_family_of_instructions_gives_what_the_scalar_one_gives() {
    assert!(Isa::supported().any(|isa| isa == Isa::Scalar));
    compare::<bf16>();
    compare::<f16>();
    compare::<f32>();
    compare::<f64>();
    compare::<i8>();
    compare::<i16>();
    compare::<i32>();
    compare::<i64>();
    compare::<u8>();
    compare::<u16>();
    compare::<u32>();
    compare::<u64>();
    Kernels::best().use_everywhere();
}
