//! Every kernel of every family of instructions against the naive reference.
#![expect(
    unsafe_code,
    reason = "kernels work on raw memory, and so do their tests"
)]

use muster_comm::collective::reference::{all_reduce, first_difference};
use muster_comm::kernel::{self, Isa, Kernels};
use muster_comm::types::{DType, ReduceOp};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

/// Bytes before and after each buffer that no kernel may change.
const GUARD: usize = 64;
/// What those bytes hold.
const GUARD_BYTE: u8 = 0xa5;

/// A buffer at an address with a chosen remainder, between guards.
struct Guarded {
    memory: Vec<u8>,
    start: usize,
    bytes: usize,
}

impl Guarded {
    fn new(content: &[u8], misalignment: usize) -> Self {
        let mut memory = vec![GUARD_BYTE; content.len() + 3 * GUARD];
        let aligned = GUARD + memory.as_ptr().align_offset(GUARD) % GUARD;
        let start = aligned + misalignment;
        memory[start..start + content.len()].copy_from_slice(content);
        Self {
            memory,
            start,
            bytes: content.len(),
        }
    }

    fn content(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.bytes]
    }

    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.memory[self.start..].as_mut_ptr()
    }

    fn guards_stand(&self) -> bool {
        let (before, rest) = self.memory.split_at(self.start);
        let mut guards = before.iter().chain(&rest[self.bytes..]);
        guards.all(|byte| *byte == GUARD_BYTE)
    }
}

/// Sources that one reduction reads, and where it writes.
#[derive(Clone, Debug)]
struct Case {
    ranks: usize,
    count: usize,
    /// Remainders of the addresses; the last one is the destination's.
    misalignments: Vec<usize>,
    /// The source that is the destination as well.
    alias: Option<usize>,
    seed: u64,
}

fn cases() -> impl Strategy<Value = Case> {
    let count = prop_oneof![
        6 => 0usize..=300,
        // Around the blocks in which the kernels work.
        1 => 509usize..=515,
        1 => 1020usize..=1100,
    ];
    (1usize..=9, count, any::<u64>()).prop_flat_map(|(ranks, count, seed)| {
        let misalignments = prop::collection::vec(0usize..16, ranks + 1);
        let alias = prop::option::of(0..ranks);
        (misalignments, alias).prop_map(move |(misalignments, alias)| Case {
            ranks,
            count,
            misalignments,
            alias,
            seed,
        })
    })
}

/// The next number of a sequence that looks random.
fn next(state: &mut u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *state ^ (*state >> 33)
}

/// One of a list, by the upper bits, which are the better ones.
fn pick<T: Copy>(list: &[T], state: &mut u64) -> T {
    let index = (next(state) >> 40) % list.len() as u64;
    list[usize::try_from(index).expect("an index")]
}

/// Both ends of the ranges of sign, exponent and fraction, as bits of a float of this layout.
fn special_floats(exponent_bits: u32, fraction_bits: u32) -> Vec<u64> {
    let exponent_all = ((1u64 << exponent_bits) - 1) << fraction_bits;
    let one = ((1u64 << (exponent_bits - 1)) - 1) << fraction_bits;
    let fraction_all = (1u64 << fraction_bits) - 1;
    let sign = 1u64 << (exponent_bits + fraction_bits);
    let quiet = 1u64 << (fraction_bits - 1);
    let magnitudes = [
        one,
        0,
        1,
        fraction_all,
        1 << fraction_bits,
        one + 1,
        one + (1 << fraction_bits),
        exponent_all - 1,
        exponent_all,
        exponent_all + 1,
        exponent_all | quiet,
        exponent_all | fraction_all,
    ];
    let both = |magnitude: u64| [magnitude, magnitude | sign];
    magnitudes.into_iter().flat_map(both).collect()
}

/// Numbers at the borders of a type, as bits in its width; the first one is one.
fn special_bits(dtype: DType) -> Vec<u64> {
    match dtype {
        DType::Bf16 => special_floats(8, 7),
        DType::F16 => special_floats(5, 10),
        DType::F32 => special_floats(8, 23),
        DType::F64 => special_floats(11, 52),
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => {
            let greatest = (1u64 << (8 * dtype.size() - 1)) - 1;
            vec![1, 0, 2, u64::MAX, greatest, greatest + 1, greatest - 1]
        }
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => {
            let half = 1 << (8 * dtype.size() - 1);
            vec![1, 0, 2, u64::MAX, u64::MAX - 1, half, half - 1]
        }
    }
}

/// Elements of which some lie at the borders of the type, some are close to each other, and the
/// rest are any bits at all.
fn elements(dtype: DType, count: usize, state: &mut u64) -> Vec<u8> {
    let special = special_bits(dtype);
    // How often elements at the borders appear; where they are rare, long runs have none.
    let rarity = pick(&[3, 40, 1_000_000], state);
    let mut bytes = Vec::with_capacity(count * dtype.size());
    for _ in 0..count {
        let kind = (next(state) >> 20) % rarity;
        let bits = match kind {
            0 => pick(&special, state),
            _ if kind.is_multiple_of(2) => special[0] ^ (next(state) >> 55),
            _ => next(state) >> (64 - 8 * dtype.size()),
        };
        bytes.extend(&bits.to_le_bytes()[..dtype.size()]);
    }
    bytes
}

fn inputs_of(dtype: DType, case: &Case) -> Vec<Vec<u8>> {
    let mut state = case.seed;
    (0..case.ranks)
        .map(|_| elements(dtype, case.count, &mut state))
        .collect()
}

/// Runs one case with one family of instructions and compares it with the reference.
fn check(kernels: Kernels, dtype: DType, op: ReduceOp, case: &Case) -> Result<(), TestCaseError> {
    let inputs = inputs_of(dtype, case);
    let expected = all_reduce(dtype, op, &inputs).remove(0);
    let mut buffers: Vec<_> = inputs
        .iter()
        .zip(&case.misalignments)
        .map(|(input, misalignment)| Guarded::new(input, *misalignment))
        .collect();
    let blank = vec![0; expected.len()];
    buffers.push(Guarded::new(&blank, case.misalignments[case.ranks]));
    let output = case.alias.unwrap_or(case.ranks);
    let pointers: Vec<_> = buffers.iter_mut().map(Guarded::as_mut_ptr).collect();
    let srcs: Vec<_> = pointers[..case.ranks]
        .iter()
        .map(|src| src.cast_const())
        .collect();
    let divisor = u32::try_from(case.ranks).expect("a few ranks");
    // SAFETY: every buffer holds `count` elements; the destination is one of the sources or a
    // buffer of its own.
    unsafe { kernels.reduce_n(dtype, op, &srcs, pointers[output], case.count, divisor) };

    let name = format!("{dtype} {op} {}", kernels.isa());
    let difference = first_difference(dtype, &expected, buffers[output].content());
    prop_assert_eq!(difference, None, "{}", name);
    for (index, buffer) in buffers.iter().enumerate() {
        prop_assert!(
            buffer.guards_stand(),
            "{name}: wrote outside buffer {index}"
        );
        let is_source = index < case.ranks && index != output;
        prop_assert!(
            !is_source || buffer.content() == inputs[index],
            "{name}: changed source {index}"
        );
    }
    Ok(())
}

fn every_kernels() -> impl Iterator<Item = Kernels> {
    Isa::supported().map(|isa| Kernels::new(isa).expect("supported"))
}

fn every_type_and_operation() -> impl Iterator<Item = (DType, ReduceOp)> {
    DType::ALL
        .into_iter()
        .flat_map(|dtype| ReduceOp::ALL.map(|op| (dtype, op)))
        .filter(|(dtype, op)| op.takes(*dtype))
}

/// Runs a property on random cases; a failure prints the smallest case, which has all the seeds.
fn for_cases(number: u32, property: impl Fn(Case) -> Result<(), TestCaseError>) {
    let config = ProptestConfig {
        cases: number,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let failure = TestRunner::new(config).run(&cases(), property).err();
    let report = failure.map(|failure| failure.to_string());
    assert!(report.is_none(), "{}", report.unwrap_or_default());
}

#[test]
fn every_type_and_operation_reduces_as_the_reference_with_all_instructions() {
    for (dtype, op) in every_type_and_operation() {
        for_cases(150, |case| {
            every_kernels().try_for_each(|kernels| check(kernels, dtype, op, &case))
        });
    }
}

/// Results of each type, of every reduction, 1 to 9 ranks and many lengths, as one number, which is the same on every processor. Inputs
/// are any bits: zeros of both signs, the smallest and largest numbers, infinities, NaN.
const RESULTS: [(DType, u64); 12] = [
    (DType::I8, 0xe890_ecd4_5359_1c87),
    (DType::I16, 0xb143_6120_9ff8_5fe8),
    (DType::I32, 0x17c3_519e_dd74_abc9),
    (DType::I64, 0x7bd3_5580_6e2a_9b7e),
    (DType::U8, 0xd4d8_c7a9_8e57_3708),
    (DType::U16, 0xddbf_d5e2_3e70_b5ec),
    (DType::U32, 0x4db1_1ba5_c18d_c433),
    (DType::U64, 0xd7e7_4540_7b36_357e),
    (DType::F16, 0x00fe_1b2c_4aa7_dcf9),
    (DType::Bf16, 0x601b_8257_693f_1677),
    (DType::F32, 0x77f5_0165_5d96_f35a),
    (DType::F64, 0x592d_a5f0_2704_80a2),
];

/// The bits of an element, and one and the same for every NaN: processors make different ones.
fn known_bits(dtype: DType, element: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    bytes[..element.len()].copy_from_slice(element);
    let bits = u64::from_le_bytes(bytes);
    let infinity: u64 = match dtype {
        DType::Bf16 => 0xff << 7,
        DType::F16 => 0x1f << 10,
        DType::F32 => 0xff << 23,
        DType::F64 => 0x7ff << 52,
        DType::I8
        | DType::I16
        | DType::I32
        | DType::I64
        | DType::U8
        | DType::U16
        | DType::U32
        | DType::U64 => return bits,
    };
    let magnitude = bits & (u64::MAX >> (65 - 8 * dtype.size()));
    if magnitude > infinity {
        infinity + 1
    } else {
        bits
    }
}

#[test]
fn reductions_give_the_same_bits_on_every_processor() {
    let counts: Vec<usize> = (0..=70).chain([255, 256, 515, 1029, 4099]).collect();
    let results = DType::ALL.map(|dtype| {
        let of_kernels = every_kernels().map(|kernels| {
            // As FNV-1a, with elements for bytes.
            let mut hash = 0xcbf2_9ce4_8422_2325_u64;
            let ops = ReduceOp::ALL.into_iter().filter(|op| op.takes(dtype));
            for (op, ranks) in ops.flat_map(|op| (1..=9_u32).map(move |ranks| (op, ranks))) {
                let mut state = u64::from(ranks);
                for count in &counts {
                    let inputs: Vec<_> = (0..ranks)
                        .map(|_| elements(dtype, *count, &mut state))
                        .collect();
                    let srcs: Vec<_> = inputs.iter().map(|input| input.as_ptr()).collect();
                    let mut result = vec![0; dtype.size() * count];
                    // SAFETY: every buffer holds `count` elements, and the destination is one of its own.
                    unsafe {
                        kernels.reduce_n(dtype, op, &srcs, result.as_mut_ptr(), *count, ranks);
                    };
                    for element in result.chunks_exact(dtype.size()) {
                        hash = (hash ^ known_bits(dtype, element)).wrapping_mul(0x100_0000_01b3);
                    }
                }
            }
            hash
        });
        let mut hashes: Vec<u64> = of_kernels.collect();
        hashes.dedup();
        assert_eq!(hashes.len(), 1, "{dtype}: instructions differ: {hashes:x?}");
        (dtype, hashes[0])
    });
    for (got, expected) in results.iter().zip(RESULTS) {
        assert_eq!(*got, expected, "{results:x?}");
    }
}

#[test]
fn folding_one_source_into_a_buffer_keeps_the_given_order() {
    for_cases(64, |case| {
        for (dtype, op) in every_type_and_operation() {
            let mut state = case.seed;
            let [low, high] = [0, 1].map(|_| elements(dtype, case.count, &mut state));
            // An average acts as a sum until it is finished.
            let acts_as = match op {
                ReduceOp::Avg | ReduceOp::Sum => ReduceOp::Sum,
                ReduceOp::BitAnd
                | ReduceOp::BitOr
                | ReduceOp::BitXor
                | ReduceOp::Max
                | ReduceOp::Min
                | ReduceOp::Prod => op,
            };
            let expected = all_reduce(dtype, acts_as, &[low.clone(), high.clone()]).remove(0);
            for kernels in every_kernels() {
                for (src_first, src, dst) in [(true, &low, &high), (false, &high, &low)] {
                    let mut src = Guarded::new(src, case.misalignments[0]);
                    let mut dst = Guarded::new(dst, case.misalignments[1]);
                    let (from, to) = (src.as_mut_ptr().cast_const(), dst.as_mut_ptr());
                    // SAFETY: both buffers hold `count` elements and are apart.
                    unsafe { kernels.reduce_into(dtype, op, to, from, case.count, src_first) };
                    let difference = first_difference(dtype, &expected, dst.content());
                    prop_assert_eq!(difference, None, "{} {} {}", dtype, op, kernels.isa());
                    prop_assert!(dst.guards_stand());
                }
            }
        }
        Ok(())
    });
}

/// As [`check`], with more destinations: some through the cache, some around it, at any addresses.
fn check_spread(
    kernels: Kernels,
    dtype: DType,
    op: ReduceOp,
    case: &Case,
) -> Result<(), TestCaseError> {
    let inputs = inputs_of(dtype, case);
    let mut state = case.seed ^ 7;
    let remainders = [0, 0, 16, 32, 1, 2, 13, 48];
    let mut sources: Vec<Guarded> = inputs
        .iter()
        .zip(&case.misalignments)
        .map(|(input, misalignment)| Guarded::new(input, *misalignment))
        .collect();
    let mut blank = |count: u64| -> Vec<Guarded> {
        let content = vec![0x5a; case.count * dtype.size()];
        (0..count)
            .map(|_| Guarded::new(&content, pick(&remainders, &mut state)))
            .collect()
    };
    let (mut kept, mut streamed) = (blank(case.seed % 3), blank(case.seed / 3 % 4));
    let alias = case.alias.filter(|_| (case.seed / 12).is_multiple_of(2));
    let mut dsts: Vec<*mut u8> = kept.iter_mut().map(Guarded::as_mut_ptr).collect();
    let around: Vec<*mut u8> = streamed.iter_mut().map(Guarded::as_mut_ptr).collect();
    let srcs: Vec<*mut u8> = sources.iter_mut().map(Guarded::as_mut_ptr).collect();
    dsts.extend(alias.map(|alias| srcs[alias]));
    let read: Vec<*const u8> = srcs.iter().map(|src| src.cast_const()).collect();
    let ranks = u32::try_from(case.ranks).expect("few ranks");
    // SAFETY: all buffers hold `count` elements; a destination is one of the sources or apart.
    unsafe { kernels.reduce_to(dtype, op, &read, &dsts, &around, case.count, ranks) };
    let expected = &all_reduce(dtype, op, &inputs)[0];
    let written = kept.iter().chain(&streamed);
    for buffer in written.chain(alias.map(|alias| &sources[alias])) {
        let difference = first_difference(dtype, expected, buffer.content());
        prop_assert!(
            difference.is_none(),
            "{}: {dtype} {op}: {difference:?}",
            kernels.isa()
        );
    }
    for (rank, (source, input)) in sources.iter().zip(&inputs).enumerate() {
        prop_assert!(alias == Some(rank) || source.content() == input);
    }
    for buffer in sources.iter().chain(&kept).chain(&streamed) {
        prop_assert!(buffer.guards_stand(), "{}: {dtype} {op}", kernels.isa());
    }
    Ok(())
}

#[test]
fn results_go_to_every_destination_through_the_cache_and_around_it() {
    for_cases(24, |case| {
        for (dtype, op) in every_type_and_operation() {
            for kernels in every_kernels() {
                check_spread(kernels, dtype, op, &case)?;
            }
        }
        Ok(())
    });
}

#[test]
fn copies_of_every_length_are_whole_and_touch_nothing_else() {
    let mut state = 3;
    for length in (0..300).chain([2047, 2048, 2049, 4096, 70_001]) {
        let content: Vec<u8> = (0..length)
            .map(|_| next(&mut state).to_le_bytes()[5])
            .collect();
        for copy in [kernel::copy, kernel::copy_streaming] {
            let mut target = Guarded::new(&vec![0; length], length % 61);
            let source = Guarded::new(&content, length % 13);
            // SAFETY: both hold `length` bytes and are apart.
            unsafe { copy(target.as_mut_ptr(), source.content().as_ptr(), length) };
            assert!(target.content() == content, "{length} bytes");
            assert!(target.guards_stand(), "{length} bytes");
        }
    }
}

#[test]
fn copies_are_whole_however_the_places_lie_within_their_pages() {
    const PAGE: usize = 4096;
    let mut state = 5;
    let mut content = || next(&mut state).to_le_bytes()[5];
    for length in [2048, 2049, 4127, 70_001] {
        let source: Vec<u8> = (0..length).map(|_| content()).collect();
        for apart in [0, 1, 15, 16, 31, 63, 64, 65, 4095] {
            let mut target = vec![0xa5; length + 2 * PAGE];
            let wanted = source.as_ptr().addr() + apart;
            let start = wanted.wrapping_sub(target.as_ptr().addr()) % PAGE;
            let to = target[start..].as_mut_ptr();
            // SAFETY: both hold `length` bytes and are apart.
            unsafe { kernel::copy(to, source.as_ptr(), length) };
            let (before, rest) = target.split_at(start);
            let (copied, after) = rest.split_at(length);
            assert!(copied == source, "{length} bytes, {apart} apart");
            let mut around = before.iter().chain(after);
            assert!(
                around.all(|byte| *byte == 0xa5),
                "{length} bytes, {apart} apart"
            );
        }
    }
}

#[test]
fn a_finished_average_is_the_sum_divided_once() {
    for divisor in [1u32, 2, 3, 7, 200, 1 << 24, u32::MAX] {
        for kernels in every_kernels() {
            let name = format!("{} by {divisor}", kernels.isa());
            let mut sums = [i8::MIN, -7, -1, 0, 1, 100, i8::MAX];
            let expected = sums.map(|sum| i64::from(sum) / i64::from(divisor));
            // SAFETY: the buffer holds seven elements.
            unsafe { kernels.finish_avg(DType::I8, sums.as_mut_ptr().cast(), 7, divisor) };
            assert_eq!(sums.map(i64::from), expected, "{name}");

            let mut sums = [u64::MAX, 12_345_678_901_234_567_890, 5];
            let expected = sums.map(|sum| sum / u64::from(divisor));
            // SAFETY: the buffer holds three elements.
            unsafe { kernels.finish_avg(DType::U64, sums.as_mut_ptr().cast(), 3, divisor) };
            assert_eq!(sums, expected, "{name}");

            let mut sums = [1.0f32, -2.5, f32::MAX, 0.0];
            let expected = sums.map(|sum| (sum / divisor as f32).to_bits());
            // SAFETY: the buffer holds four elements.
            unsafe { kernels.finish_avg(DType::F32, sums.as_mut_ptr().cast(), 4, divisor) };
            assert_eq!(sums.map(f32::to_bits), expected, "{name}");

            let mut sums = [1.0f32, 3.0, -65_504.0].map(half::f16::from_f32);
            let expected = sums.map(|sum| half::f16::from_f32(sum.to_f32() / divisor as f32));
            // SAFETY: the buffer holds three elements.
            unsafe { kernels.finish_avg(DType::F16, sums.as_mut_ptr().cast(), 3, divisor) };
            assert_eq!(sums, expected, "{name}");
        }
    }
}

/// The value of a half, as the `half` crate sees it.
fn half_to_f32(dtype: DType, bits: u16) -> f32 {
    if dtype == DType::F16 {
        half::f16::from_bits(bits).to_f32()
    } else {
        half::bf16::from_bits(bits).to_f32()
    }
}

/// The half nearest to a value, as the `half` crate sees it.
fn half_from_f32(dtype: DType, value: f32) -> u16 {
    if dtype == DType::F16 {
        half::f16::from_f32(value).to_bits()
    } else {
        half::bf16::from_f32(value).to_bits()
    }
}

#[test]
fn every_half_is_widened_exactly_by_all_instructions() {
    let all = 0..=u16::MAX;
    let bytes: Vec<u8> = all.clone().flat_map(u16::to_ne_bytes).collect();
    let count = all.len();
    for dtype in [DType::F16, DType::Bf16] {
        let exact = all.clone().map(|bits| half_to_f32(dtype, bits));
        let expected: Vec<u8> = exact.flat_map(f32::to_ne_bytes).collect();
        for kernels in every_kernels() {
            let mut src = Guarded::new(&bytes, 1);
            let mut dst = Guarded::new(&vec![0; expected.len()], 3);
            let (from, to) = (src.as_mut_ptr().cast_const(), dst.as_mut_ptr());
            // SAFETY: both buffers hold `count` elements and are apart.
            unsafe { kernels.widen(dtype, from, to.cast(), count) };
            let difference = first_difference(DType::F32, &expected, dst.content());
            assert_eq!(difference, None, "{dtype} {}", kernels.isa());
            assert!(dst.guards_stand());
        }
    }
}

#[test]
fn f32_is_narrowed_to_nearest_even_by_all_instructions() {
    // Some of the time only few fraction bits, so that many values are ties of one of the halves.
    const MASKS: [u32; 3] = [0xffff_ffff, 0xffff_8000, 0xffff_f000];
    for_cases(200, |case| {
        let mut state = case.seed;
        let mask = pick(&MASKS, &mut state);
        let wide: Vec<f32> = elements(DType::F32, case.count, &mut state)
            .chunks_exact(4)
            .map(|bytes| u32::from_ne_bytes(bytes.try_into().expect("four bytes")))
            .map(|bits| f32::from_bits(bits & mask))
            .collect();
        let bytes: Vec<u8> = wide.iter().copied().flat_map(f32::to_ne_bytes).collect();
        for dtype in [DType::F16, DType::Bf16] {
            let nearest = wide.iter().map(|value| half_from_f32(dtype, *value));
            let expected: Vec<u8> = nearest.flat_map(u16::to_ne_bytes).collect();
            for kernels in every_kernels() {
                let mut src = Guarded::new(&bytes, case.misalignments[0]);
                let mut dst = Guarded::new(&vec![0; expected.len()], case.misalignments[1]);
                let (from, to) = (src.as_mut_ptr().cast_const(), dst.as_mut_ptr());
                // SAFETY: both buffers hold `count` elements and are apart.
                unsafe { kernels.narrow(dtype, from.cast(), to, case.count) };
                let difference = first_difference(dtype, &expected, dst.content());
                prop_assert_eq!(difference, None, "{} {}", dtype, kernels.isa());
                prop_assert!(dst.guards_stand());
            }
        }
        Ok(())
    });
}

/// Runs every kernel on buffers that end at `border`, in `room` bytes below it.
fn run_kernels_up_to(border: *mut u8, room: usize) {
    let low = border.wrapping_sub(room);
    for (kernels, dtype) in
        every_kernels().flat_map(|kernels| DType::ALL.map(|dtype| (kernels, dtype)))
    {
        for count in (0..70).chain([511, 512, 513]) {
            let buffer = border.wrapping_sub(count * dtype.size());
            let srcs = [buffer.cast_const(); 3];
            // SAFETY: the buffer lies below the border; it is source and destination.
            unsafe { kernels.reduce_n(dtype, ReduceOp::Max, &srcs, buffer, count, 1) };
            if matches!(dtype, DType::F16 | DType::Bf16) {
                let wide = border.wrapping_sub(count * 4);
                // SAFETY: the f32 end at the border; the halves lie far below them.
                unsafe { kernels.narrow(dtype, wide.cast(), low, count) };
                // SAFETY: the halves end at the border; the f32 lie far below them.
                unsafe { kernels.widen(dtype, buffer, low.cast(), count) };
            }
        }
    }
}

#[test]
fn no_kernel_touches_memory_beyond_its_buffers() {
    use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
    /// A multiple of every page size.
    const HALF: usize = 64 * 1024;
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new private mapping at an address of the kernel's choice.
    let mapping = unsafe { mmap_anonymous(std::ptr::null_mut(), 2 * HALF, protection, flags) };
    let base: *mut u8 = mapping.expect("memory").cast();
    let border = base.wrapping_add(HALF);
    // SAFETY: the second half of that mapping, which nobody uses.
    unsafe { mprotect(border.cast(), HALF, MprotectFlags::empty()) }.expect("protected");
    // A kernel that reads or writes one byte too many ends this process with a signal.
    run_kernels_up_to(border, HALF);
    // SAFETY: the mapping made above, to which no pointer is used any more.
    unsafe { munmap(base.cast(), 2 * HALF) }.expect("unmapped");
}

#[test]
fn instructions_that_the_cpu_lacks_are_refused() {
    assert_eq!(Some(kernel::isa()), Isa::supported().next());
    assert!(Isa::Scalar.is_supported());
    for isa in Isa::ALL {
        match Kernels::new(isa) {
            Ok(kernels) => assert!(isa.is_supported() && kernels.isa() == isa),
            Err(error) => {
                assert!(!isa.is_supported());
                let message = error.to_string();
                assert!(message.contains(isa.name()), "{message}");
                assert!(message.contains("scalar"), "{message}");
            }
        }
    }
    let foreign = if cfg!(target_arch = "x86_64") {
        Isa::Neon
    } else {
        Isa::Avx2
    };
    assert!(Kernels::new(foreign).is_err());
}
