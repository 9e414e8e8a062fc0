//! Cases and summaries for tests.

use super::model::{Case, Detail, GroupCount, MatrixSummary, Outcome};

pub(crate) fn case(passed: bool) -> Case {
    Case {
        matrix: "tp2ep4".to_owned(),
        world_size: 8,
        group: "ep".to_owned(),
        ranks: vec![0, 2, 4, 6],
        check: "collective".to_owned(),
        collective: Some("all_reduce".to_owned()),
        dtype: Some("f32".to_owned()),
        count: Some(1000),
        passed,
        elapsed_us: 12,
        detail: None,
        algo: None,
    }
}

pub(crate) fn wrong(blamed: &[u32]) -> Case {
    let mut case = case(false);
    case.detail = Some(Detail {
        blamed: blamed.to_vec(),
        seen_by: 2,
        seen_by_all: vec![2],
        first_wrong: Some(17),
        expected: Some("3".to_owned()),
        got: Some("4".to_owned()),
        wrong: Some(1),
        text: "element 17 is 4, expected 3, seen by rank 2".to_owned(),
    });
    case
}

pub(crate) fn summary(outcome: Outcome) -> MatrixSummary {
    MatrixSummary {
        matrix: "tp2ep4".to_owned(),
        world_size: 8,
        tp: 2,
        ep: 4,
        dp: 4,
        cp: 1,
        pp: 1,
        etp: 2,
        groups: vec![GroupCount {
            kind: "tp".to_owned(),
            count: 4,
        }],
        cases: 2,
        cases_passed: 2,
        elapsed_us: 1_500_000,
        bring_up_us: Some(40_000),
        outcome,
        reason: None,
        waits_us: Vec::new(),
    }
}
