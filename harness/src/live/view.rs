//! A job as a screen of any size: what a terminal shows live, and what `--once` prints.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table};

use super::{GroupRow, Job, RankRow, State};
use crate::out::{broken, escaped};
use crate::report::cause::listed;

/// From this width on, the number of the process is shown, and the call site.
const WIDE: u16 = 100;
const WIDER: u16 = 140;
/// A wait that is shown among those of the job has lasted this long.
const WAIT_SHOWN_MS: u64 = 500;
/// Most lines of waits, and of groups where the screen is small.
const WAITS_MAX: usize = 12;
const GROUPS_MAX: usize = 12;

/// By what ranks are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// By number.
    #[default]
    Rank,
    /// Those that are behind most come first.
    Behind,
    /// Those that have waited or been outside longest come first.
    Since,
    /// By what they do: ended, stopped, waiting, in a call, outside.
    State,
}

impl Order {
    /// The word of the screen.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Rank => "rank",
            Self::Behind => "behind",
            Self::Since => "since",
            Self::State => "state",
        }
    }

    /// The next one, and after the last the first.
    #[must_use]
    pub const fn next(self) -> Self {
        match self {
            Self::Rank => Self::Behind,
            Self::Behind => Self::Since,
            Self::Since => Self::State,
            Self::State => Self::Rank,
        }
    }
}

/// How a job is shown.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Look {
    pub(super) order: Order,
    /// Ranks above the first that is shown.
    pub(super) skipped: usize,
    pub(super) has_colours: bool,
}

impl Look {
    fn style(self, colour: Color) -> Style {
        if self.has_colours {
            Style::new().fg(colour)
        } else {
            Style::new()
        }
    }

    fn strong(self) -> Style {
        if self.has_colours {
            Style::new().add_modifier(Modifier::BOLD)
        } else {
            Style::new()
        }
    }
}

/// All jobs as lines of text for a terminal or a file of this width.
#[must_use]
pub fn once(jobs: &[Job], width: u16) -> String {
    let of = |job: &Job| {
        let rows = 8 + job.ranks.len() + job.groups.len() + job.late.len() + WAITS_MAX + 8;
        let height = u16::try_from(rows).unwrap_or(u16::MAX);
        let area = Rect::new(0, 0, width, height);
        let mut buffer = Buffer::empty(area);
        draw(job, Look::default(), area, usize::MAX, &mut buffer);
        text(&buffer)
    };
    let texts: Vec<String> = jobs.iter().map(of).collect();
    texts.join("\n")
}

/// The lines of a buffer, without what is empty at their ends and at its end.
fn text(buffer: &Buffer) -> String {
    let area = buffer.area;
    let line = |row: u16| {
        let cells = (0..area.width).map(|column| buffer[(column, row)].symbol());
        cells.collect::<String>().trim_end().to_owned() + "\n"
    };
    let lines: String = (0..area.height).map(line).collect();
    lines.trim_end().to_owned() + "\n"
}

/// Draws a job. `groups_max` bounds the lines of communicators.
pub(super) fn draw(job: &Job, look: Look, area: Rect, groups_max: usize, buffer: &mut Buffer) {
    let mut room = Room { left: area };
    room.take(1).render(title(job, look), buffer);
    let width = usize::from(area.width);
    let remarks: Vec<Line<'_>> = waits(job)
        .into_iter()
        .map(|text| (text, Color::Reset))
        .chain(remarks(job))
        .flat_map(|(text, colour)| lines(&text, width, look.style(colour)))
        .collect();
    let groups_max = groups_max.min(job.groups.len());
    // Ranks come first, but leave the others something.
    let all = usize::from(room.left.height);
    let least = (remarks.len() + groups_max + 3).min(all / 2);
    let for_ranks = (job.ranks.len() + 1).min(all - least);
    let shown = for_ranks.saturating_sub(1);
    let table = ranks(job, look, area.width, shown);
    room.take(for_ranks).render(table, buffer);
    room.take(1);
    if !remarks.is_empty() {
        let part = room.take(remarks.len());
        part.render(Paragraph::new(remarks), buffer);
        room.take(1);
    }
    let table = groups(job, look, area.width, groups_max);
    room.take(groups_max + 1).render(table, buffer);
}

/// A text in lines of a terminal.
fn lines(text: &str, width: usize, style: Style) -> Vec<Line<'static>> {
    let broken = broken(text, width);
    let line = |line: &str| Line::from(Span::styled(line.to_owned(), style));
    broken.lines().map(line).collect()
}

/// What is left of a screen.
struct Room {
    left: Rect,
}

struct Part(Rect);

impl Room {
    fn take(&mut self, lines: usize) -> Part {
        let height = u16::try_from(lines)
            .unwrap_or(u16::MAX)
            .min(self.left.height);
        let part = Rect {
            height,
            ..self.left
        };
        self.left.y += height;
        self.left.height -= height;
        Part(part)
    }
}

impl Part {
    fn render(self, widget: impl ratatui::widgets::Widget, buffer: &mut Buffer) {
        widget.render(self.0, buffer);
    }
}

fn title(job: &Job, look: Look) -> Line<'static> {
    let count = |state: State| job.ranks.iter().filter(|rank| rank.state == state).count();
    let states = [
        State::Ended,
        State::Stopped,
        State::Waiting,
        State::InCall,
        State::Outside,
    ];
    let told = states
        .into_iter()
        .filter(|state| count(*state) > 0)
        .map(|state| format!("{} {}", count(state), state.word()));
    let told: Vec<String> = told.collect();
    let hosts = match job.hosts.len() {
        0 | 1 => String::new(),
        hosts => format!(" on {hosts} hosts"),
    };
    Line::from(vec![
        Span::styled(format!("job {}", job.job), look.strong()),
        Span::raw(format!(
            "  {}  {} of {} ranks{hosts}: {}",
            job.kind.word(),
            job.ranks.len(),
            job.world_size,
            told.join(", ")
        )),
    ])
}

fn sorted(job: &Job, order: Order) -> Vec<&RankRow> {
    let mut rows: Vec<&RankRow> = job.ranks.iter().collect();
    match order {
        Order::Rank => {}
        Order::Behind => rows.sort_by_key(|row| std::cmp::Reverse(row.behind)),
        Order::Since => rows.sort_by_key(|row| std::cmp::Reverse(row.since_ms)),
        Order::State => rows.sort_by_key(|row| row.state),
    }
    rows
}

/// A column of the table of ranks.
type Column = (
    &'static str,
    Constraint,
    fn(&RankRow, Look) -> Cell<'static>,
);

/// The columns for this width.
fn columns(job: &Job, width: u16) -> Vec<Column> {
    use Constraint::{Fill, Length};
    let (is_wide, is_wider) = (width >= WIDE, width >= WIDER);
    let names = job.ranks.iter().map(|rank| rank.group.len());
    let name = u16::try_from(names.max().unwrap_or(0)).unwrap_or(u16::MAX);
    let name = name.clamp(5, if is_wide { 24 } else { 10 });
    let host = if is_wide { 16 } else { 8 };
    let all: [(bool, Column); 11] = [
        (
            true,
            ("rank", Length(5), |row, _| {
                Cell::from(format!("{:>4}", row.rank))
            }),
        ),
        (
            is_wide,
            ("pid", Length(7), |row, _| Cell::from(row.pid.to_string())),
        ),
        (
            job.hosts.len() > 1,
            ("host", Length(host), |row, _| {
                Cell::from(escaped(&row.host))
            }),
        ),
        (true, ("state", Length(7), state)),
        (
            true,
            ("call", Fill(3), |row, _| Cell::from(escaped(&call(row)))),
        ),
        (
            true,
            ("group", Length(name), |row, _| {
                Cell::from(escaped(&row.group))
            }),
        ),
        (
            true,
            ("number", Length(8), |row, _| {
                let number = if row.call.is_empty() { 0 } else { row.seq };
                Cell::from(format!("{:>8}", none_if_zero(number)))
            }),
        ),
        (
            true,
            ("behind", Length(6), |row, _| {
                Cell::from(format!("{:>6}", none_if_zero(row.behind)))
            }),
        ),
        (
            true,
            ("since", Length(6), |row, _| {
                Cell::from(format!("{:>6}", row.since_ms.map_or_else(String::new, age)))
            }),
        ),
        (
            true,
            ("waits for", Fill(1), |row, _| Cell::from(waits_for(row))),
        ),
        (
            is_wider,
            ("at", Fill(2), |row, _| Cell::from(escaped(&row.site))),
        ),
    ];
    all.into_iter()
        .filter(|(is_shown, _)| *is_shown)
        .map(|(_, column)| column)
        .collect()
}

fn state(row: &RankRow, look: Look) -> Cell<'static> {
    let colour = match row.state {
        State::Ended | State::Stopped => Color::Red,
        State::Waiting => Color::Yellow,
        State::InCall => Color::Green,
        State::Outside => Color::Reset,
    };
    Cell::from(Span::styled(row.state.word(), look.style(colour)))
}

fn call(row: &RankRow) -> String {
    let is_over = matches!(row.state, State::Outside | State::Ended);
    if is_over && !row.call.is_empty() {
        format!("after {}", row.call)
    } else {
        row.call.clone()
    }
}

fn ranks(job: &Job, look: Look, width: u16, room: usize) -> Table<'static> {
    let columns = columns(job, width);
    let rows = sorted(job, look.order).into_iter().skip(look.skipped);
    let cells = |row: &RankRow| -> Vec<Cell<'static>> {
        columns.iter().map(|(_, _, cell)| cell(row, look)).collect()
    };
    let rows = rows.take(room).map(|row| Row::new(cells(row))).collect();
    let head = columns.iter().map(|(name, _, _)| *name).collect();
    let widths = columns.iter().map(|(_, width, _)| *width).collect();
    table(head, rows, widths, look)
}

fn table(
    head: Vec<&'static str>,
    rows: Vec<Row<'static>>,
    widths: Vec<Constraint>,
    look: Look,
) -> Table<'static> {
    let right = [
        "number", "behind", "since", "ranks", "calls/s", "MB/s", "waiting", "oldest",
    ];
    let cell = |(name, width): (&'static str, &Constraint)| {
        if let Constraint::Length(width) = width
            && right.contains(&name)
        {
            return Cell::from(format!("{name:>width$}", width = usize::from(*width)));
        }
        Cell::from(name)
    };
    let header = head.into_iter().zip(&widths).map(cell);
    let header = Row::new(header.collect::<Vec<_>>()).style(look.strong());
    Table::new(rows, widths).header(header).column_spacing(1)
}

fn waits_for(row: &RankRow) -> String {
    let more = match row.waits_for_more {
        0 => String::new(),
        more if row.waits_for.is_empty() => format!("{more} ranks"),
        more => format!(" and {more} more"),
    };
    listed(&row.waits_for) + &more
}

/// A time in at most six characters.
pub(super) fn age(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms}ms"),
        1_000..100_000 => format!("{:.1}s", ms as f64 / 1e3),
        100_000..6_000_000 => format!("{}m{:02}", ms / 60_000, ms / 1_000 % 60),
        _ => format!("{}h{:02}", ms / 3_600_000, ms / 60_000 % 60),
    }
}

/// Who waits for whom, those together that wait in one call for the same ranks.
fn waits(job: &Job) -> Vec<String> {
    let mut alike: Vec<(Vec<u32>, &RankRow, u64)> = Vec::new();
    for row in &job.ranks {
        let since_ms = row.since_ms.unwrap_or(0);
        if row.state != State::Waiting || since_ms < WAIT_SHOWN_MS {
            continue;
        }
        let is_same = |other: &RankRow| {
            (&other.group, other.seq, &other.call) == (&row.group, row.seq, &row.call)
                && waits_for(other) == waits_for(row)
        };
        match alike.iter_mut().find(|(_, other, _)| is_same(other)) {
            Some((ranks, _, longest)) => {
                ranks.push(row.rank);
                *longest = since_ms.max(*longest);
            }
            None => alike.push((vec![row.rank], row, since_ms)),
        }
    }
    let left = alike.len().saturating_sub(WAITS_MAX);
    let line = |(ranks, row, longest): &(Vec<u32>, &RankRow, u64)| {
        let (word, waits) = if ranks.len() == 1 {
            ("rank", "waits")
        } else {
            ("ranks", "wait")
        };
        let site = if row.site.is_empty() {
            String::new()
        } else {
            format!(" at {}", escaped(&row.site))
        };
        format!(
            "{word} {} {waits} for {} in {} #{} of {} for {}{site}",
            listed(ranks),
            waits_for(row),
            escaped(row.call.split(' ').next().unwrap_or_default()),
            row.seq,
            escaped(&row.group),
            age(*longest)
        )
    };
    let mut lines: Vec<String> = alike.iter().take(WAITS_MAX).map(line).collect();
    if left > 0 {
        lines.push(format!("and {left} more such lines"));
    }
    lines
}

fn remarks(job: &Job) -> Vec<(String, Color)> {
    let mut all = Vec::new();
    if let Some(verdict) = &job.verdict {
        let what = format!(
            "the boards show {}: {}: {}",
            verdict.class.name(),
            escaped(&verdict.who),
            escaped(&verdict.place)
        );
        all.push((what, Color::Red));
        all.push((format!("next: {}", escaped(&verdict.next)), Color::Reset));
    }
    let late = job.late.iter();
    all.extend(late.map(|late| (escaped(&late.line()), Color::Yellow)));
    all
}

fn groups(job: &Job, look: Look, width: u16, most: usize) -> Table<'static> {
    let head = vec![
        "group", "ranks", "number", "calls/s", "MB/s", "waiting", "oldest", "behind",
    ];
    let widths = vec![
        Constraint::Length(if width >= WIDE { 32 } else { 16 }),
        Constraint::Length(5),
        Constraint::Length(10),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Length(7),
        Constraint::Length(6),
        Constraint::Fill(1),
    ];
    let row = |group: &GroupRow| {
        let rate = |value: Option<f64>| value.map_or_else(String::new, short);
        let laggards = match group.laggards.len() {
            0 => String::new(),
            _ if group.behind == 1 => listed(&group.laggards),
            _ => format!("{} (by {})", listed(&group.laggards), group.behind),
        };
        let oldest = match group.oldest_ms {
            0 => String::new(),
            ms => age(ms),
        };
        Row::new(vec![
            Cell::from(escaped(&group.name)),
            Cell::from(format!("{:>5}", group.size)),
            Cell::from(format!("{:>10}", group.seq)),
            Cell::from(format!("{:>8}", rate(group.calls_per_s))),
            Cell::from(format!(
                "{:>8}",
                rate(group.bytes_per_s.map(|bytes| bytes / 1e6))
            )),
            Cell::from(format!("{:>7}", none_if_zero(u64::from(group.waiting)))),
            Cell::from(format!("{oldest:>6}")),
            Cell::from(laggards),
        ])
    };
    table(
        head,
        job.groups.iter().take(most).map(row).collect(),
        widths,
        look,
    )
}

fn none_if_zero(number: u64) -> String {
    match number {
        0 => String::new(),
        number => number.to_string(),
    }
}

/// A figure in at most eight characters.
fn short(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{value:.2e}"),
        value if value >= 100.0 => format!("{value:.0}"),
        value if value > 0.0 => format!("{value:.2}"),
        _ => "0".to_owned(),
    }
}

/// How many lines of communicators a screen of this height shows.
pub(super) fn groups_on(height: u16) -> usize {
    usize::from(height / 3).min(GROUPS_MAX)
}
