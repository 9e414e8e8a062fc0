//! The names of matrices: `tp2ep4`, `tp2cp2ep2@16`, `TP=2 x PP=2 x DP=2`.
//!
//! A matrix is a set of parallel axes and a world size. This file knows how one is written, not
//! which are legal: that is for the layout, which names the rule that a matrix breaks.
//!
//! MATRIX-1: a name printed by [`Matrix`] parses back to the same matrix.

use std::fmt;
use std::str::FromStr;

use muster_comm::types::closest;
use serde::{Deserialize, Serialize};

/// Most ranks that one host is asked to start. A process a rank: more than this exhausts process
/// and descriptor limits long before it proves anything that fewer ranks do not.
pub const WORLD_SIZE_MAX: u32 = 1024;

/// Longest name that is looked at; a longer one is not a matrix.
const NAME_LENGTH_MAX: usize = 128;

/// The parallel axes of a training job and the number of its ranks.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Matrix {
    /// Tensor parallel size.
    pub tp: u32,
    /// Context parallel size.
    pub cp: u32,
    /// Pipeline parallel size.
    pub pp: u32,
    /// Expert parallel size.
    pub ep: u32,
    /// Expert tensor parallel size; as `tp` where not given.
    pub etp: Option<u32>,
    /// Number of ranks.
    pub world_size: u32,
    /// The name that reports use.
    pub name: String,
}

/// An axis of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Axis {
    Tp,
    Cp,
    Pp,
    Dp,
    Ep,
    Etp,
}

impl Axis {
    /// In the order in which names are printed.
    const ALL: [Self; 6] = [Self::Tp, Self::Cp, Self::Pp, Self::Dp, Self::Ep, Self::Etp];

    const fn name(self) -> &'static str {
        match self {
            Self::Tp => "tp",
            Self::Cp => "cp",
            Self::Pp => "pp",
            Self::Dp => "dp",
            Self::Ep => "ep",
            Self::Etp => "etp",
        }
    }
}

/// Why a word names no matrix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MatrixError {
    /// The same axis stands there twice.
    #[error("axis {axis} stands twice in matrix {name:?}")]
    AxisTwice {
        /// The whole name.
        name: String,
        /// The axis.
        axis: &'static str,
    },
    /// The data parallel size and the world size that were given contradict each other.
    #[error("matrix {name:?} asks for {asked} ranks, but its tp x cp x pp x dp is {product}")]
    Contradiction {
        /// The whole name.
        name: String,
        /// What stands behind the `@`.
        asked: u64,
        /// What the axes multiply to.
        product: u64,
    },
    /// Nothing, or far too much, to be a name.
    #[error("a matrix is 1 to {NAME_LENGTH_MAX} characters long, got {length}")]
    Length {
        /// Length of what was given.
        length: usize,
    },
    /// An axis without its size.
    #[error("axis {axis} of matrix {name:?} has no size")]
    NoSize {
        /// The whole name.
        name: String,
        /// The axis.
        axis: &'static str,
    },
    /// A size that is zero or absurd.
    #[error("{what} of matrix {name:?} is {got}, allowed are 1 to {WORLD_SIZE_MAX}")]
    Size {
        /// The whole name.
        name: String,
        /// Which size.
        what: &'static str,
        /// What was given.
        got: String,
    },
    /// A word that is no axis.
    #[error("unknown axis {word:?} in matrix {name:?}; known: tp, cp, pp, dp, ep, etp")]
    UnknownAxis {
        /// The whole name.
        name: String,
        /// The word.
        word: String,
        /// The axis that may have been meant.
        suggestion: Option<&'static str>,
    },
}

impl MatrixError {
    /// What to do next.
    #[must_use]
    pub fn help(&self) -> String {
        const SHAPE: &str = "a matrix is written like tp2, tp2ep4 or tp2cp2ep2@16";
        match self {
            Self::UnknownAxis {
                suggestion: Some(axis),
                ..
            } => format!("did you mean {axis}? {SHAPE}"),
            Self::Contradiction { product, .. } => {
                format!("leave out the @ part, or write @{product}")
            }
            Self::AxisTwice { .. }
            | Self::Length { .. }
            | Self::NoSize { .. }
            | Self::Size { .. }
            | Self::UnknownAxis { .. } => SHAPE.to_owned(),
        }
    }
}

impl Matrix {
    /// The matrices that `verify` runs when none is named.
    #[must_use]
    pub fn defaults() -> Vec<Self> {
        [
            "tp1",
            "tp2",
            "tp8",
            "tp2ep4",
            "tp2cp2ep2",
            "tp2pp2dp2",
            "tp3ep4",
            "tp2ep8",
            "ep16",
        ]
        .iter()
        .filter_map(|name| name.parse().ok())
        .collect()
    }

    /// Data parallel size of the dense part: what the other axes leave of the world.
    #[must_use]
    pub fn dp(&self) -> u32 {
        self.world_size / (self.tp * self.cp * self.pp).max(1)
    }

    fn from_axes(
        given: &str,
        axes: &[(Axis, u32)],
        world: Option<u32>,
    ) -> Result<Self, MatrixError> {
        let size = |axis: Axis| axes.iter().find(|(a, _)| *a == axis).map(|(_, size)| *size);
        let or_one = |axis: Axis| size(axis).unwrap_or(1);
        let dense =
            u64::from(or_one(Axis::Tp)) * u64::from(or_one(Axis::Cp)) * u64::from(or_one(Axis::Pp));
        let etp = size(Axis::Etp).unwrap_or_else(|| or_one(Axis::Tp));
        let expert = u64::from(etp) * u64::from(or_one(Axis::Ep)) * u64::from(or_one(Axis::Pp));
        let natural = match size(Axis::Dp) {
            Some(dp) => dense.saturating_mul(u64::from(dp)),
            // Every axis gets ranks of its own, and both parts must divide the world.
            None => {
                least_common_multiple(dense.saturating_mul(u64::from(or_one(Axis::Ep))), expert)
            }
        };
        if let (Some(asked), Some(_)) = (world, size(Axis::Dp))
            && u64::from(asked) != natural
        {
            return Err(MatrixError::Contradiction {
                name: given.to_owned(),
                asked: u64::from(asked),
                product: natural,
            });
        }
        let world_size = match world {
            Some(world) => world,
            None => checked_size(given, "the world size", &natural.to_string())?,
        };
        let mut name: String = Axis::ALL
            .iter()
            .filter_map(|axis| size(*axis).map(|size| format!("{}{size}", axis.name())))
            .collect();
        if u64::from(world_size) != natural {
            name = format!("{name}@{world_size}");
        }
        Ok(Self {
            tp: or_one(Axis::Tp),
            cp: or_one(Axis::Cp),
            pp: or_one(Axis::Pp),
            ep: or_one(Axis::Ep),
            etp: size(Axis::Etp),
            world_size,
            name,
        })
    }
}

impl fmt::Display for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
    }
}

impl FromStr for Matrix {
    type Err = MatrixError;

    fn from_str(given: &str) -> Result<Self, MatrixError> {
        let length = given.chars().count();
        if length == 0 || length > NAME_LENGTH_MAX {
            return Err(MatrixError::Length { length });
        }
        let lower = given.to_ascii_lowercase();
        let (axes_text, world_text) = match lower.split_once('@') {
            Some((axes, world)) => (axes, Some(world)),
            None => (lower.as_str(), None),
        };
        let world = world_text
            .map(|text| checked_size(given, "the world size", text.trim()))
            .transpose()?;
        let mut axes: Vec<(Axis, u32)> = Vec::new();
        let mut rest = axes_text.trim_start_matches(is_separator);
        while !rest.is_empty() {
            let (axis, size, tail) = next_axis(given, rest)?;
            if axes.iter().any(|(seen, _)| *seen == axis) {
                return Err(MatrixError::AxisTwice {
                    name: given.to_owned(),
                    axis: axis.name(),
                });
            }
            axes.push((axis, size));
            rest = tail.trim_start_matches(is_separator);
        }
        if axes.is_empty() {
            return Err(MatrixError::UnknownAxis {
                name: given.to_owned(),
                word: String::new(),
                suggestion: None,
            });
        }
        Self::from_axes(given, &axes, world)
    }
}

/// Splits one axis and its size off the front of `text`, which is not empty.
fn next_axis<'a>(given: &str, text: &'a str) -> Result<(Axis, u32, &'a str), MatrixError> {
    let digits_at = text
        .find(|c: char| !c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (word, after_word) = text.split_at(digits_at);
    let Some(axis) = Axis::ALL.into_iter().find(|axis| axis.name() == word) else {
        let unknown = if word.is_empty() { text } else { word };
        return Err(MatrixError::UnknownAxis {
            name: given.to_owned(),
            word: unknown.to_owned(),
            suggestion: suggest_axis(word),
        });
    };
    let after_equals = after_word.strip_prefix('=').unwrap_or(after_word);
    let size_end = after_equals
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(after_equals.len());
    let (size, tail) = after_equals.split_at(size_end);
    if size.is_empty() {
        return Err(MatrixError::NoSize {
            name: given.to_owned(),
            axis: axis.name(),
        });
    }
    Ok((axis, checked_size(given, axis.name_of_size(), size)?, tail))
}

impl Axis {
    const fn name_of_size(self) -> &'static str {
        match self {
            Self::Tp => "the size of tp",
            Self::Cp => "the size of cp",
            Self::Pp => "the size of pp",
            Self::Dp => "the size of dp",
            Self::Ep => "the size of ep",
            Self::Etp => "the size of etp",
        }
    }
}

fn suggest_axis(word: &str) -> Option<&'static str> {
    let names = Axis::ALL.map(Axis::name);
    closest(word, names).or_else(|| {
        // Swapped letters, which similarity of such short words does not see.
        let turned: String = word.chars().rev().collect();
        names.into_iter().find(|name| *name == turned)
    })
}

fn checked_size(given: &str, what: &'static str, text: &str) -> Result<u32, MatrixError> {
    text.parse()
        .ok()
        .filter(|size| (1..=WORLD_SIZE_MAX).contains(size))
        .ok_or_else(|| MatrixError::Size {
            name: given.to_owned(),
            what,
            got: if text.is_empty() {
                "missing".to_owned()
            } else {
                text.to_owned()
            },
        })
}

fn is_separator(character: char) -> bool {
    // No axis begins with an x: between axes it reads as a times sign.
    matches!(character, ' ' | '-' | '_' | ',' | '*' | 'x' | '×')
}

/// The smallest number that both divide; both are at least one and far below 2^32.
fn least_common_multiple(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    (a / x.max(1)).saturating_mul(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(name: &str) -> Matrix {
        name.parse()
            .unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    #[test]
    fn the_default_matrices_have_the_world_sizes_that_their_names_promise() {
        let worlds: Vec<(String, u32)> = Matrix::defaults()
            .into_iter()
            .map(|matrix| (matrix.name, matrix.world_size))
            .collect();
        let expected = [
            ("tp1", 1),
            ("tp2", 2),
            ("tp8", 8),
            ("tp2ep4", 8),
            ("tp2cp2ep2", 8),
            ("tp2pp2dp2", 8),
            ("tp3ep4", 12),
            ("tp2ep8", 16),
            ("ep16", 16),
        ];
        assert_eq!(
            worlds,
            expected.map(|(name, world)| (name.to_owned(), world))
        );
    }

    #[test]
    fn spellings_of_one_matrix_are_one_matrix() {
        let matrix = parsed("tp2ep4");
        for spelling in [
            "TP2EP4",
            "ep4tp2",
            "tp2xep4",
            "TP=2 x EP=4",
            "tp2-ep4",
            "tp2ep4@8",
            "tp=2,ep=4",
        ] {
            assert_eq!(parsed(spelling), matrix, "{spelling}");
        }
    }

    #[test]
    fn a_printed_name_parses_back() {
        for name in [
            "tp4ep2",
            "tp2ep4@16",
            "tp2cp2ep2@16",
            "tp6ep2etp1",
            "tp2dp4ep4",
            "ep4etp2",
            "pp4@8",
        ] {
            let matrix = parsed(name);
            assert_eq!(parsed(&matrix.to_string()), matrix);
        }
        assert_eq!(parsed("tp2ep4@16").name, "tp2ep4@16");
        assert_eq!(parsed("tp2ep4@16").dp(), 8);
        assert_eq!(parsed("tp2dp4ep4").world_size, 8);
        assert_eq!(parsed("tp2ep2etp4").world_size, 8);
    }

    #[test]
    fn nonsense_is_refused_with_its_reason() {
        for (name, part, help) in [
            ("pt2", "unknown axis \"pt\"", "did you mean tp?"),
            ("tp2epp4", "unknown axis \"epp\"", "did you mean"),
            ("banana", "unknown axis \"banana\"", "written like"),
            ("", "1 to 128 characters long, got 0", "written like"),
            ("@8", "unknown axis", "written like"),
            ("8", "unknown axis \"8\"", "written like"),
            ("tp", "axis tp of matrix \"tp\" has no size", "written like"),
            (
                "tp0",
                "the size of tp of matrix \"tp0\" is 0, allowed are 1 to 1024",
                "written like",
            ),
            (
                "tp2@0",
                "the world size of matrix \"tp2@0\" is 0",
                "written like",
            ),
            (
                "tp2@",
                "the world size of matrix \"tp2@\" is missing",
                "written like",
            ),
            (
                "tp99999999999999999999",
                "is 99999999999999999999, allowed",
                "written like",
            ),
            ("tp1000ep1000", "the world size", "written like"),
            ("tp2tp4", "axis tp stands twice", "written like"),
            (
                "tp2dp2@8",
                "asks for 8 ranks, but its tp x cp x pp x dp is 4",
                "@4",
            ),
        ] {
            let error = name.parse::<Matrix>().expect_err(name);
            assert!(error.to_string().contains(part), "{name}: {error}");
            assert!(error.help().contains(help), "{name}: {}", error.help());
        }
        let long = "tp2".repeat(1000);
        assert!(matches!(
            long.parse::<Matrix>(),
            Err(MatrixError::Length { length: 3000 })
        ));
    }
}
