//! Counts of rows that came are held against what the routing says.

use std::cell::OnceCell;
use std::fmt;

use crate::moe::check::Wrong;

/// What counts must be.
pub struct Recount<'a> {
    make: &'a dyn Fn() -> Vec<i64>,
    /// Made before a checked step, and in any other step only when a count is certainly wrong.
    expected: OnceCell<Vec<i64>>,
    is_checked: bool,
    wrong: Wrong,
}

impl fmt::Debug for Recount<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recount")
            .field("is_checked", &self.is_checked)
            .field("wrong", &self.wrong)
            .finish_non_exhaustive()
    }
}

impl<'a> Recount<'a> {
    /// For one step; `make` recounts from the routing of every source, as [`counts_expected`] does.
    ///
    /// [`counts_expected`]: crate::moe::check::counts_expected
    #[must_use]
    pub fn new(make: &'a dyn Fn() -> Vec<i64>, is_checked: bool) -> Self {
        let expected = OnceCell::new();
        if is_checked {
            expected.get_or_init(make);
        }
        Self {
            make,
            expected,
            is_checked,
            wrong: Wrong::default(),
        }
    }

    /// Whether the step is checked.
    #[must_use]
    pub const fn is_checked(&self) -> bool {
        self.is_checked
    }

    /// The counts that came wrong.
    #[must_use]
    pub fn wrong(self) -> Wrong {
        self.wrong
    }

    /// Holds counts against those expected from number `first` on, and puts wrong ones right. In a step that is not
    /// checked, only this rank's own counts are looked at: those that it sent, and where they must be.
    /// `whose` gives the world rank that sent a count.
    pub(super) fn mend(
        &mut self,
        first: usize,
        counts: &mut [i64],
        (own, sent): (usize, &[i64]),
        whose: &dyn Fn(usize) -> usize,
    ) {
        if !self.is_checked && counts[own..own + sent.len()] == *sent {
            return;
        }
        let expected = self.expected.get_or_init(self.make);
        let expected = &expected[first..first + counts.len()];
        for (place, (count, expected)) in counts.iter_mut().zip(expected).enumerate() {
            let got = std::mem::replace(count, *expected);
            self.wrong.note(u64::from(got != *expected), || {
                let (sender, receiver) = (whose(place), whose(own));
                format!("rank {receiver} received a count of {got} rows from rank {sender}, which sent {expected}")
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_counts_are_named_and_put_right() {
        let make = || vec![7, 4, 5, 6];
        let whose = |place: usize| 10 + place;
        let mut checked = Recount::new(&make, true);
        let mut counts = vec![4, 0, 6];
        checked.mend(1, &mut counts, (0, &[4]), &whose);
        assert_eq!(counts, [4, 5, 6]);
        let wrong = checked.wrong();
        assert_eq!(wrong.elements, 1);
        let text = wrong.first.expect("a text");
        assert_eq!(
            text,
            "rank 10 received a count of 0 rows from rank 11, which sent 5"
        );
    }

    #[test]
    fn a_step_that_is_not_checked_recounts_only_if_its_own_counts_are_wrong() {
        let never = || unreachable!("nothing is recounted");
        let mut unchecked = Recount::new(&never, false);
        let mut counts = vec![4, 0, 6];
        unchecked.mend(0, &mut counts, (0, &[4]), &|place| place);
        assert_eq!(
            (counts.as_slice(), unchecked.wrong().elements),
            (&[4, 0, 6][..], 0)
        );
        let make = || vec![4, 5, 6];
        let mut unchecked = Recount::new(&make, false);
        let mut counts = vec![0, 0, 6];
        unchecked.mend(0, &mut counts, (0, &[4]), &|place| place);
        assert_eq!(
            (counts.as_slice(), unchecked.wrong().elements),
            (&[4, 5, 6][..], 2)
        );
    }
}
