//! What all rows have in common: whether everything became slower, apart from any one row.
//!
//! The unit is a round here too: all rows of one start of the program. Rows of a round share a placement,
//! pages and a moment of the machine, so they are no independent witnesses: each round gives one figure.

use crate::compare::conditions::{ROWS_MIN, figures, middle};
use crate::compare::rank_test;
use crate::report::document::Row;

/// What all rows have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Common {
    /// Median of the rows' ratios; 1 where there are too few rows to tell.
    pub(super) ratio: f64,
    /// Probability that rounds of one and the same program differ like this by chance.
    pub(super) p_slower: f64,
}

/// What the rows that were measured on both sides have in common; of `pairs` of rounds, or of rounds by themselves.
pub(super) fn common(measured: &[(&Row, &Row)], pairs: bool) -> Common {
    let nothing = Common {
        ratio: 1.0,
        p_slower: 1.0,
    };
    if measured.len() < ROWS_MIN {
        return nothing;
    }
    let ratio =
        |(base, new): &(&Row, &Row)| Some(middle(&new.rounds_us)? / middle(&base.rounds_us)?);
    let ratios = measured.iter().filter_map(ratio);
    let Some(ratio) = middle(&ratios.filter(|ratio| ratio.is_finite()).collect::<Vec<_>>()) else {
        return nothing;
    };
    // Both sides in one list, so that each row stands beside its median of all rounds.
    let base_rounds = measured.iter().map(|(base, _)| base.rounds_us.len());
    let new_rounds = measured.iter().map(|(_, new)| new.rounds_us.len());
    let (base_rounds, new_rounds) = (
        base_rounds.min().unwrap_or(0),
        new_rounds.min().unwrap_or(0),
    );
    let joined: Vec<Row> = measured
        .iter()
        .map(|(base, new)| Row {
            rounds_us: [&base.rounds_us[..base_rounds], &new.rounds_us[..new_rounds]].concat(),
            ..Row::default()
        })
        .collect();
    let all = figures(&joined.iter().collect::<Vec<_>>(), base_rounds + new_rounds);
    let p_slower = match all.len() == base_rounds + new_rounds {
        true => rank_test::compare_rounds(&all[..base_rounds], &all[base_rounds..], pairs),
        false => None,
    };
    Common {
        ratio,
        p_slower: p_slower.map_or(1.0, |effect| effect.p_slower),
    }
}
