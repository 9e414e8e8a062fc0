//! What ranks print, passed on line by line with the rank in front.
//!
//! Every rank prints the verdict that ends its calls. A terminal shows it laid out once, and who else says the same; a pipe
//! gets every line.
//!
//! The watcher must never wait for whoever reads our output: what does not fit the queue is dropped and
//! counted, and a rank that floods is cut off.

use std::io::{IsTerminal, Write};
use std::thread::JoinHandle;

use crossbeam::channel::{Receiver, Sender, TrySendError, bounded};
use muster_comm::error::verdict::lay_out;

use crate::fail::Failure;
use crate::out::escaped;

/// Chunks of 4 KiB that may wait to be printed.
const QUEUE: usize = 1024;
/// Bytes of one rank that are passed on: a flood beyond that says nothing new.
const BYTES_MAX: u64 = 64 << 20;
/// Longest line that is held back until its end comes.
const LINE_MAX: usize = 16 << 10;

/// Bytes of a rank.
#[derive(Debug)]
pub(super) struct Chunk {
    rank: u32,
    bytes: Vec<u8>,
}

/// The way to the printer, one for each rank.
#[derive(Debug)]
pub(super) struct Echo {
    rank: u32,
    queue: Sender<Chunk>,
    passed: u64,
    dropped: u64,
}

impl Echo {
    pub(super) fn pass(&mut self, bytes: &[u8]) {
        let length = bytes.len() as u64;
        if self.passed >= BYTES_MAX {
            return;
        }
        self.passed += length;
        self.send(bytes.to_vec(), length);
        if self.passed >= BYTES_MAX {
            let note = format!("\n[output of rank {} cut off at 64 MiB]\n", self.rank);
            self.send(note.into_bytes(), 0);
        }
    }

    fn send(&mut self, bytes: Vec<u8>, length: u64) {
        let chunk = Chunk {
            rank: self.rank,
            bytes,
        };
        match self.queue.try_send(chunk) {
            Ok(()) if self.dropped > 0 => {
                let note = format!("\n[{} bytes of output dropped]\n", self.dropped);
                let bytes = note.into_bytes();
                let rank = self.rank;
                if self.queue.try_send(Chunk { rank, bytes }).is_ok() {
                    self.dropped = 0;
                }
            }
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => self.dropped += length,
        }
    }
}

/// Prints what ranks print. Ends when every `Echo` is gone.
#[derive(Debug)]
pub struct Printer {
    queue: Option<Sender<Chunk>>,
    thread: Option<JoinHandle<()>>,
}

impl Printer {
    /// Starts it; output goes to standard output.
    ///
    /// # Errors
    /// A failure of class RESOURCE where no thread can be started.
    pub fn start() -> Result<Self, Failure> {
        let (sender, queue) = bounded(QUEUE);
        let thread = std::thread::Builder::new()
            .name("muster-print".to_owned())
            .spawn(move || {
                let stdout = std::io::stdout();
                print(&queue, &mut Lines::new(stdout.is_terminal(), stdout));
            })
            .map_err(|error| Failure::resource(format!("a thread cannot be started: {error}")))?;
        Ok(Self {
            queue: Some(sender),
            thread: Some(thread),
        })
    }

    pub(super) fn echo(&self, rank: u32) -> Option<Echo> {
        let queue = self.queue.clone()?;
        Some(Echo {
            rank,
            queue,
            passed: 0,
            dropped: 0,
        })
    }

    /// Waits until everything is printed. Call it when the ranks have ended and been dropped.
    pub fn finish(mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            // A printer that panicked has said so on stderr.
            let _ = thread.join();
        }
    }
}

fn print(queue: &Receiver<Chunk>, out: &mut Lines<impl Write>) {
    let mut lines: Vec<Vec<u8>> = Vec::new();
    let mut is_open = true;
    for Chunk { rank, bytes } in queue {
        let index = rank as usize;
        if lines.len() <= index {
            lines.resize(index + 1, Vec::new());
        }
        let line = &mut lines[index];
        for byte in bytes {
            if byte == b'\n' || line.len() >= LINE_MAX {
                // Whoever closed our output does not want to read this; the ranks go on.
                is_open = is_open && out.show(rank, line).is_ok();
                line.clear();
            }
            if byte != b'\n' {
                line.push(byte);
            }
        }
    }
    for (rank, line) in (0..).zip(lines) {
        if is_open && !line.is_empty() {
            is_open = out.show(rank, &line).is_ok();
        }
    }
}

/// Where lines go.
struct Lines<W> {
    is_terminal: bool,
    out: W,
    /// The verdict that was shown last, and the rank that printed it.
    verdict: Option<(u32, String)>,
}

impl<W: Write> Lines<W> {
    fn new(is_terminal: bool, out: W) -> Self {
        Self {
            is_terminal,
            out,
            verdict: None,
        }
    }

    fn show(&mut self, rank: u32, line: &[u8]) -> std::io::Result<()> {
        if line.is_empty() {
            return Ok(());
        }
        let line = escaped(&String::from_utf8_lossy(line));
        let Some(laid_out) = self.is_terminal.then(|| lay_out(&line)).flatten() else {
            return writeln!(self.out, "[rank {rank}] {line}");
        };
        match &self.verdict {
            Some((first, said)) if *said == line => {
                let class = laid_out.lines().next().unwrap_or_default();
                writeln!(
                    self.out,
                    "[rank {rank}] {class}: the same as from rank {first}"
                )
            }
            Some(_) | None => {
                self.verdict = Some((rank, line));
                writeln!(self.out, "[rank {rank}] {laid_out}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is printed of these lines.
    fn printed(is_terminal: bool, lines: &[(u32, &str)]) -> String {
        let mut out = Lines::new(is_terminal, Vec::new());
        for (rank, line) in lines {
            out.show(*rank, line.as_bytes()).expect("written");
        }
        String::from_utf8(out.out).expect("text")
    }

    #[test]
    fn a_terminal_shows_a_verdict_once_and_says_who_else_prints_it() {
        let verdict = "VERDICT PEER_DEAD who=rank 1 what=barrier #2 where=killed by signal 9 since=now \
                       confidence=certain evidence=a; b others=none next=d";
        let other = verdict.replace("rank 1", "rank 3");
        let lines = [(0, verdict), (2, "x"), (2, verdict), (3, other.as_str())];
        let shown = printed(true, &lines);
        let starts: Vec<&str> = shown.lines().filter(|line| line.starts_with('[')).collect();
        assert_eq!(
            starts,
            [
                "[rank 0] VERDICT PEER_DEAD",
                "[rank 2] x",
                "[rank 2] VERDICT PEER_DEAD: the same as from rank 0",
                "[rank 3] VERDICT PEER_DEAD",
            ]
        );
        assert_eq!(shown.matches("\n  who         rank").count(), 2, "{shown}");
        let piped = printed(false, &lines);
        assert_eq!(piped.matches(verdict).count(), 2, "{piped}");
        assert_eq!(piped.lines().count(), lines.len(), "{piped}");
    }

    #[test]
    fn lines_of_ranks_stay_whole_and_carry_their_rank() {
        let (sender, queue) = bounded(QUEUE);
        let mut echoes: Vec<Echo> = (0..2)
            .map(|rank| Echo {
                rank,
                queue: sender.clone(),
                passed: 0,
                dropped: 0,
            })
            .collect();
        drop(sender);
        echoes[0].pass(b"one ");
        echoes[1].pass(b"two\x1b[2J\n");
        echoes[0].pass(b"line\nlast");
        drop(echoes);
        let mut out = Lines::new(false, Vec::new());
        print(&queue, &mut out);
        assert_eq!(
            String::from_utf8(out.out).expect("text"),
            "[rank 1] two\\u{1b}[2J\n[rank 0] one line\n[rank 0] last\n"
        );
    }

    #[test]
    fn a_flood_is_cut_off_and_a_full_queue_drops_instead_of_waiting() {
        let (sender, queue) = bounded(2);
        let mut echo = Echo {
            rank: 0,
            queue: sender,
            passed: 0,
            dropped: 0,
        };
        for _ in 0..10 {
            echo.pass(b"x\n");
        }
        assert_eq!(echo.dropped, 16);
        echo.passed = BYTES_MAX;
        echo.pass(b"never");
        drop(echo);
        assert_eq!(queue.iter().count(), 2);
    }
}
