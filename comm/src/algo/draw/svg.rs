//! Plans as an SVG picture: ranks are vertical lines, rounds are bands, messages are arrows.
//!
//! The document needs nothing from outside and follows the viewer's dark or light scheme.

use super::super::plan::Plan;
use super::{Arrow, TooLarge, arrows, show};

/// Distance between two ranks, in pixels, as are all lengths here.
const COLUMN: usize = 110;
/// Distance between two arrows.
const LINE: usize = 18;
/// Space above and below the arrows of a round.
const PAD: usize = 14;
/// Space left of the first rank, where the rounds are named.
const MARGIN: usize = 90;
/// Space above the first round.
const HEAD: usize = 64;

/// Colours stand in plain rules, not in variables, which many viewers do not know.
const STYLE: &str = "\
text{font:12px sans-serif;fill:#1b1f24}.title{font-size:15px;font-weight:bold}\
.label{font-size:10px}.page{fill:#fff}.band{fill:#f3f5f8}.rank{stroke:#c9d1d9}\
.move{stroke:#0a58ca;fill:none}.reduce{stroke:#b3470c;fill:none}.pull{stroke-dasharray:4 3}\
.head-move{fill:#0a58ca}.head-reduce{fill:#b3470c}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.page{fill:#0d1117}.band{fill:#151b23}\
.rank{stroke:#3d444d}.move{stroke:#6cb0ff}.reduce{stroke:#ff9d5c}.head-move{fill:#6cb0ff}\
.head-reduce{fill:#ff9d5c}}";

/// The picture, with a title. Blue arrows move elements, orange ones reduce them; dashed arrows
/// are reads of the source's memory.
///
/// # Errors
/// [`TooLarge`], with the number of arrows.
pub fn svg(plans: &[Plan], title: &str) -> Result<String, TooLarge> {
    let arrows = arrows(plans)?;
    let rounds = plans.iter().map(|plan| plan.rounds.len()).max();
    let width = MARGIN + plans.len() * COLUMN;
    let mut body = Vec::new();
    let mut top = HEAD;
    let mut rest = arrows.as_slice();
    for round in 0..rounds.unwrap_or(0) {
        let here = rest.iter().take_while(|a| a.round == round).count();
        let (of_round, later) = rest.split_at(here);
        rest = later;
        let height = 2 * PAD + of_round.len() * LINE;
        if round.is_multiple_of(2) {
            body.push(format!(
                "<rect class=\"band\" x=\"0\" y=\"{top}\" width=\"{width}\" height=\"{height}\"/>"
            ));
        }
        body.push(format!(
            "<text x=\"12\" y=\"{}\">round {round}</text>",
            top + PAD + 4
        ));
        for (line, arrow) in of_round.iter().enumerate() {
            push_arrow(&mut body, arrow, top + PAD + line * LINE + LINE / 2);
        }
        top += height;
    }
    let mut document = vec![
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{0}\" \
             viewBox=\"0 0 {width} {0}\">",
            top + PAD
        ),
        format!("<title>{0}</title><style>{STYLE}</style>", escaped(title)),
        "<defs>".to_owned(),
        head("move"),
        head("reduce"),
        "</defs>".to_owned(),
        "<rect class=\"page\" width=\"100%\" height=\"100%\"/>".to_owned(),
        format!(
            "<text class=\"title\" x=\"12\" y=\"22\">{}</text>",
            escaped(title)
        ),
    ];
    // Bands first, then the lines of ranks, then arrows: later ones lie on top.
    let (bands, rest): (Vec<_>, Vec<_>) = body
        .into_iter()
        .partition(|element| element.starts_with("<rect"));
    document.extend(bands);
    for rank in 0..plans.len() {
        let x = x_of(rank);
        document.push(format!(
            "<text x=\"{x}\" y=\"{}\" text-anchor=\"middle\">rank {rank}</text>\
             <line class=\"rank\" x1=\"{x}\" x2=\"{x}\" y1=\"{HEAD}\" y2=\"{top}\"/>",
            HEAD - 10
        ));
    }
    document.extend(rest);
    document.push("</svg>\n".to_owned());
    Ok(document.join("\n"))
}

fn x_of(rank: usize) -> usize {
    MARGIN + rank * COLUMN + COLUMN / 2
}

fn push_arrow(body: &mut Vec<String>, arrow: &Arrow, y: usize) {
    let kind = if arrow.reduces { "reduce" } else { "move" };
    let dashes = if arrow.is_pull { " pull" } else { "" };
    let (from, to) = (x_of(arrow.from), x_of(arrow.to));
    let sign = if arrow.reduces { "+ " } else { "" };
    body.push(format!(
        "<g><path class=\"{kind}{dashes}\" d=\"M{from} {y}H{to}\" marker-end=\"url(#{kind})\"/>\
         <text class=\"label\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{sign}{}</text>\
         <title>round {}: rank {} {} to rank {} {}</title></g>",
        from.midpoint(to),
        y - 3,
        show(arrow.src),
        arrow.round,
        arrow.from,
        show(arrow.src),
        arrow.to,
        show(arrow.dst)
    ));
}

fn head(kind: &str) -> String {
    format!(
        "<marker id=\"{kind}\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" \
         markerHeight=\"8\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" class=\"head-{kind}\"/>\
         </marker>"
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
