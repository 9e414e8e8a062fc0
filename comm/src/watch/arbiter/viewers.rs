//! Shows all ranks of a world that lies on several hosts to whoever looks on the host of the arbiter. On one host nobody needs
//! that: there a viewer reads the boards itself.
//!
//! VIEW-1: no rank is asked unless a viewer has come, and at most twice a second however many have.
//! VIEW-2: the arbiter waits for no viewer: a thread of its own talks to them, one after the other, and gives up one that does not
//! read.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::Shutdown;

use crate::rendezvous::Act;
use crate::sync::{Clock, Deadline};
use crate::watch::report::Report;
use crate::watch::view::{View, ViewedRank, is_allowed, socket_name};
use crate::watch::wire::{ToRank, encode};

/// How long ranks may take to answer before a viewer is shown what is there. An idle arbiter asks half a second late.
const PATIENCE: Duration = Duration::from_millis(1500);
/// Answers that are younger than this serve the next viewer too.
const FRESH: Duration = Duration::from_millis(500);
/// How long a viewer may take to read.
const WRITE_PATIENCE: Duration = Duration::from_secs(1);
/// The thread only waits, gathers and writes.
const STACK_BYTES: usize = 256 << 10;

/// The viewers of a world. Dropping it turns them away.
#[derive(Debug)]
pub(super) struct Viewers {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    listener: UnixListener,
    state: Mutex<State>,
    /// All ranks have answered.
    is_whole: Condvar,
    /// Host names by rank, and which ranks share a host: equal numbers.
    hosts: Vec<(String, u32)>,
}

#[derive(Debug, Default)]
struct State {
    is_over: bool,
    is_wanted: bool,
    round: u64,
    /// How many ranks were asked.
    asked: usize,
    /// When the round was whole.
    whole: Option<Instant>,
    job: u64,
    reports: BTreeMap<u32, Report>,
}

impl Viewers {
    /// Lets viewers in. `None` where the system gives no socket or no thread: then there are none.
    pub(super) fn start(hosts: Vec<(String, u32)>) -> Option<Self> {
        let address = SocketAddr::from_abstract_name(socket_name()).ok()?;
        let shared = Arc::new(Shared {
            listener: UnixListener::bind_addr(&address).ok()?,
            state: Mutex::default(),
            is_whole: Condvar::new(),
            hosts,
        });
        let served = Arc::clone(&shared);
        thread::Builder::new()
            .name("muster-view".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || served.serve())
            .ok()?;
        Some(Self { shared })
    }

    /// What is to be done for viewers: nothing, unless one has come. `present` ranks are there.
    pub(super) fn tick(&self, present: usize) -> Option<Act> {
        let mut state = self.shared.state();
        if !std::mem::take(&mut state.is_wanted) {
            return None;
        }
        state.round += 1;
        state.asked = present;
        state.whole = None;
        state.reports.clear();
        let round = state.round;
        Some(Act::TellAll(encode(&ToRank::Show { round })))
    }

    /// A rank answers.
    pub(super) fn take(&self, round: u64, job: u64, report: Report) {
        let mut state = self.shared.state();
        if round != state.round {
            return;
        }
        state.job = job;
        state.reports.insert(report.rank, report);
        if state.reports.len() >= state.asked {
            state.whole = Some(Clock::now());
            self.shared.is_whole.notify_all();
        }
    }
}

impl Drop for Viewers {
    fn drop(&mut self) {
        self.shared.state().is_over = true;
        self.shared.is_whole.notify_all();
        // Wakes the thread, which then sees that it is over. Fails only where that has ended.
        let _ = rustix::net::shutdown(&self.shared.listener, Shutdown::Both);
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        loop {
            let come = self.listener.accept();
            if self.state().is_over {
                return;
            }
            match come {
                Ok((viewer, _)) => {
                    // One that has gone, or does not read, looks again.
                    let _ = self.show(viewer);
                }
                // Out of descriptors, or the like.
                Err(_) => Clock::pause(FRESH),
            }
        }
    }

    fn show(&self, mut viewer: UnixStream) -> io::Result<()> {
        if !is_allowed(&viewer) {
            return Ok(());
        }
        let view = self.gather();
        let bytes = serde_json::to_vec(&view)?;
        viewer.set_write_timeout(Some(WRITE_PATIENCE))?;
        viewer.write_all(&bytes)
    }

    /// What the ranks say now, or said a moment ago.
    fn gather(&self) -> View {
        let mut state = self.state();
        let is_fresh = |whole: Instant| Clock::now().saturating_duration_since(whole) < FRESH;
        if !state.whole.is_some_and(is_fresh) {
            state.is_wanted = true;
            state.whole = None;
            let end = Deadline::after(PATIENCE);
            while state.whole.is_none() && !state.is_over && !end.passed() {
                let waited = self.is_whole.wait_timeout(state, end.left());
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
        let rank = |report: &Report| {
            let host = self.hosts.get(report.rank as usize).cloned();
            let (host, host_number) = host.unwrap_or_default();
            ViewedRank {
                host,
                host_number,
                report: report.clone(),
            }
        };
        View {
            schema: View::SCHEMA.to_owned(),
            job: state.job,
            round: state.round,
            ranks: state.reports.values().map(rank).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::view::read;

    const JOB: u64 = 0x7465_7374;

    fn report(rank: u32) -> Report {
        Report {
            rank,
            world_size: 2,
            ..Report::default()
        }
    }

    fn look(viewers: &Viewers) -> thread::JoinHandle<io::Result<View>> {
        let viewer = connect(viewers);
        thread::spawn(move || read(viewer))
    }

    fn connect(viewers: &Viewers) -> UnixStream {
        let address = viewers.shared.listener.local_addr().expect("a name");
        UnixStream::connect_addr(&address).expect("the viewers' socket")
    }

    #[test]
    fn ranks_are_asked_only_for_a_viewer_and_once_for_several() {
        let hosts = vec![("a".to_owned(), 0), ("b".to_owned(), 1)];
        let viewers = Viewers::start(hosts).expect("a socket");
        assert_eq!(viewers.tick(2), None, "nobody looks");
        // One that never reads, before the others.
        let idle = connect(&viewers);
        let looks: Vec<_> = (0..3).map(|_| look(&viewers)).collect();
        let mut asked = 0;
        let end = Deadline::after(Duration::from_secs(20));
        while looks.iter().any(|look| !look.is_finished()) && !end.passed() {
            if viewers.tick(2).is_some() {
                asked += 1;
                let round = viewers.shared.state().round;
                viewers.take(round - 1, JOB, report(2));
                viewers.take(round, JOB, report(1));
                viewers.take(round, JOB, report(0));
            }
            Clock::pause(Duration::from_millis(1));
        }
        for look in looks {
            let view = look.join().expect("a look").expect("a view");
            assert_eq!(view.job, JOB);
            let ranks = view.ranks.iter().map(|one| (one.report.rank, &*one.host));
            assert_eq!(ranks.collect::<Vec<_>>(), [(0, "a"), (1, "b")]);
        }
        assert!((1..4).contains(&asked), "asked {asked} times for four");
        let address = viewers.shared.listener.local_addr().expect("a name");
        drop((idle, viewers));
        let end = Deadline::after(Duration::from_secs(20));
        while UnixStream::connect_addr(&address).is_ok() && !end.passed() {
            Clock::pause(Duration::from_millis(1));
        }
        assert!(!end.passed(), "the socket is still there");
    }

    #[test]
    fn ranks_that_do_not_answer_are_missing_and_delay_nobody_for_long() {
        let viewers = Viewers::start(vec![("a".to_owned(), 0)]).expect("a socket");
        let look = look(&viewers);
        while viewers.tick(2).is_none() {
            Clock::pause(Duration::from_millis(1));
        }
        viewers.take(1, JOB, report(0));
        let view = look.join().expect("a look").expect("a view");
        assert_eq!(view.ranks.len(), 1);
    }
}
