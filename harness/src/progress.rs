//! The live line on a terminal: what runs, how far the whole run has come, and how much time is left.
//!
//! On stderr, and only where that is a terminal: logs and pipes see nothing of it. It has no colours.

use std::fmt::Write as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// Times a second that the line is drawn at most.
const DRAWS_A_SECOND: u8 = 10;
/// How often the elapsed time moves while nothing else does.
const TICK: Duration = Duration::from_millis(200);
/// Time after which a guess about the rest is better than none.
const GUESS_AFTER: Duration = Duration::from_secs(1);

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
        let template = "{spinner} {msg} {bar:24} {percent:>3}% {elapsed}{left}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            let style = style.with_key(
                "left",
                |state: &ProgressState, text: &mut dyn std::fmt::Write| {
                    let whole = state.len().unwrap_or(0);
                    if let Some(left) = time_left(state.elapsed(), state.pos(), whole) {
                        let _ = write!(text, ", about {} left", in_words(left));
                    }
                },
            );
            bar.set_style(style.progress_chars("=> "));
        }
        bar.enable_steady_tick(TICK);
        Self { bar }
    }

    /// Something begins: a matrix, a world, a drill.
    pub fn begin(&self, what: impl Into<String>) {
        self.bar.set_message(what.into());
    }

    /// Prints something else while the line is off the screen.
    pub fn suspended<R>(&self, print: impl FnOnce() -> R) -> R {
        self.bar.suspend(print)
    }

    /// So much of the whole run is done.
    pub fn set(&self, done: usize, whole: usize) {
        self.bar.set_length(whole as u64);
        self.bar.set_position(done as u64);
    }

    /// Takes the line off the screen, before anything else is printed.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// What the rest takes if it goes on as before.
fn time_left(elapsed: Duration, done: u64, whole: u64) -> Option<Duration> {
    if done == 0 || done >= whole || elapsed < GUESS_AFTER {
        return None;
    }
    Duration::try_from_secs_f64(elapsed.as_secs_f64() * (whole - done) as f64 / done as f64).ok()
}

fn in_words(time: Duration) -> String {
    // Rounded up: a line that says 0 s for a second is not believed.
    let seconds = time.as_millis().div_ceil(1000);
    let mut text = String::new();
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let _ = match (hours, minutes) {
        (0, 0) => write!(text, "{seconds} s"),
        (0, minutes) => write!(text, "{minutes} min {} s", seconds % 60),
        (hours, minutes) => write!(text, "{hours} h {minutes} min"),
    };
    text
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_is_guessed_once_something_is_known() {
        let second = Duration::from_secs(1);
        assert_eq!(time_left(second * 10, 1, 4), Some(second * 30));
        assert_eq!(time_left(second / 2, 1, 4), None);
        assert_eq!(time_left(second * 10, 0, 4), None);
        assert_eq!(time_left(second * 10, 4, 4), None);
        for (seconds, text) in [
            (0.2, "1 s"),
            (59.0, "59 s"),
            (61.0, "1 min 1 s"),
            (7260.0, "2 h 1 min"),
        ] {
            assert_eq!(in_words(Duration::from_secs_f64(seconds)), text);
        }
    }
}
