//! Replays groups recorded from Megatron-LM itself: every legal configuration with its partitions,
//! every refusal with its rule, every axis set, and the optional features.
//!
//! `tests/data/layout_megatron.txt` is made by `compact.py` beside it, which describes the notation.

use std::collections::HashMap;

use muster_comm::layout::{
    Axis, AxisSet, Grid, GroupBackend, GroupKind, GroupTimeout, Groups, Layout, LayoutError,
    MegatronVersion, NewGroup, Part, SequenceOptions, Sizes,
};
use muster_comm::types::Rank;

use crate::reader::{number, optional, runs, sections, shape, table_row};

const FIXTURE: &str = include_str!("../data/layout_megatron.txt");

/// Counts that the fixture must hold: a truncated fixture would otherwise pass.
const RECORDS: usize = 22_483;
const REJECTED: usize = 13_489;
const COMBOS: usize = 2_436;
const DENSE_KINDS: usize = 11;

struct Fixture {
    sections: HashMap<&'static str, Vec<&'static str>>,
    orders: Vec<&'static str>,
    partitions: Vec<Vec<Vec<Rank>>>,
}

impl Fixture {
    fn read() -> Self {
        let sections = sections(FIXTURE);
        let partitions = sections["partitions"]
            .iter()
            .map(|line| shape(line))
            .collect();
        Self {
            orders: sections["orders"].clone(),
            partitions,
            sections,
        }
    }

    fn table(&self, name: &str) -> Vec<Vec<usize>> {
        self.sections[name]
            .iter()
            .map(|line| table_row(line))
            .collect()
    }

    /// Lines of `key... value:orders value:orders`, as (key, value, order).
    fn by_order(
        &self,
        name: &str,
        keys: usize,
    ) -> impl Iterator<Item = (Vec<&'static str>, &'static str, &'static str)> + '_ {
        self.sections[name].iter().flat_map(move |line| {
            let words: Vec<&'static str> = line.split(' ').collect();
            let (key, values) = words.split_at(keys);
            let key = key.to_vec();
            let entries: Vec<_> = values
                .iter()
                .flat_map(|entry| {
                    let (value, orders) = entry.split_once(':').expect("value:orders");
                    runs(orders)
                        .into_iter()
                        .map(move |order| (value, self.orders[order.index()]))
                        .collect::<Vec<_>>()
                })
                .collect();
            entries
                .into_iter()
                .map(move |(value, order)| (key.clone(), value, order))
        })
    }
}

fn layout(key: &[&str], order: &str) -> Result<Layout, LayoutError> {
    let builder = Layout::builder()
        .world(number(key[0]))
        .tp(number(key[1]))
        .pp(number(key[2]))
        .cp(number(key[3]))
        .ep(number(key[4]))
        .order(order);
    match optional(key[5]) {
        Some(etp) => builder.etp(etp).build(),
        None => builder.build(),
    }
}

#[test]
fn every_recorded_configuration_has_megatrons_groups_in_megatrons_sequence() {
    let fixture = Fixture::read();
    let (dense, expert) = (fixture.table("dense"), fixture.table("expert"));
    let mut count = 0;
    for (key, value, order) in fixture.by_order("records", 8) {
        count += 1;
        let layout = layout(&key, order).unwrap_or_else(|error| panic!("{key:?} {order}: {error}"));
        assert_eq!(
            i64::from(layout.dims().dp),
            number(key[6]),
            "{key:?} {order}"
        );
        assert_eq!(
            i64::from(layout.dims().edp),
            number(key[7]),
            "{key:?} {order}"
        );
        let (dense_row, expert_row) = value.split_once('.').expect("dense.expert");
        let (dense_row, expert_row) = (number(dense_row), number(expert_row));
        let row = dense[usize::try_from(dense_row).unwrap()]
            .iter()
            .chain(&expert[usize::try_from(expert_row).unwrap()]);
        assert_eq!(dense[0].len(), DENSE_KINDS);
        let mut kinds = 0;
        for (kind, partition) in GroupKind::ALL.into_iter().zip(row) {
            kinds += 1;
            let want = &fixture.partitions[*partition];
            let got = layout.groups(kind);
            assert!(
                same(&got, want),
                "{key:?} {order} {kind}: {got:?} is not {want:?}"
            );
        }
        assert_eq!(kinds, 16);
    }
    assert_eq!(count, RECORDS);
}

#[test]
fn every_recorded_refusal_is_refused_for_the_same_rule() {
    let fixture = Fixture::read();
    let rules = &fixture.sections["rules"];
    let mut count = 0;
    for (key, value, order) in fixture.by_order("rejected", 6) {
        count += 1;
        let want = rules[usize::try_from(number(value)).unwrap()];
        match layout(&key, order) {
            Ok(accepted) => panic!("{key:?} {order}: accepted as {accepted:?}, not {want}"),
            Err(error) => assert_eq!(error.rule(), want, "{key:?} {order}: {error}"),
        }
    }
    assert_eq!(count, REJECTED);
}

#[test]
fn every_axis_set_has_the_groups_of_megatrons_rank_generator() {
    let fixture = Fixture::read();
    let combos = fixture.table("combo");
    let mut count = 0;
    for (key, value, order) in fixture.by_order("combos", 6) {
        count += 1;
        let (part, sizes) = generator(key[0], &key[2..6]);
        let grid = Grid::new(part, sizes, order, 0).expect("a recorded grid is legal");
        assert_eq!(i64::from(grid.world_size()), number(key[1]));
        let row = &combos[usize::try_from(number(value)).unwrap()];
        assert_eq!(row.len(), 15);
        for (axes, partition) in axis_sets(part).iter().zip(row) {
            let want = &fixture.partitions[*partition];
            let got = grid.groups(AxisSet::of(axes));
            assert!(
                same(&got, want),
                "{key:?} {order} {axes:?}: {got:?} is not {want:?}"
            );
        }
    }
    assert_eq!(count, COMBOS);
}

#[test]
fn optional_features_make_the_recorded_groups_in_the_recorded_sequence() {
    let fixture = Fixture::read();
    let mut lines = fixture.sections["extras"].iter().copied().peekable();
    let (mut offsets, mut sequences, mut refusals) = (0, 0, 0);
    while let Some(line) = lines.next() {
        let words: Vec<&str> = line.split(' ').collect();
        if words[0] == "rank_offset" {
            offsets += 1;
            let (part, sizes) = generator(words[1], &words[2..6]);
            let grid = Grid::new(part, sizes, words[6], number(words[7])).unwrap();
            while let Some(line) = lines.next_if(|line| line.starts_with("groups ")) {
                let words: Vec<&str> = line.split(' ').collect();
                let axes: AxisSet = words[1].parse().unwrap();
                assert_eq!(grid.groups(axes).to_vecs(), shape(words[2]), "{line}");
            }
            continue;
        }
        let args: HashMap<&str, &str> = words[1..]
            .iter()
            .map(|word| word.split_once('=').unwrap())
            .collect();
        for version in MegatronVersion::ALL {
            let answer: Vec<&str> = lines
                .next()
                .expect("an answer of each version")
                .split(' ')
                .collect();
            assert!(
                answer[1].starts_with(&format!("core_v{version}")),
                "{answer:?}"
            );
            let got = feature_sequence(&args, version);
            if answer[0] == "refused" {
                refusals += 1;
                assert!(got.is_err(), "{line}: accepted");
                continue;
            }
            sequences += 1;
            let got = got.unwrap_or_else(|error| panic!("{line}: {error}"));
            assert_eq!(got.len().to_string(), answer[2], "{line}: number of calls");
            let want = calls(&answer[3..]);
            let got: Vec<_> = got
                .iter()
                .filter(|call| words[0] == "no_gloo" || call.kind.is_none())
                .map(comparable)
                .collect();
            assert_eq!(got, want, "{line} {version}");
        }
    }
    assert_eq!((offsets, sequences, refusals), (6, 46, 4));
}

/// What each recorded rank's getters answer must follow from the groups.
#[test]
fn every_rank_of_the_headline_matrices_stands_where_megatron_says() {
    const KINDS: [GroupKind; 10] = [
        GroupKind::Tp,
        GroupKind::Pp,
        GroupKind::Dp,
        GroupKind::DpCp,
        GroupKind::Cp,
        GroupKind::TpCp,
        GroupKind::Ep,
        GroupKind::Etp,
        GroupKind::EtpEp,
        GroupKind::Edp,
    ];
    let fixture = Fixture::read();
    let (mut matrices, mut ranks) = (0, 0);
    let mut current = None;
    for line in &fixture.sections["headline"] {
        let words: Vec<&str> = line.split(' ').collect();
        if words[0] != "rank" {
            matrices += 1;
            let layout = layout(&words, words[6]).unwrap();
            let calls = layout
                .creation_sequence(MegatronVersion::V0_12, &SequenceOptions::default())
                .unwrap();
            assert_eq!(calls.len().to_string(), words[7], "{line}");
            current = Some(layout);
            continue;
        }
        ranks += 1;
        let layout = current.as_ref().unwrap();
        let rank = Rank(words[1].parse().unwrap());
        let members = |kind| layout.group_of(kind, rank).unwrap();
        for (kind, want) in KINDS.into_iter().zip(&words[2..12]) {
            let group = members(kind);
            let place = group.iter().position(|member| *member == rank).unwrap();
            assert_eq!(&format!("{place}/{}", group.len()), want, "{line} {kind}");
        }
        let pipeline = members(GroupKind::Pp);
        let stage = pipeline.iter().position(|member| *member == rank).unwrap();
        let stages = pipeline.len();
        let got = [
            members(GroupKind::Tp)[0],
            members(GroupKind::Mp)[0],
            members(GroupKind::Dp)[0],
            members(GroupKind::DpCp)[0],
            pipeline[0],
            pipeline[stages - 1],
            pipeline[(stage + 1) % stages],
            pipeline[(stage + stages - 1) % stages],
            Rank(layout.group_of(GroupKind::Embd, rank).is_some().into()),
            Rank(layout.group_of(GroupKind::PosEmbd, rank).is_some().into()),
        ];
        let want: Vec<Rank> = words[12..]
            .iter()
            .map(|word| Rank(word.parse().unwrap()))
            .collect();
        assert_eq!(got.to_vec(), want, "{line}");
    }
    assert_eq!((matrices, ranks), (43, 219));
}

/// As recorded in every configuration's full log: these two get no timeout, and each gloo twin
/// follows its group at once.
#[test]
fn ep_and_the_gloo_twin_of_edp_are_made_without_a_timeout() {
    let layout = Layout::builder().world(8).tp(2).ep(2).build().unwrap();
    for version in MegatronVersion::ALL {
        let calls = layout
            .creation_sequence(version, &SequenceOptions::default())
            .unwrap();
        let mut twins = Vec::new();
        for (before, call) in calls.iter().zip(&calls[1..]) {
            let gloo = call.backend == GroupBackend::Gloo;
            let left_out = match call.kind {
                Some(GroupKind::Ep) => true,
                Some(GroupKind::Edp) => gloo,
                _ => false,
            };
            assert_eq!(
                call.timeout == GroupTimeout::BackendDefault,
                left_out,
                "{call:?}"
            );
            if gloo {
                assert_eq!((before.kind, &before.ranks), (call.kind, &call.ranks));
                assert_eq!(before.backend, GroupBackend::Default);
                assert_eq!(call.megatron_name, format!("{}_GLOO", before.megatron_name));
                twins.extend(call.kind.filter(|kind| twins.last() != Some(kind)));
            }
        }
        let want = match version {
            MegatronVersion::V0_12 => [GroupKind::Dp, GroupKind::DpCp, GroupKind::Edp],
            MegatronVersion::V0_15 => [GroupKind::DpCp, GroupKind::Dp, GroupKind::Edp],
        };
        assert_eq!(twins, want, "{version}");
    }
}

#[test]
fn an_altered_partition_is_noticed() {
    let fixture = Fixture::read();
    let layout = Layout::builder().world(8).tp(2).ep(4).build().unwrap();
    let ep = layout.groups(GroupKind::Ep);
    let found = fixture
        .partitions
        .iter()
        .filter(|partition| same(&ep, partition))
        .count();
    assert_eq!(found, 1);
    let mut altered = ep.to_vecs();
    altered[1].swap(0, 1);
    assert!(!same(&ep, &altered));
}

fn same(got: &Groups, want: &[Vec<Rank>]) -> bool {
    got.len() == want.len()
        && got
            .iter()
            .zip(want)
            .all(|(got, want)| got.iter().eq(want.iter().copied()))
}

fn generator(part: &str, sizes: &[&str]) -> (Part, Sizes) {
    let [tp, middle, dp, pp] = [0, 1, 2, 3].map(|index: usize| number(sizes[index]));
    match part {
        "dense" => (
            Part::Dense,
            Sizes {
                tp,
                cp: middle,
                ep: 1,
                dp,
                pp,
            },
        ),
        "expert" => (
            Part::Expert,
            Sizes {
                tp,
                cp: 1,
                ep: middle,
                dp,
                pp,
            },
        ),
        other => panic!("unknown generator {other}"),
    }
}

/// The fifteen sets in the sequence of the recording: by size, then in the sequence of the axes.
fn axis_sets(part: Part) -> Vec<Vec<Axis>> {
    let middle = match part {
        Part::Dense => Axis::Cp,
        Part::Expert => Axis::Ep,
    };
    let all = [Axis::Tp, middle, Axis::Dp, Axis::Pp];
    let mut sets: Vec<Vec<usize>> = (1..16_usize)
        .map(|bits| (0..4).filter(|bit| bits >> bit & 1 == 1).collect())
        .collect();
    sets.sort_by_key(|set: &Vec<usize>| (set.len(), set.clone()));
    sets.iter()
        .map(|set| set.iter().map(|index| all[*index]).collect())
        .collect()
}

fn feature_sequence(
    args: &HashMap<&str, &str>,
    version: MegatronVersion,
) -> Result<Vec<NewGroup>, LayoutError> {
    let size = |name| args.get(name).map_or(1, |value| number(value));
    let layout = Layout::builder()
        .world(size("world"))
        .tp(size("tp"))
        .pp(size("pp"))
        .cp(size("cp"))
        .ep(size("ep"))
        .order(args.get("order").copied().unwrap_or("tp-cp-ep-dp-pp"))
        .build()?;
    let levels = args.get("hcp").map_or_else(Vec::new, |levels| runs(levels));
    layout.creation_sequence(
        version,
        &SequenceOptions {
            gloo: args.get("gloo") != Some(&"False"),
            hierarchical_cp: levels.iter().map(|level| level.0.into()).collect(),
            optimizer_instances: size("instances"),
        },
    )
}

type Call = (String, Vec<Rank>);

fn comparable(call: &NewGroup) -> Call {
    let backend = match call.backend {
        GroupBackend::Default => "default",
        GroupBackend::Gloo => "gloo",
    };
    let timeout = match call.timeout {
        GroupTimeout::BackendDefault => "-",
        GroupTimeout::Configured => "30",
    };
    let head = format!("{}:{backend}:{timeout}", call.megatron_name);
    (head, call.ranks.clone())
}

fn calls(words: &[&str]) -> Vec<Call> {
    let mut head = "";
    words
        .iter()
        .filter(|word| !word.is_empty())
        .map(|word| {
            let ranks = word.split_once('=').map_or(*word, |(new_head, ranks)| {
                head = new_head;
                ranks
            });
            (head.to_owned(), runs(ranks))
        })
        .collect()
}
