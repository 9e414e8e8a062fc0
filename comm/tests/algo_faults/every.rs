//! No step and no span of any plan is there in vain: without it the checker objects.

use muster_comm::algo::{Problem, Span, Step, algorithms_for, check, planned, sweep};

use crate::steps;

/// Hosts of the ranks: two even ones of the first four, uneven ones of five.
const HOSTS: [u32; 5] = [0, 1, 1, 0, 1];

#[test]
fn no_step_of_any_plan_can_be_left_out() {
    let n = 5;
    let mut dropped = 0;
    for collective in planned() {
        let problems = sweep::problems(collective, n).expect("legal");
        let spread = |problem: &Problem| problem.clone().with_hosts(HOSTS[..n].into());
        let spread: Vec<Problem> = problems.iter().map(spread).collect();
        for problem in problems.into_iter().chain(spread) {
            for algorithm in algorithms_for(collective) {
                let good = algorithm.plans(&problem, false).expect("it applies");
                for rank in 0..n {
                    for round in 0..good[rank].rounds.len() {
                        for step in 0..good[rank].rounds[round].steps.len() {
                            let mut plans = good.clone();
                            steps(&mut plans, rank, round).remove(step);
                            assert!(
                                check(&problem, &plans).is_err(),
                                "{} without rank {rank} round {round} step {step}: {problem:?}",
                                algorithm.name
                            );
                            dropped += 1;
                        }
                    }
                }
            }
        }
    }
    assert!(dropped > 4000, "{dropped} steps");
}

#[test]
fn no_span_of_any_plan_can_be_moved_or_cut() {
    let n = 4;
    let mut moved = 0;
    for collective in planned() {
        let problems = sweep::problems(collective, n).expect("legal");
        let spread = |problem: &Problem| problem.clone().with_hosts(HOSTS[..n].into());
        let spread: Vec<Problem> = problems.iter().map(spread).collect();
        for problem in problems.into_iter().chain(spread) {
            for algorithm in algorithms_for(collective) {
                let good = algorithm.plans(&problem, false).expect("it applies");
                for rank in 0..n {
                    for round in 0..good[rank].rounds.len() {
                        for step in 0..good[rank].rounds[round].steps.len() {
                            for bend in [bend_start, bend_len] {
                                let mut plans = good.clone();
                                let what = &mut steps(&mut plans, rank, round)[step];
                                // Barrier tokens may lie anywhere, and more may be exposed.
                                if matches!(what, Step::Expose { .. })
                                    || problem.elements() == Some(0)
                                {
                                    continue;
                                }
                                bend(what);
                                assert!(
                                    check(&problem, &plans).is_err(),
                                    "{} rank {rank} round {round} step {step} {:?}: {problem:?}",
                                    algorithm.name,
                                    plans[rank].rounds[round].steps[step]
                                );
                                moved += 1;
                            }
                        }
                    }
                }
            }
        }
    }
    assert!(moved > 3000, "{moved} spans");
}

/// The span that a step reads, or the one that it writes if it reads none.
fn first_span(step: &mut Step) -> &mut Span {
    match step {
        Step::Copy { src, .. } | Step::Reduce { src, .. } | Step::Send { src, .. } => src,
        Step::Recv { dst, .. } | Step::RecvReduce { dst, .. } => dst,
        Step::Expose { span } => span,
        Step::Pull { src, .. } => &mut src.span,
        Step::PullReduce { srcs, .. } => &mut srcs[0].span,
    }
}

fn bend_start(step: &mut Step) {
    first_span(step).start += 1;
}

fn bend_len(step: &mut Step) {
    first_span(step).len -= 1;
}
