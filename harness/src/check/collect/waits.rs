//! Who waited for whom, by how long the members of a group were in the same calls.
//!
//! A call that no member leaves before all have come is shortest for the member that came last. The others waited for it
//! by so much longer. No clock of one rank is compared with that of another.

use std::collections::HashMap;

/// Most ranks of a world of which it is told.
const RANKS_MAX: u32 = 64;

/// Who waited for whom in one world.
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// How long each call of a case lasted, by rank, where not all members have told it.
    open: HashMap<u32, Vec<(u32, Vec<u64>)>>,
    /// Microseconds that the rank of a row waited for that of a column; nothing in worlds of too many ranks.
    us: Vec<Vec<u64>>,
}

impl Waits {
    /// Of a world of so many ranks.
    pub(super) fn new(world_size: u32) -> Self {
        let ranks = if world_size <= RANKS_MAX {
            world_size as usize
        } else {
            0
        };
        Self {
            us: vec![vec![0; ranks]; ranks],
            ..Self::default()
        }
    }

    /// Takes in how long a rank was in the calls of a case that it answers with `members` others and itself.
    pub(super) fn take(&mut self, rank: u32, case: u32, members: usize, calls_us: Vec<u64>) {
        if self.us.is_empty() || calls_us.is_empty() || members < 2 {
            return;
        }
        let told = self.open.entry(case).or_default();
        if told.iter().all(|(other, _)| *other != rank) {
            told.push((rank, calls_us));
        }
        if told.len() < members {
            return;
        }
        let told = self.open.remove(&case).unwrap_or_default();
        let calls = told.iter().map(|(_, calls)| calls.len()).min().unwrap_or(0);
        for call in 0..calls {
            let Some((last, least)) = told
                .iter()
                .map(|(rank, us)| (*rank, us[call]))
                .min_by_key(|(_, us)| *us)
            else {
                continue;
            };
            for (rank, us) in &told {
                let row = self.us.get_mut(*rank as usize);
                if let Some(wait) = row.and_then(|row| row.get_mut(last as usize)) {
                    *wait = wait.saturating_add(us[call] - least);
                }
            }
        }
    }

    /// The times, if anybody waited.
    pub(super) fn table(&self) -> &[Vec<u64>] {
        let has_any = self.us.iter().flatten().any(|us| *us > 0);
        if has_any { &self.us } else { &[] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_others_wait_for_the_one_that_was_in_a_call_shortest() {
        let mut waits = Waits::new(4);
        waits.take(3, 7, 3, vec![900, 50]);
        waits.take(1, 7, 3, vec![20, 40]);
        assert!(waits.table().is_empty(), "one is missing");
        waits.take(3, 7, 3, vec![1, 1]);
        waits.take(0, 7, 3, vec![520, 45]);
        let table = [
            vec![0, 505, 0, 0],
            vec![0; 4],
            vec![0; 4],
            vec![0, 890, 0, 0],
        ];
        assert_eq!(waits.table(), table);
        // Neither rounds to anything: one member alone, calls that end apart, too many ranks.
        waits.take(2, 8, 1, vec![9]);
        waits.take(2, 9, 2, Vec::new());
        assert_eq!(waits.table(), table);
        let mut large = Waits::new(RANKS_MAX + 1);
        large.take(0, 1, 2, vec![5]);
        large.take(1, 1, 2, vec![9]);
        assert!(large.table().is_empty());
    }
}
