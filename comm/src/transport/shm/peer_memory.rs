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
const TRIALS: usize = 4;
/// As many warm copies as staging costs: it copies in and out, and each of the two takes about twice as long as a
/// warm one, since the lines come out of another processor's cache.
const STAGING_COPIES: u64 = 4;

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

/// Whether one read takes less time than the copies of which it takes the place, on this machine: some tens of
/// microseconds, once a process.
#[must_use]
pub fn is_faster_than_staging() -> bool {
    static FASTER: OnceLock<bool> = OnceLock::new();
    *FASTER.get_or_init(|| {
        let source = vec![1_u8; TRIAL_BYTES];
        let mut target = vec![2_u8; TRIAL_BYTES];
        let own = std::process::id();
        let mut least = [u64::MAX; 2];
        for _ in 0..TRIALS {
            let start = Clock::nanos();
            if read(own, source.as_ptr().addr() as u64, &mut target).is_err() {
                return false;
            }
            let middle = Clock::nanos();
            target.copy_from_slice(&source);
            std::hint::black_box(&mut target);
            let times = [middle - start, Clock::nanos() - middle];
            for (least, time) in least.iter_mut().zip(times) {
                *least = time.min(*least);
            }
        }
        least[0] < STAGING_COPIES * least[1]
    })
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
}
