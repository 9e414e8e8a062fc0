//! The judge on rounds as a busy machine made them.
//!
//! `testdata/rounds.json`: medians of 40 rounds of 15 rows on two ranks of a virtual machine with two
//! processors, while other programs kept both busy (load 8 to 20), once with ranks pinned and once
//! without. Any two sets of these rounds are the same program: what is found between them is a false
//! alarm, unless it was planted.

use std::collections::BTreeMap;

use super::judge::{self, Comparison, Fate, Wishes};
use crate::exit::Exit;
use crate::report::document::Row;

const WISHES: Wishes = Wishes {
    threshold: 0.05,
    allow_missing: false,
};
const ROUNDS: usize = 20;

/// Row by row the medians of its rounds.
type Recorded = BTreeMap<String, Vec<f64>>;

fn recorded(how: &str) -> Recorded {
    let text = include_str!("testdata/rounds.json");
    let mut all: BTreeMap<String, Recorded> = serde_json::from_str(text).expect("recorded rounds");
    all.remove(how).expect("a set of rounds")
}

/// Two sides of different rounds, dealt by a seed: the same rounds of every row.
fn sides(recorded: &Recorded, seed: u64) -> (Vec<Row>, Vec<Row>) {
    let mut order: Vec<usize> = (0..40).collect();
    let mut state = seed;
    for place in 0..order.len() {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let left = (order.len() - place) as u64;
        let other = usize::try_from((state >> 33) % left).expect("small");
        order.swap(place, place + other);
    }
    let side = |rounds: &[usize]| -> Vec<Row> {
        let row = |(name, times): (&String, &Vec<f64>)| Row {
            name: name.clone(),
            rounds_us: rounds.iter().map(|round| times[*round]).collect(),
            ..Row::default()
        };
        recorded.iter().map(row).collect()
    };
    (side(&order[..ROUNDS]), side(&order[ROUNDS..]))
}

fn slower(comparison: &Comparison) -> Vec<&str> {
    let rows = comparison.rows.iter();
    rows.filter(|row| row.fate == Fate::Regressed)
        .map(|row| row.name.as_str())
        .collect()
}

#[test]
fn the_same_program_raises_no_more_alarms_than_the_level_allows() {
    for how in ["pinned", "free"] {
        let recorded = recorded(how);
        let is_alarm = |seed: &u64| {
            let (base, new) = sides(&recorded, *seed);
            judge::judge(&base, &new, &[], &[], &WISHES).class == Exit::Slow
        };
        let alarms = (0..60).filter(is_alarm).count();
        // 5 % of 60 are 3, and twice as many happen by chance once in twenty times.
        assert!(alarms <= 6, "{how}: {alarms} of 60");
    }
}

#[test]
fn a_tenth_on_one_row_is_found_among_disturbed_rounds_and_blamed_on_no_other_row() {
    for (how, found_min) in [("pinned", 0.7), ("free", 0.5)] {
        let recorded = recorded(how);
        let (mut found, mut others, mut all) = (0, 0, 0);
        for seed in 0..8 {
            for planted in 0..recorded.len() {
                let (base, mut new) = sides(&recorded, seed);
                for time in &mut new[planted].rounds_us {
                    *time *= 1.1;
                }
                let name = new[planted].name.clone();
                let comparison = judge::judge(&base, &new, &[], &[], &WISHES);
                let slower = slower(&comparison);
                found += usize::from(slower.contains(&name.as_str()));
                others += usize::from(slower.iter().any(|row| *row != name));
                all += 1;
            }
        }
        let part = found as f64 / all as f64;
        assert!(part >= found_min, "{how}: {found} of {all}");
        assert!(others * 20 <= all, "{how}: others in {others} of {all}");
    }
}
