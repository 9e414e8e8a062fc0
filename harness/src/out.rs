//! The doors to the outside: results go to stdout, everything for people to stderr, and files are
//! written whole.
//!
//! A reader that closed its end of the pipe is not an error: the result was produced, and nobody
//! wants to read it. Any other failure to write a result is one.
//!
//! A verdict is one line in pipes and files. On a terminal its fields stand one below the other.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anstream::ColorChoice;
use anstyle::{AnsiColor, Style};
use muster_comm::config::Environment;
use muster_comm::error::verdict::{COLUMNS, lay_out, wrap};
use muster_comm::sync::Deadline;

use crate::exit::Exit;
use crate::fail::Failure;

mod file;

pub use file::{can_save, save};

/// Bold red: something is wrong.
pub const BAD: Style = AnsiColor::Red.on_default().bold();
/// Green: something was proved.
pub const GOOD: Style = AnsiColor::Green.on_default();
/// Bold: a word to look at.
pub const STRONG: Style = Style::new().bold();

/// Columns before what follows of a broken line.
const INDENT: usize = 4;
/// How lines begin that say what a check found.
const FINDINGS: [&str; 4] = [
    "VERDICT ",
    "  evidence: ",
    "  next: ",
    "  seen by the launcher: ",
];

/// Prints a result on stdout, without colours where it is not a terminal.
///
/// # Errors
/// A failure of class RESOURCE where the text could not be written, unless the reader went away.
pub fn result(text: &str) -> Result<(), Failure> {
    raw(&shown(text, terminal_width()))
}

/// The same, as it is: a script has no line broken.
///
/// # Errors
/// As [`result`].
pub fn raw(text: &str) -> Result<(), Failure> {
    let mut stdout = anstream::stdout().lock();
    written(
        stdout
            .write_all(text.as_bytes())
            .and_then(|()| stdout.flush()),
    )
}

/// Prints what is no text.
///
/// # Errors
/// A failure of class USAGE on a terminal; else as [`result`].
pub fn bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    if stdout.is_terminal() {
        return Err(Failure::usage("this format is no text for a terminal")
            .with_help("send it to a file, with > FILE"));
    }
    written(stdout.write_all(bytes).and_then(|()| stdout.flush()))
}

fn written(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::resource(format!(
            "the result could not be written to standard output: {error}"
        ))),
    }
}

/// Prints a line for people on stderr. Nothing depends on it, so a closed stderr is no error.
pub fn note(line: &str) {
    let line = shown(line, width_of(&io::stderr(), rustix::stdio::stderr()));
    // Whoever closed stderr does not want to read this.
    let _ = writeln!(anstream::stderr().lock(), "{line}");
}

/// Leaves colours and layout for terminals out where `mpirun` of Open MPI started this process. It gives each rank a terminal of its own and
/// passes on what comes from there, into a file too.
pub fn be_plain_under_mpirun() {
    let environment = Environment::capture();
    let rank = environment.text("OMPI_COMM_WORLD_RANK");
    if rank.is_ok_and(|rank| rank.is_some()) {
        ColorChoice::Never.write_global();
    }
}

/// Whether people see on a terminal what is printed there.
fn is_on_terminal(stream: &impl IsTerminal) -> bool {
    ColorChoice::global() != ColorChoice::Never && stream.is_terminal()
}

/// Text as it is printed: where it goes to a terminal of this width, the verdicts in it are laid out, and what is longer than a line is
/// broken between words.
fn shown(text: &str, width: Option<usize>) -> Cow<'_, str> {
    // JSON and SVG are for programs, and the same wherever they go.
    let is_document = text.starts_with(['{', '[', '<']);
    let Some(width) = width.filter(|_| !is_document) else {
        return Cow::Borrowed(text);
    };
    let lines = text.split('\n').map(|line| {
        let plain = anstream::adapter::strip_str(line).to_string();
        match lay_out(&plain)
            .as_deref()
            .and_then(|text| text.split_once('\n'))
        {
            Some((class, fields)) => Cow::Owned(format!("{BAD}{class}{BAD:#}\n{fields}")),
            None if FINDINGS.iter().any(|head| plain.starts_with(head)) => {
                Cow::Owned(broken(line, COLUMNS.min(width)))
            }
            None if plain.chars().count() > width => Cow::Owned(broken(line, width)),
            None => Cow::Borrowed(line),
        }
    });
    Cow::Owned(lines.collect::<Vec<_>>().join("\n"))
}

/// A line over several of a terminal, broken between words.
#[must_use]
pub fn broken(line: &str, columns: usize) -> String {
    let mut text = String::new();
    wrap(&mut text, line, columns, [0, INDENT], visible);
    text
}

/// The characters of a text that are seen: colours take no room.
#[must_use]
pub fn visible(text: &str) -> usize {
    anstream::adapter::strip_str(text)
        .to_string()
        .chars()
        .count()
}

/// Columns of the terminal on which people see results; `None` where they go into a pipe or a file.
#[must_use]
pub fn terminal_width() -> Option<usize> {
    width_of(&io::stdout(), rustix::stdio::stdout())
}

fn width_of(stream: &impl IsTerminal, file: BorrowedFd<'_>) -> Option<usize> {
    if !is_on_terminal(stream) {
        return None;
    }
    let told = rustix::termios::tcgetwinsize(file).ok();
    // A terminal that knows no width says zero.
    let columns = told.map_or(0, |size| usize::from(size.ws_col));
    Some(if columns == 0 { COLUMNS } else { columns })
}

/// Prints a failure the way every command does, and gives back its class.
pub fn failure(failure: &Failure) -> Exit {
    note(&format!("{BAD}error{BAD:#}: {}", failure.message));
    if let Some(help) = &failure.help {
        note(&format!("{STRONG}help{STRONG:#}: {help}"));
    }
    failure.exit
}

/// Text from a rank, a peer or a host name with everything that could steer a terminal escaped.
///
/// Tabs and newlines stay; carriage returns, escapes and other control characters become visible.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' | '\t' => clean.push(character),
            control if control.is_control() => {
                // Writing to a string cannot fail.
                let _ = write!(clean, "{}", control.escape_default());
            }
            // Marks that reverse the direction of text can make a line read as another one.
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                let _ = write!(clean, "{}", character.escape_unicode());
            }
            plain => clean.push(plain),
        }
    }
    clean
}

/// Whether it is time to say something again that is said now and then only.
#[derive(Debug, Default)]
pub struct Again(Mutex<Option<Deadline>>);

impl Again {
    /// Nothing was said so far.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Whether it is to be said now; it counts as said then, for this long.
    #[must_use]
    pub fn is_due(&self, every: Duration) -> bool {
        let mut again = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = again.is_none_or(|again| again.passed());
        if is_due {
            *again = Some(Deadline::after(every));
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_now_and_then_is_due_once_and_again_when_its_time_has_passed() {
        let again = Again::new();
        assert!(again.is_due(Duration::ZERO));
        assert!(again.is_due(Duration::from_secs(3600)));
        assert!(!again.is_due(Duration::from_secs(3600)));
    }

    #[test]
    fn a_terminal_gets_the_fields_of_a_verdict_one_below_the_other_and_a_pipe_gets_its_line() {
        let line = "VERDICT PEER_DEAD who=rank 1 (a, pid 7) what=barrier #2 on world where=killed by signal 9 \
                    since=12:00:00.000Z (+0.100 s) confidence=certain evidence=its process ended; b others=c next=d";
        let text = format!("before\n{BAD}{line}{BAD:#}\nafter\n");
        assert_eq!(shown(&text, None), text);
        let laid_out = anstream::adapter::strip_str(&shown(&text, Some(120))).to_string();
        assert!(
            laid_out.starts_with("before\nVERDICT PEER_DEAD\n  who         rank 1 (a, pid 7)\n"),
            "{laid_out}"
        );
        assert!(
            laid_out.ends_with("\n  next        d\nafter\n"),
            "{laid_out}"
        );
        assert_eq!(shown("no verdict\n", Some(80)), "no verdict\n");
        let document = format!("{{\"text\":\"{}\"}}\n", "a word ".repeat(20));
        assert_eq!(shown(&document, Some(80)), document);
    }

    #[test]
    fn findings_are_broken_between_words_on_a_terminal_and_keep_every_word() {
        let finding = format!(
            "  evidence: {}",
            "all_reduce f32[1000]: expected 1, ".repeat(9)
        );
        let text = format!(
            "{BAD}VERDICT DATA{BAD:#} {finding}\n{finding}\n{}",
            "x ".repeat(60)
        );
        let terminal = shown(&text, Some(120));
        let plain = anstream::adapter::strip_str(&terminal).to_string();
        let (findings, other) = plain.trim_end().rsplit_once('\n').expect("lines");
        assert!(
            findings.lines().all(|line| line.chars().count() <= COLUMNS),
            "{plain}"
        );
        assert_eq!(other.len(), 119, "another line stays as it is");
        let words = |text: &str| {
            let text = anstream::adapter::strip_str(text).to_string();
            text.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(words(&terminal), words(&text));
        assert_eq!(shown(&text, None), text);
        let narrow = anstream::adapter::strip_str(&shown(&text, Some(40))).to_string();
        assert!(narrow.lines().all(|line| line.chars().count() <= 40));
        assert_eq!(words(&narrow), words(&text));
    }

    #[test]
    fn control_characters_of_a_rank_never_reach_the_terminal() {
        let hostile = "ok\x1b[2J\r\u{7}\u{9b}31m \u{202e}txet\n\tnext";
        let clean = escaped(hostile);
        assert!(
            clean
                .chars()
                .all(|c| !c.is_control() || c == '\n' || c == '\t'),
            "{clean:?}"
        );
        assert_eq!(
            clean,
            "ok\\u{1b}[2J\\r\\u{7}\\u{9b}31m \\u{202e}txet\n\tnext"
        );
    }
}
