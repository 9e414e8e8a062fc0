//! Lines for whoever reads this process's output.

use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::error::verdict::lay_out;

/// How long somebody who reads may take until there is room for a line.
const PATIENCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};

/// Prints a line on stderr, in one piece, so that nothing that the program prints gets between it and its end. Waits
/// for whoever reads. A terminal gets the fields of a verdict one below the other.
pub(super) fn say(line: &str) {
    let mut stderr = std::io::stderr().lock();
    let laid_out = stderr.is_terminal().then(|| lay_out(line)).flatten();
    let text = format!("{}\n", laid_out.as_deref().unwrap_or(line));
    // Whoever closed stderr does not want to read this.
    let _ = stderr.write_all(text.as_bytes());
}

/// Whether there is room for a line, at once or in a moment: a pipe that nobody reads is full some time.
pub(super) fn has_room(output: impl AsFd) -> bool {
    let wait = || poll(&mut [PollFd::new(&output, PollFlags::OUT)], Some(&PATIENCE));
    // What cannot be asked is not waited for either.
    rustix::io::retry_on_intr(wait).map_or(true, |ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use rustix::io::{Errno, read, write};
    use rustix::pipe::{PipeFlags, pipe_with};

    use super::has_room;

    #[test]
    fn a_pipe_that_nobody_reads_has_room_until_it_is_full() {
        let (reader, writer) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        assert!(has_room(&writer));
        let page = [0_u8; 4096];
        while write(&writer, &page) != Err(Errno::AGAIN) {}
        assert!(!has_room(&writer));
        let mut some = [0_u8; 2 * 4096];
        assert!(read(&reader, &mut some).unwrap() > 0);
        assert!(has_room(&writer));
        drop(reader);
        // To write there is an error at once.
        assert!(has_room(&writer));
    }
}
