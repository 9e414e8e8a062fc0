//! The judge is tested with numbers worked out by hand, and its inputs by rounding at every step.

use super::*;

fn ranks<T: bytemuck::NoUninit>(values: &[&[T]]) -> Vec<Vec<u8>> {
    let bytes = |values: &&[T]| bytemuck::cast_slice(values).to_vec();
    values.iter().map(bytes).collect()
}

/// The same buffer on every rank.
fn alike<T: bytemuck::NoUninit>(ranks: usize, values: &[T]) -> Vec<Vec<u8>> {
    vec![bytemuck::cast_slice(values).to_vec(); ranks]
}

#[test]
fn all_reduce_gives_every_rank_the_sum_in_ascending_order() {
    let inputs = ranks(&[&[1.0e8f32, 1.0], &[-1.0e8, 2.0], &[0.5, 3.0]]);
    let expected = alike(3, &[0.5f32, 6.0]);
    assert_eq!(all_reduce(DType::F32, ReduceOp::Sum, &inputs), expected);
    // The other way round the half is lost, so the order can be seen.
    let inputs = ranks(&[&[0.5f32], &[-1.0e8], &[1.0e8]]);
    let expected = alike(3, &[0.0f32]);
    assert_eq!(all_reduce(DType::F32, ReduceOp::Sum, &inputs), expected);
}

#[test]
fn halves_are_rounded_once() {
    // 256 + 1 is a tie in bf16 and would round to 256 twice; in f32 the two ones add up.
    let bf16 = half::bf16::from_f32;
    let inputs = ranks(&[&[bf16(256.0)], &[bf16(1.0)], &[bf16(1.0)]]);
    let expected = alike(3, &[bf16(258.0)]);
    assert_eq!(all_reduce(DType::Bf16, ReduceOp::Sum, &inputs), expected);
    // The sum overflows f16, its average does not.
    let f16 = half::f16::from_f32;
    let inputs = ranks(&[&[f16(60_000.0)], &[f16(60_000.0)]]);
    assert_eq!(all_reduce(DType::F16, ReduceOp::Avg, &inputs), inputs);
}

#[test]
fn integers_wrap_and_averages_truncate_toward_zero() {
    let inputs = ranks(&[&[100i8, -100, -7], &[100, -100, 0]]);
    let sum = alike(2, &[-56i8, 56, -7]);
    let avg = alike(2, &[-28i8, 28, -3]);
    assert_eq!(all_reduce(DType::I8, ReduceOp::Sum, &inputs), sum);
    assert_eq!(all_reduce(DType::I8, ReduceOp::Avg, &inputs), avg);
    let inputs = ranks(&[&[u64::MAX], &[u64::MAX]]);
    let prod = alike(2, &[1u64]);
    assert_eq!(all_reduce(DType::U64, ReduceOp::Prod, &inputs), prod);
}

#[test]
fn nan_wins_over_every_number_in_every_operation() {
    for inputs in [
        ranks(&[&[f64::NAN], &[1.0f64], &[f64::INFINITY]]),
        ranks(&[&[1.0f64], &[f64::INFINITY], &[f64::NAN]]),
    ] {
        for op in ReduceOp::OF_NUMBERS {
            let got = &all_reduce(DType::F64, op, &inputs)[0];
            assert!(f64::from_ne_bytes(exactly(got)).is_nan(), "{op}");
        }
    }
}

#[test]
fn rooted_collectives_give_the_others_nothing() {
    let inputs = ranks(&[&[1u16, 2], &[3, 4]]);
    let nothing: &[u16] = &[];
    let root = Rank(1);
    let max = reduce(DType::U16, ReduceOp::Max, root, &inputs);
    assert_eq!(max, ranks(&[nothing, &[3u16, 4]]));
    assert_eq!(gather(root, &inputs), ranks(&[nothing, &[1u16, 2, 3, 4]]));
    assert_eq!(broadcast(root, &inputs), alike(2, &[3u16, 4]));
    assert_eq!(scatter(DType::U16, root, &inputs), ranks(&[&[3u16], &[4]]));
    let uneven = scatter_v(DType::U16, root, &[0, 2], &inputs);
    assert_eq!(uneven, ranks(&[nothing, &[3u16, 4]]));
}

#[test]
fn blocks_go_to_the_ranks_whose_number_they_have() {
    let inputs = ranks(&[&[1i32, 2], &[10, 20]]);
    let nothing: &[i32] = &[];
    assert_eq!(
        reduce_scatter(DType::I32, ReduceOp::Sum, &inputs),
        ranks(&[&[11i32], &[22]])
    );
    assert_eq!(
        reduce_scatter_v(DType::I32, ReduceOp::Sum, &[2, 0], &inputs),
        ranks(&[&[11i32, 22], nothing])
    );
    assert_eq!(all_gather(&inputs), alike(2, &[1i32, 2, 10, 20]));
    assert_eq!(
        all_to_all(DType::I32, &inputs),
        ranks(&[&[1i32, 10], &[2, 20]])
    );
    assert_eq!(
        all_to_all_v(DType::I32, &[vec![2, 0], vec![1, 1]], &inputs),
        ranks(&[&[1i32, 2, 10][..], &[20]])
    );
}

#[test]
fn the_first_difference_names_the_element_and_both_numbers() {
    let expected = ranks(&[&[1.5f32, f32::NAN, 3.0]]).remove(0);
    let got = ranks(&[&[1.5f32, -f32::NAN, -3.25]]).remove(0);
    assert_eq!(first_difference(DType::F32, &expected, &expected), None);
    let difference = first_difference(DType::F32, &expected, &got).unwrap();
    assert_eq!(
        difference.to_string(),
        "element 2: expected 3, got -3.25 (1 element differs)"
    );
    let difference = first_difference(DType::F32, &expected, &got[..6]).unwrap();
    assert_eq!((difference.index, difference.differing), (1, 2));
    assert_eq!(difference.got, "2 of 4 bytes");
    let difference = first_difference(DType::U8, &[], &[7]).unwrap();
    assert_eq!((&*difference.expected, &*difference.got), ("nothing", "7"));
    let zero = first_difference(DType::F64, &0.0f64.to_ne_bytes(), &(-0.0f64).to_ne_bytes());
    assert_eq!(zero.unwrap().got, "-0");
}

/// Combines from the back and in pairs, rounding to the type at every step.
fn reduce_pairwise(dtype: DType, op: ReduceOp, inputs: &[Vec<u8>]) -> Vec<u8> {
    if let [only] = inputs {
        return only.clone();
    }
    let (low, high) = inputs.split_at(inputs.len() / 2);
    let halves = [
        reduce_pairwise(dtype, op, high),
        reduce_pairwise(dtype, op, low),
    ];
    reduction(dtype, op, &halves)
}

#[test]
fn exact_inputs_give_the_same_bits_in_any_association() {
    for (dtype, op) in DType::ALL
        .into_iter()
        .flat_map(|dtype| ReduceOp::ALL.map(|op| (dtype, op)))
        .filter(|(dtype, op)| *op != ReduceOp::Avg && op.takes(*dtype))
    {
        for world_size in [1, 2, 3, 7, 16, 100, 300, 3000] {
            let ranks = (0..world_size).map(Rank::from_index);
            let input = |rank| exact_inputs(dtype, op, rank, world_size, 9, 42);
            let inputs: Vec<_> = ranks.map(input).collect();
            let ascending = reduction(dtype, op, &inputs);
            let pairwise = reduce_pairwise(dtype, op, &inputs);
            assert_eq!(
                first_difference(dtype, &ascending, &pairwise),
                None,
                "{dtype} {op} over {world_size} ranks"
            );
        }
    }
}

#[test]
fn exact_addends_are_small_and_not_zero_in_groups_of_every_day() {
    for dtype in DType::ALL {
        for world_size in [1usize, 2, 8, 16, 64] {
            for rank in 0..world_size {
                let rank = Rank::from_index(rank);
                let input = exact_inputs(dtype, ReduceOp::Sum, rank, world_size, 50, 7);
                for index in 0..50 {
                    let value = match Value::read(dtype, &input, index) {
                        Value::Single(value) => f64::from(value),
                        Value::Double(value) => value,
                        Value::Integer(value) => value as f64,
                    };
                    let total = value.abs() * world_size as f64;
                    assert!(value != 0.0, "{dtype}");
                    assert!(total <= exact_total(dtype), "{dtype}: {value}");
                }
            }
        }
    }
}

/// The sum of all magnitudes may not exceed this, from the widths of the types' significands.
fn exact_total(dtype: DType) -> f64 {
    match dtype {
        DType::Bf16 => 256.0,
        DType::F16 => 2048.0,
        DType::F32 => 16_777_216.0,
        DType::I8 => 127.0,
        DType::I16 => 32_767.0,
        DType::U8 => 255.0,
        DType::U16 => 65_535.0,
        DType::F64 | DType::I32 | DType::I64 | DType::U32 | DType::U64 => 64_000.0,
    }
}

#[test]
fn ranks_and_seeds_get_different_inputs() {
    let inputs: Vec<_> = (0..16)
        .map(|rank| distinct_inputs(DType::U64, Rank(rank), 4, 1))
        .chain([distinct_inputs(DType::U64, Rank(0), 4, 2)])
        .collect();
    for (i, one) in inputs.iter().enumerate() {
        assert!(inputs[..i].iter().all(|other| other != one));
    }
    for dtype in [DType::F16, DType::Bf16, DType::F32, DType::F64] {
        let input = distinct_inputs(dtype, Rank(3), 10_000, 3);
        for index in 0..10_000 {
            let finite = match Value::read(dtype, &input, index) {
                Value::Single(value) => value.is_finite(),
                Value::Double(value) => value.is_finite(),
                Value::Integer(_) => false,
            };
            assert!(finite, "{dtype} element {index}");
        }
    }
}
