//! Lists of ranks in a compact form: runs of numbers with one stride.
//!
//! The groups of a layout are a few runs (`0-255`, or every eighth rank), so a board has room for their
//! members, and a report that goes over the control plane stays short. It must not know what a list means.
//!
//! - RUNS-1: a list that is read back from its runs is the same list in the same order.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Most numbers of a list that arrives as runs: the largest world of the control plane.
const LIST_MAX: usize = 16_384;

const FIRST_BITS: u32 = 24;
const STRIDE_BITS: u32 = 24;
/// Most numbers of a run that is packed into one word.
const COUNT_MAX: u32 = 0xFFFF;
/// First numbers and strides below this fit a word.
const NUMBER_END: i64 = 1 << (FIRST_BITS - 1);

/// Numbers with one stride.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Run {
    first: u32,
    stride: i32,
    count: u32,
}

impl Run {
    fn numbers(self) -> impl Iterator<Item = u32> {
        (0..self.count).map(move |at| {
            self.first
                .wrapping_add_signed(self.stride.wrapping_mul(at.cast_signed()))
        })
    }

    /// The run as one word, which is not 0; `None` where its numbers are too large for that.
    pub(super) fn packed(self) -> Option<u64> {
        let fits = |number: i64| (-NUMBER_END..NUMBER_END).contains(&number);
        if !fits(self.first.into()) || !fits(self.stride.into()) {
            return None;
        }
        let stride = u64::from(self.stride.cast_unsigned()) & ((1 << STRIDE_BITS) - 1);
        let count = u64::from(self.count);
        Some(u64::from(self.first) | stride << FIRST_BITS | count << (FIRST_BITS + STRIDE_BITS))
    }

    /// Reads a word back; `None` for 0.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "parts of the word are taken on purpose"
    )]
    fn unpacked(word: u64) -> Option<Self> {
        let stride = (word >> FIRST_BITS) as u32 & ((1 << STRIDE_BITS) - 1);
        // The sign lies in the uppermost bit of the field.
        let unused = u32::BITS - STRIDE_BITS;
        let run = Self {
            first: word as u32 & ((1 << FIRST_BITS) - 1),
            stride: (stride << unused).cast_signed() >> unused,
            count: (word >> (FIRST_BITS + STRIDE_BITS)) as u32,
        };
        (run.count > 0).then_some(run)
    }
}

/// The runs of a list, in its order.
pub(super) fn runs_of(list: &[u32]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for number in list {
        if let Some(last) = runs.last_mut()
            && extend(last, *number)
        {
            continue;
        }
        runs.push(Run {
            first: *number,
            stride: 0,
            count: 1,
        });
    }
    runs
}

/// Adds a number to a run, if it continues that.
fn extend(run: &mut Run, number: u32) -> bool {
    let stride = i64::from(number) - i64::from(run.first);
    if run.count == 1
        && let Ok(stride) = i32::try_from(stride)
    {
        run.stride = stride;
    }
    let continues = stride == i64::from(run.stride) * i64::from(run.count);
    let is_next = continues && run.count < COUNT_MAX;
    run.count += u32::from(is_next);
    is_next
}

/// The list of these words, each a packed run, up to the first that is 0; at most `most` numbers.
pub(super) fn unpack(words: &[u64], most: usize) -> Vec<u32> {
    let runs = words.iter().map_while(|word| Run::unpacked(*word));
    runs.flat_map(Run::numbers).take(most).collect()
}

/// Writes a list: as runs where only programs read it, else number by number.
pub(super) fn serialize<S: Serializer>(list: &[u32], to: S) -> Result<S::Ok, S::Error> {
    if to.is_human_readable() {
        list.serialize(to)
    } else {
        runs_of(list).serialize(to)
    }
}

/// Reads what [`serialize`] wrote.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u32>, D::Error> {
    if from.is_human_readable() {
        return Vec::deserialize(from);
    }
    let runs = Vec::<Run>::deserialize(from)?;
    let count: u64 = runs.iter().map(|run| u64::from(run.count)).sum();
    if count > LIST_MAX as u64 {
        return Err(D::Error::custom("a list of more ranks than a world has"));
    }
    Ok(runs.into_iter().flat_map(Run::numbers).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Listed(#[serde(with = "super")] Vec<u32>);

    /// Lists of all shapes, with how many runs they are.
    fn lists() -> Vec<(Vec<u32>, usize)> {
        vec![
            (Vec::new(), 0),
            (vec![7], 1),
            ((0..1024).collect(), 1),
            ((0..16_384).rev().collect(), 1),
            ((3..1024).step_by(8).collect(), 1),
            ((0..8).chain(64..72).collect(), 2),
            (vec![5, 3, 9, 1, 1, 1, 2], 4),
            (vec![u32::MAX, 0, 1], 2),
        ]
    }

    #[test]
    fn a_list_comes_back_from_its_runs_in_its_order() {
        for (list, count) in lists() {
            let runs = runs_of(&list);
            assert_eq!(runs.len(), count, "{runs:?}");
            let listed = Listed(list.clone());
            let bytes = postcard::to_allocvec(&listed).unwrap();
            assert!(bytes.len() <= 1 + count * 11, "{} bytes", bytes.len());
            assert_eq!(postcard::from_bytes::<Listed>(&bytes).unwrap(), listed);
            let json = serde_json::to_string(&listed).unwrap();
            assert_eq!(json, format!("{list:?}").replace(' ', ""));
            assert_eq!(serde_json::from_str::<Listed>(&json).unwrap(), listed);
            let words: Option<Vec<u64>> = runs.into_iter().map(Run::packed).collect();
            match words {
                Some(words) => assert_eq!(unpack(&words, usize::MAX), list),
                None => assert!(list.contains(&u32::MAX)),
            }
        }
    }

    #[test]
    fn a_list_longer_than_any_world_is_refused() {
        let run = Run {
            first: 0,
            stride: 1,
            count: u32::MAX,
        };
        let bytes = postcard::to_allocvec(&vec![run, run]).unwrap();
        assert!(postcard::from_bytes::<Listed>(&bytes).is_err());
    }
}
