//! The exports of the operators. Each says what its arguments are; the checks are in
//! [`super::call`].
//!
//! Common to all of them, and so not repeated: handles are any values, which are looked up and never
//! followed; buffers are any addresses, which are proved to be device memory; lists of counts and
//! displacements are host memory with one number of 64 bits for each rank.

mod exchanging;
mod gathering;
mod messages;
mod reducing;

use muster_comm::types::{Collective, ReduceOp};

use super::call::Call;
use super::fail::Answer;
use super::job::{CollectiveJob, Counts, Job};
use super::limits::Element;
use super::submit::submit;

/// A collective without reduction, to be filled in.
fn moving(collective: Collective, element: Element, root: usize, counts: Counts) -> CollectiveJob {
    CollectiveJob {
        collective,
        element,
        op: ReduceOp::Sum,
        root,
        counts,
        send: None,
        recv: None,
    }
}

fn hand_on(call: &Call, job: CollectiveJob) -> Answer {
    submit(call, Job::Collective(Box::new(job)))
}

/// A number of elements as the host backend counts them.
fn uniform(element: Element, count: usize) -> Counts {
    Counts::Uniform(count * element.parts)
}

fn in_parts(element: Element, counts: &[usize]) -> Vec<usize> {
    counts.iter().map(|count| count * element.parts).collect()
}
