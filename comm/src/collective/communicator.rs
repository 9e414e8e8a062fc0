//! The communicator: what its calls have in common, from their turn to the context of their errors.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use super::call::{Call, judged};
use super::record;
use super::tamper::{Setting, Tamper};
use super::worker::Worker;
use crate::algo;
use crate::backend::call_start::CallStart;
use crate::backend::host::Host;
use crate::backend::wait_context::{Limit, WaitContext};
use crate::backend::{Failure, Request};
use crate::context::{Context, GROUP_NAME_MAX, HasUnread, Identity, Notice};
use crate::error::verdict::Verdict;
use crate::error::{CommError, ErrorKind, OpContext};
use crate::sync::{AtomicU64, Deadline, Ordering, lock};
use crate::types::{Collective, Rank};
use crate::watch::report::CallCode;
use crate::watch::wire::Cause;
use crate::watch::{Mark, Place, blamed};

/// How long a call whose time is up waits for an earlier one that has ended to say how. On a starved host its thread gets no processor for
/// some 100 ms.
const ENDING_MAX: Duration = Duration::from_secs(2);

/// Largest encoded object unless set otherwise: training stacks gather configurations and
/// statistics, not tensors, this way.
pub const OBJECT_BYTES_MAX_DEFAULT: usize = 64 << 20;

/// A group of ranks that make collective calls together. Made by [`crate::world::World::group`].
///
/// Cheap to clone; all clones are one communicator. Dropping the last one destroys the group on
/// this rank: that never waits, and what peers may still read is kept until they are done.
#[derive(Clone, Debug)]
pub struct Communicator {
    pub(super) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) context: Arc<Context>,
    pub(super) group: Identity,
    /// Its place on the board.
    pub(super) place: Place,
    pub(super) host: Mutex<Host>,
    /// The error that ended the group, if one did.
    pub(super) failed: OnceLock<CommError>,
    pub(super) deadline_ns: AtomicU64,
    pub(super) object_bytes_max: AtomicU64,
    pub(super) tamper: Setting,
    pub(super) worker: Worker,
}

impl Communicator {
    pub(crate) fn new(
        context: Arc<Context>,
        name: &str,
        members: &[Rank],
        generation: impl FnOnce() -> u64,
        table: Option<algo::Table>,
    ) -> Result<Self, CommError> {
        let me = check_members(&context, name, members).map_err(|kind| {
            let at = OpContext {
                group: name.into(),
                rank: context.rank,
                collective: Collective::Barrier,
                seq: 0,
                dtype: None,
                count: None,
                round: None,
                elapsed: Duration::ZERO,
                deadline: context.deadline,
            };
            CommError::new(kind, at, true)
        })?;
        // Counted only now: a list that was refused must not put this rank out of step.
        let group = Identity {
            table,
            ..Identity::new(context.job, name, members.to_vec(), me, generation())
        };
        let deadline_ns = AtomicU64::new(nanos(context.deadline));
        let place = context.watch.place(group.key, &group.name, &group.members);
        let inner = Inner {
            context,
            group,
            place,
            host: Mutex::default(),
            failed: OnceLock::new(),
            deadline_ns,
            object_bytes_max: AtomicU64::new(OBJECT_BYTES_MAX_DEFAULT as u64),
            tamper: Setting::default(),
            worker: Worker::default(),
        };
        let inner = Arc::new(inner);
        inner.context.life.unread.add(&inner);
        Ok(Self { inner })
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.inner.context
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.inner.group
    }

    /// Its place on the board.
    pub(crate) fn place(&self) -> &Place {
        &self.inner.place
    }

    /// The name that the group was given.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.group.name
    }

    /// This rank's index in the group.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.inner.group.me
    }

    /// Number of ranks in the group.
    #[must_use]
    pub fn size(&self) -> usize {
        self.inner.group.len()
    }

    /// The members' world ranks, in the order of the group.
    #[must_use]
    pub fn members(&self) -> &[Rank] {
        &self.inner.group.members
    }

    /// How long each call may take from now on. Applies to this rank only; the members should
    /// agree, or the most impatient one ends the call for all.
    pub fn set_deadline(&self, deadline: Duration) {
        // Relaxed: read at the beginning of later calls, orders nothing.
        self.inner
            .deadline_ns
            .store(nanos(deadline), Ordering::Relaxed);
    }

    /// How long each call may take.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        // Relaxed: see `set_deadline`.
        Duration::from_nanos(self.inner.deadline_ns.load(Ordering::Relaxed))
    }

    /// The error that ended the group, if one did: every later call returns it at once.
    #[must_use]
    pub fn failure(&self) -> Option<CommError> {
        self.inner.failed.get().cloned()
    }

    /// Spoils this rank's contributions from now on, or stops doing so. For drills only.
    pub fn set_tamper(&self, tamper: Option<Tamper>) {
        self.inner.tamper.set(tamper);
    }

    /// Runs a checked call.
    pub(super) fn run(&self, call: Call, request: &Request<'_>) -> Result<(), CommError> {
        self.run_and(call, request, || Ok(()))
    }

    /// Runs a checked call whose result `look` may refuse: on all ranks alike, so that the group stays
    /// usable.
    pub(super) fn run_and(
        &self,
        call: Call,
        request: &Request<'_>,
        look: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<(), CommError> {
        if request.op.is_bitwise() {
            self.check_op(call, request.op)?;
        }
        self.guarded(call, call.code(Some(request)), |host, wait_context| {
            record::collective(&self.inner.place, wait_context.seq, request);
            match self.inner.tamper.get() {
                Some(tamper) if tamper.hits(request) => {
                    tamper.run(host, wait_context, request)?;
                }
                _ => host.run(wait_context, request)?,
            }
            look()
        })
    }

    /// Takes the engine for one call: waits for earlier asynchronous calls, refuses after a
    /// failure, adds the context to errors, and tells the others when the group is lost.
    pub(super) fn guarded(
        &self,
        call: Call,
        code: CallCode,
        body: impl FnOnce(&mut Host, &WaitContext<'_>) -> Result<(), Failure>,
    ) -> Result<(), CommError> {
        let inner = &*self.inner;
        let budget = self.deadline();
        let waited = inner.worker.is_in_use().then(|| Deadline::after(budget));
        if let Some(deadline) = waited
            && let Err(_awaiting) = inner.worker.wait_turn(deadline, &inner.place)
        {
            return Err(self.overdue_turn(call, deadline));
        }
        if let Some(cause) = self.failure() {
            return Err(cause);
        }
        let mut host = lock(&inner.host);
        self.carry_out(call, code, waited, &mut host, body)
    }

    /// Makes a call with the engine in hand.
    pub(super) fn carry_out(
        &self,
        call: Call,
        code: CallCode,
        waited: Option<Deadline>,
        host: &mut Host,
        body: impl FnOnce(&mut Host, &WaitContext<'_>) -> Result<(), Failure>,
    ) -> Result<(), CommError> {
        let inner = &*self.inner;
        let budget = self.deadline();
        let before = host.seq();
        let call_start = CallStart::new(&inner.place, code, before + 1, call.site, budget, waited);
        let wait_context = self.wait_context(Limit::Call(&call_start), before + 1, call);
        // A rank that comes after the others gave up must not take what they left for a result.
        let result = match wait_context.given_up() {
            Some(kind) => Err(Failure {
                usable: false,
                ..Failure::from(kind)
            }),
            None => body(host, &wait_context),
        };
        let result = result.map_err(|failure| {
            // The arbiter looks for it on the board.
            call_start.begin();
            judged(&wait_context, failure)
        });
        call_start.end(host.seq(), result.is_ok());
        inner.place.recorded();
        result.map_err(|(failure, verdict)| {
            let seq = if host.seq() > before { host.seq() } else { 0 };
            self.ended(call, failure, verdict, seq, call_start.deadline(), host)
        })
    }

    /// How a call of this number waits.
    pub(super) fn wait_context<'a>(
        &'a self,
        limit: Limit<'a>,
        seq: u64,
        call: Call,
    ) -> WaitContext<'a> {
        let inner = &*self.inner;
        WaitContext {
            context: &inner.context,
            group: &inner.group,
            limit,
            seq,
            mark: Mark::of(blamed(call.site), inner.context.call_sites),
            place: &inner.place,
            lost: inner.context.watch.lost(),
        }
    }

    /// The error of a call whose time is up before the asynchronous calls made earlier have ended. Who keeps the one among them
    /// waiting that is under way keeps this one waiting; where none is, this rank itself does.
    fn overdue_turn(&self, call: Call, deadline: Deadline) -> CommError {
        let inner = &*self.inner;
        let under_way = inner.place.under_way();
        let waits = under_way.as_ref().and_then(|call| call.wait.as_ref());
        let missing = waits.map_or_else(Vec::new, |wait| wait.missing.clone());
        let kind = ErrorKind::Stalled {
            waiting_for: missing.into_iter().map(Rank).collect(),
            waited_ms: u64::try_from(deadline.elapsed().as_millis()).unwrap_or(u64::MAX),
        };
        let Some(under_way) = under_way else {
            // The last of them may be just ending: why it fails is why this one does.
            let ends = Deadline::after(ENDING_MAX);
            if inner.worker.wait_turn(ends, &inner.place).is_ok()
                && let Some(cause) = self.failure()
            {
                return cause;
            }
            // The program has not made the calls that it has started: nobody else is concerned.
            return self.error(call, kind, 0, None, deadline, true);
        };
        let wait_context = self.wait_context(Limit::At(deadline), under_way.seq, call);
        let verdict = wait_context.ask(Cause::InVain);
        let better = verdict
            .as_ref()
            .and_then(|verdict| wait_context.kind_of(verdict));
        self.error(call, better.unwrap_or(kind), 0, None, deadline, true)
            .with_verdict(verdict)
    }

    /// The error of a call that has failed; tells the others where the group is lost by it.
    fn ended(
        &self,
        call: Call,
        failure: Failure,
        verdict: Option<Arc<Verdict>>,
        seq: u64,
        deadline: Deadline,
        host: &mut Host,
    ) -> CommError {
        let inner = &*self.inner;
        let Failure {
            kind,
            round,
            usable,
            culprit: _,
        } = failure;
        let notice = Notice {
            key: inner.group.key,
            seq,
            origin: inner.context.rank.0,
            kind: kind.clone(),
        };
        let error = self
            .error(call, kind, seq, round, deadline, usable)
            .with_verdict(verdict);
        if !usable {
            host.set_broken();
            // Where it is set, the first cause stays.
            let _ = inner.failed.set(error.clone());
            if !matches!(notice.kind, ErrorKind::PeerAborted { .. }) {
                inner.context.control.give_up(&notice);
            }
        }
        error
    }

    pub(crate) fn error(
        &self,
        call: Call,
        kind: ErrorKind,
        seq: u64,
        round: Option<(u32, u32)>,
        deadline: Deadline,
        usable: bool,
    ) -> CommError {
        let at = OpContext {
            group: Arc::clone(&self.inner.group.name),
            rank: self.inner.context.rank,
            collective: call.collective,
            seq,
            dtype: call.dtype,
            count: call.count,
            round,
            elapsed: deadline.elapsed(),
            deadline: deadline.budget(),
        };
        CommError::new(kind, at, usable)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // A rank that panics has a better reason not to have received something.
        if !std::thread::panicking()
            && let Some(unread) = self.unread()
        {
            self.context.life.unread.note(unread);
        }
        if let Some(net) = &self.context.net {
            net.listener.forget(self.group.key);
        }
        let host = self.host.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(retired) = host.retire(self.group.key)
            && let Some(island) = &self.context.island
        {
            island.retire(&self.context.status, Box::new(retired));
        }
    }
}

fn check_members(context: &Context, name: &str, members: &[Rank]) -> Result<usize, ErrorKind> {
    let refuse = |what: &str, got: String, want: String| ErrorKind::InvalidArgument {
        what: what.to_owned(),
        got,
        want,
    };
    if name.is_empty() || name.len() > GROUP_NAME_MAX {
        let want = format!("1 to {GROUP_NAME_MAX} bytes");
        return Err(refuse(
            "the group's name",
            format!("{} bytes", name.len()),
            want,
        ));
    }
    let mut seen = vec![false; context.size];
    // Made only where it is told: groups may have thousands of members.
    let want = || {
        let last = context.size - 1;
        format!("each rank of the world, 0 to {last}, at most once")
    };
    for member in members {
        match seen.get_mut(member.index()) {
            Some(seen) if !*seen => *seen = true,
            Some(_) => return Err(refuse("the member list", format!("{member} twice"), want())),
            None => return Err(refuse("a member", member.to_string(), want())),
        }
    }
    members
        .iter()
        .position(|member| *member == context.rank)
        .ok_or_else(|| {
            let want = format!("a list with this rank, {}", context.rank);
            refuse("the member list", format!("{members:?}"), want)
        })
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Clock;
    use crate::world::World;

    /// A starved host: an asynchronous call has failed, and its thread gets no processor to say so.
    #[test]
    fn a_call_whose_time_is_up_fails_for_the_reason_of_the_one_that_is_just_ending() {
        let late = Duration::from_millis(500);
        let outcomes = World::threads(1, |world| {
            let comm = world.group("alone", &[Rank(0)]).expect("a group");
            comm.set_deadline(Duration::from_millis(20));
            let ending = comm.clone();
            comm.inner.worker.submit(Box::new(move || {
                Clock::pause(late);
                let call = Call::bare(Collective::AllReduce);
                let why = "as planned".to_owned();
                let kind = ErrorKind::Orphaned { why };
                let deadline = Deadline::after(late);
                let cause = ending.error(call, kind, 1, None, deadline, false);
                let _ = ending.inner.failed.set(cause);
            }));
            let outcome = comm.barrier();
            // The thread of the calls does not outlive the test.
            let ended = comm
                .inner
                .worker
                .wait_turn(Deadline::after(late), &comm.inner.place);
            (outcome, ended.is_ok())
        });
        let outcomes = outcomes.expect("a world");
        let (outcome, has_ended) = &outcomes[0];
        assert!(has_ended);
        let error = outcome.as_ref().expect_err("its time is up");
        assert_eq!(error.at().collective, Collective::AllReduce, "{error}");
    }
}
