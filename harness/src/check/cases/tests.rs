//! Which cases groups are asked for.

use super::*;

fn kind(name: &str, groups: &[&[u32]]) -> KindGroups {
    KindGroups {
        kind: name.to_owned(),
        groups: groups.iter().map(|group| group.to_vec()).collect(),
    }
}

fn four_ranks() -> Catalogue {
    let kinds = vec![
        kind("dp", &[&[0, 2], &[1, 3]]),
        kind("tp", &[&[0, 1], &[2, 3]]),
        kind("ep", &[&[0, 2], &[1, 3]]),
        kind("cp", &[&[0], &[1], &[2], &[3]]),
        kind("pos_embd", &[&[0, 1]]),
    ];
    Catalogue::new(
        kinds,
        4,
        Selection {
            dtypes: &[],
            counts: &[],
            calls: &[],
        },
    )
}

#[test]
fn every_group_is_asked_for_its_membership_and_every_collective() {
    let catalogue = four_ranks();
    for (index, kind) in catalogue.kinds.iter().enumerate() {
        for group in 0..kind.groups.len() {
            let questions: Vec<Question> = catalogue
                .cases
                .iter()
                .filter(|case| case.kind == index && case.group == group)
                .map(|case| case.question)
                .collect();
            assert!(questions.contains(&Question::Membership), "{}", kind.kind);
            if kind.kind == WORLD_KIND {
                continue;
            }
            for collective in numeric() {
                assert!(
                    questions
                        .iter()
                        .any(|question| question.collective() == Some(collective)),
                    "{} lacks {collective}",
                    kind.kind
                );
            }
        }
    }
}

#[test]
fn object_gathers_are_asked_of_data_parallel_groups() {
    let catalogue = four_ranks();
    for collective in objects() {
        assert!(catalogue.cases.iter().any(|case| {
            catalogue.kinds[case.kind].kind == "dp"
                && case.question.collective() == Some(collective)
        }));
    }
}

#[test]
fn every_element_type_and_the_awkward_counts_are_covered_once_a_partition() {
    let catalogue = four_ranks();
    let of_kind = |name: &str| -> Vec<(DType, usize)> {
        catalogue
            .cases
            .iter()
            .filter(|case| catalogue.kinds[case.kind].kind == name && case.group == 0)
            .filter(|case| case.question.collective() == Some(Collective::AllReduce))
            .filter_map(|case| Some((case.question.dtype()?, case.question.count()?)))
            .collect()
    };
    let full = of_kind("dp");
    for dtype in DType::ALL {
        assert!(full.contains(&(dtype, COUNT_TYPICAL)), "{dtype}");
    }
    for count in [0, 1, 3, BYTES_LARGE / 4 + 1] {
        assert!(full.contains(&(DType::F32, count)), "{count} in {full:?}");
    }
    assert_eq!(of_kind("tp").len(), full.len());
    assert_eq!(of_kind("ep").len(), 2, "the ranks of dp were seen already");
    assert_eq!(of_kind("cp").len(), 1);
}

#[test]
fn a_choice_of_the_user_is_taken_literally() {
    let kinds = vec![
        kind("tp", &[&[0, 1]]),
        kind("dp", &[&[0, 1]]),
        kind("cp", &[&[0], &[1]]),
    ];
    let selection = Selection {
        dtypes: &[DType::I8, DType::F64],
        counts: &[3, 5],
        calls: &[],
    };
    let catalogue = Catalogue::new(kinds, 2, selection);
    for index in 0..3 {
        let asked: Vec<_> = catalogue
            .cases
            .iter()
            .filter(|case| case.kind == index && case.group == 0)
            .filter(|case| case.question.collective() == Some(Collective::AllToAll))
            .map(|case| (case.question.dtype(), case.question.count()))
            .collect();
        let expected = [
            (DType::I8, 3),
            (DType::I8, 5),
            (DType::F64, 3),
            (DType::F64, 5),
        ];
        assert_eq!(
            asked,
            expected.map(|(dtype, count)| (Some(dtype), Some(count)))
        );
    }
}

#[test]
fn a_rank_takes_part_in_the_cases_of_its_own_groups_only() {
    let catalogue = four_ranks();
    for rank in 0..4 {
        for number in catalogue.of_rank(rank) {
            assert!(catalogue.members(&catalogue.cases[number]).contains(&rank));
        }
    }
    let of_three = catalogue.of_rank(3).count();
    let of_one = catalogue.of_rank(1).count();
    assert!(
        of_three < of_one,
        "rank 3 is in no pos_embd group: {of_three} {of_one}"
    );
}
