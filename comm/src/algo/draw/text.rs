//! Plans as text: rounds by ranks, then the steps of single ranks.

use super::super::plan::{Plan, Step};
use super::show;

/// Most ranks that stand side by side in the overview.
const COLUMNS_MAX: usize = 16;

/// An overview of all ranks, if they fit side by side, and every step of the `ranks` asked for.
///
/// In the overview `→3` sends to rank 3, `←3` receives, `+←3` receives and reduces, `⇐3` reads
/// rank 3's memory, `+⇐` reduces what it reads in the memory of several ranks.
#[must_use]
pub fn text(plans: &[Plan], ranks: &[usize]) -> String {
    let mut lines = Vec::new();
    if plans.len() <= COLUMNS_MAX {
        overview(plans, &mut lines);
    }
    for rank in ranks {
        if let Some(plan) = plans.get(*rank) {
            if !lines.is_empty() {
                lines.push(String::new());
            }
            one_rank(*rank, plan, &mut lines);
        }
    }
    let mut text = lines.join("\n");
    text.push('\n');
    text
}

fn overview(plans: &[Plan], lines: &mut Vec<String>) {
    /// Narrowest column.
    const NARROW: usize = 8;
    let rounds = plans.iter().map(|plan| plan.rounds.len()).max();
    let cells: Vec<Vec<String>> = (0..rounds.unwrap_or(0))
        .map(|round| plans.iter().map(|plan| cell(plan, round)).collect())
        .collect();
    let widest = cells.iter().flatten().map(|cell| cell.chars().count());
    let width = widest.max().unwrap_or(0).max(NARROW);
    let heads = (0..plans.len()).map(|rank| format!("rank {rank}"));
    lines.push(row("round", heads, width));
    for (round, cells) in cells.into_iter().enumerate() {
        lines.push(row(&format!("{round:5}"), cells.into_iter(), width));
    }
}

fn row(head: &str, cells: impl Iterator<Item = String>, width: usize) -> String {
    let mut line = head.to_owned();
    for cell in cells {
        line.push_str("  ");
        line.push_str(&cell);
        let used = cell.chars().count();
        line.extend(std::iter::repeat_n(' ', width.saturating_sub(used)));
    }
    line.truncate(line.trim_end().len());
    line
}

/// What a rank does in a round, in a few signs.
fn cell(plan: &Plan, round: usize) -> String {
    /// Longest cell; the rest is counted.
    const SIGNS_MAX: usize = 4;
    let steps = plan.rounds.get(round).map_or(&[][..], |round| &round.steps);
    let mut signs: Vec<String> = Vec::new();
    for step in steps {
        let sign = match step {
            Step::Copy { .. } => "copy".to_owned(),
            Step::Reduce { .. } => "+".to_owned(),
            Step::Send { to, .. } => format!("→{to}"),
            Step::Recv { from, .. } => format!("←{from}"),
            Step::RecvReduce { from, .. } => format!("+←{from}"),
            Step::Expose { .. } => "expose".to_owned(),
            Step::Pull { src, .. } => format!("⇐{}", src.peer),
            Step::PullReduce { .. } => "+⇐".to_owned(),
        };
        if signs.last() != Some(&sign) {
            signs.push(sign);
        }
    }
    if signs.is_empty() {
        return "·".to_owned();
    }
    let more = signs.len().saturating_sub(SIGNS_MAX);
    if more > 0 {
        signs.truncate(SIGNS_MAX);
        signs.push(format!("… {more} more"));
    }
    signs.join(" ")
}

fn one_rank(rank: usize, plan: &Plan, lines: &mut Vec<String>) {
    lines.push(format!("rank {rank}, scratch {}", plan.scratch));
    for (number, round) in plan.rounds.iter().enumerate() {
        let steps: Vec<String> = round.steps.iter().map(describe).collect();
        let steps = if steps.is_empty() {
            "nothing".to_owned()
        } else {
            steps.join("; ")
        };
        lines.push(format!("  round {number}: {steps}"));
    }
}

fn describe(step: &Step) -> String {
    let order = |theirs_first| {
        if theirs_first {
            "theirs + mine"
        } else {
            "mine + theirs"
        }
    };
    match step {
        Step::Copy { src, dst } => format!("copy {} to {}", show(*src), show(*dst)),
        Step::Reduce {
            src,
            dst,
            src_first,
        } => {
            let (left, right) = if *src_first { (src, dst) } else { (dst, src) };
            format!("{} = {} + {}", show(*dst), show(*left), show(*right))
        }
        Step::Send { to, src } => format!("send {} to {to}", show(*src)),
        Step::Recv { from, dst } => format!("recv {} from {from}", show(*dst)),
        Step::RecvReduce {
            from,
            dst,
            recv_first,
        } => format!("recv {} from {from}, {}", show(*dst), order(*recv_first)),
        Step::Expose { span } => format!("expose {}", show(*span)),
        Step::Pull { src, dst } => {
            format!(
                "pull {} of {} into {}",
                show(src.span),
                src.peer,
                show(*dst)
            )
        }
        Step::PullReduce { srcs, dst } => {
            let srcs: Vec<String> = srcs
                .iter()
                .map(|src| format!("{} of {}", show(src.span), src.peer))
                .collect();
            format!("reduce {} into {}", srcs.join(", "), show(*dst))
        }
    }
}
