//! Makes a plan right for in-place calls that it does not allow by itself.
//!
//! The send buffer is copied to the front of scratch in a round of its own, and every later step
//! reads the copy, also on peers. So for direct plans all ranks must stage, or none; plans of messages
//! may differ in it from rank to rank.

use super::plan::{PeerSpan, Plan, Round, Space, Span, Step};
use super::problem::Problem;

/// `plan`, reading a copy of the send buffer.
pub(super) fn staged(problem: &Problem, rank: usize, plan: Plan) -> Plan {
    let own_len = problem.in_len(rank);
    let mut first = Round::default();
    if own_len > 0 {
        first.steps.push(Step::Copy {
            src: Span::new(Space::In, 0, own_len),
            dst: Span::new(Space::Scratch, 0, own_len),
        });
    }
    let mut rounds = vec![first];
    rounds.extend(plan.rounds.into_iter().map(|round| {
        Round {
            steps: round
                .steps
                .into_iter()
                .map(|step| moved(problem, own_len, step))
                .collect(),
        }
    }));
    Plan {
        rounds,
        scratch: plan.scratch + own_len,
        in_place: true,
        links: plan.links,
        staged: true,
    }
}

fn moved(problem: &Problem, own_len: usize, step: Step) -> Step {
    let own = |span| staged_span(own_len, span);
    let theirs = |src: PeerSpan| PeerSpan {
        peer: src.peer,
        span: staged_span(problem.in_len(src.peer), src.span),
    };
    match step {
        Step::Copy { src, dst } => Step::Copy {
            src: own(src),
            dst: own(dst),
        },
        Step::Reduce {
            src,
            dst,
            src_first,
        } => Step::Reduce {
            src: own(src),
            dst: own(dst),
            src_first,
        },
        Step::Send { to, src } => Step::Send { to, src: own(src) },
        Step::Recv { from, dst } => Step::Recv {
            from,
            dst: own(dst),
        },
        Step::RecvReduce {
            from,
            dst,
            recv_first,
        } => Step::RecvReduce {
            from,
            dst: own(dst),
            recv_first,
        },
        Step::Expose { span } => Step::Expose { span: own(span) },
        Step::Pull { src, dst } => Step::Pull {
            src: theirs(src),
            dst: own(dst),
        },
        Step::PullReduce { srcs, dst } => Step::PullReduce {
            srcs: srcs.into_iter().map(theirs).collect(),
            dst: own(dst),
        },
    }
}

/// Where a span of a rank with `in_len` elements to send lies when that rank stages.
fn staged_span(in_len: usize, span: Span) -> Span {
    match span.space {
        Space::In => Span::new(Space::Scratch, span.start, span.len),
        Space::Out => span,
        Space::Scratch => Span::new(Space::Scratch, span.start + in_len, span.len),
    }
}
