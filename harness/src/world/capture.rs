//! What a rank printed: its beginning and its end, within a bound.
//!
//! The beginning holds the first complaint, the end the last; a flood between them is counted and
//! dropped (WORLD-3).

use std::collections::VecDeque;

use crate::out::escaped;

/// Bytes kept from the beginning.
const HEAD_BYTES: usize = 16 * 1024;
/// Bytes kept from the end.
const TAIL_BYTES: usize = 32 * 1024;

/// Bounded output of one rank.
#[derive(Debug, Default)]
pub struct Capture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    dropped: u64,
}

impl Capture {
    /// Takes in what was read from the rank's pipe.
    pub fn push(&mut self, bytes: &[u8]) {
        let room = HEAD_BYTES - self.head.len();
        let (for_head, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(for_head);
        // More than the tail holds: only its end can stay.
        let kept = rest.len().min(TAIL_BYTES);
        self.dropped += (rest.len() - kept) as u64;
        self.tail.extend(rest.iter().skip(rest.len() - kept));
        let excess = self.tail.len().saturating_sub(TAIL_BYTES);
        self.tail.drain(..excess);
        self.dropped += excess as u64;
    }

    /// Whether the rank printed nothing at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.head.is_empty()
    }

    /// The lines that are left, safe to print, with a line that counts what was dropped.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        if self.dropped == 0 {
            let whole = [self.head.as_slice(), tail.as_slice()].concat();
            return lines_of(&whole);
        }
        let mut lines = lines_of(&self.head);
        lines.push(format!("[{} bytes of output dropped]", self.dropped));
        lines.extend(lines_of(&tail));
        lines
    }

    /// The text of the first panic, if the rank printed one: where, and what it said.
    #[must_use]
    pub fn panic_text(&self) -> Option<String> {
        let lines = self.lines();
        let at = lines
            .iter()
            .position(|line| line.contains("panicked at "))?;
        let place = lines.get(at)?;
        let place = &place[place.find("panicked at ")?..];
        let message = lines.get(at + 1).map_or("", String::as_str);
        Some(
            format!("{} {message}", place.trim_end_matches(':'))
                .trim()
                .to_owned(),
        )
    }

    /// What the rank said last about why it gave up, if it did: the line of its own `error:`.
    #[must_use]
    pub fn error_text(&self) -> Option<String> {
        let lines = self.lines();
        let error = lines
            .iter()
            .rev()
            .find_map(|line| line.strip_prefix("error: "));
        error.map(str::to_owned)
    }
}

fn lines_of(bytes: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(bytes)
        .lines()
        .map(escaped)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_keeps_its_beginning_and_its_end_and_counts_the_rest() {
        let mut capture = Capture::default();
        capture.push(b"first line\n");
        for number in 0..100_000 {
            capture.push(format!("line {number}\n").as_bytes());
        }
        capture.push(b"last line\n");
        let lines = capture.lines();
        assert_eq!(lines.first().map(String::as_str), Some("first line"));
        assert_eq!(lines.last().map(String::as_str), Some("last line"));
        let kept: usize = lines.iter().map(|line| line.len() + 1).sum();
        assert!(kept < HEAD_BYTES + TAIL_BYTES + 100, "{kept}");
        assert!(
            lines
                .iter()
                .any(|line| line.contains("bytes of output dropped"))
        );
    }

    #[test]
    fn one_huge_write_is_bounded_too() {
        let mut capture = Capture::default();
        capture.push(&vec![b'x'; 10 << 20]);
        assert_eq!(capture.head.len(), HEAD_BYTES);
        assert_eq!(capture.tail.len(), TAIL_BYTES);
        assert_eq!(
            capture.dropped,
            (10 << 20) - (HEAD_BYTES + TAIL_BYTES) as u64
        );
    }

    #[test]
    fn the_panic_is_found_between_other_lines() {
        let mut capture = Capture::default();
        capture.push(
            b"hello\n\nthread 'main' (12) panicked at src/x.rs:3:5:\nit broke\nnote: run with\n",
        );
        assert_eq!(
            capture.panic_text().as_deref(),
            Some("panicked at src/x.rs:3:5 it broke")
        );
        assert_eq!(Capture::default().panic_text(), None);
    }
}
