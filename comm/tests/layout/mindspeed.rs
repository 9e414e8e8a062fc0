//! Replays the groups that MindSpeed was recorded to add.
//!
//! `tests/data/layout_mindspeed.txt` is made by `compact.py` beside it, which describes the
//! notation.

use muster_comm::layout::{
    CpAlgorithm, CpGroups, CpOptions, GroupKind, Groups, Layout, MindSpeedError,
};
use muster_comm::types::Rank;

use crate::reader::{number, runs};

const FIXTURE: &str = include_str!("../data/layout_mindspeed.txt");

#[test]
fn every_recorded_row_has_mindspeeds_groups_in_mindspeeds_sequence() {
    let (mut cp, mut tp_2d, mut ranks) = (0, 0, 0);
    let mut lines = FIXTURE
        .lines()
        .filter(|line| !line.starts_with('#'))
        .peekable();
    while let Some(line) = lines.next() {
        let words: Vec<&str> = line.split(' ').collect();
        let layout = Layout::builder()
            .world(number(words[1]))
            .tp(number(words[2]))
            .pp(number(words[3]))
            .cp(number(words[4]))
            .build()
            .unwrap();
        let log = calls(lines.next().unwrap());
        let per_rank: Vec<_> = std::iter::from_fn(|| {
            lines
                .next_if(|line| line.starts_with("rank "))
                .map(|line| line.split(' ').skip(2))
        })
        .collect();
        if words[0] == "cp" {
            cp += 1;
            let groups = layout.mindspeed_cp(&options(&words)).unwrap();
            assert_eq!(groups.creation_sequence(), log, "{line}");
            for (rank, lists) in per_rank.into_iter().enumerate() {
                ranks += 1;
                let got = lists_of(&groups, Rank::from_index(rank));
                let want: Vec<_> = lists
                    .map(|list| (list != "-").then(|| runs(list)))
                    .collect();
                assert_eq!(got.to_vec(), want, "{line} rank {rank}");
            }
        } else {
            tp_2d += 1;
            let groups = layout
                .mindspeed_tp_2d(number(words[5]), number(words[6]))
                .unwrap();
            assert_eq!(groups.creation_sequence(), log, "{line}");
            for (rank, mut lists) in per_rank.into_iter().enumerate() {
                ranks += 1;
                let got = holding(&groups.tp_y_cp, Rank::from_index(rank));
                assert_eq!(got, Some(runs(lists.next().unwrap())), "{line} rank {rank}");
            }
        }
    }
    assert_eq!((cp, tp_2d), (82, 11));
    assert!(ranks > 500, "{ranks} ranks");
}

/// The recording has no window above 2, where one place on and one place back are the same.
#[test]
fn gradients_of_keys_and_values_travel_to_the_next_window_and_one_place_on() {
    let layout = Layout::builder().world(8).cp(8).build().unwrap();
    let options = CpOptions {
        window: 4,
        ..CpOptions::default()
    };
    let routes = layout.mindspeed_cp(&options).unwrap().inter_dkv;
    let ranks = |list: [u32; 4]| list.map(Rank).to_vec();
    assert_eq!(routes, [ranks([0, 5, 2, 7]), ranks([1, 6, 3, 4])]);
}

#[test]
fn tp_extend_ep_places_experts_like_etp_1_with_a_larger_ep() {
    let layout = Layout::builder().world(16).tp(2).ep(4).build().unwrap();
    let extended = layout.mindspeed_tp_extend_ep(128).unwrap();
    assert_eq!(extended.experts_per_rank, 16);
    let same = Layout::builder()
        .world(16)
        .tp(2)
        .ep(8)
        .etp(1)
        .build()
        .unwrap();
    assert_eq!(extended.groups, same.groups(GroupKind::Ep));
}

#[test]
fn features_that_do_not_fit_are_refused_with_what_would_be_legal() {
    let layout = Layout::builder().world(16).tp(2).cp(8).build().unwrap();
    let hybrid = |ulysses_degree, window, attention_heads| CpOptions {
        algorithm: CpAlgorithm::Hybrid { ulysses_degree },
        window,
        send_recv_overlap: false,
        attention_heads,
    };
    let refused = |options| layout.mindspeed_cp(&options).unwrap_err();
    for degree in [-1, 0, 3, 8, i64::MAX, i64::MIN] {
        let error = refused(hybrid(degree, 1, None));
        assert!(
            matches!(&error, MindSpeedError::UlyssesDegree { legal, .. } if *legal == [1, 2, 4]),
            "{error}"
        );
    }
    for window in [-1, 0, 3, 4, i64::MAX] {
        let error = refused(hybrid(2, window, None));
        assert!(
            matches!(&error, MindSpeedError::Window { legal, .. } if *legal == [1, 2]),
            "{error}"
        );
    }
    for heads in [-8, 0, 6, 10] {
        let error = refused(hybrid(4, 1, Some(heads)));
        assert!(matches!(error, MindSpeedError::Heads { .. }), "{error}");
    }
    assert!(layout.mindspeed_cp(&hybrid(4, 1, Some(32))).is_ok());
    for (tp_x, tp_y) in [(0, 2), (-1, -2), (2, 2), (1, 1), (i64::MAX, 2)] {
        let error = layout.mindspeed_tp_2d(tp_x, tp_y).unwrap_err();
        assert!(
            matches!(&error, MindSpeedError::TpFactors { legal, .. } if *legal == [1, 2]),
            "{error}"
        );
    }
    let experts = Layout::builder().world(8).tp(2).ep(4).build().unwrap();
    assert_eq!(
        experts.mindspeed_tp_2d(1, 2),
        Err(MindSpeedError::Tp2dWithEp { ep: 4 })
    );
    assert_eq!(
        experts.mindspeed_cp(&CpOptions::default()),
        Err(MindSpeedError::CpNotSplit { cp: 1 })
    );
    for count in [-128, 0, 4, 100] {
        let error = experts.mindspeed_tp_extend_ep(count).unwrap_err();
        assert_eq!(
            error,
            MindSpeedError::Experts {
                experts: count,
                tp: 2,
                ep: 4
            }
        );
    }
}

#[test]
fn an_order_that_mindspeed_does_not_honour_is_refused() {
    let builder = Layout::builder().world(8).tp(2).cp(4);
    let honoured = builder.clone().order("tp-cp-pp-ep-dp").build().unwrap();
    assert!(honoured.mindspeed_cp(&CpOptions::default()).is_ok());
    let other = builder.order("cp-tp-ep-dp-pp").build().unwrap();
    let error = other.mindspeed_cp(&CpOptions::default()).unwrap_err();
    assert!(
        matches!(error, MindSpeedError::OrderNotDefault { .. }),
        "{error}"
    );
}

fn options(words: &[&str]) -> CpOptions {
    let algorithm = match words[7] {
        "megatron_cp_algo" => CpAlgorithm::Ring,
        "hybrid_cp_algo" => CpAlgorithm::Hybrid {
            ulysses_degree: number(words[5]),
        },
        other => panic!("unknown algorithm {other}"),
    };
    CpOptions {
        algorithm,
        window: number(words[6]),
        send_recv_overlap: words[8] == "1",
        attention_heads: None,
    }
}

/// The five lists that a rank keeps.
fn lists_of(groups: &CpGroups, rank: Rank) -> [Option<Vec<Rank>>; 5] {
    let dkv = groups.inter_dkv.iter().find(|route| route.contains(&rank));
    [
        groups
            .ulysses
            .as_ref()
            .and_then(|groups| holding(groups, rank)),
        groups
            .ring
            .as_ref()
            .and_then(|groups| holding(groups, rank)),
        holding(&groups.intra, rank),
        holding(&groups.inter_kv, rank),
        dkv.cloned(),
    ]
}

fn holding(groups: &Groups, rank: Rank) -> Option<Vec<Rank>> {
    let mut found = groups.iter().filter(|group| group.position(rank).is_some());
    let group = found.next()?.to_vec();
    assert!(found.next().is_none(), "rank {rank} is in two groups");
    Some(group)
}

fn calls(line: &str) -> Vec<(&str, Vec<Rank>)> {
    let mut name = "";
    line.split(' ')
        .skip(1)
        .map(|word| {
            let ranks = word.split_once('=').map_or(word, |(new_name, ranks)| {
                name = new_name;
                ranks
            });
            (name, runs(ranks))
        })
        .collect()
}
