//! The reduction loop compiled for each family of instructions, and the choice among them.
#![expect(
    unsafe_code,
    reason = "code that is compiled for special instructions may only run where they exist"
)]

use super::body::{self, Task};
use super::isa::Isa;
use super::lane::{Bf16, F16, Lane, Plain};
use super::number::{Fold, Max, Min, Prod, Sum};
use crate::types::{DType, ReduceOp};

/// A reduction compiled for one type, operation and family of instructions.
///
/// Safe to call under the conditions of [`body::reduce`].
pub(super) type Reduce = unsafe fn(&Task<'_>);

/// A conversion compiled for one type and family of instructions: source, destination, count.
///
/// Safe to call under the conditions of [`body::widen`] and [`body::narrow`].
pub(super) type Convert = unsafe fn(*const u8, *mut u8, usize);

/// A family of instructions: how it converts halves, and the loops compiled with it.
pub(super) trait Family {
    /// Reads and writes bf16.
    type Bf16: Lane;
    /// Reads and writes f16.
    type F16: Lane;

    /// [`body::reduce`] compiled for this family.
    ///
    /// # Safety
    /// As [`body::reduce`].
    unsafe fn reduce<L: Lane, F: Fold>(task: &Task<'_>);

    /// [`body::widen`] compiled for this family.
    ///
    /// # Safety
    /// As [`body::widen`].
    unsafe fn widen<L: Lane>(src: *const u8, dst: *mut u8, count: usize);

    /// [`body::narrow`] compiled for this family.
    ///
    /// # Safety
    /// As [`body::narrow`].
    unsafe fn narrow<L: Lane>(src: *const u8, dst: *mut u8, count: usize);
}

/// A [`Family`]: its name, its instructions and its lanes for halves.
macro_rules! family {
    ($(#[doc = $doc:literal])* $family:ident, [$($feature:literal)?], $bf16:ty, $f16:ty) => {
        $(#[doc = $doc])*
        pub(super) struct $family;

        impl $crate::kernel::select::Family for $family {
            type Bf16 = $bf16;
            type F16 = $f16;

            $(#[target_feature(enable = $feature)])?
            unsafe fn reduce<L: Lane, F: Fold>(task: &Task<'_>) {
                // SAFETY: the caller's promise is the same.
                unsafe { body::reduce::<L, F>(task) }
            }

            $(#[target_feature(enable = $feature)])?
            unsafe fn widen<L: Lane>(src: *const u8, dst: *mut u8, count: usize) {
                // SAFETY: the caller's promise is the same.
                unsafe { body::widen::<L>(src, dst, count) }
            }

            $(#[target_feature(enable = $feature)])?
            unsafe fn narrow<L: Lane>(src: *const u8, dst: *mut u8, count: usize) {
                // SAFETY: the caller's promise is the same.
                unsafe { body::narrow::<L>(src, dst, count) }
            }
        }
    };
}

family!(
    /// Whatever every CPU of the target has.
    Scalar, [], Bf16, F16
);

/// The reduction for a type, an operation and a family of instructions.
pub(super) fn reduction(isa: Isa, dtype: DType, op: ReduceOp) -> Reduce {
    match isa {
        Isa::Scalar | Isa::Avx2 | Isa::Avx512 | Isa::Avx512Bf16 | Isa::Neon => {
            by_op::<Scalar>(dtype, op)
        }
    }
}

/// The conversion of halves to f32, or `None` for a type that is no half.
pub(super) fn widening(isa: Isa, dtype: DType) -> Option<Convert> {
    match isa {
        Isa::Scalar | Isa::Avx2 | Isa::Avx512 | Isa::Avx512Bf16 | Isa::Neon => {
            widening_of::<Scalar>(dtype)
        }
    }
}

/// The conversion of f32 to halves, or `None` for a type that is no half.
pub(super) fn narrowing(isa: Isa, dtype: DType) -> Option<Convert> {
    match isa {
        Isa::Scalar | Isa::Avx2 | Isa::Avx512 | Isa::Avx512Bf16 | Isa::Neon => {
            narrowing_of::<Scalar>(dtype)
        }
    }
}

fn by_op<I: Family>(dtype: DType, op: ReduceOp) -> Reduce {
    match op {
        // The division of an average is part of the task.
        ReduceOp::Avg | ReduceOp::Sum => by_type::<I, Sum>(dtype),
        ReduceOp::Max => by_type::<I, Max>(dtype),
        ReduceOp::Min => by_type::<I, Min>(dtype),
        ReduceOp::Prod => by_type::<I, Prod>(dtype),
    }
}

fn by_type<I: Family, F: Fold>(dtype: DType) -> Reduce {
    match dtype {
        DType::Bf16 => I::reduce::<I::Bf16, F>,
        DType::F16 => I::reduce::<I::F16, F>,
        DType::F32 => I::reduce::<Plain<f32>, F>,
        DType::F64 => I::reduce::<Plain<f64>, F>,
        DType::I8 => I::reduce::<Plain<i8>, F>,
        DType::I16 => I::reduce::<Plain<i16>, F>,
        DType::I32 => I::reduce::<Plain<i32>, F>,
        DType::I64 => I::reduce::<Plain<i64>, F>,
        DType::U8 => I::reduce::<Plain<u8>, F>,
        DType::U16 => I::reduce::<Plain<u16>, F>,
        DType::U32 => I::reduce::<Plain<u32>, F>,
        DType::U64 => I::reduce::<Plain<u64>, F>,
    }
}

fn widening_of<I: Family>(dtype: DType) -> Option<Convert> {
    match dtype {
        DType::Bf16 => Some(I::widen::<I::Bf16>),
        DType::F16 => Some(I::widen::<I::F16>),
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
        DType::F16 => Some(I::narrow::<I::F16>),
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
