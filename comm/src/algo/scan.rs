//! Prefix reductions: rank `r` gets the reduction of ranks 0 to `r`, or of those before it.
//!
//! All of them combine strictly in the order of the ranks, `((0 op 1) op 2) op …`, so that every way gives the same bits.

use super::builder::{Builder, input, of_peer, output, scratch};
use super::plan::{Plan, Span};
use super::problem::Problem;

/// Elements of a segment on its way down the chain: long enough for a message to be worth its latency.
const SEGMENT: usize = 1 << 16;
/// Most segments, so that the plan of a long vector stays short.
const SEGMENTS_MAX: usize = 64;

/// Over shared memory: each rank reduces what its predecessors have. The send buffer is copied first, so that the rank
/// may overwrite it while others still read.
pub(super) fn direct(problem: &Problem, rank: usize) -> Plan {
    let count = problem.whole_count();
    let mut plan = Builder::new();
    let is_last = rank + 1 == problem.n();
    let contributors = problem.pattern().contributors(problem.n(), rank);
    if !is_last || contributors.contains(&rank) {
        plan.copy(input(0, count), scratch(0, count));
    }
    // Nobody reads what the last rank has but itself.
    if !is_last {
        plan.expose(scratch(0, count));
    }
    plan.end_round();
    let sources: Vec<_> = contributors
        .map(|peer| of_peer(peer, scratch(0, count)))
        .collect();
    if !sources.is_empty() {
        plan.pull_reduce(sources, output(0, count));
    }
    plan.end_round();
    plan.direct_plan(count, true)
}

/// By messages: each rank gets the result of the rank before it, adds its own elements, and hands that on, segment after
/// segment. A message has one round on both sides, so a rank begins so many rounds after the first one as it is away.
pub(super) fn linear(problem: &Problem, rank: usize) -> Plan {
    let (n, count) = (problem.n(), problem.whole_count());
    let with_own = problem.pattern().contributors(n, rank).contains(&rank);
    let segments = Segments {
        count,
        len: SEGMENT.max(count.div_ceil(SEGMENTS_MAX)),
    };
    // What is handed on is the result, or apart from it where the own elements are not part of that: then they are added
    // in a round of their own.
    let (handed, hop): (fn(usize, usize) -> Span, _) =
        if with_own { (output, 1) } else { (scratch, 2) };
    let is_last = rank + 1 == n;
    let mut plan = Builder::new();
    if with_own || !is_last {
        plan.copy(input(0, count), handed(0, count));
    }
    plan.end_round();
    let hops = if is_last { rank - 1 } else { rank };
    for round in 0..hops * hop + segments.number() {
        // The segment that is so many rounds old.
        let segment = |delay: usize| {
            let at = round.checked_sub(delay)?;
            (at < segments.number()).then_some(at)
        };
        let received = rank.checked_sub(1).map(|before| before * hop);
        if let Some(at) = received.and_then(segment) {
            if with_own {
                plan.recv_reduce(rank - 1, segments.span(at, handed), true);
            } else {
                plan.recv(rank - 1, segments.span(at, output));
            }
        }
        let added = received.filter(|_| !with_own && !is_last);
        if let Some(at) = added.and_then(|received| segment(received + 1)) {
            plan.reduce(segments.span(at, output), segments.span(at, handed), true);
        }
        if let Some(at) = segment(rank * hop).filter(|_| !is_last) {
            plan.send(rank + 1, segments.span(at, handed));
        }
        plan.end_round();
    }
    let scratch_len = if with_own || is_last { 0 } else { count };
    plan.message_plan(scratch_len, true)
}

/// A vector in segments.
#[derive(Clone, Copy)]
struct Segments {
    count: usize,
    len: usize,
}

impl Segments {
    fn number(self) -> usize {
        self.count.div_ceil(self.len)
    }

    fn span(self, at: usize, space: fn(usize, usize) -> Span) -> Span {
        let start = at * self.len;
        space(start, self.len.min(self.count - start))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{check, find, sweep};
    use super::*;
    use crate::types::Collective;

    /// The sweep has few elements; these are several segments, the last one short.
    #[test]
    fn a_long_vector_goes_down_the_chain_in_segments() {
        for collective in [Collective::Scan, Collective::ExclusiveScan] {
            let linear = find(collective, "linear").expect("registered");
            for (n, count) in [
                (2, 2 * SEGMENT),
                (5, 3 * SEGMENT + 1),
                (3, 100 * SEGMENT + 7),
            ] {
                let problem = Problem::uniform(collective, n, count, 0).expect("legal");
                let proof = sweep::prove(linear, &problem).expect("right");
                let segments = count.div_ceil(SEGMENT).min(SEGMENTS_MAX);
                assert_eq!(
                    proof.messages,
                    (n - 1) * segments,
                    "{collective} {n} {count}"
                );
            }
        }
    }

    #[test]
    fn a_prefix_in_another_order_is_no_result() {
        let problem = Problem::uniform(Collective::Scan, 3, 4, 0).expect("legal");
        let linear = find(Collective::Scan, "linear").expect("registered");
        let mut plans = linear.plans(&problem, false).expect("plans");
        check(&problem, &plans).expect("right");
        for round in &mut plans[1].rounds {
            for step in &mut round.steps {
                if let super::super::Step::RecvReduce { recv_first, .. } = step {
                    *recv_first = false;
                }
            }
        }
        let fault = check(&problem, &plans).expect_err("1 before 0");
        assert_eq!(fault.rank, 1);
        assert!(fault.to_string().contains("in rank order"), "{fault}");
    }
}
