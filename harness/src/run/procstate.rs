//! Whether a process runs, as the kernel sees it, and whether it could.

use std::time::Duration;

use muster_comm::sync::Clock;

/// The state of a process that exists but does not run: `T` stopped, `t` traced, `D` stuck in the
/// kernel. `None` for one that runs or sleeps, or that cannot be looked at.
#[must_use]
pub fn not_running(pid: i32) -> Option<char> {
    let look = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        state_of(&stat).filter(|state| matches!(state, 'T' | 't' | 'D'))
    };
    let state = look()?;
    // Any process is in D for moments, while a page or a file comes from a disk.
    for _ in 0..LOOKS_AT_D {
        if state != 'D' {
            break;
        }
        Clock::pause(LOOK_PAUSE);
        look()?;
    }
    Some(state)
}

/// How long the main thread of a process could have run and got no processor, so far; `None` where the kernel does not say.
#[must_use]
pub fn run_delay(pid: i32) -> Option<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    let delay_ns = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(Duration::from_nanos(delay_ns))
}

/// Looks at a process in state D, and the pause before each: one that is stuck is there every time.
const LOOKS_AT_D: usize = 10;
const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// The state letter: what follows the name, which stands in parentheses and may hold any others.
fn state_of(stat: &str) -> Option<char> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.trim_start().chars().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_found_behind_any_name() {
        assert_eq!(state_of("12 (a) R 1"), Some('R'));
        assert_eq!(state_of("12 (a) T) (b) D 1"), Some('D'));
        assert_eq!(state_of(""), None);
        let own = i32::try_from(std::process::id()).expect("a process id");
        assert_eq!(not_running(own), None);
        assert!(run_delay(own) < Some(Duration::from_secs(3600)));
        assert_eq!(run_delay(-1), None);
    }
}
