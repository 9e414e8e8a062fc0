//! Faults that `verify --inject` plants, to show that the checks can fail.
//!
//! Written `KIND:rank=R[,collective=NAME][,matrix=NAME]`.

use std::fmt;
use std::str::FromStr;

use muster_comm::collective::{Tamper, TamperKind};
use muster_comm::layout::Matrix;
use muster_comm::types::{Collective, closest};
use serde::{Deserialize, Serialize};

use crate::world::limits::WORLD_SIZE_MAX;

/// How data is falsified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InjectKind {
    /// One bit of what the rank contributes.
    Bitflip,
    /// The rank's contribution counts for nothing.
    DropContribution,
    /// Two blocks of what the rank sends change places.
    SwapBlocks,
}

impl InjectKind {
    const ALL: [Self; 3] = [Self::Bitflip, Self::SwapBlocks, Self::DropContribution];

    /// The word on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bitflip => "bitflip",
            Self::DropContribution => "drop-contribution",
            Self::SwapBlocks => "swap-blocks",
        }
    }
}

/// One fault to plant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inject {
    /// How.
    pub kind: InjectKind,
    /// On which world rank.
    pub rank: u32,
    /// In which calls only; in all that it can be where not given.
    pub collective: Option<Collective>,
    /// In which matrix only, by its name; in all where not given.
    pub matrix: Option<String>,
}

impl Inject {
    /// The same in the library's words.
    #[must_use]
    pub const fn tamper(&self) -> Tamper {
        Tamper {
            kind: match self.kind {
                InjectKind::Bitflip => TamperKind::FlipBit,
                InjectKind::DropContribution => TamperKind::DropContribution,
                InjectKind::SwapBlocks => TamperKind::SwapBlocks,
            },
            collective: self.collective,
        }
    }
}

impl fmt::Display for Inject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:rank={}", self.kind.name(), self.rank)?;
        if let Some(collective) = self.collective {
            write!(f, ",collective={collective}")?;
        }
        if let Some(matrix) = &self.matrix {
            write!(f, ",matrix={matrix}")?;
        }
        Ok(())
    }
}

/// Why a word names no fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what}; write KIND:rank=R[,collective=NAME][,matrix=NAME] with KIND one of bitflip, swap-blocks, drop-contribution"
)]
pub struct InjectError {
    what: String,
}

impl FromStr for Inject {
    type Err = InjectError;

    fn from_str(given: &str) -> Result<Self, InjectError> {
        let wrong = |what: String| InjectError { what };
        let (kind, conditions) = given.split_once(':').unwrap_or((given, ""));
        let kind = InjectKind::ALL
            .into_iter()
            .find(|known| known.name() == kind)
            .ok_or_else(|| {
                let meant = closest(kind, InjectKind::ALL.map(InjectKind::name));
                wrong(format!("unknown fault {kind:?}{}", did_you_mean(meant)))
            })?;
        let mut rank = None;
        let mut collective = None;
        let mut matrix = None;
        for condition in conditions.split(',').filter(|part| !part.is_empty()) {
            let (key, value) = condition
                .split_once('=')
                .ok_or_else(|| wrong(format!("{condition:?} is not of the form key=value")))?;
            match key {
                "rank" => {
                    let number = value.parse().ok().filter(|rank| *rank < WORLD_SIZE_MAX);
                    rank = Some(number.ok_or_else(|| {
                        wrong(format!(
                            "rank is {value:?}, allowed are 0 to {}",
                            WORLD_SIZE_MAX - 1
                        ))
                    })?);
                }
                "collective" => {
                    let call = value.parse::<Collective>().map_err(|error| {
                        wrong(format!(
                            "unknown collective {value:?}{}",
                            did_you_mean(error.suggestion())
                        ))
                    })?;
                    if !can_be_falsified(call) {
                        return Err(wrong(format!(
                            "{call} carries no contribution that could be falsified"
                        )));
                    }
                    collective = Some(call);
                }
                "matrix" => {
                    // The phases of presets are no matrices of their own; whether there is one of
                    // this name is seen where all of them are known.
                    let known = value.parse::<Matrix>();
                    matrix =
                        Some(known.map_or_else(|_| value.to_owned(), |known| known.to_string()));
                }
                other => {
                    let meant = closest(other, ["rank", "collective", "matrix"]);
                    return Err(wrong(format!(
                        "unknown key {other:?}{}",
                        did_you_mean(meant)
                    )));
                }
            }
        }
        let rank = rank.ok_or_else(|| wrong("the rank is missing".to_owned()))?;
        Ok(Self {
            kind,
            rank,
            collective,
            matrix,
        })
    }
}

/// Whether faults can be planted in a call: in those that carry numbers of all members or a root.
#[must_use]
pub fn can_be_falsified(collective: Collective) -> bool {
    let is_of_others = collective.is_of_objects() || collective.is_of_messages();
    !is_of_others && !collective.is_empty()
}

fn did_you_mean(meant: Option<&str>) -> String {
    meant.map_or_else(String::new, |meant| format!(" (did you mean {meant}?)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_read_and_written_the_same_way() {
        for text in [
            "bitflip:rank=3",
            "swap-blocks:rank=0,collective=all_to_all",
            "drop-contribution:rank=7,collective=all_reduce,matrix=tp2ep4@8",
        ] {
            let inject: Inject = text.parse().expect(text);
            assert_eq!(inject.to_string(), text);
        }
    }

    #[test]
    fn slips_are_answered_with_what_was_meant() {
        for (text, part) in [
            ("bitflop:rank=1", "did you mean bitflip?"),
            ("bitflip", "the rank is missing"),
            ("bitflip:rnak=1", "did you mean rank?"),
            ("bitflip:rank", "not of the form key=value"),
            ("bitflip:rank=-1", "rank is \"-1\", allowed are 0 to 1023"),
            (
                "bitflip:rank=1,collective=all_redcue",
                "did you mean all_reduce?",
            ),
            (
                "bitflip:rank=1,collective=barrier",
                "barrier carries no contribution",
            ),
        ] {
            let error = text.parse::<Inject>().expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
