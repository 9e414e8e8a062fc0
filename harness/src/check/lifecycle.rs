//! Groups that are destroyed and made again, as a training job does that unloads its weights.
//!
//! Ten times over, every group is made, used and dropped. After the first rounds, which may warm up
//! caches, nothing may grow: no descriptors, no mappings, and no memory beyond noise.

use muster_comm::error::CommError;
use muster_comm::types::{Rank, ReduceOp};
use muster_comm::world::World;

use crate::check::message::Wrong;

/// Rounds in all.
const ROUNDS: usize = 10;
/// Rounds that may warm up.
const WARM_UP: usize = 2;
/// Mappings that an allocator may add by itself.
const MAPPINGS_SLACK: u64 = 4;
/// Resident bytes that may come and go by themselves.
const BYTES_SLACK: u64 = 2 << 20;

/// What a process holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Holdings {
    descriptors: u64,
    mappings: u64,
    bytes: u64,
}

impl Holdings {
    /// What this process holds now; zeros where the kernel does not tell.
    fn now() -> Self {
        let lines = |path: &str| {
            std::fs::read_to_string(path).map_or(0, |text| text.lines().count() as u64)
        };
        let resident_pages = std::fs::read_to_string("/proc/self/statm")
            .ok()
            .and_then(|text| text.split_ascii_whitespace().nth(1)?.parse().ok())
            .unwrap_or(0_u64);
        Self {
            descriptors: std::fs::read_dir("/proc/self/fd")
                .map_or(0, |entries| entries.count() as u64),
            mappings: lines("/proc/self/maps"),
            bytes: resident_pages * rustix::param::page_size() as u64,
        }
    }

    /// What grew between two looks beyond the slack, if anything.
    fn growth(before: Self, after: Self) -> Option<Wrong> {
        let grown = [
            ("descriptors", before.descriptors, after.descriptors, 0),
            ("mappings", before.mappings, after.mappings, MAPPINGS_SLACK),
            ("resident bytes", before.bytes, after.bytes, BYTES_SLACK),
        ];
        let (what, before, after, _) = grown
            .into_iter()
            .find(|(_, before, after, slack)| *after > before + slack)?;
        let rounds = ROUNDS - WARM_UP;
        Some(Wrong {
            element: None,
            expected: before.to_string(),
            got: after.to_string(),
            blamed: Vec::new(),
            text: format!(
                "{what} grew from {before} to {after} while all groups were made and destroyed {rounds} times"
            ),
        })
    }
}

/// Makes and destroys the groups of this rank, given as name and members, in the order in which all
/// ranks work through them.
///
/// # Errors
/// The first error of a call.
pub fn check(world: &World, groups: &[(String, Vec<Rank>)]) -> Result<Option<Wrong>, CommError> {
    let (mut before, mut wrong) = (Holdings::default(), None);
    for round in 0..ROUNDS {
        let mut made = Vec::with_capacity(groups.len());
        for (name, members) in groups {
            let comm = world.group(name, members)?;
            let mut sum = [0_u32];
            comm.all_reduce(&[1], &mut sum, ReduceOp::Sum)?;
            if sum[0] as usize != members.len() {
                wrong.get_or_insert_with(|| Wrong {
                    element: Some(0),
                    expected: members.len().to_string(),
                    got: sum[0].to_string(),
                    blamed: Vec::new(),
                    text: format!("a sum of ones on {name}, made for the {}th time", round + 1),
                });
            }
            // All of them exist at the same time, as they do in a job.
            made.push(comm);
        }
        drop(made);
        if round + 1 == WARM_UP {
            before = Holdings::now();
        }
    }
    Ok(wrong.or_else(|| Holdings::growth(before, Holdings::now())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_descriptor_too_many_is_growth_and_noise_is_not() {
        let before = Holdings {
            descriptors: 10,
            mappings: 40,
            bytes: 1 << 20,
        };
        assert_eq!(Holdings::growth(before, before), None);
        let noisy = Holdings {
            mappings: 43,
            bytes: 2 << 20,
            ..before
        };
        assert_eq!(Holdings::growth(before, noisy), None);
        for (after, what) in [
            (
                Holdings {
                    descriptors: 11,
                    ..before
                },
                "descriptors grew from 10 to 11",
            ),
            (
                Holdings {
                    mappings: 48,
                    ..before
                },
                "mappings grew",
            ),
            (
                Holdings {
                    bytes: 9 << 20,
                    ..before
                },
                "resident bytes grew",
            ),
        ] {
            let wrong = Holdings::growth(before, after).expect(what);
            assert!(wrong.text.contains(what), "{wrong:?}");
        }
    }

    #[test]
    fn this_process_holds_something() {
        let now = Holdings::now();
        assert!(
            now.descriptors >= 3 && now.mappings > 5 && now.bytes > 100_000,
            "{now:?}"
        );
    }
}
