//! Pictures of plans: text for a terminal, a Mermaid sequence diagram, an SVG file.
//!
//! Drawing is of what the plans say, whether it is right or not; messages that find no partner are
//! left out of the diagrams and stand in the text.

mod mermaid;
mod svg;
mod text;

pub use self::mermaid::mermaid;
pub use self::svg::svg;
pub use self::text::text;

use super::plan::{Plan, Space, Span, Step};
use super::schedule::{At, Matching};

/// Most arrows in a diagram: more can neither be read nor laid out by a browser.
pub const ARROWS_MAX: usize = 4000;

/// Too much for a diagram.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the plans move data {arrows} times; a diagram shows at most {ARROWS_MAX}")]
pub struct TooLarge {
    /// Messages and reads of peers.
    pub arrows: usize,
}

/// Elements that go from one rank to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Arrow {
    /// The round of the rank that acts: the sender of a message, the reader of memory.
    round: usize,
    from: usize,
    to: usize,
    src: Span,
    dst: Span,
    reduces: bool,
    /// Whether the target reads the source's memory, rather than being sent a message.
    is_pull: bool,
}

/// All arrows by round, then sender.
fn arrows(plans: &[Plan]) -> Result<Vec<Arrow>, TooLarge> {
    let matching = Matching::of(plans).ok();
    let mut arrows = Vec::new();
    for (rank, plan) in plans.iter().enumerate() {
        for (round, steps) in plan.rounds.iter().enumerate() {
            for (step, what) in steps.steps.iter().enumerate() {
                let partner = matching
                    .as_ref()
                    .and_then(|matching| matching.partner(At { round, rank, step }));
                push_arrows(&mut arrows, plans, At { round, rank, step }, what, partner);
            }
        }
    }
    if arrows.len() > ARROWS_MAX {
        return Err(TooLarge {
            arrows: arrows.len(),
        });
    }
    arrows.sort_by_key(|arrow| (arrow.round, arrow.from, arrow.to));
    Ok(arrows)
}

fn push_arrows(arrows: &mut Vec<Arrow>, plans: &[Plan], at: At, step: &Step, partner: Option<At>) {
    match step {
        Step::Send { to, src } => {
            let target = partner.map(|p| &plans[p.rank].rounds[p.round].steps[p.step]);
            let (dst, reduces) = match target {
                Some(Step::Recv { dst, .. }) => (*dst, false),
                Some(Step::RecvReduce { dst, .. }) => (*dst, true),
                Some(_) | None => return,
            };
            arrows.push(Arrow {
                round: at.round,
                from: at.rank,
                to: *to,
                src: *src,
                dst,
                reduces,
                is_pull: false,
            });
        }
        Step::Pull { src, dst } => arrows.push(Arrow {
            round: at.round,
            from: src.peer,
            to: at.rank,
            src: src.span,
            dst: *dst,
            reduces: false,
            is_pull: true,
        }),
        Step::PullReduce { srcs, dst } => {
            let others = srcs.iter().filter(|src| src.peer != at.rank);
            arrows.extend(others.map(|src| Arrow {
                round: at.round,
                from: src.peer,
                to: at.rank,
                src: src.span,
                dst: *dst,
                reduces: true,
                is_pull: true,
            }));
        }
        Step::Copy { .. }
        | Step::Expose { .. }
        | Step::Recv { .. }
        | Step::RecvReduce { .. }
        | Step::Reduce { .. } => {}
    }
}

/// `Out[4..8]`.
fn show(span: Span) -> String {
    let space = match span.space {
        Space::In => "In",
        Space::Out => "Out",
        Space::Scratch => "Scratch",
    };
    format!("{space}[{}..{}]", span.start, span.end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algo::{Problem, find};
    use crate::types::Collective;

    fn ring_of_three() -> Vec<Plan> {
        let problem = Problem::all_reduce(3, 6).expect("legal");
        let ring = find(Collective::AllReduce, "ring").expect("registered");
        ring.plans(&problem, false).expect("it applies")
    }

    fn direct_of_two() -> Vec<Plan> {
        let problem = Problem::all_reduce(2, 4).expect("legal");
        let direct = find(Collective::AllReduce, "direct").expect("registered");
        direct.plans(&problem, false).expect("it applies")
    }

    #[test]
    fn the_text_shows_an_overview_and_every_step() {
        let expected = "\
round  rank 0    rank 1    rank 2
    0  copy      copy      copy
    1  →1 +←2    →2 +←0    →0 +←1
    2  →1 +←2    →2 +←0    →0 +←1
    3  →1 ←2     →2 ←0     →0 ←1
    4  →1 ←2     →2 ←0     →0 ←1

rank 1, scratch 0
  round 0: copy In[0..6] to Out[0..6]
  round 1: send Out[0..2] to 2; recv Out[4..6] from 0, theirs + mine
  round 2: send Out[4..6] to 2; recv Out[2..4] from 0, theirs + mine
  round 3: send Out[2..4] to 2; recv Out[0..2] from 0
  round 4: send Out[0..2] to 2; recv Out[4..6] from 0
";
        assert_eq!(text(&ring_of_three(), &[1]), expected);
        let direct = text(&direct_of_two(), &[0]);
        assert!(direct.contains("expose In[2..4]"), "{direct}");
        assert!(
            direct.contains("reduce In[0..2] of 0, In[0..2] of 1 into Out[0..2]"),
            "{direct}"
        );
        assert!(
            direct.contains("pull Out[2..4] of 1 into Out[2..4]"),
            "{direct}"
        );
    }

    #[test]
    fn the_mermaid_diagram_has_a_note_a_round_and_an_arrow_a_message() {
        let diagram = mermaid(&ring_of_three()).expect("small");
        assert!(diagram.starts_with("sequenceDiagram\n"), "{diagram}");
        assert_eq!(diagram.matches("Note over r0,r2: round").count(), 4);
        assert_eq!(diagram.matches("->>").count(), 12);
        assert!(diagram.contains("r0->>r1: + Out[4..6]"), "{diagram}");
        let direct = mermaid(&direct_of_two()).expect("small");
        assert!(direct.contains("r1-->>r0: + In[0..2]"), "{direct}");
    }

    #[test]
    fn the_svg_is_one_closed_document_with_an_arrow_a_message() {
        let picture = svg(&ring_of_three(), "ring <all_reduce> & more").expect("small");
        assert!(picture.starts_with("<svg "), "{picture}");
        assert!(picture.ends_with("</svg>\n"), "{picture}");
        assert_eq!(picture.matches("<path class=").count(), 12);
        assert!(picture.contains("ring &lt;all_reduce&gt; &amp; more"));
        assert_eq!(
            picture.matches("<g").count(),
            picture.matches("</g>").count()
        );
    }

    #[test]
    fn a_diagram_that_nobody_can_read_is_refused() {
        let problem = Problem::all_to_all(80, 1).expect("legal");
        let pairwise = find(Collective::AllToAll, "pairwise").expect("registered");
        let plans = pairwise.plans(&problem, false).expect("it applies");
        assert_eq!(mermaid(&plans), Err(TooLarge { arrows: 80 * 79 }));
    }
}
