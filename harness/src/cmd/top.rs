//! `muster top`: what jobs do while they run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anstream::{AutoStream, ColorChoice};
use clap::Args;
use muster_comm::sync::{Clock, Deadline};
use rustix::termios::isatty;

use crate::cmd::saving::FormArgs;
use crate::cmd::values::parse_time;
use crate::exit::Exit;
use crate::fail::Failure;
use crate::live::screen::{self, GLANCE_EVERY, Wanted};
use crate::live::{Jobs, Live, metrics, once};
use crate::out;
use crate::world::signals::Interrupts;

/// Width of a table that goes to no terminal.
const WIDTH: u16 = 160;

/// Options of `muster top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    /// The job: the first digits of its number, or the process id of a rank; else all jobs of this user
    job: Option<String>,
    /// Look for one second, print what was seen, and end
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    form: FormArgs,
    /// Write the figures to this file at every look, in the text format of Prometheus
    #[arg(long, value_name = "FILE")]
    prometheus: Option<PathBuf>,
    /// Time between two looks
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time)]
    every: Duration,
}

/// Shows the jobs of this user on this host.
///
/// # Errors
/// Where there is no terminal for the live screen, no job for `--once`, or the file cannot be written.
pub fn run(args: &TopArgs) -> Result<Exit, Failure> {
    if let Some(path) = &args.prometheus {
        out::can_save(path)?;
    }
    if args.once || args.form.is_json() {
        return print(args);
    }
    if !isatty(rustix::stdio::stdout()) || !isatty(rustix::stdio::stdin()) {
        if let Some(path) = &args.prometheus {
            return export(args, path);
        }
        return Err(Failure::usage("the live screen needs a terminal")
            .with_help("print what is seen with --once, as JSON with --once --format json"));
    }
    screen::run(Wanted {
        job: args.job.clone(),
        every: args.every,
        prometheus: args.prometheus.clone(),
        has_colours: AutoStream::choice(&std::io::stdout()) != ColorChoice::Never,
    })?;
    Ok(Exit::Ok)
}

/// Writes figures at every look, without a screen, until it is asked to end.
fn export(args: &TopArgs, path: &Path) -> Result<Exit, Failure> {
    let interrupts = Interrupts::install()?;
    let mut live = Live::default();
    let mut next = Deadline::after(Duration::ZERO);
    while interrupts.count() == 0 {
        if next.passed() {
            let (jobs, _) = live.look(args.job.as_deref());
            out::save(path, &metrics::render(&jobs)?)?;
            next = Deadline::after(args.every);
        } else {
            live.glance();
        }
        Clock::pause(GLANCE_EVERY.min(next.left()));
    }
    Ok(Exit::Interrupted)
}

fn print(args: &TopArgs) -> Result<Exit, Failure> {
    let mut live = Live::default();
    let meant = args.job.as_deref();
    live.look(meant);
    let end = Deadline::after(args.every);
    while !end.passed() {
        Clock::pause(GLANCE_EVERY.min(end.left()));
        live.glance();
    }
    let (jobs, _) = live.look(meant);
    if let Some(path) = &args.prometheus {
        out::save(path, &metrics::render(&jobs)?)?;
    }
    if jobs.jobs.is_empty() {
        return Err(nothing(meant));
    }
    out::result(&text(args, &jobs)?)?;
    Ok(Exit::Ok)
}

fn text(args: &TopArgs, jobs: &Jobs) -> Result<String, Failure> {
    if args.form.is_json() {
        let text = serde_json::to_string_pretty(jobs)
            .map_err(|error| Failure::internal(error.to_string()))?;
        return Ok(text + "\n");
    }
    let width = out::terminal_width().and_then(|width| u16::try_from(width).ok());
    Ok(once(&jobs.jobs, width.unwrap_or(WIDTH)))
}

fn nothing(meant: Option<&str>) -> Failure {
    let message = match meant {
        Some(job) => format!("no job {job} of this user on this host"),
        None => "no job of this user on this host".to_owned(),
    };
    Failure::usage(message).with_help(
        "a job is seen while its ranks run: programs of muster in Rust or Python, and programs under `muster tap run`",
    )
}
