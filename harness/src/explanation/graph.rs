//! Who waits for whom, drawn: ranks that do the same are one box, and an arrow goes from those that wait to those
//! that they wait for.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use maud::{Markup, html};
use muster_comm::watch::report::{CallOutcome, Report};

use crate::out::escaped;
use crate::report::cause::listed;
use crate::report::html::parts::{counted, scrolling};

/// Most boxes that are drawn.
const BOXES_MAX: usize = 30;
/// Most boxes beside each other.
const COLUMNS: usize = 3;
/// Characters of a line in a box.
const LINE_MAX: usize = 44;

// Measures of the drawing.
const WIDTH: f64 = 300.0;
const LINE: f64 = 16.0;
const GAP: (f64, f64) = (36.0, 56.0);
const MARGIN: f64 = 30.0;

/// Ranks that do the same.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Node {
    pub(super) ranks: Vec<u32>,
    /// What they do.
    pub(super) lines: Vec<String>,
    /// World ranks that they wait for.
    pub(super) missing: Vec<u32>,
}

/// What ranks do, those that do the same together, those that nobody waits for left out.
pub(super) fn nodes(reports: &[Report], blamed: &[u32]) -> Vec<Node> {
    // Who is to blame shares no box with others.
    let mut alike: BTreeMap<(bool, Vec<u32>, Vec<String>), Vec<u32>> = BTreeMap::new();
    let mut awaited: Vec<u32> = Vec::new();
    let of: BTreeMap<u32, (Vec<u32>, Vec<String>)> = reports
        .iter()
        .map(|report| (report.rank, does(report)))
        .collect();
    for (missing, _) in of.values() {
        awaited.extend(missing);
    }
    awaited.sort_unstable();
    awaited.dedup();
    for (rank, does) in &of {
        if !does.0.is_empty() || awaited.binary_search(rank).is_ok() {
            let (missing, lines) = does.clone();
            let key = (blamed.contains(rank), missing, lines);
            alike.entry(key).or_default().push(*rank);
        }
    }
    for rank in awaited {
        if !of.contains_key(&rank) {
            let lines = vec!["no dump of it".to_owned()];
            let unknown = (blamed.contains(&rank), Vec::new(), lines);
            alike.entry(unknown).or_default().push(rank);
        }
    }
    let mut nodes: Vec<Node> = alike
        .into_iter()
        .map(|((_, missing, lines), ranks)| Node {
            ranks,
            lines,
            missing,
        })
        .collect();
    nodes.sort_by_key(|node| node.ranks.first().copied());
    nodes
}

/// Whom a rank waits for, and what it does.
fn does(report: &Report) -> (Vec<u32>, Vec<String>) {
    let (mut missing, mut lines) = (Vec::new(), Vec::new());
    for group in &report.groups {
        let Some(call) = &group.call else { continue };
        let verb = if call.wait.is_some() {
            "waiting in"
        } else {
            "in"
        };
        lines.push(format!(
            "{verb} {} #{} of {}",
            call.call.name(),
            call.seq,
            group.name
        ));
        if !call.site.is_empty() {
            lines.push(format!("at {}", call.site));
        }
        if let Some(wait) = &call.wait {
            missing.extend(&wait.missing);
        }
    }
    missing.sort_unstable();
    missing.dedup();
    if lines.is_empty() {
        let last = report
            .calls
            .iter()
            .rev()
            .find(|call| call.outcome != CallOutcome::Open);
        lines.push("in no call".to_owned());
        if let Some(last) = last {
            let how = match last.outcome {
                CallOutcome::Failed => "failed in",
                CallOutcome::Completed | CallOutcome::Open => "last ended",
            };
            lines.push(format!(
                "{how} {} #{} of {}",
                last.call.name(),
                last.seq,
                last.group
            ));
            lines.push(format!("at {}", last.site));
        }
    }
    if let Some(process) = &report.process
        && process.frozen().is_some()
    {
        lines.push("its process does not run".to_owned());
    }
    (missing, lines)
}

pub(super) fn section(reports: &[Report], blamed: &[u32]) -> Markup {
    let mut nodes = nodes(reports, blamed);
    if nodes.iter().all(|node| node.missing.is_empty()) {
        return html! {};
    }
    let left = nodes.len().saturating_sub(BOXES_MAX);
    if left > 0 {
        let is_blamed = |node: &Node| node.ranks.iter().any(|rank| blamed.contains(rank));
        nodes.sort_by_key(|node| (!is_blamed(node), std::cmp::Reverse(node.ranks.len())));
        nodes.truncate(BOXES_MAX);
    }
    html! {
        section aria-labelledby="graph" {
            h2 #graph { "Who waits for whom" }
            p.soft {
                "Ranks that do the same are one box. An arrow goes from those that wait to those that they wait for."
                @if left > 0 { " " (counted(left as u64, "box", "boxes")) " of fewer ranks left out; the JSON document has all." }
            }
            (scrolling("Who waits for whom", draw(&nodes, blamed)))
        }
    }
}

/// From a box to the boxes that it waits for.
pub(super) fn arrows(nodes: &[Node]) -> Vec<(usize, usize)> {
    let mut arrows = Vec::new();
    for (from, node) in nodes.iter().enumerate() {
        for (to, other) in nodes.iter().enumerate() {
            let waits = other.ranks.iter().any(|rank| node.missing.contains(rank));
            if from != to && waits {
                arrows.push((from, to));
            }
        }
    }
    arrows
}

/// The row of each box: first those that wait for nobody, below them those that wait for a row above, and at
/// the end those that wait in a circle, one a row in the order of the circle.
pub(super) fn rows(count: usize, arrows: &[(usize, usize)]) -> Vec<usize> {
    let targets = |from: usize| {
        arrows
            .iter()
            .filter(move |(one, _)| *one == from)
            .map(|(_, to)| *to)
    };
    let mut row: Vec<Option<usize>> = (0..count)
        .map(|node| targets(node).next().is_none().then_some(0))
        .collect();
    loop {
        let next = |node: usize| {
            let above = targets(node).filter_map(|to| row[to]).min();
            above
                .filter(|_| row[node].is_none())
                .map(|above| (node, above + 1))
        };
        let found: Vec<(usize, usize)> = (0..count).filter_map(next).collect();
        if found.is_empty() {
            break;
        }
        for (node, at) in found {
            row[node] = Some(at);
        }
    }
    let mut last = row.iter().flatten().max().map_or(0, |last| last + 1);
    while let Some(mut node) = (0..count).find(|node| row[*node].is_none()) {
        loop {
            row[node] = Some(last);
            last += 1;
            match targets(node).find(|to| row[*to].is_none()) {
                Some(next) => node = next,
                None => break,
            }
        }
    }
    row.into_iter().flatten().collect()
}

/// A box on the drawing.
#[derive(Clone, Copy)]
struct Place {
    x: f64,
    y: f64,
    height: f64,
}

fn draw(nodes: &[Node], blamed: &[u32]) -> Markup {
    let arrows = arrows(nodes);
    let (places, width, height) = places(nodes, &rows(nodes.len(), &arrows));
    let text = |node: &Node| {
        let word = if node.ranks.len() == 1 {
            "rank"
        } else {
            "ranks"
        };
        let count = if node.ranks.len() > 2 {
            format!(" ({})", node.ranks.len())
        } else {
            String::new()
        };
        format!("{word} {}{count}", listed(&node.ranks))
    };
    let words = nodes.iter().fold(String::new(), |mut words, node| {
        // Writing to a string cannot fail.
        let _ = write!(words, "{}: {}. ", text(node), node.lines.join(", "));
        words
    });
    html! {
        svg.chart.waits viewBox=(format!("0 0 {width:.0} {height:.0}")) style=(format!("min-width:20rem;max-width:{width:.0}px")) role="img" aria-label=(escaped(&words)) {
            defs {
                marker #tip viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto-start-reverse" {
                    path.head d="M0 0L10 5L0 10z" {}
                }
            }
            @for (from, to) in &arrows { path.arrow d=(arrow(places[*from], places[*to], &places, width)) marker-end="url(#tip)" {} }
            @for (node, place) in nodes.iter().zip(&places) {
                @let is_blamed = node.ranks.iter().any(|rank| blamed.contains(rank));
                g {
                    rect class=(if is_blamed { "box blamed" } else { "box" }) x=(format!("{:.1}", place.x)) y=(format!("{:.1}", place.y)) width=(WIDTH) height=(place.height) rx="5" {}
                    text.name x=(format!("{:.1}", place.x + 10.0)) y=(format!("{:.1}", place.y + LINE + 2.0)) {
                        (escaped(&shortened(&text(node)))) @if is_blamed { " – to blame" }
                    }
                    @for (number, line) in node.lines.iter().enumerate() {
                        text x=(format!("{:.1}", place.x + 10.0)) y=(format!("{:.1}", place.y + LINE * (number as f64 + 2.0) + 2.0)) { (escaped(&shortened(line))) }
                    }
                }
            }
        }
    }
}

/// A line that fits a box: its end says more than its beginning where it is a path.
fn shortened(line: &str) -> String {
    let length = line.chars().count();
    if length <= LINE_MAX {
        return line.to_owned();
    }
    match line.strip_prefix("at ") {
        Some(path) => {
            let skipped = length - LINE_MAX + 1;
            format!("at …{}", path.chars().skip(skipped).collect::<String>())
        }
        None => format!("{}…", line.chars().take(LINE_MAX - 1).collect::<String>()),
    }
}

/// Where the boxes go, and the size of the drawing.
fn places(nodes: &[Node], rows: &[usize]) -> (Vec<Place>, f64, f64) {
    let mut places = vec![
        Place {
            x: 0.0,
            y: 0.0,
            height: 0.0
        };
        nodes.len()
    ];
    let last = rows.iter().copied().max().unwrap_or(0);
    let (mut y, mut most) = (MARGIN / 2.0, 1);
    for row in 0..=last {
        let of_row: Vec<usize> = (0..nodes.len()).filter(|node| rows[*node] == row).collect();
        for line in of_row.chunks(COLUMNS) {
            most = most.max(line.len());
            let mut highest: f64 = 0.0;
            for (column, node) in line.iter().enumerate() {
                let height = LINE * (nodes[*node].lines.len() as f64 + 1.0) + 12.0;
                let x = MARGIN + column as f64 * (WIDTH + GAP.0);
                places[*node] = Place { x, y, height };
                highest = highest.max(height);
            }
            y += highest + GAP.1;
        }
    }
    let width = 2.0 * MARGIN + most as f64 * WIDTH + (most as f64 - 1.0) * GAP.0;
    (places, width, y - GAP.1 + MARGIN / 2.0)
}

/// An arrow: up from the top of a box to the bottom of one above it; around the left side where another box lies between; else
/// around the right side.
fn arrow(from: Place, to: Place, all: &[Place], width: f64) -> String {
    let middle = |place: Place| place.x + WIDTH / 2.0;
    let bottom = to.y + to.height;
    let around = |x0: f64, x1: f64, side: f64| {
        let (y0, y1) = (from.y + from.height / 2.0, to.y + to.height / 2.0);
        format!("M{x0:.1} {y0:.1}C{side:.1} {y0:.1} {side:.1} {y1:.1} {x1:.1} {y1:.1}")
    };
    if bottom >= from.y {
        return around(from.x + WIDTH, to.x + WIDTH, width - 4.0);
    }
    let (left, right) = (from.x.min(to.x), from.x.max(to.x) + WIDTH);
    let lies_between = |place: &Place| {
        let is_in_reach = place.x < right && place.x + WIDTH > left;
        is_in_reach && place.y > bottom && place.y + place.height < from.y
    };
    if all.iter().any(lies_between) {
        return around(from.x, to.x, left - MARGIN + 4.0);
    }
    let (x0, y0, x1) = (middle(from), from.y, middle(to));
    let bend = (y0 - bottom) / 2.0;
    format!(
        "M{x0:.1} {y0:.1}C{x0:.1} {:.1} {x1:.1} {:.1} {x1:.1} {bottom:.1}",
        y0 - bend,
        bottom + bend
    )
}
