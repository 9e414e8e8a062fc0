//! The live line on a terminal: which matrix runs, and how far it has come.
//!
//! On stderr, and only where that is a terminal: logs and pipes see nothing of it.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Times a second that the line is drawn at most.
const DRAWS_A_SECOND: u8 = 10;
/// How often the elapsed time moves while nothing else does.
const TICK: Duration = Duration::from_millis(200);

/// A live line; nothing at all where nobody watches.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A line on stderr.
    #[must_use]
    pub fn new() -> Self {
        let target = ProgressDrawTarget::stderr_with_hz(DRAWS_A_SECOND);
        let bar = ProgressBar::with_draw_target(Some(0), target);
        let style =
            ProgressStyle::with_template("{spinner} {msg} {bar:24} {percent:>3}% {elapsed}")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style.progress_chars("=> "));
        bar.enable_steady_tick(TICK);
        Self { bar }
    }

    /// A line that also says how much time is left.
    #[must_use]
    pub fn with_time_left() -> Self {
        let progress = Self::new();
        let template = "{spinner} {msg} {bar:24} {percent:>3}% {elapsed}, about {eta} left";
        if let Ok(style) = ProgressStyle::with_template(template) {
            progress.bar.set_style(style.progress_chars("=> "));
        }
        progress
    }

    /// The lines of a world begin.
    pub fn begin_lines(&self, world: &str, world_size: u32) {
        self.bar.reset();
        self.bar.set_message(format!("{world}, {world_size} ranks"));
    }

    /// Prints something else while the line is off the screen.
    pub fn suspended<R>(&self, print: impl FnOnce() -> R) -> R {
        self.bar.suspend(print)
    }

    /// A matrix begins.
    pub fn begin(&self, matrix: &str, world_size: u32, place: usize, of: usize) {
        self.bar.reset();
        self.bar
            .set_message(format!("{matrix} ({place}/{of}), {world_size} ranks"));
    }

    /// So many of so many answers have come.
    pub fn set(&self, answers: usize, expected: usize) {
        self.bar.set_length(expected as u64);
        self.bar.set_position(answers as u64);
    }

    /// Takes the line off the screen, before anything else is printed.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
