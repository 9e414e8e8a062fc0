//! Every family of vector instructions, forced through an option, gives what the scalar one gives:
//! through every algorithm, from ordinary memory and from the region.
//!
//! A test program of its own, with one test: the choice is one of the whole process.

use half::{bf16, f16};
use muster_comm::algo::{Table, algorithms_for};
use muster_comm::buffer::Element;
use muster_comm::kernel::{self, Isa, Kernels};
use muster_comm::types::{Collective, DType, ReduceOp};
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

/// Results of each type, through all algorithms, as one number, which is the same on every processor.
const RESULTS: [(DType, u64); 12] = [
    (DType::Bf16, 0xbb2a_208e_61c4_babf),
    (DType::F16, 0x5313_72bf_dd3e_1c0d),
    (DType::F32, 0x7dc5_a0b6_50a1_0b03),
    (DType::F64, 0x7505_55eb_659a_bb93),
    (DType::I8, 0x9d4b_b7cf_69fd_3c45),
    (DType::I16, 0xc277_ad6c_e216_c3d5),
    (DType::I32, 0xf760_f132_f697_fe55),
    (DType::I64, 0xae1f_f059_edcd_10ed),
    (DType::U8, 0x5272_ec4d_32f6_42cd),
    (DType::U16, 0x2df8_e625_9cd6_746d),
    (DType::U32, 0xb0eb_5cae_c8c4_2f4d),
    (DType::U64, 0x9d92_05a6_837b_5fbd),
];

/// Takes the bytes of an element into a hash, and one and the same byte for every NaN.
#[expect(clippy::eq_op, reason = "NaN alone differs from itself")]
fn take<T: Element + PartialEq>(hash: u64, element: &T) -> u64 {
    let bytes = if element == element {
        bytemuck::bytes_of(element)
    } else {
        &[1]
    };
    let add = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(hash, add)
}

/// Compares all families with the scalar one, and gives back the hash of its results.
fn compare<T: Element + PartialEq>() -> (DType, u64) {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for algorithm in algorithms_for(Collective::AllReduce) {
        let expected = results::<T>(Isa::Scalar, algorithm.name);
        hash = expected.iter().flatten().fold(hash, take);
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
    (T::DTYPE, hash)
}

#[test]
fn every_family_of_instructions_gives_what_the_scalar_one_gives() {
    assert!(Isa::supported().any(|isa| isa == Isa::Scalar));
    let hashes = [
        compare::<bf16>(),
        compare::<f16>(),
        compare::<f32>(),
        compare::<f64>(),
        compare::<i8>(),
        compare::<i16>(),
        compare::<i32>(),
        compare::<i64>(),
        compare::<u8>(),
        compare::<u16>(),
        compare::<u32>(),
        compare::<u64>(),
    ];
    assert_eq!(hashes, RESULTS, "{hashes:x?}");
    Kernels::best().use_everywhere();
}
