//! The streams of a group, and what runs over them: message plans and point-to-point messages.
//!
//! A stream is made when a call first needs it. Between ranks that share memory it is a ring in
//! the heap of the rank with the lower index, which publishes it under a key that both sides
//! derive; otherwise it is a TCP connection.
//!
//! - LINKS-1: point-to-point messages have streams of their own (a *plane*), so they neither wait
//!   for nor disturb collectives of the same group.
//! - LINKS-2: the lower side makes the stream and never waits for that; the upper side takes it when
//!   it is there, and everything that needs no such stream goes on meanwhile. So a rank never keeps
//!   a message back because a third rank has not come yet.
#![expect(unsafe_code, reason = "message runs work on erased buffers")]

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use super::message::{
    Buffers, CallsiteCheck, MessageCall, MessageError, MessageRun, Progress, Workspace,
};
use super::problem::problem;
use super::wait_context::WaitContext;
use super::{Counts, Failure, Request, matching};
use crate::algo::{Algorithm, Plan, Step};
use crate::error::{ErrorKind, Field};
use crate::transport::shm::slot::Entry;
use crate::transport::shm::wakers::Sleeper;
use crate::transport::{CallTag, Stream, TagField};
use crate::types::{Collective, Rank};
use crate::watch::{Mark, Slip};

mod open;
mod point;
mod remote;
mod unread;
mod wait_policy;

use open::Awaited;
pub(crate) use open::RingBlock;
pub(crate) use point::{Message, first};
pub(crate) use unread::sent_in_vain;
use wait_policy::{by_blame, linger, rest_on, sleep_by, way_to_rest};

/// Plans that one communicator remembers. Programs call with few shapes, over and over.
const PLANS_MAX: usize = 64;

/// Which of a group's streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plane {
    Collective = 0,
    PointToPoint = 1,
}

/// The streams of one communicator, made on first use.
#[derive(Debug, Default)]
pub(crate) struct Links {
    collective: Vec<Option<Box<dyn Stream>>>,
    point: Vec<Option<Box<dyn Stream>>>,
    rings: Vec<RingBlock>,
    workspace: Workspace,
    plans: HashMap<PlanKey, Arc<Plan>>,
    callsite_check: Option<CallsiteCheck>,
    /// The host of each member, from the first call on.
    hosts: Option<Arc<[u32]>>,
    counters: point::Counters,
    /// Where the group waits for streams, if peers that share memory can wake it there.
    sleeper: Option<Arc<Sleeper>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct PlanKey {
    collective: Collective,
    algorithm: &'static str,
    count: usize,
    root: usize,
    in_place: bool,
}

impl Links {
    /// Runs a collective as a message plan. `checked` says that the ranks have compared their
    /// calls already.
    pub(crate) fn run(
        &mut self,
        wait_context: &WaitContext<'_>,
        request: &Request<'_>,
        algorithm: &'static Algorithm,
        seq: u64,
        checked: bool,
    ) -> Result<(), Failure> {
        let (n, me) = (wait_context.group.len(), wait_context.group.me);
        let plan =
            self.plan(wait_context, request, algorithm)
                .map_err(|why| ErrorKind::Unsupported {
                    what: format!("{} by {}", request.collective, algorithm.name),
                    why,
                })?;
        let awaited = self.open(wait_context, Plane::Collective, peers_of(&plan))?;
        let call = MessageCall {
            rank: me,
            ranks: n,
            contributors: request.pattern().contributors(n, me).len(),
            group: wait_context.group.key,
            seq,
            tag: tag_of(request, algorithm, checked),
            mark: wait_context.mark.with(request.collective as u8).0,
            dtype: request.dtype,
            op: request.collective.reduces().then_some(request.op),
            checksum: wait_context.context.checksum,
        };
        let buffers = Buffers {
            send: request.send,
            send_count: plan_send_count(request, n, me),
            recv: request.recv,
            recv_count: request.recv_count(n, me),
        };
        let workspace = std::mem::take(&mut self.workspace);
        // SAFETY: the collective layer holds the borrows of both buffers until this call returns,
        // and the run does not outlive it.
        let run = unsafe { MessageRun::new(plan, call, buffers, workspace) };
        let mut run = run.map_err(|error| translate(wait_context, &error))?;
        if !checked {
            let mut callsite_check = self
                .callsite_check
                .take()
                .unwrap_or_else(|| CallsiteCheck::of(n));
            callsite_check.begin(seq, Mark(call.mark), call.tag);
            run.set_heed(callsite_check);
        }
        let sleeper = self.sleeper(wait_context);
        let sleeper = sleeper.as_deref();
        let (outcome, mut run) = drive(wait_context, run, &mut self.collective, awaited, sleeper);
        if !checked {
            self.callsite_check = Some(run.set_heed(CallsiteCheck::default()));
        }
        let (round, of) = run.rounds();
        let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        self.workspace = run.into_workspace();
        outcome.map_err(|kind| Failure {
            round: Some((number(round + 1), number(of))),
            // Streams may stand in the middle of a message: the group cannot go on over them.
            usable: false,
            ..Failure::from(kind)
        })
    }

    /// The hosts of the members: equal numbers for those that share memory.
    pub(crate) fn hosts(&mut self, wait_context: &WaitContext<'_>) -> Arc<[u32]> {
        let host = |rank: &Rank| wait_context.context.hosts[rank.index()];
        let hosts = self
            .hosts
            .get_or_insert_with(|| wait_context.group.members.iter().map(host).collect());
        Arc::clone(hosts)
    }

    /// Where the group waits for streams, if there is one; made at the first wait.
    fn sleeper(&mut self, wait_context: &WaitContext<'_>) -> Option<Arc<Sleeper>> {
        if self.sleeper.is_none() {
            let island = wait_context.context.island.as_ref();
            let wakers = island.and_then(|island| island.wakers.as_ref());
            // Without a descriptor for it the group looks up now and then.
            self.sleeper = wakers.and_then(|wakers| Sleeper::new(wakers).ok().map(Arc::new));
        }
        self.sleeper.clone()
    }

    fn plan(
        &mut self,
        wait_context: &WaitContext<'_>,
        request: &Request<'_>,
        algorithm: &'static Algorithm,
    ) -> Result<Arc<Plan>, String> {
        let (n, me) = (wait_context.group.len(), wait_context.group.me);
        let in_place = request.overlaps(n, me);
        let key = match request.counts {
            Counts::Uniform(count) => Some(PlanKey {
                collective: request.collective,
                algorithm: algorithm.name,
                count,
                root: request.root,
                in_place,
            }),
            Counts::Blocks(_) | Counts::Splits { .. } => None,
        };
        if let Some(plan) = key.and_then(|key| self.plans.get(&key)) {
            return Ok(Arc::clone(plan));
        }
        let problem = problem(request.collective, request.counts, request.root, n, me)
            .map_err(|error| error.to_string())?;
        let problem = problem.with_hosts(self.hosts(wait_context));
        let plan = algorithm
            .plan(&problem, me, in_place)
            .map_err(|error| error.to_string())?;
        let plan = Arc::new(plan);
        if let Some(key) = key {
            if self.plans.len() >= PLANS_MAX {
                self.plans.clear();
            }
            self.plans.insert(key, Arc::clone(&plan));
        }
        Ok(plan)
    }
}

/// Polls a run to its end, waiting as the wait context waits.
fn drive(
    wait_context: &WaitContext<'_>,
    run: MessageRun,
    streams: &mut [Option<Box<dyn Stream>>],
    mut awaited: Awaited,
    sleeper: Option<&Sleeper>,
) -> (Result<(), ErrorKind>, MessageRun) {
    awaited.hold(streams);
    let (run, held) = (RefCell::new(run), RefCell::new(&mut *streams));
    let outcome = Cell::new(Ok(Progress::Moved));
    let refused = RefCell::new(None);
    let mut ready = || {
        let mut streams = held.borrow_mut();
        if let Err(kind) = awaited.attach(wait_context, &mut streams) {
            *refused.borrow_mut() = Some(kind);
            return true;
        }
        outcome.set(run.borrow_mut().poll(&mut streams));
        outcome.get() != Ok(Progress::Blocked)
    };
    let missing = || by_blame(run.borrow().waits().map(|wait| (wait.direction, wait.peer)));
    let sleep = |look: &mut dyn FnMut() -> bool, timeout| {
        sleep_by(sleeper, look, |bell| {
            let run = run.borrow();
            let waits = run.waits().map(|wait| (wait.direction, wait.peer));
            rest_on(&held.borrow(), waits, bell, timeout);
        });
    };
    let rest = way_to_rest(&held.borrow(), sleeper, &sleep);
    let result = loop {
        if let Err(kind) = wait_context.wait(&rest, &mut ready, missing)
            && !linger(wait_context, &kind, &mut ready, missing)
        {
            break Err(kind);
        }
        if let Some(kind) = refused.take() {
            break Err(kind);
        }
        match outcome.get() {
            Ok(Progress::Done) => break Ok(()),
            Ok(Progress::Blocked | Progress::Moved) => {}
            Err(error) => break Err(explain(wait_context, &error)),
        }
    };
    awaited.release(streams);
    (result, run.into_inner())
}

/// The error of a run in the words of the layers above. Where a link broke, the control plane
/// knows better why: it is given a moment to say so.
fn explain(wait_context: &WaitContext<'_>, error: &MessageError) -> ErrorKind {
    let (MessageError::Link { peer, .. } | MessageError::PeerAborted { peer, .. }) = error else {
        return translate(wait_context, error);
    };
    let news = wait_context.news(&[*peer]);
    news.unwrap_or_else(|| translate(wait_context, error))
}

fn translate(wait_context: &WaitContext<'_>, error: &MessageError) -> ErrorKind {
    let members = &wait_context.group.members;
    let mine = members[wait_context.group.me];
    let transport = |peer: usize| ErrorKind::Transport {
        peer: members.get(peer).copied().unwrap_or(mine),
        what: error.to_string(),
    };
    let differs = |peer: usize, field, mine_says: String, theirs: String| ErrorKind::Mismatch {
        field,
        rank: mine,
        mine: mine_says,
        peer: members[peer],
        theirs,
    };
    match error {
        MessageError::Mismatch {
            peer,
            field,
            mine,
            theirs,
        } => differs(*peer, field_of(*field), describe(mine), describe(theirs)),
        MessageError::Slipped {
            peer,
            slip,
            mine,
            theirs,
        } => slipped(wait_context, *peer, *slip, (mine, theirs)),
        MessageError::Length {
            peer, mine, theirs, ..
        } => differs(
            *peer,
            Field::Splits,
            format!("{mine} bytes expected from rank {}", members[*peer]),
            format!("{theirs} bytes for rank {}", members[wait_context.group.me]),
        ),
        MessageError::OtherCall {
            peer,
            mine,
            theirs,
            tag,
        } => differs(
            *peer,
            Field::Sequence,
            format!("call {mine}"),
            format!("call {theirs}, {}", describe(&CallTag { algo: 0, ..*tag })),
        ),
        MessageError::Checksum { peer, .. }
        | MessageError::Frame { peer, .. }
        | MessageError::Repeated { peer, .. } => ErrorKind::Corrupt {
            peer: members[*peer],
            detail: error.to_string(),
        },
        MessageError::NoMemory { bytes } => ErrorKind::Resource {
            what: "memory".to_owned(),
            need: format!("{bytes} bytes of scratch"),
            have: "less than that".to_owned(),
        },
        MessageError::Link { peer, .. }
        | MessageError::NoLink { peer }
        | MessageError::OutOfStep { peer, .. }
        | MessageError::PeerAborted { peer, .. } => transport(*peer),
        MessageError::Plan { .. } => transport(wait_context.group.me),
    }
}

/// Who is out of step, by the places in the program: member 0 of the slip is this rank, member 1 the
/// peer.
fn slipped(
    wait_context: &WaitContext<'_>,
    peer: usize,
    slip: Slip,
    calls: (&CallTag, &CallTag),
) -> ErrorKind {
    let members = &wait_context.group.members;
    let (mine, theirs) = ((calls.0, wait_context.group.me), (calls.1, peer));
    let (usual, odd) = if slip.odd == 1 {
        (mine, theirs)
    } else {
        (theirs, mine)
    };
    let words = |tag: &CallTag| describe(&CallTag { algo: 0, ..*tag });
    ErrorKind::Mismatch {
        field: Field::Sequence,
        rank: members[usual.1],
        mine: words(usual.0),
        peer: members[odd.1],
        theirs: slip.words(&words(odd.0)),
    }
}

fn field_of(field: TagField) -> Field {
    match field {
        TagField::Algo => Field::Algorithm,
        TagField::Collective => Field::Collective,
        TagField::Count => Field::Count,
        TagField::CountHash => Field::Splits,
        TagField::DType => Field::Dtype,
        TagField::Op => Field::Op,
        TagField::Root => Field::Root,
    }
}

fn describe(tag: &CallTag) -> String {
    let root = if tag.root == CallTag::NO_ROOT {
        0
    } else {
        u64::from(tag.root) + 1
    };
    let call = u64::from(tag.collective)
        | u64::from(tag.dtype) << 8
        | u64::from(tag.op) << 16
        | root << 32;
    let text = matching::describe(&Entry {
        call,
        count: tag.count,
        ..Entry::default()
    });
    if tag.algo == 0 {
        text
    } else {
        format!("{text} by algorithm {}", tag.algo)
    }
}

/// What the ranks of a message plan compare.
fn tag_of(request: &Request<'_>, algorithm: &'static Algorithm, checked: bool) -> CallTag {
    let place = crate::algo::ALGORITHMS
        .iter()
        .filter(|other| other.collectives.contains(&request.collective))
        .position(|other| other.name == algorithm.name);
    let hash = match request.counts {
        Counts::Blocks(_) | Counts::Uniform(_) if !checked => {
            let mut hasher = crc32fast::Hasher::new();
            request
                .row()
                .iter()
                .for_each(|count| hasher.update(&count.to_le_bytes()));
            hasher.finalize()
        }
        Counts::Blocks(_) | Counts::Splits { .. } | Counts::Uniform(_) => 0,
    };
    CallTag {
        collective: request.called as u8,
        dtype: request.dtype as u8,
        op: if request.collective.reduces() {
            request.op as u8
        } else {
            0
        },
        algo: place
            .and_then(|place| u8::try_from(place + 1).ok())
            .unwrap_or(0),
        root: match u32::try_from(request.root) {
            Ok(root) if request.called.is_rooted() => root,
            _ => CallTag::NO_ROOT,
        },
        count: request.common_count(),
        count_hash: hash,
    }
}

fn peers_of(plan: &Plan) -> impl Iterator<Item = usize> + Clone {
    plan.rounds
        .iter()
        .flat_map(|round| &round.steps)
        .filter_map(|step| match step {
            Step::Send { to, .. } => Some(*to),
            Step::Recv { from, .. } | Step::RecvReduce { from, .. } => Some(*from),
            Step::Copy { .. }
            | Step::Expose { .. }
            | Step::Pull { .. }
            | Step::PullReduce { .. }
            | Step::Reduce { .. } => None,
        })
}

/// The send buffer as plans see it: a broadcast has none, its one buffer is `Out`.
fn plan_send_count(request: &Request<'_>, n: usize, me: usize) -> usize {
    if request.collective.has_one_buffer() {
        0
    } else {
        request.send_count(n, me)
    }
}
