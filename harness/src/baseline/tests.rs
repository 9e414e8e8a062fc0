//! What is learned, what is an outlier, and what is refused.

use super::*;
use crate::bench::model::{BenchReport, Record, Settings};

/// A result of `bench` with a cell for each of `cells`: its times by round.
fn bench(cells: &[[f64; 3]]) -> BenchReport {
    let mut report = BenchReport::new(Settings::default());
    report.rounds = 3;
    for (index, rounds) in cells.iter().enumerate() {
        report.records.push(Record {
            collective: "all_reduce".to_owned(),
            algo: "auto".to_owned(),
            bytes: 8 << index,
            samples_us: rounds.map(|time| vec![time]).to_vec(),
            ..Record::default()
        });
    }
    report
}

fn run(file: &str, report: BenchReport) -> Run {
    Run::of(file, &[Box::new(report)]).expect("a run")
}

/// Five hosts with small differences, and a last one that is slower in one cell.
fn hosts(slower: f64) -> Vec<Run> {
    let factors = [1.0, 1.01, 0.99, 1.02, 0.98, 1.0];
    let report = |(index, factor): (usize, &f64)| {
        let last = if index == 5 { slower } else { 1.0 };
        let cells =
            [10.0, 100.0 * last].map(|time| [0.99, 1.0, 1.01].map(|round| time * factor * round));
        run(&format!("host{index}.json"), bench(&cells))
    };
    factors.iter().enumerate().map(report).collect()
}

#[test]
fn a_host_that_is_slow_in_one_cell_is_named_with_that_cell_and_no_other_host_is() {
    let quiet = Baseline::learn(&hosts(1.0), 0.1, false).expect("learned");
    assert!(quiet.passed && quiet.outliers.is_empty(), "{quiet:?}");
    let found = Baseline::learn(&hosts(1.3), 0.1, false).expect("learned");
    let [outlier] = &found.outliers[..] else {
        panic!("one outlier: {:?}", found.outliers);
    };
    assert_eq!(
        (&outlier.file[..], outlier.cells, found.passed),
        ("host5.json", 2, false)
    );
    let names: Vec<&str> = outlier.slow.iter().map(|slow| &slow.name[..]).collect();
    assert_eq!(names.len(), 1, "{outlier:?}");
    assert!(names[0].contains("16 B"), "{names:?}");
    assert_eq!(found.exit(), Exit::Slow);
}

#[test]
fn the_limit_is_the_margin_or_as_far_as_runs_lie_apart() {
    let close = Baseline::learn(&hosts(1.0), 0.1, false).expect("learned");
    let cell = &close.cells[0];
    assert!(
        (cell.limit_us / cell.median_us - 1.1).abs() < 1e-9,
        "{cell:?}"
    );
    // Rounds that lie 20 % apart on the only host there is.
    let wide = [run("one.json", bench(&[[80.0, 100.0, 125.0]]))];
    let wide = Baseline::learn(&wide, 0.1, false).expect("learned");
    let cell = &wide.cells[0];
    assert!((cell.spread - 0.392).abs() < 0.001, "{cell:?}");
    assert!(cell.limit_us > 300.0 && cell.limit_us < 330.0, "{cell:?}");
}

#[test]
fn of_two_runs_none_is_an_outlier() {
    let runs = [run("a", bench(&[[10.0; 3]])), run("b", bench(&[[90.0; 3]]))];
    assert!(
        Baseline::learn(&runs, 0.1, false)
            .expect("learned")
            .outliers
            .is_empty()
    );
}

#[test]
fn cells_are_normal_slow_or_unknown() {
    let baseline = Baseline::learn(&hosts(1.0), 0.1, false).expect("learned");
    let judged = baseline
        .judge(&bench(&[[10.0; 3], [140.0; 3], [7.0; 3]]))
        .expect("judged");
    assert_eq!(
        (judged.normal, judged.slow.len(), judged.unknown.len()),
        (1, 1, 1)
    );
    assert!(judged.slow[0].name.contains("16 B"), "{judged:?}");
    assert!(judged.unknown[0].contains("32 B"), "{judged:?}");
}

#[test]
fn what_was_measured_under_other_conditions_is_refused() {
    let baseline = Baseline::learn(&hosts(1.0), 0.1, false).expect("learned");
    let mut other = bench(&[[10.0; 3]]);
    other.transport = "tcp".to_owned();
    let failure = baseline.judge(&other).expect_err("refused");
    assert!(failure.message.contains("transport  and tcp"), "{failure}");
    let mut runs = hosts(1.0);
    runs.push(run("other.json", other));
    let failure = Baseline::learn(&runs, 0.1, false).expect_err("refused");
    assert!(failure.message.contains("other.json"), "{failure}");
    assert!(Baseline::learn(&runs, 0.1, true).is_ok());
    let mut nothing = bench(&[[10.0; 3]]);
    nothing.records[0].collective = "broadcast".to_owned();
    let failure = baseline.judge(&nothing).expect_err("refused");
    assert!(failure.message.contains("knows no cell"), "{failure}");
}

#[test]
fn a_file_without_times_is_refused() {
    let failure = Run::of("empty.json", &[]).expect_err("refused");
    assert!(failure.message.contains("empty.json"), "{failure}");
}
