//! From a checked operator to a task on its stream, or to the group that is open.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use hccl_sys::types::HcclResult;

use super::call::Call;
use super::comm::Comm;
use super::fail::{Answer, EI0003, Fail};
use super::job::{Job, Message};
use super::operator::Operator;
use super::task::Task;
use crate::options::Product;
use crate::runtime::stream::Stream;

/// What is put off until its group ends.
type Deferred = Box<dyn FnOnce() -> Answer + Send>;

/// Calls of one kind: kinds are not mixed in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupKind {
    /// Initialisation and destruction of communicators.
    Life,
    /// Collectives.
    Collectives,
    /// Sends, receives, and batches of them.
    Messages,
}

/// An operator in a group.
struct Grouped {
    comm: Arc<Comm>,
    stream: Arc<Stream>,
    operator: Operator,
    job: Job,
}

/// The group that a thread has open.
#[derive(Default)]
struct Group {
    depth: u32,
    kind: Option<GroupKind>,
    operators: Vec<Grouped>,
    deferred: Vec<(i32, Deferred)>,
}

thread_local! {
    static GROUP: RefCell<Group> = RefCell::new(Group::default());
}

/// Whether the calling thread has a group open.
pub(crate) fn is_grouping() -> bool {
    GROUP.with_borrow(|group| group.depth > 0)
}

/// Opens a group, or one inside the open one.
pub(crate) fn start() {
    GROUP.with_borrow_mut(|group| group.depth += 1);
}

/// Puts a call of a communicator's life off until the group ends.
pub(crate) fn defer(call: &str, device: i32, deferred: Deferred) -> Answer {
    GROUP.with_borrow_mut(|group| {
        group.take_kind(call, GroupKind::Life)?;
        group.deferred.push((device, deferred));
        Ok(())
    })
}

impl Group {
    fn take_kind(&mut self, call: &str, kind: GroupKind) -> Answer {
        match self.kind {
            Some(open) if open != kind => Err(Fail::new(
                HcclResult::HCCL_E_NOT_SUPPORT,
                EI0003,
                format!("{call}: a group of {open:?} takes no {kind:?}"),
            )),
            Some(_) | None => {
                self.kind = Some(kind);
                Ok(())
            }
        }
    }
}

/// Hands an operator on: to its stream, or to the open group.
pub(crate) fn submit(call: &Call, job: Job) -> Answer {
    if !is_grouping() {
        return enqueue(&call.comm, &call.stream, call.operator, job);
    }
    let is_message = call.operator.is_point_to_point() || call.operator == Operator::BatchSendRecv;
    let kind = if is_message {
        GroupKind::Messages
    } else {
        GroupKind::Collectives
    };
    GROUP.with_borrow_mut(|group| {
        group.take_kind(call.name(), kind)?;
        group.operators.push(Grouped {
            comm: Arc::clone(&call.comm),
            stream: Arc::clone(&call.stream),
            operator: call.operator,
            job,
        });
        Ok(())
    })
}

fn enqueue(comm: &Arc<Comm>, stream: &Stream, operator: Operator, job: Job) -> Answer {
    let _inside = comm.enter();
    let ticket = comm.issue(operator)?;
    let task = Task {
        comm: Arc::clone(comm),
        ticket,
        job,
    };
    let work = Box::new(move |context: &_| task.run(context));
    stream
        .enqueue(operator.function(), work)
        .map(drop)
        .map_err(|error| {
            let fail = Fail::runtime(&error);
            let text = format!("{}: {}", operator.function(), fail.text);
            Fail { text, ..fail }
        })
}

/// Ends a group; the outermost end carries out what was put off, and waits for it.
pub(crate) fn end(call: &str, product: Product) -> Answer {
    let group = GROUP.with_borrow_mut(|group| {
        if group.depth == 0 {
            return Err(Fail::new(
                HcclResult::HCCL_E_NOT_SUPPORT,
                EI0003,
                format!("{call}: no group is open in this thread"),
            ));
        }
        group.depth -= 1;
        Ok((group.depth == 0).then(|| std::mem::take(group)))
    })?;
    let Some(group) = group else {
        return Ok(());
    };
    let outcome = match group.kind {
        None => Ok(()),
        Some(GroupKind::Life) => run_deferred(call, group.deferred),
        Some(GroupKind::Collectives) => run_collectives(group.operators),
        Some(GroupKind::Messages) => run_messages(group.operators),
    };
    match outcome {
        // The older family swallows what went wrong; the text is there for who asks.
        Err(fail) if product != Product::Atlas950 => {
            fail.report();
            Ok(())
        }
        outcome => outcome,
    }
}

/// One helper thread each, so that one thread can make communicators that wait for each other.
fn run_deferred(call: &str, deferred: Vec<(i32, Deferred)>) -> Answer {
    std::thread::scope(|scope| {
        let threads: Vec<_> = deferred
            .into_iter()
            .map(|(device, body)| scope.spawn(move || super::init::on_device(call, device, body)))
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Answer>| {
            thread.join().unwrap_or_else(|_| {
                let text = format!("{call}: a helper thread panicked");
                Err(Fail::new(HcclResult::HCCL_E_INTERNAL, EI0003, text))
            })
        };
        let outcomes: Vec<Answer> = threads.into_iter().map(join).collect();
        outcomes.into_iter().collect()
    })
}

/// By falling volume, those with blocks of different lengths last; then the streams are waited for.
fn run_collectives(mut operators: Vec<Grouped>) -> Answer {
    let is_v = |operator: Operator| {
        matches!(
            operator,
            Operator::AllGatherV
                | Operator::AllToAllV
                | Operator::AllToAllVC
                | Operator::ReduceScatterV
        )
    };
    operators.sort_by_key(|grouped| {
        // What ranks may see differently must not decide: blocks of different lengths stay in the
        // order of the calls.
        if is_v(grouped.operator) {
            (1, 0)
        } else {
            (0, usize::MAX - grouped.job.volume())
        }
    });
    let mut streams: Vec<Arc<Stream>> = Vec::new();
    let mut outcome = Ok(());
    for grouped in operators {
        remember(&mut streams, &grouped.stream);
        let enqueued = enqueue(
            &grouped.comm,
            &grouped.stream,
            grouped.operator,
            grouped.job,
        );
        outcome = outcome.and(enqueued);
    }
    settle(&streams);
    outcome
}

/// The messages of one communicator in a group, and where they go.
type Batch = (Arc<Comm>, Arc<Stream>, Vec<Message>);

/// All messages of a communicator are one batch on the first stream that was used for it.
fn run_messages(operators: Vec<Grouped>) -> Answer {
    let mut order: Vec<u64> = Vec::new();
    let mut batches: HashMap<u64, Batch> = HashMap::new();
    for grouped in operators {
        let Job::Messages(messages) = grouped.job else {
            continue;
        };
        let handle = grouped.comm.handle;
        let batch = batches.entry(handle).or_insert_with(|| {
            order.push(handle);
            (grouped.comm, grouped.stream, Vec::new())
        });
        batch.2.extend(messages);
    }
    let mut streams: Vec<Arc<Stream>> = Vec::new();
    let mut outcome = Ok(());
    for handle in order {
        if let Some((comm, stream, messages)) = batches.remove(&handle) {
            remember(&mut streams, &stream);
            let job = Job::Messages(messages);
            let enqueued = enqueue(&comm, &stream, Operator::BatchSendRecv, job);
            outcome = outcome.and(enqueued);
        }
    }
    settle(&streams);
    outcome
}

fn remember(streams: &mut Vec<Arc<Stream>>, stream: &Arc<Stream>) {
    if !streams.iter().any(|known| Arc::ptr_eq(known, stream)) {
        streams.push(Arc::clone(stream));
    }
}

/// Waits for the tasks; their errors stay for the client's own synchronisation.
fn settle(streams: &[Arc<Stream>]) {
    for stream in streams {
        // Without a limit: every task has its own.
        let _ = stream.settle(None);
    }
}
