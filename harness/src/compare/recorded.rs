//! The judge on rounds as a busy machine made them.
//!
//! `testdata/rounds.json`: medians of 40 rounds of 15 rows on two ranks of a virtual machine with two
//! processors, while other programs kept both busy (load 8 to 20), once with ranks pinned and once
//! without. Any two sets of these rounds are the same program: what is found between them is a false
//! alarm, unless it was planted. Beside them stand rounds with noise of a known size.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::judge::{self, Comparison, Fate, Wishes};
use crate::exit::Exit;
use crate::report::document::Row;

const WISHES: Wishes = Wishes {
    threshold: 0.05,
    margin: 0.1,
    allow_missing: false,
    pairs: false,
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

/// Standard normal numbers, by Box and Muller, from a fixed generator.
struct Noise(u64);

impl Noise {
    fn uniform(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    fn rows(&mut self, rounds: usize, noise: f64) -> Vec<Row> {
        let mut time = || {
            let (radius, angle) = ((-2.0 * self.uniform().ln()).sqrt(), self.uniform());
            100.0 * (noise * radius * (std::f64::consts::TAU * angle).cos()).exp()
        };
        let mut row = |name: usize| Row {
            name: format!("row {name}"),
            rounds_us: (0..rounds).map(|_| time()).collect(),
            ..Row::default()
        };
        (0..12).map(&mut row).collect()
    }
}

/// What is said of a row that is slower by `planted`, and how many comparisons call another row slower, of `PAIRS`.
#[derive(Default)]
struct Said {
    slower: usize,
    same: usize,
    undecided: usize,
    alarms: usize,
}

const PAIRS: usize = 40;

fn said(rounds: usize, noise: f64, planted: f64) -> Said {
    let mut source = Noise(7);
    let mut all = Said::default();
    for _ in 0..PAIRS {
        let (base, mut new) = (source.rows(rounds, noise), source.rows(rounds, noise));
        for time in &mut new[3].rounds_us {
            *time *= 1.0 + planted;
        }
        let mut is_alarm = false;
        for row in judge::judge(&base, &new, &[], &[], &WISHES).rows {
            let is_planted = row.name == "row 3";
            let is = |fate| usize::from(is_planted && row.fate == fate);
            all.slower += is(Fate::Regressed);
            all.same += is(Fate::Same);
            all.undecided += is(Fate::Undecided);
            is_alarm |= !is_planted && row.fate == Fate::Regressed;
        }
        all.alarms += usize::from(is_alarm);
    }
    all
}

/// `cargo test -p muster --lib planted -- --nocapture` prints the table of docs/compare.md.
#[test]
fn what_is_planted_is_called_slower_or_undecided_and_never_the_same() {
    let (mut table, mut alarms, mut comparisons) = (String::new(), 0, 0);
    for noise in [0.02, 0.05, 0.1] {
        for rounds in [10, 20, 40] {
            let cells = [0.0, 0.05, 0.15, 0.4].map(|planted| {
                let said = said(rounds, noise, planted);
                let place = format!("noise {noise}, {rounds} rounds, planted {planted}");
                alarms += said.alarms;
                comparisons += PAIRS;
                if planted == 0.0 {
                    assert!(said.slower * 20 <= PAIRS, "{place}: {} alarms", said.slower);
                }
                if planted > WISHES.margin {
                    assert!(said.same * 20 <= PAIRS, "{place}: {} the same", said.same);
                }
                let percent = |count: usize| 100 * count / PAIRS;
                format!(
                    "{} / {} / {}",
                    percent(said.slower),
                    percent(said.same),
                    percent(said.undecided)
                )
            });
            let _ = writeln!(
                table,
                "| {:.0} % | {rounds} | {} |",
                noise * 100.0,
                cells.join(" | ")
            );
        }
    }
    assert!(
        alarms * 20 <= comparisons,
        "{alarms} false alarms in {comparisons} comparisons"
    );
    // A line a comparison of rows with noise: slower / the same / undecided, in percent.
    let _ = std::io::Write::write_all(&mut std::io::stdout(), table.as_bytes());
}
