//! What is done with a verdict on a job under the tap.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{fs, io};

use muster_comm::error::verdict::{Class, Verdict};
use muster_comm::rendezvous::ProcessId;
use muster_comm::sync::{Clock, Deadline};
use muster_comm::watch::process::{Sight, environment, number};
use muster_comm::watch::report::Report;
use muster_comm::watch::tap::BoardFile;
use muster_comm::watch::{in_words, keep};
use rustix::process::{Pid, Signal, kill_process};

use super::OnVerdict;
use crate::out;

/// Ranks that are asked where they are.
const ASKED_MAX: usize = 2;
/// How long a command may take, and how often it is looked.
const COMMAND_LIMIT: Duration = Duration::from_secs(60);
const COMMAND_LOOK: Duration = Duration::from_millis(20);

/// A process of the job.
pub(super) struct Member<'a> {
    pub(super) rank: u32,
    pub(super) board: &'a BoardFile,
}

/// Prints a verdict, with where the ranks are that it names, and does what was asked for.
pub(super) fn tell<'a>(
    verdict: &mut Verdict,
    members: &[Member<'_>],
    reports: impl Iterator<Item = &'a Report>,
    actions: &[OnVerdict],
) {
    if verdict.class == Class::NotJoined {
        for rank in verdict.blamed.iter().take(ASKED_MAX) {
            let of_rank = members.iter().filter(|member| member.rank == *rank);
            let stacks = of_rank.map(|member| member.board.python_stack());
            let stacks = stacks.filter(|stack| !stack.is_empty());
            verdict
                .evidence
                .extend(stacks.map(|stack| in_words(*rank, &stack)));
        }
    }
    out::note(&verdict.line());
    let reports: Vec<&Report> = reports.collect();
    for action in actions {
        match action {
            OnVerdict::Dump(folder) => dump(folder, &reports, members, verdict),
            OnVerdict::Command(text) => run(text, members, verdict),
            OnVerdict::Abort | OnVerdict::Report => {}
        }
    }
    if actions.contains(&OnVerdict::Abort) {
        members.iter().for_each(|member| end(member.board));
    }
}

fn dump(folder: &Path, reports: &[&Report], members: &[Member<'_>], verdict: &Verdict) {
    let variables = |rank: u32| {
        let member = members.iter().find(|member| member.rank == rank);
        let pid = member.and_then(|member| number(&member.board.process()));
        pid.map(|pid| environment(Some(pid))).unwrap_or_default()
    };
    let with_variables = |report: &&Report| Report {
        environment: variables(report.rank),
        ..Report::clone(report)
    };
    let written = fs::create_dir_all(folder).and_then(|()| {
        let mut reports = reports.iter().map(with_variables);
        reports.try_for_each(|report| keep(folder, &report, Some(verdict)))
    });
    let folder = folder.display();
    out::note(&match written {
        Ok(()) => format!(
            "{} dumps in {folder}; read them with `muster explain {folder}`",
            reports.len()
        ),
        Err(error) => format!("no dumps in {folder}: {error}"),
    });
}

/// Runs a command in a shell; what it prints goes where ours goes.
fn run(text: &str, members: &[Member<'_>], verdict: &Verdict) {
    let pids = |is_blamed: bool| {
        let chosen = members
            .iter()
            .filter(|member| verdict.blamed.contains(&member.rank) == is_blamed);
        let pids = chosen.filter_map(|member| number(&member.board.process()));
        pids.map(|pid| pid.to_string())
            .collect::<Vec<_>>()
            .join(" ")
    };
    let mut command = Command::new("sh");
    command
        .args(["-c", text])
        .env("MUSTER_VERDICT", verdict.line())
        .env("MUSTER_VERDICT_PIDS", pids(true))
        .env("MUSTER_OTHER_PIDS", pids(false))
        .stdin(Stdio::null());
    match wait(&mut command) {
        Ok(Some(status)) if status.success() => {}
        Ok(Some(status)) => out::note(&format!("the command of --on-verdict: {status}")),
        Ok(None) => out::note(&format!(
            "the command of --on-verdict was ended after {} s",
            COMMAND_LIMIT.as_secs()
        )),
        Err(error) => out::note(&format!("the command of --on-verdict did not run: {error}")),
    }
}

/// How a command ended; `None` where it had to be.
fn wait(command: &mut Command) -> io::Result<Option<std::process::ExitStatus>> {
    let mut child = command.spawn()?;
    let deadline = Deadline::after(COMMAND_LIMIT);
    while !deadline.passed() {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        Clock::pause(COMMAND_LOOK);
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

/// Asks a process to end, if it is the one of the board.
fn end(board: &BoardFile) {
    if board.sight() != Sight::Ended
        && let Some(pid) = pid_of(&board.process())
    {
        ask_to_end(pid);
    }
}

pub(super) fn ask_to_end(pid: Pid) {
    // It may end at this moment; a stopped one ends when it goes on.
    let _ = kill_process(pid, Signal::TERM);
    let _ = kill_process(pid, Signal::CONT);
}

/// The number of a process as this process sees it, where it does.
pub(super) fn pid_of(process: &ProcessId) -> Option<Pid> {
    Pid::from_raw(i32::try_from(number(process)?).ok()?)
}
