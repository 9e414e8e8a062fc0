//! How the processes of a run are made: their files, environments, and the threads that hear them.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};

use crossbeam::channel::Sender;
use muster_comm::config::Environment;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::super::actor::PARTS;
use super::super::clean::MARK;
use super::super::plan::Plan;
use super::super::script::Part;
use super::{Child, Event, Stage, Who};
use crate::fail::Failure;
use crate::world::Ended;
use crate::world::ranks::own_program;

impl Stage<'_> {
    pub(super) fn write_parts(&self, parts: &[Part]) -> Result<(), Failure> {
        let file = self.folder.path().join(PARTS);
        let mut parts = parts.to_vec();
        for part in &mut parts {
            let ports = self.wires.as_ref().map(|wires| wires.ports.as_slice());
            part.advertise = ports.and_then(|ports| ports.get(part.rank as usize).copied());
        }
        let text = serde_json::to_string(&parts)
            .map_err(|error| Failure::internal(format!("the parts cannot be written: {error}")))?;
        std::fs::write(&file, text)
            .map_err(|error| Failure::resource(format!("{}: {error}", file.display())))
    }

    /// The secret of the job, in a file as an administrator would lay it out.
    pub(super) fn secret_file(&self, name: &str) -> Result<std::path::PathBuf, Failure> {
        use std::io::Write;
        use std::os::unix::fs::OpenOptionsExt;
        let file = self.folder.path().join(name);
        let failed = |error: String| Failure::resource(format!("{}: {error}", file.display()));
        if !file.exists() {
            let secret = muster_comm::rendezvous::Secret::random()
                .map_err(|error| failed(error.to_string()))?;
            std::fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&file)
                .and_then(|mut open| open.write_all(secret.expose()))
                .map_err(|error| failed(error.to_string()))?;
        }
        Ok(file)
    }

    /// A command tied to this process, with a clean environment and the run's mark.
    pub(super) fn command(
        &self,
        words: &[String],
        namespace: Option<&str>,
        plan: &Plan,
    ) -> Command {
        let environment = Environment::capture();
        let mut command = match namespace {
            None => Command::new(own_program()),
            // It becomes our program, and keeps its process id.
            Some(name) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", name]).arg(own_program());
                command
            }
        };
        command
            .args([
                "__exec",
                "--launcher",
                &std::process::id().to_string(),
                "--",
            ])
            .args(words)
            .env_clear()
            .env(MARK, &self.mark)
            .env("MUSTER_TRANSPORT", self.setting.transport.name())
            .env("MUSTER_DEADLINE_S", plan.deadline.as_secs_f64().to_string());
        let sabotage = cfg!(debug_assertions).then_some("MUSTER_SABOTAGE");
        for name in ["PATH", "HOME", "XDG_RUNTIME_DIR"]
            .into_iter()
            .chain(sabotage)
        {
            if let Ok(Some(value)) = environment.text(name) {
                command.env(name, value);
            }
        }
        command
    }

    pub(super) fn spawn(
        &mut self,
        who: Who,
        rank: Option<u32>,
        mut command: Command,
    ) -> Result<(), Failure> {
        let failed =
            |error: std::io::Error| Failure::resource(format!("no process for {who:?}: {error}"));
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let id = Pid::from_child(&process);
        let pidfd = pidfd_open(id, PidfdFlags::empty()).map_err(|error| failed(error.into()))?;
        let child = self.children.len();
        hear(child, process.stdout.take(), self.sender.clone()).map_err(failed)?;
        hear(child, process.stderr.take(), self.sender.clone()).map_err(failed)?;
        let sender = self.sender.clone();
        std::thread::Builder::new()
            .name("drill-wait".to_owned())
            .spawn(move || {
                let how = process.wait().map_or(Ended::Lost, ended);
                // A drill that is over does not care.
                let _ = sender.send(Event::Ended { child, how });
            })
            .map_err(failed)?;
        self.children.push(Child {
            who,
            pid: id.as_raw_nonzero().get(),
            ended: None,
            rank,
            pidfd,
        });
        Ok(())
    }
}

fn ended(status: ExitStatus) -> Ended {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ended::Exited(code),
        (None, Some(signal)) => Ended::Signaled(signal),
        (None, None) => Ended::Lost,
    }
}

/// Reads what a process prints, to the end.
fn hear(
    child: usize,
    stream: Option<impl Read + Send + 'static>,
    sender: Sender<Event>,
) -> std::io::Result<()> {
    let Some(stream) = stream else {
        return Ok(());
    };
    let listen = move || {
        let mut reader = BufReader::new(stream);
        let mut bytes = Vec::new();
        while reader
            .read_until(b'\n', &mut bytes)
            .is_ok_and(|read| read > 0)
        {
            let text = String::from_utf8_lossy(&bytes).trim_end().to_owned();
            bytes.clear();
            if sender.send(Event::Line { child, text }).is_err() {
                return;
            }
        }
        let _ = sender.send(Event::Closed);
    };
    std::thread::Builder::new()
        .name("drill-hear".to_owned())
        .spawn(listen)
        .map(drop)
}
