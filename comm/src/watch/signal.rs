//! Signals: what this process does on them, and what `/proc/PID/status` says of them.
#![expect(unsafe_code, reason = "the action of a signal")]

use std::mem::MaybeUninit;

/// Real-time signals that are tried for a handler of ours.
const TRIED: i32 = 8;

/// What this process does on a signal: the address of a handler, or `SIG_DFL` or `SIG_IGN`.
#[must_use]
pub fn action_on(signal: i32) -> Option<usize> {
    let mut now = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: nothing is changed, and the old action is written to memory of its size.
    let asked = unsafe { libc::sigaction(signal, std::ptr::null(), now.as_mut_ptr()) };
    // SAFETY: all zeroes are a valid action, and the call wrote a valid one.
    (asked == 0).then(|| unsafe { now.assume_init() }.sa_sigaction)
}

/// A real-time signal that this process does not use: the first of those from `below_last` under the last one down. Few
/// programs use the last ones, and handlers for different purposes start at different places.
#[must_use]
pub fn free(below_last: i32) -> Option<i32> {
    let last = libc::SIGRTMAX() - below_last;
    let is_free = |signal: &i32| action_on(*signal) == Some(libc::SIG_DFL);
    (last - TRIED..=last).rev().find(is_free)
}

/// The mask of a field of `/proc/PID/status`, such as `SigBlk:`; empty where there is none.
pub(crate) fn mask(status: &str, field: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let mask = line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.unwrap_or(0)
}

/// Whether the mask of a field of `/proc/PID/status` has a signal.
#[must_use]
pub fn is_in(status: &str, field: &str, signal: i32) -> bool {
    let bit = u32::try_from(signal)
        .ok()
        .and_then(|one| one.checked_sub(1));
    let shifted = bit.and_then(|bit| mask(status, field).checked_shr(bit));
    shifted.is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_a_field_has_its_signals_and_no_others() {
        let status = "SigPnd:\t0\nSigCgt:\t8000000000004002\n";
        let there: Vec<i32> = (-1..=65)
            .filter(|one| is_in(status, "SigCgt:", *one))
            .collect();
        assert_eq!(there, [2, 15, 64]);
        assert!(!is_in(status, "SigPnd:", 2) && !is_in(status, "SigBlk:", 2));
    }

    #[test]
    fn a_signal_that_is_free_has_no_handler() {
        let signal = free(2).unwrap();
        assert!((libc::SIGRTMIN()..=libc::SIGRTMAX() - 2).contains(&signal));
        assert_eq!(action_on(signal), Some(libc::SIG_DFL));
        assert_eq!(action_on(0), None);
    }
}
