//! Rounds in which the machine itself was in another state.
//!
//! The processors of a virtual machine move: for seconds an exchange of a cache line takes two to twelve
//! times as long, and so do all small calls. Runs on such a machine have rounds of both kinds, in another
//! mixture each time, which hides a tenth and looks like more. A benchmark looks at the machine in every
//! round, apart from what it measures, so it is known which round was of which kind.
//!
//! - STATES-1: the state of a round is told by the machine's own figure alone, by one measure for both sides:
//!   no program can make its own rounds belong to another state.

use std::collections::HashMap;

use crate::report::document::{Comparable, Row};
use crate::report::machine::{MachineState, Pulse};

/// Two states differ by so much: more than a figure varies within one.
const APART: f64 = 1.5;
/// Fewest rounds that a side must have of a state.
const ROUNDS_MIN: usize = 5;

/// What was measured on one side, and how the machine was meanwhile.
#[derive(Clone, Debug, Default)]
pub struct Measurement {
    /// The rows.
    pub rows: Vec<Row>,
    /// Looks at the machine, each with the number of the round among all of this side.
    pub looks: Vec<(usize, Pulse)>,
    /// Rounds of all files.
    pub rounds: usize,
}

impl Measurement {
    /// Adds what a file holds. Rounds of the same row in several files are put together.
    pub fn add(&mut self, found: Comparable<'_>) {
        let Some(timed) = found.timed else {
            self.rows.extend(found.rows);
            return;
        };
        let known = |rows: &[Row]| -> HashMap<String, usize> {
            let names = rows.iter().map(|row| row.name.clone());
            names.zip(0..).collect()
        };
        let mut places = known(&self.rows);
        for row in found.rows {
            let place = *places.entry(row.name.clone()).or_insert(self.rows.len());
            match self.rows.get_mut(place) {
                None => self.rows.push(row),
                Some(known) => {
                    known.rounds_us.extend(row.rounds_us);
                    known.wrong += row.wrong;
                    known.failed = known.failed.take().or(row.failed);
                    known.detail = known.detail.take().or(row.detail);
                }
            }
        }
        let of_round = |state: &MachineState| (self.rounds + state.round as usize, state.pulse);
        self.looks.extend(timed.states.iter().map(of_round));
        self.rounds += timed.rounds as usize;
    }

    /// All looks.
    #[must_use]
    pub fn pulses(&self) -> Vec<Pulse> {
        self.looks.iter().map(|(_, pulse)| *pulse).collect()
    }

    /// The slowest exchange seen in each round; `None` where some round was not looked at.
    fn figures(&self) -> Option<Vec<f64>> {
        let mut figures = vec![None; self.rounds];
        for (round, pulse) in &self.looks {
            let figure: &mut Option<f64> = figures.get_mut(*round)?;
            let seen = figure.unwrap_or(0.0).max(pulse.exchange_ns);
            *figure = Some(seen);
        }
        figures.into_iter().collect()
    }

    fn keep(&mut self, kept: &[bool]) {
        let is_kept = |round: usize| kept.get(round).copied().unwrap_or(true);
        for row in &mut self.rows {
            if row.rounds_us.len() == self.rounds {
                let mut round = 0..;
                row.rounds_us
                    .retain(|_| is_kept(round.next().unwrap_or_default()));
            }
        }
        self.looks.retain(|(round, _)| is_kept(*round));
    }
}

/// Leaves out the rounds of both sides in which the machine was in another state than in those that both
/// have enough of; says what was left out. Of `pairs` both rounds are left out where one is.
pub fn in_one_state(base: &mut Measurement, new: &mut Measurement, pairs: bool) -> Option<String> {
    let (before, now) = (base.figures()?, new.figures()?);
    let (mut low, mut high) = (0.0, f64::INFINITY);
    let count = |figures: &[f64], low: f64, high: f64| {
        let is_within = |figure: &&f64| (low..=high).contains(*figure);
        figures.iter().filter(is_within).count()
    };
    let common = |low: f64, high: f64| count(&before, low, high).min(count(&now, low, high));
    while let Some((quick, slow)) = widest_gap(before.iter().chain(&now), low, high) {
        let of_each = (common(low, quick), common(slow, high));
        if of_each.0.max(of_each.1) < ROUNDS_MIN {
            break;
        }
        if of_each.0 >= of_each.1 {
            high = quick;
        } else {
            low = slow;
        }
    }
    let kept = |figures: &[f64]| -> Vec<bool> {
        let is_kept = |figure: &f64| (low..=high).contains(figure);
        figures.iter().map(is_kept).collect()
    };
    let (mut of_base, mut of_new) = (kept(&before), kept(&now));
    if pairs {
        in_pairs(&mut of_base, &mut of_new);
        // Each side may have enough of a state, and few pairs have it on both sides.
        if of_base.iter().filter(|kept| **kept).count() < ROUNDS_MIN {
            return None;
        }
    }
    let out = |kept: &[bool]| kept.iter().filter(|kept| !**kept).count();
    let left_out = (out(&of_base), out(&of_new));
    if left_out == (0, 0) {
        return None;
    }
    base.keep(&of_base);
    new.keep(&of_new);
    Some(format!(
        "rounds in which the machine itself was slower or faster are left out: {} of {} of the base, {} of {} of the new \
         run; in the others an exchange of a cache line took up to {:.0} ns",
        left_out.0,
        before.len(),
        left_out.1,
        now.len(),
        before
            .iter()
            .chain(&now)
            .filter(|figure| (low..=high).contains(*figure))
            .fold(0.0_f64, |most, one| most.max(*one))
    ))
}

/// Keeps of each pair both or none, where there are pairs.
pub(super) fn in_pairs(base: &mut [bool], new: &mut [bool]) {
    if base.len() == new.len() {
        for (base, new) in base.iter_mut().zip(new) {
            (*base, *new) = (*base && *new, *base && *new);
        }
    }
}

/// The two neighbours among these figures that are farthest apart, if that is far enough.
fn widest_gap<'a>(
    figures: impl Iterator<Item = &'a f64>,
    low: f64,
    high: f64,
) -> Option<(f64, f64)> {
    let mut within: Vec<f64> = figures
        .copied()
        .filter(|figure| (low..=high).contains(figure) && *figure > 0.0)
        .collect();
    within.sort_unstable_by(f64::total_cmp);
    let apart = |pair: &[f64]| pair[1] / pair[0];
    let widest = within
        .windows(2)
        .max_by(|one, other| apart(one).total_cmp(&apart(other)))?;
    (apart(widest) >= APART).then(|| (widest[0], widest[1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A side of which each round has this figure; its row takes ten times as long.
    fn side(figures: &[f64]) -> Measurement {
        let look = |exchange_ns: f64| Pulse {
            exchange_ns,
            ..Pulse::default()
        };
        Measurement {
            rows: vec![Row {
                name: "row".to_owned(),
                rounds_us: figures.iter().map(|figure| figure * 10.0).collect(),
                ..Row::default()
            }],
            looks: figures.iter().copied().map(look).enumerate().collect(),
            rounds: figures.len(),
        }
    }

    fn left(side: &Measurement) -> Vec<f64> {
        assert_eq!(side.looks.len(), side.rows[0].rounds_us.len());
        side.rows[0].rounds_us.clone()
    }

    #[test]
    fn both_sides_keep_the_rounds_of_the_quick_state_where_both_have_enough() {
        let mut base = side(&[50.0, 180.0, 51.0, 52.0, 190.0, 53.0, 54.0]);
        let mut new = side(&[185.0, 50.0, 50.5, 51.5, 52.5, 53.5, 181.0, 900.0]);
        let remark = in_one_state(&mut base, &mut new, false).unwrap();
        assert_eq!(left(&base), [500.0, 510.0, 520.0, 530.0, 540.0]);
        assert_eq!(left(&new), [500.0, 505.0, 515.0, 525.0, 535.0]);
        assert!(
            remark.contains("2 of 7 of the base, 3 of 8 of the new run"),
            "{remark}"
        );
    }

    #[test]
    fn of_pairs_both_or_none_are_left_out() {
        let mut base = side(&[50.0, 180.0, 51.0, 52.0, 53.0, 54.0, 55.0]);
        let mut new = side(&[180.0, 50.0, 51.0, 52.0, 53.0, 54.0, 55.0]);
        let remark = in_one_state(&mut base, &mut new, true).unwrap();
        assert_eq!(left(&base), [510.0, 520.0, 530.0, 540.0, 550.0]);
        assert_eq!(left(&new), left(&base));
        assert!(remark.contains("2 of 7 of the base, 2 of 7"), "{remark}");
        let mut base = side(&[50.0, 180.0, 51.0, 52.0, 53.0, 54.0]);
        let mut new = side(&[180.0, 50.0, 51.0, 52.0, 53.0, 54.0]);
        assert_eq!(in_one_state(&mut base, &mut new, true), None, "four pairs");
    }

    #[test]
    fn the_slow_state_serves_where_more_of_it_is_common() {
        let mut base = side(&[180.0, 181.0, 182.0, 183.0, 184.0, 50.0]);
        let mut new = side(&[180.0, 181.0, 182.0, 183.0, 184.0, 185.0]);
        assert!(in_one_state(&mut base, &mut new, false).is_some());
        assert_eq!(left(&base).len(), 5);
        assert_eq!(left(&new).len(), 6);
    }

    #[test]
    fn sides_that_have_no_state_in_common_stay_as_they_are() {
        let (mut base, mut new) = (side(&[50.0; 6]), side(&[180.0; 6]));
        assert_eq!(in_one_state(&mut base, &mut new, false), None);
        assert_eq!((left(&base).len(), left(&new).len()), (6, 6));
        // A drift within one state is none.
        let mut base = side(&[50.0, 55.0, 60.0, 65.0, 70.0, 75.0]);
        assert_eq!(in_one_state(&mut base, &mut new.clone(), false), None);
        // A round that was not looked at could be of any state.
        new.looks.pop();
        let mut base = side(&[50.0, 50.0, 50.0, 50.0, 50.0, 180.0]);
        assert_eq!(in_one_state(&mut base, &mut new, false), None);
    }
}
