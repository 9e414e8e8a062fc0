//! Reads the axes of a layout in one word: `tp4dp4@16`.

use super::error::did_you_mean;
use crate::types::closest;

/// Why a word has no axes that can be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WordError {
    /// A size without a number, or with more than a number.
    #[error("\"{0}\" needs a whole number, as in {0}=2")]
    NoNumber(String),
    /// A word stands twice.
    #[error("{0} stands twice")]
    Twice(String),
    /// Something that is no axis and no option.
    #[error("unexpected \"{0}\"; a layout is like vllm0.18:tp4dp4@16+lmhead=2 or verl:sp2tp4@8")]
    Unexpected(String),
    /// A word that is no axis.
    #[error("unknown axis \"{word}\"; axes here: {}{}", axes.join(", "), did_you_mean(closest(word, axes.iter().copied())))]
    UnknownAxis {
        /// The word.
        word: String,
        /// The axes that there are.
        axes: &'static [&'static str],
    },
}

type Axes = Vec<(&'static str, i64)>;

/// The sizes of axes, in the sequence in which they are written, and the world size if one is given.
pub(super) fn axes(
    text: &str,
    known: &'static [&'static str],
) -> Result<(Axes, Option<i64>), WordError> {
    let (text, world) = match text.split_once('@') {
        None => (text, None),
        Some((text, world)) => (text, Some(number("@", world)?)),
    };
    let is_separator = |c: char| matches!(c, 'x' | '×' | ',' | '*' | '-' | '_' | ' ');
    let length = |text: &str, is_part: fn(&char) -> bool| text.chars().take_while(is_part).count();
    let mut rest = text.trim_start_matches(is_separator);
    let mut sizes = Axes::new();
    while !rest.is_empty() {
        let (word, after) = rest.split_at(length(rest, char::is_ascii_alphabetic));
        let after = after.trim_start_matches(['=', ' ']);
        let (size, after) = after.split_at(length(after, char::is_ascii_digit));
        if word.is_empty() {
            return Err(WordError::Unexpected(rest.to_owned()));
        }
        let axis = known.iter().find(|axis| **axis == word);
        let axis = *axis.ok_or_else(|| WordError::UnknownAxis {
            word: word.to_owned(),
            axes: known,
        })?;
        if sizes.iter().any(|(earlier, _)| *earlier == axis) {
            return Err(WordError::Twice(axis.to_owned()));
        }
        sizes.push((axis, number(axis, size)?));
        rest = after.trim_start_matches(is_separator);
    }
    Ok((sizes, world))
}

/// The number that stands for a word.
pub(super) fn number(word: &str, text: &str) -> Result<i64, WordError> {
    let number = text.trim().parse();
    number.map_err(|_| WordError::NoNumber(word.to_owned()))
}
