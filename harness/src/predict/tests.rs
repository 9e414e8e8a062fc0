//! Predictions against closed forms, files against themselves.

use std::collections::BTreeMap;

use super::against::against;
use super::call::{Call, Place};
use super::costs::{Calls, Costs, Measured};
use super::fit::{Line, fit};
use super::terms::TERMS;
use super::work::Work;
use crate::bench::model::{BenchReport, Record, Settings};
use crate::report::measured::Latency;
use crate::topology::{File, Machine};

/// Ranks on hosts of so many each, with as many processors as ranks.
fn place(ranks: usize, per_host: usize) -> Place {
    Place {
        hosts: (0..ranks)
            .map(|rank| u32::try_from(rank / per_host).expect("small"))
            .collect(),
        processors: ranks,
        shares_memory: true,
        may_read: true,
    }
}

fn record(collective: &str, algo: &str, ranks: u32, bytes: u64) -> Record {
    Record {
        collective: collective.to_owned(),
        algo: algo.to_owned(),
        ranks,
        world_size: ranks,
        groups: 1,
        group: "world".to_owned(),
        bytes,
        count: bytes / 4,
        dtype: Some("f32".to_owned()),
        memory: "private".to_owned(),
        ..Record::default()
    }
}

fn term(work: &Work, name: &str) -> f64 {
    let place = TERMS.iter().position(|term| term.name == name);
    work.0[place.expect("a term")]
}

fn work(record: &Record, place: &Place) -> (Work, &'static str) {
    let members: Vec<u32> = (0..record.ranks).collect();
    let call = Call::of(record).expect("a call");
    let (work, route) = Work::of(&call, place, &members).expect("it applies");
    (work, route.name())
}

fn calls(worlds: Vec<Costs>) -> Calls {
    Calls {
        measured: Measured {
            at: "2026-01-02T03:04:05Z".to_owned(),
            cpu: "x".to_owned(),
            processors: 8,
            load: [0.5, 0.5],
            tool: "muster 0".to_owned(),
        },
        worlds,
    }
}

fn world(ranks: usize, hosts: u32, costs: &[(&str, f64)]) -> Costs {
    Costs {
        ranks,
        hosts,
        shares_memory: true,
        may_read: false,
        lines: 9,
        fitted_error: 0.1,
        costs: costs
            .iter()
            .map(|(name, cost)| ((*name).to_owned(), *cost))
            .collect(),
    }
}

#[test]
fn counts_are_those_of_the_literature() {
    let mib = 1_048_576_u32;
    for n in [2_u32, 4, 8] {
        // As many hosts as ranks: a ring of 2 (n - 1) rounds, of which a rank sends and receives one part each.
        let spread = place(n as usize, 1);
        let (ring, name) = work(&record("all_reduce", "ring", n, u64::from(mib)), &spread);
        let rounds = 2.0 * f64::from(n - 1);
        assert_eq!(name, "ring");
        assert!((term(&ring, "net_round") - rounds).abs() < 1e-9, "{n}");
        assert!(
            (term(&ring, "net_message") - 2.0 * rounds).abs() < 1e-9,
            "{n}"
        );
        let bytes = 2.0 * rounds * f64::from(mib) / f64::from(n);
        assert!((term(&ring, "net_byte") - bytes).abs() < 1.0, "{n}");
        assert!(term(&ring, "ring_round") < 1e-9 && term(&ring, "entry") < 1e-9);
        let combined = f64::from(n - 1) * f64::from(mib) / f64::from(n);
        assert!((term(&ring, "reduce") - combined).abs() < 1.0, "{n}");
    }
}

#[test]
fn the_way_of_a_call_is_that_of_the_engine() {
    let here = place(4, 4);
    for (collective, bytes, way) in [
        ("all_reduce", 64, "entry"),
        ("all_reduce", 1 << 20, "direct"),
        ("all_to_all", 1 << 20, "read"),
        ("scatter", 1 << 20, "read"),
        ("reduce", 1 << 20, "direct_sliced"),
        ("broadcast", 1 << 20, "direct"),
    ] {
        let mut one = record(collective, "auto", 4, bytes);
        if ["all_to_all", "scatter"].contains(&collective) {
            one.count = bytes / 16;
        }
        assert_eq!(work(&one, &here).1, way, "{collective} {bytes}");
    }
    let mut refused = here.clone();
    refused.may_read = false;
    let mut exchange = record("all_to_all", "auto", 4, 1 << 20);
    exchange.count = 1 << 16;
    assert_eq!(
        work(&exchange, &refused).1,
        "direct",
        "where reading is not allowed"
    );
    let region = Record {
        memory: "region".to_owned(),
        ..record("all_reduce", "auto", 4, 1 << 20)
    };
    assert_eq!(work(&region, &here).1, "straight");
    let hosts = place(4, 2);
    assert_eq!(
        work(&record("all_reduce", "auto", 4, 64), &hosts).1,
        "hierarchical"
    );
}

#[test]
fn costs_that_made_the_times_are_found_again_and_none_is_below_zero() {
    let truth = [3.0, 0.5, 0.0, 2.0];
    let mut lines: Vec<Line<4>> = (1..40_i32)
        .map(|at| {
            let at = f64::from(at);
            let counts = [1.0, at, 0.1 * at * at, (at % 3.0) * 10.0];
            let time = counts
                .iter()
                .zip(truth)
                .map(|(count, cost)| count * cost)
                .sum();
            Line { counts, time }
        })
        .collect();
    // One line in ten is far off, as where something else ran.
    lines
        .iter_mut()
        .step_by(10)
        .for_each(|line| line.time *= 4.0);
    let found = fit(&lines);
    for (cost, truth) in found.iter().zip(truth) {
        let cost = cost.expect("in the lines");
        assert!(cost >= 0.0 && (cost - truth).abs() < 0.1, "{found:?}");
    }
    let without: Vec<Line<4>> = lines
        .iter()
        .map(|line| Line {
            counts: [line.counts[0], line.counts[1], 0.0, 0.0],
            time: line.time,
        })
        .collect();
    assert_eq!(fit(&without)[3], None, "a term of no line has no cost");
}

#[test]
fn a_prediction_is_the_sum_of_counts_times_costs_and_between_worlds_it_is_interpolated() {
    let small = world(2, 1, &[("call", 1.0), ("entry", 2.0), ("entry_rank", 0.0)]);
    let large = world(8, 1, &[("call", 1.0), ("entry", 26.0), ("entry_rank", 0.0)]);
    let calls = calls(vec![large, small]);
    let us = |ranks: u32| {
        let call = Call::of(&record("barrier", "auto", ranks, 0)).expect("a call");
        let members: Vec<u32> = (0..ranks).collect();
        calls
            .predict(&call, &place(ranks as usize, ranks as usize), &members)
            .map(|one| one.us)
    };
    assert!((us(2).expect("measured") - 3.0).abs() < 1e-9);
    assert!((us(8).expect("measured") - 27.0).abs() < 1e-9);
    assert!((us(4).expect("between") - 9.0).abs() < 1e-9);
    let beyond = us(16).expect_err("not measured");
    assert!(
        beyond.contains("16 ranks on 1 hosts") && beyond.contains("muster tune --model"),
        "{beyond}"
    );
    let call = Call::of(&record("all_reduce", "auto", 2, 64)).expect("a call");
    let missing = calls
        .predict(&call, &place(2, 2), &[0, 1])
        .expect_err("no memory figures");
    assert!(
        missing.contains("memory_64k") && missing.contains("in the file"),
        "{missing}"
    );
}

#[test]
fn a_file_of_measured_costs_comes_back_as_it_was_and_serves_as_a_topology() {
    let costs = [
        ("call", 1.0),
        ("entry", 2.0),
        ("memory_8m", 0.1),
        ("net_round", 10.0),
        ("net_message", 5.0),
        ("net_byte", 0.5),
    ];
    let calls = calls(vec![world(4, 1, &costs[..3]), world(8, 2, &costs)]);
    let text = File::measured(calls.clone()).text().expect("JSON");
    let machine = Machine::parse(&text).expect("its own");
    assert_eq!(machine.calls.as_ref(), Some(&calls));
    assert_eq!(machine.topology.ranks_per_host(), 4);
    let network = &machine.topology.levels[1];
    assert!((network.latency_s - 15e-6).abs() < 1e-12);
    assert!((network.bytes_per_s - 2e9).abs() < 1.0);
    assert!(
        machine.unknown.contains(&"latency of host".to_owned()),
        "{:?}",
        machine.unknown
    );
    // A later run replaces its own worlds and keeps the others.
    let again = self::calls(vec![world(8, 2, &[("call", 7.0)])]).beside(calls);
    assert_eq!(again.worlds.len(), 2);
    assert_eq!(again.worlds[1].costs["call"].to_bits(), 7.0_f64.to_bits());
}

#[test]
fn a_wrong_file_is_answered_with_the_place() {
    let text = File::measured(calls(vec![world(4, 1, &[("call", 1.0)])]))
        .text()
        .expect("JSON");
    for (from, to, part) in [
        (
            "\"call\"",
            "\"cal\"",
            "calls.worlds[0].costs: there is no term \"cal\"",
        ),
        (
            "\"call\": 1.0",
            "\"call\": -1.0",
            "calls.worlds[0].costs.call is -1",
        ),
        ("\"lines\"", "\"line\"", "unknown field `line`"),
        (
            "\"hosts\": 1",
            "\"hosts\": 5",
            "calls.worlds[0]: 4 ranks on 5 hosts",
        ),
        (
            "\"schema_version\": 1",
            "\"schema_version\": 9",
            "schema_version is 9",
        ),
        ("\"call\": 1.0", "\"call\": \"x\"", "line "),
    ] {
        let wrong = text.replacen(from, to, 1);
        assert_ne!(wrong, text, "{from}");
        let error = Machine::parse(&wrong).expect_err(to);
        assert!(error.contains(part), "{part}: {error}");
    }
    for cut in 0..text.trim_end().len() {
        assert!(Machine::parse(&text[..cut]).is_err(), "cut at {cut}");
    }
}

#[test]
fn measurements_stand_beside_predictions_with_the_error_of_each_line() {
    let mut report = BenchReport::new(Settings::default());
    report.transport = "auto".to_owned();
    for (ranks, us) in [(2, 4.0), (2, 3.0), (4, 1.0)] {
        let mut one = record("barrier", "auto", ranks, 0);
        one.latency_us = Latency {
            median: us,
            ..Latency::default()
        };
        report.records.push(one);
    }
    let costs = [("call", 1.0), ("entry", 2.0), ("entry_rank", 0.0)];
    let found = against(&calls(vec![world(2, 1, &costs)]), &report);
    let errors: Vec<Option<f64>> = found.rows.iter().map(|row| row.error).collect();
    assert_eq!(errors, [Some(-0.25), Some(0.0), None]);
    assert_eq!(found.predicted, 2);
    let unknown = found.rows[2].unknown.as_deref().expect("not measured");
    assert!(unknown.contains("4 ranks"), "{unknown}");
}

#[test]
fn costs_are_fitted_to_records_and_predict_calls_that_were_not_among_them() {
    let costs: BTreeMap<&str, f64> = [
        ("call", 1.0),
        ("entry", 5.0),
        ("net_round", 20.0),
        ("net_byte", 1.0),
    ]
    .into();
    let spread = place(4, 1);
    let timed = |collective: &str, algo: &str, bytes: u64| {
        let mut one = record(collective, algo, 4, bytes);
        let (work, _) = work(&one, &spread);
        let us = TERMS.iter().zip(work.0).map(|(term, count)| {
            let unit = if term.is_of_bytes { 1e-3 } else { 1.0 };
            costs.get(term.name).copied().unwrap_or(0.0) * unit * count
        });
        one.latency_us.median = us.sum();
        one
    };
    let mut records = Vec::new();
    for bytes in [64, 4096, 65_536, 1 << 20, 1 << 24] {
        records.push(timed("all_reduce", "ring", bytes));
        records.push(timed("all_reduce", "recursive_doubling", bytes));
        records.push(timed("broadcast", "binomial_tree", bytes));
    }
    let world = Costs::fitted(&records, &spread);
    assert!(world.fitted_error < 0.01, "{world:?}");
    let other = timed("all_reduce", "halving_doubling", 1 << 18);
    let call = Call::of(&other).expect("a call");
    let us = calls(vec![world])
        .predict(&call, &spread, &[0, 1, 2, 3])
        .expect("known")
        .us;
    assert!((us / other.latency_us.median - 1.0).abs() < 0.05, "{us}");
}
