//! A command of muster as a process of its own: run to its end, with all that it prints. It ends with this process, however that ends.

use std::io::Read;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use muster_comm::sync::Clock;
use rustix::process::{Pid, Signal, kill_process};

use super::run::check_program;
use crate::fail::Failure;
use crate::world::ranks::own_program;
use crate::world::signals::Interrupts;

/// Time between two looks at the process.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What a process left.
pub(super) struct Ended {
    /// The code with which it ended; none where a signal ended it.
    pub(super) code: Option<i32>,
    /// It was asked to stop.
    pub(super) was_stopped: bool,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: String,
}

/// Runs a build of this program to its end, and hands on a request to stop.
///
/// # Errors
/// A failure of class USAGE where it cannot be started.
pub(super) fn run(
    program: &Path,
    words: &[&str],
    interrupts: &Interrupts,
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
        // A terminal sends Ctrl-C to a whole group, and this process hands it on: once is enough.
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    std::thread::scope(|scope| {
        let stdout = scope.spawn(|| read(stdout));
        let stderr = scope.spawn(|| read(stderr));
        let (code, was_stopped) = wait(&mut child, interrupts).map_err(failed)?;
        Ok(Ended {
            code,
            was_stopped,
            stdout: stdout.join().unwrap_or_default(),
            stderr: String::from_utf8_lossy(&stderr.join().unwrap_or_default()).into_owned(),
        })
    })
}

/// The code with which a stage ended, and whether it was asked to stop.
fn wait(child: &mut Child, interrupts: &Interrupts) -> std::io::Result<(Option<i32>, bool)> {
    let mut was_stopped = false;
    loop {
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

/// All that a stage prints there.
fn read(stream: Option<impl Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(mut stream) = stream {
        // What came before an error is what there is.
        let _ = stream.read_to_end(&mut bytes);
    }
    bytes
}
