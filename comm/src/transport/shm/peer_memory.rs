//! Memory of another process of this host, read by system call: one copy, where staging takes two.
//!
//! The system allows it between processes of one user, unless Yama, a sandbox or another process namespace
//! is between them; whether it does, each rank finds out for each other one by reading a word whose value it
//! was told. What is read lies anywhere in the other process, so nothing has to be mapped or agreed on.
//!
//! - PEER-1: a process id and an address are the peer's claims. A wrong one ends in an error or in wrong
//!   bytes of a process that this user may read anyway, never in a fault of this one.
#![expect(
    unsafe_code,
    reason = "a system call that copies from addresses of another process"
)]

use std::io;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::sync::Clock;

/// Bytes with which the speeds of reading and of copying are compared.
const TRIAL_BYTES: usize = 64 << 10;
const TRIALS: usize = 8;
/// Half of the trials read to where places lie within their pages as those of equal buffers from one heap do. An AMD EPYC reads
/// ten times as slowly there, so that nobody can rely on reads, and staging is faster in all other cases as well
/// (docs/performance.md).
const APART: usize = 16;
/// As many warm copies as staging costs: it copies in and out, the lines come out of another processor's cache, and
/// there are barriers between. Where a read took three warm copies, calls that staged took 1.2 to 2.4 times as long as
/// calls that read (docs/performance.md).
const STAGING_COPIES: u64 = 5;

/// A word of this process that peers are to read, and its value, which no other process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beacon {
    /// Its address here.
    pub address: u64,
    /// What it holds.
    pub value: u64,
}

impl Beacon {
    /// That of this process; `None` where there is no source of random numbers.
    #[must_use]
    pub fn own() -> Option<Self> {
        static WORD: OnceLock<Option<u64>> = OnceLock::new();
        let word = WORD.get_or_init(|| {
            let mut bytes = [0; size_of::<u64>()];
            let flags = rustix::rand::GetRandomFlags::NONBLOCK;
            let count = rustix::rand::getrandom(&mut bytes, flags).ok()?;
            (count == bytes.len()).then(|| u64::from_ne_bytes(bytes))
        });
        let word = word.as_ref()?;
        Some(Self {
            address: std::ptr::from_ref(word).addr() as u64,
            value: *word,
        })
    }

    /// Whether the process with this id is the one whose beacon this is, and lets this one read it.
    #[must_use]
    pub fn is_seen_in(self, pid: u32) -> bool {
        let mut found = [0; size_of::<u64>()];
        let read = read(pid, self.address, &mut found);
        read.is_ok() && u64::from_ne_bytes(found) == self.value
    }
}

/// Reads another process's memory.
///
/// # Errors
/// What the system says: the process is gone, or has nothing there, or may not be read.
pub fn read(pid: u32, from: u64, to: &mut [u8]) -> io::Result<()> {
    // SAFETY: a slice is valid memory of its length.
    unsafe { read_raw(pid, from, to.as_mut_ptr(), to.len()) }
}

/// [`read`] into memory that is no slice.
///
/// # Safety
/// `to` must be valid for writes of `len` bytes.
///
/// # Errors
/// As [`read`].
pub unsafe fn read_raw(pid: u32, from: u64, to: *mut u8, len: usize) -> io::Result<()> {
    let gone = || io::Error::from_raw_os_error(libc::ESRCH);
    let pid = libc::pid_t::try_from(pid).map_err(|_| gone())?;
    let start = usize::try_from(from).map_err(|_| io::Error::from_raw_os_error(libc::EFAULT))?;
    let mut done = 0;
    while done < len {
        let local = libc::iovec {
            iov_base: to.wrapping_add(done).cast(),
            iov_len: len - done,
        };
        let remote = libc::iovec {
            iov_base: std::ptr::without_provenance_mut(start.wrapping_add(done)),
            iov_len: len - done,
        };
        // SAFETY: the local range is valid for writes (see above); the other one is checked by the system
        // (PEER-1).
        let count =
            unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
        match usize::try_from(count) {
            Ok(0) => return Err(io::Error::from_raw_os_error(libc::EFAULT)),
            Ok(count) => done += count,
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

/// How long one read takes on this machine, and one copy of as many warm bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Speeds {
    pub(crate) read_ns: u64,
    pub(crate) copy_ns: u64,
}

impl Speeds {
    /// The least times of some trials: a tenth of a millisecond, once a process. `None` where nothing can be read.
    #[must_use]
    pub fn measured() -> Option<Self> {
        static MEASURED: OnceLock<Option<Speeds>> = OnceLock::new();
        *MEASURED.get_or_init(|| {
            let mut memory = vec![1_u8; 2 * TRIAL_BYTES + APART];
            let (source, target) = memory.split_at_mut(TRIAL_BYTES);
            let own = std::process::id();
            let mut least = None;
            for _ in 0..TRIALS {
                let start = Clock::nanos();
                for start in [0, APART] {
                    let part = &mut target[start..start + TRIAL_BYTES];
                    read(own, source.as_ptr().addr() as u64, part).ok()?;
                }
                let middle = Clock::nanos();
                target[..TRIAL_BYTES].copy_from_slice(source);
                std::hint::black_box(&mut *target);
                let trial = Self {
                    read_ns: (middle - start) / 2,
                    copy_ns: Clock::nanos() - middle,
                };
                least = Some(trial.least(least));
            }
            least
        })
    }

    fn least(self, other: Option<Self>) -> Self {
        let other = other.unwrap_or(self);
        Self {
            read_ns: self.read_ns.min(other.read_ns),
            copy_ns: self.copy_ns.min(other.copy_ns),
        }
    }

    /// Whether reading takes less time than the copies of which it takes the place, by what ranks of one machine have
    /// measured. All of it is taken together: on a machine that is busy with bring-up, or with unlucky pages,
    /// single ranks measure up to a third too much.
    #[must_use]
    pub fn reading_pays(measured: impl IntoIterator<Item = Self>) -> bool {
        let least = measured
            .into_iter()
            .fold(None, |least, one| Some(one.least(least)));
        least.is_some_and(|least| least.read_ns < STAGING_COPIES * least.copy_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beacon_is_seen_in_its_process_only() {
        let beacon = Beacon::own().unwrap();
        assert_eq!(Beacon::own(), Some(beacon));
        assert!(beacon.is_seen_in(std::process::id()));
        let wrong = Beacon {
            value: beacon.value ^ 1,
            ..beacon
        };
        assert!(!wrong.is_seen_in(std::process::id()));
        let nowhere = Beacon {
            address: 8,
            ..beacon
        };
        assert!(!nowhere.is_seen_in(std::process::id()));
        assert!(!beacon.is_seen_in(u32::MAX));
    }

    #[test]
    fn what_is_read_is_whole_or_an_error() {
        let own = std::process::id();
        let source: Vec<u8> = (0..200_000_u32).map(|at| at.to_le_bytes()[0]).collect();
        let mut target = vec![0; source.len()];
        let from = source.as_ptr().addr() as u64;
        read(own, from, &mut target).unwrap();
        assert_eq!(source, target);
        assert!(read(own, 0, &mut target).is_err());
        assert!(read(own, u64::MAX - 4096, &mut target).is_err());
        read(own, 0, &mut []).unwrap();
    }

    #[test]
    fn ranks_decide_by_the_least_that_any_of_them_measured() {
        let speeds = |read_ns, copy_ns| Speeds { read_ns, copy_ns };
        assert!(!Speeds::reading_pays([]));
        assert!(Speeds::reading_pays([speeds(499, 100)]));
        assert!(!Speeds::reading_pays([speeds(500, 100)]));
        // Neither one that was held up in its reads decides, nor one that was in its copies.
        assert!(Speeds::reading_pays([speeds(900, 100), speeds(300, 120)]));
        assert!(!Speeds::reading_pays([speeds(900, 100), speeds(800, 700)]));
        assert_eq!(Speeds::measured(), Speeds::measured());
        assert!(Speeds::measured().is_some());
    }
}
