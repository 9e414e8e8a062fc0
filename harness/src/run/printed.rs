//! What ranks printed, cut to what a person reads.

use crate::world::RankProcess;

/// The last lines that ranks printed; those of ranks to blame come last, next to the report.
pub(super) fn last_lines(processes: &[RankProcess], blamed: &[u32]) -> Vec<String> {
    /// Lines of one rank.
    const LINES_MAX: usize = 30;
    /// Lines of all ranks.
    const LINES_IN_ALL_MAX: usize = 200;
    let mut ordered: Vec<&RankProcess> = processes.iter().collect();
    ordered.sort_by_key(|process| blamed.contains(&process.rank()));
    let mut shown: Vec<String> = ordered
        .into_iter()
        .flat_map(|process| {
            let lines = process.output(|output| output.lines());
            let skipped = lines.len().saturating_sub(LINES_MAX);
            lines
                .into_iter()
                .skip(skipped)
                .map(|line| format!("[rank {}] {line}", process.rank()))
        })
        .collect();
    let surplus = shown.len().saturating_sub(LINES_IN_ALL_MAX);
    shown.drain(..surplus);
    shown
}
