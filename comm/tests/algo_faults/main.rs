//! Bugs planted in good plans: the checker must name what, on which rank and in which round.

mod every;

use muster_comm::algo::check::{check_apart, check_in_place};
use muster_comm::algo::{
    Defect, DefectKind, Links, Plan, Problem, Round, Space, Span, Step, check, find,
};

fn plans(problem: &Problem, algorithm: &str) -> Vec<Plan> {
    find(problem.collective(), algorithm)
        .expect("registered")
        .plans(problem, false)
        .expect("it applies")
}

fn fault(problem: &Problem, plans: &[Plan]) -> Defect {
    let fault = check(problem, plans).expect_err("the bug is found");
    assert!(!fault.to_string().is_empty());
    fault
}

/// Rank, round and step of a fault.
fn place(fault: &Defect) -> (usize, Option<usize>, Option<usize>) {
    (fault.rank, fault.round, fault.step)
}

fn span(space: Space, start: usize, len: usize) -> Span {
    Span::new(space, start, len)
}

/// The steps of one round of one rank.
fn steps(plans: &mut [Plan], rank: usize, round: usize) -> &mut Vec<Step> {
    &mut plans[rank].rounds[round].steps
}

/// The send of a round, as (step, peer, span).
fn send_of(steps: &mut [Step]) -> (usize, &mut usize, &mut Span) {
    steps
        .iter_mut()
        .enumerate()
        .find_map(|(number, step)| {
            if let Step::Send { to, src } = step {
                return Some((number, to, src));
            }
            None
        })
        .expect("the round sends")
}

/// The place where a round receives, as (step, span).
fn recv_of(steps: &mut [Step]) -> (usize, &mut Span) {
    steps
        .iter_mut()
        .enumerate()
        .find_map(|(number, step)| {
            if let Step::Recv { dst, .. } | Step::RecvReduce { dst, .. } = step {
                return Some((number, dst));
            }
            None
        })
        .expect("the round receives")
}

#[test]
fn a_send_to_the_wrong_peer_is_named() {
    let problem = Problem::all_reduce(4, 8).expect("legal");
    let mut plans = plans(&problem, "ring");
    let (step, to, _) = send_of(steps(&mut plans, 2, 3));
    *to = 0;
    let fault = fault(&problem, &plans);
    assert_eq!(place(&fault), (2, Some(3), Some(step)));
    assert_eq!(fault.kind, DefectKind::UnmatchedSend { to: 0, len: 2 });
}

#[test]
fn a_dropped_recv_leaves_a_send_in_that_very_round() {
    let problem = Problem::all_gather(5, 3).expect("legal");
    let mut plans = plans(&problem, "ring");
    let (step, _) = recv_of(steps(&mut plans, 3, 2));
    steps(&mut plans, 3, 2).remove(step);
    let fault = fault(&problem, &plans);
    assert_eq!((fault.rank, fault.round), (2, Some(2)));
    assert_eq!(fault.kind, DefectKind::UnmatchedSend { to: 3, len: 3 });
}

#[test]
fn a_dropped_send_leaves_a_recv_in_that_very_round() {
    let problem = Problem::all_gather(5, 3).expect("legal");
    let mut plans = plans(&problem, "ring");
    let (step, _, _) = send_of(steps(&mut plans, 3, 2));
    steps(&mut plans, 3, 2).remove(step);
    let fault = fault(&problem, &plans);
    assert_eq!((fault.rank, fault.round), (4, Some(2)));
    assert_eq!(fault.kind, DefectKind::UnmatchedRecv { from: 3, len: 3 });
}

#[test]
fn a_dropped_copy_is_noticed_where_its_target_is_read() {
    let problem = Problem::all_reduce(4, 8).expect("legal");
    let mut plans = plans(&problem, "ring");
    steps(&mut plans, 1, 0).clear();
    let fault = fault(&problem, &plans);
    assert_eq!((fault.rank, fault.round), (1, Some(1)));
    assert!(matches!(
        fault.kind,
        DefectKind::Undefined {
            space: Space::Out,
            ..
        }
    ));
}

#[test]
fn messages_of_two_lengths_are_named_with_both() {
    let problem = Problem::all_to_all(4, 8).expect("legal");
    let mut plans = plans(&problem, "pairwise");
    let (_, _, src) = send_of(steps(&mut plans, 1, 2));
    src.len = 4;
    let fault = fault(&problem, &plans);
    assert_eq!((fault.rank, fault.round), (0, Some(2)));
    assert!(
        fault
            .to_string()
            .contains("recv of 8 elements from rank 1 meets a send of 4 (its round 2)"),
        "{fault}"
    );
}

#[test]
fn rounds_in_another_order_are_a_deadlock_with_its_chain() {
    let problem = Problem::all_to_all(4, 1).expect("legal");
    let mut plans = plans(&problem, "pairwise");
    plans[0].rounds.swap(0, 2);
    let fault = fault(&problem, &plans);
    assert_eq!((fault.rank, fault.round), (0, Some(0)));
    let DefectKind::Deadlock { waits } = fault.kind else {
        panic!("a deadlock, not {fault}");
    };
    assert_eq!(waits[0].at.rank, 0);
    assert!(waits.len() > 1, "{waits:?}");
    let last = waits.last().expect("there are waits");
    assert!(waits.iter().any(|wait| wait.at.rank == last.peer));
}

#[test]
fn an_exchange_done_twice_counts_a_contribution_twice() {
    let problem = Problem::all_reduce(4, 5).expect("legal");
    let mut plans = plans(&problem, "recursive_doubling");
    for plan in &mut plans {
        plan.rounds[3] = plan.rounds[1].clone();
        plan.rounds[4] = plan.rounds[2].clone();
    }
    let fault = fault(&problem, &plans);
    assert_eq!((fault.round, fault.step), (Some(4), Some(0)));
    assert_eq!(
        fault.kind,
        DefectKind::Doubled {
            contributor: 0,
            element: 0
        }
    );
}

#[test]
fn a_recv_instead_of_a_reduction_loses_contributions() {
    let problem = Problem::reduce(4, 6, 0).expect("legal");
    let mut plans = plans(&problem, "binomial_tree");
    for step in steps(&mut plans, 0, 2) {
        if let Step::RecvReduce { from, dst, .. } = *step {
            *step = Step::Recv { from, dst };
        }
    }
    let fault = fault(&problem, &plans);
    assert_eq!((fault.rank, fault.round), (0, Some(2)));
    assert_eq!(
        fault.kind,
        DefectKind::Lacks {
            element: 0,
            contributor: 0
        }
    );
}

#[test]
fn another_order_of_operands_on_one_rank_is_named() {
    let problem = Problem::all_reduce(4, 5).expect("legal");
    let mut plans = plans(&problem, "recursive_doubling");
    for step in steps(&mut plans, 3, 4) {
        if let Step::Reduce { src_first, .. } = step {
            *src_first = !*src_first;
        }
    }
    let fault = fault(&problem, &plans);
    assert_eq!(place(&fault), (3, Some(4), Some(0)));
    assert_eq!(
        fault.kind,
        DefectKind::Association {
            element: 0,
            other: 0
        }
    );
}

#[test]
fn sums_of_elements_that_do_not_belong_together_are_named() {
    let problem = Problem::all_reduce(4, 8).expect("legal");
    let mut plans = plans(&problem, "ring");
    send_of(steps(&mut plans, 1, 1)).2.start += 1;
    let fault = fault(&problem, &plans);
    assert_eq!((fault.rank, fault.round), (2, Some(1)));
    assert_eq!(fault.kind, DefectKind::Mixed { left: 1, right: 0 });
}

#[test]
fn a_block_in_the_wrong_place_is_named_with_what_should_be_there() {
    let problem = Problem::all_to_all(3, 2).expect("legal");
    let mut plans = plans(&problem, "pairwise");
    send_of(steps(&mut plans, 1, 1)).2.start = 2;
    let fault = fault(&problem, &plans);
    assert_eq!((fault.rank, fault.round), (0, Some(1)));
    assert_eq!(
        fault.kind,
        DefectKind::Wrong {
            element: 2,
            want: "element 0 of rank 1".to_owned(),
            got: "element 2 of r1".to_owned()
        }
    );
}

#[test]
fn a_block_that_never_comes_is_named() {
    let problem = Problem::all_gather(3, 2).expect("legal");
    let mut plans = plans(&problem, "direct");
    steps(&mut plans, 1, 1).retain(|step| !matches!(step, Step::Copy { .. }));
    let fault = fault(&problem, &plans);
    assert_eq!(place(&fault), (1, None, None));
    assert_eq!(fault.kind, DefectKind::Unwritten { element: 2 });
}

#[test]
fn reading_in_a_round_what_it_writes_is_a_conflict() {
    let problem = Problem::all_reduce(4, 5).expect("legal");
    let mut plans = plans(&problem, "recursive_doubling");
    // The exchange and the reduction of what it brought, in one round.
    let mut reduction = std::mem::take(steps(&mut plans, 2, 2));
    steps(&mut plans, 2, 1).append(&mut reduction);
    let fault = fault(&problem, &plans);
    assert_eq!((fault.rank, fault.round), (2, Some(1)));
    assert!(
        matches!(fault.kind, DefectKind::Conflict { element: 0, .. }),
        "{fault}"
    );
}

#[test]
fn a_step_that_reads_what_it_writes_is_named() {
    let problem = Problem::broadcast(2, 8, 0).expect("legal");
    let mut plans = plans(&problem, "binomial_tree");
    steps(&mut plans, 0, 0).push(Step::Copy {
        src: span(Space::Out, 0, 4),
        dst: span(Space::Out, 2, 4),
    });
    let fault = fault(&problem, &plans);
    assert_eq!(place(&fault), (0, Some(0), Some(1)));
    let element = 2;
    let space = Space::Out;
    assert_eq!(fault.kind, DefectKind::OwnSource { space, element });
}

#[test]
fn a_pull_of_memory_that_was_not_exposed_is_named() {
    let problem = Problem::reduce_scatter(3, 2).expect("legal");
    let mut plans = plans(&problem, "direct");
    steps(&mut plans, 2, 0).clear();
    let found = fault(&problem, &plans);
    assert_eq!(place(&found), (0, Some(1), Some(0)));
    assert_eq!(
        found.kind,
        DefectKind::Unexposed {
            peer: 2,
            space: Space::In,
            element: 0
        }
    );
    // Exposed in the round of the pull: one round too late.
    let mut plans = self::plans(&problem, "direct");
    let mut exposed = std::mem::take(steps(&mut plans, 2, 0));
    steps(&mut plans, 2, 1).append(&mut exposed);
    assert!(matches!(
        fault(&problem, &plans).kind,
        DefectKind::Unexposed { peer: 2, .. }
    ));
}

#[test]
fn memory_that_was_written_again_is_not_exposed_any_more() {
    let problem = Problem::broadcast(3, 4, 0).expect("legal");
    let mut plans = plans(&problem, "direct");
    // Rank 0 exposes, overwrites one element, and only then the others read.
    for plan in &mut plans {
        plan.rounds.insert(1, Round::default());
    }
    plans[0].scratch = 1;
    steps(&mut plans, 0, 0).push(Step::Copy {
        src: span(Space::Out, 0, 1),
        dst: span(Space::Scratch, 0, 1),
    });
    steps(&mut plans, 0, 1).push(Step::Copy {
        src: span(Space::Scratch, 0, 1),
        dst: span(Space::Out, 2, 1),
    });
    let found = fault(&problem, &plans);
    assert_eq!(place(&found), (1, Some(2), Some(0)));
    assert!(matches!(found.kind, DefectKind::Unexposed { peer: 0, .. }));
    // In the very round in which the others read.
    for plan in &mut plans {
        plan.rounds.swap(1, 2);
    }
    plans[0].rounds.swap(1, 2);
    for plan in &mut plans {
        plan.rounds.truncate(2);
    }
    let found = fault(&problem, &plans);
    assert_eq!(place(&found), (1, Some(1), Some(0)));
    assert_eq!(
        found.kind,
        DefectKind::Race {
            peer: 0,
            space: Space::Out,
            element: 2
        }
    );
}

#[test]
fn a_false_claim_to_be_right_in_place_is_found() {
    for (algorithm, n) in [("pairwise", 3), ("direct", 3)] {
        let problem = Problem::all_to_all(n, 2).expect("legal");
        let mut plans = plans(&problem, algorithm);
        check(&problem, &plans).expect("right for separate buffers");
        let refused = check_in_place(&problem, &plans).expect_err("not claimed");
        assert_eq!(refused.kind, DefectKind::NotInPlace);
        for plan in &mut plans {
            plan.in_place = true;
        }
        check_apart(&problem, &plans).expect("still right for separate buffers");
        let fault = fault(&problem, &plans);
        assert!(fault.in_place, "{fault}");
        assert!(fault.to_string().starts_with("in an in-place call: rank"));
    }
}

#[test]
fn a_barrier_that_is_a_round_short_is_no_barrier() {
    let problem = Problem::barrier(9).expect("legal");
    let mut plans = plans(&problem, "dissemination");
    for plan in &mut plans {
        plan.rounds.pop();
    }
    let fault = fault(&problem, &plans);
    assert_eq!(fault.rank, 0);
    assert_eq!(fault.kind, DefectKind::Unheard { other: 1 });
}

#[test]
fn a_message_between_rounds_of_two_numbers_is_named() {
    let problem = Problem::broadcast(2, 3, 0).expect("legal");
    let mut plans = plans(&problem, "binomial_tree");
    plans[1].rounds.insert(0, Round::default());
    let fault = fault(&problem, &plans);
    assert_eq!(place(&fault), (1, Some(1), Some(0)));
    let (peer, mine, theirs) = (0, 1, 0);
    let kind = DefectKind::RoundNumber { peer, mine, theirs };
    assert_eq!(fault.kind, kind);
}

#[test]
fn steps_that_make_no_sense_are_named() {
    let problem = Problem::all_reduce(3, 4).expect("legal");
    let good = plans(&problem, "ring");
    let input = span(Space::In, 0, 4);
    let output = span(Space::Out, 0, 4);
    let planted = |step: Step| {
        let mut plans = good.clone();
        plans[1].rounds.insert(0, Round { steps: vec![step] });
        let fault = fault(&problem, &plans);
        assert_eq!(place(&fault), (1, Some(0), Some(0)));
        fault.kind
    };
    let space = Space::In;
    assert_eq!(
        planted(Step::Send {
            to: 0,
            src: span(space, 2, 3)
        }),
        DefectKind::Bounds {
            space,
            end: 5,
            limit: 4
        }
    );
    assert_eq!(
        planted(Step::Send {
            to: 0,
            src: span(space, 2, 0)
        }),
        DefectKind::EmptySpan
    );
    for peer in [1, 3] {
        assert_eq!(
            planted(Step::Recv {
                from: peer,
                dst: output
            }),
            DefectKind::Peer { peer, n: 3 }
        );
    }
    assert_eq!(
        planted(Step::Copy {
            src: span(space, 0, 2),
            dst: output
        }),
        DefectKind::Lengths {
            read: 2,
            written: 4
        }
    );
    assert_eq!(
        planted(Step::Copy {
            src: output,
            dst: input
        }),
        DefectKind::WritesIn
    );
    assert_eq!(
        planted(Step::Expose { span: input }),
        DefectKind::Links {
            links: Links::Message
        }
    );
}

#[test]
fn plans_that_do_not_belong_together_are_named() {
    let problem = Problem::all_gather(3, 2).expect("legal");
    let direct = plans(&problem, "direct");
    let found = fault(&problem, &direct[..2]);
    assert_eq!(found.kind, DefectKind::PlanCount { got: 2, n: 3 });

    let mut longer = direct.clone();
    longer[2].rounds.push(Round::default());
    let found = fault(&problem, &longer);
    assert_eq!(found.rank, 2);
    assert_eq!(
        found.kind,
        DefectKind::Rounds {
            rounds: 3,
            first: 2
        }
    );

    let mut mixed = direct;
    mixed[1] = plans(&problem, "ring").swap_remove(1);
    assert_eq!(fault(&problem, &mixed).rank, 1);
}
