//! Plans as a Mermaid sequence diagram.

use super::super::plan::Plan;
use super::{TooLarge, arrows, show};

/// The messages and reads of all ranks, round by round. Dashed arrows are reads of the source's
/// memory; `+` stands where the target reduces what comes.
///
/// # Errors
/// [`TooLarge`], with the number of arrows.
pub fn mermaid(plans: &[Plan]) -> Result<String, TooLarge> {
    let mut lines = vec!["sequenceDiagram".to_owned()];
    let last = plans.len().saturating_sub(1);
    for rank in 0..plans.len() {
        lines.push(format!("  participant r{rank} as rank {rank}"));
    }
    let mut round = None;
    for arrow in arrows(plans)? {
        if round != Some(arrow.round) {
            round = Some(arrow.round);
            lines.push(format!("  Note over r0,r{last}: round {}", arrow.round));
        }
        let head = if arrow.is_pull { "-->>" } else { "->>" };
        let sign = if arrow.reduces { "+ " } else { "" };
        lines.push(format!(
            "  r{}{head}r{}: {sign}{}",
            arrow.from,
            arrow.to,
            show(arrow.src)
        ));
    }
    lines.push(String::new());
    Ok(lines.join("\n"))
}
