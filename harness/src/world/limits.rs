//! Whether this host can carry the ranks, asked before the first one starts.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::fail::Failure;

/// Most ranks that one host is asked to start. A process a rank: more than this exhausts process
/// and descriptor limits long before it proves anything that fewer ranks do not.
pub const WORLD_SIZE_MAX: u32 = 1024;

/// Descriptors of the launcher for each rank: its pidfd, its output, its control connection, and
/// the three that exist while it is being started.
const DESCRIPTORS_PER_RANK: u64 = 4;
/// Descriptors of the launcher for itself.
const DESCRIPTORS_OWN: u64 = 64;
/// Descriptors of a rank for each peer: its region and a connection.
const DESCRIPTORS_PER_PEER: u64 = 3;

/// Descriptors that the launcher, or a rank, needs at most for a world of this size.
#[must_use]
pub fn descriptors_needed(world_size: u32) -> u64 {
    u64::from(world_size) * DESCRIPTORS_PER_RANK.max(DESCRIPTORS_PER_PEER) + DESCRIPTORS_OWN
}

/// Makes room for the descriptors of a world of `world_size` ranks; ranks inherit the limit.
///
/// # Errors
/// A failure of class RESOURCE that names the limit and the need.
pub fn make_room_for_descriptors(world_size: u32) -> Result<(), Failure> {
    let needed = descriptors_needed(world_size);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // None stands for no limit.
    if current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if maximum.is_none_or(|maximum| maximum >= needed) {
        let raised = Rlimit {
            current: Some(needed),
            maximum,
        };
        if setrlimit(Resource::Nofile, raised).is_ok() {
            return Ok(());
        }
    }
    let allowed = maximum.or(current).unwrap_or(0);
    Err(Failure::resource(format!(
        "a world of {world_size} ranks needs {needed} open descriptors in one process, \
         the hard limit here is {allowed}"
    ))
    .with_help("raise it with `ulimit -Hn`, or choose a smaller world"))
}

/// Makes sure that the host has the memory that all ranks together will take.
///
/// # Errors
/// A failure of class RESOURCE that names the need and what is available. Where the system does
/// not say what is available, nothing is refused.
pub fn check_memory(world_size: u32, bytes_a_rank: u64) -> Result<(), Failure> {
    let needed = bytes_a_rank.saturating_mul(u64::from(world_size));
    let Some(available) = memory_available() else {
        return Ok(());
    };
    if needed <= available {
        return Ok(());
    }
    Err(Failure::resource(format!(
        "the buffers of {world_size} ranks need about {} MiB of memory, available are {} MiB",
        needed >> 20,
        available >> 20
    ))
    .with_help("choose smaller --sizes, or a smaller world"))
}

/// Memory that can be had without swapping, in bytes.
fn memory_available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absurd_buffers_are_refused_with_both_numbers() {
        assert_eq!(check_memory(16, 1 << 20), Ok(()));
        if memory_available().is_some() {
            let error = check_memory(16, 1 << 50).expect_err("nobody has that much");
            assert!(error.message.contains("17179869184 MiB"), "{error}");
        }
    }

    #[test]
    fn small_worlds_fit_and_absurd_ones_are_refused_with_both_numbers() {
        assert_eq!(make_room_for_descriptors(2), Ok(()));
        let Some(maximum) = getrlimit(Resource::Nofile).maximum else {
            return;
        };
        let world = u32::try_from((maximum / DESCRIPTORS_PER_RANK).min(u64::from(u32::MAX) - 1))
            .expect("bounded above")
            + 1;
        if descriptors_needed(world) > maximum {
            let error = make_room_for_descriptors(world).expect_err("does not fit");
            assert!(error.message.contains(&maximum.to_string()), "{error}");
        }
    }
}
