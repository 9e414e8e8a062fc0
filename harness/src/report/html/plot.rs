//! Curves on logarithmic axes as SVG: lines, bands of quantiles, and all values at the place that is
//! pointed at.
//!
//! No script: the box with the values is there all the time and shows itself while its column is
//! hovered or has the focus. Lines differ in dashes and marks, not in colour alone.

mod axis;

use std::fmt::Write as _;

use maud::{Markup, html};

use self::axis::Scale;
pub use self::axis::Unit;
use crate::out::escaped;

/// Lines of one chart at most: so many dashes and marks can be told apart.
pub const SERIES_MAX: usize = 8;
/// Lines that may have bands; those of more would hide each other.
pub const BANDS_MAX: usize = 4;

const WIDTH: f64 = 460.0;
const HEIGHT: f64 = 290.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 8.0;
const BOTTOM: f64 = 40.0;
/// Width of a character of a box, about.
const CHARACTER: f64 = 5.5;
const LINE: f64 = 14.0;

/// A value at a place, with the quantiles around it.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Where.
    pub x: f64,
    /// The value.
    pub y: f64,
    /// The band that holds most values.
    pub inner: Option<(f64, f64)>,
    /// The band that holds almost all.
    pub outer: Option<(f64, f64)>,
}

/// A line.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its points; those that a logarithmic axis cannot show are left out.
    pub points: Vec<Point>,
}

/// A chart.
#[derive(Clone, Debug)]
pub struct Chart<'a> {
    /// What it shows.
    pub title: &'a str,
    /// A word more, such as what the bands are.
    pub more: &'a str,
    /// What x counts, and its name.
    pub x: (Unit, &'a str),
    /// What y counts, and its name.
    pub y: (Unit, &'a str),
    /// The lines.
    pub series: &'a [Series],
    /// Tells its parts from those of other charts of the page.
    pub id: &'a str,
}

/// A chart with its caption and legend; nothing where no point can be drawn.
#[must_use]
pub fn figure(chart: &Chart<'_>) -> Markup {
    let points = || chart.series.iter().flat_map(|series| &series.points);
    let bands = chart.series.len() <= BANDS_MAX;
    let heights = points().flat_map(|point| {
        let band = point.outer.or(point.inner).filter(|_| bands);
        [
            point.y,
            band.map_or(point.y, |b| b.0),
            band.map_or(point.y, |b| b.1),
        ]
    });
    let x = Scale::over(points().map(|point| point.x), 1.15, (LEFT, WIDTH - RIGHT));
    let y = Scale::over(heights, 1.25, (HEIGHT - BOTTOM, TOP));
    let (Some(x), Some(y)) = (x, y) else {
        return html! {};
    };
    let (title, description) = (format!("{}-t", chart.id), format!("{}-d", chart.id));
    html! {
        figure {
            figcaption { (escaped(chart.title)) @if !chart.more.is_empty() { " " small { (chart.more) } } }
            svg.chart viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-labelledby=(format!("{title} {description}")) {
                title id=(title) { (escaped(chart.title)) }
                desc id=(description) { (describe(chart)) }
                (axes(chart, &x, &y))
                @for (number, series) in chart.series.iter().enumerate().rev() {
                    (line(series, number, bands, &x, &y))
                }
                (columns(chart, &x))
            }
            (legend(chart.series))
        }
    }
}

/// The chart in words, for those who do not see it.
fn describe(chart: &Chart<'_>) -> String {
    let mut text = format!("{} over {}, both logarithmic. ", chart.y.1, chart.x.1);
    for series in chart.series {
        let drawn: Vec<&Point> = series.points.iter().filter(|p| p.y > 0.0).collect();
        if let (Some(first), Some(last)) = (drawn.first(), drawn.last()) {
            text.push_str(&escaped(&format!(
                "{}: from {} at {} to {} at {}. ",
                series.name,
                chart.y.0.shown(first.y),
                chart.x.0.shown(first.x),
                chart.y.0.shown(last.y),
                chart.x.0.shown(last.x),
            )));
        }
    }
    text + "All values stand in the table."
}

fn axes(chart: &Chart<'_>, x: &Scale, y: &Scale) -> Markup {
    let (floor, ceiling) = (HEIGHT - BOTTOM, TOP);
    html! {
        g aria-hidden="true" {
            @for (value, labelled) in y.ticks(chart.y.0) {
                @let at = y.at(value);
                line class=(rule(labelled)) x1=(LEFT) x2=(WIDTH - RIGHT) y1=(place(at)) y2=(place(at)) {}
                @if labelled { text x=(LEFT - 6.0) y=(place(at + 3.5)) text-anchor="end" { (chart.y.0.tick(value)) } }
            }
            @for (value, labelled) in x.ticks(chart.x.0) {
                @let at = x.at(value);
                line class=(rule(labelled)) x1=(place(at)) x2=(place(at)) y1=(floor) y2=(ceiling) {}
                @if labelled { text x=(place(at)) y=(floor + 15.0) text-anchor="middle" { (chart.x.0.tick(value)) } }
            }
            line.frame x1=(LEFT) x2=(WIDTH - RIGHT) y1=(floor) y2=(floor) {}
            text x=(place(f64::midpoint(LEFT, WIDTH - RIGHT))) y=(HEIGHT - 5.0) text-anchor="middle" { (chart.x.1) }
            text x="0" y="0" text-anchor="middle" transform=(format!("translate(11 {}) rotate(-90)", f64::midpoint(floor, ceiling))) { (chart.y.1) }
        }
    }
}

const fn rule(labelled: bool) -> &'static str {
    if labelled { "rule" } else { "rule minor" }
}

fn line(series: &Series, number: usize, bands: bool, x: &Scale, y: &Scale) -> Markup {
    let look = number % SERIES_MAX;
    let drawn: Vec<&Point> = series
        .points
        .iter()
        .filter(|p| p.y > 0.0 && p.x > 0.0)
        .collect();
    let places: Vec<(f64, f64)> = drawn.iter().map(|p| (x.at(p.x), y.at(p.y))).collect();
    let band = |of: fn(&Point) -> Option<(f64, f64)>| -> Option<String> {
        let edges: Vec<(f64, f64, f64)> = drawn
            .iter()
            .filter_map(|p| {
                of(p)
                    .filter(|b| b.0 > 0.0)
                    .map(|b| (x.at(p.x), y.at(b.0), y.at(b.1)))
            })
            .collect();
        let there = edges.iter().map(|e| (e.0, e.2));
        let back = edges.iter().rev().map(|e| (e.0, e.1));
        (edges.len() > 1 && bands).then(|| path(there.chain(back)) + "Z")
    };
    html! {
        g aria-hidden="true" {
            @if let Some(d) = band(|p| p.outer) { path class=(format!("band f{look}")) d=(d) {} }
            @if let Some(d) = band(|p| p.inner) { path class=(format!("band inner f{look}")) d=(d) {} }
            path class=(format!("curve c{look}")) d=(path(places.iter().copied())) {}
            @for (x, y) in places { path class=(format!("mark f{look}")) d=(mark(look, x, y)) {} }
        }
    }
}

/// All values at every place of x, each in a box of its own that hides until it is pointed at.
fn columns(chart: &Chart<'_>, x: &Scale) -> Markup {
    let mut places: Vec<f64> = chart
        .series
        .iter()
        .flat_map(|series| &series.points)
        .filter(|point| point.y > 0.0 && point.x > 0.0)
        .map(|point| point.x)
        .collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let at: Vec<f64> = places.iter().map(|place| x.at(*place)).collect();
    let edge = |left: usize| match (at.get(left.wrapping_sub(1)), at.get(left)) {
        (Some(before), Some(after)) => f64::midpoint(*before, *after),
        (None, _) => LEFT,
        (_, None) => WIDTH - RIGHT,
    };
    html! {
        @for (number, value) in places.iter().enumerate() {
            g.column tabindex="0" role="img" aria-label=(words_at(chart, *value)) {
                rect.catch x=(place(edge(number))) y=(TOP) width=(place(edge(number + 1) - edge(number))) height=(HEIGHT - TOP - BOTTOM) {}
                (tip(chart, *value, at[number]))
            }
        }
    }
}

/// The lines of the box at a place: the place, then a line for each series that has a value there.
fn words(chart: &Chart<'_>, x: f64) -> (String, Vec<(usize, String)>) {
    let lines = chart
        .series
        .iter()
        .enumerate()
        .filter_map(|(number, series)| {
            let same = |point: &&Point| point.x.total_cmp(&x).is_eq() && point.y > 0.0;
            let point = series.points.iter().find(same)?;
            let mut text = format!("{}: {}", escaped(&series.name), chart.y.0.shown(point.y));
            if let Some((low, _)) = point.inner {
                let _ = write!(text, ", min {}", chart.y.0.shown(low));
            }
            if let Some((_, high)) = point.outer {
                let _ = write!(text, ", p99 {}", chart.y.0.shown(high));
            }
            Some((number, text))
        });
    (chart.x.0.shown(x), lines.collect())
}

fn words_at(chart: &Chart<'_>, x: f64) -> String {
    let (head, lines) = words(chart, x);
    let lines: Vec<String> = lines.into_iter().map(|(_, text)| text).collect();
    format!("{head}: {}", lines.join("; "))
}

fn tip(chart: &Chart<'_>, value: f64, at: f64) -> Markup {
    let (head, lines) = words(chart, value);
    let longest = lines.iter().map(|(_, text)| text.chars().count() + 3);
    let longest = longest.max().unwrap_or(0).max(head.chars().count());
    let width = (longest as f64 * CHARACTER + 14.0).min(WIDTH);
    let height = LINE * (lines.len() as f64 + 1.0) + 9.0;
    let left = if at + 10.0 + width <= WIDTH {
        at + 10.0
    } else {
        (at - 10.0 - width).max(0.0)
    };
    html! {
        g.tip aria-hidden="true" {
            line.hair x1=(place(at)) x2=(place(at)) y1=(TOP) y2=(HEIGHT - BOTTOM) {}
            rect.box x=(place(left)) y=(TOP) width=(place(width)) height=(place(height)) rx="3" {}
            text.head x=(place(left + 7.0)) y=(place(TOP + 15.0)) { (head) }
            @for (row, (number, text)) in lines.iter().enumerate() {
                @let y = TOP + 15.0 + LINE * (row as f64 + 1.0);
                path class=(format!("f{}", number % SERIES_MAX)) d=(mark(number % SERIES_MAX, left + 11.0, y - 3.5)) {}
                text x=(place(left + 20.0)) y=(place(y)) { (text) }
            }
        }
    }
}

fn legend(series: &[Series]) -> Markup {
    html! {
        ul.legend {
            @for (number, series) in series.iter().enumerate() {
                @let look = number % SERIES_MAX;
                li {
                    svg viewBox="0 0 32 12" aria-hidden="true" {
                        path class=(format!("curve c{look}")) d="M1 6H31" {}
                        path class=(format!("mark f{look}")) d=(mark(look, 16.0, 6.0)) {}
                    }
                    span { (escaped(&series.name)) }
                }
            }
        }
    }
}

fn path(places: impl Iterator<Item = (f64, f64)>) -> String {
    let mut text = String::new();
    for (x, y) in places {
        text.push(if text.is_empty() { 'M' } else { 'L' });
        let _ = write!(text, "{} {}", place(x), place(y));
    }
    text
}

/// The outline of a mark: eight shapes that differ without colour.
fn mark(look: usize, x: f64, y: f64) -> String {
    let around =
        |corners: &[(f64, f64)]| path(corners.iter().map(|(dx, dy)| (x + dx, y + dy))) + "Z";
    match look {
        0 => format!(
            "M{} {}a3.4 3.4 0 1 0 6.8 0a3.4 3.4 0 1 0 -6.8 0Z",
            place(x - 3.4),
            place(y)
        ),
        1 => around(&[(-3.2, -3.2), (3.2, -3.2), (3.2, 3.2), (-3.2, 3.2)]),
        2 => around(&[(0.0, -4.2), (4.0, 3.0), (-4.0, 3.0)]),
        3 => around(&[(0.0, -4.4), (4.4, 0.0), (0.0, 4.4), (-4.4, 0.0)]),
        4 => around(&[(-4.0, -3.0), (4.0, -3.0), (0.0, 4.2)]),
        5 => around(&[(-4.2, -1.4), (4.2, -1.4), (4.2, 1.4), (-4.2, 1.4)]),
        6 => around(&[(-1.4, -4.2), (1.4, -4.2), (1.4, 4.2), (-1.4, 4.2)]),
        _ => around(&[
            (-4.0, -4.0),
            (0.0, -1.6),
            (4.0, -4.0),
            (1.6, 0.0),
            (4.0, 4.0),
            (0.0, 1.6),
            (-4.0, 4.0),
            (-1.6, 0.0),
        ]),
    }
}

/// A coordinate with one digit behind the point.
fn place(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0")
        .map_or_else(|| text.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(x: f64, y: f64) -> Point {
        Point {
            x,
            y,
            inner: Some((y / 2.0, y * 2.0)),
            outer: Some((y / 2.0, y * 4.0)),
        }
    }

    fn drawn(points: Vec<Point>) -> String {
        let series = [Series {
            name: "a <b> & \"c\"".to_owned(),
            points,
        }];
        let chart = Chart {
            title: "latency",
            more: "",
            x: (Unit::Bytes, "size"),
            y: (Unit::Micros, "time"),
            series: &series,
            id: "one",
        };
        figure(&chart).into_string()
    }

    #[test]
    fn every_coordinate_lies_in_the_picture() {
        let text = drawn(
            (0..9)
                .map(|i| point(8_f64.powi(i), 1.5_f64.powi(i * 3)))
                .collect(),
        );
        assert!(text.contains("a &lt;b&gt; &amp;"), "{text}");
        let curve = text
            .split("class=\"curve c0\" d=\"M")
            .nth(1)
            .expect("a curve");
        let curve = curve.split('"').next().expect("an end");
        for pair in curve.split('L') {
            let numbers: Vec<f64> = pair
                .split(' ')
                .map(|n| n.parse().expect("a number"))
                .collect();
            assert!((LEFT..=WIDTH - RIGHT).contains(&numbers[0]), "{pair}");
            assert!((TOP..=HEIGHT - BOTTOM).contains(&numbers[1]), "{pair}");
        }
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }

    #[test]
    fn a_single_point_is_drawn_and_zeros_are_left_out() {
        let text = drawn(vec![point(8.0, 0.0), point(64.0, 3.0)]);
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        assert_eq!(text.matches("class=\"column\"").count(), 1);
        assert_eq!(drawn(vec![point(8.0, 0.0)]), "");
    }
}
