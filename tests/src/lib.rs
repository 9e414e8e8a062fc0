//! What the whole-system tests share: the built binary, runs of it that are bounded in time, and a
//! look at what they leave behind.
//!
//! Every run carries a mark of its own in its environment, which ranks inherit: so the processes of
//! one run are told from those of tests that run at the same time.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use muster_comm::config::Environment;
use muster_comm::sync::{Clock, Deadline};
use muster_harness::world::look;
pub use muster_harness::world::look::is_alive;
use rustix::process::{Pid, Signal, kill_process};

/// Longest time that any run may take before the test gives up on it. Not a measure of speed.
pub const BOUND: Duration = Duration::from_secs(120);
/// How often a condition is looked at while a test waits for it.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Variable that marks the processes of one run.
const MARK: &str = "SYSTEM_TEST_RUN";

/// The `muster` binary of the profile in which this test was built, built once a test program.
///
/// # Panics
/// If it cannot be built.
#[must_use]
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let own = profile_folder();
        let folder = own.file_name().and_then(|name| name.to_str());
        let profile = match folder.expect("a profile") {
            "debug" => "dev",
            other => other,
        };
        build(profile);
        own.join("muster")
    })
}

/// The folder of this test's profile, two above its program: `target/PROFILE/deps/TEST`.
fn profile_folder() -> PathBuf {
    let test = std::env::current_exe().expect("the test knows its own program");
    let folder = test.ancestors().nth(2).expect("a target folder");
    folder.to_owned()
}

/// Builds `muster` into the target folder of this test. The whole workspace and a test are named so that all features are those of
/// `cargo test --workspace`, which has compiled the crates already.
fn build(cargo_profile: &str) {
    let profile = profile_folder();
    let output = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--locked", "--workspace"])
        .args(["--bin", "muster", "--test", "readme"])
        .args(["--profile", cargo_profile, "--target-dir"])
        .arg(profile.parent().expect("a target folder"))
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "muster does not build: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A run of a program: how it ended and what it printed.
#[derive(Debug)]
pub struct Ended {
    /// Its exit code, if it returned one.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// How long it took.
    pub elapsed: Duration,
}

impl Ended {
    /// Standard output as one JSON document.
    ///
    /// # Panics
    /// If it is none, or more than one.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        {
            let parsed = serde_json::from_str(&self.stdout);
            assert!(
                parsed.is_ok(),
                "no JSON document: {parsed:?}
{}
{}",
                tail(&self.stdout),
                tail(&self.stderr)
            );
            parsed.unwrap_or_default()
        }
    }

    /// The lines of standard error but those that a busy machine adds to a healthy run: who keeps others waiting
    /// for a second, and which ranks had no processor.
    #[must_use]
    pub fn notices(&self) -> Vec<&str> {
        let is_notice = |line: &&str| {
            !["SUSPECT ", "STARVED "]
                .iter()
                .any(|word| line.contains(word))
        };
        self.stderr.lines().filter(is_notice).collect()
    }

    /// Fails the test, with everything that was printed, unless the exit code is this one.
    ///
    /// # Panics
    /// If it is another one.
    pub fn expect_code(&self, code: i32) -> &Self {
        assert!(
            self.code == Some(code),
            "exit code {:?} instead of {code} after {:?}\n--- stdout\n{}\n--- stderr\n{}",
            self.code,
            self.elapsed,
            tail(&self.stdout),
            tail(&self.stderr)
        );
        self
    }
}

/// The end of a long output.
fn tail(text: &str) -> &str {
    /// Bytes that a failing test prints of each stream.
    const TAIL_BYTES: usize = 4000;
    let mut start = text.len().saturating_sub(TAIL_BYTES);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

/// A run under way. Dropping it kills it and everything that carries its mark.
#[derive(Debug)]
pub struct Running {
    child: Child,
    mark: String,
    started: Instant,
    outputs: Option<(JoinHandle<String>, JoinHandle<String>)>,
}

/// Starts a program with a clean environment, these variables, and a mark.
///
/// # Panics
/// If it cannot be started.
#[must_use]
pub fn start(program: &Path, args: &[&str], variables: &[(&str, &str)]) -> Running {
    let own = Environment::capture();
    let mark = new_mark();
    let mut command = Command::new(program);
    command
        .args(args)
        .env_clear()
        .env(MARK, &mark)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    for name in ["PATH", "HOME", "XDG_RUNTIME_DIR"] {
        if let Ok(Some(value)) = own.text(name) {
            command.env(name, value);
        }
    }
    command.envs(variables.iter().copied());
    let started = Clock::now();
    let mut child = command.spawn().expect("the program starts");
    let outputs = Some((drain(child.stdout.take()), drain(child.stderr.take())));
    Running {
        child,
        mark,
        started,
        outputs,
    }
}

/// Runs `muster` to its end.
///
/// # Panics
/// If it does not end within [`BOUND`].
#[must_use]
pub fn muster(args: &[&str]) -> Ended {
    start(binary(), args, &[]).wait()
}

fn new_mark() -> String {
    static COUNT: Mutex<u32> = Mutex::new(0);
    let mut count = COUNT.lock().unwrap_or_else(PoisonError::into_inner);
    *count += 1;
    format!("{}-{}", std::process::id(), *count)
}

fn drain(stream: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            // What was read before an error is still worth showing.
            let _ = stream.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

impl Running {
    /// Process id of the program itself.
    ///
    /// # Panics
    /// If it is no process id, which the system never gives.
    #[must_use]
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a process id")
    }

    /// Sends a signal to the program itself.
    ///
    /// # Panics
    /// If there is no such process any more.
    pub fn signal(&self, signal: Signal) {
        send(self.pid(), signal).expect("the program still runs");
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// If that does not come within [`BOUND`].
    #[must_use]
    pub fn wait(mut self) -> Ended {
        let deadline = Deadline::after(BOUND);
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("it can be waited for") {
                break status;
            }
            assert!(
                !deadline.passed(),
                "the program did not end within {BOUND:?}"
            );
            Clock::pause(LOOK_EVERY);
        };
        let elapsed = Clock::now().duration_since(self.started);
        // A rank that was left behind may hold a pipe open for ever; it must not hold the test.
        let left = self.processes();
        assert!(left.is_empty(), "processes are left behind: {left:?}");
        let (stdout, stderr) = self.outputs.take().expect("taken once");
        let text = |reader: JoinHandle<String>| reader.join().expect("a reader does not panic");
        Ended {
            code: status.code(),
            stdout: text(stdout),
            stderr: text(stderr),
            elapsed,
        }
    }

    /// Waits for its end, and for that of helpers which it leaves to end by themselves, as browsers and mpirun do.
    ///
    /// # Panics
    /// If these do not come within [`BOUND`] each.
    #[must_use]
    pub fn wait_for_all(mut self) -> Ended {
        until("the program has ended", || {
            self.child
                .try_wait()
                .expect("it can be waited for")
                .is_some()
        });
        until("its helpers have ended", || self.processes().is_empty());
        self.wait()
    }

    /// The processes of this run that are not zombies, but for the program itself.
    #[must_use]
    pub fn processes(&self) -> Vec<i32> {
        let mark = format!("{MARK}={}", self.mark);
        let own = self.pid();
        let mut processes = look::marked(&mark);
        processes.retain(|pid| *pid != own);
        processes
    }

    /// The process of a rank that the program started, if it is there.
    #[must_use]
    pub fn rank(&self, rank: u32) -> Option<i32> {
        let name = format!("MUSTER_RANK={rank}");
        self.processes()
            .into_iter()
            .find(|pid| look::carries(*pid, &name))
    }

    /// The process of a rank, waiting for it to appear.
    ///
    /// # Panics
    /// If it does not appear within [`BOUND`].
    #[must_use]
    pub fn await_rank(&mut self, rank: u32) -> i32 {
        let mut found = None;
        until("the rank is there", || {
            found = self.rank(rank);
            found.is_some()
        });
        found.expect("found above")
    }
}

/// Starts ranks of a program with the variables that torchrun sets for each, and `more`.
///
/// # Panics
/// As [`start`].
#[must_use]
pub fn torchrun(
    program: &Path,
    args: &[&str],
    world_size: u32,
    job: &str,
    more: &[(&str, &str)],
) -> Vec<Running> {
    let size = world_size.to_string();
    let one = |rank: u32| {
        let rank = rank.to_string();
        let mut variables = vec![
            ("RANK", rank.as_str()),
            ("WORLD_SIZE", &size),
            ("LOCAL_RANK", &rank),
            ("LOCAL_WORLD_SIZE", &size),
            ("GROUP_RANK", "0"),
            ("GROUP_WORLD_SIZE", "1"),
            // Nobody listens there: ranks meet elsewhere, this one belongs to the launcher's own store.
            ("MASTER_ADDR", "127.0.0.1"),
            ("MASTER_PORT", "29500"),
            ("TORCHELASTIC_RUN_ID", job),
            ("TORCHELASTIC_RESTART_COUNT", "0"),
            ("TORCHELASTIC_USE_AGENT_STORE", "True"),
        ];
        variables.extend_from_slice(more);
        start(program, args, &variables)
    };
    (0..world_size).map(one).collect()
}

impl Drop for Running {
    fn drop(&mut self) {
        // Already reaped where the run was waited for; then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
        for pid in self.processes() {
            let _ = send(pid, Signal::KILL);
        }
    }
}

/// Sends a signal to a process.
///
/// # Errors
/// As the system says.
pub fn send(pid: i32, signal: Signal) -> Result<(), rustix::io::Errno> {
    let pid = Pid::from_raw(pid).ok_or(rustix::io::Errno::SRCH)?;
    kill_process(pid, signal)
}

/// Waits until something is so.
///
/// # Panics
/// If it is not within [`BOUND`].
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Deadline::after(BOUND);
    while !is_so() {
        assert!(!deadline.passed(), "not within {BOUND:?}: {what}");
        Clock::pause(LOOK_EVERY);
    }
}

/// What is there for so long stays: the longest run of a test that makes files in places that outlive it is shorter.
const STAYS: Duration = Duration::from_secs(60);

/// Files that a run may have left in places that outlive it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftovers(BTreeSet<PathBuf>);

impl Leftovers {
    /// What is there now, of anybody called muster.
    #[must_use]
    pub fn now() -> Self {
        Self(look::lasting_files())
    }

    /// Fails the test if there is more now than there was, and that stays. Tests beside this one have files for a while.
    ///
    /// # Panics
    /// Then.
    pub fn assert_nothing_new(&self) {
        let mut new: BTreeSet<PathBuf> = Self::now().0.difference(&self.0).cloned().collect();
        let deadline = Deadline::after(STAYS);
        while !new.is_empty() && !deadline.passed() {
            Clock::pause(LOOK_EVERY);
            let now = Self::now().0;
            new.retain(|path| now.contains(path));
        }
        assert!(new.is_empty(), "left behind: {new:?}");
    }
}

/// Whether a program is installed.
#[must_use]
pub fn find_program(name: &str) -> Option<PathBuf> {
    let environment = Environment::capture();
    let path = environment.text("PATH").ok()??;
    path.split(':')
        .map(|folder| Path::new(folder).join(name))
        .find(|file| file.is_file())
}

/// Says that a test was not run, and why. Shown with `--nocapture`, and counted by nobody else.
#[expect(
    clippy::print_stdout,
    reason = "there is no other way to say that a test was skipped"
)]
pub fn skipped(why: &str) {
    println!("SKIPPED: {why}");
}

/// A small generator for tests that vary their timing; its seed is printed by whoever uses it.
#[derive(Clone, Copy, Debug)]
pub struct Random(u64);

impl Random {
    /// From `MUSTER_SEED`, or from the clock. Prints the seed, so that a failure can be repeated.
    #[must_use]
    #[expect(
        clippy::print_stdout,
        reason = "a test shows its output only when it fails"
    )]
    pub fn new() -> Self {
        let given = Environment::capture()
            .read(&muster_comm::config::SEED)
            .ok()
            .flatten();
        let seed = given.unwrap_or_else(|| {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            u64::from(now.map_or(1, |since| since.subsec_nanos()))
        });
        println!("MUSTER_SEED={seed}");
        Self(seed | 1)
    }

    /// A number from 0 to `limit - 1`.
    ///
    /// # Panics
    /// If `limit` is zero.
    pub fn below(&mut self, limit: u32) -> u32 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        u32::try_from((mixed ^ (mixed >> 31)) % u64::from(limit)).expect("below a u32")
    }
}

impl Default for Random {
    fn default() -> Self {
        Self::new()
    }
}
