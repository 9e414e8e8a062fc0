//! Why a matrix cannot be read.

use super::super::axis::Param;
use super::super::error::{LayoutError, did_you_mean};
use super::super::{VerlError, VllmTextError};
use super::MAX_MATRIX_CHARS;

/// Why a matrix could not be read, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("matrix \"{input}\"{}: {fault}", at(*position))]
pub struct MatrixError {
    /// What was given, shortened.
    pub input: String,
    /// Which character, counted from 1; 0 for the matrix as a whole.
    pub position: usize,
    /// What is wrong there.
    pub fault: MatrixFault,
}

/// What is wrong with a matrix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MatrixFault {
    /// An axis stands twice.
    #[error("{axis} stands twice; each of tp, cp, pp, dp, ep, etp at most once")]
    AxisTwice {
        /// The axis.
        axis: Param,
    },
    /// Nothing was given.
    #[error("nothing there; a matrix is like tp2ep4 or tp2ep4@8")]
    Empty,
    /// The sizes make no legal layout.
    #[error("{0}")]
    Illegal(Box<LayoutError>),
    /// A preset where a matrix belongs.
    #[error("that is a preset, not a matrix; write --preset {0}")]
    IsPreset(&'static str),
    /// A number without an axis before it.
    #[error("the size {size} has no axis before it; write the axis first, as in tp2ep4")]
    SizeFirst {
        /// The number.
        size: String,
    },
    /// An axis without a size.
    #[error("{axis} needs a size, as in {axis}2")]
    SizeMissing {
        /// The axis.
        axis: Param,
    },
    /// A number that no computer holds.
    #[error("{size} is too large for a size")]
    SizeTooLarge {
        /// The number, shortened.
        size: String,
    },
    /// Too many characters.
    #[error("{length} characters; at most {MAX_MATRIX_CHARS} are read")]
    TooLong {
        /// Number of characters.
        length: usize,
    },
    /// A character that no matrix has.
    #[error("unexpected character {found:?}; a matrix is like tp2ep4@8")]
    Unexpected {
        /// The character.
        found: char,
    },
    /// A word that is no axis.
    #[error("unknown axis \"{word}\"; axes: tp, cp, pp, dp, ep, etp{}", did_you_mean(suggestion.as_deref()))]
    UnknownAxis {
        /// The word.
        word: String,
        /// The whole matrix as it may have been meant.
        suggestion: Option<String>,
    },
    /// No layout of verl.
    #[error("{0}")]
    Verl(Box<VerlError>),
    /// No layout of vLLM.
    #[error("{0}")]
    Vllm(Box<VllmTextError>),
    /// An `@` without a number, or with something after the number.
    #[error("\"@\" comes last, followed by the number of ranks, as in tp2ep4@8")]
    World,
}

fn at(position: usize) -> String {
    if position == 0 {
        String::new()
    } else {
        format!(", character {position}")
    }
}
