//! A client of PMI-1, the line protocol of MPICH's Hydra, Intel MPI and Flux: puts one value, or gets it after a barrier.
//!
//! Each side says one line at a time, `cmd=NAME key=value …`. The launcher closes the descriptor after `finalize`; without it
//! Hydra takes the end of a rank for a crash and kills the other ranks of its host. So a process can do this once.
//! It must not know what the value means.

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::{ExchangeError, waited_ms};
use crate::config::shown;
use crate::sync::Deadline;

/// The key of the value.
const KEY: &str = "muster-rendezvous";
/// Longest line of a launcher: names and values of Hydra have at most 1024 bytes each.
const LINE_BYTES_MAX: usize = 4096;

/// Puts `value` if there is one; all ranks wait for each other; gets the value if it was not this rank's to put.
pub(super) fn exchange(
    descriptor: impl AsFd,
    value: Option<&str>,
    deadline: Deadline,
) -> Result<String, ExchangeError> {
    let mut client = Client {
        descriptor,
        deadline,
        pending: Vec::new(),
    };
    client.ask("init pmi_version=1 pmi_subversion=1", "response_to_init")?;
    let name = client.ask("get_my_kvsname", "my_kvsname")?;
    let name = name.value("kvsname")?;
    if let Some(value) = value {
        let put = format!("put kvsname={name} key={KEY} value={value}");
        client.ask(&put, "put_result")?;
    }
    let barrier = client.ask("barrier_in", "barrier_out");
    if let Err(ExchangeError::Silent { waited_ms, .. }) = barrier {
        return Err(ExchangeError::Barrier { waited_ms });
    }
    barrier?;
    let got = match value {
        Some(value) => value.to_owned(),
        None => client
            .ask(&format!("get kvsname={name} key={KEY}"), "get_result")?
            .value("value")?,
    };
    client.ask("finalize", "finalize_ack")?;
    Ok(got)
}

struct Client<D> {
    descriptor: D,
    deadline: Deadline,
    /// What was read and is no whole line yet.
    pending: Vec<u8>,
}

/// An answer of the kind that was expected, whose `rc` is 0 if it has one.
struct Answer<'a> {
    asked: &'a str,
    line: String,
    allowed: &'static str,
}

impl Answer<'_> {
    fn field(&self, key: &str) -> Option<&str> {
        let mut fields = self.line.split_ascii_whitespace();
        fields.find_map(|field| field.strip_prefix(key)?.strip_prefix('='))
    }

    fn value(&self, key: &str) -> Result<String, ExchangeError> {
        let value = self.field(key).filter(|value| !value.is_empty());
        value.map(str::to_owned).ok_or_else(|| self.error())
    }

    fn error(&self) -> ExchangeError {
        ExchangeError::Answer {
            asked: self.asked.to_owned(),
            said: shown(&self.line),
            allowed: self.allowed,
        }
    }
}

impl<D: AsFd> Client<D> {
    /// Says a command and hears the answer to it.
    fn ask<'a>(
        &mut self,
        asked: &'a str,
        allowed: &'static str,
    ) -> Result<Answer<'a>, ExchangeError> {
        self.say(asked)?;
        let line = self.hear(asked, allowed)?;
        let answer = Answer {
            asked,
            line,
            allowed,
        };
        let is_right = answer.field("cmd") == Some(allowed);
        if is_right && answer.field("rc").is_none_or(|code| code == "0") {
            Ok(answer)
        } else {
            Err(answer.error())
        }
    }

    fn say(&self, asked: &str) -> Result<(), ExchangeError> {
        let line = format!("cmd={asked}\n");
        let mut rest = line.as_bytes();
        while !rest.is_empty() {
            self.wait(PollFlags::OUT, asked)?;
            match rustix::io::write(&self.descriptor, rest) {
                Ok(written) => rest = &rest[written..],
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => return Err(broken(asked, &error)),
            }
        }
        Ok(())
    }

    fn hear(&mut self, asked: &str, allowed: &'static str) -> Result<String, ExchangeError> {
        let mut scratch = [0; 512];
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            if self.pending.len() > LINE_BYTES_MAX {
                let line = String::from_utf8_lossy(&self.pending).into_owned();
                return Err(Answer {
                    asked,
                    line,
                    allowed,
                }
                .error());
            }
            self.wait(PollFlags::IN, asked)?;
            match rustix::io::read(&self.descriptor, &mut scratch) {
                Ok(0) => {
                    return Err(ExchangeError::Descriptor {
                        asked: asked.to_owned(),
                        why: "the launcher has closed it".to_owned(),
                    });
                }
                Ok(read) => self.pending.extend_from_slice(&scratch[..read]),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => return Err(broken(asked, &error)),
            }
        }
    }

    /// Waits until the descriptor can be used, at most until the deadline.
    fn wait(&self, what: PollFlags, asked: &str) -> Result<(), ExchangeError> {
        loop {
            let left = Timespec::try_from(self.deadline.left()).ok();
            let mut polled = [PollFd::new(&self.descriptor, what)];
            match poll(&mut polled, left.as_ref()) {
                Ok(ready) if ready > 0 => return Ok(()),
                Ok(_) if self.deadline.passed() => {
                    return Err(ExchangeError::Silent {
                        way: "PMI-1",
                        asked: shown(asked),
                        waited_ms: waited_ms(self.deadline),
                    });
                }
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(broken(asked, &error)),
            }
        }
    }
}

fn broken(asked: &str, error: &Errno) -> ExchangeError {
    ExchangeError::Descriptor {
        asked: shown(asked),
        why: error.to_string(),
    }
}

#[cfg(test)]
#[path = "pmi/tests.rs"]
mod tests;
