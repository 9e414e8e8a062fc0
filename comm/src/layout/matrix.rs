//! Matrices: a layout written in a few letters, `tp2ep4@8`.
//!
//! A matrix is axes with sizes, in any sequence, and optionally `@` and the world size. Case does
//! not matter; `tp2xep4`, `tp=2,ep=4` and `TP2-EP4` are the same matrix. Without a world size it
//! is the smallest legal one, so `tp3ep4` stands for 12 ranks.
//!
//! The groups are Megatron's. With `vllm` and a colon in front they are vLLM's ([`VllmLayout`]):
//! `vllm0.18:tp4dp4`; with `verl:` those of verl's device meshes ([`VerlLayout`]): `verl:sp8tp2@16`.

mod error;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::types::closest;

use super::axis::Param;
use super::error::LayoutError;
use super::presets::Preset;
use super::{FrameworkLayout, Layout, LayoutBuilder, order};

pub use error::{MatrixError, MatrixFault};

/// Longest matrix that is read. One of vLLM with all its options has some hundred characters.
pub const MAX_MATRIX_CHARS: usize = 192;

/// The axes of a matrix, in the sequence of its canonical name.
const AXES: [Param; 6] = [
    Param::Tp,
    Param::Cp,
    Param::Pp,
    Param::Dp,
    Param::Ep,
    Param::Etp,
];

/// What people write for an axis that has another name here.
const ALIASES: [(&str, &str); 9] = [
    ("data", "dp"),
    ("expert", "ep"),
    ("mp", "tp"),
    ("pipeline", "pp"),
    ("seq", "cp"),
    ("sp", "cp"),
    ("tensor", "tp"),
    ("world", "@"),
    ("ws", "@"),
];

/// Sizes of the axes and a world, legal in Megatron's default order, in a version of vLLM, or in verl.
///
/// Travels and is stored as its canonical name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Matrix(Sizes);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Sizes {
    Megatron(MegatronSizes),
    Other(FrameworkLayout),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct MegatronSizes {
    world: u32,
    /// By place in [`AXES`]; dp and etp only if they were written.
    sizes: [Option<u32>; AXES.len()],
}

impl Matrix {
    fn megatron(world: u32, sizes: [Option<u32>; AXES.len()]) -> Self {
        Self(Sizes::Megatron(MegatronSizes { world, sizes }))
    }

    /// Number of ranks.
    #[must_use]
    pub fn world_size(&self) -> u32 {
        match &self.0 {
            Sizes::Megatron(matrix) => matrix.world,
            Sizes::Other(layout) => layout.world_size(),
        }
    }

    /// A builder with the sizes of the matrix, for another order or an etp of one's own; none for vLLM and verl, which
    /// have neither.
    #[must_use]
    pub fn builder(&self) -> Option<LayoutBuilder> {
        match &self.0 {
            Sizes::Megatron(matrix) => Some(matrix.builder()),
            Sizes::Other(_) => None,
        }
    }

    /// The layout: in Megatron's default order, or in that of vLLM or verl.
    ///
    /// # Errors
    /// None: a matrix that exists was found legal when it was read.
    pub fn layout(&self) -> Result<FrameworkLayout, LayoutError> {
        match &self.0 {
            Sizes::Megatron(matrix) => matrix.builder().build().map(Into::into),
            Sizes::Other(layout) => Ok(layout.clone()),
        }
    }

    /// The name for tables: `TP2xEP4@8`, or `single rank`; those of vLLM and verl are the canonical ones.
    #[must_use]
    pub fn title(&self) -> String {
        match &self.0 {
            Sizes::Megatron(matrix) => matrix.title(),
            Sizes::Other(layout) => layout.to_string(),
        }
    }
}

impl MegatronSizes {
    fn builder(&self) -> LayoutBuilder {
        let sizes = self.sizes.map(|size| size.map(i64::from));
        builder(self.world.into(), &sizes)
    }

    fn title(&self) -> String {
        if self.world == 1 {
            return "single rank".to_owned();
        }
        let words: Vec<_> = self.words().map(|word| word.to_uppercase()).collect();
        format!("{}@{}", words.join("x"), self.world)
    }

    fn words(&self) -> impl Iterator<Item = String> + '_ {
        let written = AXES
            .iter()
            .zip(self.sizes)
            .filter_map(|(axis, size)| size.map(|size| format!("{axis}{size}")));
        let all_one = self.sizes.iter().all(Option::is_none);
        written.chain(all_one.then(|| "tp1".to_owned()))
    }
}

/// The canonical name: `tp2ep4@8`. Reading it yields the same matrix.
impl fmt::Display for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Sizes::Megatron(matrix) => {
                let words: String = matrix.words().collect();
                f.pad(&format!("{words}@{}", matrix.world))
            }
            Sizes::Other(layout) => layout.fmt(f),
        }
    }
}

impl From<Matrix> for String {
    fn from(matrix: Matrix) -> Self {
        matrix.to_string()
    }
}

impl TryFrom<String> for Matrix {
    type Error = MatrixError;

    fn try_from(name: String) -> Result<Self, MatrixError> {
        name.parse()
    }
}

/// The matrices that `muster verify` proves if it is not told otherwise.
pub const DEFAULT_MATRICES: [&str; 9] = [
    "tp1@1",
    "tp2@2",
    "tp8@8",
    "tp2ep4@8",
    "tp2cp2ep2@8",
    "tp2pp2dp2@8",
    "tp3ep4@12",
    "tp2ep8@16",
    "ep16@16",
];

/// [`DEFAULT_MATRICES`], read.
///
/// # Errors
/// None: a test reads them all.
pub fn default_matrices() -> Result<Vec<Matrix>, MatrixError> {
    DEFAULT_MATRICES.iter().map(|name| name.parse()).collect()
}

impl FromStr for Matrix {
    type Err = MatrixError;

    fn from_str(input: &str) -> Result<Self, MatrixError> {
        Reader::new(input)
            .read()
            .map_err(|(position, fault)| MatrixError {
                input: order::shown(input),
                position,
                fault,
            })
    }
}

type Fault = (usize, MatrixFault);

struct Reader {
    chars: Vec<char>,
    at: usize,
}

impl Reader {
    fn new(input: &str) -> Self {
        let chars = input.trim().chars().map(|c| c.to_ascii_lowercase());
        Self {
            chars: chars.collect(),
            at: 0,
        }
    }

    fn read(mut self) -> Result<Matrix, Fault> {
        let length = self.chars.len();
        if length > MAX_MATRIX_CHARS {
            return Err((0, MatrixFault::TooLong { length }));
        }
        if let Some(layout) = FrameworkLayout::other(&self.chars.iter().collect::<String>()) {
            let layout = layout.map_err(|fault| (0, fault))?;
            return Ok(Matrix(Sizes::Other(layout)));
        }
        if let Some(matrix) = self.whole_word()? {
            return Ok(matrix);
        }
        let mut sizes = [None; AXES.len()];
        let mut world = None;
        self.skip_separators();
        while let Some(next) = self.peek() {
            if next == '@' {
                world = Some(self.world()?);
                break;
            }
            let position = self.at + 1;
            let (place, size) = self.item()?;
            if sizes[place].replace(size).is_some() {
                return Err((position, MatrixFault::AxisTwice { axis: AXES[place] }));
            }
            self.skip_separators();
        }
        finish(world, sizes).map_err(|error| (0, MatrixFault::Illegal(Box::new(error))))
    }

    /// The inputs that are not a list of axes: nothing, `single`, the name of a preset.
    fn whole_word(&self) -> Result<Option<Matrix>, Fault> {
        let text: String = self.chars.iter().collect();
        match text.as_str() {
            "" => return Err((0, MatrixFault::Empty)),
            "single" | "single-rank" | "single rank" => {
                return Ok(Some(Matrix::megatron(1, [None; AXES.len()])));
            }
            _ => {}
        }
        match Preset::find(&text) {
            Ok(preset) => Err((0, MatrixFault::IsPreset(preset.name))),
            Err(_) => Ok(None),
        }
    }

    /// An axis and its size: its place in [`AXES`], and the number.
    fn item(&mut self) -> Result<(usize, i64), Fault> {
        let begin = self.at;
        let word = self.take(|c| c.is_ascii_alphabetic());
        if word.is_empty() {
            return Err((begin + 1, self.not_an_axis()));
        }
        let Some(place) = AXES.iter().position(|axis| axis.name() == word) else {
            let suggestion = self.suggestion(begin, &word);
            return Err((begin + 1, MatrixFault::UnknownAxis { word, suggestion }));
        };
        self.take(|c| c == ' ');
        if self.peek() == Some('=') {
            self.at += 1;
        }
        self.take(|c| c == ' ');
        let position = self.at + 1;
        let size = self.number()?;
        let missing = MatrixFault::SizeMissing { axis: AXES[place] };
        Ok((place, size.ok_or((position, missing))?))
    }

    fn world(&mut self) -> Result<i64, Fault> {
        self.at += 1;
        let position = self.at + 1;
        let world = self.number()?.ok_or((position, MatrixFault::World))?;
        if self.at < self.chars.len() {
            return Err((self.at + 1, MatrixFault::World));
        }
        Ok(world)
    }

    fn number(&mut self) -> Result<Option<i64>, Fault> {
        let position = self.at + 1;
        // A sign is read so that the layout can say what it thinks of a negative size.
        let sign = if self.peek() == Some('-') { "-" } else { "" };
        self.at += sign.len();
        let digits = self.take(|c| c.is_ascii_digit());
        if digits.is_empty() {
            return Ok(None);
        }
        let size = format!("{sign}{digits}");
        let number = size.parse().map_err(|_| {
            let size = order::shown(&size);
            (position, MatrixFault::SizeTooLarge { size })
        })?;
        Ok(Some(number))
    }

    fn not_an_axis(&mut self) -> MatrixFault {
        let size = self.take(|c| c.is_ascii_digit());
        match self.peek() {
            _ if !size.is_empty() => MatrixFault::SizeFirst { size },
            Some(found) => MatrixFault::Unexpected { found },
            None => MatrixFault::Empty,
        }
    }

    /// The whole matrix with the unknown word replaced by the axis it may stand for.
    fn suggestion(&self, begin: usize, word: &str) -> Option<String> {
        let reversed: String = word.chars().rev().collect();
        let names = || AXES.iter().map(|axis| axis.name());
        let alias = ALIASES.iter().find(|(alias, _)| *alias == word);
        let meant = names()
            .find(|name| *name == reversed)
            .or_else(|| alias.map(|(_, name)| *name))
            .or_else(|| closest(word, names()))?;
        let before: String = self.chars[..begin].iter().collect();
        let after: String = self.chars[self.at..].iter().collect();
        Some(format!("{before}{meant}{after}"))
    }

    fn skip_separators(&mut self) {
        self.take(|c| matches!(c, 'x' | '×' | ',' | '*' | '-' | '_' | '+' | ' '));
    }

    fn take(&mut self, wanted: impl Fn(char) -> bool) -> String {
        let begin = self.at;
        while self.peek().is_some_and(&wanted) {
            self.at += 1;
        }
        self.chars[begin..self.at].iter().collect()
    }

    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }
}

fn finish(world: Option<i64>, sizes: [Option<i64>; AXES.len()]) -> Result<Matrix, LayoutError> {
    let world = world.map_or_else(|| smallest_world(&sizes), Ok)?;
    let dims = builder(world, &sizes).build()?.dims();
    let etp = sizes[5].map(|_| dims.etp);
    let dp = sizes[3].map(|_| dims.dp);
    let above_one = |size: u32| Some(size).filter(|size| *size > 1);
    let sizes = [
        above_one(dims.tp),
        above_one(dims.cp),
        above_one(dims.pp),
        dp,
        above_one(dims.ep),
        etp,
    ];
    Ok(Matrix::megatron(dims.world, sizes))
}

fn builder(world: i64, sizes: &[Option<i64>; AXES.len()]) -> LayoutBuilder {
    let [tp, cp, pp, dp, ep, etp] = *sizes;
    let mut builder = Layout::builder()
        .world(world)
        .tp(tp.unwrap_or(1))
        .cp(cp.unwrap_or(1))
        .pp(pp.unwrap_or(1))
        .ep(ep.unwrap_or(1));
    if let Some(dp) = dp {
        builder = builder.dp(dp);
    }
    if let Some(etp) = etp {
        builder = builder.etp(etp);
    }
    builder
}

/// The smallest world that both parts divide; with dp given, the world that it makes.
fn smallest_world(sizes: &[Option<i64>; AXES.len()]) -> Result<i64, LayoutError> {
    for (param, size) in AXES.into_iter().zip(sizes) {
        super::grid::positive(param, size.unwrap_or(1))?;
    }
    let [tp, cp, pp, dp, ep, etp] = sizes.map(|size| size.unwrap_or(1).unsigned_abs());
    let etp = sizes[5].map_or(tp, |_| etp);
    let dense = product(&[tp, cp, pp, dp])?;
    let expert = product(&[etp, ep, pp])?;
    let world = if sizes[3].is_some() {
        dense
    } else {
        product(&[dense / common_divisor(dense, expert), expert])?
    };
    i64::try_from(world).map_err(|_| LayoutError::WorldTooLarge { got: world })
}

fn product(sizes: &[u64]) -> Result<u64, LayoutError> {
    let product = sizes
        .iter()
        .try_fold(1_u64, |all, size| all.checked_mul(*size));
    product.ok_or(LayoutError::WorldTooLarge { got: u64::MAX })
}

fn common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests;
