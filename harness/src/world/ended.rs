//! How a rank's process ended, in words.

use std::fmt;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It returned this exit code.
    Exited(i32),
    /// The kernel lost track of it, or would not say.
    Lost,
    /// This signal ended it.
    Signaled(i32),
}

impl Ended {
    /// Whether the process ended as one does that has done its work.
    #[must_use]
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Exited(0))
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exited with code {code}"),
            Self::Lost => f.write_str("ended in a way that the kernel does not tell"),
            Self::Signaled(signal) => match signal_name(*signal) {
                Some(name) => write!(f, "was killed by signal {signal} ({name})"),
                None => write!(f, "was killed by signal {signal}"),
            },
        }
    }
}

/// Names of the signals that end processes; numbers as on every Linux that we run on.
fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_told_with_number_and_name() {
        assert_eq!(
            Ended::Signaled(9).to_string(),
            "was killed by signal 9 (SIGKILL)"
        );
        assert_eq!(Ended::Signaled(40).to_string(), "was killed by signal 40");
        assert_eq!(Ended::Exited(7).to_string(), "exited with code 7");
        assert!(Ended::Exited(0).is_success());
        assert!(!Ended::Exited(1).is_success());
    }
}
