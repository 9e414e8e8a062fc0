//! Random shapes through every algorithm, and random text through the table parser.

use muster_comm::algo::select::{BUILT_IN, parse_bytes};
use muster_comm::algo::{
    DefectKind, Links, Matrix, Problem, ProblemError, Table, algorithms_for, check, find, planned,
    sweep,
};
use muster_comm::types::Collective;
use proptest::prelude::*;

type Made = Result<Problem, ProblemError>;

/// A legal problem of the collective from arbitrary numbers.
fn problem(collective: Collective, n: usize, root: usize, numbers: &[usize]) -> Problem {
    let counts: Vec<usize> = (0..n).map(|i| numbers[i % numbers.len()]).collect();
    let matrix = || {
        let cells = (0..n * n).map(|i| numbers[i * 7 % numbers.len()]).collect();
        Matrix::full(n, cells)
    };
    let any: &[(Collective, &dyn Fn() -> Made)] = &[
        (Collective::AllGatherV, &|| Problem::all_gather_v(&counts)),
        (Collective::ReduceScatterV, &|| {
            Problem::reduce_scatter_v(&counts)
        }),
        (Collective::GatherV, &|| Problem::gather_v(&counts, root)),
        (Collective::ScatterV, &|| Problem::scatter_v(&counts, root)),
        (Collective::AllToAllV, &|| {
            matrix().map(Problem::all_to_all_v)
        }),
        (Collective::Reduce, &|| Problem::reduce(n, numbers[0], root)),
        (Collective::Broadcast, &|| {
            Problem::broadcast(n, numbers[0], root)
        }),
        (Collective::Gather, &|| Problem::gather(n, numbers[0], root)),
        (Collective::Scatter, &|| {
            Problem::scatter(n, numbers[0], root)
        }),
    ];
    let made = any
        .iter()
        .find(|(known, _)| *known == collective)
        .map_or_else(
            || sweep::sized(collective, n, numbers[0]),
            |(_, make)| make(),
        );
    made.expect("legal")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_algorithm_is_right_for_random_shapes(
        n in 1_usize..20,
        root in 0_usize..20,
        numbers in prop::collection::vec(prop_oneof![Just(0_usize), 0_usize..6, 0_usize..5000], 1..24),
    ) {
        for collective in planned() {
            let problem = problem(collective, n, root % n, &numbers);
            for algorithm in algorithms_for(collective) {
                let proof = sweep::prove(algorithm, &problem);
                prop_assert!(proof.is_ok(), "{collective} {} {problem:?}: {proof:?}", algorithm.name);
            }
        }
    }

    #[test]
    fn what_one_rank_knows_is_enough_for_its_plan(
        n in 1_usize..12,
        numbers in prop::collection::vec(0_usize..9, 1..30),
    ) {
        let global = problem(Collective::AllToAllV, n, 0, &numbers);
        let matrix = global.matrix().expect("it has one");
        for algorithm in algorithms_for(Collective::AllToAllV).filter(|a| a.links == Links::Message) {
            for rank in 0..n {
                let local = Matrix::local(rank, matrix.row(rank), matrix.column(rank));
                let local = Problem::all_to_all_v(local.expect("legal"));
                prop_assert_eq!(algorithm.plan(&local, rank, false), algorithm.plan(&global, rank, false));
            }
        }
    }

    #[test]
    fn no_text_makes_the_table_parser_panic(text in "\\PC{0,80}") {
        let _ = Table::with_overrides(&text);
        let _ = parse_bytes(&text);
    }

    #[test]
    fn words_of_the_grammar_in_any_order_are_read_or_refused_with_their_line(
        words in prop::collection::vec(
            prop::sample::select(vec![
                "all_reduce", "barrier", "links=direct", "links=message", "n<8", "n>=2", "bytes<64KiB",
                "bytes=", "->", "ring", "direct", "#", "\n",
            ]),
            0..30,
        ),
    ) {
        let text = words.join(" ");
        if let Err(error) = Table::with_overrides(&text) {
            prop_assert!(error.line >= 1 && error.line <= text.lines().count(), "{error} in {text:?}");
        }
    }
}

#[test]
fn the_built_in_table_written_before_itself_changes_nothing() {
    let twice = Table::with_overrides(BUILT_IN).expect("legal");
    let once = Table::built_in();
    for collective in planned() {
        for bytes in [0, 1 << 14, 1 << 22, 1 << 30] {
            for links in Links::ALL {
                let name =
                    |table: &Table| table.select(collective, bytes, 9, links).map(|a| a.name);
                assert_eq!(name(&twice), name(&once));
            }
        }
    }
}

#[test]
fn what_one_rank_knows_is_not_enough_for_a_proof() {
    let local = Matrix::local(1, vec![1, 2], vec![3, 2]).expect("legal");
    let problem = Problem::all_to_all_v(local);
    let pairwise = find(Collective::AllToAllV, "pairwise").expect("registered");
    let plan = pairwise.plan(&problem, 1, false).expect("its own plan");
    let fault = check(&problem, &[plan.clone(), plan]).expect_err("half a picture");
    assert_eq!((fault.rank, fault.kind), (1, DefectKind::PartialCounts));
}
