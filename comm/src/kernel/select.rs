//! The reduction loop compiled for each family of instructions, and the choice among them.
#![expect(
    unsafe_code,
    reason = "code that is compiled for special instructions may only run where they exist"
)]

use super::body::Task;
use super::isa::Isa;
use super::lane::{Bf16, F16, Lane, Plain};
use super::number::{And, Fold, Max, Min, Or, Prod, Sum, Xor};
use super::stream::BaseLines;
use crate::types::{DType, ReduceOp};

/// A reduction compiled for one type, operation and family of instructions.
///
/// Safe to call under the conditions of [`super::body::reduce`].
pub(super) type Reduce = unsafe fn(&Task<'_>);

/// A conversion compiled for one type and family of instructions: source, destination, count.
///
/// Safe to call under the conditions of [`super::body::widen`] and [`super::body::narrow`].
pub(super) type Convert = unsafe fn(*const u8, *mut u8, usize);

/// A family of instructions: how it converts halves, and the loops compiled with it.
pub(super) trait Family {
    /// Reads and writes bf16.
    type Bf16: Lane;
    /// Reads and writes f16.
    type F16: Lane;
    /// The family whose loops serve every type but bf16: one that differs in nothing else is not compiled twice.
    type Others: Family<F16 = Self::F16>;

    /// [`super::body::reduce`] compiled for this family.
    ///
    /// # Safety
    /// As [`super::body::reduce`].
    unsafe fn reduce<L: Lane, F: Fold>(task: &Task<'_>);

    /// [`super::stream::Lines::copy`] of this family.
    ///
    /// # Safety
    /// As there.
    unsafe fn copy_lines(dst: *mut u8, src: *const u8, bytes: usize);

    /// [`super::body::widen`] compiled for this family.
    ///
    /// # Safety
    /// As [`super::body::widen`].
    unsafe fn widen<L: Lane>(src: *const u8, dst: *mut u8, count: usize);

    /// [`super::body::narrow`] compiled for this family.
    ///
    /// # Safety
    /// As [`super::body::narrow`].
    unsafe fn narrow<L: Lane>(src: *const u8, dst: *mut u8, count: usize);
}

/// A [`Family`]: its name, its instructions, its lanes for halves, its lines, and its [`Family::Others`].
macro_rules! family {
    (
        $(#[doc = $doc:literal])* $family:ident, [$($feature:literal)?],
        $bf16:ty, $f16:ty, $lines:ty, $others:ty
    ) => {
        $(#[doc = $doc])*
        pub(super) struct $family;

        impl $crate::kernel::select::Family for $family {
            type Bf16 = $bf16;
            type F16 = $f16;
            type Others = $others;

            $(#[target_feature(enable = $feature)])?
            unsafe fn reduce<L, F>(task: &$crate::kernel::body::Task<'_>)
            where
                L: $crate::kernel::lane::Lane,
                F: $crate::kernel::number::Fold,
            {
                // SAFETY: the caller's promise is the same.
                unsafe { $crate::kernel::body::reduce::<L, F, $lines>(task) }
            }

            $(#[target_feature(enable = $feature)])?
            unsafe fn copy_lines(dst: *mut u8, src: *const u8, bytes: usize) {
                use $crate::kernel::stream::Lines;
                // SAFETY: the caller's promise is the same.
                unsafe { <$lines>::copy(dst, src, bytes) }
            }

            $(#[target_feature(enable = $feature)])?
            unsafe fn widen<L>(src: *const u8, dst: *mut u8, count: usize)
            where
                L: $crate::kernel::lane::Lane,
            {
                // SAFETY: the caller's promise is the same.
                unsafe { $crate::kernel::body::widen::<L>(src, dst, count) }
            }

            $(#[target_feature(enable = $feature)])?
            unsafe fn narrow<L>(src: *const u8, dst: *mut u8, count: usize)
            where
                L: $crate::kernel::lane::Lane,
            {
                // SAFETY: the caller's promise is the same.
                unsafe { $crate::kernel::body::narrow::<L>(src, dst, count) }
            }
        }
    };
}
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
pub(super) use family;

family!(
    /// Whatever every CPU of the target has.
    Scalar, [], Bf16, F16, BaseLines, Self
);

/// Calls a function with the type that stands for a family of this target. A family of another
/// target cannot be asked for, because no CPU of this one supports it.
macro_rules! by_family {
    ($isa:expr, $function:ident($($argument:expr),*)) => {
        match $isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => $function::<super::x86::Avx2>($($argument),*),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => $function::<super::x86::Avx512>($($argument),*),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Bf16 => $function::<super::x86::Avx512Bf16>($($argument),*),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => $function::<super::arm::Neon>($($argument),*),
            #[cfg(target_arch = "aarch64")]
            Isa::NeonBf16 => $function::<super::arm::NeonBf16>($($argument),*),
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx2 | Isa::Avx512 | Isa::Avx512Bf16 => $function::<Scalar>($($argument),*),
            #[cfg(not(target_arch = "aarch64"))]
            Isa::Neon | Isa::NeonBf16 => $function::<Scalar>($($argument),*),
            Isa::Scalar => $function::<Scalar>($($argument),*),
        }
    };
}

/// The reduction for a type, an operation and a family of instructions.
pub(super) fn reduction(isa: Isa, dtype: DType, op: ReduceOp) -> Reduce {
    by_family!(isa, by_op(dtype, op))
}

/// How this family copies whole lines around the cache.
pub(super) fn lines(isa: Isa) -> Convert {
    by_family!(isa, lines_of())
}

/// The conversion of halves to f32, or `None` for a type that is no half.
pub(super) fn widening(isa: Isa, dtype: DType) -> Option<Convert> {
    by_family!(isa, widening_of(dtype))
}

/// The conversion of f32 to halves, or `None` for a type that is no half.
pub(super) fn narrowing(isa: Isa, dtype: DType) -> Option<Convert> {
    by_family!(isa, narrowing_of(dtype))
}

fn by_op<I: Family>(dtype: DType, op: ReduceOp) -> Reduce {
    match op {
        // The division of an average is part of the task.
        ReduceOp::Avg | ReduceOp::Sum => by_type::<I, Sum>(dtype),
        ReduceOp::BitAnd => by_width::<I, And>(dtype),
        ReduceOp::BitOr => by_width::<I, Or>(dtype),
        ReduceOp::BitXor => by_width::<I, Xor>(dtype),
        ReduceOp::Max => by_type::<I, Max>(dtype),
        ReduceOp::Min => by_type::<I, Min>(dtype),
        ReduceOp::Prod => by_type::<I, Prod>(dtype),
    }
}

fn by_type<I: Family, F: Fold>(dtype: DType) -> Reduce {
    match dtype {
        DType::Bf16 => I::reduce::<I::Bf16, F>,
        DType::F16 => I::Others::reduce::<I::F16, F>,
        DType::F32 => I::Others::reduce::<Plain<f32>, F>,
        DType::F64 => I::Others::reduce::<Plain<f64>, F>,
        DType::I8 => I::Others::reduce::<Plain<i8>, F>,
        DType::I16 => I::Others::reduce::<Plain<i16>, F>,
        DType::I32 => I::Others::reduce::<Plain<i32>, F>,
        DType::I64 => I::Others::reduce::<Plain<i64>, F>,
        DType::U8 => I::Others::reduce::<Plain<u8>, F>,
        DType::U16 => I::Others::reduce::<Plain<u16>, F>,
        DType::U32 => I::Others::reduce::<Plain<u32>, F>,
        DType::U64 => I::Others::reduce::<Plain<u64>, F>,
    }
}

/// Bits are the same in all types of a width.
fn by_width<I: Family, F: Fold>(dtype: DType) -> Reduce {
    match dtype.size() {
        1 => I::reduce::<Plain<u8>, F>,
        2 => I::reduce::<Plain<u16>, F>,
        4 => I::reduce::<Plain<u32>, F>,
        _ => I::reduce::<Plain<u64>, F>,
    }
}

fn lines_of<I: Family>() -> Convert {
    // Destination and source change places.
    |src, dst, bytes| {
        // SAFETY: the caller's promise is the same.
        unsafe { I::copy_lines(dst, src, bytes) }
    }
}

fn widening_of<I: Family>(dtype: DType) -> Option<Convert> {
    match dtype {
        DType::Bf16 => Some(I::widen::<I::Bf16>),
        DType::F16 => Some(I::Others::widen::<I::F16>),
        DType::F32
        | DType::F64
        | DType::I8
        | DType::I16
        | DType::I32
        | DType::I64
        | DType::U8
        | DType::U16
        | DType::U32
        | DType::U64 => None,
    }
}

fn narrowing_of<I: Family>(dtype: DType) -> Option<Convert> {
    match dtype {
        DType::Bf16 => Some(I::narrow::<I::Bf16>),
        DType::F16 => Some(I::Others::narrow::<I::F16>),
        DType::F32
        | DType::F64
        | DType::I8
        | DType::I16
        | DType::I32
        | DType::I64
        | DType::U8
        | DType::U16
        | DType::U32
        | DType::U64 => None,
    }
}
