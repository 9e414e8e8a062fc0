//! Which ranks form which group in verl's device meshes.
//!
//! verl makes up to three meshes over all ranks, each row by row: FSDP's, that of Ulysses sequence parallelism, and
//! that of rollout. torch makes one group for each row of each dimension. What an inference engine makes inside a
//! rollout replica is a layout of vLLM ([`VllmLayout`](super::VllmLayout)).
//!
//! Rule and names from verl b178a3cd (2026-01-29).

use std::fmt;
use std::str::FromStr;

use crate::types::MAX_WORLD_SIZE;

use super::Dims;
use super::framework::NamedGroups;
use super::groups::{Dim, Groups};
use super::word::{self, WordError};

/// Prefix of the text form.
pub(super) const PREFIX: &str = "verl:";

const AXES: [&str; 4] = ["fsdp", "sp", "tp", "dp"];

/// The meshes of a job of verl, in one word: `verl:fsdp8sp2tp4@16`.
///
/// `fsdp` is the size of a shard group (all ranks unless given), `sp` that of a Ulysses group, `tp` and `dp` are those
/// of a rollout replica.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VerlLayout {
    world: u32,
    fsdp: Option<u32>,
    sp: u32,
    tp: u32,
    dp: u32,
}

/// Why a word is no layout of verl.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerlError {
    /// A size does not divide the world.
    #[error("{what} = {size} must divide the world of {world}")]
    NotDivisible {
        /// Which size.
        what: &'static str,
        /// Its value.
        size: u64,
        /// Number of ranks.
        world: u32,
    },
    /// A size is zero.
    #[error("{0}=0: every size must be at least 1")]
    SizeBelowOne(&'static str),
    /// The axes cannot be read.
    #[error(transparent)]
    Word(#[from] WordError),
    /// More ranks than a layout may describe.
    #[error("a world of {0} ranks is above the limit of {MAX_WORLD_SIZE}")]
    WorldTooLarge(u64),
}

impl VerlLayout {
    /// Number of ranks.
    #[must_use]
    pub fn world_size(&self) -> u32 {
        self.world
    }

    /// The sizes in Megatron's terms: sp is cp, and the ranks that train with different samples are dp. Rollout has no
    /// part in them.
    #[must_use]
    pub fn dims(&self) -> Dims {
        Dims {
            world: self.world,
            tp: 1,
            cp: self.sp,
            pp: 1,
            dp: self.world / self.sp,
            ep: 1,
            etp: 1,
            edp: self.world,
        }
    }

    /// The groups of each dimension of each mesh.
    #[must_use]
    pub fn named_groups(&self) -> Vec<NamedGroups> {
        let named = |name, meaning, vary: Dim, by: &[Dim]| NamedGroups {
            name,
            meaning,
            groups: Groups::over(&[vary], by),
        };
        let world = self.world;
        let mut all = Vec::new();
        let fsdp = self.fsdp.unwrap_or(world);
        let (copies, shards) = ((world / fsdp, fsdp), (fsdp, 1));
        if fsdp < world {
            let meaning = "FSDP: copies of a shard";
            all.push(named("ddp", meaning, copies, &[shards]));
        }
        all.push(named("fsdp", "FSDP: one copy, sharded", shards, &[copies]));
        if self.sp > 1 {
            let (rows, sequence) = ((world / self.sp, self.sp), (self.sp, 1));
            let meaning = "Ulysses: other samples";
            all.push(named("ulysses_dp", meaning, rows, &[sequence]));
            all.push(named("sp", "Ulysses: one sequence", sequence, &[rows]));
        }
        let engine = self.tp * self.dp;
        let (replicas, inside) = ((world / engine, engine), (engine, 1));
        let meaning = "rollout: same place in each replica";
        all.push(named("rollout_dp", meaning, replicas, &[inside]));
        all.push(named(
            "infer_tp",
            "rollout: one replica",
            inside,
            &[replicas],
        ));
        all
    }
}

/// The canonical form; reading it yields the same layout.
impl fmt::Display for VerlLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes = [self.fsdp.unwrap_or(1), self.sp, self.tp, self.dp];
        let written: String = AXES
            .iter()
            .zip(sizes)
            .filter(|(axis, size)| *size > 1 || (**axis == "fsdp" && self.fsdp.is_some()))
            .map(|(axis, size)| format!("{axis}{size}"))
            .collect();
        f.pad(&format!("{PREFIX}{written}@{}", self.world))
    }
}

impl FromStr for VerlLayout {
    type Err = VerlError;

    fn from_str(text: &str) -> Result<Self, VerlError> {
        let lower = text.trim().to_ascii_lowercase();
        let rest = lower.strip_prefix(PREFIX);
        let rest = rest.ok_or_else(|| WordError::Unexpected(lower.clone()))?;
        let (sizes, world) = word::axes(rest, &AXES)?;
        let positive = |what, size: i64| {
            let size = u64::try_from(size).unwrap_or(0);
            let narrow = u32::try_from(size).map_err(|_| VerlError::WorldTooLarge(size))?;
            if narrow == 0 {
                return Err(VerlError::SizeBelowOne(what));
            }
            Ok(narrow)
        };
        let mut layout = Self {
            world: 1,
            fsdp: None,
            sp: 1,
            tp: 1,
            dp: 1,
        };
        for (axis, size) in sizes {
            let size = positive(axis, size)?;
            match axis {
                "fsdp" => layout.fsdp = Some(size),
                "sp" => layout.sp = size,
                "tp" => layout.tp = size,
                _ => layout.dp = size,
            }
        }
        let engine = u64::from(layout.tp) * u64::from(layout.dp);
        let largest = [layout.fsdp.unwrap_or(1), layout.sp].map(u64::from);
        let smallest = largest.into_iter().fold(engine, least_common_multiple);
        let world = match world {
            Some(world) => u64::from(positive("@", world)?),
            None => smallest,
        };
        let narrow = u32::try_from(world).ok();
        let narrow = narrow.filter(|world| *world <= MAX_WORLD_SIZE);
        layout.world = narrow.ok_or(VerlError::WorldTooLarge(world))?;
        for (what, size) in [
            ("fsdp", u64::from(layout.fsdp.unwrap_or(1))),
            ("sp", u64::from(layout.sp)),
            ("tp*dp", engine),
        ] {
            if !world.is_multiple_of(size) {
                let world = layout.world;
                return Err(VerlError::NotDivisible { what, size, world });
            }
        }
        Ok(layout)
    }
}

fn least_common_multiple(a: u64, b: u64) -> u64 {
    let (mut high, mut low) = (a, b);
    while low > 0 {
        (high, low) = (low, high % low);
    }
    (a / high).saturating_mul(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(text: &str, name: &str) -> String {
        let layout: VerlLayout = text.parse().unwrap();
        let mut all = layout.named_groups().into_iter();
        let found = all.find(|groups| groups.name == name);
        found.map_or_else(String::new, |groups| format!("{:?}", groups.groups))
    }

    #[test]
    fn meshes_are_laid_out_row_by_row() {
        let text = "verl:fsdp4sp2tp2@8";
        assert_eq!(groups(text, "fsdp"), "[[0, 1, 2, 3], [4, 5, 6, 7]]");
        assert_eq!(groups(text, "ddp"), "[[0, 4], [1, 5], [2, 6], [3, 7]]");
        assert_eq!(groups(text, "sp"), "[[0, 1], [2, 3], [4, 5], [6, 7]]");
        assert_eq!(groups(text, "ulysses_dp"), "[[0, 2, 4, 6], [1, 3, 5, 7]]");
        assert_eq!(groups(text, "infer_tp"), "[[0, 1], [2, 3], [4, 5], [6, 7]]");
        assert_eq!(groups(text, "rollout_dp"), "[[0, 2, 4, 6], [1, 3, 5, 7]]");
        assert_eq!(groups("verl:tp2@4", "fsdp"), "[[0, 1, 2, 3]]");
        assert_eq!(groups("verl:tp2@4", "ddp"), "");
        assert_eq!(groups("verl:tp2dp2@4", "infer_tp"), "[[0, 1, 2, 3]]");
    }

    #[test]
    fn what_is_written_reads_as_the_same_layout() {
        for (text, canonical) in [
            ("verl:sp8tp2", "verl:sp8tp2@8"),
            ("verl:sp3,tp2", "verl:sp3tp2@6"),
            ("VERL:fsdp=1", "verl:fsdp1@1"),
            ("verl:@4", "verl:@4"),
        ] {
            let layout: VerlLayout = text.parse().unwrap();
            assert_eq!(layout.to_string(), canonical, "{text}");
            assert_eq!(canonical.parse(), Ok(layout), "{text}");
        }
    }

    #[test]
    fn what_does_not_fit_is_named() {
        for (text, message) in [
            ("verl:sp3@8", "sp = 3 must divide the world of 8"),
            ("verl:tp2dp8@8", "tp*dp = 16 must divide the world of 8"),
            ("verl:fsdp0", "fsdp=0: every size"),
            (
                "verl:pp2",
                "unknown axis \"pp\"; axes here: fsdp, sp, tp, dp",
            ),
            ("verl:tp4294967295dp4294967295", "above the limit"),
            ("verl:tp99999999999", "above the limit"),
        ] {
            let error = text.parse::<VerlLayout>().unwrap_err().to_string();
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
