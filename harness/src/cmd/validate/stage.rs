//! A stage of `validate`: its process, and what its result says.

use muster_comm::sync::Clock;

use super::expected::{Expected, conclude};
use crate::cmd::child::{self, Ended, Variable};
use crate::cmd::saving::Saving;
use crate::diagnosis::Diagnosis;
use crate::doctor::Status;
use crate::exit::Exit;
use crate::fail::Failure;
use crate::report::document::Document;
use crate::results;
use crate::run::micros;
use crate::validation::{Outcome, Remark, Stage, Validation};
use crate::world::ranks::own_program;
use crate::world::signals::Interrupts;

/// Stages whose results are kept.
const MEASURES: [&str; 2] = ["bench", "moe"];

/// A stage to be run.
pub(super) struct Run<'a> {
    pub(super) name: &'a str,
    pub(super) pass: u32,
    pub(super) words: Vec<String>,
    /// What its processes find in the environment besides.
    pub(super) variables: Vec<Variable>,
    pub(super) interrupts: &'a Interrupts,
    pub(super) saving: &'a Saving,
}

impl Run<'_> {
    /// The stage, before anything is known of it.
    fn begun(&self) -> Stage {
        Stage {
            name: self.name.to_owned(),
            pass: self.pass,
            command: format!("muster {} {}", self.name, self.words.join(" "))
                .trim_end()
                .to_owned(),
            outcome: Outcome::Refused,
            class: Exit::Internal,
            exit_code: Exit::Internal.code(),
            finding: String::new(),
            remarks: Vec::new(),
            elapsed_us: 0,
            result: None,
            drift: None,
        }
    }

    /// Runs the command to its end. What it has measured so far is written meanwhile, beside what was found before.
    fn carry_out(&self, found: &Validation) -> Result<Ended, Failure> {
        let is_measured = self.pass == 1 && MEASURES.contains(&self.name);
        let interim: &[&str] = if is_measured { &["--interim"] } else { &[] };
        let own = self.words.iter().map(String::as_str);
        let words: Vec<&str> = [self.name].into_iter().chain(own).collect();
        let words = [&words[..], &["--format", "json"], interim].concat();
        let so_far = |line: &[u8]| {
            let result = serde_json::from_slice(line).ok().filter(|_| is_measured);
            if let Some(result) = result {
                let mut found = found.clone();
                let stage = Stage {
                    outcome: Outcome::Interrupted,
                    class: Exit::Interrupted,
                    exit_code: Exit::Interrupted.code(),
                    finding: "interrupted: some of its rounds".to_owned(),
                    result: Some(result),
                    ..self.begun()
                };
                found.add(stage, false);
                self.saving.write_interim(&found);
            }
        };
        let program = own_program();
        let mut ended = child::run(&program, &words, &self.variables, self.interrupts, so_far)?;
        if is_measured {
            ended.keep_last_line();
        }
        Ok(ended)
    }

    /// Runs the stage and judges it; gives back too whether it was asked to stop.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(super) fn stage(
        &self,
        expected: &mut Expected,
        found: &mut Validation,
    ) -> Result<(Stage, bool), Failure> {
        let started = Clock::now();
        let (name, pass) = (self.name, self.pass);
        let mut ended = self.carry_out(found)?;
        let mut stage = self.begun();
        let class = ended.code.and_then(Exit::from_code);
        let code = ended.code.and_then(|code| u8::try_from(code).ok());
        stage.exit_code = code.unwrap_or(stage.exit_code);
        match results::parse(&ended.stdout, &format!("the result of {name}")) {
            Ok(document) => {
                judge(&mut stage, document.as_ref(), class);
                let about = document.about();
                found.emulated |= about.emulated;
                if found.backend.is_none() {
                    found.backend = about.backend.map(str::to_owned);
                }
                if name == "doctor" {
                    stage.remarks = remarks_of_doctor(&ended.stdout);
                    if stage.outcome == Outcome::Accepted && !stage.remarks.is_empty() {
                        stage.outcome = Outcome::Remarks;
                    }
                }
                let comparable = document.comparable();
                if pass == 1 && comparable.is_some_and(|found| found.timed.is_some()) {
                    stage.result = serde_json::from_slice(&ended.stdout).ok();
                }
                if stage.outcome == Outcome::Accepted {
                    let stopped = hold(
                        &mut stage,
                        (document.as_ref(), &ended.stdout),
                        expected,
                        || self.carry_out(found),
                    )?;
                    ended.was_stopped |= stopped;
                }
            }
            Err(failure) => without_result(&mut stage, class, &ended, &failure),
        }
        if ended.was_stopped && class != Some(Exit::Ok) {
            // A process that has only begun is ended by the signal itself.
            (stage.outcome, stage.class) = (Outcome::Interrupted, Exit::Interrupted);
        }
        stage.elapsed_us = micros(Clock::now().duration_since(started));
        Ok((stage, ended.was_stopped))
    }
}

/// Holds the result of a stage against what is expected, and measures `again` where something is slow; gives back whether a request to stop
/// came meanwhile.
fn hold(
    stage: &mut Stage,
    (document, text): (&dyn Document, &[u8]),
    expected: &mut Expected,
    again: impl Fn() -> Result<Ended, Failure>,
) -> Result<bool, Failure> {
    let refuse = |stage: &mut Stage, failure: &Failure| {
        (stage.outcome, stage.class) = (Outcome::Refused, failure.exit);
        stage.finding = format!("not judged: {}", failure.message);
        stage.remarks.push(Remark {
            about: stage.name.clone(),
            what: failure.message.clone(),
            evidence: String::new(),
            remedy: failure.help.clone().unwrap_or_default(),
        });
    };
    stage.drift = expected.drift(&stage.name, document);
    if let Some(drift) = &stage.drift {
        let word = stage.finding.split(':').next().unwrap_or_default();
        stage.finding = format!("{word}: {}", drift.in_words());
    }
    let first = match expected.judge(document, text) {
        Ok(None) => return Ok(false),
        Ok(Some(judged)) => judged,
        Err(failure) => {
            refuse(stage, &failure);
            return Ok(false);
        }
    };
    if !first.is_slow() {
        conclude(stage, &first, None);
        return Ok(false);
    }
    let ended = again()?;
    if ended.was_stopped {
        (stage.outcome, stage.class) = (Outcome::Interrupted, Exit::Interrupted);
        return Ok(true);
    }
    let second = results::parse(
        &ended.stdout,
        &format!("the second result of {}", stage.name),
    );
    match second.and_then(|document| expected.judge(document.as_ref(), &ended.stdout)) {
        Ok(second) => conclude(stage, &first, second.as_ref()),
        Err(failure) => refuse(stage, &failure),
    }
    Ok(false)
}

/// What its own result says of a stage.
fn judge(stage: &mut Stage, document: &dyn Document, class: Option<Exit>) {
    let headline = document.headline();
    stage.finding = format!("{}: {}", headline.word, headline.sentence);
    stage.class = class.unwrap_or(Exit::Internal);
    if stage.class == Exit::Ok {
        stage.outcome = Outcome::Accepted;
    } else if stage.class == Exit::Interrupted {
        stage.outcome = Outcome::Interrupted;
    }
    if let (Outcome::Refused, Some(cause)) = (stage.outcome, document.about().verdict) {
        stage.remarks.push(Remark {
            about: stage.name.clone(),
            what: format!("{} {}", cause.class.class(), cause.text),
            evidence: cause.evidence.join("; "),
            remedy: cause.next.clone().unwrap_or_default(),
        });
    }
}

/// A stage that printed no result: it was refused what it needs, or it broke.
fn without_result(stage: &mut Stage, class: Option<Exit>, ended: &Ended, failure: &Failure) {
    let is_interrupted = class == Some(Exit::Interrupted);
    stage.class = class
        .filter(|class| *class != Exit::Ok)
        .unwrap_or(Exit::Internal);
    if is_interrupted {
        stage.outcome = Outcome::Interrupted;
    }
    let said = |word: &str| {
        let mut lines = ended.stderr.lines();
        lines.find_map(|line| {
            line.strip_prefix(word)?
                .strip_prefix(": ")
                .map(str::to_owned)
        })
    };
    let ended_how = ended.code.map_or_else(
        || "it was ended by a signal".to_owned(),
        |code| format!("it ended with code {code}"),
    );
    stage.finding = said("error").unwrap_or_else(|| failure.message.clone());
    stage.remarks.push(Remark {
        about: stage.name.clone(),
        what: stage.finding.clone(),
        evidence: ended_how,
        remedy: said("help").unwrap_or_default(),
    });
}

/// What the doctor warns of, and what failed.
pub(super) fn remarks_of_doctor(document: &[u8]) -> Vec<Remark> {
    let diagnosis: Option<Diagnosis> = serde_json::from_slice(document).ok();
    let checks = diagnosis.into_iter().flat_map(|diagnosis| diagnosis.checks);
    let problems = checks.flat_map(|check| {
        let of_check = |id: &str, problem: &crate::doctor::Problem| Remark {
            about: id.to_owned(),
            what: problem.what.clone(),
            evidence: problem.evidence.clone(),
            remedy: problem.remedy.clone(),
        };
        let found = check.problems.iter();
        let found = found.filter(|one| matches!(one.status, Status::Fail | Status::Warn));
        found
            .map(|problem| of_check(&check.id, problem))
            .collect::<Vec<_>>()
    });
    problems.collect()
}
