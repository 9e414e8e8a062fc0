//! A command of muster as a process of its own: run to its end, with all that it prints. It ends with this process, however that ends.

use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use muster_comm::sync::Clock;
use rustix::process::{Pid, Signal, kill_process};

use super::run::check_program;
use crate::fail::Failure;
use crate::world::ranks::own_program;
use crate::world::signals::Interrupts;

/// Time between two looks at the process.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A variable of the environment, and its value.
pub(super) type Variable = (&'static str, String);

/// What a process left.
pub(super) struct Ended {
    /// The code with which it ended; none where a signal ended it.
    pub(super) code: Option<i32>,
    /// It was asked to stop.
    pub(super) was_stopped: bool,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: String,
}

impl Ended {
    /// Of documents that were printed one after the other, the last.
    pub(super) fn keep_last_line(&mut self) {
        let text = self.stdout.trim_ascii_end();
        let begins = text.iter().rposition(|byte| *byte == b'\n');
        self.stdout = text[begins.map_or(0, |at| at + 1)..].to_vec();
    }
}

/// Runs a build of this program to its end, with these variables beside those of this process, and hands on a request to stop. `line` sees
/// each line that it prints, meanwhile.
///
/// # Errors
/// A failure of class USAGE where it cannot be started.
pub(super) fn run(
    program: &Path,
    words: &[&str],
    variables: &[Variable],
    interrupts: &Interrupts,
    mut line: impl FnMut(&[u8]),
) -> Result<Ended, Failure> {
    let failed = |error: std::io::Error| {
        Failure::usage(format!("{} cannot be run: {error}", program.display()))
    };
    check_program(program.as_os_str())?;
    let own = std::process::id().to_string();
    let mut child = Command::new(own_program())
        .args(["__exec", "--launcher", &own, "--"])
        .arg(program)
        .args(words)
        .envs(variables.iter().cloned())
        // A terminal sends Ctrl-C to a whole group, and this process hands it on: once is enough.
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (printed, lines) = mpsc::channel();
    std::thread::scope(|scope| {
        let stdout = scope.spawn(|| read_lines(stdout, &printed));
        let stderr = scope.spawn(|| read(stderr));
        let look = || lines.try_iter().for_each(|one: Vec<u8>| line(&one));
        let (code, was_stopped) = wait(&mut child, interrupts, look).map_err(failed)?;
        Ok(Ended {
            code,
            was_stopped,
            stdout: stdout.join().unwrap_or_default(),
            stderr: String::from_utf8_lossy(&stderr.join().unwrap_or_default()).into_owned(),
        })
    })
}

/// The code with which a stage ended, and whether it was asked to stop.
fn wait(
    child: &mut Child,
    interrupts: &Interrupts,
    mut look: impl FnMut(),
) -> std::io::Result<(Option<i32>, bool)> {
    let mut was_stopped = false;
    loop {
        look();
        if let Some(status) = child.try_wait()? {
            return Ok((status.code(), was_stopped));
        }
        let is_asked = interrupts.take_new() > 0;
        was_stopped |= is_asked;
        if is_asked && let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            // It may have ended by itself meanwhile.
            let _ = kill_process(pid, Signal::TERM);
        }
        Clock::pause(LOOK_EVERY);
    }
}

/// All that a stage prints there, and each line of it as it comes.
fn read_lines(stream: Option<impl Read>, lines: &Sender<Vec<u8>>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(mut stream) = stream.map(BufReader::new) {
        loop {
            let before = bytes.len();
            match stream.read_until(b'\n', &mut bytes) {
                Ok(1..) => {
                    // Nobody looks any more once it has ended.
                    let _ = lines.send(bytes[before..].to_vec());
                }
                // What came before an error is what there is.
                Ok(0) | Err(_) => break,
            }
        }
    }
    bytes
}

/// All that a stage prints there.
fn read(stream: Option<impl Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(mut stream) = stream {
        // What came before an error is what there is.
        let _ = stream.read_to_end(&mut bytes);
    }
    bytes
}
