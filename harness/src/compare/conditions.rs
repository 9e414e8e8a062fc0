//! Rounds that were taken under other conditions than the rest of their side.
//!
//! On a machine that others use, a start of the program may share its processors with them, or have
//! them for itself: then all rows of the round are many times slower or faster at once. Such rounds say
//! nothing about one row, and hide a tenth in it. A round is known by what its rows have in common, never
//! by one row, and each side is held against itself only: so neither a slow row nor a slow program makes
//! its own rounds unusual.
//!
//! CONDITIONS-1: which rounds are left out does not depend on the other side, nor on any single row.

use std::collections::HashMap;

use crate::report::document::Row;
use crate::stats;

/// Rows from which on what a round has in common can be told from what one row has.
pub(super) const ROWS_MIN: usize = 8;
/// A round is unusual where its rows are by so much slower, or faster, than the side's rows are.
const UNUSUAL: f64 = 1.25;
/// Fewest rounds that may be left: with fewer, all of them stay.
const ROUNDS_MIN: usize = 5;

/// Which rounds of a side are usual: of each whether it is. Empty where that cannot be told.
pub(super) fn usual(rows: &[Row]) -> Vec<bool> {
    let mut lengths: HashMap<usize, usize> = HashMap::new();
    for row in rows.iter().filter(|row| !row.rounds_us.is_empty()) {
        *lengths.entry(row.rounds_us.len()).or_default() += 1;
    }
    // Rows of another number of rounds are of other worlds: bring_up, which has one for each figure.
    let common = lengths
        .into_iter()
        .max_by_key(|(length, rows)| (*rows, *length));
    let Some((rounds, _)) = common.filter(|(_, rows)| *rows >= ROWS_MIN) else {
        return Vec::new();
    };
    let of_world: Vec<&Row> = rows
        .iter()
        .filter(|row| row.rounds_us.len() == rounds)
        .collect();
    let figures = figures(&of_world, rounds);
    let all = vec![true; rounds];
    let Some(middle) = middle(&figures) else {
        return all;
    };
    let is_usual = |figure: &f64| (middle / UNUSUAL..=middle * UNUSUAL).contains(figure);
    let kept: Vec<bool> = figures.iter().map(is_usual).collect();
    if is_enough(&kept) { kept } else { all }
}

/// Whether so many of the rounds are kept that they can be compared.
pub(super) fn is_enough(kept: &[bool]) -> bool {
    let left = kept.iter().filter(|kept| **kept).count();
    left >= ROUNDS_MIN.max(kept.len() / 2)
}

/// The rows of a side without the rounds that are not kept.
pub(super) fn without(rows: &[Row], kept: &[bool]) -> Vec<Row> {
    let without = |row: &Row| {
        let mut row = row.clone();
        if row.rounds_us.len() == kept.len() {
            let mut keep = kept.iter();
            row.rounds_us.retain(|_| *keep.next().unwrap_or(&true));
        }
        row
    };
    rows.iter().map(without).collect()
}

/// For each round the median over rows of the row's time beside its own median.
pub(super) fn figures(rows: &[&Row], rounds: usize) -> Vec<f64> {
    let scales: Vec<f64> = rows
        .iter()
        .map(|row| middle(&row.rounds_us).unwrap_or(0.0))
        .collect();
    (0..rounds)
        .filter_map(|round| {
            let beside = rows.iter().zip(&scales).filter(|(_, scale)| **scale > 0.0);
            let relative = beside.map(|(row, scale)| row.rounds_us[round] / scale);
            middle(&relative.collect::<Vec<_>>())
        })
        .collect()
}

/// The median, where there are figures.
pub(super) fn middle(figures: &[f64]) -> Option<f64> {
    (!figures.is_empty()).then(|| stats::middle(figures))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(count: usize, time: impl Fn(usize, usize) -> f64) -> Vec<Row> {
        (0..count)
            .map(|row| Row {
                name: format!("row {row}"),
                rounds_us: (0..10).map(|round| time(row, round)).collect(),
                ..Row::default()
            })
            .collect()
    }

    #[test]
    fn rounds_in_which_everything_is_slower_are_left_out_and_a_slow_row_is_not() {
        // Rounds 3 and 7 are disturbed; row 2 is slower in three rounds of its own.
        let time = |row: usize, round: usize| {
            let of_round = if round == 3 || round == 7 { 40.0 } else { 1.0 };
            let of_row = if row == 2 && round < 3 { 1.5 } else { 1.0 };
            (row + 1) as f64 * of_round * of_row
        };
        let rows = rows(9, time);
        let kept = usual(&rows);
        assert_eq!(left_out(&kept), 2);
        let rows = without(&rows, &kept);
        assert_eq!(rows[2].rounds_us[..3], [4.5; 3]);
        assert!(rows.iter().all(|row| row.rounds_us.len() == 8));
        assert!(rows[4].rounds_us.iter().all(|time| *time < 6.0));
    }

    fn left_out(kept: &[bool]) -> usize {
        kept.iter().filter(|kept| !**kept).count()
    }

    #[test]
    fn a_round_is_unusual_from_a_quarter_on_slower_or_faster() {
        for (factor, rounds) in [(1.3, 1), (1.2, 0), (1.0 / 1.2, 0), (1.0 / 1.3, 1)] {
            let time =
                |row: usize, round: usize| (row + 1) as f64 * if round == 4 { factor } else { 1.0 };
            assert_eq!(left_out(&usual(&rows(9, time))), rounds, "{factor}");
        }
    }

    #[test]
    fn where_it_cannot_be_told_every_round_stays() {
        let disturbed = |row: usize, round: usize| (row + 1) as f64 * [1.0, 9.0][round % 2];
        assert_eq!(usual(&rows(9, disturbed)), [true; 10]);
        let once = |row: usize, round: usize| if round == 1 { 90.0 } else { row as f64 + 1.0 };
        assert_eq!(left_out(&usual(&rows(7, once))), 0);
        assert_eq!(left_out(&usual(&rows(8, once))), 1);
        assert_eq!(usual(&[]), [] as [bool; 0]);
    }
}
