//! Groups of different kinds at work at the same time, from a thread each.
//!
//! A training step reduces gradients over DP while TP and EP are busy: calls on different groups
//! are independent, and none may wait for, or see, another one's data.

use std::thread;

use muster_comm::error::CommError;
use muster_comm::types::Collective;

use crate::check::call_args::CallArgs;
use crate::check::message::Wrong;
use crate::check::subject::Subject;

/// Calls on each group.
const CALLS: usize = 20;
/// Elements of each call: large enough for several pieces to be under way at once.
const COUNT: usize = 3001;

/// Runs the groups against each other.
///
/// # Errors
/// The first error of a call, in the order of the groups.
pub fn check(comms: &[Subject]) -> Result<Option<Wrong>, CommError> {
    let outcomes: Vec<Result<Option<Wrong>, CommError>> = thread::scope(|scope| {
        let threads: Vec<_> = comms
            .iter()
            .enumerate()
            .map(|(salt, comm)| scope.spawn(move || work(comm, salt)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Ok(Some(panicked()))))
            .collect()
    });
    let mut wrong = None;
    for outcome in outcomes {
        wrong = wrong.or(outcome?);
    }
    Ok(wrong)
}

/// Sums and exchanges with numbers that no other group uses.
fn work(comm: &Subject, salt: usize) -> Result<Option<Wrong>, CommError> {
    let (len, me) = (comm.size(), comm.rank());
    let mut wrong = None;
    for call in 0..CALLS {
        let value = |member: usize, at: usize| (member + 1) * 1000 + salt * 100 + call + at % 7;
        let send: Vec<i64> = (0..COUNT).map(|at| as_i64(value(me, at))).collect();
        let mut got = vec![-1_i64; COUNT];
        comm.make(&CallArgs::new(Collective::AllReduce), &send, &mut got)?;
        let sum = |at: usize| as_i64((0..len).map(|member| value(member, at)).sum());
        wrong = wrong.or_else(|| first_wrong(comm, "all_reduce", &got, sum));
        let send: Vec<i64> = (0..len * 64).map(|at| as_i64(value(me, at))).collect();
        let mut got = vec![-1_i64; len * 64];
        comm.make(&CallArgs::new(Collective::AllToAll), &send, &mut got)?;
        let block = |at: usize| as_i64(value(at / 64, me * 64 + at % 64));
        wrong = wrong.or_else(|| first_wrong(comm, "all_to_all", &got, block));
    }
    Ok(wrong)
}

fn first_wrong(
    comm: &Subject,
    call: &str,
    got: &[i64],
    expected: impl Fn(usize) -> i64,
) -> Option<Wrong> {
    let at = (0..got.len()).find(|at| got[*at] != expected(*at))?;
    Some(Wrong {
        element: Some(at as u64),
        differing: None,
        expected: expected(at).to_string(),
        got: got[at].to_string(),
        blamed: Vec::new(),
        text: format!("{call} on {} while other groups were at work", comm.name()),
    })
}

fn panicked() -> Wrong {
    Wrong {
        text: "the thread of a group panicked".to_owned(),
        ..Wrong::default()
    }
}

fn as_i64(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
