//! From measured calls to the cost of each term: least relative errors, no cost below zero.

/// Passes over all terms; the last ones change nothing that anybody could measure.
const PASSES: usize = 2000;
/// How often far lines are given less weight.
const ROUNDS: usize = 12;
/// Relative error at which a line begins to count less: what one machine differs by from minute to minute.
const USUAL: f64 = 0.05;
/// Pull to zero, against costs that several terms could carry alike.
const RIDGE: f64 = 1e-6;

/// A measured line: how often each term occurs, and the time.
#[derive(Clone, Debug, PartialEq)]
pub struct Line<const K: usize> {
    /// How often each term occurs.
    pub counts: [f64; K],
    /// The time.
    pub time: f64,
}

/// The cost of each term; none for terms that no line has.
#[must_use]
pub fn fit<const K: usize>(lines: &[Line<K>]) -> [Option<f64>; K] {
    // Each line in parts of its time, so that errors are relative and small calls count as large ones.
    let usable = lines.iter().filter(|line| line.time > 0.0);
    let rows: Vec<[f64; K]> = usable
        .map(|line| line.counts.map(|count| count / line.time))
        .collect();
    let mut scales = [0.0; K];
    for (term, scale) in scales.iter_mut().enumerate() {
        *scale = rows
            .iter()
            .map(|row| row[term] * row[term])
            .sum::<f64>()
            .sqrt();
    }
    let scaled: Vec<[f64; K]> = rows
        .iter()
        .map(|row| {
            let mut row = *row;
            for (value, scale) in row.iter_mut().zip(scales) {
                *value = if scale > 0.0 { *value / scale } else { 0.0 };
            }
            row
        })
        .collect();
    let mut weights = vec![1.0; scaled.len()];
    let mut costs = [0.0; K];
    for _ in 0..ROUNDS {
        costs = solve(&scaled, &weights, costs);
        for (row, weight) in scaled.iter().zip(&mut weights) {
            let error = (sum(row, &costs) - 1.0).abs();
            *weight = USUAL / error.max(USUAL);
        }
    }
    let mut found = [None; K];
    for (term, cost) in found.iter_mut().enumerate() {
        *cost = (scales[term] > 0.0).then(|| costs[term] / scales[term]);
    }
    found
}

fn sum<const K: usize>(row: &[f64; K], costs: &[f64; K]) -> f64 {
    row.iter()
        .zip(costs)
        .map(|(count, cost)| count * cost)
        .sum()
}

/// Costs of least weighted squares, one after the other until none changes.
fn solve<const K: usize>(rows: &[[f64; K]], weights: &[f64], mut costs: [f64; K]) -> [f64; K] {
    let mut square = [[0.0; K]; K];
    let mut right = [0.0; K];
    for (row, weight) in rows.iter().zip(weights) {
        for one in 0..K {
            right[one] += weight * row[one];
            for other in 0..K {
                square[one][other] += weight * row[one] * row[other];
            }
        }
    }
    for _ in 0..PASSES {
        let mut change: f64 = 0.0;
        for term in 0..K {
            let own = square[term][term];
            if own <= 0.0 {
                continue;
            }
            let others: f64 = (0..K)
                .filter(|other| *other != term)
                .map(|other| square[term][other] * costs[other])
                .sum();
            let better = f64::max(0.0, (right[term] - others) / (own + RIDGE));
            change = change.max((better - costs[term]).abs());
            costs[term] = better;
        }
        if change < 1e-9 {
            break;
        }
    }
    costs
}
