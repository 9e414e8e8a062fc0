//! Groups that are destroyed and made again, as a training job does that unloads its weights.
//!
//! Ten times over, every group is made, used and dropped. After the first rounds, which may warm up
//! caches, nothing may grow: no descriptors, no mappings, and no memory beyond noise.

use std::time::Duration;

use muster_comm::error::CommError;
use muster_comm::strangers;
use muster_comm::sync::Clock;
use muster_comm::types::{Collective, Rank};

use crate::check::call_args::CallArgs;
use crate::check::message::Wrong;
use crate::check::subject::Subject;

/// Rounds in all.
const ROUNDS: usize = 10;
/// Rounds that may warm up.
const WARM_UP: usize = 2;
/// Last rounds in each of which memory must have grown for it to count as a leak: pages that are
/// touched for the first time come in some rounds, what leaks comes in all.
const STEADY: usize = 4;
/// Mappings that an allocator may add by itself.
const MAPPINGS_SLACK: u64 = 4;
/// Bytes that may come and go by themselves.
const BYTES_SLACK: u64 = 2 << 20;

/// How often descriptors are counted where there are more than before.
const LOOKS: u32 = 20;
/// Pause between two counts.
const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// What a process holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Holdings {
    descriptors: u64,
    mappings: u64,
    private_bytes: u64,
    shared_bytes: u64,
}

impl Holdings {
    /// What this process holds now; zeros where the kernel does not tell.
    fn now() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let status = read("/proc/self/status");
        let bytes = |field: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(field));
            line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse().ok())
                .map_or(0, |kibibytes: u64| kibibytes * 1024)
        };
        Self {
            // Where nobody can tell, the first look asks nothing of the last.
            descriptors: strangers::own_descriptors().unwrap_or(u64::MAX),
            mappings: read("/proc/self/maps").lines().count() as u64,
            private_bytes: bytes("RssAnon:"),
            shared_bytes: bytes("RssShmem:"),
        }
    }
}

/// The descriptors once no stranger comes or goes at the moment of the look: what leaks stays.
fn settled_descriptors(most: u64) -> u64 {
    let mut looks = (0..LOOKS).map(|look| {
        if look > 0 {
            Clock::pause(LOOK_PAUSE);
        }
        strangers::own_descriptors().unwrap_or(0)
    });
    let mut least = u64::MAX;
    looks.any(|held| {
        least = least.min(held);
        least <= most
    });
    least
}

/// What grew over the rounds beyond its slack, if anything. The first look is after the warm-up,
/// the others one round apart.
fn growth(looks: &[Holdings]) -> Option<Wrong> {
    type Quantity = (&'static str, fn(&Holdings) -> u64, u64, bool);
    const QUANTITIES: [Quantity; 4] = [
        ("descriptors", |held| held.descriptors, 0, false),
        ("mappings", |held| held.mappings, MAPPINGS_SLACK, false),
        (
            "private memory",
            |held| held.private_bytes,
            BYTES_SLACK,
            true,
        ),
        ("shared memory", |held| held.shared_bytes, BYTES_SLACK, true),
    ];
    let (first, last) = (looks.first()?, looks.last()?);
    let recent = &looks[looks.len().saturating_sub(STEADY + 1)..];
    let (what, of, ..) = QUANTITIES.into_iter().find(|(_, of, slack, steadily)| {
        let is_more = of(last) > of(first) + slack;
        is_more && (!steadily || recent.windows(2).all(|pair| of(&pair[1]) > of(&pair[0])))
    })?;
    let (before, after) = (of(first), of(last));
    let rounds = looks.len() - 1;
    Some(Wrong {
        element: None,
        differing: None,
        expected: before.to_string(),
        got: after.to_string(),
        blamed: Vec::new(),
        text: format!(
            "{what} grew from {before} to {after} while all groups were made and destroyed {rounds} times"
        ),
    })
}

/// What the check needs of whoever makes groups.
pub trait Maker {
    /// A group of this name and these members.
    ///
    /// # Errors
    /// As making and joining it.
    fn make(&self, name: &str, members: &[Rank]) -> Result<Subject, CommError>;

    /// Free bytes of this rank's device, where it has one.
    fn device_free(&self) -> Option<u64>;
}

/// Rounds on a device: each connects the ranks of every group anew, which the vendor takes long for.
const ROUNDS_DEVICE: usize = 4;

/// What a device lacks after all groups are gone that it had before, if anything.
fn device_growth(free: &[u64]) -> Option<Wrong> {
    // The first rounds may make things that stay; after them each round gives back what it took.
    let looks = free.get(WARM_UP - 1..)?;
    let falls = looks.len() > 1 && looks.windows(2).all(|pair| pair[1] < pair[0]);
    falls.then(|| Wrong {
        expected: looks[0].to_string(),
        got: looks[looks.len() - 1].to_string(),
        text: format!(
            "free device memory fell from {} to {} bytes while all groups were made and destroyed",
            looks[0],
            looks[looks.len() - 1]
        ),
        ..Wrong::default()
    })
}

/// Makes and destroys the groups of this rank, given as name and members, in the order in which all
/// ranks work through them. On a device what the process holds is not judged: the vendor's threads
/// come and go as they like; the device's own memory is.
///
/// # Errors
/// The first error of a call.
pub fn check(
    maker: &dyn Maker,
    groups: &[(String, Vec<Rank>)],
) -> Result<Option<Wrong>, CommError> {
    let (mut looks, mut wrong) = (Vec::with_capacity(ROUNDS), None);
    let mut free = Vec::new();
    let on_device = maker.device_free().is_some();
    let rounds = if on_device { ROUNDS_DEVICE } else { ROUNDS };
    for round in 0..rounds {
        let mut made = Vec::with_capacity(groups.len());
        for (name, members) in groups {
            let comm = maker.make(name, members)?;
            let mut sum = [0_i32];
            comm.make(&CallArgs::new(Collective::AllReduce), &[1], &mut sum)?;
            if usize::try_from(sum[0]) != Ok(members.len()) {
                wrong.get_or_insert_with(|| Wrong {
                    element: Some(0),
                    differing: None,
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
        free.extend(maker.device_free());
        if round + 1 >= WARM_UP {
            looks.push(Holdings::now());
        }
    }
    if let [first, .., last] = looks.as_mut_slice()
        && last.descriptors > first.descriptors
    {
        last.descriptors = settled_descriptors(first.descriptors);
    }
    let growth = || {
        if on_device {
            device_growth(&free)
        } else {
            growth(&looks)
        }
    };
    Ok(wrong.or_else(growth))
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Holdings = Holdings {
        descriptors: 10,
        mappings: 40,
        private_bytes: 1 << 20,
        shared_bytes: 1 << 20,
    };

    /// Looks after which each round changed what `change` changes.
    fn rounds(change: impl Fn(u64, &mut Holdings)) -> Vec<Holdings> {
        let look = |round| {
            let mut held = START;
            change(round, &mut held);
            held
        };
        (0..=8).map(look).collect()
    }

    #[test]
    fn what_grows_in_every_round_is_growth() {
        for (looks, what) in [
            (
                rounds(|round, held| held.descriptors += round),
                "descriptors grew from 10 to 18",
            ),
            (
                rounds(|round, held| held.mappings += round),
                "mappings grew from 40 to 48",
            ),
            (
                rounds(|round, held| held.private_bytes += round << 20),
                "private memory grew",
            ),
            (
                rounds(|round, held| held.shared_bytes += round << 20),
                "shared memory grew",
            ),
        ] {
            let wrong = growth(&looks).expect(what);
            assert!(wrong.text.contains(what), "{wrong:?}");
        }
        let once = rounds(|round, held| held.descriptors += u64::from(round == 8));
        assert!(growth(&once).is_some(), "one descriptor is one too many");
    }

    #[test]
    fn noise_and_first_touches_are_none() {
        assert_eq!(growth(&rounds(|_, _| {})), None);
        assert_eq!(
            growth(&rounds(|round, held| held.mappings += round / 2)),
            None
        );
        assert_eq!(
            growth(&rounds(|round, held| held.private_bytes += round << 12)),
            None
        );
        let touched = rounds(|round, held| held.shared_bytes += round.min(6) << 20);
        assert_eq!(growth(&touched), None, "it stopped growing");
        assert_eq!(growth(&[]), None);
    }

    #[test]
    fn this_process_holds_something() {
        let now = Holdings::now();
        assert!(
            now.descriptors >= 3 && now.mappings > 5 && now.private_bytes > 100_000,
            "{now:?}"
        );
    }
}
