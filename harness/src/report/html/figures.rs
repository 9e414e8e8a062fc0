//! Tables of figures whose background grows with them, and ranges on a common axis.

use maud::{Markup, html};

use super::parts::digits;
use crate::out::escaped;

/// Steps of the background.
const STEPS: f64 = 6.0;

/// The rows of a heat map: a name and its figures, `None` where there is none.
#[derive(Clone, Debug)]
pub struct Heat {
    /// What the rows are.
    pub corner: String,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Rows.
    pub rows: Vec<(String, Vec<Option<f64>>)>,
}

/// How the background of a cell is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// By its part of the greatest figure of the whole table.
    Table,
    /// By how far it lies above the least of its row: nothing at the same, all at twice as much.
    Row,
}

/// A table of figures with backgrounds; the greatest figure of each row is underlined.
#[must_use]
pub fn heat(heat: &Heat, against: Against) -> Markup {
    let greatest = heat
        .rows
        .iter()
        .flat_map(|row| row.1.iter().flatten())
        .fold(0.0_f64, |most, value| most.max(*value));
    html! {
        table.heat {
            thead { tr {
                th scope="col" { (escaped(&heat.corner)) }
                @for column in &heat.columns { th scope="col" { (escaped(column)) } }
            } }
            tbody {
                @for (name, figures) in &heat.rows {
                    @let most = figures.iter().flatten().fold(0.0_f64, |most, value| most.max(*value));
                    @let least = figures.iter().flatten().fold(f64::INFINITY, |least, value| least.min(*value));
                    tr {
                        th scope="row" { (escaped(name)) }
                        @for figure in figures {
                            @match figure {
                                Some(value) => {
                                    td class=(class(*value, against, greatest, least, most)) { (digits(*value)) }
                                }
                                None => { td { "–" } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Who waits for whom, in microseconds: the rank of a row for that of a column.
#[must_use]
pub fn waits(rows: &[(u32, Vec<f64>)]) -> Markup {
    let row = |(rank, waits): &(u32, Vec<f64>)| {
        let others = (0..)
            .zip(waits)
            .map(|(other, us)| (other != *rank).then_some(*us));
        (format!("rank {rank}"), others.collect())
    };
    let table = Heat {
        corner: "waits for".to_owned(),
        columns: rows.iter().map(|(rank, _)| rank.to_string()).collect(),
        rows: rows.iter().map(row).collect(),
    };
    heat(&table, Against::Table)
}

fn class(value: f64, against: Against, greatest: f64, least: f64, most: f64) -> String {
    let part = match against {
        Against::Table if greatest > 0.0 => value / greatest,
        Against::Row if least > 0.0 => value / least - 1.0,
        Against::Table | Against::Row => 0.0,
    };
    let step = (part.clamp(0.0, 1.0) * STEPS).round();
    // Nothing stands out where all are the same.
    let is_most = value >= most && most > least * 1.02 && most > 0.0;
    let mark = if is_most { " most" } else { "" };
    format!("h{step:.0}{mark}")
}

/// Least, inner and greatest figure of a row on an axis that all rows share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// Where it begins.
    pub low: f64,
    /// The figure in its middle.
    pub middle: f64,
    /// Where it ends.
    pub high: f64,
}

/// A range as a bar with a stroke, on a logarithmic axis from `ends.0` to `ends.1`; `one` draws the
/// place of 1 too.
#[must_use]
pub fn range(range: Range, ends: (f64, f64), one: bool, words: &str) -> Markup {
    const WIDTH: f64 = 176.0;
    let span = (ends.1 / ends.0).ln().max(1e-9);
    let at = |value: f64| {
        let part = (value.max(1e-12) / ends.0).ln() / span;
        2.0 + part.clamp(0.0, 1.0) * (WIDTH - 4.0)
    };
    let (low, middle, high) = (at(range.low), at(range.middle), at(range.high));
    html! {
        svg.inline viewBox=(format!("0 0 {WIDTH} 18")) preserveAspectRatio="none" role="img" aria-label=(escaped(words)) {
            title { (escaped(words)) }
            line.rule x1="2" x2=(WIDTH - 2.0) y1="9" y2="9" {}
            @if one { line.one x1=(format!("{:.1}", at(1.0))) x2=(format!("{:.1}", at(1.0))) y1="0" y2="18" {} }
            rect class="range f0" x=(format!("{low:.1}")) y="4" width=(format!("{:.1}", (high - low).max(1.5))) height="10" {}
            line.middle x1=(format!("{middle:.1}")) x2=(format!("{middle:.1}")) y1="2" y2="16" {}
        }
    }
}

/// A figure as a bar from zero, beside others up to `greatest`.
#[must_use]
pub fn bar(value: f64, greatest: f64, words: &str) -> Markup {
    const WIDTH: f64 = 176.0;
    let part = if greatest > 0.0 {
        (value / greatest).clamp(0.0, 1.0)
    } else {
        0.0
    };
    html! {
        svg.inline viewBox=(format!("0 0 {WIDTH} 18")) preserveAspectRatio="none" role="img" aria-label=(escaped(words)) {
            title { (escaped(words)) }
            line.rule x1="0" x2=(WIDTH) y1="14" y2="14" {}
            rect.f0 x="0" y="4" width=(format!("{:.1}", (part * WIDTH).max(0.5))) height="10" {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_of_a_row_is_marked_where_it_stands_out() {
        let table = |figures: Vec<Option<f64>>| {
            let rows = vec![("row <1>".to_owned(), figures)];
            let columns = vec!["0".to_owned(); 3];
            heat(
                &Heat {
                    corner: String::new(),
                    columns,
                    rows,
                },
                Against::Row,
            )
            .into_string()
        };
        let text = table(vec![Some(1.0), Some(1.5), None]);
        assert!(text.contains("class=\"h3 most\">1.50"), "{text}");
        assert!(
            text.contains("row &lt;1&gt;") && text.contains('–'),
            "{text}"
        );
        assert!(!table(vec![Some(1.0), Some(1.01)]).contains("most"));
        assert!(!table(vec![Some(0.0), Some(0.0)]).contains("NaN"));
    }
}
