//! Properties that hold for every layout, and refusals that hold for every nonsense.
//!
//! A failing case prints its smallest input, which is all that is needed to run it again.

use std::collections::HashSet;

use muster_comm::layout::{
    Axis, AxisSet, CpAlgorithm, CpOptions, Grid, GroupKind, Layout, LayoutBuilder, LayoutError,
    Matrix, MegatronVersion, Part, SequenceOptions, Sizes,
};
use muster_comm::types::{MAX_WORLD_SIZE, Rank};
use proptest::prelude::*;

const CASES: u32 = 256;

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: CASES,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

fn any_order() -> impl Strategy<Value = String> {
    Just(Axis::ALL.map(Axis::name).to_vec())
        .prop_shuffle()
        .prop_map(|axes| axes.join("-"))
}

/// Sizes of a layout that is legal in any order that ends in pp.
fn any_layout() -> impl Strategy<Value = Layout> {
    let sizes = (1..5_i64, 1..4_i64, 1..4_i64, 1..4_i64, 1..4_i64);
    let experts = (1..4_i64, 1..5_i64);
    let order = any_order().prop_map(|order| {
        let front = order.replace("pp", "").replace("--", "-");
        format!("{}-pp", front.trim_matches('-'))
    });
    (sizes, experts, order, 0..100_i64).prop_map(|(sizes, (ep, etp), order, offset)| {
        let (tp, cp, pp, dp, _) = sizes;
        Layout::builder()
            .world(tp * cp * pp * dp * ep * etp)
            .tp(tp)
            .cp(cp)
            .pp(pp)
            .ep(ep)
            .etp(etp)
            .order(order)
            .rank_offset(offset)
            .build()
            .expect("the world is a multiple of both products")
    })
}

/// Mostly sizes near what is legal, sometimes anything at all.
fn any_size() -> impl Strategy<Value = i64> {
    prop_oneof![4 => -2..10_i64, 1 => any::<i64>(), 1 => Just(i64::from(MAX_WORLD_SIZE))]
}

fn any_text() -> impl Strategy<Value = String> {
    let words = "(tp|cp|ep|dp|pp|etp|TP|xx|-|_|@|=|[0-9]{1,22}|x|,| |é){0,12}";
    prop_oneof![words, any::<String>()]
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_kind_is_a_partition_or_leaves_out_inner_stages(layout in any_layout()) {
        for kind in GroupKind::ALL {
            let groups = layout.groups(kind);
            let members: Vec<Rank> = groups.iter().flat_map(|group| group.to_vec()).collect();
            let distinct: HashSet<Rank> = members.iter().copied().collect();
            prop_assert_eq!(distinct.len(), members.len(), "{} overlaps", kind);
            let expected: HashSet<Rank> = layout
                .ranks()
                .filter(|rank| {
                    let stage = layout.coordinates(Part::Dense, *rank).unwrap().pp;
                    let last = stage == layout.dims().pp - 1;
                    kind.covers_all_ranks() || stage == 0 || (kind == GroupKind::Embd && last)
                })
                .collect();
            prop_assert_eq!(distinct, expected, "{}", kind);
            let firsts: Vec<_> = groups.iter().map(|group| group.get(0)).collect();
            prop_assert!(firsts.is_sorted(), "{} is not listed by lowest member", kind);
            prop_assert!(groups.iter().all(|group| group.iter().is_sorted()), "{}", kind);
        }
    }

    #[test]
    fn the_group_of_a_rank_is_the_one_in_the_list(layout in any_layout()) {
        for kind in GroupKind::ALL {
            let groups = layout.groups(kind);
            for rank in layout.ranks() {
                let listed = groups.iter().find(|group| group.position(rank).is_some());
                let direct = layout.group_of(kind, rank);
                prop_assert_eq!(direct, listed.map(|group| group.to_vec()));
                let index = layout.group_index(kind, rank);
                prop_assert_eq!(index.and_then(|index| groups.get(index)), listed);
            }
            let outside = Rank(layout.rank_offset() + layout.world_size());
            prop_assert_eq!(layout.group_of(kind, outside), None);
            prop_assert_eq!(layout.group_index(kind, outside), None);
        }
    }

    #[test]
    fn coordinates_and_ranks_are_each_others_inverse(layout in any_layout()) {
        for part in [Part::Dense, Part::Expert] {
            let mut seen = HashSet::new();
            for rank in layout.ranks() {
                let coordinates = layout.coordinates(part, rank).unwrap();
                prop_assert!(seen.insert(coordinates));
                prop_assert_eq!(layout.rank_at(part, coordinates), Some(rank));
                for axis in Axis::ALL {
                    prop_assert!(coordinates.of(axis) < layout.grid(part).size(axis));
                }
            }
        }
    }

    #[test]
    fn members_of_a_group_differ_in_its_axes_and_agree_in_all_others(
        layout in any_layout(),
        chosen in proptest::collection::vec(0..5_usize, 1..5),
    ) {
        let axes: Vec<Axis> = chosen.iter().map(|index| Axis::ALL[*index]).collect();
        let set = AxisSet::of(&axes);
        for part in [Part::Dense, Part::Expert] {
            let grid = layout.grid(part);
            let size: u32 = Axis::ALL
                .into_iter()
                .filter(|axis| set.contains(*axis))
                .map(|axis| grid.size(axis))
                .product();
            for group in grid.groups(set).iter() {
                prop_assert_eq!(group.len().to_string(), size.to_string());
                let first = grid.coordinates(group.get(0).unwrap()).unwrap();
                for rank in group.iter() {
                    let here = grid.coordinates(rank).unwrap();
                    for axis in Axis::ALL.into_iter().filter(|axis| !set.contains(*axis)) {
                        prop_assert_eq!(here.of(axis), first.of(axis));
                    }
                }
            }
        }
    }

    #[test]
    fn an_offset_only_moves_the_groups(layout in any_layout()) {
        let dims = layout.dims();
        let at_zero = Layout::builder()
            .world(dims.world)
            .tp(dims.tp)
            .cp(dims.cp)
            .pp(dims.pp)
            .ep(dims.ep)
            .etp(dims.etp)
            .order(layout.order())
            .build()
            .unwrap();
        for kind in GroupKind::ALL {
            let moved = at_zero.groups(kind).to_vecs().into_iter().map(|group| {
                let shift = |rank: Rank| Rank(rank.0 + layout.rank_offset());
                group.into_iter().map(shift).collect::<Vec<_>>()
            });
            prop_assert!(layout.groups(kind).to_vecs().into_iter().eq(moved), "{}", kind);
        }
    }

    #[test]
    fn an_axis_of_size_1_may_stand_anywhere_or_be_left_out(
        tp in 1..4_i64, dp in 1..4_i64, place in 0..3_usize,
    ) {
        let build = |order: &str| {
            let layout = Layout::builder().world(tp * dp).tp(tp).order(order).build().unwrap();
            GroupKind::ALL.map(|kind| layout.groups(kind))
        };
        let mut axes = vec!["tp", "dp", "pp"];
        axes.insert(place, "cp");
        prop_assert_eq!(build(&axes.join("-")), build("tp-dp"));
    }

    #[test]
    fn no_sizes_and_no_order_can_panic(
        sizes in proptest::array::uniform5(any_size()),
        world in any_size(),
        optional in proptest::array::uniform4(proptest::option::weighted(0.3, any_size())),
        order in prop_oneof![any_order(), any_text()],
    ) {
        let [tp, cp, pp, ep, _] = sizes;
        let [etp, dp, offset, virtual_pp] = optional;
        let mut builder = Layout::builder().world(world).tp(tp).cp(cp).pp(pp).ep(ep).order(order);
        if let Some(etp) = etp {
            builder = builder.etp(etp);
        }
        if let Some(dp) = dp {
            builder = builder.dp(dp);
        }
        if let Some(offset) = offset {
            builder = builder.rank_offset(offset);
        }
        if let Some(chunks) = virtual_pp {
            builder = builder.virtual_pp(chunks);
        }
        match builder.build() {
            Ok(layout) => {
                prop_assert!([world, tp, cp, pp, ep].iter().all(|size| *size > 0));
                let dims = layout.dims();
                prop_assert_eq!(dims.tp * dims.cp * dims.pp * dims.dp, dims.world);
                prop_assert_eq!(dims.etp * dims.ep * dims.pp * dims.edp, dims.world);
            }
            Err(error) => {
                let text = error.to_string();
                prop_assert!(text.len() < 1000, "{}", text);
                prop_assert!(!text.contains('\n'));
            }
        }
    }

    #[test]
    fn no_grid_can_panic(
        sizes in proptest::array::uniform5(any_size()), offset in any_size(), order in any_order(),
    ) {
        let [tp, cp, ep, dp, pp] = sizes;
        let sizes = Sizes { tp, cp, ep, dp, pp };
        if let Ok(grid) = Grid::new(Part::Dense, sizes, &order, offset) {
            let last = Rank(grid.rank_offset() + grid.world_size() - 1);
            prop_assert_eq!(grid.coordinates(last).and_then(|c| grid.rank_at(c)), Some(last));
        }
    }

    #[test]
    fn no_optional_feature_can_panic(
        layout in any_layout(),
        levels in proptest::collection::vec(any_size(), 0..4),
        instances in any_size(),
        sizes in proptest::array::uniform4(any_size()),
    ) {
        for version in MegatronVersion::ALL {
            let options = SequenceOptions {
                gloo: true,
                hierarchical_cp: levels.clone(),
                optimizer_instances: instances,
            };
            if let Err(error) = layout.creation_sequence(version, &options) {
                prop_assert!(!matches!(error, LayoutError::WorldNotGiven));
            }
        }
        let [ulysses_degree, window, heads, experts] = sizes;
        let options = CpOptions {
            algorithm: CpAlgorithm::Hybrid { ulysses_degree },
            window,
            send_recv_overlap: true,
            attention_heads: Some(heads),
        };
        if let Ok(groups) = layout.mindspeed_cp(&options) {
            let routes: HashSet<Rank> = groups.inter_dkv.concat().into_iter().collect();
            prop_assert_eq!(routes, layout.ranks().collect());
        }
        let _ = layout.mindspeed_tp_2d(heads, window).map_err(|error| error.to_string());
        let _ = layout.mindspeed_tp_extend_ep(experts).map_err(|error| error.to_string());
    }

    #[test]
    fn no_text_can_panic_the_matrix_reader_and_what_it_reads_it_writes(text in any_text()) {
        match text.parse::<Matrix>() {
            Ok(matrix) => {
                prop_assert_eq!(matrix.to_string().parse::<Matrix>(), Ok(matrix.clone()));
                prop_assert_eq!(matrix.layout().unwrap().world_size(), matrix.world_size());
            }
            Err(error) => prop_assert!(!error.to_string().contains('\n')),
        }
    }

    #[test]
    fn a_matrix_reads_back_whatever_its_sizes(
        sizes in proptest::array::uniform4(1..5_u32), etp in proptest::option::of(1..4_u32),
    ) {
        let [tp, cp, pp, ep] = sizes;
        let etp = etp.map_or_else(String::new, |etp| format!("etp{etp}"));
        let text = format!("ep{ep}x{etp}pp{pp},cp={cp}-TP{tp}");
        let matrix: Matrix = text.parse().unwrap();
        let dims = matrix.layout().unwrap().dims();
        prop_assert_eq!([dims.tp, dims.cp, dims.pp, dims.ep], sizes);
        prop_assert_eq!(matrix.to_string().parse::<Matrix>(), Ok(matrix));
    }
}

/// The recorded hand-made calls that a table of legal and refused configurations cannot hold.
#[test]
fn what_megatron_wrongly_accepts_is_refused() {
    let rule = |builder: LayoutBuilder| match builder.build() {
        Ok(_) => "accepted",
        Err(error) => error.rule(),
    };
    let eight = || Layout::builder().world(8);
    assert_eq!(rule(eight().tp(-1)), "size_not_positive");
    assert_eq!(rule(eight().tp(-2).pp(-2)), "size_not_positive");
    assert_eq!(rule(eight().ep(-1)), "size_not_positive");
    assert_eq!(rule(eight().etp(-1)), "size_not_positive");
    assert_eq!(rule(eight().etp(0)), "zero_size");
    assert_eq!(
        rule(eight().tp(2).order("tp-tp-cp-ep-dp-pp")),
        "order_axis_twice"
    );
    assert_eq!(rule(eight().order("tp-tp-cp-ep-dp-pp")), "order_axis_twice");
    assert_eq!(rule(eight().order("tp-dp-dp-pp")), "order_axis_twice");
    assert_eq!(rule(Layout::builder()), "world_not_given");
    let cp4 = eight().cp(4).build().unwrap();
    for levels in [vec![2, 4], vec![2, 1], vec![3, 1], vec![-2, -2], vec![0]] {
        let options = SequenceOptions {
            hierarchical_cp: levels.clone(),
            ..SequenceOptions::default()
        };
        for version in MegatronVersion::ALL {
            assert!(
                cp4.creation_sequence(version, &options).is_err(),
                "{levels:?}"
            );
        }
    }
}

/// Refusals that no size causes, with the rule that Megatron was recorded to apply.
#[test]
fn hand_made_refusals_are_refused_for_megatrons_rule() {
    let rule = |world: i64, order: &str| {
        let error = Layout::builder()
            .world(world)
            .order(order)
            .build()
            .unwrap_err();
        error.rule()
    };
    assert_eq!(rule(8, "tp-cp-ep-dp-pp-xx"), "order_unknown_axis");
    assert_eq!(rule(8, "tp-cp-ep-ddp-pp"), "order_unknown_axis");
    assert_eq!(rule(8, "tp_cp_ep_dp_pp"), "order_unknown_axis");
    assert_eq!(rule(8, "tp - cp - ep - dp - pp"), "order_unknown_axis");
    assert_eq!(rule(1, ""), "order_unknown_axis");
    assert_eq!(rule(2, ""), "order_misses_axis");
    let capitals = "TP-CP-EP-DP-PP";
    let pp2 = || Layout::builder().world(8).tp(2).pp(2).order(capitals);
    assert!(
        Layout::builder()
            .world(8)
            .tp(2)
            .order(capitals)
            .build()
            .is_ok()
    );
    assert!(pp2().build().is_ok());
    let refused = pp2().ep(2).build().unwrap_err();
    assert_eq!(refused.rule(), "not_pp_last_and_dp_differs");
    assert!(refused.to_string().contains("lower case"), "{refused}");
    let virtual_pp = Layout::builder()
        .world(8)
        .virtual_pp(2)
        .build()
        .unwrap_err();
    assert_eq!(virtual_pp.rule(), "virtual_pp_needs_pp");
    let both = Layout::builder().world(8).tp(3).ep(3).build().unwrap_err();
    assert_eq!(both.rule(), "world_not_divisible_by_dense");
}

#[test]
fn a_refusal_names_the_axis_the_numbers_and_what_would_be_legal() {
    let message = |builder: LayoutBuilder| builder.build().expect_err("illegal").to_string();
    assert_eq!(
        message(Layout::builder().world(8).tp(3)),
        "tp=3 does not divide 8: world_size 8 divided by cp=1 * pp=1 is 8; legal tp: 1, 2, 4, 8"
    );
    assert_eq!(
        message(Layout::builder().world(8).tp(2).cp(3)),
        "cp=3 does not divide 4: world_size 8 divided by tp=2 * pp=1 is 4; legal cp: 1, 2, 4"
    );
    assert_eq!(
        message(Layout::builder().world(8).tp(3).cp(5)),
        "world_size 8 is not divisible by tp*cp*pp = 3*5*1; legal products: 1, 2, 4, 8"
    );
    assert_eq!(
        message(Layout::builder().world(8).tp(2).ep(8)),
        "ep=8 does not divide 4: world_size 8 divided by etp=2 * pp=1 is 4; legal ep: 1, 2, 4; \
         etp was not given and is tp; with etp=1 legal ep: 1, 2, 4, 8"
    );
    assert_eq!(
        message(Layout::builder().world(8).ep(2).order("tp-cp-dp-pp")),
        "order \"tp-cp-dp-pp\" leaves out ep=2 (expert part); only an axis of size 1 may be left out"
    );
    assert_eq!(
        message(Layout::builder().world(i64::from(MAX_WORLD_SIZE) + 1)),
        "world_size 16777217 is above the limit of 16777216 ranks"
    );
}

/// A list costs memory for its groups and one group's members, so even a huge world is cheap.
#[test]
fn the_largest_world_yields_every_kind() {
    let world = i64::from(MAX_WORLD_SIZE);
    let layout = Layout::builder()
        .world(world)
        .tp(8)
        .cp(16)
        .pp(16)
        .ep(64)
        .build()
        .unwrap();
    for kind in GroupKind::ALL {
        let groups = layout.groups(kind);
        let last = Rank(MAX_WORLD_SIZE - 1);
        let index = layout.group_index(kind, last);
        let group = index.and_then(|index| groups.get(index));
        assert_eq!(
            group.map(|group| group.to_vec()),
            layout.group_of(kind, last),
            "{kind}"
        );
    }
}
