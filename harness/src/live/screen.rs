//! The live screen: keys, and a new look every second.

use std::path::PathBuf;
use std::time::Duration;

use muster_comm::sync::{Clock, Deadline};
use muster_comm::watch::keep;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::Widget as _;

use super::view::{Look, draw, groups_on};
use super::{Jobs, Live, Order, Raw, metrics};
use crate::fail::Failure;
use crate::out::save;

/// Short looks between two of the screen's own.
pub const GLANCE_EVERY: Duration = Duration::from_millis(100);

/// What is shown, and how.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The job that is meant.
    pub job: Option<String>,
    /// Time between two looks.
    pub every: Duration,
    /// Where the figures go.
    pub prometheus: Option<PathBuf>,
    /// Whether colours are shown.
    pub has_colours: bool,
}

/// The state of the screen.
#[derive(Default)]
struct Screen {
    wanted: Wanted,
    live: Live,
    jobs: Jobs,
    raw: Vec<Raw>,
    /// Which job.
    place: usize,
    order: Order,
    skipped: usize,
    is_frozen: bool,
    /// What a key did.
    said: String,
}

/// Shows jobs until a key ends it.
///
/// # Errors
/// A failure of class RESOURCE where the terminal cannot be used.
pub fn run(wanted: Wanted) -> Result<(), Failure> {
    let broken = |error: std::io::Error| Failure::resource(format!("the terminal: {error}"));
    let mut screen = Screen {
        wanted,
        ..Screen::default()
    };
    let mut terminal = ratatui::try_init().map_err(broken)?;
    let outcome = screen.show(&mut terminal);
    ratatui::restore();
    outcome.map_err(broken)
}

impl Screen {
    fn show(&mut self, terminal: &mut ratatui::DefaultTerminal) -> std::io::Result<()> {
        self.look();
        let mut next = Deadline::after(self.wanted.every);
        loop {
            terminal.draw(|frame| self.draw(frame.area(), frame.buffer_mut()))?;
            let wait = GLANCE_EVERY.min(next.left());
            if event::poll(wait)? {
                if let Event::Key(key) = event::read()?
                    && key.kind == KeyEventKind::Press
                    && self.press(key)
                {
                    return Ok(());
                }
            } else if next.passed() {
                self.look();
                next = Deadline::after(self.wanted.every);
            } else if !self.is_frozen {
                self.live.glance();
            }
        }
    }

    fn look(&mut self) {
        if self.is_frozen {
            return;
        }
        (self.jobs, self.raw) = self.live.look(self.wanted.job.as_deref());
        self.place = self.place.min(self.jobs.jobs.len().saturating_sub(1));
        if let Some(path) = &self.wanted.prometheus {
            let saved = metrics::render(&self.jobs).and_then(|text| save(path, &text));
            if let Err(failure) = saved {
                self.said = failure.to_string();
            }
        }
    }

    /// What a key does; whether it ends the screen.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "every other key does nothing"
    )]
    fn press(&mut self, key: KeyEvent) -> bool {
        let ranks = self
            .jobs
            .jobs
            .get(self.place)
            .map_or(0, |job| job.ranks.len());
        let last = ranks.saturating_sub(1);
        self.said.clear();
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
            KeyCode::Char('s') => self.order = self.order.next(),
            KeyCode::Char('f' | ' ') => self.is_frozen = !self.is_frozen,
            KeyCode::Char('d') => self.said = self.dump(),
            KeyCode::Char('n') | KeyCode::Tab => {
                self.place = (self.place + 1) % self.jobs.jobs.len().max(1);
                self.skipped = 0;
            }
            KeyCode::Down => self.skipped = (self.skipped + 1).min(last),
            KeyCode::Up => self.skipped = self.skipped.saturating_sub(1),
            KeyCode::PageDown => self.skipped = (self.skipped + 10).min(last),
            KeyCode::PageUp => self.skipped = self.skipped.saturating_sub(10),
            KeyCode::Home => self.skipped = 0,
            KeyCode::End => self.skipped = last,
            _ => {}
        }
        false
    }

    /// Writes dumps of the job that is shown; says where they are.
    fn dump(&self) -> String {
        let Some(raw) = self.jobs.jobs.get(self.place).and_then(|job| {
            self.raw
                .iter()
                .find(|raw| format!("{:016x}", raw.job) == job.job)
        }) else {
            return "no job to dump".to_owned();
        };
        let folder = PathBuf::from(format!("muster-dump-{:016x}-{}", raw.job, Clock::wall_ms()));
        let written = std::fs::create_dir_all(&folder).and_then(|()| {
            raw.ranks
                .iter()
                .try_for_each(|seen| keep(&folder, &seen.report, None))
        });
        let folder = folder.display();
        match written {
            Ok(()) => format!(
                "{} dumps in {folder}; read them with: muster explain {folder}",
                raw.ranks.len()
            ),
            Err(error) => format!("no dumps in {folder}: {error}"),
        }
    }

    fn draw(&self, area: Rect, buffer: &mut Buffer) {
        let Some(below) = area.height.checked_sub(1) else {
            return;
        };
        let body = Rect {
            height: below,
            ..area
        };
        let look = Look {
            order: self.order,
            skipped: self.skipped,
            has_colours: self.wanted.has_colours,
        };
        match self.jobs.jobs.get(self.place) {
            Some(job) => draw(job, look, body, groups_on(below), buffer),
            None => Line::from(self.nothing()).render(body, buffer),
        }
        let foot = Rect {
            y: area.y + below,
            height: 1,
            ..area
        };
        Line::from(self.foot()).render(foot, buffer);
    }

    fn nothing(&self) -> String {
        match &self.wanted.job {
            Some(job) => {
                format!("no job {job} of this user on this host; looking again every second")
            }
            None => "no job of this user on this host; looking again every second".to_owned(),
        }
    }

    fn foot(&self) -> String {
        if !self.said.is_empty() {
            return self.said.clone();
        }
        let jobs = match self.jobs.jobs.len() {
            0 | 1 => String::new(),
            jobs => format!("  n next job ({} of {jobs})", self.place + 1),
        };
        let frozen = if self.is_frozen {
            "f go on (FROZEN)"
        } else {
            "f freeze"
        };
        format!(
            "q quit  s sort (by {})  {frozen}  d dump{jobs}  arrows scroll",
            self.order.word()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Job, RankRow};
    use super::*;

    fn screen() -> Screen {
        let job = |number: u32, ranks: u32| Job {
            job: format!("{number:016x}"),
            world_size: ranks,
            ranks: (0..ranks)
                .map(|rank| RankRow {
                    rank,
                    ..RankRow::default()
                })
                .collect(),
            ..Job::default()
        };
        Screen {
            jobs: Jobs {
                jobs: vec![job(1, 40), job(2, 2)],
                ..Jobs::default()
            },
            ..Screen::default()
        }
    }

    /// The lines of the screen.
    fn shown(screen: &Screen) -> Vec<String> {
        let area = Rect::new(0, 0, 80, 12);
        let mut buffer = Buffer::empty(area);
        screen.draw(area, &mut buffer);
        let line = |row| {
            (0..80)
                .map(|column| buffer[(column, row)].symbol())
                .collect()
        };
        (0..12).map(line).collect()
    }

    #[test]
    fn keys_do_what_the_last_line_says() {
        let mut screen = screen();
        let mut press = |code| {
            let ends = screen.press(KeyEvent::new(code, KeyModifiers::NONE));
            (ends, shown(&screen))
        };
        let (ends, lines) = press(KeyCode::Down);
        assert!(!ends && lines[2].starts_with("   1 "), "{lines:?}");
        assert!(
            lines[11]
                .starts_with("q quit  s sort (by rank)  f freeze  d dump  n next job (1 of 2)")
        );
        let (_, lines) = press(KeyCode::End);
        assert!(lines[2].starts_with("  39 "), "{lines:?}");
        let (_, lines) = press(KeyCode::Char('s'));
        assert!(lines[11].contains("by behind"), "{lines:?}");
        let (_, lines) = press(KeyCode::Char('f'));
        assert!(lines[11].contains("FROZEN"), "{lines:?}");
        let (_, lines) = press(KeyCode::Tab);
        assert!(lines[0].contains("job 0000000000000002"), "{lines:?}");
        assert!(lines[2].starts_with("   0 "), "{lines:?}");
        assert!(press(KeyCode::Char('q')).0);
        let ctrl_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert!(screen.press(ctrl_c));
    }

    #[test]
    fn without_a_job_the_screen_says_so() {
        let screen = Screen::default();
        assert!(shown(&screen)[0].starts_with("no job of this user"));
        screen.draw(Rect::new(0, 0, 0, 0), &mut Buffer::empty(Rect::ZERO));
    }
}
