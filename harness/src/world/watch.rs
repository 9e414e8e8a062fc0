//! The thread that watches the ranks of one world: their ends, their output, and requests to stop.
//!
//! It sleeps in one `poll` until something happens, so a death is seen at once and nothing is
//! polled in turns.

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use crossbeam::channel::Sender;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::world::capture::Capture;
use crate::world::echo::Echo;
use crate::world::ended::Ended;
use crate::world::oom::Kills;
use crate::world::ranks::Event;
use crate::world::signals::Interrupts;

/// A rank as the watcher sees it.
pub(super) struct Watched {
    pub(super) rank: u32,
    /// `None` once it ended.
    pub(super) pidfd: Option<Arc<OwnedFd>>,
    /// Read end of the rank's stdout and stderr; `None` once closed.
    pub(super) output: Option<std::fs::File>,
    pub(super) capture: Arc<Mutex<Capture>>,
    /// Its process group, of which it is the first.
    pub(super) group: Pid,
    /// What says that it was killed for memory, once it has ended and was.
    pub(super) out_of_memory: Arc<Mutex<Option<String>>>,
    /// Where its output is passed on to.
    pub(super) echo: Option<Echo>,
}

/// What a ready descriptor belongs to.
#[derive(Clone, Copy)]
enum Source {
    End(usize),
    Interrupts,
    Output(usize),
    Stop,
}

/// Watches until every rank ended and closed its output, or `stop` is closed. Where there are no ranks only the interrupts
/// are of interest, until then.
pub(super) fn run<E: From<Event>>(
    mut ranks: Vec<Watched>,
    mut kills: Kills,
    interrupts: Option<&Interrupts>,
    stop: &OwnedFd,
    events: &Sender<E>,
) {
    for rank in &ranks {
        kills.begin(rank.group.as_raw_nonzero().get());
    }
    let is_watched = |rank: &Watched| rank.pidfd.is_some() || rank.output.is_some();
    while ranks.is_empty() || ranks.iter().any(is_watched) {
        let mut ends = Vec::new();
        for source in ready(&ranks, interrupts, stop) {
            match source {
                Source::Stop => return,
                Source::Interrupts => {
                    for _ in 0..interrupts.map_or(0, Interrupts::take_new) {
                        // A launcher that no longer listens is on its way out already.
                        let _ = events.send(Event::Interrupted.into());
                    }
                }
                Source::Output(index) => ranks[index].drain(),
                Source::End(index) => {
                    if let Some(how) = ranks[index].reap(&mut kills) {
                        // What it wrote last explains how it ended, so that is read first.
                        ranks[index].drain();
                        ends.push((ranks[index].rank, how));
                    }
                }
            }
        }
        for (rank, how) in in_order(ends) {
            let _ = events.send(Event::Ended { rank, how }.into());
        }
    }
}

/// Ends that were found together. In which order they came nobody knows: the launcher may have been stopped for long. Who
/// returned an exit code may have done so because another one was killed, and hardly the other way round.
fn in_order(mut ends: Vec<(u32, Ended)>) -> Vec<(u32, Ended)> {
    ends.sort_by_key(|(_, how)| match how {
        Ended::Signaled(_) => 0,
        Ended::Lost => 1,
        Ended::Exited(_) => 2,
    });
    ends
}

/// Waits until at least one source has something to say.
fn ready(ranks: &[Watched], interrupts: Option<&Interrupts>, stop: &OwnedFd) -> Vec<Source> {
    let mut sources = vec![Source::Stop];
    let mut fds = vec![PollFd::new(stop, PollFlags::IN)];
    if let Some(interrupts) = interrupts {
        sources.push(Source::Interrupts);
        fds.push(PollFd::from_borrowed_fd(interrupts.as_fd(), PollFlags::IN));
    }
    for (index, rank) in ranks.iter().enumerate() {
        if let Some(output) = &rank.output {
            sources.push(Source::Output(index));
            fds.push(PollFd::new(output, PollFlags::IN));
        }
        if let Some(pidfd) = &rank.pidfd {
            sources.push(Source::End(index));
            fds.push(PollFd::new(pidfd, PollFlags::IN));
        }
    }
    // Without a time limit: the owner closes `stop` when it no longer cares. Interrupted or short
    // of memory, the loop just asks again.
    if poll(&mut fds, None).is_err() {
        return Vec::new();
    }
    fds.iter()
        .zip(sources)
        .filter(|(fd, _)| !fd.revents().is_empty())
        .map(|(_, source)| source)
        .collect()
}

impl Watched {
    /// Reads what the rank printed until there is no more, or its pipe is closed.
    fn drain(&mut self) {
        /// Reads a turn at most, so that a rank that prints without end cannot keep the watcher
        /// from seeing another one's death.
        const READS_MAX: usize = 64;
        let Some(output) = &mut self.output else {
            return;
        };
        let mut bytes = [0_u8; 4096];
        let mut open = true;
        for _ in 0..READS_MAX {
            match output.read(&mut bytes) {
                Ok(0) => {
                    open = false;
                    break;
                }
                Ok(count) => {
                    let mut capture = self.capture.lock().unwrap_or_else(PoisonError::into_inner);
                    capture.push(&bytes[..count]);
                    drop(capture);
                    if let Some(echo) = &mut self.echo {
                        echo.pass(&bytes[..count]);
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => {
                    open = error.kind() == std::io::ErrorKind::WouldBlock;
                    break;
                }
            }
        }
        if !open {
            self.output = None;
        }
    }

    /// Takes the exit status, if the process has ended.
    fn reap(&mut self, kills: &mut Kills) -> Option<Ended> {
        let pidfd = self.pidfd.as_ref()?;
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if let Ok(Some(status)) = waitid(WaitId::PidFd(pidfd.as_fd()), ended) {
            if status.terminating_signal() == Some(Signal::KILL.as_raw()) {
                let evidence = kills.of(self.group.as_raw_nonzero().get());
                *self
                    .out_of_memory
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner) = evidence;
            }
            // What it started and left behind goes with it. It is not reaped yet, so that the number
            // still means its group; an error means that nothing is left.
            let _ = kill_process_group(self.group, Signal::KILL);
        }
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let how = match waitid(WaitId::PidFd(pidfd.as_fd()), options) {
            Ok(None) | Err(Errno::INTR) => return None,
            Ok(Some(status)) => match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => Ended::Exited(code),
                (None, Some(signal)) => Ended::Signaled(signal),
                (None, None) => Ended::Lost,
            },
            Err(_) => Ended::Lost,
        };
        self.pidfd = None;
        Some(how)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_ends_that_are_found_together_those_by_a_signal_come_first() {
        let ends = vec![
            (0, Ended::Exited(1)),
            (1, Ended::Exited(20)),
            (2, Ended::Lost),
            (3, Ended::Signaled(9)),
            (4, Ended::Exited(0)),
        ];
        let ranks: Vec<u32> = in_order(ends).iter().map(|(rank, _)| *rank).collect();
        assert_eq!(ranks, [3, 2, 0, 1, 4]);
    }
}
