//! Replays the groups that vLLM with vllm-ascend was recorded to make.
//!
//! `tests/data/layout_vllm.txt` is made by `compact.py` beside it, which describes the notation.

use std::collections::BTreeMap;

use muster_comm::layout::{VllmError, VllmLayout, VllmOption, VllmVersion};
use muster_comm::types::Rank;

use crate::reader::{number, runs, sections, shape, table_row};

const FIXTURE: &str = include_str!("../data/layout_vllm.txt");

/// The versions by their bits.
fn versions() -> Vec<(i64, VllmVersion)> {
    let lines = sections(FIXTURE).remove("versions").unwrap();
    let version = |line: &str| {
        let (bit, name) = line.split_once(' ').unwrap();
        (number(bit), name.parse().unwrap())
    };
    lines.into_iter().map(version).collect()
}

/// What each recorded version says to the sizes and options of a line: `versions world tp pp pcp dcp dp options`.
fn layouts(words: &[&str]) -> Vec<(VllmVersion, Result<VllmLayout, VllmError>)> {
    let bits = number(words[0]);
    let sizes: Vec<i64> = words[1..7].iter().map(|word| number(word)).collect();
    let of_version = |version| {
        let mut builder = VllmLayout::builder(version)
            .world(sizes[0])
            .tp(sizes[1])
            .pp(sizes[2])
            .pcp(sizes[3])
            .dcp(sizes[4])
            .dp(sizes[5]);
        for word in words[7]
            .split('+')
            .filter(|word| !matches!(*word, "" | "-"))
        {
            let (name, size) = word.split_once('=').unwrap_or((word, "1"));
            let option: VllmOption = name.parse().unwrap();
            builder = builder.option(option, number(size));
        }
        (version, builder.build())
    };
    let said = versions().into_iter().filter(|(bit, _)| bits & bit != 0);
    said.map(|(_, version)| of_version(version)).collect()
}

#[test]
fn every_recorded_row_has_vllms_groups_in_vllms_sequence() {
    let sections = sections(FIXTURE);
    let sequences: Vec<Vec<&str>> = sections["sequences"]
        .iter()
        .map(|line| line.split(' ').collect())
        .collect();
    let partitions: Vec<_> = sections["partitions"]
        .iter()
        .map(|line| shape(line))
        .collect();
    let mut replayed = 0;
    for line in &sections["records"] {
        let words: Vec<&str> = line.split(' ').collect();
        let names = &sequences[usize::try_from(number(words[8])).unwrap()];
        let recorded: Vec<_> = names
            .iter()
            .zip(table_row(words[10]))
            .map(|(name, partition)| (*name, partitions[partition].clone()))
            .collect();
        for (version, layout) in layouts(&words) {
            let layout = layout.unwrap_or_else(|error| panic!("{version} {line}: {error}"));
            let made: Vec<_> = layout
                .coordinators()
                .iter()
                .map(|coordinator| (coordinator.name, coordinator.groups.to_vecs()))
                .collect();
            assert_eq!(made, recorded, "{version} {line}");
            let remarks: Vec<_> = layout
                .remarks()
                .iter()
                .map(|remark| remark.rule())
                .collect();
            let remarked = if remarks.is_empty() {
                "-".to_owned()
            } else {
                remarks.join(",")
            };
            assert_eq!(remarked, words[9], "{version} {line}");
            assert_eq!(layout.to_string().parse(), Ok(layout), "{version} {line}");
            replayed += 1;
        }
    }
    assert_eq!(replayed, 2491);
}

#[test]
fn what_vllm_was_recorded_to_refuse_is_refused_for_the_same_reason() {
    let mut refused = 0;
    for line in &sections(FIXTURE)["rejected"] {
        let words: Vec<&str> = line.split(' ').collect();
        for (version, layout) in layouts(&words) {
            let error = layout.expect_err(line);
            assert_eq!(error.rule(), words[8], "{version} {line}");
            refused += 1;
        }
    }
    assert_eq!(refused, 1214);
}

#[test]
fn every_coordinator_has_the_buffer_and_the_queue_that_were_recorded() {
    let mut recorded: BTreeMap<&str, Vec<(String, bool)>> = BTreeMap::new();
    for line in &sections(FIXTURE)["coordinators"] {
        let words: Vec<&str> = line.split(' ').collect();
        let settings = (words[1].to_owned(), words[2] == "1");
        recorded.entry(words[0]).or_default().push(settings);
    }
    let mut seen = Vec::new();
    for line in &sections(FIXTURE)["records"] {
        let words: Vec<&str> = line.split(' ').collect();
        for (version, layout) in layouts(&words) {
            for coordinator in layout.unwrap().coordinators() {
                let buffer = coordinator.buffer_mib;
                let buffer = buffer.map_or_else(|| "-".to_owned(), |mib| mib.to_string());
                let settings = [(buffer, coordinator.message_queue)];
                assert_eq!(recorded[coordinator.name], settings, "{version} {line}");
                seen.push(coordinator.name);
            }
        }
    }
    assert!(recorded.keys().all(|name| seen.contains(name)));
}

/// The workers of one engine are the ranks of one position on dp.
#[test]
fn the_ranks_of_every_engine_are_those_recorded() {
    for line in &sections(FIXTURE)["engines"] {
        let words: Vec<&str> = line.split(' ').collect();
        let [tp, pp, pcp, dp, engine, world] = [0, 1, 2, 3, 4, 5].map(|at| number(words[at]));
        let layout = VllmLayout::builder(VllmVersion::V0_23)
            .tp(tp)
            .pp(pp)
            .pcp(pcp)
            .dp(dp)
            .option(VllmOption::Nodes, 2)
            .build()
            .unwrap();
        assert_eq!(i64::from(layout.world_size()), world, "{line}");
        let engines = match layout.groups("inner_dp_world") {
            Some(engines) => engines.to_vecs(),
            None => vec![(0..layout.world_size()).map(Rank).collect()],
        };
        let of_engine = &engines[usize::try_from(engine).unwrap()];
        assert_eq!(of_engine, &runs(words[6]), "{line}");
    }
}
