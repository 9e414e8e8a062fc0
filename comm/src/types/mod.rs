//! The small vocabulary that every layer shares: ranks, element types, reductions, collectives.
//!
//! Distinct things have distinct types; arithmetic between them is a named method. Nothing here
//! does I/O or knows a transport.

mod collective;
mod pattern;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use collective::{Collective, Counting};
pub use pattern::{Extent, Over, Pattern, Source};

#[cfg(not(target_pointer_width = "64"))]
compile_error!(
    "muster-comm needs a 64-bit target: counts and offsets of shared regions are 64-bit"
);

/// A rank: the number of a process (or thread) within a world or, where said so, within a group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Rank(pub u32);

impl Rank {
    /// The rank as an index into a slice that has one entry a rank.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// The rank that an index into a slice with one entry a rank stands for.
    ///
    /// # Panics
    /// If `index` exceeds [`MAX_WORLD_SIZE`], which no slice of ranks does.
    #[must_use]
    pub fn from_index(index: usize) -> Self {
        Self(u32::try_from(index).expect("an index into a list of ranks fits u32"))
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Most ranks a layout may describe. Far above any cluster; keeps products of sizes in `u64`.
pub const MAX_WORLD_SIZE: u32 = 1 << 24;

/// A 64-bit number read from a wire or a shared region, as an index.
///
/// The crate compiles for 64-bit targets only, so nothing is cut off.
#[must_use]
pub fn index(value: u64) -> usize {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "usize has 64 bits: checked at the top of this file"
    )]
    {
        value as usize
    }
}

/// Element type of a buffer.
///
/// The discriminants travel in frames and shared memory: never renumber them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum DType {
    /// Brain floating point: 8 exponent bits, 7 fraction bits.
    Bf16 = 1,
    /// IEEE 754 binary16.
    F16 = 2,
    /// IEEE 754 binary32.
    F32 = 3,
    /// IEEE 754 binary64.
    F64 = 4,
    /// Signed 8-bit integer.
    I8 = 5,
    /// Signed 16-bit integer.
    I16 = 6,
    /// Signed 32-bit integer.
    I32 = 7,
    /// Signed 64-bit integer.
    I64 = 8,
    /// Unsigned 8-bit integer.
    U8 = 9,
    /// Unsigned 16-bit integer.
    U16 = 10,
    /// Unsigned 32-bit integer.
    U32 = 11,
    /// Unsigned 64-bit integer.
    U64 = 12,
}

impl DType {
    /// Every element type, in the order in which reports list them.
    pub const ALL: [Self; 12] = [
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::F16,
        Self::Bf16,
        Self::F32,
        Self::F64,
    ];

    /// Size of one element in bytes.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::Bf16 | Self::F16 | Self::I16 | Self::U16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F64 | Self::I64 | Self::U64 => 8,
        }
    }

    /// Whether its elements are whole numbers.
    #[must_use]
    pub const fn is_integer(self) -> bool {
        match self {
            Self::Bf16 | Self::F16 | Self::F32 | Self::F64 => false,
            Self::I8
            | Self::I16
            | Self::I32
            | Self::I64
            | Self::U8
            | Self::U16
            | Self::U32
            | Self::U64 => true,
        }
    }

    /// Size of `count` elements in bytes, or `None` where the product leaves `usize`.
    #[must_use]
    pub const fn bytes(self, count: usize) -> Option<usize> {
        count.checked_mul(self.size())
    }

    /// The name used in options, reports and messages: `f32`, `bf16`, …
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
        }
    }

    /// The element type with this wire number.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| *dtype as u8 == code)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DType {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        by_name("element type", name, &Self::ALL, |dtype| dtype.name())
    }
}

/// How elements of several ranks become one.
///
/// Integers wrap on overflow. `Avg` divides the sum by the number of ranks: floats round once,
/// integers truncate toward zero. A NaN in any input makes the output NaN, for `Min` and `Max`
/// too; which NaN is not specified. `BitAnd`, `BitOr` and `BitXor` take integers only. The discriminants travel on the
/// wire: never renumber them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum ReduceOp {
    /// The sum divided by the number of ranks.
    Avg = 1,
    /// The greatest element.
    Max = 2,
    /// The least element.
    Min = 3,
    /// The product.
    Prod = 4,
    /// The sum.
    Sum = 5,
    /// The bits that all elements have.
    #[serde(rename = "band")]
    BitAnd = 6,
    /// The bits that any element has.
    #[serde(rename = "bor")]
    BitOr = 7,
    /// The bits that an odd number of elements has.
    #[serde(rename = "bxor")]
    BitXor = 8,
}

impl ReduceOp {
    /// Every reduction, in the order in which reports list them.
    pub const ALL: [Self; 8] = [
        Self::Sum,
        Self::Prod,
        Self::Min,
        Self::Max,
        Self::Avg,
        Self::BitAnd,
        Self::BitOr,
        Self::BitXor,
    ];

    /// Those that every element type has.
    pub const OF_NUMBERS: [Self; 5] = [Self::Sum, Self::Prod, Self::Min, Self::Max, Self::Avg];

    /// Those that have an [identity](Self::identity).
    pub const WITH_IDENTITY: [Self; 7] = [
        Self::Sum,
        Self::Prod,
        Self::Min,
        Self::Max,
        Self::BitAnd,
        Self::BitOr,
        Self::BitXor,
    ];

    /// Whether it combines bits and not numbers.
    #[must_use]
    pub const fn is_bitwise(self) -> bool {
        matches!(self, Self::BitAnd | Self::BitOr | Self::BitXor)
    }

    /// Whether it takes elements of this type.
    #[must_use]
    pub const fn takes(self, dtype: DType) -> bool {
        dtype.is_integer() || !self.is_bitwise()
    }

    /// The element that changes no other one in this reduction, in native order: 0 for `Sum`, `BitOr` and `BitXor`, 1 for
    /// `Prod`, the greatest element of the type for `Min`, infinity among them, the least for `Max`, and all bits for
    /// `BitAnd`. `None` for `Avg`, and where the type has none.
    #[must_use]
    pub fn identity(self, dtype: DType) -> Option<Vec<u8>> {
        if self.is_bitwise() {
            let byte = if self == Self::BitAnd { 0xff } else { 0 };
            return self.takes(dtype).then(|| vec![byte; dtype.size()]);
        }
        macro_rules! of {
            ($zero:expr, $one:expr, $greatest:expr, $least:expr) => {
                match self {
                    Self::Avg | Self::BitAnd | Self::BitOr | Self::BitXor => return None,
                    Self::Max => ($least).to_ne_bytes().to_vec(),
                    Self::Min => $greatest.to_ne_bytes().to_vec(),
                    Self::Prod => $one.to_ne_bytes().to_vec(),
                    Self::Sum => $zero.to_ne_bytes().to_vec(),
                }
            };
        }
        macro_rules! float {
            ($float:ty) => {
                of!(
                    0.0 as $float,
                    1.0 as $float,
                    <$float>::INFINITY,
                    <$float>::NEG_INFINITY
                )
            };
        }
        // By their bits: this file is compiled without the crate of halves too (`models`).
        macro_rules! half {
            ($one:literal, $infinity:literal) => {
                of!(0_u16, $one, $infinity, $infinity | 0x8000)
            };
        }
        macro_rules! integer {
            ($integer:ty) => {
                of!(
                    0 as $integer,
                    1 as $integer,
                    <$integer>::MAX,
                    <$integer>::MIN
                )
            };
        }
        Some(match dtype {
            DType::Bf16 => half!(0x3f80_u16, 0x7f80_u16),
            DType::F16 => half!(0x3c00_u16, 0x7c00_u16),
            DType::F32 => float!(f32),
            DType::F64 => float!(f64),
            DType::I8 => integer!(i8),
            DType::I16 => integer!(i16),
            DType::I32 => integer!(i32),
            DType::I64 => integer!(i64),
            DType::U8 => integer!(u8),
            DType::U16 => integer!(u16),
            DType::U32 => integer!(u32),
            DType::U64 => integer!(u64),
        })
    }

    /// The name used in options, reports and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Avg => "avg",
            Self::BitAnd => "band",
            Self::BitOr => "bor",
            Self::BitXor => "bxor",
            Self::Max => "max",
            Self::Min => "min",
            Self::Prod => "prod",
            Self::Sum => "sum",
        }
    }

    /// The reduction with this wire number.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|op| *op as u8 == code)
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ReduceOp {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        by_name("reduction", name, &Self::ALL, |op| op.name())
    }
}

/// A word that names nothing we know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} {got:?}; known: {}", known.join(", "))]
pub struct UnknownName {
    /// What kind of name was looked for.
    pub what: &'static str,
    /// The word that was given.
    pub got: String,
    /// Every name that would have been understood.
    pub known: Vec<&'static str>,
}

impl UnknownName {
    /// The known name closest to what was given, if one is close enough to be meant.
    #[must_use]
    pub fn suggestion(&self) -> Option<&'static str> {
        closest(&self.got, self.known.iter().copied())
    }
}

/// The candidate closest to `word`, if it is close enough to be a slip of the pen.
#[must_use]
pub fn closest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    /// Jaro-Winkler similarity below which two names are just different names.
    const SIMILAR: f64 = 0.8;
    candidates
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(word, candidate), candidate))
        .filter(|(similarity, _)| *similarity >= SIMILAR)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

pub(crate) fn by_name<T: Copy>(
    what: &'static str,
    name: &str,
    all: &[T],
    name_of: impl Fn(T) -> &'static str,
) -> Result<T, UnknownName> {
    all.iter()
        .copied()
        .find(|item| name_of(*item) == name)
        .ok_or_else(|| UnknownName {
            what,
            got: name.to_owned(),
            known: all.iter().map(|item| name_of(*item)).collect(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_and_every_code_leads_back_to_its_variant() {
        for dtype in DType::ALL {
            assert_eq!(dtype.name().parse(), Ok(dtype));
            assert_eq!(DType::from_code(dtype as u8), Some(dtype));
        }
        for op in ReduceOp::ALL {
            assert_eq!(op.name().parse(), Ok(op));
            assert_eq!(ReduceOp::from_code(op as u8), Some(op));
        }
        for collective in Collective::ALL {
            assert_eq!(collective.name().parse(), Ok(collective));
            assert_eq!(Collective::from_code(collective as u8), Some(collective));
        }
    }

    #[test]
    fn a_misspelt_name_is_answered_with_the_one_that_was_meant() {
        let error = "all_redcue"
            .parse::<Collective>()
            .expect_err("not a collective");
        assert_eq!(error.suggestion(), Some("all_reduce"));
        let error = "zzz".parse::<DType>().expect_err("not an element type");
        assert_eq!(error.suggestion(), None);
        assert!(error.to_string().contains("bf16"), "{error}");
    }
}
