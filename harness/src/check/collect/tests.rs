//! Answers of ranks, told and collected.

use super::*;
use crate::check::cases::{KindGroups, Selection};
use crate::check::message::CaseResult;

/// The answers of four ranks in two groups that are asked about tensor parallelism.
pub(crate) fn collector() -> Collector {
    let kinds = vec![KindGroups {
        kind: "tp".to_owned(),
        groups: vec![vec![0, 1], vec![2, 3]],
    }];
    let catalogue = Catalogue::new(
        kinds,
        4,
        Selection {
            dtypes: &[],
            counts: &[5],
            calls: &[],
        },
    );
    Collector::new(catalogue, 4)
}

fn results(cases: impl IntoIterator<Item = (usize, Option<Wrong>)>) -> Vec<u8> {
    let results = cases
        .into_iter()
        .map(|(case, wrong)| CaseResult {
            case: u32::try_from(case).expect("few cases"),
            elapsed_us: 10,
            calls_us: Vec::new(),
            algo: None,
            wrong,
            refused: Vec::new(),
        })
        .collect();
    RankMessage::Results(results).encode().expect("encodes")
}

fn answer_all(collector: &mut Collector, ranks: &[u32]) {
    for rank in ranks {
        let own: Vec<usize> = collector.catalogue.of_rank(*rank).collect();
        let bytes = results(own.into_iter().map(|case| (case, None)));
        collector.take(*rank, &bytes);
    }
}

#[test]
fn a_case_passes_only_when_every_member_said_so() {
    let mut collector = collector();
    answer_all(&mut collector, &[0, 1, 2]);
    let cases = collector.report("tp2", 4);
    for case in &cases {
        assert_eq!(case.passed, !case.ranks.contains(&3), "{case:?}");
    }
    let silent = cases
        .iter()
        .find(|case| !case.passed)
        .and_then(|case| case.detail.as_ref());
    assert_eq!(
        silent.map(|detail| detail.text.as_str()),
        Some("no result from rank 3")
    );
    answer_all(&mut collector, &[3]);
    assert!(collector.report("tp2", 4).iter().all(|case| case.passed));
    let (answers, expected) = collector.progress();
    assert_eq!(answers, expected);
}

#[test]
fn one_complaint_fails_the_case_whatever_the_others_say() {
    let mut collector = collector();
    answer_all(&mut collector, &[0, 1, 2, 3]);
    let wrong = Wrong {
        element: Some(4),
        expected: "1".to_owned(),
        got: "2".to_owned(),
        blamed: vec![0, 1],
        differing: Some(3),
        text: "out of place".to_owned(),
    };
    collector.take(1, &results([(1, Some(wrong))]));
    let cases = collector.report("tp2", 4);
    let failed: Vec<_> = cases.iter().filter(|case| !case.passed).collect();
    assert_eq!(failed.len(), 1);
    let detail = failed[0].detail.as_ref().expect("a detail");
    assert_eq!(detail.blamed, [0, 1]);
    assert_eq!(
        (detail.seen_by, detail.first_wrong, detail.wrong),
        (1, Some(4), Some(3))
    );
}

#[test]
fn who_is_away_when_a_sum_comes_out_right_is_to_blame() {
    let kinds = vec![KindGroups {
        kind: "dp".to_owned(),
        groups: vec![vec![4, 5, 6]],
    }];
    let catalogue = Catalogue::new(
        kinds,
        7,
        Selection {
            dtypes: &[],
            counts: &[5],
            calls: &[],
        },
    );
    let mut collector = Collector::new(catalogue, 7);
    let number = collector
        .catalogue
        .cases
        .iter()
        .position(|case| case.question.collective() == Some(Collective::AllReduce))
        .expect("a sum");
    for rank in [4, 5, 6] {
        let wrong = Wrong {
            element: Some(1),
            ..Wrong::default()
        };
        collector.take(rank, &results([(number, Some(wrong))]));
    }
    let case = u32::try_from(number).expect("few cases");
    for (rank, absent, wrong) in [
        (4, 5, true),
        (6, 5, true),
        (5, 4, true),
        (6, 4, true),
        (4, 6, false),
    ] {
        let probe = RankMessage::Probe {
            case,
            absent,
            wrong,
        };
        collector.take(rank, &probe.encode().expect("encodes"));
    }
    let blamed = |collector: &Collector| {
        collector.report("dp3", 7)[number]
            .detail
            .as_ref()
            .expect("a detail")
            .blamed
            .clone()
    };
    assert_eq!(
        blamed(&collector),
        [0_u32; 0],
        "rank 5 has not said what it saw without rank 6"
    );
    let probe = RankMessage::Probe {
        case,
        absent: 6,
        wrong: false,
    };
    collector.take(5, &probe.encode().expect("encodes"));
    assert_eq!(blamed(&collector), [6]);
}

#[test]
fn a_rank_cannot_answer_for_others_nor_upset_the_launcher() {
    let mut collector = collector();
    let foreign = collector.catalogue.of_rank(3).find(|number| {
        !collector
            .catalogue
            .members(&collector.catalogue.cases[*number])
            .contains(&0)
    });
    collector.take(
        0,
        &results([(foreign.expect("a case without rank 0"), None)]),
    );
    assert!(collector.ranks()[0].garbled.is_some());
    collector.take(
        1,
        &results([(usize::try_from(u32::MAX).expect("fits"), None)]),
    );
    collector.take(2, &[0xff; 40]);
    assert!(collector.ranks()[2].garbled.is_some());
    collector.take(77, &results([(0, None)]));
    assert_eq!(collector.progress().0, 0);
}
